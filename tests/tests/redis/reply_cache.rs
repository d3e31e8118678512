//! The reply cache: what is answered from it, and that it never gives what is older than what is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{encode_all, shown};

const CACHE: &str = "[listener.redis]\ncache_bytes_max = \"1MiB\"\ncache_age_max = \"1h\"";

fn before(server: &Server, lines: &str) -> Gateway {
    let gateway = Gateway::start(Config::to(&server.address).listener(lines));
    // Before the server is heard nothing is kept.
    deadline::until_true("the server to be heard", || {
        gateway.connect().call(&["GET", "probe"]);
        gateway.metric("weir_redis_cache_bytes") > 0.0
    });
    gateway
}

fn reads(server: &Server) -> u64 {
    server.calls("get")
}

#[test]
fn a_reply_is_read_once_and_goes_with_its_key() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = before(&server, CACHE);
        server.connect().expect(&["SET", "k", "1"], b"+OK\r\n");
        let (mut one, mut two) = (gateway.connect(), gateway.connect());
        one.expect(&["GET", "k"], b"$1\r\n1\r\n");
        let asked = reads(&server);
        for _ in 0..20 {
            one.expect(&["GET", "k"], b"$1\r\n1\r\n");
            two.expect(&["get", "k"], b"$1\r\n1\r\n");
        }
        assert_eq!(reads(&server) - asked, 2, "another spelling is another request, and the first one is asked again");
        assert!(gateway.metric("weir_redis_cache_hits_total") >= 38.0);
        // Another version, another database.
        two.call(&["HELLO", "3"]);
        two.expect(&["GET", "absent"], b"_\r\n");
        one.expect(&["GET", "absent"], b"$-1\r\n");
        two.expect(&["SELECT", "1"], b"+OK\r\n");
        two.expect(&["GET", "k"], b"_\r\n");
        // A change by somebody else.
        server.connect().expect(&["SET", "k", "2"], b"+OK\r\n");
        deadline::until_true("it to be heard of", || one.call(&["GET", "k"]) == b"$1\r\n2\r\n");
        server.connect().expect(&["FLUSHALL"], b"+OK\r\n");
        deadline::until_true("it to be heard of", || one.call(&["GET", "k"]) == b"$-1\r\n");
        // Pipelined: in order, and after what the client itself has written.
        let pipeline: Vec<&[&str]> =
            vec![&["SET", "k", "3"], &["GET", "k"], &["GET", "k"], &["INCR", "k"], &["GET", "k"], &["PING"]];
        one.send(&encode_all(&pipeline));
        for reply in ["+OK\r\n", "$1\r\n3\r\n", "$1\r\n3\r\n", ":4\r\n", "$1\r\n4\r\n", "+PONG\r\n"] {
            assert_eq!(shown(&one.reply()), shown(reply.as_bytes()));
        }
    }
}

#[test]
fn a_writer_reads_its_own_write_by_every_command() {
    let server = Server::start(Kind::Redis);
    let gateway = before(&server, CACHE);
    let (mut client, mut other) = (gateway.connect(), gateway.connect());
    for round in 0..200 {
        let value = round.to_string();
        let reply = format!("${}\r\n{value}\r\n", value.len());
        // Another keeps it warm.
        other.call(&["GET", "k"]);
        match round % 4 {
            0 => client.expect(&["SET", "k", &value], b"+OK\r\n"),
            1 => drop(client.call(&["EVAL", "return redis.call('set', ARGV[1], ARGV[2])", "0", "k", &value])),
            2 => {
                client.expect(&["MULTI"], b"+OK\r\n");
                client.expect(&["SET", "k", &value], b"+QUEUED\r\n");
                client.call(&["EXEC"]);
            }
            _ => {
                client.expect(&["WATCH", "k"], b"+OK\r\n");
                client.expect(&["SET", "k", &value], b"+OK\r\n");
                client.expect(&["GET", "k"], reply.as_bytes());
                client.expect(&["UNWATCH"], b"+OK\r\n");
            }
        }
        client.expect(&["GET", "k"], reply.as_bytes());
        if round % 4 == 0 {
            other.expect(&["GET", "k"], reply.as_bytes());
        }
    }
}

#[test]
fn rules_are_checked_before_the_cache() {
    let server = Server::start(Kind::Redis);
    let users = "[[listener.user]]\nname = \"all\"\nrules = \"on nopass ~* +@all\"\n[[listener.user]]\nname = \"few\"\nrules = \"on nopass ~a:* +@all\"";
    let gateway = Gateway::start(Config::to(&server.address).listener(&format!("{CACHE}\n{users}")));
    let login = |name: &str| {
        let mut client = gateway.connect();
        client.expect(&["AUTH", name, "x"], b"+OK\r\n");
        client
    };
    let (mut all, mut few) = (login("all"), login("few"));
    deadline::until_true("a reply to be kept", || {
        all.call(&["GET", "b"]);
        gateway.metric("weir_redis_cache_hits_total") > 3.0
    });
    assert!(few.call(&["GET", "b"]).starts_with(b"-NOPERM"));
    few.expect(&["GET", "a:1"], b"$-1\r\n");
}

#[test]
fn a_lost_server_is_not_answered_for() {
    let mut server = Server::start(Kind::Redis);
    let gateway = before(&server, CACHE);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "1"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"$1\r\n1\r\n");
    client.expect(&["GET", "k"], b"$1\r\n1\r\n");
    server.kill();
    deadline::until_true("it to be noticed", || gateway.metric("weir_redis_cache_bytes") == 0.0);
    assert!(client.call(&["GET", "k"]).starts_with(b"-ERR weir: upstream"));
    server.restart();
    deadline::until_true("it to be there", || client.call(&["GET", "k"]) == b"$-1\r\n");
}

#[test]
fn it_stays_within_its_bytes() {
    let server = Server::start(Kind::Redis);
    let gateway = before(&server, "[listener.redis]\ncache_bytes_max = \"64KiB\"\ncache_prefixes = [\"p\"]");
    let mut client = gateway.connect();
    for number in 0..2000 {
        client.call(&["GET", &format!("p{number}")]);
        client.call(&["GET", &format!("q{number}")]);
    }
    let metrics = gateway.metrics();
    assert!(metrics.sum("weir_redis_cache_bytes") <= 65_536.0);
    assert!(metrics.sum("weir_redis_cache_evicted_total") > 1000.0);
    // Large replies are not kept.
    client.expect(&["SET", "p", &"x".repeat(20_000)], b"+OK\r\n");
    let asked = reads(&server);
    client.call(&["GET", "p"]);
    client.call(&["GET", "p"]);
    assert_eq!(reads(&server) - asked, 2);
}

/// Many clients, on two workers, and a writer: each sees the versions of a key in order, and its own at once.
#[test]
fn nobody_sees_time_go_back() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = Gateway::start(Config::to(&server.address).workers(2).listener(CACHE));
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let number = |reply: &[u8]| -> u64 {
            String::from_utf8_lossy(reply).split("\r\n").nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let clients: Vec<_> = (0..8)
            .map(|part: usize| {
                let (stop, count, mut client) = (stop.clone(), count.clone(), gateway.connect());
                std::thread::spawn(move || {
                    let mut seen = [0u64; 4];
                    let mut turn = part;
                    while !stop.load(Ordering::Relaxed) {
                        turn += 1;
                        let at = turn * 7 % 4;
                        let key = format!("key:{at}");
                        if part < 2 && turn.is_multiple_of(5) {
                            let reply = client.call(&["INCR", &key]);
                            let version = String::from_utf8_lossy(&reply)
                                .trim()
                                .trim_start_matches(':')
                                .parse()
                                .expect("a number");
                            assert!(version > seen[at]);
                            seen[at] = version;
                        }
                        let version = number(&client.call(&["GET", &key]));
                        assert!(version >= seen[at], "{key}: {version} after {}", seen[at]);
                        seen[at] = version;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("a client sees nothing old"));
        assert!(gateway.metric("weir_redis_cache_hits_total") > 100.0);
        // In the end all agree.
        let mut fresh: Vec<Client> = (0..4).map(|_| gateway.connect()).collect();
        for at in 0..4 {
            let key = format!("key:{at}");
            let wanted = server.connect().call(&["GET", &key]);
            deadline::until_true("everybody to know the latest", || {
                fresh.iter_mut().all(|client| client.call(&["GET", &key]) == wanted)
            });
        }
    }
}
