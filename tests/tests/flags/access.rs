//! The rights of tokens.

use std::time::{Duration, Instant};

use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::flags::{
    BACKEND, Events, FRONTEND, FlagOrigin, Reply, before, before_with, call, environment, get, offline_with, post,
};
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;

const FEATURES: &str = "/api/client/features";

/// A frontend token of an environment without flags here.
const FRONTEND_OF_ANOTHER: &str = "*:production.lab-frontend";

/// The status of the client API for a token.
fn status(gateway: &Gateway, token: &str) -> u16 {
    get(&gateway.address, FEATURES, token).status
}

fn is_bare(reply: &Reply, status: u16) -> bool {
    reply.status == status && reply.body.is_empty()
}

/// A gateway in front of the origin that has its flags.
fn ready(more: &str) -> (FlagOrigin, Gateway) {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, more);
    until_true("flags", || status(&gateway, BACKEND) == 200);
    (origin, gateway)
}

#[test]
fn a_request_without_a_token_or_with_a_malformed_one_is_refused_without_a_word() {
    let (origin, gateway) = ready("");
    let requests = origin.all_requests("validate");
    let long = format!("*:development.{}", "x".repeat(600));
    for token in ["", "nonsense", "no-colon.secret", "project:no-dot", ":.", "*:development.", "a b:c.d", &long] {
        for path in [FEATURES, "/api/client/delta", "/api/client/streaming", "/api/frontend", "/api/proxy/all"] {
            assert!(is_bare(&get(&gateway.address, path, token), 403), "{path} {token}");
        }
        assert!(is_bare(&post(&gateway.address, "/api/client/metrics", token, "{}"), 403), "{token}");
    }
    let twice = [("Authorization", BACKEND)];
    assert_eq!(call(&gateway.address, "GET", FEATURES, BACKEND, &twice, "").status, 403, "two tokens");
    assert_eq!(origin.all_requests("validate"), requests, "the server is not troubled with them");
    gateway.finish();
}

#[test]
fn a_body_without_a_good_token_is_not_awaited() {
    let (_origin, gateway) = ready("");
    for (path, token, status) in [
        ("/api/client/metrics", "", 403),
        ("/api/client/metrics", "nonsense", 403),
        ("/api/client/metrics", FRONTEND_OF_ANOTHER, 403),
        ("/api/client/delta", BACKEND, 405),
        ("/api/client/nothing", BACKEND, 404),
    ] {
        if token == FRONTEND_OF_ANOTHER {
            assert_eq!(get(&gateway.address, "/api/frontend", token).status, 403, "the verdict is there");
        }
        let mut client = HttpClient::connect(&gateway.address);
        let authorization = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{authorization}Content-Length: 1000\r\n\r\n"));
        assert_eq!(client.response().status, status, "{path} {token}: no byte of the body has come");
    }
    gateway.finish();
}

#[test]
fn f3_a_token_serves_its_own_api_and_environment() {
    let (origin, gateway) = ready("");
    assert_eq!(get(&gateway.address, "/api/frontend", FRONTEND).status, 200);
    for (path, token) in
        [(FEATURES, FRONTEND), ("/api/client/delta", FRONTEND), ("/api/frontend", BACKEND), ("/api/proxy", BACKEND)]
    {
        assert!(is_bare(&get(&gateway.address, path, token), 403), "{path} {token}");
    }
    // They are valid, and no token of the start covers their environment.
    for (path, token) in [(FEATURES, "*:production.lab-backend"), ("/api/frontend", "*:production.lab-frontend")] {
        assert!(is_bare(&get(&gateway.address, path, token), 403), "{path} {token}");
    }
    drop(origin);
    gateway.finish();
}

#[test]
fn a_403_follows_a_verdict_and_a_503_everything_else() {
    let (origin, gateway) = ready("");
    let unknown = "*:development.unknown-1";
    assert!(is_bare(&get(&gateway.address, FEATURES, unknown), 403), "the server does not know it");
    let requests = origin.all_requests("validate");
    assert_eq!(
        (status(&gateway, unknown), origin.all_requests("validate")),
        (403, requests),
        "the verdict is remembered"
    );
    for (number, fault) in [
        r#"{"endpoint":"validate","status":500}"#,
        r#"{"endpoint":"validate","status":401}"#,
        r#"{"endpoint":"validate","status":200,"body":"<html>"}"#,
        r#"{"endpoint":"validate","reset":true}"#,
    ]
    .into_iter()
    .enumerate()
    {
        origin.faults(fault);
        let reply = get(&gateway.address, FEATURES, &format!("*:development.open-{number}"));
        assert!(reply.is_later(), "{fault}: {}", reply.status);
        assert_eq!(status(&gateway, BACKEND), 200, "{fault}: a known token is served meanwhile");
    }
    origin.heal();
    until_true("a verdict after all", || status(&gateway, "*:development.open-0") == 403);
    origin.tokens(&[("backend", BACKEND), ("backend", "*:development.late")]);
    until_true("a token that is good", || status(&gateway, "*:development.late") == 200);
    gateway.finish();
}

#[test]
fn a_deferred_validation_responds_at_once() {
    let (_origin, gateway) = ready("validation_timeout = \"0s\"");
    let begun = Instant::now();
    let reply = get(&gateway.address, "/api/frontend", FRONTEND);
    assert!(reply.is_later(), "{}", reply.status);
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    until_true("the verdict", || get(&gateway.address, "/api/frontend", FRONTEND).status == 200);
    gateway.finish();
}

#[test]
fn one_token_is_polled_for_all_that_it_covers_and_dynamic_adds_others() {
    let origin = FlagOrigin::start();
    let narrow = "lab-1:development.narrow";
    origin.tokens(&[("backend", BACKEND), ("backend", narrow), ("backend", "*:production.lab-backend")]);
    let mut variables = environment();
    variables.push(("FLAGS_NARROW".to_owned(), format!("{narrow},{BACKEND}")));
    let gateway = before_with(&origin.address, "tokens = [\"env:FLAGS_NARROW\"]", "", &variables);
    until_true("flags", || status(&gateway, BACKEND) == 200);
    assert_eq!(status(&gateway, narrow), 200);
    let polled = origin.ledger()["last"]["features"]["authorization"].clone();
    assert_eq!(polled, BACKEND, "the wide token sees all that the narrow one does");
    assert_eq!(status(&gateway, "*:production.lab-backend"), 403);
    gateway.finish();
    let dynamic = before(&origin.address, "dynamic = true");
    until_true("flags of another environment", || status(&dynamic, "*:production.lab-backend") == 200);
    dynamic.finish();
}

#[test]
fn an_offline_gateway_knows_its_tokens_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = offline_with(folder.path(), r#"{"a":{"enabled":true}}"#, "");
    until_true("flags", || status(&gateway, BACKEND) == 200);
    let begun = Instant::now();
    for token in ["*:development.unknown", "*:production.lab-backend", "[]:development.x"] {
        assert!(is_bare(&get(&gateway.address, FEATURES, token), 403), "{token}");
    }
    let reply = post(
        &gateway.address,
        "/edge/validate",
        "",
        &format!("{{\"tokens\":[\"*:development.unknown\",\"{BACKEND}\"]}}"),
    );
    assert_eq!(reply.json()["tokens"].as_array().map(Vec::len), Some(1), "{}", reply.body);
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "nothing waits for a server that is not there: {:?}",
        begun.elapsed()
    );
    gateway.finish();
}

#[test]
fn a_reload_that_removes_a_token_ends_it_and_its_streams_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = offline_with(folder.path(), r#"{"a":{"enabled":true}}"#, "");
    let line = "client_tokens = [\"env:FLAGS_CLIENT_TOKEN\"]";
    let both = "client_tokens = [\"env:FLAGS_CLIENT_TOKEN\", \"env:FLAGS_EXTRA_TOKEN\"]";
    gateway.rewrite(|text| text.replace(line, both));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    let extra = "*:development.extra-secret-0123456789";
    until_true("the added token", || status(&gateway, extra) == 200);
    let mut events = Events::open(&gateway.address, "/api/client/streaming", extra, None);
    assert_eq!(events.next().name, "unleash-connected");
    gateway.rewrite(|text| text.replace(both, line));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    events.wait_end(WAIT);
    drop(events);
    until("the end of the token", Duration::from_secs(2), || (status(&gateway, extra) == 403).then_some(()));
    assert_eq!(status(&gateway, BACKEND), 200);
    gateway.finish();
}

#[test]
fn a_reload_keeps_verdicts_and_forgets_trust() {
    let (origin, gateway) = ready("pretrusted_tokens = [\"env:FLAGS_FRONTEND_TOKEN\"]");
    // The server does not know it: the operator alone vouches for it.
    origin.tokens(&[("backend", BACKEND)]);
    assert_eq!(get(&gateway.address, "/api/frontend", FRONTEND).status, 200);
    gateway.rewrite(|text| text.replace("pretrusted_tokens = [\"env:FLAGS_FRONTEND_TOKEN\"]", ""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    until_true("the end of the token", || get(&gateway.address, "/api/frontend", FRONTEND).status == 403);
    assert_eq!(status(&gateway, BACKEND), 200, "flags and verdicts stay");
    gateway.finish();
}

#[test]
fn a_reload_to_another_server_forgets_the_verdicts_and_flags_of_the_one_before() {
    let (first, gateway) = ready("");
    let other = "*:development.other-backend";
    first.tokens(&[("backend", BACKEND), ("backend", other)]);
    until_true("the token", || status(&gateway, other) == 200);
    let mut events = Events::open(&gateway.address, "/api/client/streaming", other, None);
    assert_eq!(events.next().name, "unleash-connected");
    let second = FlagOrigin::start();
    second.tokens(&[("backend", BACKEND)]);
    second.replace(r#"{"version":2,"features":[{"name":"second","enabled":true,"strategies":[]}]}"#);
    gateway.rewrite(|text| text.replace(&first.address.text(), &second.address.text()));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    events.wait_end(WAIT);
    drop(events);
    until_true("flags of the second server", || status(&gateway, BACKEND) == 200);
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).names(), ["second"]);
    until_true("the end of the token", || status(&gateway, other) == 403);
    gateway.finish();
}

#[test]
fn f10_a_token_that_the_server_forgets_ends_within_the_interval() {
    let (origin, gateway) = ready("revalidation_interval = \"1s\"");
    let other = "*:development.other-backend";
    origin.tokens(&[("backend", BACKEND), ("backend", other)]);
    until_true("the token", || status(&gateway, other) == 200);
    let mut events = Events::open(&gateway.address, "/api/client/streaming", other, None);
    assert_eq!(events.next().name, "unleash-connected");
    origin.tokens(&[("backend", BACKEND)]);
    events.wait_end(WAIT);
    drop(events);
    until_true("the end of the token", || status(&gateway, other) == 403);
    assert_eq!(status(&gateway, BACKEND), 200);
    gateway.finish();
}

#[test]
fn a_short_interval_of_revalidations_is_kept() {
    let (origin, gateway) = ready("revalidation_interval = \"1s\"");
    let (begun, before) = (Instant::now(), origin.requests("validate", 200));
    until_true("four validations", || origin.requests("validate", 200) >= before + 4);
    let took = begun.elapsed();
    assert!((3..10).contains(&took.as_secs()), "{took:?} for four intervals of a second");
    gateway.finish();
}

#[test]
fn tokens_are_masked_wherever_they_are_shown() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "backstage = [\"tokens\", \"metrics\"]\ntoken_header = \"X-Flags\"");
    let fields = [("x-flags", "*:development.lab-backend")];
    until_true("flags", || call(&gateway.address, "GET", FEATURES, "", &fields, "").status == 200);
    assert_eq!(status(&gateway, BACKEND), 403, "the token is in another field");
    let bad = [("x-flags", "*:development.a-long-secret-that-no-client-has")];
    assert_eq!(call(&gateway.address, "GET", FEATURES, "", &bad, "").status, 403);
    let shown = get(&gateway.address, "/internal-backstage/tokens", "").body;
    let log = gateway.log();
    let metrics = gateway.admin.get("/metrics").body;
    for text in [&shown, &log, &metrics] {
        assert!(!text.contains("lab-backend") && !text.contains("a-long-secret-that"), "{text}");
    }
    assert!(shown.contains("*:development."), "{shown}");
    gateway.finish();
}
