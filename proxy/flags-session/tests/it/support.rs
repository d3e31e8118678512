//! States, snapshots and their results in few words.

use std::time::Duration;

use serde_json::{Value, json};
use weir_base::Rng;
use weir_flags_codec::{Context, FeaturesDocument, Timestamp};
use weir_flags_session::{Decisions, FlagState, History, Listing, Projects, Snapshot};

/// 2024-02-03T04:05:06Z
pub const NOW: Duration = Duration::from_secs(1_706_933_106);

pub fn now() -> Timestamp {
    Timestamp::from_unix(NOW)
}

/// A document of flags.
pub fn document(value: &Value) -> FeaturesDocument {
    FeaturesDocument::read(value.to_string().as_bytes()).expect("a document")
}

/// The snapshot of a document.
pub fn snapshot(value: &Value) -> Snapshot {
    let mut state = FlagState::new(1);
    state.apply_document(&Projects::All, document(value)).expect("taken");
    Snapshot::new(&state, History::new(state.revision()), Some("Host-1"))
}

/// The snapshot of a flag `f` with these members.
pub fn flag(members: Value) -> Snapshot {
    snapshot(&json!({"version": 2, "features": [with(members, "f")]}))
}

/// An object with a name.
pub fn with(mut members: Value, name: &str) -> Value {
    members["name"] = name.into();
    if members.get("enabled").is_none() {
        members["enabled"] = true.into();
    }
    members
}

/// The result of a flag for a context as JSON.
pub fn result_of(snapshot: &Snapshot, name: &str, context: &Value, rng: &mut Rng) -> Option<Value> {
    let text = context.to_string();
    let context = Context::from_json(text.as_bytes()).expect("a context");
    let scope = snapshot.scope(&Projects::All);
    let (text, _) = snapshot.decide_one(name, &scope, &context, now(), rng)?;
    Some(serde_json::from_slice(text).expect("JSON"))
}

/// Whether the flag `f` is on.
pub fn is_on(snapshot: &Snapshot, context: Value) -> bool {
    result_of(snapshot, "f", &context, &mut Rng::new(1)).expect("the flag")["enabled"].as_bool().expect("a result")
}

/// The name of the variant of the flag `f`.
pub fn variant(snapshot: &Snapshot, context: Value) -> String {
    let result = result_of(snapshot, "f", &context, &mut Rng::new(1)).expect("the flag");
    result["variant"]["name"].as_str().expect("a name").to_owned()
}

/// The document for a query.
pub fn frontend(snapshot: &Snapshot, projects: &Projects, listing: Listing, query: &str) -> (String, Decisions) {
    let context = Context::from_query(query, Default::default()).expect("a context");
    let (mut decisions, mut out) = (Decisions::default(), Vec::new());
    let scope = snapshot.scope(projects);
    snapshot.decide(&scope, listing, &context, now(), &mut Rng::new(1), &mut decisions);
    decisions.write(snapshot, &mut out);
    assert_eq!(out.len(), decisions.bytes());
    (String::from_utf8(out).expect("UTF-8"), decisions)
}
