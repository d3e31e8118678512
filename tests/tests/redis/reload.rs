//! A new configuration is taken at a turn boundary: no client is disconnected, a bad file changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::port;
use weir_tests::server::{Kind, Server};
use weir_tests::soak;
use weir_tests::stream::Address;
use weir_tests::traffic::{Traffic, Way};

fn second_listener(port: u16) -> String {
    format!(
        "\n[[listener]]\nname = \"second\"\nprotocol = \"redis\"\nbind = \"127.0.0.1:{port}\"\nupstream = \"server\"\n"
    )
}

#[test]
fn a_listener_is_added_and_removed_while_clients_stay() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut old = gateway.connect();
    old.expect(&["SET", "k", "v"], b"+OK\r\n");
    old.expect(&["WATCH", "k"], b"+OK\r\n");
    let port = port::free();
    let first_text = std::fs::read_to_string(&gateway.file).expect("the configuration");
    gateway.rewrite(|text| text.to_owned() + &second_listener(port));
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    let outcome = response.json();
    assert_eq!(outcome["outcome"], "applied");
    assert_eq!(outcome["generation"], 2);
    let second = Address::port(port);
    let mut new = deadline::until("the second listener", deadline::WAIT, || {
        weir_tests::stream::Stream::connect(&second).ok().map(Client::over)
    });
    new.expect(&["GET", "k"], b"$1\r\nv\r\n");
    // State of the old connection survived.
    old.expect(&["MULTI"], b"+OK\r\n");
    old.expect(&["EXEC"], b"*0\r\n");
    drop(new);
    gateway.rewrite(|_| first_text.clone());
    gateway.admin.post("/api/v1/reload", "");
    deadline::until_true("the second listener to close", || weir_tests::stream::Stream::connect(&second).is_err());
    old.expect(&["GET", "k"], b"$1\r\nv\r\n");
}

#[test]
fn sighup_reloads() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["PING"], b"+PONG\r\n");
    gateway.rewrite(|text| text.replace("upstream = \"server\"", "upstream = \"server\"\nconnections_max = 7"));
    gateway.process().signal("HUP");
    gateway.wait_metric("weir_config_generation", &[], 2.0);
    gateway.wait_metric("weir_config_reloads_total", &[("outcome", "applied")], 1.0);
    client.expect(&["PING"], b"+PONG\r\n");
}

#[test]
fn an_equal_file_changes_nothing() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    assert_eq!(response.json()["outcome"], "unchanged");
    assert_eq!(gateway.metric("weir_config_generation"), 1.0);
}

/// X13: oversized, half written, unknown keys, wrong values: each names its place, and the last good
/// configuration goes on.
#[test]
fn a_bad_file_is_refused_whole_and_says_where() {
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::before(&server);
    let good = std::fs::read_to_string(&gateway.file).expect("the configuration");
    let mut client = gateway.connect();
    let bad: &[(&str, String)] = &[
        ("half a line", format!("{good}\n[[listener]]\nname = \"x")),
        ("an unknown key", good.replace("[runtime]", "[runtime]\nwrokers = 1")),
        ("a wrong type", good.replace("workers = 1", "workers = \"one\"")),
        ("a missing upstream", good.replace("upstream = \"server\"", "upstream = \"nowhere\"")),
        ("an empty file", String::new()),
        ("two of a name", good.clone() + &second_listener(port::free()).replace("second", "test")),
        ("megabytes of comment", format!("{good}\n{}", "# filler\n".repeat(600_000))),
    ];
    for (what, text) in bad {
        gateway.rewrite(|_| text.clone());
        let response = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(response.status, 422, "{what}: {}", response.body);
        let outcome = response.json();
        assert_eq!(outcome["outcome"], "rejected", "{what}");
        let diagnostics = outcome["diagnostics"].as_array().expect("diagnostics");
        assert!(!diagnostics.is_empty(), "{what}: nothing is said");
        let message = diagnostics[0]["message"].as_str().expect("a message");
        assert!(!message.is_empty(), "{what}");
        client.expect(&["PING"], b"+PONG\r\n");
        gateway.connect().expect(&["PING"], b"+PONG\r\n");
    }
    std::fs::remove_file(&gateway.file).expect("the file can be removed");
    gateway.process().signal("HUP");
    gateway.wait_metric("weir_config_reloads_total", &[("outcome", "rejected")], 8.0);
    client.expect(&["PING"], b"+PONG\r\n");
    rewrite_back(&gateway, &good);
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "unchanged");
    assert_eq!(gateway.metric("weir_config_generation"), 1.0);
}

fn rewrite_back(gateway: &Gateway, text: &str) {
    std::fs::write(&gateway.file, text).expect("the configuration");
}

#[test]
fn changes_that_need_a_restart_are_reported() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    gateway.rewrite(|text| text.replace("workers = 1", "workers = 2"));
    let response = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(response.status, 200, "{}", response.body);
    let outcome = response.json();
    let waiting = outcome["needs_restart"].as_array().expect("a list");
    assert_eq!(waiting.len(), 1, "{outcome}");
    assert!(waiting[0].to_string().contains("workers"), "{outcome}");
    assert_eq!(gateway.metric("weir_config_restart_required"), 1.0);
}

#[test]
fn an_upstream_moves_without_an_error() {
    let (first, second) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    first.connect().expect(&["SET", "who", "first"], b"+OK\r\n");
    second.connect().expect(&["SET", "who", "second"], b"+OK\r\n");
    let gateway = Gateway::before(&first);
    let mut client = gateway.connect();
    client.expect(&["GET", "who"], b"$5\r\nfirst\r\n");
    gateway.rewrite(|text| text.replace(&first.address.text(), &second.address.text()));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    deadline::until_true("the new server to answer", || {
        let reply = client.call(&["GET", "who"]);
        assert!(reply == b"$5\r\nfirst\r\n" || reply == b"$6\r\nsecond\r\n", "{}", String::from_utf8_lossy(&reply));
        reply == b"$6\r\nsecond\r\n"
    });
    deadline::until_true("the old server to be left", || first.info("clients", "connected_clients") == "1");
}

/// Other settings of listener and upstream every time, and a second listener that comes and goes.
fn variant(good: &str, round: u32, second: u16) -> String {
    let head_timeout = 20 + round % 2;
    let changed = good
        .replace("upstream = \"server\"", &format!("upstream = \"server\"\nconnections_max = {}", 1_000 + round))
        .replace("endpoints = ", &format!("request_timeout = \"{}s\"\nendpoints = ", 5 + round % 3))
        .replace("protocol = \"redis\"", &format!("protocol = \"redis\"\nhead_timeout = \"{head_timeout}s\""));
    if round % 2 == 1 { changed + &second_listener(second) } else { changed }
}

/// X7: many reloads under load, by the API and by SIGHUP in turn, and not one client notices. `WEIR_SOAK_SECONDS` makes a soak of it.
#[test]
fn reloads_under_load_cost_no_request() {
    const RELOADS: u32 = 40;
    let server = Server::start(Kind::Redis);
    let mut gateway = Gateway::start(Config::to(&server.address).workers(2));
    let good = std::fs::read_to_string(&gateway.file).expect("the configuration");
    gateway.connect().expect(&["PING"], b"+PONG\r\n");
    let descriptors = gateway.descriptors_besides_lanes();
    let traffic = Traffic::start(&Way::plain(&gateway.address), 6);
    gateway.wait_metric("weir_requests_total", &[], 2_000.0);
    let (begun, second) = (Instant::now(), port::free());
    let mut reloads = 0;
    while !soak::is_over(reloads >= RELOADS, begun.elapsed()) {
        reloads += 1;
        gateway.rewrite(|_| variant(&good, reloads, second));
        if reloads % 4 < 2 {
            gateway.process().signal("HUP");
        } else {
            let response = gateway.admin.post("/api/v1/reload", "");
            assert_eq!(response.json()["outcome"], "applied", "{}", response.body);
        }
        gateway.wait_metric("weir_config_generation", &[], f64::from(reloads + 1));
        // A new connection in every generation.
        gateway.connect().expect(&["PING"], b"+PONG\r\n");
    }
    gateway.rewrite(|_| good.clone());
    assert_eq!(gateway.admin.post("/api/v1/reload", "").json()["outcome"], "applied");
    let seen = traffic.stop();
    eprintln!("{reloads} reloads: {seen:?}");
    assert!(seen.errors.is_empty() && seen.crossed == 0, "{seen:?}");
    assert!(seen.right > 4_000, "{seen:?}");
    gateway.wait_at_rest();
    deadline::until_true("descriptors to be back", || gateway.descriptors_besides_lanes() <= descriptors);
}

/// Clients that ask again at once move with the others; none stays with the old server.
#[test]
fn an_upstream_moves_under_load_too() {
    let (old, new) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    let gateway = Gateway::before(&old);
    let stop = Arc::new(AtomicBool::new(false));
    let ask = |mut client: Client, stop: Arc<AtomicBool>| {
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let reply = client.call(&["INCR", "n"]);
                assert_eq!(reply[0], b':', "{}", String::from_utf8_lossy(&reply));
            }
        })
    };
    let askers: Vec<_> = (0..8).map(|_| ask(gateway.connect(), stop.clone())).collect();
    gateway.wait_metric("weir_requests_total", &[], 500.0);
    gateway.rewrite(|text| text.replace(&old.address.text(), &new.address.text()));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    deadline::until_true("the old server to be left", || old.info("clients", "connected_clients") == "1");
    stop.store(true, Ordering::Relaxed);
    askers.into_iter().for_each(|asker| asker.join().expect("every request was answered"));
    assert_ne!(new.connect().call(&["GET", "n"]), b"$-1\r\n", "the new server was asked");
}
