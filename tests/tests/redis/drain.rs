//! SIGTERM: not ready any more, no new connections, exchanges finish, bounded; what is cut is counted.

use std::time::{Duration, Instant};

use weir_tests::client::End;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::soak;
use weir_tests::stream::Stream;
use weir_tests::traffic::{Traffic, Way};
use weir_tests::victim::Victim;

fn config(server: &Server, drain: &str) -> Config {
    let mut config = Config::to(&server.address);
    config.drain = drain.to_owned();
    config
}

#[test]
fn an_idle_gateway_ends_at_once() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::before(&server);
    let started = Instant::now();
    gateway.process().signal("TERM");
    let status = gateway.process().wait(Duration::from_secs(5));
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(2));
    gateway.ended();
}

#[test]
fn readiness_ends_first_and_clients_are_served_while_it_settles() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(config(&server, "settle = \"5s\"\ntimeout = \"5s\""));
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    gateway.process().signal("TERM");
    deadline::until_true("/readyz to say no", || !gateway.admin.is_ready());
    assert_eq!(gateway.admin.get("/livez").status, 200);
    // Balancers have not noticed yet: new and old clients are served.
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    drop(client);
    let status = gateway.process().wait(Duration::from_secs(30));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn an_exchange_under_way_is_finished() {
    let server = Server::start(Kind::Redis);
    let config = config(&server, "settle = \"0s\"\ntimeout = \"60s\"").upstream("request_timeout = \"60s\"");
    let mut gateway = Gateway::start(config);
    let mut busy = gateway.connect();
    let mut idle = gateway.connect();
    idle.expect(&["PING"], b"+PONG\r\n");
    let frozen = server.freeze();
    busy.command(&["INCR", "n"]);
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    let started = Instant::now();
    gateway.process().signal("TERM");
    // The idle one is closed between commands, without an error.
    assert_eq!(idle.read_to_end(deadline::WAIT), (Vec::new(), End::Closed));
    drop(frozen);
    assert_eq!(busy.reply(), b":1\r\n");
    assert_eq!(busy.read_to_end(deadline::WAIT), (Vec::new(), End::Closed));
    let status = gateway.process().wait(deadline::WAIT);
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(50), "not the whole limit");
    gateway.ended();
}

#[test]
fn unfinished_requests_are_cut_after_the_limit_and_logged() {
    let server = Server::start(Kind::Redis);
    let config = config(&server, "settle = \"0s\"\ntimeout = \"1s\"").upstream("request_timeout = \"60s\"");
    let mut gateway = Gateway::start(config);
    let mut waiting = gateway.connect();
    waiting.expect(&["SET", "n", "1"], b"+OK\r\n");
    let _frozen = server.freeze();
    waiting.command(&["INCR", "n"]);
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    let started = Instant::now();
    gateway.process().signal("TERM");
    let (_, end) = waiting.read_to_end(Duration::from_secs(10));
    assert_ne!(end, End::Silent);
    drop(waiting);
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(800) && took < Duration::from_secs(15), "the drain took {took:?}");
    let log = gateway.process().log();
    assert!(log.contains("cut=1"), "the log tells what was cut:\n{log}");
    gateway.ended();
}

/// A waiter for data has nothing on its way, and a queued transaction can be queued again elsewhere.
#[test]
fn blocked_and_queueing_clients_do_not_hold_a_drain() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(config(&server, "settle = \"0s\"\ntimeout = \"20s\""));
    let mut blocked = gateway.connect();
    blocked.command(&["BLPOP", "never", "0"]);
    let mut queueing = gateway.connect();
    queueing.expect(&["MULTI"], b"+OK\r\n");
    queueing.expect(&["SET", "k", "v"], b"+QUEUED\r\n");
    gateway.wait_metric("weir_pinned_sessions", &[], 1.0);
    let started = Instant::now();
    gateway.process().signal("TERM");
    for mut client in [blocked, queueing] {
        assert_eq!(client.read_to_end(Duration::from_secs(5)), (Vec::new(), End::Closed));
    }
    assert!(gateway.process().wait(Duration::from_secs(10)).success());
    assert!(started.elapsed() < Duration::from_secs(5), "the drain took {:?}", started.elapsed());
    let log = gateway.process().log();
    assert!(log.contains("cut=0"), "nothing was cut:\n{log}");
    deadline::until_true("the server to forget the pop", || server.info("clients", "blocked_clients") == "0");
    gateway.ended();
}

#[test]
fn the_admin_port_can_start_a_drain() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(config(&server, "settle = \"1s\"\ntimeout = \"5s\""));
    let response = gateway.admin.post("/api/v1/drain", "");
    assert_eq!(response.status, 202, "{}", response.body);
    assert_eq!(response.json()["state"], "started");
    assert_eq!(gateway.admin.post("/api/v1/drain", "").json()["state"], "draining");
    deadline::until_true("the listener to close", || Stream::connect(&gateway.address).is_err());
    if gateway.process().try_wait().is_none() {
        gateway.process().signal("TERM");
    }
    assert!(gateway.process().wait(Duration::from_secs(10)).success());
    gateway.ended();
}

/// Clients that come back elsewhere lose nothing: every command gets its reply or a clean close
/// between commands.
#[test]
fn a_drain_under_load_cuts_no_reply() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(config(&server, "settle = \"300ms\"\ntimeout = \"5s\""));
    let victims: Vec<Victim> = (0..8).map(|_| Victim::start(&gateway.address)).collect();
    gateway.wait_metric("weir_requests_total", &[], 500.0);
    gateway.process().signal("TERM");
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    for victim in victims {
        let suffered = victim.stop();
        assert!(suffered.completed > 0);
        for error in &suffered.errors {
            // A clean close, or no gateway to connect to any more; never a reset, never an error reply.
            let is_clean = error.ends_with("Closed") || error.contains("connect again");
            assert!(is_clean || error.contains("cannot send"), "{error}");
        }
    }
    gateway.ended();
}

/// A rolling replacement on one machine: another instance listens on the same port, then this one gets SIGTERM, twice.
/// `WEIR_SOAK_SECONDS` makes a soak of it. Redis has no word that announces the end of a connection, so a request may cross it: it was
/// not executed, and a client sends it again.
#[test]
fn another_instance_takes_over_under_load_and_no_reply_is_lost() {
    let server = Server::start(Kind::Redis);
    let config = config(&server, "settle = \"300ms\"\ntimeout = \"4s\"").workers(2).listener("reuse_port = true");
    let mut gateway = Gateway::start(config.clone());
    let traffic = Traffic::start(&Way::plain(&gateway.address), 6);
    let (begun, mut takeovers) = (Instant::now(), 0);
    while !soak::is_over(takeovers >= 2, begun.elapsed()) {
        gateway.wait_metric("weir_requests_total", &[], 2_000.0);
        let next = Gateway::start(config.clone());
        gateway.process().signal("TERM");
        let status = gateway.process().wait(Duration::from_secs(20));
        assert!(status.success(), "{status}");
        std::mem::replace(&mut gateway, next).ended();
        takeovers += 1;
    }
    // The last one has all clients now.
    gateway.wait_metric("weir_requests_total", &[], 2_000.0);
    let seen = traffic.stop();
    eprintln!("{takeovers} instances gave way: {seen:?}");
    assert!(seen.errors.is_empty() && seen.right > 4_000, "{seen:?}");
}
