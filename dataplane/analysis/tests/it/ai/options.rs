//! Options of requests, and bodies that are refused.

use weir_analysis::ai::{BodyError, Endpoint, Field, Span};

use super::support::{facts, valid};

fn of(span: Span, body: &str) -> String {
    String::from_utf8(span.of(body.as_bytes()).to_vec()).expect("UTF-8")
}

#[test]
fn a_chat_has_its_options_with_their_places() {
    let body = r#" {"messages":[{"role":"user","content":"model"},{"role":"user","content":"b"}],"model":"gpt\u002d4o","stream":true,
        "stream_options" : {"x":1,"include_usage":false},"max_completion_tokens":256,"max_tokens":300,"n":2,"user":"u","temperature":1e999,
        "safety_identifier":"s","prompt_cache_key":"k","service_tier":"flex","store":false,"metadata":{"a":"b"},"unknown":{"model":"x"}} "#;
    let facts = valid(Endpoint::Chat, body);
    let options = &facts.options;
    let model = options.model.as_ref().expect("a model");
    assert_eq!((&*model.text, of(model.span, body)), ("gpt-4o", "\"gpt\\u002d4o\"".into()));
    assert!(options.is_stream() && !options.includes_usage());
    let stream_options = options.stream_options.expect("given");
    let usage = stream_options.include_usage.expect("given");
    assert_eq!((stream_options.members, usage.value, of(usage.span, body)), (Some(2), false, "false".into()));
    assert_eq!(of(stream_options.span, body), r#"{"x":1,"include_usage":false}"#);
    assert_eq!((options.output_tokens_max(), options.choices()), (Some(300), 2));
    let texts = [&options.user, &options.safety_identifier, &options.prompt_cache_key, &options.service_tier];
    assert_eq!(
        texts.map(|named| named.as_ref().map(|named| &*named.text)),
        [Some("u"), Some("s"), Some("k"), Some("flex")]
    );
    assert_eq!(options.store.map(|flag| flag.value), Some(false));
    assert_eq!(options.metadata.map(|span| of(span, body)), Some(r#"{"a":"b"}"#.into()));
    assert_eq!((facts.messages_count, facts.members), (2, 15));
    assert_eq!(facts.prompt_bytes(), 65);
    assert_eq!(of(facts.body, body), body.trim());
}

#[test]
fn responses_have_options_of_their_own() {
    let body = r#"{"model":"o","input":"hi","max_output_tokens":9,"previous_response_id":"resp_1","conversation":{"id":"conv_1"},"background":true,"instructions":"be brief"}"#;
    let facts = valid(Endpoint::Responses, body);
    let options = &facts.options;
    assert_eq!(options.previous_response.as_ref().map(|named| &*named.text), Some("resp_1"));
    assert_eq!(options.conversation.as_ref().map(|named| &*named.text), Some("conv_1"));
    assert_eq!((options.background.map(|flag| flag.value), options.output_tokens_max()), (Some(true), Some(9)));
    assert_eq!((of(facts.messages, body), of(facts.instructions, body)), ("\"hi\"".into(), "\"be brief\"".into()));
    let text = valid(Endpoint::Responses, r#"{"conversation":"conv_2","n":null,"stream":null,"stream_options":null}"#);
    assert_eq!(text.options.conversation.map(|named| named.text), Some("conv_2".into()));
    assert!(text.options.stream.is_none() && text.options.count.is_none() && text.options.stream_options.is_some());
}

#[test]
fn a_request_says_whether_the_model_is_to_reason() {
    use Endpoint::{Chat, Messages, Responses};
    for (endpoint, member, reasons) in [
        (Chat, r#""reasoning_effort":"low""#, true),
        (Chat, r#""reasoning_effort":"none""#, false),
        (Chat, r#""reasoning_effort":null"#, false),
        (Chat, r#""reasoning":{"enabled":true}"#, true),
        (Chat, r#""thinking":{"type":"enabled"}"#, true),
        (Chat, r#""reasoning_effort":"none","thinking":{"type":"enabled"}"#, true),
        (Chat, r#""x":{"reasoning_effort":"high"}"#, false),
        (Responses, r#""reasoning":{"effort":"high","summary":"auto"}"#, true),
        (Responses, r#""reasoning":{"effort":"none"}"#, false),
        (Responses, r#""reasoning":{"summary":"auto"}"#, true),
        (Responses, r#""reasoning":null"#, false),
        (Messages, r#""thinking":{"type":"adaptive"}"#, true),
        (Messages, r#""thinking":{"type":"enabled","budget_tokens":1024}"#, true),
        (Messages, r#""thinking":{"type":"disabled"}"#, false),
        (Messages, r#""thinking":false"#, false),
    ] {
        assert_eq!(valid(endpoint, &format!("{{{member}}}")).options.reasons(), reasons, "{endpoint:?} {member}");
    }
    let twice = facts(Chat, r#"{"reasoning_effort":"none","reasoning_effort":"high"}"#);
    assert!(twice.is_err(), "the gateway and the provider could read it differently");
}

#[test]
fn other_endpoints_have_theirs() {
    let facts = valid(Endpoint::Completions, r#"{"model":"m","prompt":["a","b"],"n":2,"best_of":5,"max_tokens":7}"#);
    assert_eq!((facts.messages_count, facts.options.choices(), facts.options.output_tokens_max()), (2, 5, Some(7)));
    let facts = valid(Endpoint::Embeddings, r#"{"model":"m","input":[1,2,3],"encoding_format":"base64"}"#);
    assert_eq!((facts.messages_count, facts.messages.len()), (3, 7));
    let body =
        r#"{"model":"claude","max_tokens":64,"system":"s","messages":[],"metadata":{"user_id":"u7"},"stream":true}"#;
    let facts = valid(Endpoint::Messages, body);
    assert_eq!(facts.options.user.as_ref().map(|named| &*named.text), Some("u7"));
    assert_eq!((facts.options.is_stream(), of(facts.instructions, body)), (true, "\"s\"".into()));
}

#[test]
fn a8_a_decisive_member_that_occurs_twice_is_refused_with_the_code_of_it() {
    for body in [
        r#"{"model":"cheap","model":"dear"}"#,
        r#"{"model":"cheap","mo\u0064el":"dear"}"#,
        r#"{"stream_options":{},"model":"m","stream_options":{"include_usage":true}}"#,
        r#"{"tools":[{"function":{"name":"a","name":"b"}}]}"#,
        r#"{"tools":[{"function":{"name":"a"},"function":{"name":"b"}}]}"#,
        r#"{"max_tokens":1,"max_tokens":100000}"#,
        r#"{"messages":[],"messages":[1]}"#,
    ] {
        let error = facts(Endpoint::Chat, body).expect_err(body);
        assert_eq!((error.code(), error.reason()), (Some("duplicate_key"), "json_duplicate"), "{body}");
    }
    valid(Endpoint::Chat, r#"{"presence_penalty":1,"presence_penalty":2,"model":"m"}"#);
    let error = facts(Endpoint::Chat, r#"{"model":"cheap","Model":"dear"}"#).expect_err("Go's reader takes the second");
    assert_eq!((error.code(), error.reason()), (Some("duplicate_key"), "json_key_case"));
}

#[test]
fn a8_a_value_that_readers_take_differently_is_refused() {
    for (body, field) in [
        (r#"{"model":7}"#, Field::Model),
        (r#"{"model":["a"]}"#, Field::Model),
        (r#"{"stream":"true"}"#, Field::Stream),
        (r#"{"stream":1}"#, Field::Stream),
        (r#"{"stream_options":true}"#, Field::StreamOptions),
        (r#"{"stream_options":{"include_usage":"yes"}}"#, Field::IncludeUsage),
        (r#"{"max_tokens":"100"}"#, Field::MaxTokens),
        (r#"{"tools":{}}"#, Field::Tools),
        (r#"{"tools":["f"]}"#, Field::Tool),
        (r#"{"tool_choice":7}"#, Field::Choice),
    ] {
        let error = facts(Endpoint::Chat, body).expect_err(body);
        assert_eq!((error, error.param(), error.code()), (BodyError::Type(field), Some(field.name()), None), "{body}");
    }
    for number in ["-1", "1e3", "256.0", "4294967297", "99999999999999999999", "1e999999"] {
        let error = facts(Endpoint::Chat, &format!("{{\"max_completion_tokens\":{number}}}")).expect_err(number);
        assert!(matches!(error, BodyError::Number(Field::MaxCompletionTokens, _)), "{number}: {error}");
    }
    let long = format!("{{\"model\":\"{}\"}}", "m".repeat(5000));
    assert_eq!(facts(Endpoint::Chat, &long), Err(BodyError::TooLong(Field::Model)));
}

#[test]
fn a_body_that_is_no_object_is_no_request() {
    for body in ["[]", "null", "\"a\"", "7", "[{\"model\":1}]"] {
        let error = facts(Endpoint::Chat, body).expect_err(body);
        assert_eq!((error, error.code()), (BodyError::NotAnObject, Some("invalid_json")));
    }
    for body in ["", "{", "{\"model\":\"\u{1}\"}", "{}}"] {
        assert_eq!(facts(Endpoint::Chat, body).expect_err(body).code(), Some("invalid_json"));
    }
    let secret = r#"{"model":"sk-secret",}"#;
    assert!(!facts(Endpoint::Chat, secret).expect_err("a comma").text().contains("secret"), "an error quotes no body");
}
