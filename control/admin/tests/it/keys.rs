//! Keys and requests of AI clients: bodies, methods, access.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use weir_admin::status::{AiKeyOrder, AiKeyRotation, StatusFilter};

use crate::support::{FakeGateway, KEY_TEXT, PATIENCE, ask, ask_with, fetch, loopback, start, start_with};

const JSON: &str = "Content-Type: application/json";
const KEYS: &str = "/api/v1/ai/keys";

#[test]
fn a_key_is_issued_and_its_text_is_in_the_response_alone() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let body = r#"{"name":"ci","policy":{"models":["m"],"day_tokens":9}}"#;
    let response = ask_with(&server, "POST", KEYS, &[JSON], body);
    assert_eq!((response.status, response.header("cache-control")), (201, Some("no-store")));
    assert_eq!((&response.json()["text"], &response.json()["key"]["name"]), (&KEY_TEXT.into(), &"ci".into()));
    let orders = gateway.key_orders.lock().unwrap().clone();
    let [AiKeyOrder::Create(request)] = &orders[..] else { panic!("{orders:?}") };
    let policy = request.policy.clone().expect("a policy");
    assert_eq!((&*request.name, policy.day_tokens, policy.models), ("ci", Some(9), Some(vec!["m".to_owned()])));
    for path in [KEYS, "/api/v1/ai/keys/ci"] {
        let response = fetch(&server, path);
        assert_eq!((response.status, response.body.contains(KEY_TEXT)), (200, false), "{path}");
    }
}

#[test]
fn a_key_is_changed_rotated_and_removed_by_its_name() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let one = "/api/v1/ai/keys/a.b-c";
    let patch = r#"{"enabled":false,"policy":{"day_tokens":null}}"#;
    assert_eq!(ask_with(&server, "PATCH", one, &[JSON], patch).status, 200);
    let merge = "Content-Type: application/merge-patch+json";
    assert_eq!(ask_with(&server, "PATCH", one, &[merge], "{}").status, 200);
    let rotate = format!("{one}/rotate");
    assert_eq!(ask(&server, "POST", &rotate, &[]).json()["text"], KEY_TEXT);
    let until = r#"{"old_until":"2099-01-01T00:00:00Z"}"#;
    assert_eq!(ask_with(&server, "POST", &rotate, &[JSON], until).status, 200);
    assert_eq!(ask(&server, "DELETE", one, &[]).status, 200);
    let orders = gateway.key_orders.lock().unwrap().clone();
    let AiKeyOrder::Change { name, patch } = &orders[0] else { panic!("{orders:?}") };
    assert_eq!((&**name, patch.len()), ("a.b-c", 2), "null is a part of the patch");
    let name = || name.clone();
    let old_until = Some("2099-01-01T00:00:00Z".to_owned());
    assert_eq!(orders[2], AiKeyOrder::Rotate { name: name(), rotation: AiKeyRotation::default() });
    assert_eq!(orders[3], AiKeyOrder::Rotate { name: name(), rotation: AiKeyRotation { old_until } });
    assert_eq!(orders[4], AiKeyOrder::Delete { name: name() });
}

#[test]
fn bodies_that_are_no_key_and_names_that_are_none_change_nothing() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(65 * 1024));
    for (headers, body, status) in [
        (&[JSON][..], "", 400),
        (&[JSON], "{", 400),
        (&[JSON], "[]", 400),
        (&[JSON], r#"{"policy":{}}"#, 400),
        (&[JSON], r#"{"name":"a","sha256":"0"}"#, 400),
        (&[JSON], r#"{"name":"a","policy":{"rpm":1}}"#, 400),
        (&[JSON], r#"{"name":"a","enabled":1}"#, 400),
        (&[JSON], &long, 413),
        (&["Content-Type: text/plain"], r#"{"name":"a"}"#, 415),
        (&[], r#"{"name":"a"}"#, 415),
    ] {
        assert_eq!(ask_with(&server, "POST", KEYS, headers, body).problem(status), "key", "{body:.60}");
    }
    assert_eq!(ask(&server, "DELETE", "/api/v1/ai/keys/%ff", &[]).problem(400), "key");
    assert_eq!(ask_with(&server, "DELETE", "/api/v1/ai/keys/a", &[JSON], r#"{"force":1}"#).problem(400), "body");
    assert!(gateway.key_orders.lock().unwrap().is_empty());
    assert_eq!(ask(&server, "DELETE", "/api/v1/ai/keys/unknown", &[]).problem(404), "key");
    assert_eq!(fetch(&server, "/api/v1/ai/keys/unknown").problem(404), "key");
    assert_eq!(fetch(&server, "/api/v1/ai/keys?limit=0").problem(400), "query");
    let wrong = ask(&server, "PUT", "/api/v1/ai/keys/a", &[]);
    assert_eq!(wrong.header("allow"), Some("GET, HEAD, PATCH, DELETE"));
    assert_eq!(wrong.problem(405), "method");
}

#[test]
fn a_page_of_a_foreign_site_and_a_caller_without_the_token_change_nothing() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let body = r#"{"name":"a"}"#;
    for field in ["Origin: https://evil.example", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(ask_with(&server, "POST", KEYS, &[JSON, field], body).problem(403), "site");
        assert_eq!(ask_with(&server, "PATCH", "/api/v1/ai/keys/a", &[JSON, field], "{}").problem(403), "site");
        assert_eq!(ask(&server, "DELETE", "/api/v1/ai/keys/a", &[field]).problem(403), "site");
    }
    let mut settings = loopback();
    settings.token = Some("token-of-the-admin-server".into());
    let guarded = start_with(settings, &gateway);
    for (verb, path) in [
        ("GET", KEYS),
        ("POST", KEYS),
        ("PATCH", "/api/v1/ai/keys/a"),
        ("DELETE", "/api/v1/ai/keys/a"),
        ("POST", "/api/v1/ai/keys/a/rotate"),
        ("GET", "/api/v1/ai/requests"),
    ] {
        assert_eq!(ask_with(&guarded, verb, path, &[JSON], body).problem(401), "token", "{verb} {path}");
    }
    assert!(gateway.key_orders.lock().unwrap().is_empty());
}

#[test]
fn orders_wait_for_each_other_and_probes_respond_meanwhile() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    gateway.gate.close();
    thread::scope(|scope| {
        let both = ["a", "b"].map(|name| {
            let (server, body) = (&server, format!(r#"{{"name":"{name}"}}"#));
            scope.spawn(move || ask_with(server, "POST", KEYS, &[JSON], &body).status)
        });
        let begin = Instant::now();
        while gateway.gate.waiting.load(Ordering::SeqCst) == 0 {
            assert!(begin.elapsed() < PATIENCE);
            thread::yield_now();
        }
        assert_eq!(fetch(&server, "/livez").status, 200);
        gateway.gate.open();
        assert_eq!(both.map(|one| one.join().expect("a status")), [201, 201]);
    });
    assert_eq!(gateway.key_orders.lock().unwrap().len(), 2);
}

#[test]
fn requests_are_searched_by_key_model_status_and_time() {
    let gateway = FakeGateway::new();
    let server = start(&gateway);
    let path = "/api/v1/ai/requests?key=a&user=u&tag=eu&model=gpt-4o&status=4xx&since=1970-01-01T00:01:00Z&limit=7&bodies=true";
    assert_eq!(fetch(&server, path).json()["schema_url"], "https://schemas.example/1");
    let queries = gateway.request_queries.lock().unwrap().clone();
    let [query] = &queries[..] else { panic!("{queries:?}") };
    assert_eq!(query.members, [("key", "a".to_owned()), ("user", "u".to_owned())]);
    assert_eq!((query.limit, query.tag.as_deref(), query.model.as_deref()), (7, Some("eu"), Some("gpt-4o")));
    assert_eq!((query.status, query.since), (Some(StatusFilter::Class(4)), Some(Duration::from_secs(60))));
    assert!(query.has_bodies);
    for wrong in ["bodies=1", "status=abc", "since=now", "limit=1001", "prompt=a", "key=a&key=b"] {
        assert_eq!(fetch(&server, &format!("/api/v1/ai/requests?{wrong}")).problem(400), "query", "{wrong}");
    }
}
