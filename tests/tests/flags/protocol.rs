//! The protocol: documents and their tags, evaluation, streams, operators' endpoints, pages of browsers.

use std::time::Duration;

use serde_json::{Value, json};
use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, Events, FRONTEND, FlagOrigin, before, call, get, offline_with, post};
use weir_tests::gateway::Gateway;

const FEATURES: &str = "/api/client/features";

/// Two projects, a variant, a name with a slash, and a flag that is off.
fn document() -> String {
    json!({
        "version": 2,
        "features": [
            { "name": "a.on", "enabled": true, "project": "one", "strategies": [], "impressionData": true, "later": { "x": 1 },
              "variants": [{ "name": "blue", "weight": 1000, "payload": { "type": "json", "value": "{\"k\":1}" } }] },
            { "name": "a.user", "enabled": true, "project": "two",
              "strategies": [{ "name": "userWithId", "parameters": { "userIds": "7" } }] },
            { "name": "b/off", "enabled": false, "project": "one" },
        ],
        "segments": [{ "id": 1, "constraints": [] }],
    })
    .to_string()
}

fn stand(more: &str) -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = offline_with(folder.path(), &document(), more);
    let base = if more.contains("base_path") { "/edge" } else { "" };
    until_true("flags", || get(&gateway.address, &format!("{base}{FEATURES}"), BACKEND).status == 200);
    (folder, gateway)
}

#[test]
fn documents_have_tags_by_which_clients_save_the_body() {
    let (_folder, gateway) = stand("");
    let address = &gateway.address;
    let paths = [
        (FEATURES, BACKEND),
        ("/api/client/features?namePrefix=a.", BACKEND),
        ("/api/client/features/a.on", BACKEND),
        ("/api/frontend?userId=7", FRONTEND),
        ("/api/frontend/all", FRONTEND),
        ("/api/frontend/features/a.on", FRONTEND),
    ];
    for (path, token) in paths {
        let whole = get(address, path, token);
        let tag = whole.field("etag").unwrap_or_else(|| panic!("{path} has a tag"));
        assert_eq!(whole.field("content-type").as_deref(), Some("application/json"), "{path}");
        for value in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
            let same = call(address, "GET", path, token, &[("If-None-Match", &value)], "");
            assert_eq!(
                (same.status, same.body.len(), same.field("etag")),
                (304, 0, Some(tag.clone())),
                "{path} {value}"
            );
            assert_eq!(same.field("vary"), whole.field("vary"), "{path}: a cache keeps it with the document");
            assert!(same.field("vary").is_some_and(|vary| vary.contains("Accept-Encoding")), "{path}");
        }
        let other = call(address, "GET", path, token, &[("If-None-Match", "\"x\"")], "");
        assert_eq!((other.status, &other.body), (200, &whole.body), "{path}");
        let head = call(address, "HEAD", path, token, &[], "");
        assert_eq!((head.status, head.body.len(), head.field("etag")), (200, 0, Some(tag)), "{path}");
    }
    gateway.finish();
}

#[test]
fn the_client_api_selects_by_prefix_name_and_project_and_passes_text_as_it_came() {
    let (_folder, gateway) = stand("");
    let names = |path: &str| get(&gateway.address, path, BACKEND).names();
    assert_eq!(names(FEATURES), ["a.on", "a.user", "b/off"]);
    assert_eq!(names("/api/client/features?namePrefix=a."), ["a.on", "a.user"]);
    assert_eq!(names("/api/client/features?project=two"), ["a.user"]);
    assert!(names("/api/client/features?project=nothing").is_empty());
    assert_eq!(names("//api//client/features/?namePrefix=b&namePrefix=a"), ["b/off"], "the first of equal keys counts");
    let all = get(&gateway.address, FEATURES, BACKEND).json();
    assert_eq!(all["features"][0]["later"], json!({ "x": 1 }), "fields of later servers pass");
    assert_eq!(all["query"]["inlineSegmentConstraints"], json!(false));
    assert_eq!(all["segments"].as_array().map(Vec::len), Some(1));
    let one = get(&gateway.address, "/api/client/features/b%2Foff", BACKEND);
    assert_eq!((one.status, &one.json()["name"]), (200, &json!("b/off")));
    assert_eq!(get(&gateway.address, "/api/client/features/a.o", BACKEND).status, 404, "a name is exact");
    assert_eq!(post(&gateway.address, FEATURES, BACKEND, "").names().len(), 3);
    gateway.finish();
}

#[test]
fn both_forms_of_a_context_lead_to_the_same_flags() {
    let (_folder, gateway) = stand("");
    let address = &gateway.address;
    let on = |body: &str| post(address, "/api/frontend", FRONTEND, body).names();
    for body in [r#"{"userId":"7"}"#, r#"{"context":{"userId":"7"}}"#, r#"{"properties":{"userId":"7"}}"#] {
        assert_eq!(on(body), ["a.on", "a.user"], "{body}");
    }
    assert_eq!(on(r#"{"userId":"8"}"#), ["a.on"]);
    assert_eq!(get(address, "/api/proxy?userId=7&userId=8", FRONTEND).names(), ["a.on", "a.user"]);
    assert_eq!(get(address, "/api/proxy/all", FRONTEND).names().len(), 3);
    let first = get(address, "/api/frontend", FRONTEND).json()["toggles"][0].clone();
    let variant = json!({ "name": "blue", "enabled": true, "payload": { "type": "json", "value": "{\"k\":1}" } });
    assert_eq!(
        (&first["variant"], &first["impressionData"], &first["impression_data"]),
        (&variant, &json!(true), &json!(true))
    );
    let off = get(address, "/api/frontend/features/b%2Foff", FRONTEND).json();
    assert_eq!((&off["enabled"], &off["variant"]["name"]), (&json!(false), &json!("disabled")));
    for (path, status) in [("/api/frontend/features/nothing", 404), ("/api/frontend?properties[x=1", 400)] {
        assert_eq!(get(address, path, FRONTEND).status, status, "{path}");
    }
    for (body, status) in [("{", 400), ("[]", 400), (&"x".repeat(70_000)[..], 413)] {
        assert_eq!(post(address, "/api/frontend", FRONTEND, body).status, status);
    }
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    assert_eq!(call(address, "POST", "/api/frontend", FRONTEND, &form, "userId=7").status, 415);
    let wrong = call(address, "PUT", "/api/frontend", FRONTEND, &[], "");
    assert_eq!((wrong.status, wrong.field("allow").as_deref()), (405, Some("GET, HEAD, POST")));
    gateway.finish();
}

#[test]
fn documents_are_compressed_for_clients_that_accept_it() {
    let origin = FlagOrigin::start_with(&["--data", "large"]);
    let gateway = before(&origin.address, "");
    let address = &gateway.address;
    until_true("flags", || get(address, FEATURES, BACKEND).status == 200);
    let plain = get(address, FEATURES, BACKEND);
    assert!(plain.field("content-encoding").is_none() && plain.bytes().len() > 90_000);
    for coding in ["gzip", "br", "zstd"] {
        let fields = [("Accept-Encoding", coding)];
        // A large document is compressed off the workers, so the first response may be plain.
        let mut coded = call(address, "GET", FEATURES, BACKEND, &fields, "");
        until_true(format!("a document in {coding}"), || {
            coded = call(address, "GET", FEATURES, BACKEND, &fields, "");
            coded.field("content-encoding").as_deref() == Some(coding)
        });
        assert_eq!(
            (coded.field("etag"), coded.field("vary")),
            (plain.field("etag"), Some("Accept-Encoding".to_owned()))
        );
        assert!(coded.bytes().len() * 3 < plain.bytes().len(), "{coding}: {}", coded.bytes().len());
        if coding == "gzip" {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(coded.bytes()), &mut text).expect("gzip");
            assert_eq!(text, plain.body);
        }
        let results = call(address, "GET", "/api/frontend?userId=1", FRONTEND, &fields, "");
        assert_eq!(results.field("content-encoding").as_deref(), Some(coding), "{}", results.status);
    }
    gateway.finish();
}

#[test]
fn a_stream_says_what_has_changed_and_goes_on_where_it_was() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "streams_max = 2");
    let address = &gateway.address;
    until_true("flags", || get(address, FEATURES, BACKEND).status == 200);
    let mut events = Events::open(address, "/api/client/streaming", BACKEND, None);
    assert!(events.head.to_ascii_lowercase().contains("content-type: text/event-stream"), "{}", events.head);
    let first = events.next();
    assert_eq!((first.name.as_str(), &first.data["events"][0]["type"]), ("unleash-connected", &json!("hydration")));
    let mut other = Events::open(address, "/api/client/streaming", BACKEND, None);
    let retry = [first.retry, other.next().retry].map(|retry| retry.expect("a wait"));
    assert!(retry.iter().all(|wait| (1_000..=10_000).contains(wait)) && retry[0] != retry[1], "{retry:?}");
    let refused = get(address, "/api/client/streaming", BACKEND);
    assert_eq!((refused.status, refused.field("retry-after").is_some()), (429, true));
    drop(other);
    origin.control("POST", "/lab/edit?environment=development", "");
    let update = events.next();
    assert_eq!(update.name, "unleash-updated");
    drop(events);
    let mut again = Events::open(address, "/api/client/streaming", BACKEND, Some(&first.id));
    let replay = again.next();
    assert_eq!((replay.name.as_str(), &replay.data), ("unleash-connected", &update.data), "what the client lacks");
    drop(again);
    let mut same = Events::open(address, "/api/client/streaming", BACKEND, Some(&update.id));
    assert_eq!(same.next().data["events"], json!([]));
    drop(same);
    let mut ahead = Events::open(address, "/api/client/streaming", BACKEND, Some("99999999999"));
    assert_eq!(ahead.next().data["events"][0]["type"], "hydration", "a client that is ahead gets the whole state");
    drop(ahead);
    let delta = call(address, "GET", "/api/client/delta", BACKEND, &[("If-None-Match", &first.id)], "");
    assert_eq!((delta.status, delta.json()["events"].clone()), (200, update.data["events"].clone()));
    let none =
        call(address, "GET", "/api/client/delta", BACKEND, &[("If-None-Match", &format!("\"{}\"", update.id))], "");
    assert_eq!((none.status, none.field("etag")), (304, Some(format!("\"{}\"", update.id))));
    gateway.finish();
}

#[test]
fn a_silent_stream_gets_comments() {
    let (_folder, gateway) = stand("");
    let mut events = Events::open(&gateway.address, "/api/client/streaming", BACKEND, None);
    assert_eq!(events.next().name, "unleash-connected");
    assert!(events.next_within(Duration::from_secs(33)).is_none(), "nothing has changed");
    assert!(events.seen().contains(":\n\n"), "{:?}", events.seen());
    drop(events);
    gateway.finish();
}

#[test]
fn operators_turn_endpoints_on_and_off() {
    let (_folder, gateway) = stand(
        "all_endpoint = false\nstreaming = false\nofrep = false\nbackstage = [\"health\", \"features\", \"metrics\", \"metricsbatch\", \"instancedata\", \"info\"]",
    );
    let address = &gateway.address;
    for (path, status) in [
        ("/api/frontend/all", 404),
        ("/api/client/streaming", 404),
        ("/ofrep/v1/evaluate/flags", 404),
        ("/internal-backstage/ready", 404),
        ("/internal-backstage/tokens", 404),
        ("/internal-backstage/health", 200),
        ("/internal-backstage/features", 200),
        ("/internal-backstage/metricsbatch", 200),
        ("/internal-backstage/instancedata", 200),
        ("/internal-backstage/info", 200),
        ("/docs/openapi.json", 200),
        ("/docs/openapi", 200),
    ] {
        assert_eq!(get(address, path, "").status, status, "{path}");
    }
    let api = get(address, "/docs/openapi.json", "").json();
    assert!(api["paths"]["/api/client/features"]["get"].is_object(), "the description names the paths");
    let page = get(address, "/docs/openapi", "");
    assert_eq!(page.field("content-type").as_deref(), Some("text/html; charset=utf-8"));
    assert!(page.field("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
    let metrics = json!({ "appName": "x", "bucket": { "start": "a", "stop": "b", "toggles": { "a.on": { "yes": 2, "no": 3 } } } });
    assert_eq!(post(address, "/api/client/metrics", BACKEND, &metrics.to_string()).status, 202);
    let counters = get(address, "/internal-backstage/metrics", "").body;
    assert!(
        counters.contains("feature_toggle_usage_total{appname=\"x\",toggle=\"a.on\",active=\"true\"} 2"),
        "{counters}"
    );
    gateway.wait_metric("weir_flags_requests_total", &[("endpoint", "metrics"), ("status", "2xx")], 1.0);
    gateway.finish();
}

#[test]
fn every_path_stands_behind_the_base_path() {
    let (_folder, gateway) = stand("base_path = \"/edge\"");
    for (path, status) in [
        ("/edge/api/client/features", 200),
        ("//edge/api//client/features/", 200),
        (FEATURES, 404),
        ("/edgeapi/client/features", 404),
    ] {
        assert_eq!(get(&gateway.address, path, BACKEND).status, status, "{path}");
    }
    assert_eq!(get(&gateway.address, "/edge/internal-backstage/health", "").status, 200);
    gateway.finish();
}

#[test]
fn pages_of_other_origins_may_ask_unless_the_file_says_otherwise() {
    let (_folder, gateway) = stand("");
    let asks = [
        ("Origin", "https://shop.example"),
        ("Access-Control-Request-Method", "GET"),
        ("Access-Control-Request-Headers", "authorization,if-none-match,unleash-appname"),
    ];
    let preflight = call(&gateway.address, "OPTIONS", "/api/frontend", "", &asks, "");
    assert_eq!((preflight.status, preflight.field("access-control-allow-origin").as_deref()), (204, Some("*")));
    let allowed = preflight.field("access-control-allow-headers").unwrap_or_default();
    assert!(
        allowed.contains('*') && allowed.contains("authorization"),
        "a star does not stand for Authorization: {allowed}"
    );
    let reply = call(&gateway.address, "GET", "/api/frontend", FRONTEND, &[("Origin", "https://shop.example")], "");
    assert_eq!(reply.field("access-control-allow-origin").as_deref(), Some("*"));
    assert!(reply.field("access-control-expose-headers").is_some(), "pages read the tag");
    gateway.finish();
    let (_folder, gateway) = stand("[listener.flags.cors]\nallow_origins = [\"https://app.example\"]");
    for (origin, allowed) in [("https://app.example", Some("https://app.example")), ("https://shop.example", None)] {
        let reply = call(&gateway.address, "GET", "/api/frontend", FRONTEND, &[("Origin", origin)], "");
        assert_eq!((reply.status, reply.field("access-control-allow-origin").as_deref()), (200, allowed));
    }
    gateway.finish();
}

#[test]
fn addresses_and_redirects_follow_the_file() {
    let from = |gateway: &Gateway, address: &str| {
        call(&gateway.address, "GET", FEATURES, BACKEND, &[("X-Forwarded-For", address)], "").status
    };
    let (_folder, gateway) = stand("trusted_hops = 1\ndeny = [\"192.0.2.0/24\"]");
    assert_eq!(from(&gateway, "192.0.2.7"), 200, "the peer counts, and not the client");
    gateway.rewrite(|text| text.replace("192.0.2.0/24", "127.0.0.0/8"));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    until_true("the other list", || from(&gateway, "198.51.100.7") == 403);
    gateway.finish();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = offline_with(folder.path(), &document(), "redirect_https = true");
    let reply = get(&gateway.address, "/api/frontend?userId=7", FRONTEND);
    let location = reply.field("location").unwrap_or_default();
    assert!(
        reply.status == 308
            && location.starts_with("https://flags.example")
            && location.ends_with("/api/frontend?userId=7"),
        "{} {location}",
        reply.status
    );
    gateway.finish();
}

#[test]
fn openfeature_clients_evaluate_remotely() {
    let (_folder, gateway) = stand("");
    let (address, path) = (&gateway.address, "/ofrep/v1/evaluate/flags");
    let body = r#"{"context":{"targetingKey":"7"}}"#;
    let bearer = format!("Bearer {FRONTEND}");
    let one = post(address, &format!("{path}/a.on"), &bearer, body).json();
    assert_eq!(
        (&one["value"], &one["variant"], &one["reason"]),
        (&json!({ "k": 1 }), &json!("blue"), &json!("TARGETING_MATCH"))
    );
    let user = |key: &str| {
        post(address, &format!("{path}/a.user"), FRONTEND, &json!({ "context": { "targetingKey": key } }).to_string())
            .json()["value"]
            .clone()
    };
    assert_eq!((user("7"), user("8")), (json!(true), json!(false)));
    let keyed = call(address, "POST", path, "", &[("X-API-Key", FRONTEND), ("Content-Type", "application/json")], body);
    assert_eq!((keyed.status, keyed.json()["flags"].as_array().map(Vec::len)), (200, Some(3)));
    let tag = keyed.field("etag").expect("a tag");
    let same =
        call(address, "POST", path, FRONTEND, &[("If-None-Match", &tag), ("Content-Type", "application/json")], body);
    assert_eq!(same.status, 304);
    let missing = post(address, &format!("{path}/nothing"), FRONTEND, body);
    assert_eq!((missing.status, &missing.json()["errorCode"]), (404, &json!("FLAG_NOT_FOUND")));
    let broken = post(address, path, FRONTEND, "{");
    assert_eq!((broken.status, &broken.json()["errorCode"]), (400, &json!("PARSE_ERROR")));
    assert_eq!(post(address, path, BACKEND, body).status, 403);
    gateway.finish();
}

#[test]
fn a_reload_keeps_the_flags_of_the_file_until_the_new_ones_are_read() {
    let (folder, gateway) = stand("");
    let file = folder.path().join("features.json");
    std::fs::write(&file, "{").expect("written");
    gateway.rewrite(|text| text.replace("reload_interval = \"1s\"", "reload_interval = \"2s\""));
    assert_eq!(gateway.admin.post("/api/v1/reload", "").status, 200);
    gateway.wait_log("the file of flags cannot be used");
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(get(&gateway.address, FEATURES, BACKEND).status, 200);
    }
    std::fs::write(&file, r#"{"other":{"enabled":true}}"#).expect("written");
    until_true("the other file", || get(&gateway.address, FEATURES, BACKEND).names() == ["other"]);
    gateway.finish();
}

#[test]
fn a_changed_file_is_served_and_a_broken_one_is_not() {
    let (folder, gateway) = stand("");
    let file = folder.path().join("features.json");
    std::fs::write(&file, r#"{"short":{"enabled":true,"variant":"red"}}"#).expect("written");
    until_true("the other file", || get(&gateway.address, FEATURES, BACKEND).names() == ["short"]);
    let variant = get(&gateway.address, "/api/frontend", FRONTEND).json()["toggles"][0]["variant"]["name"].clone();
    assert_eq!(variant, Value::from("red"));
    std::fs::write(&file, "{").expect("written");
    gateway.wait_log("the file of flags cannot be used");
    assert_eq!(get(&gateway.address, FEATURES, BACKEND).names(), ["short"]);
    gateway.finish();
}
