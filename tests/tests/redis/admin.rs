//! The admin port: probes, metrics, the JSON API, who may ask, and that it answers under load.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir_tests::client::Client;
use weir_tests::gateway::{Config, Gateway, secret_file};
use weir_tests::server::{Kind, Server};
use weir_tests::wire::encode;

#[test]
fn probes_say_how_it_stands() {
    let mut server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    for path in ["/livez", "/readyz", "/startupz"] {
        let response = gateway.admin.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        assert_eq!(response.json()["status"], "pass", "{path}");
    }
    let verbose = gateway.admin.get("/readyz?verbose").body;
    assert!(verbose.contains("driver"), "/readyz shows the driver: {verbose}");
    server.kill();
    gateway.wait_metric("weir_endpoint_health_changes_total", &[("state", "down")], 1.0);
    assert_eq!(gateway.admin.get("/livez").status, 200, "a lost server is no reason to die");
    server.restart();
    weir_tests::deadline::until_true("/readyz to pass again", || gateway.admin.is_ready());
}

#[test]
fn the_api_describes_the_running_gateway() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["CLIENT", "SETNAME", "shown"], b"+OK\r\n");
    client.expect(&["SELECT", "3"], b"+OK\r\n");
    client.expect(&["WATCH", "k"], b"+OK\r\n");
    let connections = gateway.admin.get("/api/v1/connections").json();
    let connection = &connections["connections"][0];
    assert_eq!(connection["name"], "shown", "{connections}");
    assert_eq!(connection["db"], 3);
    assert_eq!(connection["listener"], "test");
    assert_eq!(connection["pinned_by"][0], "watch", "why am I pinned: {connections}");
    let listeners = gateway.admin.get("/api/v1/listeners").json();
    assert_eq!(listeners["listeners"][0]["name"], "test");
    assert_eq!(listeners["listeners"][0]["connections_open"], 1);
    let upstreams = gateway.admin.get("/api/v1/upstreams").json();
    let endpoint = &upstreams["upstreams"][0]["endpoints"][0];
    assert_eq!(endpoint["address"], server.address.text());
    assert_eq!(endpoint["health"], "healthy", "{upstreams}");
    assert_eq!(endpoint["lanes_pinned"], 1);
    let version = gateway.admin.get("/api/v1/version").json();
    assert_eq!(version["generation"], 1);
    let config = gateway.admin.get("/api/v1/config");
    assert_eq!(config.status, 200, "{}", config.body);
    assert!(config.body.contains("\"test\""), "{}", config.body);
    assert_eq!(gateway.admin.get("/api/v1/nothing").status, 404);
    assert_eq!(gateway.admin.post("/api/v1/listeners", "").status, 405);
    client.expect(&["UNWATCH"], b"+OK\r\n");
}

#[test]
fn the_openapi_document_lists_every_path_that_answers() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let document = gateway.admin.get("/api/v1/openapi.json").json();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")));
    let paths = document["paths"].as_object().expect("paths");
    for path in [
        "/livez",
        "/readyz",
        "/startupz",
        "/metrics",
        "/api/v1/config",
        "/api/v1/listeners",
        "/api/v1/upstreams",
        "/api/v1/connections",
        "/api/v1/hot-keys",
        "/api/v1/big-keys",
        "/api/v1/slow-log",
        "/api/v1/drain",
        "/api/v1/reload",
    ] {
        assert!(paths.contains_key(path), "{path} is not described");
    }
    for (path, operations) in paths {
        if operations.get("get").is_some() {
            // A path with a name leads to one thing, and there is none of this name.
            let wanted = if path.contains('{') { 404 } else { 200 };
            assert_eq!(gateway.admin.get(path).status, wanted, "GET {path}");
        }
    }
}

#[test]
fn every_metric_is_in_the_catalog() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let mut client = gateway.connect();
    client.expect(&["SET", "k", "v"], b"+OK\r\n");
    client.expect(&["GET", "k"], b"$1\r\nv\r\n");
    let text = gateway.admin.get("/metrics").body;
    let catalog = weir_telemetry::catalog::markdown();
    let mut families = 0;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("# TYPE ") else {
            continue;
        };
        let name = rest.split(' ').next().unwrap_or_default();
        assert!(catalog.contains(&format!("`{name}`")), "{name} is not documented");
        families += 1;
    }
    assert!(families > 30, "only {families} families are served");
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum_where("weir_command_calls_total", &[("command", "get")]), 1.0);
    assert_eq!(metrics.sum("weir_request_duration_seconds_count"), 2.0);
    assert_eq!(metrics.sum("weir_request_overhead_duration_seconds_count"), 2.0);
    assert_eq!(metrics.sum("weir_request_upstream_duration_seconds_count"), 2.0);
    // request = overhead + upstream
    let sum = |name: &str| metrics.sum(&format!("weir_request_{name}_seconds_sum"));
    let gap = sum("duration") - sum("overhead_duration") - sum("upstream_duration");
    assert!(gap.abs() < 1e-4, "request differs from overhead + upstream by {gap} s");
}

#[test]
fn a_token_is_demanded_where_one_is_set() {
    let server = Server::start(Kind::Redis);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = secret_file(folder.path(), "token", "let-me-in-let-me-in");
    let mut config = Config::to(&server.address);
    config.admin = format!("token = {{ file = \"{file}\" }}");
    let mut gateway = Gateway::start(config);
    assert_eq!(gateway.admin.get("/livez").status, 200, "probes need no token");
    for path in ["/metrics", "/api/v1/config", "/api/v1/connections"] {
        let ask = |token: &str| {
            let fields = [("Authorization", token)];
            let fields = if token.is_empty() { &fields[..0] } else { &fields[..] };
            gateway.admin.request("GET", path, fields, "").expect("a response").status
        };
        assert_eq!(ask(""), 401, "{path}");
        assert_eq!(ask("Bearer wrong"), 401, "{path}");
        assert_eq!(ask("Bearer let-me-in-let-me-in"), 200, "{path}");
    }
    let refused = gateway.admin.request("POST", "/api/v1/drain", &[], "").expect("a response");
    assert_eq!(refused.status, 401);
    // Metrics cannot be scraped without the token, so the end is judged by hand.
    gateway.process().signal("TERM");
    assert!(gateway.process().wait(Duration::from_secs(10)).success());
    gateway.ended();
}

/// A page in a browser must not be able to steer the gateway of the machine it runs on.
#[test]
fn foreign_sites_and_foreign_host_names_are_refused() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let ask = |method: &str, fields: &[(&str, &str)]| {
        gateway.admin.request(method, "/api/v1/reload", fields, "").expect("a response").status
    };
    let rebound = ask("POST", &[("Host", "evil.example:9900")]);
    assert!((400..500).contains(&rebound), "DNS rebinding: {rebound}");
    let foreign = ask("POST", &[("Origin", "http://evil.example")]);
    assert!((400..500).contains(&foreign), "a foreign origin: {foreign}");
    assert_eq!(gateway.metric("weir_config_reloads_total"), 0.0);
}

/// X12: the admin port has its own thread and answers while the workers are busy. How soon is printed: it says more of the
/// machine, which this test saturates as well.
#[test]
fn the_admin_port_answers_while_the_workers_are_saturated() {
    let server = Server::start(Kind::Redis);
    let gateway = Gateway::before(&server);
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..3)
        .map(|_| {
            let (address, stop) = (gateway.address.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut client = Client::connect(&address);
                let batch = encode(&["SET", "k", "v"]).repeat(200);
                while !stop.load(Ordering::Relaxed) {
                    client.stream().write_all(&batch).expect("the batch is sent");
                    for _ in 0..200 {
                        assert_eq!(client.reply(), b"+OK\r\n");
                    }
                }
            })
        })
        .collect();
    gateway.wait_metric("weir_requests_total", &[], 5_000.0);
    let mut times: Vec<Duration> = (0..40)
        .map(|_| {
            let response = gateway.admin.get("/metrics");
            assert_eq!(response.status, 200);
            response.elapsed
        })
        .collect();
    stop.store(true, Ordering::Relaxed);
    for thread in load {
        thread.join().expect("the load saw no error");
    }
    times.sort();
    eprintln!(
        "half of the responses took up to {:?}, nine of ten {:?}",
        times[times.len() / 2],
        times[times.len() * 9 / 10]
    );
}
