//! Hostile clients: the cases F5, F6, F8 and F9. The other cases are in the modules of their subjects.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, call, get, offline, post};
use weir_tests::http::HttpClient;

const FEATURES: &str = "/api/client/features";

#[test]
fn f5_a_huge_context_is_refused_and_heavy_patterns_cost_no_neighbour() {
    let folder = tempfile::tempdir().expect("a folder");
    let pattern = format!("({}){{50}}", "a?".repeat(60));
    let constraint = |operator: &str, value: &str, values: Vec<String>| json!({ "contextName": "x", "operator": operator, "value": value, "values": values, "inverted": false });
    let strategy = |constraint| json!([{ "name": "default", "constraints": [constraint] }]);
    let list: Vec<String> = (0..200_000).map(|number| format!("user-{number}")).collect();
    let document = json!({ "version": 2, "features": [
        { "name": "list", "enabled": true, "strategies": strategy(constraint("IN", "", list)) },
        { "name": "plain", "enabled": true, "strategies": [] },
        { "name": "regex", "enabled": true, "strategies": strategy(constraint("REGEX", &pattern, Vec::new())) },
        { "name": "semver", "enabled": true, "strategies": strategy(constraint("SEMVER_GT", &"9".repeat(10_000), Vec::new())) },
    ] });
    let gateway = offline(folder.path(), &document.to_string());
    until("flags", Duration::from_secs(30), || (get(&gateway.address, FEATURES, BACKEND).status == 200).then_some(()));
    let many: serde_json::Map<String, serde_json::Value> =
        (0..10_000).map(|number| (format!("property-{number}"), json!("v"))).collect();
    let body = json!({ "context": { "properties": many } }).to_string();
    assert_eq!(post(&gateway.address, "/api/frontend", FRONTEND, &body).status, 413);
    let long = format!("/api/frontend?x={}", "y".repeat(70_000));
    let status = get(&gateway.address, &long, FRONTEND).status;
    assert!(matches!(status, 400 | 413 | 414 | 431), "{status}");
    let begun = Instant::now();
    for (body, status) in [(4 * 1024, 200), (4 * 1024 + 1, 413)] {
        let body = json!({ "properties": { "y": "a".repeat(body) } }).to_string();
        assert_eq!(post(&gateway.address, "/api/frontend", FRONTEND, &body).status, status);
    }
    let bomb = json!({ "properties": { "x": "a".repeat(4_000) } }).to_string();
    let reply = post(&gateway.address, "/api/frontend", FRONTEND, &bomb);
    assert!(reply.status == 200 && reply.names().contains(&"plain".to_owned()), "{} {}", reply.status, reply.body);
    // Without the bounds it takes minutes; a busy machine takes its time for the connections.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let listed = json!({ "properties": { "x": "user-199999" } }).to_string();
    assert!(post(&gateway.address, "/api/frontend", FRONTEND, &listed).names().contains(&"list".to_owned()));
    gateway.finish();
}

#[test]
fn f6_a_flood_of_metrics_is_bounded_and_reads_go_on() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "metrics_bytes_max = \"256KiB\"");
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    origin.faults(r#"{"endpoint":"bulk","status":503}"#);
    let mut client = HttpClient::connect(&gateway.address);
    for application in 0..3_000 {
        let toggles = json!({ "f": { "yes": 1, "no": 0, "variants": { "v": 1 } } });
        let body = json!({ "appName": format!("application-{application}"), "bucket": { "start": "x", "stop": "y", "toggles": toggles } }).to_string();
        let head = format!(
            "POST /api/client/metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(head + &body);
        assert_eq!(client.response().status, 202);
    }
    gateway.wait_metric("weir_flags_metrics_dropped_total", &[("reason", "no_room")], 1_000.0);
    let bytes = gateway.metric("weir_flags_metrics_bytes");
    assert!(bytes > 0.0 && bytes <= f64::from(256 * 1024), "{bytes}");
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&vec![b' '; 64 << 20]).expect("written");
    let packed = packed.finish().expect("packed");
    let head = format!(
        "POST /api/client/metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    );
    client.send(head);
    client.send(&packed);
    assert_eq!(client.response().status, 413, "64 MiB in 64 KiB");
    drop(client);
    origin.heal();
    gateway.finish();
}

#[test]
fn f8_a_flood_of_random_tokens_costs_the_server_a_batch_per_second() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "validation_timeout = \"0s\"");
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    let (batches, begun) = (origin.all_requests("validate"), Instant::now());
    let mut client = HttpClient::connect(&gateway.address);
    let paths = [FEATURES, "/api/client/delta", "/api/client/streaming", "/api/frontend", "/api/proxy/all"];
    let mut statuses = [0_u32; 2];
    for number in 0..6_000_u32 {
        let path = paths[number as usize % paths.len()];
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: *:development.random-{number}\r\n\r\n"));
        match client.response().status {
            503 => statuses[0] += 1,
            403 => statuses[1] += 1,
            other => panic!("{path}: {other}"),
        }
    }
    let tokens: Vec<String> = (0..900).map(|number| format!("*:development.more-{number}")).collect();
    let body = json!({ "tokens": tokens }).to_string();
    assert_eq!(post(&gateway.address, "/edge/validate", "", &body).status, 503);
    let sent = origin.all_requests("validate") - batches;
    assert!(sent <= begun.elapsed().as_secs() + 2, "{sent} batches in {:?}", begun.elapsed());
    assert!(statuses[0] > 0, "{statuses:?}");
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200, "a known token is served meanwhile");
    drop(client);
    gateway.finish();
}

/// Sets a mark when it is dropped.
struct Setting<'a>(&'a AtomicBool);

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn f8_a_source_that_makes_tokens_up_delays_no_other() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "validation_timeout = \"0s\"\ntrusted_hops = 1");
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (address, is_over) = (&gateway.address, &is_over);
        scope.spawn(move || {
            let mut client = HttpClient::connect(address);
            for number in 0_u32.. {
                client.send(format!("GET {FEATURES} HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nAuthorization: *:development.made-up-{number}\r\n\r\n"));
                let response = client.response();
                assert!(matches!(response.status, 403 | 503), "{}", response.status);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        // The flood ends with the test, also with one that fails.
        let _end = Setting(is_over);
        // The flood is there first.
        std::thread::sleep(Duration::from_millis(1_500));
        for number in 0..3 {
            let honest = format!("*:development.honest-{number}");
            origin.tokens(&[("backend", BACKEND), ("backend", &honest)]);
            let from = [("X-Forwarded-For", "192.0.2.2")];
            let begun = Instant::now();
            until_true("a verdict", || call(&gateway.address, "GET", FEATURES, &honest, &from, "").status == 200);
            assert!(begun.elapsed() < Duration::from_secs(4), "{:?} for token {number}", begun.elapsed());
        }
    });
    gateway.finish();
}

#[test]
fn f8_requests_for_rights_of_tokens_have_a_limit_of_their_own() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "validation_timeout = \"20s\"");
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    origin.faults(r#"{"endpoint":"validate","delay_ms":60000}"#);
    let request = |number: u32| {
        let body = json!({ "tokens": [format!("*:development.asked-{number}")] }).to_string();
        let head = "POST /edge/validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: ";
        format!("{head}{}\r\n\r\n{body}", body.len())
    };
    let mut clients: Vec<HttpClient> = (0..16).map(|_| HttpClient::connect(&gateway.address)).collect();
    clients.iter_mut().zip(0..).for_each(|(client, number)| client.send(request(number)));
    // They have arrived, and wait.
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    let mut one_more = HttpClient::connect(&gateway.address);
    one_more.send(request(99));
    assert_eq!(one_more.response().status, 503);
    assert!(begun.elapsed() < Duration::from_secs(4), "it does not wait: {:?}", begun.elapsed());
    let known = post(&gateway.address, "/edge/validate", "", &json!({ "tokens": [BACKEND] }).to_string());
    assert_eq!((known.status, known.json()["tokens"].as_array().map(Vec::len)), (200, Some(1)), "nothing to wait for");
    drop((clients, one_more));
    origin.heal();
    gateway.finish();
}

#[test]
fn f9_names_of_any_form_are_found_and_evaluated() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = "n".repeat(1_024);
    let names = ["æøå", "with space", "a/b", "a\\b", "100%", "q?x=1", "#hash", "日本語", &long];
    let features: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "enabled": true, "strategies": [] })).collect();
    let gateway = offline(folder.path(), &json!({ "version": 2, "features": features }).to_string());
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    for name in names {
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for (path, token) in [("/api/client/features/", BACKEND), ("/api/frontend/features/", FRONTEND)] {
            let reply = get(&gateway.address, &format!("{path}{escaped}"), token);
            assert_eq!((reply.status, reply.json()["name"].as_str()), (200, Some(name)), "{path}{escaped}");
        }
    }
    for path in ["/api/frontend/features/%ff", "/api/frontend/features/%00"] {
        let status = get(&gateway.address, path, FRONTEND).status;
        assert!(matches!(status, 400 | 404), "{path}: {status}");
    }
    let odd = call(&gateway.address, "GET", "/api/frontend/features/%", FRONTEND, &[], "");
    assert_eq!(odd.status, 400);
    gateway.finish();
}
