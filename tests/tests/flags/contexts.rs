//! The context of an evaluation: every way in which a client may write it.

use serde_json::json;
use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, FRONTEND, call, get, offline_with, post};
use weir_tests::gateway::Gateway;

/// A flag per field of a context, on for one value of it; the flags are named as the fields.
fn document() -> String {
    let flag = |name: &str, operator: &str, values: &[&str], value: &str| {
        let constraint =
            json!({ "contextName": name, "operator": operator, "values": values, "value": value, "inverted": false });
        json!({ "name": name, "enabled": true, "strategies": [{ "name": "default", "constraints": [constraint] }] })
    };
    let after = flag("currentTime", "DATE_AFTER", &[], "2020-01-01T00:00:00Z");
    let is = |name: &str, value: &str| flag(name, "IN", &[value], "");
    json!({ "version": 2, "features": [
        is("appName", "shop"), after, is("environment", "there"), is("plan", "pro"), is("remoteAddress", "203.0.113.7"),
        is("sessionId", "s"), is("userId", "ü 7"),
    ] })
    .to_string()
}

fn stand(more: &str) -> (tempfile::TempDir, Gateway) {
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = offline_with(folder.path(), &document(), more);
    until_true("flags", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
    (folder, gateway)
}

/// The flags that are on for a query, without the one of the present time.
fn on(gateway: &Gateway, query: &str) -> Vec<String> {
    let reply = get(&gateway.address, &format!("/api/frontend?{query}"), FRONTEND);
    assert_eq!(reply.status, 200, "{query}: {}", reply.body);
    reply.names().into_iter().filter(|name| name != "currentTime").collect()
}

#[test]
fn a_query_has_fields_properties_and_names_that_are_neither() {
    let (_folder, gateway) = stand("");
    for (query, names) in [
        ("", &[][..]),
        ("userId=%C3%BC+7", &["userId"]),
        ("userId=%C3%BC%207&userId=8", &["userId"]),
        ("userId=8&userId=%C3%BC%207", &[]),
        ("appName=shop&environment=there&sessionId=s", &["appName", "environment", "sessionId"]),
        ("properties[plan]=pro", &["plan"]),
        ("properties%5Bplan%5D=pro", &["plan"]),
        ("properties%5bplan%5d=pro", &["plan"]),
        ("properties[plan]=free&plan=pro", &[]),
        ("plan=pro", &["plan"]),
        ("properties[userId]=%C3%BC%207", &["userId"]),
        ("properties[a][b]=pro&&=&x", &[]),
    ] {
        assert_eq!(on(&gateway, query), names, "{query}");
    }
    let at = |time: &str| get(&gateway.address, &format!("/api/frontend?currentTime={time}"), FRONTEND).names();
    assert_eq!((at("2019-12-31T23:59:59Z").len(), at("2020-01-02T00:00:00Z")), (0, vec!["currentTime".to_owned()]));
    for query in ["properties[plan=pro", "userId=%ff"] {
        assert_eq!(get(&gateway.address, &format!("/api/frontend?{query}"), FRONTEND).status, 400, "{query}");
    }
    gateway.finish();
    let (_folder, edge_like) = stand("unknown_query_fields = \"drop\"");
    assert_eq!((on(&edge_like, "plan=pro"), on(&edge_like, "properties[plan]=pro")), (vec![], vec!["plan".to_owned()]));
    edge_like.finish();
}

#[test]
fn a_body_may_be_bare_or_wrapped_and_its_nulls_count_as_absent() {
    let (_folder, gateway) = stand("");
    for (body, names) in [
        (json!({}), &[][..]),
        (json!({ "properties": { "plan": "pro" } }), &["plan"]),
        (json!({ "context": { "properties": { "plan": "pro" } } }), &["plan"]),
        (json!({ "context": { "appName": "shop" }, "appName": "other" }), &["appName"]),
        (json!({ "context": "shop", "sessionId": "s" }), &["sessionId"]),
        (json!({ "userId": null, "sessionId": "s", "properties": { "plan": null } }), &["sessionId"]),
        (json!({ "properties": null, "appName": "shop" }), &["appName"]),
    ] {
        let text = body.to_string();
        for path in ["/api/frontend", "/api/proxy", "//api/proxy/"] {
            let reply = post(&gateway.address, path, FRONTEND, &text);
            assert_eq!(reply.status, 200, "{path} {text}: {}", reply.body);
            let found: Vec<String> = reply.names().into_iter().filter(|name| name != "currentTime").collect();
            assert_eq!(found, names, "{path} {text}");
        }
    }
    let empty = call(&gateway.address, "POST", "/api/frontend", FRONTEND, &[], "");
    assert_eq!((empty.status, empty.names()), (200, vec!["currentTime".to_owned()]), "no body is an empty context");
    gateway.finish();
}

#[test]
fn the_address_of_a_client_counts_unless_it_names_one() {
    let (_folder, gateway) = stand("trusted_hops = 1");
    let is_on = |path: &str, fields: &[(&str, &str)]| {
        let reply = call(&gateway.address, "GET", path, FRONTEND, fields, "");
        assert_eq!(reply.status, 200, "{path} {fields:?}: {}", reply.body);
        reply.names().contains(&"remoteAddress".to_owned())
    };
    assert!(!is_on("/api/frontend", &[]), "the peer itself");
    assert!(is_on("/api/frontend", &[("X-Forwarded-For", "203.0.113.7")]));
    assert!(is_on("/api/frontend", &[("X-Forwarded-For", "198.51.100.1, 203.0.113.7")]));
    assert!(
        !is_on("/api/frontend", &[("X-Forwarded-For", "203.0.113.7, 198.51.100.1")]),
        "a client cannot choose its address"
    );
    assert!(is_on("/api/frontend?remoteAddress=203.0.113.7", &[("X-Forwarded-For", "198.51.100.1")]));
    gateway.finish();
    let (_folder, untrusting) = stand("");
    let forged = [("X-Forwarded-For", "203.0.113.7"), ("Forwarded", "for=203.0.113.7")];
    let reply = call(&untrusting.address, "GET", "/api/frontend", FRONTEND, &forged, "");
    assert!(!reply.names().contains(&"remoteAddress".to_owned()), "{}", reply.body);
    untrusting.finish();
}
