//! A server that is down, slow, wrong, and back again.

use std::time::Duration;

use serde_json::json;
use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, before_with, environment, get, post};
use weir_tests::gateway::Gateway;
use weir_tests::port;
use weir_tests::stream::Address;

const FEATURES: &str = "/api/client/features";

fn names(gateway: &Gateway) -> Vec<String> {
    let reply = get(&gateway.address, FEATURES, BACKEND);
    if reply.status == 200 { reply.names() } else { Vec::new() }
}

fn document(names: &[&str]) -> String {
    let features: Vec<_> =
        names.iter().map(|name| json!({ "name": name, "enabled": true, "strategies": [] })).collect();
    json!({ "version": 2, "features": features }).to_string()
}

/// A gateway that starts although its server is away.
fn unready(server: &Address, more: &str) -> Gateway {
    before_with(server, more, "", &environment())
}

#[test]
fn f2_a_server_that_is_down_slow_or_wrong_changes_nothing() {
    let mut origin = FlagOrigin::start();
    let gateway = before(&origin.address, "");
    until_true("flags", || names(&gateway).len() == 5);
    let (first, polls) = (names(&gateway), || gateway.metric("weir_flags_polls_total"));
    for fault in [
        r#"{"endpoint":"features","status":500}"#,
        r#"{"endpoint":"features","status":429}"#,
        r#"{"endpoint":"features","status":404}"#,
        r#"{"endpoint":"features","status":200,"body":"<html>garbage</html>"}"#,
        r#"{"endpoint":"features","status":200,"body":"{}"}"#,
        r#"{"endpoint":"features","status":200,"body":"{\"features\":[{\"name\":\"a\"},{}]}"}"#,
        r#"{"endpoint":"features","reset":true}"#,
        r#"{"endpoint":"features","delay_ms":3000,"status":503}"#,
    ] {
        origin.faults(fault);
        // The first poll may have begun before the fault, the second has not.
        let before = polls();
        until(format!("a poll that meets {fault}"), Duration::from_secs(40), || {
            (polls() >= before + 2.0).then_some(())
        });
        assert_eq!(names(&gateway), first, "{fault}");
        origin.heal();
        // Settings that differ begin the polls again, without the pause that failures have made.
        gateway.rewrite(|text| match text.contains("app_name = \"a\"") {
            true => text.replace("app_name = \"a\"\n", ""),
            false => text.replace("metrics_interval", "app_name = \"a\"\nmetrics_interval"),
        });
        assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    }
    origin.kill();
    assert_eq!(names(&gateway), first, "the server is down");
    origin.restart();
    origin.replace(&document(&["new"]));
    until("the flags of the server that is back", Duration::from_secs(60), || {
        (names(&gateway) == ["new"]).then_some(())
    });
    gateway.finish();
}

#[test]
fn a_start_without_the_server_is_early_and_ends_when_it_comes() {
    let address = Address::port(port::free());
    let gateway = unready(&address, "validation_timeout = \"100ms\"\nbackstage = [\"ready\"]");
    let reply = get(&gateway.address, FEATURES, BACKEND);
    assert!(reply.is_later(), "{}", reply.status);
    let ready = get(&gateway.address, "/internal-backstage/ready", "");
    assert_eq!((ready.status, &ready.json()["status"]), (503, &json!("NOTREADY")));
    let bind = address.text();
    let mut child = std::process::Command::new(weir_tests::gateway::program())
        .args(["lab", "origin", "flags", "--data", "small", "--bind", &bind])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the origin starts");
    until("flags", Duration::from_secs(40), || (names(&gateway).len() == 5).then_some(()));
    assert_eq!(get(&gateway.address, "/internal-backstage/ready", "").status, 200);
    child.kill().expect("a child may be killed");
    child.wait().expect("a child ends");
    gateway.finish();
}

#[test]
fn f7_a_backup_serves_a_start_without_the_server_and_a_damaged_one_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = format!("backup_dir = \"{}\"", folder.path().display());
    let mut origin = FlagOrigin::start();
    let gateway = before(&origin.address, &more);
    until_true("flags", || names(&gateway).len() == 5);
    let first = names(&gateway);
    gateway.finish();
    let file = folder.path().join("unleash_features.json");
    let whole = std::fs::read(&file).expect("the backup that the end of the process writes");
    origin.kill();
    let restored = unready(&origin.address, &more);
    until_true("the flags of the backup", || names(&restored) == first);
    restored.wait_log("flags are those of the backup");
    restored.finish();
    for (damage, words) in [
        (whole[..whole.len() - 10].to_vec(), "truncated or damaged"),
        (String::from_utf8_lossy(&whole).replacen("\"weirBackup\":1", "\"weirBackup\":9", 1).into_bytes(), "version 9"),
        (b"garbage".to_vec(), "no map of environments"),
    ] {
        std::fs::write(&file, damage).expect("written");
        let damaged = unready(&origin.address, &format!("{more}\nvalidation_timeout = \"0s\""));
        damaged.wait_log(words);
        assert_eq!(get(&damaged.address, FEATURES, BACKEND).status, 503, "nothing of a damaged backup is served");
        damaged.finish();
    }
    origin.restart();
    let again = unready(&origin.address, &more);
    until("the flags of the server", Duration::from_secs(40), || (names(&again) == first).then_some(()));
    again.finish();
}

#[test]
fn the_age_of_flags_is_shown_behind_a_start_from_a_backup_and_ends_with_the_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = "tokens = [\"env:FLAGS_TOKEN\", \"env:FLAGS_OTHER_TOKEN\"]";
    let more = format!("{tokens}\nbackup_dir = \"{}\"", folder.path().display());
    let mut origin = FlagOrigin::start();
    origin.tokens(&[("backend", BACKEND), ("backend", "*:production.lab-backend")]);
    let gateway = before(&origin.address, &more);
    let ages = |gateway: &Gateway| gateway.metrics().by("weir_flags_poll_age_seconds", "environment");
    until_true("both environments", || ages(&gateway).len() == 2);
    until_true("flags", || names(&gateway).len() == 5);
    origin.tokens(&[("backend", BACKEND)]);
    until("the end of a series", Duration::from_secs(40), || {
        (!ages(&gateway).contains_key("production")).then_some(())
    });
    assert!(!gateway.metrics().by("weir_flags_revision", "environment").contains_key("production"));
    assert!(ages(&gateway).contains_key("development"));
    gateway.finish();
    origin.kill();
    // The seal names the time at which the server has shown the flags.
    let file = folder.path().join("unleash_features.json");
    let text = std::fs::read_to_string(&file).expect("the backup");
    let (seal, rest) = text.split_once('\n').expect("a seal");
    let mut seal: serde_json::Value = serde_json::from_str(seal).expect("JSON");
    let shown = seal["shown"].as_u64().expect("a time");
    seal["shown"] = json!(shown - 3_600);
    std::fs::write(&file, format!("{seal}\n{rest}")).expect("written");
    let restored = unready(&origin.address, &more);
    until_true("the flags of the backup", || names(&restored).len() == 5);
    let development = [("environment", "development")];
    restored.wait_metric("weir_flags_poll_age_seconds", &development, 3_600.0);
    assert!(restored.metrics().sum_where("weir_flags_poll_age_seconds", &development) < 3_700.0);
    restored.finish();
}

#[test]
fn a_backup_vouches_for_no_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = format!("backup_dir = \"{}\"", folder.path().display());
    let (origin, other) = (FlagOrigin::start(), "*:development.other-backend");
    // The server does not know the frontend token: the operator alone vouches for it.
    origin.tokens(&[("backend", BACKEND), ("backend", other)]);
    let gateway = before(&origin.address, &format!("pretrusted_tokens = [\"env:FLAGS_FRONTEND_TOKEN\"]\n{more}"));
    until_true("flags", || names(&gateway).len() == 5);
    assert_eq!(get(&gateway.address, "/api/frontend", FRONTEND).status, 200);
    until_true("the other token", || get(&gateway.address, FEATURES, other).status == 200);
    gateway.finish();
    let saved = std::fs::read_to_string(folder.path().join("unleash_tokens.json")).expect("the backup");
    assert!(saved.contains(other) && !saved.contains(FRONTEND), "{saved}");
    origin.tokens(&[("backend", BACKEND)]);
    let again = before(&origin.address, &more);
    until_true("flags of the backup", || names(&again).len() == 5);
    until_true("the verdict on a token of the backup", || get(&again.address, FEATURES, other).status == 403);
    assert_eq!(get(&again.address, "/api/frontend", FRONTEND).status, 403);
    again.finish();
}

#[test]
fn f4_deltas_and_streams_follow_the_server_through_gaps_and_wrong_orders() {
    for mode in ["delta", "streaming"] {
        let origin = FlagOrigin::start();
        let gateway = before(&origin.address, &format!("upstream_mode = \"{mode}\""));
        until_true(format!("flags by {mode}"), || names(&gateway).len() == 5);
        let event = |id: u64, name: &str| json!({ "eventId": id, "type": "feature-updated", "feature": { "name": name, "enabled": true, "strategies": [] } });
        origin.control("POST", "/lab/events", &json!({ "events": [event(1, "added")] }).to_string());
        until_true(format!("an event by {mode}"), || names(&gateway).contains(&"added".to_owned()));
        // Other flags in place of all: a gap for each client.
        origin.replace(&document(&["one", "two"]));
        until(format!("the whole state by {mode}"), Duration::from_secs(40), || {
            (names(&gateway) == ["one", "two"]).then_some(())
        });
        if mode == "streaming" {
            // An event that is older than the last one is refused, and the state is fetched again.
            let old = json!({ "events": [event(0, "old")] }).to_string();
            origin.control("POST", "/lab/broadcast", &format!("event: unleash-updated\nid: 0\ndata: {old}\n\n"));
            origin.control("POST", "/lab/events", &json!({ "events": [event(1, "three")] }).to_string());
            until("the state behind an event out of order", Duration::from_secs(60), || {
                (names(&gateway) == ["one", "three", "two"]).then_some(())
            });
        }
        // The gateway's own stream is a request under way as long as there is a server.
        drop(origin);
        gateway.finish();
    }
}

#[test]
fn a_server_without_deltas_and_streams_is_polled_instead() {
    let origin = FlagOrigin::start_with(&["--data", "small", "--no-deltas"]);
    for mode in ["delta", "streaming"] {
        let gateway = before(&origin.address, &format!("upstream_mode = \"{mode}\""));
        until(format!("flags in place of {mode}"), Duration::from_secs(30), || {
            (names(&gateway).len() == 5).then_some(())
        });
        gateway.wait_log("it is polled instead");
        gateway.finish();
    }
}

#[test]
fn metrics_are_counted_once_whatever_the_server_responds_and_the_last_ones_leave_at_the_end() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "");
    until_true("flags", || names(&gateway).len() == 5);
    let send = |yes: u64| {
        let bucket = json!({ "start": "2026-01-01T00:00:00Z", "stop": "2026-01-01T00:01:00Z", "toggles": { "f": { "yes": yes, "no": 1 } } });
        let reply = post(
            &gateway.address,
            "/api/client/metrics",
            BACKEND,
            &json!({ "appName": "app", "bucket": bucket }).to_string(),
        );
        assert_eq!(reply.status, 202, "{}", reply.body);
    };
    let counted = || {
        let ledger = origin.ledger();
        let counts = &ledger["metrics"]["development"]["app"]["f"];
        (counts["yes"].as_u64().unwrap_or(0), counts["no"].as_u64().unwrap_or(0))
    };
    origin.faults(r#"{"endpoint":"bulk","times":1,"status":503},{"endpoint":"bulk","times":1,"status":429}"#);
    send(2);
    send(3);
    until("the counts behind two refusals", Duration::from_secs(30), || (counted() == (5, 2)).then_some(()));
    // The interval is long past the end: these leave with the last flush.
    gateway.rewrite(|text| text.replace("metrics_interval = \"1s\"", "metrics_interval = \"1h\""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    send(10);
    gateway.finish();
    assert_eq!(counted(), (15, 3));
}

#[test]
fn a_reload_loses_no_upload_and_a_server_that_hangs_no_backup() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, &format!("backup_dir = \"{}\"", folder.path().display()));
    until_true("flags", || names(&gateway).len() == 5);
    // The server holds the first body back, and a reload comes before its reply.
    origin.faults(r#"{"endpoint":"bulk","times":1,"delay_ms":60000,"status":503}"#);
    let bucket = json!({ "start": "2026-01-01T00:00:00Z", "stop": "2026-01-01T00:01:00Z", "toggles": { "f": { "yes": 2, "no": 1 } } });
    let body = json!({ "appName": "app", "bucket": bucket }).to_string();
    assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202);
    until_true("an upload under way", || origin.all_requests("bulk") > 0);
    gateway.rewrite(|text| text.replace("metrics_interval = \"1s\"", "metrics_interval = \"2s\""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    let counted = || origin.ledger()["metrics"]["development"]["app"]["f"]["yes"].as_u64();
    until("the counts behind the reload", Duration::from_secs(20), || (counted() == Some(2)).then_some(()));
    origin.faults(r#"{"endpoint":"bulk","delay_ms":60000}"#);
    assert_eq!(post(&gateway.address, "/api/client/metrics", BACKEND, &body).status, 202);
    gateway.finish();
    assert!(folder.path().join("unleash_features.json").exists(), "the backup does not wait for metrics");
}

#[test]
fn a_gateway_may_stand_behind_another() {
    let origin = FlagOrigin::start();
    let first = before(&origin.address, "");
    let second = before(&first.address, "upstream_mode = \"streaming\"");
    until("flags through both", Duration::from_secs(30), || (names(&second).len() == 5).then_some(()));
    let features = |gateway: &Gateway| get(&gateway.address, FEATURES, BACKEND).json()["features"].clone();
    assert_eq!(features(&first), features(&second));
    origin.replace(&document(&["changed"]));
    until("a change through both", Duration::from_secs(30), || (names(&second) == ["changed"]).then_some(()));
    // Without a stream of its own, the second one leaves the first at rest.
    second.rewrite(|text| text.replace("\"streaming\"", "\"polling\""));
    assert_eq!(second.admin.post("/api/v1/reload", "").status, 200);
    second.finish();
    first.finish();
}
