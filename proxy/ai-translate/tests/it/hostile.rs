//! Inputs that no honest peer sends: nothing panics, and every bound holds.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_ai_session::End;
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};
use weir_ai_translate::limits::{CALLS_MAX, ITEMS_MAX, MEMBERS_MAX};
use weir_ai_translate::{Direction, Options, translate_error, translate_request, translate_response};

use crate::support::{CREATED, chat_stream, messages_stream, translate};

/// Texts of the mistakes in a stream of Anthropic's behind its start.
fn mistake(events: &[Value]) -> String {
    let start = json!({"type": "message_start", "message": {"id": "a", "model": "m"}});
    let found = translate(ChatToMessages, true, &messages_stream(&[&[start], events].concat()), &[]);
    assert_eq!(found.end, End::Missing);
    found.error.expect("refused").to_string()
}

#[test]
fn events_out_of_order_are_mistakes() {
    let start = |index: u64| json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}});
    let delta = |index: u64| json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": "x"}});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    assert!(mistake(&[delta(0)]).contains("not open"));
    assert!(mistake(&[start(0), delta(1)]).contains("not open"));
    assert!(mistake(&[start(0), start(0)]).contains("open already"));
    assert!(mistake(&[start(0), stop(0), stop(0)]).contains("not open"));
    assert!(mistake(&[start(0), stop(0), delta(0)]).contains("not open"));
    let call = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}});
    assert!(mistake(&[call, delta(0)]).contains("another type"));
    assert!(
        mistake(&[json!({"type": "message_start", "message": {"id": "a", "model": "m"}})]).contains("second start")
    );
    for index in [json!(-1), json!(1.5), json!("0"), json!(null), json!(1e300)] {
        let event = json!({"type": "content_block_stop", "index": index});
        assert!(mistake(&[event]).contains("index"));
    }
    let first = translate(ChatToMessages, true, &messages_stream(&[delta(0)]), &[]);
    assert!(first.error.expect("refused").to_string().contains("no start"));
    assert!(first.out.is_empty());
}

#[test]
fn fragments_of_calls_that_never_began_are_mistakes() {
    let chunk =
        |call: Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": call}}]});
    for call in [
        json!([{"index": 0, "function": {"arguments": "{}"}}]),
        json!([{"index": 0, "id": "a"}]),
        json!([{"index": 0, "id": "a", "function": {}}]),
        json!([{"index": -1, "id": "a", "function": {"name": "f"}}]),
        json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "[1]"}}]),
        json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}}"}}]),
        json!([{"index": 0, "id": "a", "function": {"name": "f", "arguments": {}}}]),
        json!([7]),
        json!(7),
    ] {
        let found = translate(MessagesToChat, true, &chat_stream(&[chunk(call.clone())]), &[]);
        assert!(found.error.is_some(), "{call}");
    }
    let many: Vec<Value> = (0..=CALLS_MAX as u64)
        .map(|at| chunk(json!([{"index": u64::MAX - at, "id": "a", "function": {"name": "f", "arguments": "{}"}}])))
        .collect();
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let fitting = [&many[1..], &[end]].concat();
    assert!(translate(MessagesToChat, true, &chat_stream(&fitting), &[]).error.is_none());
    let found = translate(MessagesToChat, true, &chat_stream(&many), &[]);
    assert!(found.error.expect("refused").to_string().contains("too many calls"));
}

#[test]
fn a8_deep_large_and_double_bodies_are_refused() {
    let deep = format!(r#"{{"model":"m","messages":[],"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let many = format!(r#"{{"model":"m","messages":[{}0]}}"#, "0,".repeat(ITEMS_MAX));
    let members: String = (0..MEMBERS_MAX).map(|at| format!(",\"x{at}\":0")).collect();
    let wide = format!(r#"{{"model":"m","messages":[]{members}}}"#);
    let double = r#"{"model":"m","messages":[],"mod\u0065l":"n"}"#;
    let nested = r#"{"model":"m","messages":[{"role":"user","content":"a","content":"b"}]}"#;
    for body in [&deep, &many, &wide, double, nested] {
        for direction in Direction::ALL {
            let found = translate_request(direction, body.as_bytes(), &Options::default());
            assert!(found.is_err(), "{}", &body[..40]);
        }
    }
    let huge =
        r#"{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":1e999999,"temperature":1e999999}"#;
    let found = translate_request(ChatToMessages, huge.as_bytes(), &Options::default()).expect("numbers are texts");
    assert_eq!(found.body, br#"{"model":"m","max_tokens":1e999999,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"temperature":1}"#);
}

#[test]
fn a8_arguments_that_would_make_a_message_too_deep_are_refused() {
    let completion = |levels: usize| {
        let arguments = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let call = json!([{"id": "a", "function": {"name": "f", "arguments": arguments}}]);
        json!({"id": "c", "model": "m", "choices": [{"message": {"tool_calls": call}, "finish_reason": "stop"}]})
            .to_string()
    };
    let there = translate_response(MessagesToChat, completion(122).as_bytes(), CREATED).expect("within the limit");
    assert!(translate_response(ChatToMessages, &there.body, CREATED).is_ok());
    assert!(translate_response(MessagesToChat, completion(123).as_bytes(), CREATED).is_err());
}

#[test]
fn a11_no_name_of_a_client_leaves_its_string() {
    let name = "f\",\"x\":\"\r\ndata: [DONE]\r\n\r\n";
    let body = json!({"model": name, "messages": [{"role": "user", "content": name, name: 1}], name: 7, "user": name});
    let found =
        translate_request(ChatToMessages, body.to_string().as_bytes(), &Options::default()).expect("translated");
    assert_eq!(crate::support::json(&found.body)["metadata"]["user_id"], name);
    assert_eq!(found.losses.header_value(), "messages.other, other");
    let start = json!({"type": "message_start", "message": {"id": name, "model": name}});
    let reason = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}});
    let stop = json!({"type": "message_stop"});
    let found = translate(ChatToMessages, false, &messages_stream(&[start, reason, stop]), &[]);
    let whole = crate::accumulate::completion(found.out.as_bytes());
    assert_eq!((&whole["id"], &whole["model"]), (&json!(name), &json!(name)));
}

/// Words of both dialects, which random bodies are made of.
const WORDS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"model\":\"m\"",
    "\"messages\":[",
    "\"role\":\"user\"",
    "\"role\":\"assistant\"",
    "\"role\":\"tool\"",
    "\"content\":",
    "\"text\"",
    "\"type\":\"text\"",
    "\"type\":\"tool_use\"",
    "\"id\":\"a\"",
    "\"name\":\"f\"",
    "\"input\":{}",
    "\"tool_calls\":[",
    "\"function\":{",
    "\"arguments\":\"{\"",
    "\"choices\":[",
    "\"delta\":{",
    "\"index\":0",
    "\"finish_reason\":\"stop\"",
    "\"usage\":{",
    "\"prompt_tokens\":-1",
    "null",
    "true",
    "1e999",
    "\"type\":\"message_start\"",
    "\"message\":{",
    "\"type\":\"content_block_start\"",
    "\"content_block\":{",
    "\"type\":\"content_block_delta\"",
    "\"type\":\"message_stop\"",
    "[DONE]",
    "\n\n",
    "data: ",
    "\"error\":{",
];

/// Any JSON, whose names and texts are words of both dialects, so that it reaches the readers of messages.
fn any_json() -> impl Strategy<Value = Value> {
    let word = || {
        prop::sample::select(vec![
            "a",
            "",
            " ",
            "{}",
            "{\"x\":1}",
            "null",
            "user",
            "assistant",
            "tool",
            "system",
            "text",
            "image",
            "tool_use",
            "tool_result",
            "message_start",
            "message_delta",
            "message_stop",
            "content_block_start",
            "content_block_stop",
            "content_block_delta",
            "text_delta",
            "input_json_delta",
            "stop",
            "length",
            "end_turn",
            "max_tokens",
        ])
    };
    let name = prop::sample::select(vec![
        "type",
        "role",
        "content",
        "text",
        "id",
        "name",
        "input",
        "tool_calls",
        "function",
        "arguments",
        "index",
        "delta",
        "message",
        "choices",
        "finish_reason",
        "stop_reason",
        "usage",
        "error",
        "content_block",
        "partial_json",
        "source",
        "data",
        "url",
        "tool_use_id",
        "tool_call_id",
        "prompt_tokens",
        "input_tokens",
        "thinking",
    ]);
    let leaf = prop_oneof![word().prop_map(Value::from), (-2..3_i32).prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6).prop_map(|members| json!(members)),
        ]
    })
}

/// The members of `random` over those that a message must have.
fn merged(mut base: Value, random: Value) -> Value {
    for (name, value) in random.as_object().into_iter().flatten() {
        base[name] = value.clone();
    }
    base
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_json_in_a_message_is_translated_into_json_or_refused(
        (part, choice, member) in (any_json(), any_json(), any_json()),
        event_type in prop::sample::select(vec!["content_block_start", "content_block_delta", "message_delta"]),
        cut in 0..400_usize,
        is_chat: bool,
    ) {
        let direction = Direction::ALL[usize::from(is_chat)];
        let message = merged(json!({"role": "user", "content": [part.clone()]}), choice.clone());
        let body = merged(json!({"model": "m", "messages": [message, {"role": "user", "content": "x"}]}), member.clone());
        if let Ok(found) = translate_request(direction, body.to_string().as_bytes(), &Options::default()) {
            prop_assert!(serde_json::from_slice::<Value>(&found.body).is_ok());
        }
        let message = merged(json!({"content": [part.clone()], "tool_calls": [part.clone()]}), choice.clone());
        let choice = json!({"message": message, "delta": message, "finish_reason": "stop"});
        let whole = json!({"id": "a", "model": "m", "content": [part.clone()], "stop_reason": "end_turn", "choices": [choice]});
        let body = merged(whole, member.clone()).to_string();
        if let Ok(found) = translate_response(direction, body.as_bytes(), CREATED) {
            prop_assert!(serde_json::from_slice::<Value>(&found.body).is_ok());
        }
        let stream = match direction {
            ChatToMessages => messages_stream(&[
                json!({"type": "message_start", "message": {"id": "a", "model": "m"}}),
                merged(json!({"type": event_type, "index": 0, "content_block": part, "delta": part}), member),
            ]),
            MessagesToChat => format!("data: {body}\n\ndata: [DONE]\n\n").into_bytes(),
        };
        let found = translate(direction, true, &stream, &[]);
        prop_assert_eq!(translate(direction, true, &stream, &[cut.min(stream.len())]), found.clone());
        for (_, data) in crate::support::events(found.out.as_bytes()) {
            prop_assert!(data == "[DONE]" || serde_json::from_str::<Value>(&data).is_ok(), "{}", data);
        }
    }

    #[test]
    fn no_input_panics_and_cuts_change_nothing(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..24),
        cut in 0..200_usize,
        is_chat: bool,
    ) {
        let direction = Direction::ALL[usize::from(is_chat)];
        let body = words.concat();
        let _ = translate_request(direction, body.as_bytes(), &Options::default());
        let _ = translate_response(direction, body.as_bytes(), CREATED);
        let (_, error) = translate_error(direction, 500, body.as_bytes());
        prop_assert!(serde_json::from_slice::<Value>(&error).is_ok());
        let stream = format!("data: {body}\n\n");
        let whole = translate(direction, true, stream.as_bytes(), &[]);
        prop_assert_eq!(translate(direction, true, stream.as_bytes(), &[cut.min(stream.len())]), whole);
    }
}
