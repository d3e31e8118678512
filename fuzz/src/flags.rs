//! Any bytes as a context of an evaluation, and as a document of flags with one.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use weir_base::Rng;
use weir_flags_codec::{Context, ContextError, ContextField, DeltaEvent, FeaturesDocument, Timestamp, UnknownFields};
use weir_flags_session::client::Query;
use weir_flags_session::delta::Follower;
use weir_flags_session::{Decisions, FlagState, History, Listing, Projects, Snapshot};

/// A context of JSON has the values that another reader sees. A context of a query has the same values if every byte of it is escaped.
pub fn flags_context(data: &[u8]) {
    body(data);
    if let Ok(text) = std::str::from_utf8(data) {
        query(text);
    }
}

fn body(data: &[u8]) {
    let context = Context::from_json(data);
    if serde_json::from_slice::<IgnoredAny>(data).is_err() {
        assert!(context.is_err());
    }
    // It may be too deep for the other reader, or have a number that is too large.
    let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
    let Some(value) = value.as_object() else { return assert!(context.is_err()) };
    let context = match context {
        Err(ContextError::TooLarge | ContextError::ValueTooLarge) => return,
        other => other.expect("an object"),
    };
    let value = value.get("context").and_then(Value::as_object).unwrap_or(value);
    let none = Map::new();
    let properties = value.get("properties").and_then(Value::as_object).unwrap_or(&none);
    // Both take the last of equal keys, unless it is none: the text of an earlier one may then stay.
    for field in ContextField::ALL {
        let wanted = value.get(field.name()).and_then(text).or_else(|| properties.get(field.name()).and_then(text));
        assert!(wanted.is_none() || context.field(field) == wanted.as_deref(), "{}", field.name());
    }
    for (name, value) in properties {
        let wanted = text(value);
        assert!(wanted.is_none() || context.property(name) == wanted.as_deref(), "{name}");
    }
    let is_other = |name: &str| ContextField::of(name).is_none() && name != "properties" && name != "context";
    for (name, value) in value.iter().filter(|(name, _)| is_other(name) && context.property(name).is_some()) {
        let texts = [properties.get(name).and_then(text), text(value)];
        let is_of_either = texts.iter().any(|it| it.as_deref() == context.property(name));
        assert!(is_of_either || texts.contains(&None), "{name}");
    }
}

/// The text of a value that has one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

fn query(text: &str) {
    let Ok(context) = Context::from_query(text, UnknownFields::Properties) else { return };
    let escaped = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let fields = ContextField::ALL.into_iter().filter_map(|field| Some((field.name(), context.field(field)?)));
    let mut pairs: Vec<String> = fields.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let mut seen = BTreeMap::new();
    for (name, value) in context.properties() {
        seen.entry(name).or_insert(value);
        // Such a name has another meaning within brackets.
        if !name.is_empty() && !name.contains("][") {
            pairs.push(format!("properties%5B{}%5D={}", escaped(name), escaped(value)));
        }
    }
    let again = pairs.join("&");
    let Ok(again) = Context::from_query(&again, UnknownFields::Drop) else {
        assert!(again.len() > text.len(), "it has grown too large");
        return;
    };
    for field in ContextField::ALL {
        assert_eq!(again.field(field), context.field(field));
    }
    for (name, value) in seen.into_iter().filter(|(name, _)| !name.is_empty() && !name.contains("][")) {
        assert_eq!((context.property(name), again.property(name)), (Some(value), Some(value)));
    }
}

/// A document of flags, then `\n--\n` and a context: the results are JSON, in order, and the same in each form. SDKs and
/// other edges read the same flags of it, as a whole and as changes.
pub fn flags_evaluation(data: &[u8]) {
    let cut = data.windows(4).position(|window| window == b"\n--\n");
    let (text, context) = cut.map_or((data, &b"{}"[..]), |at| (&data[..at], &data[at + 4..]));
    let Ok(document) = FeaturesDocument::read(text) else { return };
    let Ok(context) = Context::from_json(context) else { return };
    let mut state = FlagState::new(1);
    state.apply_document(&Projects::All, document.clone()).expect("a first document");
    let mut history = History::default();
    history.record(state.revision(), Vec::new());
    let snapshot = Snapshot::new(&state, history.clone(), Some("host"));
    results(&snapshot, &context);
    let follower = copies(&snapshot, &state);
    changes(&mut state, follower, history, document);
}

fn results(snapshot: &Snapshot, context: &Context<'_>) {
    let now = Timestamp::default();
    let scope = snapshot.scope(&Projects::All);
    let toggles = |listing| {
        let (mut decisions, mut out) = (Decisions::default(), Vec::new());
        snapshot.decide(&scope, listing, context, now, &mut Rng::new(7), &mut decisions);
        decisions.write(snapshot, &mut out);
        assert_eq!(out.len(), decisions.bytes());
        let value: Value = serde_json::from_slice(&out).expect("JSON");
        let toggles = value["toggles"].as_array().expect("a list").clone();
        assert_eq!(toggles.len(), decisions.flag_count());
        toggles
    };
    let mut all = toggles(Listing::All);
    assert_eq!(all.len(), snapshot.flag_count());
    let names: Vec<&str> = all.iter().map(|toggle| toggle["name"].as_str().expect("a name")).collect();
    assert!(names.is_sorted());
    for name in names {
        let (one, _) = snapshot.decide_one(name, &scope, context, now, &mut Rng::new(7)).expect("a flag");
        let one: Value = serde_json::from_slice(one).expect("JSON");
        assert_eq!(one["name"], name);
    }
    for toggle in &all {
        let has_variant = toggle["variant"]["enabled"] == true;
        assert!(!has_variant || toggle["enabled"] == true, "{toggle}");
        assert_eq!(toggle["impressionData"], toggle["impression_data"]);
    }
    all.retain(|toggle| toggle["enabled"] == true);
    assert_eq!(toggles(Listing::Enabled), all, "the same chance has the same results");
}

/// An edge behind this one gets the same state, by a document and by events. The latter is returned.
fn copies(snapshot: &Snapshot, state: &FlagState) -> FlagState {
    let scope = snapshot.scope(&Projects::All);
    let query = Query { projects: &Projects::All, environment: Some("e"), name_prefix: None };
    let document = snapshot.client_document(&scope, &query);
    let mut copy = FlagState::new(1);
    copy.apply_document(&Projects::All, FeaturesDocument::read(&document.json).expect("a document")).expect("taken");
    assert_same(&copy, state);
    let mut out = Vec::new();
    assert!(snapshot.delta(&Follower { projects: &Projects::All, scope: &scope, name_prefix: "" }, None, &mut out));
    let mut follower = FlagState::new(1);
    follower.apply_events(&Projects::All, DeltaEvent::read_all(&out).expect("events"), true).expect("taken");
    assert_same(&follower, state);
    follower
}

fn assert_same(left: &FlagState, right: &FlagState) {
    assert!(left.features().eq(right.features()));
    assert_eq!(left.segments(), right.segments());
}

/// A client that follows the changes has the state behind them.
fn changes(state: &mut FlagState, mut follower: FlagState, mut history: History, mut document: FeaturesDocument) {
    let client = state.revision();
    document.features.truncate(document.features.len() / 2);
    document.segments.reverse();
    document.segments.pop();
    document.revision = None;
    let events = state.apply_document(&Projects::All, document).expect("taken");
    history.record(state.revision(), events);
    let snapshot = Snapshot::new(state, history, None);
    let (scope, mut out) = (snapshot.scope(&Projects::All), Vec::new());
    let all = Follower { projects: &Projects::All, scope: &scope, name_prefix: "" };
    if snapshot.delta(&all, Some(client), &mut out) {
        assert!(!out.contains(&b'\n'), "a stream has it on one line");
        follower.apply_events(&Projects::All, DeltaEvent::read_all(&out).expect("events"), true).expect("in order");
    }
    assert_same(&follower, state);
}
