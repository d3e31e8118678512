//! The requests of the gateway to its server, and the responses that it takes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_tests::deadline::{until, until_true};
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, before_with, environment, get};
use weir_tests::gateway::Gateway;

const FEATURES: &str = "/api/client/features";

/// Failures make the interval of a second longer, by a second each.
const POLLS: Duration = Duration::from_secs(40);

fn names(gateway: &Gateway) -> Vec<String> {
    let reply = get(&gateway.address, FEATURES, BACKEND);
    if reply.status == 200 { reply.names() } else { Vec::new() }
}

fn ready(origin: &FlagOrigin, more: &str) -> Gateway {
    let gateway = before(&origin.address, more);
    until_true("flags", || names(&gateway).len() == 5);
    gateway
}

/// A document of one revision with these flags.
fn document(revision: u64, names: &[&str]) -> String {
    let features: Vec<Value> =
        names.iter().map(|name| json!({ "name": name, "enabled": true, "strategies": [] })).collect();
    json!({ "version": 2, "features": features, "meta": { "revisionId": revision, "etag": "\"x\"", "queryHash": "x" } })
        .to_string()
}

/// A fault that puts a body in place of the next response of an endpoint.
fn once(endpoint: &str, body: &str) -> String {
    json!({ "endpoint": endpoint, "times": 1, "status": 200, "body": body }).to_string()
}

/// The polls so far that ended in this way.
fn polls(gateway: &Gateway, result: &str) -> f64 {
    gateway.metrics().sum_where("weir_flags_polls_total", &[("result", result)])
}

#[test]
fn every_request_names_the_gateway_and_has_the_fields_of_the_file() {
    let origin = FlagOrigin::start();
    let mut variables = environment();
    variables.push(("FLAGS_EXTRA".to_owned(), "value of an operator".to_owned()));
    let more =
        "app_name = \"edge-7\"\n[[listener.flags.upstream_header]]\nname = \"X-Extra\"\nvalue = \"env:FLAGS_EXTRA\"";
    let gateway = before_with(&origin.address, more, "", &variables);
    until_true("flags", || names(&gateway).len() == 5);
    until_true("a second poll", || origin.requests("features", 304) > 0);
    let ledger = origin.ledger();
    for endpoint in ["features", "validate", "register"] {
        let fields = &ledger["last"][endpoint];
        assert_eq!(
            (&fields["unleash-appname"], &fields["x-extra"]),
            (&json!("edge-7"), &json!("value of an operator")),
            "{endpoint}"
        );
        assert_eq!(fields["unleash-client-spec"], json!("6.1.0"), "{endpoint}");
        assert_eq!(fields["unleash-interval"], json!("1000"), "{endpoint}");
        for name in ["unleash-instanceid", "unleash-connection-id"] {
            assert!(fields[name].as_str().is_some_and(|text| text.len() >= 26), "{endpoint}: {fields}");
            assert_eq!(fields[name], ledger["last"]["features"][name], "{endpoint}: one process has one name");
        }
    }
    assert_eq!(ledger["last"]["features"]["authorization"], json!(BACKEND));
    assert!(ledger["last"]["validate"]["authorization"].is_null(), "a validation has no token of its own");
    assert!(!gateway.log().contains("value of an operator"), "the value of a field is a secret");
    gateway.finish();
}

#[test]
fn a_registration_that_hangs_delays_no_poll() {
    let origin = FlagOrigin::start();
    origin.faults(r#"{"endpoint":"register","delay_ms":4500}"#);
    let begun = Instant::now();
    let gateway = ready(&origin, "");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    origin.heal();
    gateway.finish();
}

#[test]
fn a_document_is_fetched_once_and_its_tag_outlives_304s_that_have_none() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "");
    let first = get(&gateway.address, FEATURES, BACKEND).field("etag");
    until_true("three polls without news", || origin.requests("features", 304) >= 3);
    assert_eq!(origin.requests("features", 200), 1);
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).field("etag"), first);
    origin.control("POST", "/lab/edit", "");
    until_true("the change", || get(&gateway.address, FEATURES, BACKEND).field("etag") != first);
    assert_eq!(origin.requests("features", 200), 2, "one more document for one change");
    gateway.finish();
}

#[test]
fn flags_that_vanish_without_a_new_revision_stay() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "backstage = [\"features\"]");
    let first = names(&gateway);
    let shown = get(&gateway.address, "/internal-backstage/features", "").json();
    let revision = shown["development"]["meta"]["revisionId"].as_u64().expect("a revision");
    origin.faults(&once("features", &document(revision, &[])));
    until("a poll without flags", POLLS, || (polls(&gateway, "garbage") >= 1.0).then_some(()));
    gateway.wait_log("the upstream's flags are gone without a new revision");
    assert_eq!(names(&gateway), first);
    assert_eq!(get(&gateway.address, "/api/frontend/all", FRONTEND).names(), first);
    // An operator who archives the last flag leaves an empty document of a new revision.
    origin.replace(&document(revision, &[]));
    until("an empty document of a new revision", POLLS, || {
        get(&gateway.address, FEATURES, BACKEND).json()["features"].as_array().is_some_and(Vec::is_empty).then_some(())
    });
    gateway.finish();
}

#[test]
fn a_token_ends_when_unleash_itself_does_not_know_it_in_two_polls() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "");
    // The words of unleash-server 7.5, whose validations have the token for longer.
    let words = r#"{"message":"This endpoint requires an API token. Please add an authorization header to your request with a valid token"}"#;
    let fault =
        |times: u32| json!({ "endpoint": "features", "times": times, "status": 401, "body": words }).to_string();
    let good = origin.requests("features", 304);
    origin.faults(&fault(1));
    until("polls behind one refusal", POLLS, || (origin.requests("features", 304) >= good + 2).then_some(()));
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200, "a server that has just started may say so once");
    origin.faults(&fault(2));
    until("the end of the token", POLLS, || (get(&gateway.address, FEATURES, BACKEND).status == 403).then_some(()));
    let validations = origin.all_requests("validate");
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 403);
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 403, "a reload changes nothing");
    assert!(origin.all_requests("validate") <= validations + 1, "it is not validated again at once");
    gateway.finish();
}

#[test]
fn refused_polls_are_no_end_of_a_token_and_a_verdict_is() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "");
    // A firewall in front of the server refuses polls, then validations, too.
    for (status, more) in [(401, ""), (403, r#",{"endpoint":"validate","status":403}"#)] {
        let validations = origin.all_requests("validate");
        origin.faults(&format!("{{\"endpoint\":\"features\",\"status\":{status}}}{more}"));
        let begun = Instant::now();
        while origin.requests("features", status) < 2 {
            assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200, "after {status}");
            assert!(begun.elapsed() < POLLS, "no polls that meet {status}");
            std::thread::sleep(Duration::from_millis(20)); // the pace of a client
        }
        until_true("a validation ahead of its time", || origin.all_requests("validate") > validations);
        assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200, "after {status}");
    }
    origin.heal();
    origin.tokens(&[]);
    until("the verdict", POLLS, || (get(&gateway.address, FEATURES, BACKEND).status == 403).then_some(()));
    gateway.finish();
}

#[test]
fn polls_slow_down_while_the_server_fails_and_become_regular_again() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "");
    let first = names(&gateway);
    origin.faults(r#"{"endpoint":"features","status":503}"#);
    until("four failures", POLLS, || (origin.requests("features", 503) >= 4).then_some(()));
    let (begun, before) = (Instant::now(), origin.all_requests("features"));
    until("a further failure", POLLS, || (origin.all_requests("features") > before).then_some(()));
    // Four failures make at least four intervals of a tenth less, counted from a poll that may be a moment ago.
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?} behind four failures", begun.elapsed());
    assert_eq!(names(&gateway), first);
    let environment = [("environment", "development")];
    gateway.wait_metric("weir_flags_poll_age_seconds", &environment, 3.0);
    origin.heal();
    origin.replace(&document(50, &["healed"]));
    until("the flags behind the failures", POLLS, || (names(&gateway) == ["healed"]).then_some(()));
    let age = || gateway.metrics().sum_where("weir_flags_poll_age_seconds", &environment);
    until("a young age of the flags", POLLS, || (age() < 3.0).then_some(()));
    gateway.finish();
}

#[test]
fn f4_deltas_that_repeat_themselves_change_nothing_and_those_out_of_order_lead_to_the_whole_state() {
    let origin = FlagOrigin::start();
    let gateway = ready(&origin, "upstream_mode = \"delta\"");
    let event = |id: u64, name: &str| {
        json!({ "eventId": id, "type": "feature-updated",
        "feature": { "name": name, "project": "default", "enabled": true, "strategies": [] } })
    };
    let events = |list: &[Value]| json!({ "events": list }).to_string();
    origin.control("POST", "/lab/events", &events(&[event(1, "added")]));
    until("an event", POLLS, || names(&gateway).contains(&"added".to_owned()).then_some(()));
    let (tag, revision) = (
        || get(&gateway.address, FEATURES, BACKEND).field("etag"),
        || get(&gateway.address, "/api/client/delta", BACKEND).field("etag"),
    );
    let before = (tag(), revision());
    // The server's revision is 2 behind its first event.
    origin.faults(&once("delta", &events(&[event(2, "added"), event(2, "added")])));
    let seen = origin.requests("delta", 304);
    until("polls behind the repeated events", POLLS, || (origin.requests("delta", 304) >= seen + 2).then_some(()));
    assert_eq!((tag(), revision()), before, "nothing has changed");
    origin.faults(&once("delta", &events(&[event(9, "later"), event(5, "earlier")])));
    until("the refusal of wrong orders", POLLS, || (polls(&gateway, "garbage") >= 1.0).then_some(()));
    assert_eq!(tag(), before.0, "no part of them is taken");
    let whole = origin.requests("delta", 200);
    until("the whole state", POLLS, || (origin.requests("delta", 200) > whole).then_some(()));
    until("the old flags with the whole state", POLLS, || (tag() == before.0).then_some(()));
    gateway.finish();
}

#[test]
fn a_large_state_of_the_stream_is_taken_whole_and_events_come_behind_it() {
    let origin = FlagOrigin::start_with(&["--data", "large"]);
    let gateway = before(&origin.address, "upstream_mode = \"streaming\"");
    until_true("flags", || names(&gateway).len() == 350);
    let by_poll = before(&origin.address, "");
    until_true("the same by polls", || names(&by_poll).len() == 350);
    let features = |gateway: &Gateway| get(&gateway.address, FEATURES, BACKEND).json()["features"].clone();
    assert_eq!(features(&gateway), features(&by_poll));
    let event = |id: u64| {
        json!({ "eventId": id, "type": "feature-updated",
            "feature": { "name": format!("added-{id}"), "project": "default", "enabled": true, "strategies": [] } })
    };
    for round in 0..3 {
        // A whole state, with an event close behind it.
        origin.control("POST", "/lab/edit?environment=development", "");
        let events = json!({ "events": [event(round)] }).to_string();
        origin.control("POST", "/lab/events", &events);
    }
    until_true("the last event", || names(&gateway).iter().filter(|name| name.starts_with("added-")).count() == 3);
    until_true("the same by polls", || features(&gateway) == features(&by_poll));
    by_poll.finish();
    // The gateway's own stream is a request under way as long as there is a server.
    drop(origin);
    gateway.finish();
}

#[test]
fn flags_of_a_project_go_with_the_token_that_saw_them() {
    let origin = FlagOrigin::start();
    let (one, two) = ("one:development.first-secret", "two:development.second-secret");
    let features: Vec<Value> = ["one", "two"]
        .map(|project| json!({ "name": project, "project": project, "enabled": true, "strategies": [] }))
        .to_vec();
    origin.replace(&json!({ "version": 2, "features": features }).to_string());
    origin.tokens(&[("backend", one), ("backend", two)]);
    let mut variables = environment();
    variables.extend([("FIRST".to_owned(), one.to_owned()), ("SECOND".to_owned(), two.to_owned())]);
    let more = "tokens = [\"env:FIRST\", \"env:SECOND\"]\nbackstage = [\"features\"]";
    let gateway = before_with(&origin.address, more, "", &variables);
    let held = || {
        let all = get(&gateway.address, "/internal-backstage/features", "").json();
        let list = all["development"]["features"].as_array().cloned().unwrap_or_default();
        list.iter().map(|flag| flag["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    until_true("flags of both", || held() == ["one", "two"]);
    origin.tokens(&[("backend", one)]);
    until("the end of the second token", POLLS, || (get(&gateway.address, FEATURES, two).status == 403).then_some(()));
    until("the end of its flags", POLLS, || (held() == ["one"]).then_some(()));
    assert_eq!(get(&gateway.address, FEATURES, one).names(), ["one"]);
    gateway.finish();
}

#[test]
fn a_listener_that_redirects_asks_the_server_for_nothing() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "redirect_https = true");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 308);
        std::thread::sleep(Duration::from_millis(50)); // the pace of a client
    }
    assert_eq!((origin.all_requests("validate"), origin.all_requests("features")), (0, 0));
    gateway.rewrite(|text| text.replace("redirect_https = true", ""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    until_true("flags", || names(&gateway).len() == 5);
    gateway.finish();
}

#[test]
fn a_server_below_a_path_is_reached_by_it() {
    let origin = FlagOrigin::start();
    let first = before(&origin.address, "base_path = \"/unleash\"");
    until_true("flags of the first", || get(&first.address, "/unleash/api/client/features", BACKEND).status == 200);
    let second = before(&first.address, "[upstream.flags]\nbase_path = \"/unleash\"");
    until("flags through both", POLLS, || (names(&second).len() == 5).then_some(()));
    let third = before(&first.address, "validation_timeout = \"100ms\"");
    let reply = get(&third.address, FEATURES, BACKEND);
    assert_eq!(reply.status, 503, "a 404 for validations is no verdict");
    [third, second, first].into_iter().for_each(Gateway::finish);
}
