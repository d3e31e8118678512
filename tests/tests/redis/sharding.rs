//! Several servers behind one listener, each with a part of the keys.

use std::collections::BTreeSet;

use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, bulk_array, encode};

const KEYS: usize = 600;

/// Servers, and a gateway that spreads keys over them.
fn stage(kinds: &[Kind], sharding: &str) -> (Vec<Server>, Gateway) {
    let servers: Vec<Server> = kinds.iter().map(|&kind| Server::start(kind)).collect();
    let config = Config::to_all(servers.iter().map(|server| &server.address))
        .upstream(&format!("[upstream.sharding]\n{sharding}"))
        .upstream("[upstream.health]\ninterval = \"100ms\"\ntimeout = \"100ms\"");
    (servers, Gateway::start(config))
}

fn keys() -> Vec<String> {
    (0..KEYS).map(|n| format!("{n}:user")).collect()
}

fn held(server: &Server) -> BTreeSet<String> {
    let keys = bulk_array(&server.connect().call(&["KEYS", "*"])).into_iter();
    keys.map(|key| String::from_utf8(key).expect("text")).collect()
}

/// Sets every key to its own name, in one command.
fn fill(client: &mut Client) {
    let mut words = vec!["MSET".to_owned()];
    words.extend(keys().into_iter().flat_map(|key| [key.clone(), format!("value of {key}")]));
    client.expect(&words, b"+OK\r\n");
}

#[test]
fn each_key_is_on_one_shard_and_found_there() {
    for distribution in ["ketama", "modula", "ring_hash", "maglev"] {
        let kinds = [Kind::Redis, Kind::Valkey, Kind::Redis];
        let (servers, gateway) = stage(&kinds, &format!("distribution = \"{distribution}\""));
        let mut client = gateway.connect();
        fill(&mut client);
        let parts: Vec<BTreeSet<String>> = servers.iter().map(held).collect();
        let total: usize = parts.iter().map(BTreeSet::len).sum();
        assert_eq!(total, KEYS, "no key is on two shards");
        assert!(parts.iter().all(|part| part.len() > KEYS / 10), "{distribution}: a shard has next to nothing");
        // One by one, pipelined, and all at once.
        let requests: Vec<u8> = keys().iter().flat_map(|key| encode(&["GET", key])).collect();
        client.send(&requests);
        for key in keys() {
            assert_eq!(bulk(&client.reply()), format!("value of {key}").into_bytes());
        }
        let mut words = vec!["MGET".to_owned()];
        words.extend(keys());
        words.push("nobody".to_owned());
        let values = bulk_array(&client.call(&words));
        let wanted = keys().into_iter().map(|key| format!("value of {key}")).chain([String::new()]);
        assert!(
            values.into_iter().eq(wanted.map(String::into_bytes)),
            "{distribution}: values in the order of the keys"
        );
    }
}

#[test]
fn commands_over_all_shards_speak_of_all_keys() {
    let (servers, gateway) = stage(&[Kind::Redis; 3], "distribution = \"ketama\"");
    let mut client = gateway.connect();
    fill(&mut client);
    client.expect(&["DBSIZE"], format!(":{KEYS}\r\n").as_bytes());
    let all: BTreeSet<Vec<u8>> = keys().into_iter().map(String::into_bytes).collect();
    assert_eq!(bulk_array(&client.call(&["KEYS", "*:user"])).into_iter().collect::<BTreeSet<_>>(), all);
    let mut scanned = Vec::new();
    let mut cursor = b"0".to_vec();
    loop {
        let page = client.call(&[b"SCAN", &cursor[..], b"COUNT", b"50"]);
        // `*2`, the cursor, the keys.
        let rest = &page[4..];
        let end = weir_tests::wire::reply_length(rest).expect("a cursor");
        cursor = bulk(&rest[..end]);
        scanned.extend(bulk_array(&rest[end..]));
        if cursor == b"0" {
            break;
        }
    }
    assert_eq!(scanned.len(), KEYS, "each key once");
    assert_eq!(scanned.into_iter().collect::<BTreeSet<_>>(), all);
    let mut words = vec!["EXISTS".to_owned()];
    words.extend(keys());
    client.expect(&words, format!(":{KEYS}\r\n").as_bytes());
    words[0] = "DEL".to_owned();
    client.expect(&words, format!(":{KEYS}\r\n").as_bytes());
    assert_eq!(client.call(&["RANDOMKEY"]), b"$-1\r\n");
    // A script is on every shard, so EVALSHA finds it wherever its key is.
    let digest = bulk(&client.call(&["SCRIPT", "LOAD", "return redis.call('GET', KEYS[1])"]));
    fill(&mut client);
    for key in keys().iter().take(20) {
        let value = client.call(&[b"EVALSHA", &digest[..], b"1", key.as_bytes()]);
        assert_eq!(bulk(&value), format!("value of {key}").into_bytes());
    }
    let info = String::from_utf8(bulk(&client.call(&["INFO", "everything", "weir"]))).expect("text");
    assert!(info.contains(&format!("db0:keys={KEYS},expires=0,")), "{info}");
    assert!(info.contains("# Weir\r\n") && info.contains("tcp_port:"), "{info}");
    let loads: u64 = servers.iter().map(|server| server.calls("script|load")).sum();
    assert!(loads == 3 && info.contains("cmdstat_script|load:calls=3,"), "{info}");
    client.call(&["HELLO", "3"]);
    assert!(client.call(&["INFO", "keyspace"]).starts_with(b"="), "RESP3 marks it as text");
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["INFO", "server"], b"+QUEUED\r\n");
    assert!(client.call(&["EXEC"]).starts_with(b"*1\r\n="), "of one shard");
    client.expect(&["FLUSHALL"], b"+OK\r\n");
    assert!(servers.iter().all(|server| held(server).is_empty()));
}

#[test]
fn a_tag_keeps_keys_together() {
    let (servers, gateway) = stage(&[Kind::Redis; 3], "distribution = \"maglev\"\nhash_tag = \"{}\"");
    let mut client = gateway.connect();
    let cross = b"-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    for n in 0..50 {
        let (one, other) = (format!("{{cart:{n}}}:a"), format!("{{cart:{n}}}:b"));
        client.expect(&["SET", &one, "1"], b"+OK\r\n");
        client.expect(&["RENAME", &one, &other], b"+OK\r\n");
        client.expect(&["WATCH", &other], b"+OK\r\n");
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["INCR", &other], b"+QUEUED\r\n");
        client.expect(&["INCR", &one], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*2\r\n:2\r\n:1\r\n");
    }
    assert!(servers.iter().all(|server| !held(server).is_empty()));
    let all: Vec<BTreeSet<String>> = servers.iter().map(held).collect();
    let (one, other) = (all[0].first().expect("a key"), all[1].first().expect("a key"));
    client.expect(&["RENAME", one, other], cross);
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["GET", one], b"+QUEUED\r\n");
    client.expect(&["GET", other], cross);
    client.expect(&["EXEC"], b"-EXECABORT Transaction discarded because of previous errors.\r\n");
}

/// `PFMERGE key` went to the first shard whatever the key: EXISTS said 0, and the key came to live on two shards.
#[test]
fn a_command_with_its_optional_keys_absent_lands_on_the_shard_of_its_key() {
    let (servers, gateway) = stage(&[Kind::Redis, Kind::Valkey, Kind::Redis], "distribution = \"maglev\"");
    let mut client = gateway.connect();
    for n in 0..30 {
        let key = format!("visitors:{n}");
        client.expect(&["PfMerge", &key], b"+OK\r\n");
        client.expect(&["EXISTS", &key], b":1\r\n");
        client.expect(&["PFADD", &key, "a"], b":1\r\n");
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["PFMERGE", &key], b"+QUEUED\r\n");
        client.expect(&["PFCOUNT", &key], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*2\r\n+OK\r\n:1\r\n");
    }
    let parts: Vec<BTreeSet<String>> = servers.iter().map(held).collect();
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), 30, "no key is on two shards: {parts:?}");
    assert!(parts.iter().all(|part| !part.is_empty()), "{parts:?}");
}

/// A command whose keys cannot be read has no shard: it gets a server's error, and reaches no server.
#[test]
fn a_command_whose_keys_cannot_be_read_is_refused_and_sent_to_nobody() {
    let (servers, gateway) = stage(&[Kind::Redis; 3], "distribution = \"maglev\"");
    let mut client = gateway.connect();
    let lines = [
        "EVAL r -1 a",
        "EVAL r 01 a",
        "EVAL r 9 a",
        "ZUNION 0 a",
        "SINTERCARD 9 a",
        "LMPOP 9 a LEFT",
        "BLMPOP 0 9 a LEFT",
        "XREAD COUNT 1 a",
        "XREAD COUNT 1 BLOCK 0",
    ];
    let mut direct = servers[0].connect();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let wanted = direct.call(&words);
        assert!(wanted.starts_with(b"-ERR"), "{line}");
        client.expect(&words, &wanted);
    }
    for server in &servers[1..] {
        let calls = ["eval", "zunion", "sintercard", "lmpop", "blmpop", "xread"].map(|name| server.calls(name));
        assert_eq!(calls, [0; 6]);
    }
    let reason = [("reason", "unreadable_keys")];
    gateway.wait_metric("weir_shed_total", &reason, lines.len() as f64);
}

#[test]
fn a_dead_shard_costs_its_own_keys() {
    let (mut servers, gateway) = stage(&[Kind::Redis; 3], "distribution = \"ketama\"");
    let mut client = gateway.connect();
    fill(&mut client);
    let parts: Vec<BTreeSet<String>> = servers.iter().map(held).collect();
    servers[1].kill();
    let mut refused = 0;
    for (part, keys) in parts.iter().enumerate() {
        for key in keys.iter().take(20) {
            let came = client.call(&["GET", key]);
            match part {
                1 => {
                    assert!(came.starts_with(b"-ERR weir: "), "{key}");
                    refused += 1;
                }
                _ => assert_eq!(bulk(&came), format!("value of {key}").into_bytes()),
            }
        }
    }
    assert_eq!(refused, 20);
    let (lost, kept) = (parts[1].first().expect("a key"), parts[0].first().expect("a key"));
    let came = client.call(&["MGET", kept, lost]);
    let text = String::from_utf8_lossy(&came).into_owned();
    assert!(text.starts_with("*2\r\n$") && text.contains("\r\n-ERR weir: "), "{text}");
    let partly = client.call(&["DEL", kept, lost]);
    assert!(partly.starts_with(b"-ERR weir: done on 1 of 2 shards; another said: "));
    // Healthy workers report the state.
    assert!(bulk(&client.call(&["INFO", "server", "weir"])).starts_with(b"# Server"));
    let down = |server: &Server| [("endpoint", server.address.text()), ("state", "down".to_owned())];
    let labels = down(&servers[1]);
    let labels = [(labels[0].0, &*labels[0].1), (labels[1].0, &*labels[1].1)];
    gateway.wait_metric("weir_endpoint_health_changes_total", &labels, 1.0);
    assert_eq!(gateway.metrics().sum("weir_endpoint_up"), 2.0, "the others are well");
}

#[test]
fn replies_stay_in_step_when_all_shards_refuse_at_once() {
    let mut servers: Vec<Server> = (0..2).map(|_| Server::start(Kind::Redis)).collect();
    let config = Config::to_all(servers.iter().map(|server| &server.address))
        .upstream("sharding = { distribution = \"ketama\" }\n[upstream.breaker]\nfailures = 1\nopen_for = \"60s\"");
    let gateway = Gateway::start(config.workers(1));
    servers.iter_mut().for_each(Server::kill);
    let mut client = gateway.connect();
    weir_tests::deadline::until_true("both breakers to open", || {
        client.call(&["DBSIZE"]);
        gateway.metric("weir_breaker_opened_total") >= 2.0
    });
    for _ in 0..3 {
        for words in [&["INFO", "server", "weir"][..], &["INFO"], &["MGET", "a", "b", "c", "d"], &["DBSIZE"]] {
            let came = client.call(words);
            let text = String::from_utf8_lossy(&came);
            assert!(text.contains("-ERR weir: "), "{words:?}: {text}");
            client.expect(&["PING"], b"+PONG\r\n");
        }
    }
}

#[test]
fn a_reload_may_redistribute_the_keys() {
    let (servers, gateway) = stage(&[Kind::Redis; 2], "distribution = \"modula\"");
    let mut client = gateway.connect();
    fill(&mut client);
    let config = std::fs::read_to_string(&gateway.file).expect("the file");
    let both = format!("[{:?}, {:?}]", servers[0].address.text(), servers[1].address.text());
    let one = format!("[{:?}]", servers[0].address.text());
    assert!(config.contains(&both));
    std::fs::write(&gateway.file, config.replace(&both, &one)).expect("written");
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.json()["outcome"], "applied", "{}", response.body);
    let held = held(&servers[0]).len();
    client.expect(&["DBSIZE"], format!(":{held}\r\n").as_bytes());
}
