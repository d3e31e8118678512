//! The server goes away and comes back: what clients see, and what is never sent twice.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::port;
use weir_tests::server::{Kind, Options, Server};
use weir_tests::soak;
use weir_tests::stream::Address;
use weir_tests::wire::{bulk, encode, shown};

fn is_weir_error(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR weir: ")
}

/// The replies to clients that send all the time.
struct ReplyCounts {
    stop: AtomicBool,
    /// Replies of the server, by client.
    right: Vec<AtomicU64>,
    /// Errors of the gateway, of all clients.
    errors: AtomicU64,
}

impl ReplyCounts {
    /// Waits until every client has had so many replies of the server from now on.
    fn wait_right(&self, more: u64) {
        let before: Vec<u64> = self.right.iter().map(|one| one.load(Ordering::Relaxed)).collect();
        deadline::until_true("the server to answer every client", || {
            self.right.iter().zip(&before).all(|(one, before)| one.load(Ordering::Relaxed) >= before + more)
        });
    }
}

/// Writes and reads in one go, on one connection that has to stay. A reply is right, or an error of the gateway; a server that was
/// killed may have forgotten the value, but there is no other one.
fn ask(mut client: Client, id: usize, had: &ReplyCounts) {
    let (key, mut confirmed, mut number) = (format!("kill-{id}"), 0, 0);
    while !had.stop.load(Ordering::Relaxed) {
        number += 1;
        client.send(&[encode(&["SET", &key, &format!("{id}:{number}")]), encode(&["GET", &key])].concat());
        let (set, got) = (client.reply(), client.reply());
        assert!(set == b"+OK\r\n" || is_weir_error(&set), "SET: {}", shown(&set));
        if set == b"+OK\r\n" {
            confirmed = number;
        }
        if is_weir_error(&got) {
            had.errors.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let text = String::from_utf8_lossy(&bulk(&got)).into_owned();
        let held = text.strip_prefix(&format!("{id}:")).and_then(|held| held.parse::<u64>().ok());
        let is_right = got == b"$-1\r\n" || held.is_some_and(|held| (confirmed..=number).contains(&held));
        assert!(is_right, "GET after {number}, {confirmed} confirmed: {}", shown(&got));
        had.right[id].fetch_add(1, Ordering::Relaxed);
    }
}

/// Under load: every request is answered, by the server or with an error, on the connection that it came on; and when the server is
/// back, every client has it again without help. `WEIR_SOAK_SECONDS` makes a soak of it.
#[test]
fn a_killed_server_costs_errors_but_no_connections() {
    const CLIENTS: usize = 20;
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::start(Config::to(&server.address).workers(2));
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    let descriptors = gateway.descriptors_besides_lanes();
    let right = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let had = Arc::new(ReplyCounts { stop: AtomicBool::new(false), right, errors: AtomicU64::new(0) });
    let start = |id| {
        let (client, had) = (gateway.connect(), Arc::clone(&had));
        std::thread::spawn(move || ask(client, id, &had))
    };
    let clients: Vec<_> = (0..CLIENTS).map(start).collect();
    let (begun, mut kills) = (Instant::now(), 0);
    while !soak::is_over(kills >= 3, begun.elapsed()) {
        had.wait_right(20);
        let before = had.errors.load(Ordering::Relaxed);
        server.kill();
        deadline::until_true("errors", || had.errors.load(Ordering::Relaxed) >= before + 100);
        server.restart();
        had.wait_right(20);
        kills += 1;
        // All have it again, and no error comes late.
        let after = had.errors.load(Ordering::Relaxed);
        had.wait_right(100);
        assert_eq!(had.errors.load(Ordering::Relaxed), after, "a late error after the server's return");
    }
    had.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("every request was answered"));
    let right: u64 = had.right.iter().map(|one| one.load(Ordering::Relaxed)).sum();
    eprintln!("{kills} kills: {right} right replies, {} errors", had.errors.load(Ordering::Relaxed));
    gateway.wait_at_rest();
    deadline::until_true("descriptors to be back", || gateway.descriptors_besides_lanes() <= descriptors);
    assert!(gateway.metric("weir_lane_connects_total") >= 4.0);
}

#[test]
fn a_watching_client_never_commits_over_a_lost_server() {
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    for protocol in ["2", "3"] {
        let mut client = gateway.connect();
        client.call(&["HELLO", protocol]);
        deadline::until_true("the server", || client.call(&["SET", "k", "1"]) == b"+OK\r\n");
        client.expect(&["WATCH", "k"], b"+OK\r\n");
        server.kill();
        server.restart();
        // The watch was lost with the server: the transaction must not pass.
        let begun = client.call(&["MULTI"]);
        assert!(begun == b"+OK\r\n" || is_weir_error(&begun));
        if begun == b"+OK\r\n" {
            let queued = client.call(&["SET", "k", "mine"]);
            assert!(queued == b"+QUEUED\r\n" || is_weir_error(&queued));
            let null: &[u8] = if protocol == "3" { b"_\r\n" } else { b"*-1\r\n" };
            let done = client.call(&["EXEC"]);
            assert!(done == null || done.starts_with(b"-"), "{}", String::from_utf8_lossy(&done));
        }
        assert_ne!(server.connect().call(&["GET", "k"]), b"$4\r\nmine\r\n");
        client.expect(&["PING"], b"+PONG\r\n");
    }
}

#[test]
fn a_gateway_starts_before_its_server() {
    let port = port::free();
    let gateway = Gateway::start_unready(Config::to(&Address::port(port)));
    let mut client = gateway.connect();
    let reply = client.call(&["GET", "k"]);
    assert!(is_weir_error(&reply), "{}", String::from_utf8_lossy(&reply));
    client.expect(&["PING"], b"+PONG\r\n");
    assert!(gateway.metric("weir_lane_connect_failures_total") >= 1.0);
}

#[test]
fn a_database_that_the_server_does_not_have_stops_nobody_else() {
    let flags = ["--databases", "4"].map(str::to_owned).to_vec();
    let server = Server::start_with(Kind::Redis, Options { flags, ..Options::default() });
    let config = Config::to(&server.address).upstream("[upstream.breaker]\nfailures = 2\nopen_for = \"30s\"");
    let gateway = Gateway::start(config.workers(1));
    let mut other = gateway.connect();
    for _ in 0..6 {
        let mut client = gateway.connect();
        client.expect(&["SELECT", "9"], b"+OK\r\n");
        let reply = client.call(&["GET", "k"]);
        assert_eq!(reply, b"-ERR weir: upstream refused the gateway's login\r\n", "{}", shown(&reply));
        other.expect(&["SET", "k", "v"], b"+OK\r\n");
    }
    assert_eq!(gateway.metric("weir_breaker_opened_total"), 0.0);
}

#[test]
fn errors_come_fast_while_the_breaker_is_open() {
    let mut server = Server::start(Kind::Redis);
    let config = Config::to(&server.address)
        .upstream("connect_timeout = \"500ms\"\n[upstream.breaker]\nfailures = 2\nopen_for = \"2s\"");
    let gateway = Gateway::start(config);
    server.kill();
    let mut client = gateway.connect();
    deadline::until_true("the breaker to open", || {
        client.call(&["SET", "k", "v"]);
        gateway.metric("weir_breaker_opened_total") >= 1.0
    });
    let started = Instant::now();
    for _ in 0..100 {
        assert!(is_weir_error(&client.call(&["SET", "k", "v"])));
    }
    assert!(started.elapsed() < Duration::from_secs(1), "refusals are immediate");
    server.restart();
    deadline::until_true("the breaker to close", || client.call(&["SET", "k", "v"]) == b"+OK\r\n");
}

/// A server takes connections and does not answer on them. Clients of sixteen databases, each with a lane of its own, wait for it.
#[test]
fn one_client_tries_whether_a_server_is_back_and_not_all() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    std::thread::spawn(move || {
        // They stay open until the test ends.
        let count = |_: &_| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        let _silent: Vec<_> = listener.incoming().inspect(count).collect();
    });
    let config = Config::to(&address).upstream(
        "connect_timeout = \"200ms\"\nlane_wait_timeout = \"100ms\"\n[upstream.health]\ninterval = \"30s\"\n\
         [upstream.breaker]\nfailures = 1\nopen_for = \"300ms\"",
    );
    let gateway = Gateway::start_unready(config);
    let mut clients: Vec<_> = (0..16).map(|_| gateway.connect()).collect();
    for (client, database) in clients.iter_mut().zip(0..) {
        client.expect(&["SELECT", &database.to_string()], b"+OK\r\n");
    }
    deadline::until_true("the breaker to open", || {
        clients[0].call(&["GET", "k"]);
        gateway.metric("weir_breaker_opened_total") >= 1.0
    });
    let (before, begun) = (attempts.load(Ordering::Relaxed), Instant::now());
    let opened = gateway.metric("weir_breaker_opened_total");
    while begun.elapsed() < Duration::from_secs(3) {
        clients.iter_mut().for_each(|client| client.command(&["GET", "k"]));
        clients.iter_mut().for_each(|client| assert!(is_weir_error(&client.reply())));
        std::thread::sleep(Duration::from_millis(10));
    }
    let trials = gateway.metric("weir_breaker_opened_total") - opened;
    let made = attempts.load(Ordering::Relaxed) - before;
    assert!(trials >= 2.0, "it is tried again and again, not {trials} times");
    assert!(made as f64 <= trials + 1.0, "{made} connections for {trials} trials");
    drop(clients);
    gateway.finish();
}

/// A write whose fate is unknown is never sent again; a read may be, once.
#[test]
fn a_write_is_never_sent_twice() {
    let upstream = Faulty::start(|_| Act::ReplyThenClose(Vec::new()));
    let gateway = Gateway::start(Config::to(&upstream.address));
    let mut client = gateway.connect();
    for number in 0..5 {
        let reply = client.call(&["INCR", "n"]);
        assert!(is_weir_error(&reply), "{}", String::from_utf8_lossy(&reply));
        assert!(upstream.count("INCR") <= number + 1, "INCR was sent again");
    }
    let reply = client.call(&["GET", "k"]);
    assert!(is_weir_error(&reply), "{}", String::from_utf8_lossy(&reply));
    assert!(upstream.count("GET") <= 2, "a read is sent again once at most");
}

#[test]
fn a_silent_server_is_given_up_after_the_request_timeout() {
    let upstream = Faulty::start(|words| {
        if words[0].eq_ignore_ascii_case(b"GET") { Act::Silence } else { Act::Reply(b"+OK\r\n".to_vec()) }
    });
    let config = Config::to(&upstream.address).upstream("request_timeout = \"300ms\"");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    let started = Instant::now();
    client.expect(&["GET", "k"], b"-ERR weir: upstream timeout\r\n");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(250) && took < Duration::from_secs(5), "{took:?}");
    // The late reply, were it to come, has no connection to come on.
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    assert!(gateway.metric("weir_upstream_errors_total") >= 1.0);
}
