//! Metrics and registrations of clients on their way to the server.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, call, get, offline_with, post};
use weir_tests::gateway::Gateway;

/// Uploads wait for an interval of a second, and for the pause that a failure adds.
const UPLOAD: Duration = Duration::from_secs(30);

/// A gateway that has its flags.
fn ready(more: &str) -> (FlagOrigin, Gateway) {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, more);
    until_true("flags", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
    (origin, gateway)
}

/// The counts of a client.
fn metrics(application: &str, start: &str, yes: u64, no: u64) -> String {
    let toggles = json!({ "f": { "yes": yes, "no": no, "variants": { "v": yes } } });
    json!({ "appName": application, "environment": "elsewhere", "bucket": { "start": start, "stop": start, "toggles": toggles } })
        .to_string()
}

/// The counts of an application at the origin: yes, no, and those of its variant.
fn counted(origin: &FlagOrigin, application: &str) -> [u64; 3] {
    let counts = origin.ledger()["metrics"]["development"][application]["f"].clone();
    [&counts["yes"], &counts["no"], &counts["variants"]["v"]].map(|count| count.as_u64().unwrap_or(0))
}

/// The newest application of a name at the origin.
fn application(origin: &FlagOrigin, name: &str) -> Value {
    let all = origin.ledger()["applications"].as_array().cloned().unwrap_or_default();
    all.into_iter().rev().find(|one| one["appName"] == name).unwrap_or_default()
}

#[test]
fn every_path_of_metrics_counts_for_the_environment_of_the_token() {
    let (origin, gateway) = ready("");
    let paths = [
        ("/api/client/metrics", BACKEND),
        ("/api/frontend/client/metrics", FRONTEND),
        ("/api/proxy/client/metrics", FRONTEND),
        ("/api/frontend/all/client/metrics", FRONTEND),
        ("/api/proxy/all/client/metrics", FRONTEND),
    ];
    for (number, (path, token)) in paths.into_iter().enumerate() {
        let body = metrics(&format!("app-{number}"), "2026-01-01T00:00:00Z", 2, 3);
        let reply = post(&gateway.address, path, token, &body);
        assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{path}");
        let other = if token == BACKEND { FRONTEND } else { BACKEND };
        assert_eq!(post(&gateway.address, path, other, &body).status, 403, "{path} with a token of the other API");
        for (body, status) in [("{", 400), ("[]", 400), ("{}", 400)] {
            assert_eq!(post(&gateway.address, path, token, body).status, status, "{path} {body}");
        }
        assert_eq!(get(&gateway.address, path, token).status, 405, "{path}");
    }
    until("the counts of all paths", UPLOAD, || {
        (0..paths.len()).all(|number| counted(&origin, &format!("app-{number}")) == [2, 3, 2]).then_some(())
    });
    assert!(origin.ledger()["metrics"]["elsewhere"].is_null(), "a client does not choose its environment");
    gateway.finish();
}

#[test]
fn counts_survive_absurd_times_codings_and_buckets_that_are_absent() {
    let (origin, gateway) = ready("");
    for start in ["1867-11-07T12:00:00Z", "1934-11-07T12:00:00Z", "9999-12-31T23:59:59Z", "yesterday", "0", "-1"] {
        let body = metrics("clock", start, 1, 0);
        assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202, "{start}");
    }
    let bare = json!({ "appName": "bare" }).to_string();
    assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &bare).status, 202, "no bucket");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(metrics("clock", "2026-01-01T00:00:00Z", 10, 0).as_bytes()).expect("written");
    let packed = packed.finish().expect("packed");
    let mut client = weir_tests::http::HttpClient::connect(&gateway.address);
    client.send(format!(
        "POST /api/client/metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        packed.len()
    ));
    client.send(&packed);
    assert_eq!(client.response().status, 202);
    drop(client);
    let fields = [("Content-Type", "application/json"), ("Content-Encoding", "br")];
    assert_eq!(call(&gateway.address, "POST", "/api/client/metrics", BACKEND, &fields, "x").status, 415);
    until("all counts", UPLOAD, || (counted(&origin, "clock") == [16, 0, 16]).then_some(()));
    gateway.finish();
}

#[test]
fn applications_arrive_with_the_rights_of_their_token_and_the_way_they_came() {
    let (origin, gateway) = ready("app_name = \"edge-7\"");
    let register = |path: &str, token: &str, name: &str| {
        let body = json!({ "appName": name, "instanceId": "i-1", "environment": "elsewhere", "interval": 10, "started": "2026-01-01T00:00:00Z",
            "strategies": ["default"], "sdkVersion": "some-sdk:1.2.3", "later": { "x": 1 } });
        let reply = post(&gateway.address, path, token, &body.to_string());
        assert_eq!((reply.status, reply.field("x-edge-version").is_some()), (202, true), "{path}");
    };
    let paths = [
        ("/api/client/register", BACKEND),
        ("/api/frontend/client/register", FRONTEND),
        ("/api/proxy/client/register", FRONTEND),
        ("/api/frontend/all/client/register", FRONTEND),
        ("/api/proxy/all/client/register", FRONTEND),
    ];
    for (number, (path, token)) in paths.into_iter().enumerate() {
        register(path, token, &format!("registered-{number}"));
    }
    for number in 0..paths.len() {
        let name = format!("registered-{number}");
        until(format!("the application {name}"), UPLOAD, || (!application(&origin, &name).is_null()).then_some(()));
        let one = application(&origin, &name);
        assert_eq!((&one["environment"], &one["projects"]), (&json!("development"), &json!(["*"])), "{one}");
        assert_eq!((&one["sdkVersion"], &one["later"]), (&json!("some-sdk:1.2.3"), &json!({ "x": 1 })), "{one}");
        assert_eq!(one["connectVia"][0]["appName"], json!("edge-7"), "{one}");
    }
    // An SDK of a browser does not register: its metrics name it.
    let fields = [("Content-Type", "application/json"), ("unleash-sdk", "browser-sdk:3.8.2")];
    let body = metrics("page", "2026-01-01T00:00:00Z", 1, 0);
    assert_eq!(call(&gateway.address, "POST", "/api/frontend/client/metrics", FRONTEND, &fields, &body).status, 202);
    until("the application of the page", UPLOAD, || (!application(&origin, "page").is_null()).then_some(()));
    let page = application(&origin, "page");
    assert_eq!((&page["sdkType"], &page["sdkVersion"]), (&json!("frontend"), &json!("browser-sdk:3.8.2")), "{page}");
    gateway.finish();
}

#[test]
fn an_edge_behind_the_gateway_hands_its_sums_on_and_its_report_is_shown() {
    let (origin, gateway) = ready("backstage = [\"instancedata\", \"metricsbatch\"]");
    let sum = |environment: &str, yes: u64| {
        json!({ "featureName": "f", "appName": "downstream", "environment": environment,
        "timestamp": "2026-01-01T00:00:00Z", "yes": yes, "no": 1, "variants": { "v": yes } })
    };
    let bulk = json!({ "applications": [{ "appName": "downstream", "instanceId": "i", "interval": 1, "started": "2026-01-01T00:00:00Z",
        "strategies": [], "connectVia": [{ "appName": "edge", "instanceId": "first" }] }],
        "metrics": [sum("development", 4), sum("production", 9)], "seenTokens": ["*:development.seen"] });
    let reply = post(&gateway.address, "/api/client/metrics/bulk", BACKEND, &bulk.to_string());
    assert_eq!(reply.status, 202, "{}", reply.body);
    until("the sums", UPLOAD, || (counted(&origin, "downstream") == [4, 1, 4]).then_some(()));
    assert!(
        origin.ledger()["metrics"]["production"].is_null(),
        "sums of another environment than the token's are left out"
    );
    gateway.wait_metric("weir_flags_metrics_dropped_total", &[], 1.0);
    let via = application(&origin, "downstream")["connectVia"].as_array().cloned().unwrap_or_default();
    let names: Vec<&Value> = via.iter().map(|one| &one["appName"]).collect();
    assert_eq!(names, ["edge", "weir"], "the whole way");
    let report = json!({ "identifier": "edge-7", "appName": "edge", "edgeVersion": "19.15.1", "started": "2026-01-01T00:00:00Z" });
    assert_eq!(post(&gateway.address, "/api/client/metrics/edge", BACKEND, &report.to_string()).status, 202);
    assert_eq!(post(&gateway.address, "/api/client/metrics/edge", BACKEND, "{}").status, 400);
    let shown = get(&gateway.address, "/internal-backstage/instancedata", "").json();
    assert_eq!(shown["connected_instances"][0]["identifier"], json!("edge-7"), "{shown}");
    gateway.finish();
}

#[test]
fn the_status_of_the_server_decides_whether_counts_are_sent_again() {
    for (status, comes_again) in [(503, true), (500, true), (429, true), (400, false), (413, false)] {
        let (origin, gateway) = ready("");
        origin.faults(&format!("{{\"endpoint\":\"bulk\",\"times\":1,\"status\":{status}}}"));
        let send = |application: &str| {
            let body = metrics(application, "2026-01-01T00:00:00Z", 3, 1);
            assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202);
        };
        send("first");
        until(format!("the body that gets {status}"), UPLOAD, || (origin.requests("bulk", status) == 1).then_some(()));
        send("second");
        until("the counts behind it", UPLOAD, || (counted(&origin, "second") == [3, 1, 3]).then_some(()));
        let first = if comes_again { [3, 1, 3] } else { [0; 3] };
        assert_eq!(counted(&origin, "first"), first, "{status}");
        gateway.finish();
        assert_eq!((counted(&origin, "first"), counted(&origin, "second")), (first, [3, 1, 3]), "{status}: once");
    }
}

#[test]
fn a_body_whose_response_is_lost_is_sent_again() {
    let (origin, gateway) = ready("");
    origin.faults(r#"{"endpoint":"bulk","times":3,"reset":true}"#);
    let body = metrics("lost", "2026-01-01T00:00:00Z", 5, 0);
    assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202);
    until("the counts behind three losses", UPLOAD, || (counted(&origin, "lost") == [5, 0, 5]).then_some(()));
    gateway.finish();
    assert_eq!(counted(&origin, "lost"), [5, 0, 5]);
}

#[test]
fn many_applications_leave_in_bodies_that_the_server_takes() {
    let (origin, gateway) = ready("");
    let count = 1_500_u64;
    let mut client = weir_tests::http::HttpClient::connect(&gateway.address);
    for number in 0..count {
        let body =
            metrics(&format!("application-with-a-name-of-some-length-{number:06}"), "2026-01-01T00:00:00Z", 1, 0);
        client.send(format!(
            "POST /api/client/metrics HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert_eq!(client.response().status, 202, "{number}");
    }
    drop(client);
    until("all applications", UPLOAD, || {
        let all = origin.ledger()["metrics"]["development"].as_object().map_or(0, serde_json::Map::len);
        (all as u64 == count).then_some(())
    });
    let ledger = origin.ledger();
    let largest = ledger["bulk"]["bytes_max"].as_u64().expect("bodies have come");
    assert!(largest <= 100 * 1024, "the server takes 100 KiB: {largest}");
    let all = ledger["metrics"]["development"].as_object().expect("counts");
    assert!(all.values().all(|flags| flags["f"]["yes"] == 1), "each is counted once");
    gateway.finish();
}

#[test]
fn an_offline_gateway_takes_counts_and_keeps_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway =
        offline_with(folder.path(), r#"{"a":{"enabled":true}}"#, "backstage = [\"metricsbatch\", \"health\"]");
    until_true("flags", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
    let body = metrics("app", "2026-01-01T00:00:00Z", 1, 1);
    assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202);
    assert_eq!(post(&gateway.address, "/api/frontend/client/metrics", FRONTEND, &body).status, 202);
    let waiting = get(&gateway.address, "/internal-backstage/metricsbatch", "").json();
    assert_eq!(waiting, json!({ "applications": [], "metrics": [] }));
    gateway.wait_metric("weir_flags_metrics_dropped_total", &[], 2.0);
    assert_eq!(gateway.metric("weir_flags_metrics_bytes"), 0.0);
    gateway.finish();
}
