//! Hot keys, big keys, the slow log and the gateway's own section of INFO.

use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::deadline;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::{bulk, encode_all};

/// A gateway that looks at every request.
fn gateway(server: &Server, lines: &str) -> Gateway {
    Gateway::start(Config::to(&server.address).tables(&format!("[telemetry.keys]\nsample = 1\n{lines}")))
}

fn ask(gateway: &Gateway, path: &str) -> serde_json::Value {
    let response = gateway.admin.get(path);
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    response.json()
}

/// The keys of a response, in its order.
fn keys(response: &serde_json::Value, list: &str) -> Vec<String> {
    let keys = response[list].as_array().expect("a list").iter();
    keys.map(|key| key["key"].as_str().expect("a key").to_owned()).collect()
}

fn info(client: &mut Client, sections: &[&str]) -> String {
    let words: Vec<&str> = std::iter::once("INFO").chain(sections.iter().copied()).collect();
    String::from_utf8(bulk(&client.call(&words))).expect("text")
}

#[test]
fn the_hottest_keys_are_listed_in_order_over_all_workers() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let config = Config::to(&server.address).workers(2).tables("[telemetry.keys]\nsample = 2\n");
        let gateway = Gateway::start(config);
        let mut clients: Vec<Client> = (0..8).map(|_| gateway.connect()).collect();
        for client in &mut clients {
            client.expect(&["SELECT", "3"], b"+OK\r\n");
            let get: &[&str] = &["GET", "hot key\n"];
            let set: &[&str] = &["SET", "warm", "v"];
            let pipeline = encode_all(&[get, get, get, get, get, get, set, set]);
            for _ in 0..50 {
                client.send(&pipeline);
                (0..8).for_each(|_| drop(client.reply()));
            }
        }
        let response = ask(&gateway, "/api/v1/hot-keys");
        assert_eq!(keys(&response, "hot_keys"), ["hot key\\n", "warm"], "{response}");
        let hot = &response["hot_keys"][0];
        assert_eq!((&hot["command"], &hot["db"], &hot["upstream"]), (&"get".into(), &3.into(), &"server".into()));
        // 2,400 of 3,200 requests, of which every second one was looked at.
        let samples = hot["samples"].as_u64().expect("a number");
        assert!((1_000..=1_400).contains(&samples), "{response}");
        assert_eq!(ask(&gateway, "/api/v1/hot-keys?limit=1")["hot_keys"].as_array().map(Vec::len), Some(1));
        assert_eq!((&response["sample"], &response["workers_silent"]), (&2.into(), &serde_json::json!([])));
    }
}

#[test]
fn keys_can_be_hidden_or_left_alone() {
    let server = Server::start(Kind::Redis);
    let hashed = gateway(&server, "names = \"hashed\"\n");
    hashed.connect().expect(&["SET", "session:secret", "v"], b"+OK\r\n");
    let response = ask(&hashed, "/api/v1/hot-keys");
    assert!(!response.to_string().contains("secret"), "{response}");
    assert!(keys(&response, "hot_keys")[0].starts_with('#'), "{response}");
    let off = gateway(&server, "names = \"off\"\n");
    let mut client = off.connect();
    client.expect(&["SET", "session:secret", &"v".repeat(100_000)], b"+OK\r\n");
    assert!(keys(&ask(&off, "/api/v1/hot-keys"), "hot_keys").is_empty());
    assert!(keys(&ask(&off, "/api/v1/big-keys"), "big_keys").is_empty());
    assert!(!info(&mut client, &["weir"]).contains("hot_key_"));
}

#[test]
fn big_keys_are_found_in_requests_and_replies_small_streamed_and_pipelined() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "");
    let mut direct = server.connect();
    direct.expect(&["SET", "read", &"r".repeat(40_000)], b"+OK\r\n");
    direct.expect(&["SET", "read-large", &"r".repeat(3_000_000)], b"+OK\r\n");
    direct.expect(&["SET", "small", "v"], b"+OK\r\n");
    let mut client = gateway.connect();
    client.expect(&["SET", "written", &"w".repeat(30_000)], b"+OK\r\n");
    client.expect(&["SET", "written-large", &"w".repeat(1_000_000)], b"+OK\r\n");
    client.send(&encode_all(&[&["GET", "small"], &["GET", "read"], &["GET", "small"], &["GET", "read-large"]]));
    (0..4).for_each(|_| drop(client.reply()));
    let response = ask(&gateway, "/api/v1/big-keys");
    assert_eq!(keys(&response, "big_keys"), ["read-large", "written-large", "read", "written"], "{response}");
    let told = |at: usize| {
        let key = &response["big_keys"][at];
        (key["bytes"].as_u64().expect("a number"), key["direction"].as_str().expect("a word").to_owned())
    };
    for (at, (bytes, direction)) in
        [(3_000_000, "reply"), (1_000_000, "request"), (40_000, "reply"), (30_000, "request")].into_iter().enumerate()
    {
        let (found, way) = told(at);
        assert!((bytes..bytes + 100).contains(&found) && way == direction, "{response}");
    }
}

#[test]
fn a_slow_request_is_listed_with_its_client_and_its_times() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "[telemetry.slow_log]\nslower_than = \"50ms\"\nentries = 4\n");
    let mut client = gateway.connect();
    client.expect(&["CLIENT", "SETNAME", "batch-job"], b"+OK\r\n");
    client.expect(&["GET", "fast"], b"$-1\r\n");
    let asleep = server.sleep(Duration::from_millis(300));
    client.command(&["SET", "k", "v", "EX", "100"]);
    assert_eq!(client.reply(), b"+OK\r\n");
    drop(asleep);
    let response = ask(&gateway, "/api/v1/slow-log");
    let entries = response["slow_requests"].as_array().expect("a list");
    assert_eq!(entries.len(), 1, "{response}");
    let entry = &entries[0];
    assert_eq!(entry["command"], serde_json::json!(["SET", "k", "v", "EX", "100"]), "{response}");
    assert_eq!((&entry["client_name"], &entry["user"]), (&"batch-job".into(), &"default".into()), "{response}");
    assert_eq!((&entry["outcome"], &entry["listener"]), (&"ok".into(), &"test".into()));
    assert_eq!(entry["endpoint"], server.address.text());
    let seconds = |part: &str| entry[format!("{part}_seconds")].as_f64().expect("a number");
    assert!(seconds("duration") >= 0.05 && seconds("upstream") >= 0.05, "{response}");
    let parts = seconds("gateway") + seconds("upstream");
    assert!((seconds("duration") - parts).abs() < 1e-6, "{response}");
    assert_eq!(gateway.metric("weir_redis_slow_requests_total"), 1.0);
    // The server's own log is another, and still the server's.
    assert!(client.call(&["SLOWLOG", "LEN"]).starts_with(b":"));
    assert_eq!(gateway.admin.get("/api/v1/slow-log/reset").status, 405);
    assert_eq!(gateway.admin.post("/api/v1/slow-log/reset", "").json()["removed"], 1);
    assert_eq!(ask(&gateway, "/api/v1/slow-log")["slow_requests"].as_array().map(Vec::len), Some(0));
}

#[test]
fn blocking_commands_are_not_slow_and_a_lost_reply_is() {
    let server = Server::start(Kind::Redis);
    let config = Config::to(&server.address).upstream("request_timeout = \"200ms\"");
    let gateway = Gateway::start(config.tables("[telemetry.slow_log]\nslower_than = \"50ms\"\narguments = false\n"));
    let mut client = gateway.connect();
    client.expect(&["BLPOP", "queue", "0.2"], b"*-1\r\n");
    // The shared lane is there, so that what follows is sent and not kept for a connection.
    client.expect(&["PFCOUNT", "absent"], b":0\r\n");
    let asleep = server.sleep(Duration::from_millis(900));
    client.expect(&["GET", "session:secret"], b"-ERR weir: upstream timeout\r\n");
    drop(asleep);
    let response = ask(&gateway, "/api/v1/slow-log");
    let entries = response["slow_requests"].as_array().expect("a list");
    assert_eq!(entries[0]["outcome"], "timeout", "{response}");
    assert_eq!(entries[0]["command"], serde_json::json!(["get", "... (1 more arguments)"]), "{response}");
    assert!(!response.to_string().contains("blpop") && !response.to_string().contains("secret"), "{response}");
}

#[test]
fn every_request_can_be_kept_and_the_ring_stays_small() {
    let server = Server::start(Kind::Redis);
    let gateway = gateway(&server, "[telemetry.slow_log]\nslower_than = \"0s\"\nentries = 4\n");
    let mut client = gateway.connect();
    for n in 0..20 {
        client.expect(&["SET", &format!("k{n}"), "v"], b"+OK\r\n");
    }
    client.send(&encode_all(&[&["MULTI"], &["INCR", "n"], &["GET", "k1"], &["EXEC"]]));
    (0..4).for_each(|_| drop(client.reply()));
    let response = ask(&gateway, "/api/v1/slow-log");
    let entries = response["slow_requests"].as_array().expect("a list");
    assert_eq!(entries.len(), 4, "{response}");
    assert_eq!(entries[0]["command"], serde_json::json!(["exec", "(2 commands)", "INCR", "n"]), "{response}");
    assert_eq!(entries[1]["command"], serde_json::json!(["SET", "k19", "v"]), "{response}");
}

#[test]
fn info_weir_is_answered_here_and_everything_else_is_the_servers() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let gateway = gateway(&server, "");
        let mut client = gateway.connect();
        (0..10).for_each(|_| client.expect(&["SET", "hot", "v"], b"+OK\r\n"));
        let asked = server.calls("info");
        let own = info(&mut client, &["WEIR"]);
        assert_eq!(server.calls("info"), asked + 1, "the server was asked by this test alone");
        for field in [
            "# Weir\r\nweir_version:",
            "\r\nuptime_in_seconds:",
            "\r\nlistener:test\r\n",
            "\r\nconnected_clients:1\r\n",
            "\r\ntotal_requests:",
            "\r\nupstream:server\r\n",
            ",health=up,breaker=closed\r\n",
            "\r\nhot_key_0:per_second=",
            ",command=set,key=hot\r\n",
        ] {
            assert!(own.contains(field), "{field} is missing in:\n{own}");
        }
        assert!(own.split("\r\n").skip(1).all(|line| line.is_empty() || line.contains(':')), "{own}");
        let both = info(&mut client, &["server", "weir", "clients"]);
        let at = |text: &str| both.find(text).unwrap_or_else(|| panic!("{text} is missing in:\n{both}"));
        assert!(at("# Server") < at("# Clients") && at("# Clients") < at("\r\n\r\n# Weir\r\n"), "{both}");
        for sections in [&[][..], &["everything"], &["server"]] {
            let plain = info(&mut client, sections);
            assert!(plain.contains("# Server") && !plain.contains("# Weir"), "{plain}");
        }
        // In a pipeline the order stays.
        client.send(&encode_all(&[&["SET", "a", "1"], &["INFO", "weir", "server"], &["INFO", "weir"], &["GET", "a"]]));
        assert_eq!(client.reply(), b"+OK\r\n");
        assert!(String::from_utf8_lossy(&client.reply()).contains("# Server"));
        assert!(String::from_utf8_lossy(&client.reply()).contains("\r\n# Weir\r\n"));
        assert_eq!(client.reply(), b"$1\r\n1\r\n");
        let mut third = gateway.connect();
        drop(third.call(&["HELLO", "3"]));
        assert!(third.call(&["INFO", "weir"]).starts_with(b"="), "RESP3 marks it as text");
        assert!(third.call(&["INFO", "server", "weir"]).starts_with(b"="));
        third.expect(&["CLIENT", "REPLY", "ON"], b"+OK\r\n");
    }
}

#[test]
fn a_user_that_may_not_see_all_keys_sees_no_hot_ones() {
    let server = Server::start(Kind::Redis);
    let users = "[[listener.user]]\nname = \"default\"\nrules = 'on nopass ~* &* +@all'\n\
                 [[listener.user]]\nname = \"reports\"\nrules = 'on >pw ~report:* +@all'\n\
                 [[listener.user]]\nname = \"nobody\"\nrules = 'on >pw ~* +get'\n";
    let config = Config::to(&server.address).listener(users).tables("[telemetry.keys]\nsample = 1\n");
    let gateway = Gateway::start(config);
    let mut client = gateway.connect();
    client.expect(&["SET", "private", "v"], b"+OK\r\n");
    assert!(info(&mut client, &["weir"]).contains("key=private"));
    client.expect(&["AUTH", "reports", "pw"], b"+OK\r\n");
    let own = info(&mut client, &["weir"]);
    assert!(own.contains("# Weir") && !own.contains("private"), "{own}");
    client.expect(&["AUTH", "nobody", "pw"], b"+OK\r\n");
    let no = b"-NOPERM this user has no permissions to run the 'info' command\r\n";
    client.expect(&["INFO", "weir"], no);
}

#[test]
fn info_over_shards_is_that_of_all_and_the_gateways() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let config = Config::to_all(servers.iter().map(|server| &server.address));
    let gateway = Gateway::start(config.upstream("sharding = { distribution = \"ketama\" }"));
    let mut client = gateway.connect();
    deadline::until_true("both endpoints to be healthy", || {
        info(&mut client, &["weir"]).matches("health=up").count() == 2
    });
    let both = info(&mut client, &["server", "weir"]);
    assert!(both.contains("# Server") && both.contains("\r\n# Weir\r\n"), "{both}");
    client.expect(&["SET", "a", "1"], b"+OK\r\n");
}
