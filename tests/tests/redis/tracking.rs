//! CLIENT TRACKING through the gateway: which client gets which invalidation, and that no client keeps a changed value.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::cluster::Cluster;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{encode, shown};

const SILENCE: Duration = Duration::from_millis(150);

fn invalidated(key: &str) -> String {
    format!(">2\r\n$10\r\ninvalidate\r\n*1\r\n${}\r\n{key}\r\n", key.len())
}

const ALL: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

fn resp3(gateway: &Gateway) -> Client {
    let mut client = gateway.connect();
    assert!(client.call(&["HELLO", "3"]).starts_with(b"%7"));
    client
}

fn tracking(gateway: &Gateway, words: &[&str]) -> Client {
    let mut client = resp3(gateway);
    client.expect(&[&["CLIENT", "TRACKING", "ON"], words].concat(), b"+OK\r\n");
    client
}

fn hears(client: &mut Client, text: &str) {
    assert_eq!(shown(&client.reply()), shown(text.as_bytes()));
}

fn id(client: &mut Client) -> String {
    String::from_utf8_lossy(&client.call(&["CLIENT", "ID"])).trim_matches([':', '\r', '\n']).to_owned()
}

#[test]
fn the_server_has_one_connection_for_all_tracking_clients() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::start(Config::to(&server.address).workers(2));
        let mut clients: Vec<Client> = (0..50).map(|_| tracking(&gateway, &[])).collect();
        for client in &mut clients {
            client.expect(&["GET", "k"], b"_\r\n");
        }
        let metrics = gateway.metrics();
        assert_eq!(metrics.sum_where("weir_lanes_open", &[("kind", "tracking")]), 2.0);
        assert_eq!(metrics.sum("weir_redis_tracking_clients"), 50.0);
        assert_eq!(server.info("clients", "tracking_clients"), "2");
        assert_eq!(metrics.sum("weir_pinned_sessions"), 0.0);
        let mut writer = gateway.connect();
        writer.expect(&["SET", "k", "1"], b"+OK\r\n");
        for client in &mut clients {
            hears(client, &invalidated("k"));
        }
        writer.expect(&["SET", "k", "2"], b"+OK\r\n");
        clients[0].expect_silence(SILENCE);
        // Expiry, by the server alone.
        clients[0].expect(&["GET", "k"], b"$1\r\n2\r\n");
        writer.expect(&["PEXPIRE", "k", "30"], b":1\r\n");
        hears(&mut clients[0], &invalidated("k"));
        clients[0].expect(&["GET", "k"], b"$1\r\n2\r\n");
        hears(&mut clients[0], &invalidated("k"));
        assert_eq!(gateway.metric("weir_redis_invalidations_total"), 52.0);
        drop(clients);
        deadline::until_true("nobody to track", || gateway.metric("weir_redis_tracking_clients") == 0.0);
    }
}

#[test]
fn another_client_is_notified_on_any_worker() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    let mut writer = gateway.connect();
    for round in 0..6 {
        let mut told = gateway.connect();
        let number = id(&mut told);
        told.call(&["SUBSCRIBE", "__redis__:invalidate"]);
        let mut reader = gateway.connect();
        reader.expect(&["CLIENT", "TRACKING", "ON", "REDIRECT", &number], b"+OK\r\n");
        reader.expect(&["CLIENT", "GETREDIR"], format!(":{number}\r\n").as_bytes());
        reader.call(&["GET", "k"]);
        writer.expect(&["SET", "k", &round.to_string()], b"+OK\r\n");
        hears(&mut told, "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n");
        reader.call(&["GET", "k"]);
        writer.expect(&["FLUSHALL"], b"+OK\r\n");
        hears(&mut told, "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n$-1\r\n");
        // Gone: clients with RESP3 get a notice.
        let mut other = tracking(&gateway, &["REDIRECT", &number]);
        other.call(&["GET", "k"]);
        let lingers = (round % 2 == 0).then(|| {
            // It has said that it goes, and does not close.
            told.expect(&["QUIT"], b"+OK\r\n");
            told
        });
        deadline::until_true("it to be gone", || {
            !shown(&writer.call(&["CLIENT", "LIST"])).contains(&format!("id={number} "))
        });
        writer.expect(&["SET", "k", "x"], b"+OK\r\n");
        hears(&mut other, &format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{number}\r\n"));
        assert!(shown(&other.call(&["CLIENT", "TRACKINGINFO"])).contains("broken_redirect"));
        drop(lingers);
    }
}

#[test]
fn a_client_is_notified_of_its_own_write_once_and_behind_the_reply() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::before(&server);
        let mut all = tracking(&gateway, &["BCAST", "PREFIX", "a:", "PREFIX", "b:"]);
        let mut reader = tracking(&gateway, &[]);
        let told = |keys: &[&str]| {
            let texts: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect();
            format!(">2\r\n$10\r\ninvalidate\r\n*{}\r\n{texts}", keys.len())
        };
        for round in 1..=200 {
            all.expect(&["INCR", "a:1"], format!(":{}\r\n", 2 * round - 1).as_bytes());
            hears(&mut all, &told(&["a:1"]));
            all.expect(&["MULTI"], b"+OK\r\n");
            for key in ["a:1", "b:1", "c:1", "b:1"] {
                all.expect(&["INCR", key], b"+QUEUED\r\n");
            }
            assert!(all.call(&["EXEC"]).starts_with(b"*4\r\n"));
            hears(&mut all, &told(&["a:1"]));
            hears(&mut all, &told(&["b:1"]));
            reader.call(&["GET", "d"]);
            reader.expect(&["INCR", "d"], format!(":{round}\r\n").as_bytes());
            hears(&mut reader, &told(&["d"]));
        }
    }
}

#[test]
fn own_writes_do_not_reach_clients_with_noloop() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::before(&server);
        let mut writer = gateway.connect();
        let mut reader = tracking(&gateway, &["NOLOOP"]);
        reader.call(&["MGET", "a", "b", "c"]);
        writer.expect(&["SET", "a", "1"], b"+OK\r\n");
        hears(&mut reader, &invalidated("a"));
        reader.expect(&["SET", "b", "1"], b"+OK\r\n");
        reader.expect_silence(SILENCE);
        writer.expect(&["SET", "c", "1"], b"+OK\r\n");
        hears(&mut reader, &invalidated("c"));
        // A write that fails: an invalidation meanwhile belongs to another client's write.
        reader.call(&["GET", "a"]);
        reader.expect(&["SET", "a", "1", "NX"], b"_\r\n");
        writer.expect(&["SET", "a", "2"], b"+OK\r\n");
        hears(&mut reader, &invalidated("a"));
        let mut follower = tracking(&gateway, &["BCAST", "NOLOOP", "PREFIX", "a"]);
        // The change behind a merged invalidation is unknown, so with BCAST all clients get it.
        for round in 0..5 {
            follower.send(&[["SET", "a", "1"], ["SET", "a", "2"]].map(|words| encode(&words)).concat());
            std::thread::sleep(SILENCE);
            follower.send(&encode(&["PING"]));
            while follower.reply() != b"+PONG\r\n" {}
            writer.expect(&["SET", "a", &round.to_string()], b"+OK\r\n");
            hears(&mut follower, &invalidated("a"));
        }
    }
}

#[test]
fn client_caching_is_for_the_next_command_however_it_ends() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut reader = tracking(&gateway, &["OPTOUT"]);
    let mut writer = gateway.connect();
    let large = "x".repeat(200_000);
    for words in [&["GET"][..], &["NONSENSE"], &["SET", "other", &large], &["GET", "k"]] {
        reader.expect(&["CLIENT", "CACHING", "NO"], b"+OK\r\n");
        reader.call(words);
        reader.call(&["GET", "k"]);
        writer.expect(&["SET", "k", "v"], b"+OK\r\n");
        hears(&mut reader, &invalidated("k"));
    }
}

#[test]
fn a_lost_server_makes_everybody_forget() {
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut reader = tracking(&gateway, &[]);
    let mut follower = tracking(&gateway, &["BCAST"]);
    reader.call(&["GET", "k"]);
    server.kill();
    hears(&mut reader, ALL);
    hears(&mut follower, ALL);
    server.restart();
    // Heard again: what was kept meanwhile may have changed.
    hears(&mut reader, ALL);
    hears(&mut follower, ALL);
    reader.expect(&["GET", "k"], b"_\r\n");
    server.connect().expect(&["SET", "k", "1"], b"+OK\r\n");
    hears(&mut reader, &invalidated("k"));
    hears(&mut follower, &invalidated("k"));
    assert!(gateway.metric("weir_redis_tracking_gaps_total") >= 1.0);
}

#[test]
fn without_a_server_nobody_begins_to_track() {
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).upstream("lane_wait_timeout = \"300ms\""));
    let mut client = resp3(&gateway);
    server.kill();
    let reply = client.call(&["CLIENT", "TRACKING", "ON"]);
    assert!(reply.starts_with(b"-ERR weir: upstream"), "{}", shown(&reply));
    assert!(shown(&client.call(&["CLIENT", "TRACKINGINFO"])).contains("off"));
}

#[test]
fn keys_of_all_nodes_are_tracked() {
    let cluster = Cluster::start(Kind::Redis, 3, 0);
    let gateway = Gateway::start(Config::to_all(cluster.addresses()).upstream("topology = \"cluster\"").workers(2));
    let mut reader = tracking(&gateway, &[]);
    let mut writer = gateway.connect();
    let keys: Vec<String> = (0..30).map(|number| format!("key:{number}")).collect();
    let mget: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
    reader.call(&mget);
    for key in &keys {
        writer.expect(&["SET", key, "1"], b"+OK\r\n");
        hears(&mut reader, &invalidated(key));
    }
}

/// A client that keeps what it reads, as client libraries do.
struct Keeper {
    client: Client,
    held: HashMap<String, u64>,
}

impl Keeper {
    /// The next reply; what is pushed before it is taken in.
    fn reply(&mut self) -> Vec<u8> {
        loop {
            let reply = self.client.reply();
            if !reply.starts_with(b">") {
                return reply;
            }
            self.take(&reply);
        }
    }

    fn take(&mut self, push: &[u8]) {
        let text = String::from_utf8_lossy(push).into_owned();
        let mut lines = text.split("\r\n").skip(3);
        match lines.next() {
            Some("_") => self.held.clear(),
            _ => {
                // Lengths and keys.
                lines.skip(1).step_by(2).for_each(|key| {
                    self.held.remove(key);
                });
            }
        }
    }

    fn get(&mut self, key: &str) -> u64 {
        self.client.command(&["GET", key]);
        let reply = self.reply();
        let value =
            String::from_utf8_lossy(&reply).split("\r\n").nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        self.held.insert(key.to_owned(), value);
        value
    }

    /// Takes in what is pushed until nothing comes for a while.
    fn drain(&mut self, limit: Duration) {
        while let Ok(push) = self.client.try_reply(limit) {
            assert!(push.starts_with(b">"), "{}", shown(&push));
            self.take(&push);
        }
    }
}

/// Many clients and writers: a value that is held although it was overwritten half a second ago is stale.
#[test]
fn no_stale_value_is_held_once_it_was_to_be_forgotten() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::start(Config::to(&server.address).workers(2));
        let stop = Arc::new(AtomicBool::new(false));
        let versions: Arc<Vec<AtomicU64>> = Arc::new((0..20).map(|_| AtomicU64::new(0)).collect());
        let writers: Vec<_> = (0..2)
            .map(|part| {
                let (stop, versions) = (stop.clone(), versions.clone());
                // One writes through the gateway, the other at the server.
                let mut client = if part == 0 { gateway.connect() } else { server.connect() };
                std::thread::spawn(move || {
                    let mut number = 1u64;
                    while !stop.load(Ordering::Relaxed) {
                        let at = (number as usize * 7) % 10 * 2 + part;
                        client.expect(&["SET", &format!("key:{at}"), &number.to_string()], b"+OK\r\n");
                        versions[at].store(number, Ordering::SeqCst);
                        number += 1;
                        if number.is_multiple_of(64) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                })
            })
            .collect();
        let keepers: Vec<_> = [&[][..], &["BCAST"], &["BCAST", "PREFIX", "key:"], &["OPTOUT"], &[], &["NOLOOP"]]
            .into_iter()
            .map(|words| {
                let (stop, versions) = (stop.clone(), versions.clone());
                let mut keeper = Keeper { client: tracking(&gateway, words), held: HashMap::new() };
                std::thread::spawn(move || {
                    let mut number = 0usize;
                    while !stop.load(Ordering::Relaxed) {
                        number += 1;
                        let key = format!("key:{}", number * 3 % 20);
                        if !keeper.held.contains_key(&key) {
                            keeper.get(&key);
                        } else {
                            // Takes in what has come.
                            keeper.client.command(&["PING"]);
                            keeper.reply();
                        }
                    }
                    keeper.drain(Duration::from_millis(500));
                    for (key, held) in &keeper.held {
                        let at: usize = key.trim_start_matches("key:").parse().expect("a number");
                        let version = versions[at].load(Ordering::SeqCst);
                        assert!(*held >= version, "{key}: {held} is held, {version} was written");
                    }
                    number
                })
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        for keeper in keepers {
            assert!(keeper.join().expect("a keeper holds nothing stale") > 100);
        }
        assert!(gateway.metric("weir_redis_invalidations_total") > 100.0);
    }
}
