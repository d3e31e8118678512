//! Sessions with server state hold an upstream connection of their own, as long as the state lasts and no longer, and no other
//! session inherits it.

use std::time::{Duration, Instant};

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::stream::Stream;
use weir_tests::wire::{encode, shown};

const PINNED: &str = "weir_pinned_sessions";

fn wait_pinned(gateway: &Gateway, count: f64) {
    deadline::until_true(format!("{count} pinned sessions"), || gateway.metric(PINNED) == count);
}

#[test]
fn watch_pins_until_exec_discard_or_unwatch() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    for (enders, replies) in [
        (&[&["UNWATCH"][..]][..], &[&b"+OK\r\n"[..]][..]),
        (&[&["MULTI"], &["EXEC"]], &[b"+OK\r\n", b"*0\r\n"]),
        (&[&["MULTI"], &["DISCARD"]], &[b"+OK\r\n", b"+OK\r\n"]),
        (&[&["RESET"]], &[b"+RESET\r\n"]),
    ] {
        client.expect(&["WATCH", "k"], b"+OK\r\n");
        wait_pinned(&gateway, 1.0);
        for (words, reply) in enders.iter().zip(replies) {
            client.expect(words, reply);
        }
        wait_pinned(&gateway, 0.0);
    }
    assert!(gateway.metrics().sum_where("weir_pins_total", &[("reason", "watch")]) >= 4.0);
}

#[test]
fn a_transaction_without_watch_needs_no_pin() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["MULTI"], b"+OK\r\n");
    client.expect(&["SET", "k", "v"], b"+QUEUED\r\n");
    // Nothing has reached the server: the unit is sent whole at EXEC.
    assert_eq!(server.calls("multi"), 0);
    assert_eq!(gateway.metric(PINNED), 0.0);
    client.expect(&["EXEC"], b"*1\r\n+OK\r\n");
    assert_eq!(server.calls("multi"), 1);
    assert_eq!(gateway.metric("weir_pins_total"), 0.0);
}

#[test]
fn a_blocking_client_does_not_hold_up_the_others() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut blocked: Vec<Client> = (0..20).map(|_| gateway.connect()).collect();
    // One after the other: the server serves those that wait in the order in which they came.
    for (number, client) in blocked.iter_mut().enumerate() {
        client.command(&["BLPOP", "queue", "0"]);
        deadline::until_true("the pop to wait at the server", || {
            server.info("clients", "blocked_clients") == (number + 1).to_string()
        });
    }
    wait_pinned(&gateway, 20.0);
    let mut other = gateway.connect();
    for number in 0..200 {
        let started = std::time::Instant::now();
        other.expect(&["SET", "k", &number.to_string()], b"+OK\r\n");
        assert!(started.elapsed() < Duration::from_secs(2), "an innocent client waited");
    }
    // Far longer than a request may take: no gateway timeout applies to a blocked client.
    for (number, client) in blocked.iter_mut().enumerate() {
        other.call(&["RPUSH", "queue", &number.to_string()]);
        let text = number.to_string();
        let wanted = format!("*2\r\n$5\r\nqueue\r\n${}\r\n{text}\r\n", text.len());
        assert_eq!(client.reply(), wanted.as_bytes());
    }
    wait_pinned(&gateway, 0.0);
}

#[test]
fn blocking_outlasts_the_request_timeout() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).upstream("request_timeout = \"200ms\"");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    let started = std::time::Instant::now();
    client.expect(&["BLPOP", "absent", "1"], b"*-1\r\n");
    assert!(started.elapsed() >= Duration::from_millis(950));
    client.expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn a_blocked_client_that_leaves_takes_no_element_with_it() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    for round in 0..10 {
        let key = format!("queue{round}");
        let mut client = gateway.connect();
        client.command(&["BLPOP", &key, "0"]);
        deadline::until_true("the pop to wait at the server", || server.info("clients", "blocked_clients") == "1");
        drop(client);
        deadline::until_true("the server to forget the pop", || server.info("clients", "blocked_clients") == "0");
        server.connect().expect(&["RPUSH", &key, "kept"], b":1\r\n");
        server.connect().expect(&["LLEN", &key], b":1\r\n");
    }
    wait_pinned(&gateway, 0.0);
}

/// R11: whatever a client leaves behind, the next one starts clean.
#[test]
fn state_left_behind_does_not_reach_the_next_client() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    server.connect().expect(&["SET", "k", "v"], b"+OK\r\n");
    let leavings: &[&[&[&str]]] = &[
        &[&["MULTI"], &["SET", "k", "stolen"]],
        &[&["WATCH", "k"], &["MULTI"], &["SET", "k", "stolen"]],
        &[&["WATCH", "k"]],
        &[&["SELECT", "5"]],
        &[&["SELECT", "5"], &["WATCH", "k"]],
        &[&["CLIENT", "SETNAME", "ghost"]],
        &[&["HELLO", "3"]],
        &[&["HELLO", "3"], &["WATCH", "k"]],
        &[&["SUBSCRIBE", "channel"]],
        &[&["HELLO", "3"], &["SUBSCRIBE", "channel"]],
        &[&["CLIENT", "NO-EVICT", "on"]],
        &[&["BLPOP", "never", "0"]],
    ];
    for leaving in leavings {
        for abruptly in [false, true] {
            let mut client = gateway.connect();
            for words in *leaving {
                client.command(words);
                if words[0] != "BLPOP" {
                    client.reply();
                }
            }
            if abruptly {
                reset(client.stream());
            }
            drop(client);
            wait_pinned(&gateway, 0.0);
            let mut next = gateway.connect();
            next.expect(&["EXEC"], b"-ERR EXEC without MULTI\r\n");
            next.expect(&["CLIENT", "GETNAME"], b"$-1\r\n");
            // RESP2 and database 0.
            next.expect(&["GET", "absent"], b"$-1\r\n");
            next.expect(&["GET", "k"], b"$1\r\nv\r\n");
            next.expect(&["SET", "mine", "1"], b"+OK\r\n");
            next.expect(&["WATCH", "mine"], b"+OK\r\n");
            next.expect(&["MULTI"], b"+OK\r\n");
            next.expect(&["GET", "mine"], b"+QUEUED\r\n");
            next.expect(&["EXEC"], b"*1\r\n$1\r\n1\r\n");
        }
    }
    let names = server.connect().call(&["CLIENT", "LIST"]);
    let names = String::from_utf8_lossy(&names).into_owned();
    assert!(!names.contains("name=ghost"), "{names}");
}

/// Leaves unread input behind, so that closing sends a reset.
fn reset(stream: &mut Stream) {
    use std::io::Write as _;
    let _ = stream.write_all(&encode(&["PING"]).repeat(50));
}

#[test]
fn pinned_lanes_have_a_limit_with_a_refusal_of_its_own() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address)
        .upstream("pinned_lanes_max = 3\npinned_lanes_idle_max = 1\nlane_wait_timeout = \"5s\"");
    let gateway = Gateway::start(config);
    let mut held: Vec<Client> = (0..3).map(|_| gateway.connect()).collect();
    for client in &mut held {
        client.expect(&["WATCH", "k"], b"+OK\r\n");
    }
    let mut fourth = gateway.connect();
    let refusal = fourth.call(&["WATCH", "k"]);
    assert!(refusal.starts_with(b"-ERR weir: "), "{}", String::from_utf8_lossy(&refusal));
    // The connection stays, and ordinary commands go on.
    fourth.expect(&["PING"], b"+PONG\r\n");
    fourth.expect(&["SET", "k", "v"], b"+OK\r\n");
    assert_eq!(gateway.metric("weir_shed_total"), 1.0);
    held.pop();
    deadline::until_true("a lane to come free", || gateway.metric(PINNED) == 2.0);
    fourth.expect(&["WATCH", "k"], b"+OK\r\n");
}

/// Clients that hold a lane each and wait for a second one would wait for each other.
#[test]
fn a_client_with_a_lane_does_not_wait_for_another_one() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let config = Config::to_all(servers.iter().map(|server| &server.address))
        .upstream("sharding = { distribution = \"ketama\" }\npinned_lanes_max = 2\nlane_wait_timeout = \"30s\"");
    let gateway = Gateway::start(config.workers(1));
    let value = vec![b'v'; 200 << 10];
    let mut clients = [gateway.connect(), gateway.connect()];
    for client in &mut clients {
        client.expect(&["WATCH", "k"], b"+OK\r\n");
    }
    let started = Instant::now();
    for client in &mut clients {
        // Some of these keys are on the other server. With ten of them, one pair of ports in 700 had all on that of `k`.
        let replies: Vec<_> =
            (0..20).map(|n| shown(&client.call(&[b"SET", format!("{n}:large").as_bytes(), &value]))).collect();
        let refused = replies.iter().filter(|reply| reply.starts_with("-ERR weir")).count();
        assert!(refused > 0, "{replies:?}");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    for client in &mut clients {
        client.expect(&["MULTI"], b"+OK\r\n");
        client.expect(&["GET", "k"], b"+QUEUED\r\n");
        client.expect(&["EXEC"], b"*1\r\n$-1\r\n");
    }
}

#[test]
fn wait_counts_the_writes_of_its_own_connection() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["WAIT", "0", "100"], b":0\r\n");
    client.expect(&["SET", "k", "w"], b"+OK\r\n");
    client.expect(&["WAIT", "0", "0"], b":0\r\n");
}

#[test]
fn monitor_streams_and_ends_with_its_client() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut monitor = gateway.connect();
    monitor.expect(&["MONITOR"], b"+OK\r\n");
    server.connect().expect(&["SET", "seen", "v"], b"+OK\r\n");
    // Health probes and our own log-in may stand before it.
    let seen = (0..100).any(|_| String::from_utf8_lossy(&monitor.reply()).contains("\"SET\" \"seen\""));
    assert!(seen, "the command of another client is not shown");
    drop(monitor);
    wait_pinned(&gateway, 0.0);
}

#[test]
fn a_script_can_be_killed_from_any_database() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    server.connect().expect(&["CONFIG", "SET", "busy-reply-threshold", "10"], b"+OK\r\n");
    let mut runner = gateway.connect();
    runner.expect(&["SELECT", "9"], b"+OK\r\n");
    runner.command(&["EVAL", "while true do end", "0"]);
    // The server says so only to commands that it does not run meanwhile.
    let mut direct = server.connect();
    deadline::until_true("the server to be busy", || direct.call(&["GET", "k"]).starts_with(b"-BUSY"));
    let mut killer = gateway.connect();
    killer.expect(&["SELECT", "9"], b"+OK\r\n");
    killer.expect(&["SCRIPT", "KILL"], b"+OK\r\n");
    let reply = runner.reply();
    assert!(reply.starts_with(b"-ERR Script killed by user"), "{}", String::from_utf8_lossy(&reply));
    killer.expect(&["SET", "k", "v"], b"+OK\r\n");
    direct.expect(&["SELECT", "9"], b"+OK\r\n");
    direct.expect(&["GET", "k"], b"$1\r\nv\r\n");
}
