//! twemproxy: each pool of `nutcracker.yml` becomes a listener with its upstream.

use crate::address;
use crate::model::{Config, Listener, Names, Protocol, Upstream};
use crate::note::{Mistake, Note};
use crate::toml::{Table, Value};
use crate::yaml::{self, Node};

/// Where keys would be looked for on another server than the one that has them.
const KEYS_MOVE: &str = "keys would be looked for on other servers than those that have them";

/// The weight that all servers may have: keys are spread alike then.
const SAME: u64 = 1;

/// Reads a configuration.
pub(crate) fn read(name: &str, text: &str) -> Result<Config, Mistake> {
    let tree = yaml::parse(name, text)?;
    if tree.entries().is_empty() {
        return Err(Mistake::new(&tree.place, "there is no pool: a pool is a name with keys below it"));
    }
    let mut config = Config::default();
    let (mut listeners, mut upstreams) = (Names::default(), Names::default());
    for (pool, keys) in tree.entries() {
        read_pool(pool, keys, &mut config, &mut listeners, &mut upstreams)?;
    }
    match config.listeners.is_empty() {
        true => Err(Mistake::new(&tree.place, "there is no pool with `redis: true`; Weir does not speak memcached")),
        false => Ok(config),
    }
}

/// A server of a pool.
struct Server {
    address: String,
    weight: u64,
    name: Option<String>,
}

fn read_pool(
    pool: &str,
    keys: &Node,
    config: &mut Config,
    listeners: &mut Names,
    upstreams: &mut Names,
) -> Result<(), Mistake> {
    if keys.entries().is_empty() {
        return Err(Mistake::new(&keys.place, format!("the pool `{pool}` has no keys")));
    }
    if !keys.get("redis").is_some_and(Node::is_true) {
        let why = "the pool speaks memcached, which Weir does not; it is left out";
        config.notes.push(Note::new(&keys.place, pool, why, ""));
        return Ok(());
    }
    let Some(listen) = keys.get("listen") else {
        return Err(Mistake::new(&keys.place, format!("the pool `{pool}` has no `listen`")));
    };
    let mut listener = Listener {
        name: listeners.unique(pool),
        bind: bind(listen)?,
        protocol: Protocol::Redis,
        upstream: upstreams.unique(pool),
        more: Table::default(),
        notes: Vec::new(),
    };
    let mut upstream = Upstream::new(listener.upstream.clone(), &keys.place);
    let servers = servers(pool, keys)?;
    for server in &servers {
        if upstream.endpoints.contains(&server.address) {
            return Err(Mistake::new(&keys.place, format!("the pool `{pool}` names {} twice", server.address)));
        }
        upstream.endpoints.push(server.address.clone());
    }
    for (key, value) in keys.entries() {
        read_key(key, value, &mut listener, &mut upstream)?;
    }
    if servers.len() > 1 {
        sharding(keys, &servers, &mut upstream)?;
    }
    ejection(keys, &mut upstream)?;
    config.listeners.push(listener);
    config.upstreams.push(upstream);
    Ok(())
}

/// Keys that stand by themselves.
fn read_key(key: &str, value: &Node, listener: &mut Listener, upstream: &mut Upstream) -> Result<(), Mistake> {
    let directive = format!("{key}: {}", value.text());
    let note = |why: &str, nearest: &str| Note::new(&value.place, directive.trim_end(), why, nearest);
    match key {
        "timeout" => {
            let millis = value.number(key)?.clamp(1, 3_600_000);
            upstream.more.set("connect_timeout", Value::millis(millis));
            upstream.more.set("request_timeout", Value::millis(millis));
        }
        "backlog" => listener.more.set("backlog", Value::Number(value.number(key)?.clamp(1, 65_535))),
        "client_connections" => match value.number(key)? {
            0 => {}
            count => listener.more.set("connections_max", Value::Number(count)),
        },
        "server_connections" => {
            let count = value.number(key)?.clamp(1, 64);
            if count > 1 {
                upstream.more.set("shared_lanes", Value::Number(count));
                upstream.notes.push(note("connections are counted for each worker", "shared_lanes"));
            }
        }
        "redis_auth" => {
            listener.more.set("redis.password", Value::secret("REDIS_PASSWORD"));
            upstream.more.set("redis.password", Value::secret("REDIS_PASSWORD"));
            // The password itself is not repeated.
            let why = "passwords are not written to the file: set REDIS_PASSWORD in the environment of Weir";
            listener.notes.push(Note::new(&value.place, "redis_auth", why, "password = { file = \"/path\" }"));
        }
        "redis_db" if value.text() != "0" => {
            upstream.notes.push(note("every client begins with database 0, and may choose with SELECT", ""));
        }
        "hash_tag" if value.text().chars().count() != 2 => {
            return Err(Mistake::new(&value.place, "hash_tag needs two characters, as \"{}\""));
        }
        "preconnect" if value.is_true() => {
            upstream
                .notes
                .push(note("connections are made when they are needed; checks connect at once", "[upstream.health]"));
        }
        "auto_eject_hosts" if value.is_true() => {
            let why = "a server that fails keeps its keys: requests for them fail until it is back";
            upstream.notes.push(note(why, "[upstream.breaker], topology = \"cluster\" or \"sentinel\""));
        }
        "listen"
        | "servers"
        | "redis"
        | "hash"
        | "distribution"
        | "hash_tag"
        | "redis_db"
        | "preconnect"
        | "tcpkeepalive"
        | "auto_eject_hosts"
        | "server_retry_timeout"
        | "server_failure_limit" => {}
        _ => return Err(Mistake::new(&value.place, format!("`{key}` is no key of a pool"))),
    }
    Ok(())
}

/// How a server that fails is left alone for a while.
fn ejection(keys: &Node, upstream: &mut Upstream) -> Result<(), Mistake> {
    if !keys.get("auto_eject_hosts").is_some_and(Node::is_true) {
        return Ok(());
    }
    if let Some(value) = keys.get("server_failure_limit") {
        let count = value.number("server_failure_limit")?.clamp(1, 100_000);
        upstream.more.set("breaker.failures", Value::Number(count));
    }
    if let Some(value) = keys.get("server_retry_timeout") {
        let millis = value.number("server_retry_timeout")?.clamp(10, 3_600_000);
        upstream.more.set("breaker.open_for", Value::millis(millis));
    }
    Ok(())
}

/// Which server has a key. twemproxy's defaults are ketama and fnv1a_64.
fn sharding(keys: &Node, servers: &[Server], upstream: &mut Upstream) -> Result<(), Mistake> {
    let scheme = keys.get("distribution");
    let distribution = match scheme.map(Node::text) {
        None | Some("ketama") => "ketama",
        Some("modula") => "modula",
        Some("random") => {
            let place = scheme.map_or(&keys.place, |node| &node.place);
            let why = "a key has one server; with `random` any server may have the key";
            upstream.notes.push(Note::new(place, "distribution: random", why, "distribution = \"maglev\""));
            "maglev"
        }
        Some(other) => {
            let place = scheme.map_or(&keys.place, |node| &node.place);
            return Err(Mistake::new(place, format!("`{other}` is no distribution: ketama, modula or random")));
        }
    };
    upstream.more.set("sharding.distribution", Value::text(distribution));
    match keys.get("hash") {
        None => upstream.more.set("sharding.hash", Value::text("fnv1a_64")),
        Some(hash) => hash_of(hash, upstream)?,
    }
    if let Some(tag) = keys.get("hash_tag") {
        upstream.more.set("sharding.hash_tag", Value::text(tag.text()));
    }
    let place = keys.get("servers").map_or(&keys.place, |node| &node.place);
    let same_weight = servers.iter().all(|server| server.weight == servers[0].weight);
    // With modula a server of weight 2 stands twice in the list, so that equal weights are no other than 1.
    let is_said = same_weight && (servers[0].weight == SAME || distribution != "modula");
    if !is_said {
        let why = format!("servers have no weights: {KEYS_MOVE}");
        upstream.notes.push(Note::new(place, "servers with weights", why, "equal weights, or a resharding"));
    }
    let is_named = servers.iter().any(|server| server.name.as_ref().is_some_and(|name| *name != server.address));
    if is_named && distribution == "ketama" {
        let why = format!("ketama places keys by the address, not by the name of a server: {KEYS_MOVE}");
        upstream.notes.push(Note::new(place, "servers with names", why, "a resharding"));
    }
    Ok(())
}

fn hash_of(hash: &Node, upstream: &mut Upstream) -> Result<(), Mistake> {
    // Its crc16 keeps more than 16 bits, and its murmur has 32: Weir's of these names are others.
    const KNOWN: [&str; 11] = [
        "one_at_a_time",
        "md5",
        "crc16",
        "crc32",
        "crc32a",
        "fnv1_64",
        "fnv1_32",
        "fnv1a_32",
        "hsieh",
        "murmur",
        "jenkins",
    ];
    match hash.text() {
        word @ "fnv1a_64" => upstream.more.set("sharding.hash", Value::text(word)),
        word if KNOWN.contains(&word) => {
            let why = format!("Weir does not have this hash: {KEYS_MOVE}");
            upstream.notes.push(Note::new(&hash.place, format!("hash: {word}"), why, "hash = \"murmur2\""));
            upstream.more.set("sharding.hash", Value::text("murmur2"));
        }
        word => return Err(Mistake::new(&hash.place, format!("`{word}` is no hash of twemproxy"))),
    }
    Ok(())
}

/// `127.0.0.1:22121`, `0.0.0.0:22121` or `/path [0666]`.
fn bind(listen: &Node) -> Result<String, Mistake> {
    let text = listen.text();
    if let Some(path) = text.split_whitespace().next().filter(|path| path.starts_with('/')) {
        return Ok(format!("unix:{path}"));
    }
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    match text.parse::<std::net::SocketAddr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => Err(Mistake::new(&listen.place, format!("`listen: {text}` needs an IP address and a port"))),
    }
}

/// `host:port:weight` or `/path:weight`, with a name behind.
fn servers(pool: &str, keys: &Node) -> Result<Vec<Server>, Mistake> {
    let list = keys.items_at("servers");
    if list.is_empty() {
        return Err(Mistake::new(&keys.place, format!("the pool `{pool}` has no servers")));
    }
    let read = |node: &Node| {
        let wrong = || Mistake::new(&node.place, format!("`{}` is no server: write host:port:weight", node.text()));
        let mut words = node.text().split_whitespace();
        let (address, weight) = words.next().and_then(|word| word.rsplit_once(':')).ok_or_else(wrong)?;
        let weight = weight.parse().ok().filter(|weight| *weight > 0).ok_or_else(wrong)?;
        let name = words.next().map(str::to_owned);
        let address = match address.starts_with('/') {
            true => format!("unix:{address}"),
            false => address::endpoint(address, &node.place).map_err(|_| wrong())?,
        };
        Ok(Server { address, weight, name })
    };
    list.iter().map(read).collect()
}
