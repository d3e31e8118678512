//! Calls in streams of servers that differ from the two providers.

use serde_json::{Value, json};
use weir_ai_session::End;
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};

use crate::accumulate::{completion, message};
use crate::support::{chat_stream, messages_stream, response, translate_at_every_cut};

/// A stream of a chat with one chunk for each fragment.
fn stream(fragments: &[Value]) -> Vec<u8> {
    let chunk =
        |call: &Value| json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
    let mut chunks: Vec<Value> = fragments.iter().map(chunk).collect();
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1}}));
    chat_stream(&chunks)
}

fn call(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let mut call = json!({"function": {"arguments": arguments}});
    if let Some(index) = index {
        call["index"] = json!(index);
    }
    if let Some(id) = id {
        call["id"] = json!(id);
    }
    if let Some(name) = name {
        call["function"]["name"] = json!(name);
    }
    call
}

/// Id, name and input of each call.
fn calls(fragments: &[Value]) -> Vec<(String, String, Value)> {
    let found = translate_at_every_cut(MessagesToChat, false, &stream(fragments));
    assert_eq!((&found.error, found.end, &*found.losses), (&None, End::Done, ""));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let block = |block: &Value| (text(&block["id"]), text(&block["name"]), block["input"].clone());
    message(found.out.as_bytes())["content"].as_array().expect("blocks").iter().map(block).collect()
}

#[test]
fn another_id_under_the_same_index_or_without_one_is_another_call() {
    for index in [Some(0), None] {
        for second in ["{\"x\":1}", ""] {
            for first in ["{}", ""] {
                let found =
                    calls(&[call(index, Some("a"), Some("f"), first), call(index, Some("b"), Some("g"), second)]);
                let input = if second.is_empty() { json!({}) } else { json!({"x": 1}) };
                let wanted = [("a".into(), "f".into(), json!({})), ("b".into(), "g".into(), input)];
                assert_eq!(found, wanted, "{index:?} {first} {second}");
            }
        }
    }
    let partial = [call(Some(0), Some("a"), Some("f"), "{\"x"), call(Some(0), Some("b"), Some("g"), "{}")];
    assert!(
        translate_at_every_cut(MessagesToChat, false, &stream(&partial)).error.is_some(),
        "no client could read it"
    );
}

#[test]
fn a_fragment_without_an_index_continues_the_last_call() {
    let found = calls(&[
        call(None, Some("a"), Some("f"), "{\"x\":"),
        call(None, None, None, "1}"),
        call(None, Some("b"), Some("g"), "{\"y\":"),
        call(None, Some("b"), Some("g"), "2}"),
    ]);
    assert_eq!(found, [("a".into(), "f".into(), json!({"x": 1})), ("b".into(), "g".into(), json!({"y": 2}))]);
    // Some servers invent an id for each fragment.
    let found = calls(&[call(Some(0), Some("a"), Some("f"), "{\"x\":"), call(Some(0), Some("z"), None, "1}")]);
    assert_eq!(found, [("a".into(), "f".into(), json!({"x": 1}))]);
}

#[test]
fn null_arguments_are_an_empty_object() {
    assert_eq!(calls(&[call(Some(0), Some("a"), Some("f"), "null")]), [("a".into(), "f".into(), json!({}))]);
    let body = json!({"id": "c", "model": "m", "usage": {"prompt_tokens": 1},
        "choices": [{"message": {"tool_calls": [call(None, Some("a"), Some("f"), "null")]}, "finish_reason": "stop"}]});
    let (found, _) = response(MessagesToChat, &body.to_string()).expect("translated");
    assert_eq!(found["content"][0]["input"], json!({}));
}

#[test]
fn unknown_members_of_a_call_are_named() {
    let mut signed = call(Some(0), Some("a"), Some("f"), "{}");
    signed["extra_content"] = json!({"google": {"thought_signature": "s"}});
    signed["function"]["strange"] = json!(1);
    let found = translate_at_every_cut(MessagesToChat, false, &stream(&[signed.clone()]));
    let wanted = "choices.delta.tool_calls.extra_content, choices.delta.tool_calls.function.strange";
    assert_eq!(found.losses, wanted);
    let body = json!({"id": "c", "model": "m", "usage": {"prompt_tokens": 1},
        "choices": [{"message": {"tool_calls": [signed]}, "finish_reason": "stop"}]});
    let (_, losses) = response(MessagesToChat, &body.to_string()).expect("translated");
    assert_eq!(losses, wanted.replace("delta", "message"));
}

/// A stream of Anthropic with a call, whose start has `input`, and deltas.
fn anthropic(input: Value, deltas: &[&str], reason: &str) -> Value {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "a", "model": "m"}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": input, "caller": {"type": "direct"}}}),
    ];
    events.extend(deltas.iter().map(|part| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": part, "x": 1}})
    }));
    events.push(json!({"type": "content_block_stop", "index": 0}));
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "context_management": {"x": 1}}));
    events.push(json!({"type": "message_stop"}));
    let found = translate_at_every_cut(ChatToMessages, false, &messages_stream(&events));
    let wanted = match deltas {
        [] => "content_block.caller, context_management",
        _ => "content_block.caller, delta.x, context_management",
    };
    assert_eq!((&found.error, &*found.losses), (&None, wanted));
    completion(found.out.as_bytes())["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].clone()
}

#[test]
fn deltas_replace_the_input_of_the_start() {
    assert_eq!(anthropic(json!({"x": 1}), &["{\"x\":", "1}"], "tool_use"), "{\"x\":1}");
    assert_eq!(anthropic(json!({"x": "\""}), &[], "tool_use"), "{\"x\":\"\\\"\"}");
    assert_eq!(anthropic(json!({}), &[], "tool_use"), "{}");
}

#[test]
fn a_call_that_a_limit_has_cut_before_its_input_has_no_arguments() {
    assert_eq!(anthropic(json!({}), &[], "max_tokens"), "");
    let body = json!({"id": "a", "model": "m", "stop_reason": "max_tokens", "content": [
        {"type": "tool_use", "id": "s", "name": "f", "input": {}}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]});
    let (found, _) = response(ChatToMessages, &body.to_string()).expect("translated");
    let arguments = |at: usize| &found["choices"][0]["message"]["tool_calls"][at]["function"]["arguments"];
    assert_eq!((arguments(0), arguments(1)), (&json!("{}"), &json!("")));
}

#[test]
fn inputs_that_are_held_are_bounded() {
    let large = "x".repeat(weir_ai_translate::limits::HELD_BYTES_MAX / 2);
    let start = |index: u64| {
        json!({"type": "content_block_start", "index": index,
        "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {"x": large}}})
    };
    let stop = json!({"type": "content_block_stop", "index": 0});
    let head = json!({"type": "message_start", "message": {"id": "a", "model": "m"}});
    let error = |events: &[Value]| {
        crate::support::translate(ChatToMessages, false, &messages_stream(events), &[]).error.map(|it| it.to_string())
    };
    assert_eq!(error(&[head.clone(), start(0), stop, start(1)]), None);
    assert!(error(&[head, start(0), start(1)]).expect("refused").contains("too large"));
}
