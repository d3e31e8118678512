//! Golden pairs of buffered responses and of errors.

use serde_json::{Value, json};
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};
use weir_ai_translate::{Direction, Mistake, translate_error};

use crate::support::{CREATED, json as parsed, response};

fn message(content: Value, stop_reason: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content,
        "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": 25, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 2000,
            "output_tokens": 89, "output_tokens_details": {"thinking_tokens": 9}, "service_tier": "standard"}})
}

fn completion(chat_message: Value, finish_reason: &str) -> Value {
    json!({"id": "msg_1", "object": "chat.completion", "created": CREATED, "model": "claude",
        "choices": [{"index": 0, "message": chat_message, "logprobs": null, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 2125, "completion_tokens": 89, "total_tokens": 2214,
            "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 9}}})
}

#[test]
fn a_message_becomes_a_completion() {
    let calls = json!([{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]);
    for (content, reason, chat_message, finish, lost) in [
        (
            json!([{"type": "text", "text": "Hi"}]),
            "end_turn",
            json!({"role": "assistant", "content": "Hi", "refusal": null}),
            "stop",
            "",
        ),
        (
            json!([{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a", "citations": null},
            {"type": "text", "text": "b", "citations": [1]}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}]),
            "tool_use",
            json!({"role": "assistant", "content": "ab", "refusal": null, "tool_calls": calls}),
            "tool_calls",
            "content.thinking, content.citations",
        ),
        (json!([]), "refusal", json!({"role": "assistant", "content": null, "refusal": null}), "content_filter", ""),
        (json!([]), "max_tokens", json!({"role": "assistant", "content": null, "refusal": null}), "length", ""),
        (
            json!([{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]),
            "pause_turn",
            json!({"role": "assistant", "content": null, "refusal": null}),
            "stop",
            "stop_reason, content.server_tool_use",
        ),
    ] {
        let (found, losses) = response(ChatToMessages, &message(content, reason).to_string()).expect("translated");
        assert_eq!(found, completion(chat_message, finish));
        assert_eq!(losses, lost);
    }
    let mut stopped = message(json!([]), "stop_sequence");
    stopped["stop_sequence"] = json!("x");
    stopped["usage"] = Value::Null;
    let (found, losses) = response(ChatToMessages, &stopped.to_string()).expect("translated");
    assert_eq!((found.get("usage"), &found["choices"][0]["finish_reason"]), (None, &json!("stop")));
    assert_eq!(losses, "stop_sequence");
}

#[test]
fn a_completion_becomes_a_message() {
    let call =
        |arguments: &str| json!([{"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}]);
    let text = json!({"type": "text", "text": "Hi"});
    let tool = |input: Value| json!({"type": "tool_use", "id": "c1", "name": "f", "input": input});
    for (chat_message, finish, content, reason, lost) in [
        (json!({"role": "assistant", "content": "Hi"}), "stop", json!([text]), "end_turn", ""),
        (
            json!({"role": "assistant", "content": "Hi", "tool_calls": call("{\"a\":1}")}),
            "tool_calls",
            json!([text, tool(json!({"a": 1}))]),
            "tool_use",
            "",
        ),
        (
            json!({"role": "assistant", "content": null, "tool_calls": call("")}),
            "stop",
            json!([tool(json!({}))]),
            "tool_use",
            "",
        ),
        (
            json!({"role": "assistant", "content": null, "tool_calls": call("{\"a\":")}),
            "length",
            json!([tool(json!({}))]),
            "max_tokens",
            "choices.message.tool_calls.arguments",
        ),
        (json!({"role": "assistant", "content": null, "refusal": "Hi"}), "stop", json!([text]), "refusal", ""),
        (json!({"role": "assistant", "content": ""}), "content_filter", json!([]), "refusal", ""),
        (
            json!({"role": "assistant", "content": "Hi", "reasoning_content": "r", "annotations": []}),
            "eos",
            json!([text]),
            "end_turn",
            "choices.finish_reason, choices.message.reasoning_content",
        ),
    ] {
        let body = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "service_tier": "default",
            "choices": [{"index": 0, "message": chat_message, "finish_reason": finish, "logprobs": null}],
            "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 4, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 2}}});
        let (found, losses) = response(MessagesToChat, &body.to_string()).expect("translated");
        assert_eq!(
            found,
            json!({"id": "c", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": reason, "stop_sequence": null,
            "usage": {"input_tokens": 7, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 8, "output_tokens": 10,
                "output_tokens_details": {"thinking_tokens": 2}}})
        );
        assert_eq!(losses, lost);
    }
}

#[test]
fn the_sequence_that_vllm_names_is_anthropics() {
    let body = json!({"id": "c", "model": "m", "choices": [{"index": 0, "message": {"content": "a"},
        "finish_reason": "stop", "stop_reason": "END"}]});
    let (found, _) = response(MessagesToChat, &body.to_string()).expect("translated");
    assert_eq!((&found["stop_reason"], &found["stop_sequence"]), (&json!("stop_sequence"), &json!("END")));
    assert_eq!(found["usage"], json!({"input_tokens": 0, "output_tokens": 0}));
}

#[test]
fn a13_figures_that_lie_are_cut_to_a_bound() {
    let body = r#"{"id":"c","model":"m","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"usage":
        {"prompt_tokens":5,"completion_tokens":9223372036854775808,"prompt_tokens_details":{"cached_tokens":99},
        "completion_tokens_details":{"reasoning_tokens":-1}}}"#;
    let (found, _) = response(MessagesToChat, body).expect("translated");
    assert_eq!(
        found["usage"],
        json!({"input_tokens": 0, "cache_read_input_tokens": 5, "output_tokens": 1_u64 << 32,
        "output_tokens_details": {"thinking_tokens": 0}})
    );
    let mut lying = message(json!([]), "end_turn");
    lying["usage"] = json!({"input_tokens": u64::MAX, "cache_read_input_tokens": 1.5, "output_tokens": "7"});
    let (found, _) = response(ChatToMessages, &lying.to_string()).expect("translated");
    assert_eq!(found["usage"]["total_tokens"], 1_u64 << 32);
}

#[test]
fn a_response_that_is_no_message_is_the_providers_mistake() {
    for body in [
        "",
        "[]",
        "<html>",
        r#"{"id":"a","model":"m"}"#,
        r#"{"id":"a","model":"m","content":7,"choices":7}"#,
        r#"{"id":"a","model":"m","content":[{"text":"a"}],"choices":[]}"#,
        r#"{"id":"a","model":"m","content":[{"type":"tool_use","id":"t","name":"f","input":"{}"}],"choices":[{}]}"#,
        r#"{"id":"a","model":"m","content":"a","usage":{},"usage":{},"choices":[{"message":{"tool_calls":[{"id":"c",
            "function":{"name":"f","arguments":"[1]"}}]},"finish_reason":"stop"}]}"#,
    ] {
        for direction in Direction::ALL {
            assert!(response(direction, body).is_err(), "{body}");
        }
    }
    assert_eq!(Mistake::failure().code, "upstream_bad_response");
}

#[test]
fn errors_have_status_type_and_code_of_the_other_dialect() {
    for (kind, status, client_status, openai, code) in [
        ("invalid_request_error", 400, 400, "invalid_request_error", Value::Null),
        ("authentication_error", 401, 401, "invalid_request_error", json!("invalid_api_key")),
        ("billing_error", 402, 402, "insufficient_quota", json!("insufficient_quota")),
        ("permission_error", 403, 403, "invalid_request_error", json!("forbidden")),
        ("not_found_error", 404, 404, "invalid_request_error", json!("model_not_found")),
        ("request_too_large", 413, 413, "invalid_request_error", json!("request_too_large")),
        ("rate_limit_error", 429, 429, "requests", json!("rate_limit_exceeded")),
        ("api_error", 500, 500, "server_error", Value::Null),
        ("timeout_error", 504, 504, "server_error", json!("upstream_timeout")),
        ("overloaded_error", 529, 503, "server_error", json!("overloaded")),
    ] {
        let body = json!({"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "r"}).to_string();
        let (status, body) = translate_error(ChatToMessages, status, body.as_bytes());
        assert_eq!(status, client_status);
        assert_eq!(parsed(&body), json!({"error": {"message": "m", "type": openai, "param": null, "code": code}}));
    }
    for (status, kind, code, client_status, anthropic) in [
        (400, "invalid_request_error", Value::Null, 400, "invalid_request_error"),
        (401, "invalid_request_error", json!("invalid_api_key"), 401, "authentication_error"),
        (404, "invalid_request_error", json!("model_not_found"), 404, "not_found_error"),
        (422, "invalid_request_error", Value::Null, 422, "invalid_request_error"),
        (429, "tokens", json!("rate_limit_exceeded"), 429, "rate_limit_error"),
        (429, "insufficient_quota", json!("insufficient_quota"), 429, "billing_error"),
        (500, "server_error", Value::Null, 500, "api_error"),
        (502, "server_error", Value::Null, 502, "api_error"),
        (503, "server_error", Value::Null, 529, "overloaded_error"),
    ] {
        let body = json!({"error": {"message": "m", "type": kind, "param": null, "code": code}}).to_string();
        let (found, body) = translate_error(MessagesToChat, status, body.as_bytes());
        assert_eq!(found, client_status);
        assert_eq!(parsed(&body), json!({"type": "error", "error": {"type": anthropic, "message": "m"}}), "{status}");
    }
}

#[test]
fn an_error_of_any_form_is_one_of_the_dialect() {
    for (body, message) in [
        (r#"{"error":"busy"}"#, "busy"),
        (r#"{"object":"error","message":"busy","code":400}"#, "busy"),
        (r#"{"error":{"message":["x"]}}"#, "The provider reported an error."),
        ("<html>502</html>", "The provider reported an error."),
        ("", "The provider reported an error."),
    ] {
        for direction in Direction::ALL {
            let (_, found) = translate_error(direction, 502, body.as_bytes());
            assert_eq!(parsed(&found)["error"]["message"], message, "{body}");
        }
    }
    let long = json!({"error": {"message": "é".repeat(5000)}}).to_string();
    let (_, found) = translate_error(MessagesToChat, 400, long.as_bytes());
    assert_eq!(parsed(&found)["error"]["message"].as_str().map(str::len), Some(4096));
}
