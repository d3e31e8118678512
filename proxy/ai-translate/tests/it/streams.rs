//! Golden streams, wherever they are cut, and their errors.

use serde_json::{Value, json};
use weir_ai_session::{End, Failure};
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};
use weir_ai_translate::{Direction, StreamTranslator};
use weir_sse_codec::Limits;

use crate::accumulate::{completion, message};
use crate::support::{CREATED, chat_stream, messages_stream, translate, translate_at_every_cut};

/// The fixtures of the session: a stream of each provider.
const MESSAGES: &[u8] = include_bytes!("../../../ai-session/tests/it/fixtures/anthropic.sse");
const CHAT: &[u8] = include_bytes!("../../../ai-session/tests/it/fixtures/chat.sse");

const CHUNK: &str = r#"{"id":"msg_1","object":"chat.completion.chunk","created":1700000000,"model":"claude","choices":[{"index":0,"delta":"#;

#[test]
fn a_stream_of_anthropic_becomes_chunks() {
    let found = translate_at_every_cut(ChatToMessages, true, MESSAGES);
    let chunk = |delta: &str, finish: &str| {
        format!("data: {CHUNK}{delta},\"logprobs\":null,\"finish_reason\":{finish}}}],\"usage\":null}}\n\n")
    };
    let golden = [
        chunk(r#"{"role":"assistant","content":"","refusal":null}"#, "null"),
        ": ping\n\n".to_owned(),
        chunk(r#"{"content":"Okay, let me see."}"#, "null"),
        chunk(r#"{"tool_calls":[{"index":0,"id":"toolu_1","type":"function","function":{"name":"f","arguments":""}}]}"#, "null"),
        chunk(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"location\": \"Sa"}}]}"#, "null"),
        chunk("{}", "\"tool_calls\""),
        concat!(
            r#"data: {"id":"msg_1","object":"chat.completion.chunk","created":1700000000,"model":"claude","choices":[],"#,
            r#""usage":{"prompt_tokens":2125,"completion_tokens":89,"total_tokens":2214,"#,
            r#""prompt_tokens_details":{"cached_tokens":2000,"cache_write_tokens":100}}}"#,
            "\n\n"
        )
        .to_owned(),
        "data: [DONE]\n\n".to_owned(),
    ];
    assert_eq!(found.out, golden.concat());
    assert_eq!((found.end, found.error, &*found.losses), (End::Done, None, ""));
    let without = translate(ChatToMessages, false, MESSAGES, &[]);
    assert!(!without.out.contains("usage"), "the client requests none");
}

#[test]
fn a_stream_of_a_chat_becomes_events() {
    let found = translate_at_every_cut(MessagesToChat, false, CHAT);
    let event = |name: &str, rest: &str| format!("event: {name}\ndata: {{\"type\":\"{name}\"{rest}}}\n\n");
    let golden = [
        event(
            "message_start",
            concat!(
                r#","message":{"id":"c1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"#,
                r#""stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}"#
            ),
        ),
        ": keep-alive\n\n".to_owned(),
        event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
        event("content_block_delta", r#","index":0,"delta":{"type":"text_delta","text":"Café \u00e9 \"usage\":{"}"#),
        event("content_block_stop", r#","index":0"#),
        event(
            "content_block_start",
            r#","index":1,"content_block":{"type":"tool_use","id":"call_1","name":"f","input":{}}"#,
        ),
        event("content_block_delta", r#","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}"#),
        event("content_block_stop", r#","index":1"#),
        event(
            "message_delta",
            concat!(
                r#","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":"#,
                r#"{"input_tokens":5,"cache_read_input_tokens":4,"output_tokens":14,"output_tokens_details":{"thinking_tokens":5}}"#
            ),
        ),
        event("message_stop", ""),
    ];
    assert_eq!(found.out, golden.concat());
    assert_eq!((found.end, found.error, &*found.losses), (End::Done, None, ""));
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn fragment(index: u64, id: Option<&str>, arguments: &str) -> Value {
    let mut call = json!({"index": index, "function": {"arguments": arguments}});
    if let Some(id) = id {
        call["id"] = json!(id);
        call["type"] = json!("function");
        call["function"]["name"] = json!(format!("f{index}"));
    }
    chunk(json!({"tool_calls": [call]}), Value::Null)
}

/// Names of the events with the index of their block.
fn order(stream: &str) -> Vec<String> {
    let events = crate::support::events(stream.as_bytes());
    let name = |(_, data): &(_, String)| {
        let data: Value = serde_json::from_str(data).expect("JSON");
        let name = data["type"].as_str().expect("a type").replace("content_block_", "");
        match data["index"].as_u64() {
            Some(index) => format!("{name} {index}"),
            None => name,
        }
    };
    events.iter().map(name).filter(|name| !name.starts_with("message")).collect()
}

#[test]
fn calls_that_follow_one_another_are_blocks_that_do() {
    let stream = chat_stream(&[
        fragment(0, Some("a"), ""),
        fragment(0, None, "{\"x\":"),
        fragment(0, None, "\"}\"}"),
        fragment(1, Some("b"), "{}"),
        chunk(json!({"content": "t"}), json!("tool_calls")),
    ]);
    let found = translate_at_every_cut(MessagesToChat, false, &stream);
    assert_eq!(
        order(&found.out),
        ["start 0", "delta 0", "delta 0", "stop 0", "start 1", "delta 1", "stop 1", "start 2", "delta 2", "stop 2"]
    );
}

#[test]
fn calls_that_interleave_keep_their_own_blocks() {
    let stream = chat_stream(&[
        fragment(0, Some("a"), ""),
        fragment(1, Some("b"), ""),
        fragment(0, None, "{\"x\":"),
        fragment(1, None, "{\"y\":"),
        fragment(0, None, "1}"),
        fragment(1, None, "2}"),
        chunk(json!({}), json!("tool_calls")),
    ]);
    let found = translate_at_every_cut(MessagesToChat, false, &stream);
    let whole = message(found.out.as_bytes());
    assert_eq!(
        whole["content"],
        json!([{"type": "tool_use", "id": "a", "name": "f0", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "f1", "input": {"y": 2}}])
    );
    let late = chat_stream(&[fragment(0, Some("a"), "{}"), fragment(1, Some("b"), "{}"), fragment(0, None, "x")]);
    assert!(translate(MessagesToChat, false, &late, &[]).error.is_some(), "it has ended");
}

#[test]
fn a_call_that_a_limit_has_cut_ends_its_block() {
    let cut = |finish: &str| {
        let stream = chat_stream(&[fragment(0, Some("a"), "{\"x\":"), chunk(json!({}), json!(finish))]);
        translate_at_every_cut(MessagesToChat, false, &stream)
    };
    let found = cut("length");
    assert_eq!((found.error, &*found.losses), (None, "usage, choices.message.tool_calls.arguments"));
    assert_eq!(message(found.out.as_bytes())["stop_reason"], "max_tokens");
    assert!(cut("tool_calls").error.is_some(), "no client could read it");
}

#[test]
fn a_call_without_input_has_an_empty_object() {
    let stream = messages_stream(&[
        json!({"type": "message_start", "message": {"id": "a", "model": "m", "content": []}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "t"}}),
        json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": "f", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2,
            "content_block": {"type": "tool_use", "id": "t2", "name": "g", "input": {"x": 1}}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}}),
        json!({"type": "brand_new"}),
        json!({"type": "message_stop"}),
    ]);
    let found = translate_at_every_cut(ChatToMessages, true, &stream);
    let whole = completion(found.out.as_bytes());
    let arguments = |at: usize| &whole["choices"][0]["message"]["tool_calls"][at]["function"]["arguments"];
    assert_eq!((arguments(0), arguments(1)), (&json!("{}"), &json!("{\"x\":1}")));
    assert_eq!(found.losses, "content.thinking, event.brand_new");
}

#[test]
fn a7_a_stream_says_how_it_ended() {
    let end = |direction, stream: &[u8]| {
        let found = translate_at_every_cut(direction, true, stream);
        (found.end, found.error.is_some())
    };
    let text = chunk(json!({"content": "a"}), Value::Null).to_string();
    let last = chunk(json!({}), json!("stop")).to_string();
    let data = |parts: &[&str]| parts.iter().map(|part| format!("data: {part}\n\n")).collect::<String>().into_bytes();
    assert_eq!(end(MessagesToChat, &data(&[&text])), (End::Missing, false));
    assert_eq!(end(MessagesToChat, &data(&[&text, &last])), (End::Done, false), "some servers send no [DONE]");
    assert_eq!(end(MessagesToChat, &data(&[&text, "[DONE]"])), (End::Missing, true));
    assert_eq!(
        end(MessagesToChat, &data(&[&last, "[DONE]", "{"])),
        (End::Done, false),
        "nothing behind the end counts"
    );
    assert_eq!(end(MessagesToChat, &data(&[&text, "<html>"])), (End::Missing, true));
    assert_eq!(end(MessagesToChat, b"event: x\n\n: c\r\rdata:\n\n"), (End::Missing, false), "events without data");
    let start = br#"data: {"type":"message_start","message":{"id":"a","model":"m"}}"#;
    assert_eq!(end(ChatToMessages, &[start, &b"\n\n"[..]].concat()), (End::Missing, false));
    let reason = &b"\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"[..];
    assert_eq!(end(ChatToMessages, &[start, reason].concat()), (End::Done, false), "some servers send no stop");
    let done = [start, reason, &b"data: {\"type\":\"message_stop\"}\n\n"[..]].concat();
    assert_eq!(end(ChatToMessages, &done), (End::Done, false), "the type counts, also without a name");
}

#[test]
fn an_error_within_a_stream_has_the_form_of_the_client() {
    let overloaded = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
    let found = translate_at_every_cut(ChatToMessages, false, &messages_stream(&[overloaded]));
    let wanted =
        "data: {\"error\":{\"message\":\"busy\",\"type\":\"server_error\",\"param\":null,\"code\":\"overloaded\"}}\n\n";
    assert_eq!((&*found.out, found.end), (wanted, End::Failed));
    for (error, kind) in [
        (json!({"message": "busy", "type": "requests", "code": "rate_limit_exceeded"}), "rate_limit_error"),
        (json!({"message": "busy", "type": "server_error", "code": null}), "api_error"),
        (json!({"message": "busy", "type": "invalid_request_error", "code": null}), "invalid_request_error"),
        (json!("busy"), "api_error"),
    ] {
        let stream = chat_stream(&[json!({"error": error})]);
        let found = translate_at_every_cut(MessagesToChat, false, &stream);
        let wanted = format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"busy\"}}}}\n\n"
        );
        assert_eq!((&*found.out, found.end), (&*wanted, End::Failed), "no stop follows an error");
    }
    let named = translate(MessagesToChat, false, b"event: error\ndata: late\n\n", &[]);
    assert_eq!(named.end, End::Failed);
}

#[test]
fn the_gateway_ends_a_stream_in_the_form_of_the_client() {
    let failure = Failure { kind: "server_error", anthropic_kind: "api_error", code: "idle_timeout", message: "late" };
    for (direction, wanted) in [
        (
            ChatToMessages,
            "data: {\"error\":{\"message\":\"late\",\"type\":\"server_error\",\"param\":null,\"code\":\"idle_timeout\"}}\n\n",
        ),
        (
            MessagesToChat,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"late\"}}\n\n",
        ),
    ] {
        let mut translator = StreamTranslator::new(direction, CREATED, true, Limits::default());
        let mut out = Vec::new();
        translator.push(b"data: {\"half", &mut out).expect("within limits");
        translator.fail(&failure, &mut out);
        assert_eq!(String::from_utf8_lossy(&out), wanted);
        assert_eq!(translator.end(), End::Failed);
        translator.push(b"\"}\n\n", &mut out).expect("ignored");
        assert_eq!(out.len(), wanted.len(), "nothing follows");
    }
}

#[test]
fn a3_a_line_without_an_end_is_an_error() {
    for direction in Direction::ALL {
        let mut translator =
            StreamTranslator::new(direction, CREATED, true, Limits { line_bytes: 64, event_bytes: 64 });
        let mut out = Vec::new();
        assert!(translator.push(&[b'x'; 65], &mut out).is_err());
        assert!(out.is_empty());
    }
}

#[test]
fn deltas_without_a_counterpart_are_lost_and_named() {
    let stream = chat_stream(&[
        json!({"id": "", "model": "", "choices": [], "obfuscation": "xyz"}),
        chunk(json!({"role": "assistant", "content": null, "reasoning_content": "r"}), Value::Null),
        chunk(json!({"content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]}), Value::Null),
        json!({"choices": [{"index": 1, "delta": {"content": "b"}}], "prompt_filter_results": [1]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END",
            "usage": {"prompt_tokens": 3, "completion_tokens": 1}}]}),
    ]);
    let found = translate_at_every_cut(MessagesToChat, false, &stream);
    let whole = message(found.out.as_bytes());
    assert_eq!(found.losses, "choices.delta.reasoning_content, content.thinking, choices, prompt_filter_results");
    assert_eq!(
        whole,
        json!({"id": "c", "type": "message", "role": "assistant", "model": "m",
        "content": [{"type": "text", "text": "a"}], "stop_reason": "stop_sequence", "stop_sequence": "END",
        "usage": {"input_tokens": 3, "output_tokens": 1}})
    );
    let refusal = chat_stream(&[chunk(json!({"refusal": "no"}), json!("stop"))]);
    let found = translate_at_every_cut(MessagesToChat, false, &refusal);
    assert_eq!(message(found.out.as_bytes())["stop_reason"], "refusal");
}
