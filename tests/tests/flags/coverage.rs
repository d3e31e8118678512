//! The tokens of the file: the clients that they cover, the polls that they lead to, and their end with a reload.

use serde_json::json;
use weir_tests::deadline::{WAIT, until_true};
use weir_tests::flags::{BACKEND, Events, FRONTEND, FlagOrigin, Reply, before_with, call, environment, get};
use weir_tests::gateway::Gateway;

const FEATURES: &str = "/api/client/features";

/// Tokens that see one project each.
const ONE: &str = "one:development.narrow-1";
const TWO: &str = "two:development.narrow-2";

/// A token of another environment.
const PRODUCTION: &str = "*:production.lab-backend";

/// An origin with a flag in each of three projects, and these valid tokens.
fn origin(tokens: &[(&str, &str)]) -> FlagOrigin {
    let origin = FlagOrigin::start();
    let flag = |project: &str| json!({ "name": project, "project": project, "enabled": true, "strategies": [] });
    origin.replace(&json!({ "version": 2, "features": [flag("one"), flag("two"), flag("three")] }).to_string());
    origin.tokens(tokens);
    origin
}

/// A gateway whose file has these tokens, in one secret.
fn with_tokens(origin: &FlagOrigin, tokens: &str, more: &str) -> Gateway {
    let mut variables = environment();
    variables.push(("FLAGS_SEVERAL".to_owned(), tokens.to_owned()));
    before_with(&origin.address, &format!("tokens = [\"env:FLAGS_SEVERAL\"]\n{more}"), "", &variables)
}

fn features(gateway: &Gateway, token: &str) -> Reply {
    get(&gateway.address, FEATURES, token)
}

fn wait_served(gateway: &Gateway, token: &str) {
    until_true("flags for a token of the start", || features(gateway, token).status == 200);
}

/// Waits until this many further polls have reached the origin.
fn wait_polls(origin: &FlagOrigin, count: u64) {
    let before = origin.all_requests("features");
    until_true(format!("{count} polls"), || origin.all_requests("features") >= before + count);
}

#[test]
fn each_token_that_no_other_covers_has_one_poller() {
    let origin = origin(&[("backend", BACKEND), ("backend", ONE), ("backend", TWO), ("backend", PRODUCTION)]);
    for (tokens, pollers) in [
        (format!("{ONE},{BACKEND},{TWO}"), 1),
        (format!("{ONE},{TWO}"), 2),
        (format!("{ONE},{ONE}"), 1),
        (format!("{ONE},{BACKEND},{PRODUCTION}"), 2),
    ] {
        origin.control("DELETE", "/lab/ledger", "");
        let gateway = with_tokens(&origin, &tokens, "");
        tokens.split(',').for_each(|token| wait_served(&gateway, token));
        wait_polls(&origin, 2 * pollers);
        // Each poller makes the gateway known to the server once.
        assert_eq!(origin.requests("register", 202), pollers, "{tokens}");
        let batches = origin.ledger()["validate"]["batches"].clone();
        assert_eq!(batches, json!(1), "{tokens}: all tokens of the start are validated together");
        gateway.finish();
    }
}

#[test]
fn polls_of_several_projects_are_one_state_and_each_token_sees_its_own() {
    let origin = origin(&[("backend", ONE), ("backend", TWO), ("frontend", "one:development.page")]);
    let gateway = with_tokens(&origin, &format!("{ONE},{TWO}"), "");
    until_true("both projects", || [ONE, TWO].iter().all(|token| features(&gateway, token).status == 200));
    until_true("the flags of one", || features(&gateway, ONE).names() == ["one"]);
    until_true("the flags of two", || features(&gateway, TWO).names() == ["two"]);
    assert_eq!(get(&gateway.address, "/api/frontend", "one:development.page").names(), ["one"]);
    assert_eq!(get(&gateway.address, "/api/frontend/features/two", "one:development.page").status, 404);
    assert_ne!(features(&gateway, ONE).field("etag"), features(&gateway, TWO).field("etag"), "each has its document");
    gateway.finish();
}

#[test]
fn a_client_that_comes_from_another_gateway_gets_the_whole_state() {
    let origin = origin(&[("backend", ONE), ("backend", TWO)]);
    let gateway = |interval: &str| {
        let gateway = with_tokens(&origin, &format!("{ONE},{TWO}"), &format!("poll_interval = \"{interval}\""));
        until_true("flags of both", || {
            [("one", ONE), ("two", TWO)].iter().all(|(name, token)| {
                let reply = features(&gateway, token);
                reply.status == 200 && reply.names().iter().any(|own| own.starts_with(name))
            })
        });
        gateway
    };
    let delta = |gateway: &Gateway, token: &str, revision: &str| {
        call(&gateway.address, "GET", "/api/client/delta", token, &[("If-None-Match", revision)], "")
    };
    let revision = |gateway: &Gateway| get(&gateway.address, "/api/client/delta", ONE).field("etag").expect("a tag");
    // The first one polls once, and the second one sees the next state, with the next revision of the server.
    let first = gateway("1h");
    let flag =
        |name: &str, project: &str| json!({ "name": name, "project": project, "enabled": true, "strategies": [] });
    origin.replace(&json!({ "version": 2, "features": [flag("one-b", "one"), flag("two-b", "two")] }).to_string());
    let second = gateway("1h");
    for (to, from, suffix) in [(&second, &first, "-b"), (&first, &second, "")] {
        for (token, name) in [(ONE, "one"), (TWO, "two")] {
            assert_eq!(delta(to, token, &revision(to)).status, 304, "its own");
            let reply = delta(to, token, &revision(from));
            assert_eq!(reply.status, 200, "{token}");
            let event = &reply.json()["events"][0];
            assert_eq!(
                (&event["type"], &event["features"][0]["name"]),
                (&json!("hydration"), &json!(format!("{name}{suffix}"))),
                "{token}"
            );
        }
    }
    first.finish();
    second.finish();
}

#[test]
fn a_token_that_sees_more_than_those_of_the_start_is_refused() {
    let (several, wide) = ("[]:development.several-in", "[]:development.several-out");
    let origin = origin(&[]);
    let token = |kind: &str, text: &str, projects: &[&str]| json!({ "token": text, "type": kind, "environment": "development", "projects": projects });
    let tokens = [
        token("backend", ONE, &["one"]),
        token("backend", BACKEND, &["*"]),
        token("backend", TWO, &["two"]),
        token("frontend", FRONTEND, &["*"]),
        token("frontend", "one:development.page", &["one"]),
        token("backend", several, &["one"]),
        token("backend", wide, &["one", "three"]),
    ];
    origin.control("PUT", "/lab/tokens", &json!({ "tokens": tokens }).to_string());
    let gateway = with_tokens(&origin, ONE, "");
    wait_served(&gateway, ONE);
    for (path, token, status) in [
        (FEATURES, BACKEND, 403),
        (FEATURES, TWO, 403),
        (FEATURES, wide, 403),
        (FEATURES, several, 200),
        ("/api/client/delta", BACKEND, 403),
        ("/api/client/streaming", BACKEND, 403),
        ("/api/frontend", FRONTEND, 403),
        ("/api/frontend", "one:development.page", 200),
    ] {
        let reply = get(&gateway.address, path, token);
        assert_eq!(reply.status, status, "{path} {token}");
        assert!(status == 200 || reply.body.is_empty(), "{path} {token}: {}", reply.body);
    }
    assert_eq!(features(&gateway, several).names(), ["one"], "the server names the projects of this token");
    gateway.finish();
}

#[test]
fn a_reload_that_removes_a_token_of_the_start_ends_it_and_its_streams_at_once() {
    let origin = origin(&[("backend", BACKEND), ("backend", PRODUCTION)]);
    let gateway = with_tokens(&origin, &format!("{BACKEND},{PRODUCTION}"), "");
    [BACKEND, PRODUCTION].iter().for_each(|token| wait_served(&gateway, token));
    let open = |token: &str| {
        let mut events = Events::open(&gateway.address, "/api/client/streaming", token, None);
        assert_eq!(events.next().name, "unleash-connected", "{token}");
        events
    };
    let (mut kept, mut removed) = (open(BACKEND), open(PRODUCTION));
    gateway.rewrite(|text| text.replace("env:FLAGS_SEVERAL", "env:FLAGS_TOKEN"));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    removed.wait_end(WAIT);
    until_true("a 403 for the token", || features(&gateway, PRODUCTION).status == 403);
    assert_eq!(features(&gateway, BACKEND).status, 200, "flags and verdicts of the other token stay");
    origin.control("POST", "/lab/edit?environment=development", "");
    assert_eq!(kept.next().name, "unleash-updated", "the stream of the other token goes on");
    drop((kept, removed));
    gateway.finish();
}

#[test]
fn flags_and_segments_of_a_backup_go_once_no_token_sees_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let more = format!("backstage = [\"features\"]\nbackup_dir = \"{}\"", folder.path().display());
    let origin = origin(&[("backend", BACKEND), ("backend", PRODUCTION), ("backend", ONE)]);
    let flag = json!({ "name": "one", "project": "one", "enabled": true, "strategies": [] });
    let mut document = json!({ "version": 2, "features": [flag], "segments": [{ "id": 1, "constraints": [] }] });
    origin.replace(&document.to_string());
    let gateway = with_tokens(&origin, &format!("{BACKEND},{PRODUCTION}"), &more);
    [BACKEND, PRODUCTION].iter().for_each(|token| wait_served(&gateway, token));
    gateway.finish();
    document["segments"] = json!([]);
    origin.replace(&document.to_string());
    let narrow = with_tokens(&origin, ONE, &more);
    wait_served(&narrow, ONE);
    let shown = || get(&narrow.address, "/internal-backstage/features", "").json();
    until_true("the end of an environment without a token", || shown()["production"].is_null());
    until_true("the end of the segments", || features(&narrow, ONE).json()["segments"].is_null());
    assert_eq!(features(&narrow, ONE).names(), ["one"]);
    narrow.finish();
}

#[test]
fn a_token_that_the_operator_trusts_is_never_sent_to_the_server() {
    let origin = origin(&[("backend", BACKEND)]);
    let mut variables = environment();
    variables.push(("FLAGS_TRUSTED".to_owned(), format!("key-of-a-page@development,{FRONTEND}")));
    let gateway = before_with(&origin.address, "pretrusted_tokens = [\"env:FLAGS_TRUSTED\"]", "", &variables);
    wait_served(&gateway, BACKEND);
    for token in ["key-of-a-page", FRONTEND] {
        assert_eq!(get(&gateway.address, "/api/frontend", token).names().len(), 3, "{token}");
        assert_eq!(features(&gateway, token).status, 403, "{token} is one of frontends");
    }
    assert_eq!(get(&gateway.address, "/api/frontend", "key-of-a-page@development").status, 403, "the form of the file");
    assert_eq!(origin.ledger()["validate"]["last"], json!([BACKEND]), "the token of the start alone is validated");
    assert!(!gateway.log().contains("key-of-a-page"), "no secret is in the log");
    gateway.finish();
}
