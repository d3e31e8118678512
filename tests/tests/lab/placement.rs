//! Keys are where the proxies whose schemes we follow put them: 10,000 keys are written through the program itself and then
//! looked for through Weir, shard by shard.

use std::collections::BTreeMap;
use std::path::Path;

use weir_tests::client::Client;
use weir_tests::deadline::{WAIT, until};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::{Address, Stream};
use weir_tests::wire::{bulk_array, encode};

const KEYS: usize = 10_000;
/// Commands in one write.
const BATCH: usize = 500;
const SHARDS: usize = 5;

/// Keys of many lengths, some with tags.
fn keys() -> Vec<String> {
    (0..KEYS)
        .map(|n| match n % 4 {
            0 => format!("user:{n}"),
            1 => format!("{{tag-{}}}:field:{n}", n % 97),
            2 => "x".repeat(n % 60) + &n.to_string(),
            _ => format!("a{{}}b:{n}"),
        })
        .collect()
}

/// Writes all keys through `address`.
fn write(address: &Address) {
    let mut client = Client::connect(address);
    for keys in keys().chunks(BATCH) {
        let requests: Vec<u8> = keys.iter().flat_map(|key| encode(&["SET", key, "v"])).collect();
        client.send(&requests);
        keys.iter().for_each(|key| assert_eq!(client.reply(), b"+OK\r\n", "{key}"));
    }
}

/// Which server has which key.
fn places(servers: &[Server]) -> BTreeMap<Vec<u8>, usize> {
    let of = |(shard, server): (usize, &Server)| {
        bulk_array(&server.connect().call(&["KEYS", "*"])).into_iter().map(move |key| (key, shard))
    };
    servers.iter().enumerate().flat_map(of).collect()
}

/// Runs `program` with `config` and writes the keys through it; then the same through Weir with `sharding`.
fn compare(program: &[&str], config: impl Fn(u16, &[Server], &Path) -> String, sharding: &str) {
    let servers: Vec<Server> = (0..SHARDS).map(|_| Server::start(Kind::Redis)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let port = port::free();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, config(port, &servers, folder.path())).expect("written");
    let mut words: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
    words.push(file.to_string_lossy().into_owned());
    let log = folder.path().join("peer.log");
    let mut peer = Process::start(program[0], &words, &log, &[]);
    let address = Address::port(port);
    until(format!("{} to listen", program[0]), WAIT, || Stream::connect(&address).ok());
    write(&address);
    let theirs = places(&servers);
    assert_eq!(theirs.len(), KEYS, "{}", peer.log());
    peer.kill();
    servers.iter().for_each(|server| server.connect().expect(&["FLUSHALL"], b"+OK\r\n"));
    let config = Config::to_all(servers.iter().map(|server| &server.address))
        .upstream(&format!("[upstream.sharding]\n{sharding}"));
    let gateway = Gateway::start(config);
    write(&gateway.address);
    let ours = places(&servers);
    let moved: Vec<String> = theirs
        .iter()
        .filter(|(key, shard)| ours.get(*key) != Some(shard))
        .map(|(key, shard)| format!("{} on {shard}, here on {:?}", key.escape_ascii(), ours.get(key)))
        .collect();
    assert!(moved.is_empty(), "{} of {KEYS} keys moved: {:?}", moved.len(), &moved[..moved.len().min(5)]);
}

fn twemproxy(distribution: &str, extra: &str) -> impl Fn(u16, &[Server], &Path) -> String {
    move |port, servers, _| {
        let list: String = servers.iter().map(|server| format!("   - {}:1\n", server.address.text())).collect();
        format!(
            "redis:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  distribution: {distribution}\n{extra}  servers:\n{list}"
        )
    }
}

#[test]
fn ketama_is_that_of_twemproxy() {
    let admin = port::free().to_string();
    let program = ["nutcracker", "-s", &admin, "-a", "127.0.0.1", "-c"];
    compare(&program, twemproxy("ketama", ""), "distribution = \"ketama\"");
    compare(&program, twemproxy("ketama", "  hash_tag: \"{}\"\n"), "distribution = \"ketama\"\nhash_tag = \"{}\"");
}

#[test]
fn modula_is_that_of_twemproxy() {
    let admin = port::free().to_string();
    let program = ["nutcracker", "-s", &admin, "-a", "127.0.0.1", "-c"];
    compare(&program, twemproxy("modula", ""), "distribution = \"modula\"");
}

fn envoy(policy: &str, tags: bool) -> impl Fn(u16, &[Server], &Path) -> String {
    move |port, servers, _| {
        let endpoint = |server: &Server| {
            let address = server.address.tcp();
            format!(
                "        - endpoint: {{ address: {{ socket_address: {{ address: {}, port_value: {} }} }} }}\n",
                address.ip(),
                address.port()
            )
        };
        let endpoints: String = servers.iter().map(endpoint).collect();
        format!(
            r#"static_resources:
  listeners:
  - name: redis
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: redis
          settings: {{ op_timeout: 5s, enable_hashtagging: {tags} }}
          prefix_routes: {{ catch_all_route: {{ cluster: origin }} }}
  clusters:
  - name: origin
    type: STATIC
    connect_timeout: 1s
    lb_policy: {policy}
    load_assignment:
      cluster_name: origin
      endpoints:
      - lb_endpoints:
{endpoints}"#
        )
    }
}

/// Compares with Envoy.
fn compare_with_envoy(policy: &str, tags: bool, sharding: &str) {
    let words = weir_tests::envoy::words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    compare(&words, envoy(policy, tags), sharding);
}

#[test]
fn ring_hash_is_that_of_envoy() {
    compare_with_envoy("RING_HASH", false, "distribution = \"ring_hash\"");
    compare_with_envoy("RING_HASH", true, "distribution = \"ring_hash\"\nhash_tag = \"{}\"");
}

#[test]
fn maglev_is_that_of_envoy() {
    compare_with_envoy("MAGLEV", false, "distribution = \"maglev\"");
}
