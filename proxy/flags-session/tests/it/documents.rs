//! The documents for both kinds of SDKs.

use serde_json::{Value, json};
use weir_base::Rng;
use weir_flags_codec::Context;
use weir_flags_session::client::Query;
use weir_flags_session::{Listing, Projects, Snapshot};

use crate::support::{document, frontend, now, snapshot, with};

fn three() -> Snapshot {
    let payload = json!({"type": "json", "value": "{\"a\":1}"});
    snapshot(&json!({"version": 2, "meta": {"revisionId": 9}, "segments": [{"id": 1, "constraints": []}], "features": [
        with(json!({"project": "p", "impressionData": true, "variants": [{"name": "v", "weight": 1, "payload": payload}]}), "c"),
        with(json!({"later": {"x": 1.50}}), "a"),
        with(json!({"project": "p", "enabled": false}), "b"),
    ]}))
}

const A: &str = r#"{"name":"a","enabled":true,"variant":{"name":"disabled","enabled":false},"impressionData":false,"impression_data":false}"#;
const B: &str = r#"{"name":"b","enabled":false,"variant":{"name":"disabled","enabled":false},"impressionData":false,"impression_data":false}"#;
const C: &str = r#"{"name":"c","enabled":true,"variant":{"name":"v","enabled":true,"payload":{"type":"json","value":"{\"a\":1}"}},"impressionData":true,"impression_data":true}"#;

#[test]
fn a_frontend_gets_the_flags_that_are_on_in_the_order_of_their_names() {
    let get = |projects: &[&str], listing| frontend(&three(), &Projects::new(projects), listing, "userId=1").0;
    assert_eq!(get(&["*"], Listing::Enabled), format!("{{\"toggles\":[{A},{C}]}}"));
    assert_eq!(get(&["*"], Listing::All), format!("{{\"toggles\":[{A},{B},{C}]}}"));
    assert_eq!(get(&["p"], Listing::Enabled), format!("{{\"toggles\":[{C}]}}"));
    assert_eq!(get(&["default"], Listing::All), format!("{{\"toggles\":[{A}]}}"), "a flag without a project");
    assert_eq!(get(&["x"], Listing::All), r#"{"toggles":[]}"#);
}

#[test]
fn one_flag_is_seen_by_its_own_projects_alone() {
    let (snapshot, context) = (three(), Context::default());
    let get = |name, projects: &[&str]| {
        let scope = snapshot.scope(&Projects::new(projects));
        let found = snapshot.decide_one(name, &scope, &context, now(), &mut Rng::new(1));
        found.map(|(text, _)| String::from_utf8_lossy(text).into_owned())
    };
    assert_eq!(get("b", &["p"]).as_deref(), Some(B));
    assert_eq!((get("b", &["default"]), get("d", &["*"])), (None, None));
}

#[test]
fn the_tag_of_a_frontend_document_follows_its_bytes() {
    let rollout = json!([{"name": "flexibleRollout", "parameters": {"rollout": "50", "groupId": "g"}}]);
    let features: Vec<Value> = (0..20)
        .map(|at| with(json!({"strategies": rollout, "project": format!("p{}", at % 3)}), &format!("f{at}")))
        .collect();
    let document = json!({"version": 2, "features": features});
    let (first, second) = (snapshot(&document), snapshot(&document));
    let mut seen = std::collections::HashMap::new();
    for user in 0..50 {
        for (projects, listing) in [(&["*"][..], Listing::Enabled), (&["p1"], Listing::Enabled), (&["*"], Listing::All)]
        {
            let query = format!("userId={user}");
            let (text, decisions) = frontend(&first, &Projects::new(projects), listing, &query);
            let (same, elsewhere) = frontend(&second, &Projects::new(projects), listing, &query);
            assert_eq!((&text, decisions.tag()), (&same, elsewhere.tag()), "another process has the same tag");
            let known = seen.entry(decisions.tag()).or_insert_with(|| text.clone());
            assert_eq!(*known, text, "equal tags mean equal bytes");
        }
    }
    let mut bodies: Vec<&String> = seen.values().collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), seen.len(), "equal bytes have equal tags");
}

#[test]
fn f9_names_of_any_letters_are_found_and_quoted() {
    let name = format!("ünï \"quoted\" \u{1f600}\\ {}", "x".repeat(1_000));
    let snapshot = snapshot(&json!({"version": 2, "features": [with(json!({}), &name)]}));
    let (text, _) = frontend(&snapshot, &Projects::All, Listing::Enabled, "");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["toggles"][0]["name"], name);
    assert!(snapshot.feature(&name, &snapshot.scope(&Projects::All)).is_some());
}

#[test]
fn an_sdk_gets_the_texts_of_its_flags_as_they_came() {
    let snapshot = three();
    let get = |projects: &Projects, name_prefix| {
        let query = Query { projects, environment: Some("dev"), name_prefix };
        let document = snapshot.client_document(&snapshot.scope(projects), &query);
        (String::from_utf8(document.json).expect("UTF-8"), document.tag)
    };
    let (all, tag) = get(&Projects::All, None);
    let [a, b, c] =
        ["a", "b", "c"].map(|name| snapshot.feature(name, &snapshot.scope(&Projects::All)).expect("a flag"));
    assert!(a.contains(r#""later":{"x":1.5}"#));
    let rest = r#""segments":[{"constraints":[],"id":1}],"query":{"projects":["*"],"environment":"dev","inlineSegmentConstraints":false},"meta":{"revisionId":9}}"#;
    assert_eq!(all, format!("{{\"version\":2,\"features\":[{a},{b},{c}],{rest}"));
    assert_eq!((all, tag), get(&Projects::All, None));
    let p = Projects::new(&["p"]);
    let (some, other) = get(&p, Some("c"));
    assert!(some.starts_with(&format!("{{\"version\":2,\"features\":[{c}],\"segments\":[")), "{some}");
    assert!(some.contains(r#""query":{"projects":["p"],"namePrefix":"c","environment":"dev","#), "{some}");
    assert_ne!(tag, other);
    assert!(get(&p, Some("d")).0.starts_with(r#"{"version":2,"features":[],"#));
}

#[test]
fn a_document_is_read_again_as_it_was_written() {
    let snapshot = three();
    let query = Query { projects: &Projects::All, environment: None, name_prefix: None };
    let written = snapshot.client_document(&snapshot.scope(&Projects::All), &query);
    let value: Value = serde_json::from_slice(&written.json).expect("JSON");
    assert_eq!(document(&value).features.len(), 3);
    assert_eq!((snapshot.flag_count(), snapshot.upstream_revision()), (3, Some(9)));
}
