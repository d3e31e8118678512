//! Edits of requests: the golden splice, and every other byte as it came.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_ai_session::Splice;
use weir_analysis::ai::{Endpoint, Facts, Wanted, read};

fn facts(body: &str) -> Facts {
    read(Endpoint::Chat, body.as_bytes(), Wanted::default()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

fn applied(splice: &Splice, body: &str) -> String {
    let edited = splice.apply(body.as_bytes());
    assert_eq!(edited.len() as u64, splice.length(body.len() as u64));
    let parts: Vec<&[u8]> = splice.parts(body.as_bytes()).collect();
    assert_eq!(parts.concat(), edited);
    String::from_utf8(edited).expect("UTF-8")
}

fn with_usage(body: &str) -> Option<String> {
    let mut splice = Splice::default();
    splice.include_usage(&facts(body)).then(|| applied(&splice, body))
}

#[test]
fn usage_is_requested_by_the_least_edit() {
    for (body, golden) in [
        (
            r#"{"model":"m", "stream":true }"#,
            r#"{"model":"m", "stream":true ,"stream_options":{"include_usage":true}}"#,
        ),
        (r#"{"stream":true,"stream_options":null}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (r#"{"stream":true,"stream_options":{}}"#, r#"{"stream":true,"stream_options":{"include_usage":true}}"#),
        (
            "{\"stream_options\" : { \"x\":[] }\n, \"stream\":true}\n",
            "{\"stream_options\" : { \"x\":[] ,\"include_usage\":true}\n, \"stream\":true}\n",
        ),
        (
            r#"{"stream":true,"stream_options":{"include\u005fusage": false ,"x":1}}"#,
            r#"{"stream":true,"stream_options":{"include\u005fusage": true ,"x":1}}"#,
        ),
        (
            r#"{"stream":true,"stream_options":{"include_usage":null}}"#,
            r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
    ] {
        assert_eq!(with_usage(body).as_deref(), Some(golden), "{body}");
    }
}

#[test]
fn a_request_that_needs_no_edit_has_none() {
    for body in [
        r#"{"stream":true,"stream_options":{"include_usage":true}}"#,
        r#"{"stream":false}"#,
        r#"{"stream":null}"#,
        "{}",
    ] {
        assert_eq!(with_usage(body), None, "{body}");
    }
    let mut splice = Splice::default();
    let body = r#" {"model":"same","unknown":1e999} "#;
    assert!(splice.set_model(&facts(body), "same") && splice.is_empty());
    assert_eq!(applied(&splice, body), body);
    assert!(!splice.set_model(&facts("{}"), "m") && splice.is_empty());
}

#[test]
fn a11_a_model_is_replaced_in_place_and_cannot_break_out_of_its_string() {
    let body = r#"{"x":"model","stream":true,"mod\u0065l" : "fast\u0021","y":"model"}"#;
    let mut splice = Splice::default();
    assert!(splice.include_usage(&facts(body)));
    assert!(splice.set_model(&facts(body), "a\",\"user\":\"b\r\n"));
    assert_eq!(
        applied(&splice, body),
        r#"{"x":"model","stream":true,"mod\u0065l" : "a\",\"user\":\"b\r\n","y":"model","stream_options":{"include_usage":true}}"#
    );
}

/// Values of each member that decides something, and some of one that does not. The first is absent.
fn members() -> impl Strategy<Value = Value> {
    let one_of = |values: Vec<Value>| prop::option::of(prop::sample::select(values));
    let models = one_of(vec![json!("m"), json!("other \u{e9}")]);
    let streams = one_of(vec![json!(true), json!(false), json!(null)]);
    let options = one_of(vec![
        json!(null),
        json!({}),
        json!({"a": 1}),
        json!({"include_usage": false}),
        json!({"include_usage": null, "b": {}}),
        json!({"include_usage": true, "b": []}),
    ]);
    let others = one_of(vec![json!([]), json!([{"content": "model"}]), json!({"stream": false})]);
    (models, streams, options, others).prop_map(|(model, stream, options, messages)| {
        let members = [("model", model), ("stream", stream), ("stream_options", options), ("messages", messages)];
        Value::Object(members.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
    })
}

proptest! {
    #[test]
    fn an_edited_body_is_the_body_with_the_two_members_changed(before in members(), pretty: bool) {
        let body = if pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) };
        let body = body.expect("text");
        let facts = facts(&body);
        let (mut splice, mut wanted) = (Splice::default(), before);
        if splice.set_model(&facts, "alias") {
            wanted["model"] = json!("alias");
        }
        splice.include_usage(&facts);
        if wanted.get("stream") == Some(&json!(true)) {
            if wanted.get("stream_options").is_none_or(Value::is_null) {
                wanted["stream_options"] = json!({});
            }
            wanted["stream_options"]["include_usage"] = json!(true);
        }
        let edited: Value = serde_json::from_str(&applied(&splice, &body)).expect("still JSON");
        prop_assert_eq!(edited, wanted);
    }
}

#[test]
fn output_is_limited_by_the_least_edit() {
    let limited = |endpoint, body: &str| {
        let facts = read(endpoint, body.as_bytes(), Wanted::default()).expect("valid");
        let mut splice = Splice::default();
        splice.include_usage(&facts);
        splice.limit_output(&facts, 50, true);
        applied(&splice, body)
    };
    let (chat, responses) = (Endpoint::Chat, Endpoint::Responses);
    for (endpoint, body, golden) in [
        (chat, r#"{"model":"m"}"#, r#"{"model":"m","max_completion_tokens":50}"#),
        (chat, r#"{"max_tokens": 900,"model":"m"}"#, r#"{"max_tokens": 50,"model":"m"}"#),
        (chat, r#"{"max_tokens":20,"max_completion_tokens":51}"#, r#"{"max_tokens":20,"max_completion_tokens":50}"#),
        (responses, r#"{"model":"m"}"#, r#"{"model":"m","max_output_tokens":50}"#),
        (Endpoint::Messages, r#"{"max_tokens":4096}"#, r#"{"max_tokens":50}"#),
        (Endpoint::Completions, r#"{"n":1}"#, r#"{"n":1,"max_tokens":50}"#),
        (chat, r#"{"max_completion_tokens":null,"n":1}"#, r#"{"max_completion_tokens":50,"n":1}"#),
        (chat, r#"{"max_tokens":null}"#, r#"{"max_tokens":null,"max_completion_tokens":50}"#),
        (Endpoint::Completions, r#"{"max_tokens": null}"#, r#"{"max_tokens": 50}"#),
        (Endpoint::Embeddings, r#"{"input":"x"}"#, r#"{"input":"x"}"#),
    ] {
        assert_eq!(limited(endpoint, body), golden);
    }
    let both: Value = serde_json::from_str(&limited(chat, r#"{"model":"m","stream":true}"#)).expect("JSON");
    let wanted =
        json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_completion_tokens": 50});
    assert_eq!(both, wanted, "two edits at one place");
}

#[test]
fn edits_come_in_the_order_of_their_places() {
    let body = r#"{"max_tokens":900,"model":"m","stream":true}"#;
    let facts = facts(body);
    let mut splice = Splice::default();
    splice.include_usage(&facts);
    splice.set_model(&facts, "other");
    splice.limit_output(&facts, 5, true);
    let edits: Vec<_> = splice.edits().map(|(span, text)| (span.of(body.as_bytes()).to_vec(), text)).collect();
    let wanted: [(&[u8], &[u8]); 3] =
        [(b"900", b"5"), (b"\"m\"", b"\"other\""), (b"", b",\"stream_options\":{\"include_usage\":true}")];
    assert_eq!(edits, wanted.map(|(place, text)| (place.to_vec(), text.to_vec())));
}

#[test]
fn a_chat_for_an_older_server_is_limited_in_its_own_words() {
    for (body, golden) in [
        (r#"{"model":"m"}"#, r#"{"model":"m","max_tokens":50}"#),
        (r#"{"max_tokens":null}"#, r#"{"max_tokens":50}"#),
        // It does not obey that limit.
        (r#"{"max_completion_tokens":900}"#, r#"{"max_completion_tokens":50,"max_tokens":50}"#),
        (r#"{"max_completion_tokens":20}"#, r#"{"max_completion_tokens":20,"max_tokens":50}"#),
        (r#"{"max_completion_tokens":20,"max_tokens":null}"#, r#"{"max_completion_tokens":20,"max_tokens":50}"#),
        (r#"{"max_completion_tokens":20,"max_tokens":60}"#, r#"{"max_completion_tokens":20,"max_tokens":50}"#),
        (r#"{"max_completion_tokens":20,"max_tokens":30}"#, r#"{"max_completion_tokens":20,"max_tokens":30}"#),
    ] {
        let facts = read(Endpoint::Chat, body.as_bytes(), Wanted::default()).expect("valid");
        let mut splice = Splice::default();
        splice.limit_output(&facts, 50, false);
        assert_eq!(applied(&splice, body), golden);
    }
}
