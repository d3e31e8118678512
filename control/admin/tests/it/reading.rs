//! Operations that read: probes, metrics, status.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use weir_admin::status::{ConnectionPage, ListenerList, UpstreamList, VersionStatus, WorkerList};
use weir_telemetry::catalog;

use crate::support::{FakeGateway, ask, fetch, start};

#[test]
fn a_probe_names_each_check_and_shows_details_only_on_request() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    for path in ["/livez", "/readyz", "/startupz"] {
        let response = fetch(&server, path);
        assert_eq!(response.status, 200, "{path}");
        let body = response.json();
        assert_eq!(body["status"], "pass", "{path}");
        assert_eq!(body["checks"][0]["status"], "pass", "{path}");
        assert!(body["checks"][0]["name"].is_string(), "{path}");
        assert!(body["checks"][0].get("detail").is_none(), "{path}");
    }
    let verbose = fetch(&server, "/startupz?verbose").json();
    assert_eq!(verbose["checks"][0]["detail"], "2 of 2, io_uring");
    // Balancers add parameters of their own.
    assert_eq!(fetch(&server, "/livez?from=balancer&verbose=1").status, 200);
}

#[test]
fn a_failing_check_makes_the_probe_503_and_is_named() {
    let gateway = FakeGateway::new();
    gateway.ready.store(false, Ordering::SeqCst);
    let server = start(&gateway);
    let response = fetch(&server, "/readyz?verbose");
    assert_eq!(response.status, 503);
    let body = response.json();
    assert_eq!(body["status"], "fail");
    assert_eq!(body["checks"][0]["status"], "pass");
    assert_eq!(body["checks"][1]["name"], "not_draining");
    assert_eq!(body["checks"][1]["status"], "fail");
    assert_eq!(body["checks"][1]["detail"], "asked to drain");
    assert_eq!(fetch(&server, "/livez").status, 200, "a draining process is alive");
}

#[test]
fn a_warning_is_named_and_fails_no_probe() {
    let server = start(&FakeGateway::new());
    let response = fetch(&server, "/readyz?verbose");
    assert_eq!(response.status, 200);
    let body = response.json();
    assert_eq!(body["status"], "pass");
    assert_eq!(body["checks"][2]["name"], "upstream_redis-main");
    assert_eq!(body["checks"][2]["status"], "warn");
    assert_eq!(body["checks"][2]["detail"], "Connection refused");
}

#[test]
fn responses_are_shown_by_class_of_status() {
    let server = start(&FakeGateway::new());
    let listener = fetch(&server, "/api/v1/listeners").json()["listeners"][0].clone();
    let classes = &listener["responses_total"];
    assert_eq!(
        (classes["2xx"].as_u64(), classes["5xx"].as_u64(), classes["broken"].as_u64()),
        (Some(9), Some(1), Some(0))
    );
    assert_eq!(listener["errors"]["warned"], true);
    let document = fetch(&server, "/api/v1/openapi.json").json();
    let described = &document["components"]["schemas"]["ResponseClasses"]["properties"]["5xx"]["description"];
    assert!(described.as_str().is_some_and(|text| text.contains("server is at fault")), "{described}");
}

#[test]
fn metrics_are_the_gateways_and_the_processs() {
    let gateway = FakeGateway::new();
    let open = gateway.registry.shared().gauge(&catalog::CONNECTIONS_OPEN, &["cache"]);
    open.set(7);
    let server = start(&gateway);
    let response = fetch(&server, "/metrics");
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(response.body.contains("\nweir_connections_open{listener=\"cache\"} 7\n"));
    for family in [
        &catalog::PROCESS_CPU_SECONDS,
        &catalog::PROCESS_RESIDENT_BYTES,
        &catalog::PROCESS_OPEN_FDS,
        &catalog::PROCESS_MAX_FDS,
        &catalog::PROCESS_START_TIME,
    ] {
        let prefix = format!("{} ", family.name);
        let lines = response.body.lines().filter(|line| line.starts_with(&prefix));
        let values: Vec<f64> = lines.map(|line| line[prefix.len()..].parse().expect("a number")).collect();
        assert_eq!(values.len(), 1, "{}", family.name);
        assert!(values[0] >= 0.0);
    }
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    let snapshot = gateway.registry.read();
    let start = snapshot.number("process_start_time_seconds", &[]).expect("a start");
    assert!((now - 86_400.0..now + 2.0).contains(&start), "{start}");
}

#[test]
fn responses_are_counted_by_route_and_status_and_never_by_request_text() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    fetch(&server, "/livez?from=me");
    fetch(&server, "/livez");
    fetch(&server, "/canary-path");
    ask(&server, "DELETE", "/metrics", &[]);
    let snapshot = gateway.registry.read();
    let count = |route, code| snapshot.counter("weir_admin_requests_total", &[("route", route), ("code", code)]);
    assert_eq!(count("/livez", "200"), Some(2));
    assert_eq!(count("other", "404"), Some(1));
    assert_eq!(count("/metrics", "405"), Some(1));
    assert!(!fetch(&server, "/metrics").body.contains("canary"));
}

#[test]
fn status_responses_read_back_into_their_types() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let listeners: ListenerList =
        serde_json::from_value(fetch(&server, "/api/v1/listeners").json()).expect("listeners");
    assert_eq!(listeners.listeners[0].refused_total["listener_connections"], 2);
    let upstreams: UpstreamList =
        serde_json::from_value(fetch(&server, "/api/v1/upstreams").json()).expect("upstreams");
    assert_eq!(upstreams.upstreams[0].endpoints[0].lanes_pinned, 1);
    let workers: WorkerList = serde_json::from_value(fetch(&server, "/api/v1/workers").json()).expect("workers");
    assert_eq!(workers.workers.len(), 2);
    let version: VersionStatus = serde_json::from_value(fetch(&server, "/api/v1/version").json()).expect("version");
    assert_eq!(version.generation, 4);
    let config = fetch(&server, "/api/v1/config").json();
    assert_eq!(config["listener"][0]["password"], "[redacted]");
}

#[test]
fn pages_of_connections_hold_every_connection_once_and_in_order() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let target = format!("/api/v1/connections?limit=60{after}");
        let page: ConnectionPage = serde_json::from_value(fetch(&server, &target).json()).expect("a page");
        assert!(page.connections.len() <= 60);
        assert!(page.workers_silent.is_empty());
        seen.extend(page.connections.iter().map(|connection| connection.id));
        match page.next_after {
            Some(id) => after = format!("&after={id}"),
            None => break,
        }
    }
    assert_eq!(seen, (1..=250).collect::<Vec<u64>>());
}

#[test]
fn connections_are_filtered_and_a_silent_worker_is_named() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let page = fetch(&server, "/api/v1/connections?listener=admin-cache&worker=1").json();
    let ids: Vec<u64> = page["connections"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|connection| connection["id"].as_u64())
        .collect();
    assert_eq!(ids, [1, 3, 5, 7, 9]);
    assert!(page["next_after"].is_null());
    let default = fetch(&server, "/api/v1/connections").json();
    assert_eq!(default["connections"].as_array().map(Vec::len), Some(100));

    *gateway.silent_workers.lock().unwrap() = vec![0];
    let page = fetch(&server, "/api/v1/connections?limit=5").json();
    assert_eq!(page["workers_silent"], serde_json::json!([0]));
    assert_eq!(page["connections"][4]["id"], 9);
}

#[test]
fn wrong_parameters_are_named_and_not_guessed_at() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    for query in ["limit=0", "limit=1001", "limit=-1", "limit=x", "lmit=5", "limit=1&limit=2", "worker=999999999999"] {
        let response = fetch(&server, &format!("/api/v1/connections?{query}"));
        assert_eq!(response.problem(400), "query", "{query}");
    }
}

#[test]
fn the_index_lists_every_path() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let response = fetch(&server, "/");
    assert_eq!(response.status, 200);
    let document = weir_admin::openapi_document("0");
    for path in document["paths"].as_object().expect("paths").keys() {
        assert!(response.body.contains(&format!(" {path} ")), "{path}");
    }
}

#[test]
fn unknown_paths_and_wrong_methods_are_problems() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    for path in ["/nothing", "/api/v1", "/api/v1/listeners/", "/api/v2/listeners", "//livez"] {
        assert_eq!(fetch(&server, path).problem(404), "path", "{path}");
    }
    for (method, path, allow) in [
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/api/v1/connections", "GET, HEAD"),
        ("GET", "/api/v1/drain", "POST"),
        ("OPTIONS", "/api/v1/reload", "POST"),
    ] {
        let response = ask(&server, method, path, &[]);
        assert_eq!(response.problem(405), "method", "{method} {path}");
        let allowed: Vec<&str> =
            response.headers.iter().filter(|(name, _)| name == "allow").map(|(_, value)| value.as_str()).collect();
        assert_eq!(allowed, [allow], "{method} {path}");
    }
    assert_eq!(gateway.drains.load(Ordering::SeqCst), 0);
}

#[test]
fn head_responses_without_a_body() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let response = ask(&server, "HEAD", "/readyz", &[]);
    assert_eq!(response.status, 200);
    assert_eq!(response.body, "");
}

#[test]
fn a_hundred_concurrent_scrapes_all_get_the_whole_text() {
    let gateway = FakeGateway::new();
    gateway.lengthen_metrics(1000);
    let server = start(&gateway);
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let response = fetch(&server, "/metrics");
                assert_eq!(response.status, 200);
                assert_eq!(response.body.matches("\nweir_connections_total{").count(), 1000);
            });
        }
    });
    assert!(begin.elapsed() < crate::support::PATIENCE);
    assert_eq!(fetch(&server, "/livez").status, 200);
}

#[test]
fn lists_of_keys_are_cut_and_a_silent_worker_is_named() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let keys = |query: &str| fetch(&server, &format!("/api/v1/hot-keys{query}")).json();
    assert_eq!(keys("")["hot_keys"].as_array().map(Vec::len), Some(100));
    let two = keys("?limit=2");
    assert_eq!(
        (&two["hot_keys"][1]["key"], &two["sample"], &two["names"]),
        (&"key:1".into(), &64.into(), &"full".into())
    );
    gateway.silent_workers.lock().unwrap().push(1);
    assert_eq!(keys("?limit=1")["workers_silent"][0], 1);
    for path in ["hot-keys", "big-keys", "slow-log"] {
        for query in ["limit=0", "limit=1001", "limit=x", "after=1"] {
            assert_eq!(fetch(&server, &format!("/api/v1/{path}?{query}")).status, 400, "{path} {query}");
        }
        assert_eq!(fetch(&server, &format!("/api/v1/{path}")).status, 200, "{path}");
    }
    assert_eq!(fetch(&server, "/api/v1/slow-log").json()["slower_than_seconds"], serde_json::Value::Null);
}
