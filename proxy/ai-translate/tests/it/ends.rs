//! Messages that did not end well never seem to have.

use serde_json::{Value, json};
use weir_ai_session::End;
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};

use crate::support::{chat_stream, json as parsed, messages_stream, response, translate_at_every_cut};

const USAGE: &str = r#"{"prompt_tokens":1,"completion_tokens":1}"#;

fn completion(finish: Value) -> Value {
    json!({"id": "c", "model": "m", "usage": parsed(USAGE.as_bytes()),
        "choices": [{"index": 0, "message": {"content": "half"}, "finish_reason": finish}]})
}

fn half(finish: Value) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": finish}]})
}

#[test]
fn a_failure_of_a_chat_is_no_end() {
    let mut failed = completion(json!("stop"));
    failed["choices"][0]["error"] = json!({"code": 502, "message": "x"});
    for body in [completion(json!("error")), completion(json!("insufficient_system_resource")), failed] {
        assert!(response(MessagesToChat, &body.to_string()).is_err(), "{body}");
    }
    assert!(response(MessagesToChat, &completion(Value::Null).to_string()).is_err(), "it has not ended");
    let mut failed = half(Value::Null);
    failed["choices"][0]["error"] = json!({"code": 502, "message": "x"});
    for chunk in [half(json!("error")), half(json!("insufficient_system_resource")), failed] {
        let found = translate_at_every_cut(MessagesToChat, false, &chat_stream(&[half(Value::Null), chunk]));
        assert_eq!(found.end, End::Failed);
        assert!(found.out.contains("event: error\n") && !found.out.contains("message_stop"));
    }
}

#[test]
fn an_unknown_reason_is_a_cut_and_named() {
    for word in ["abort", "odd"] {
        let (found, losses) = response(MessagesToChat, &completion(json!(word)).to_string()).expect("translated");
        assert_eq!((&found["stop_reason"], &*losses), (&json!("max_tokens"), "choices.finish_reason"));
    }
    let (found, losses) = response(MessagesToChat, &completion(json!("eos")).to_string()).expect("translated");
    assert_eq!((&found["stop_reason"], &*losses), (&json!("end_turn"), "choices.finish_reason"));
}

#[test]
fn a_reason_of_calls_without_a_call_is_an_end() {
    for word in ["tool_calls", "function_call"] {
        let (found, losses) = response(MessagesToChat, &completion(json!(word)).to_string()).expect("translated");
        assert_eq!((&found["stop_reason"], &*losses), (&json!("end_turn"), "choices.finish_reason"));
        let found = translate_at_every_cut(MessagesToChat, false, &chat_stream(&[half(json!(word))]));
        assert!(found.out.contains("\"stop_reason\":\"end_turn\""));
        assert_eq!(found.losses, "choices.finish_reason, usage");
    }
}

#[test]
fn a_stream_without_a_reason_is_no_message() {
    for chunks in [&[][..], &[half(Value::Null)]] {
        let found = translate_at_every_cut(MessagesToChat, false, &chat_stream(chunks));
        assert_eq!(found.end, End::Missing);
        assert!(found.error.is_some() && !found.out.contains("message_stop"));
    }
    let start = json!({"type": "message_start", "message": {"id": "a", "model": "m"}});
    let found =
        translate_at_every_cut(ChatToMessages, false, &messages_stream(&[start, json!({"type": "message_stop"})]));
    assert_eq!(found.end, End::Missing);
    assert!(found.error.is_some() && !found.out.contains("[DONE]"));
    let body = r#"{"id":"a","model":"m","content":[],"stop_reason":null}"#;
    assert_eq!(response(ChatToMessages, body).expect_err("refused").param, "stop_reason");
}

#[test]
fn an_object_that_is_no_chunk_is_an_error() {
    for (report, message) in [
        (json!({"object": "error", "message": "CUDA out of memory", "code": 50001}), "CUDA out of memory"),
        (json!({"detail": "Internal Server Error"}), "Internal Server Error"),
    ] {
        let found = translate_at_every_cut(MessagesToChat, false, &chat_stream(&[report]));
        assert_eq!(found.end, End::Failed);
        assert!(found.out.contains(message), "{}", found.out);
    }
}

#[test]
fn a_code_that_is_a_status_gives_the_class_of_an_error_in_a_stream() {
    for (error, kind) in [
        (json!({"code": 429, "message": "x"}), "rate_limit_error"),
        (json!({"type": "BadRequestError", "code": 400, "message": "x"}), "invalid_request_error"),
        (json!({"code": 50001, "message": "x"}), "api_error"),
    ] {
        let found = translate_at_every_cut(MessagesToChat, false, &chat_stream(&[json!({"error": error})]));
        assert!(found.out.contains(kind), "{error}: {}", found.out);
    }
    let body =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}});
    let (_, found) = weir_ai_translate::translate_error(ChatToMessages, 400, body.to_string().as_bytes());
    assert_eq!(parsed(&found)["error"]["code"], "context_length_exceeded");
}
