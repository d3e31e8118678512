//! The server goes away and comes back: what clients see, and what is never sent twice.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::port;
use weir_tests::server::{Kind, Options, Server};
use weir_tests::stream::Address;
use weir_tests::wire::shown;

fn is_weir_error(reply: &[u8]) -> bool {
    reply.starts_with(b"-ERR weir: ")
}

#[test]
fn a_killed_server_costs_errors_but_no_connections() {
    let mut server = Server::start(Kind::Redis);
    let mut gateway = Gateway::before(&server);
    let mut clients: Vec<Client> = (0..20).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.expect(&["SET", "k", "v"], b"+OK\r\n");
    }
    let descriptors = gateway.process().descriptors();
    for _ in 0..3 {
        server.kill();
        for client in &mut clients {
            let reply = client.call(&["SET", "k", "v"]);
            assert!(is_weir_error(&reply), "{}", String::from_utf8_lossy(&reply));
            client.expect(&["PING"], b"+PONG\r\n");
        }
        server.restart();
        for client in &mut clients {
            deadline::until_true("the server to be found again", || {
                let reply = client.call(&["SET", "k", "v"]);
                assert!(reply == b"+OK\r\n" || is_weir_error(&reply));
                reply == b"+OK\r\n"
            });
        }
    }
    deadline::until_true("descriptors to be back at the baseline", || gateway.process().descriptors() <= descriptors);
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
        // What was watched is not watched any more: the transaction must not pass.
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
