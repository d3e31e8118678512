//! Tokens that a client sees are those that the gateway bills.

use serde_json::{Value, json};
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};

use crate::support::{chat_stream, response, translate_at_every_cut};

fn of_chat(usage: Value) -> (Value, String) {
    let body = json!({"id": "c", "model": "m", "usage": usage,
        "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "stop"}]});
    let (found, losses) = response(MessagesToChat, &body.to_string()).expect("translated");
    (found["usage"].clone(), losses)
}

#[test]
fn the_words_of_compatible_servers_count() {
    for (usage, wanted) in [
        (
            json!({"prompt_tokens": 100, "completion_tokens": 1, "prompt_cache_hit_tokens": 90, "prompt_cache_miss_tokens": 10}),
            json!({"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1}),
        ),
        (json!({"input_tokens": 10, "output_tokens": 5}), json!({"input_tokens": 10, "output_tokens": 5})),
        (
            json!({"input_tokens": 10, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4},
                "output_tokens_details": {"reasoning_tokens": 3}}),
            json!({"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 3}}),
        ),
    ] {
        assert_eq!(of_chat(usage), (wanted, String::new()));
    }
}

#[test]
fn a_report_that_is_missing_is_named() {
    assert_eq!(of_chat(Value::Null), (json!({"input_tokens": 0, "output_tokens": 0}), "usage".to_owned()));
    let last =
        json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]});
    let found = translate_at_every_cut(MessagesToChat, false, format!("data: {last}\n\n").as_bytes());
    assert_eq!(found.losses, "usage");
    let report = json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}});
    assert_eq!(translate_at_every_cut(MessagesToChat, false, &chat_stream(&[last, report])).losses, "");
}

#[test]
fn figures_without_a_counterpart_are_named() {
    let (_, losses) = of_chat(json!({"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.5,
        "completion_tokens_details": {"audio_tokens": 2, "rejected_prediction_tokens": 0}}));
    assert_eq!(losses, "usage.completion_tokens_details.audio_tokens, usage.cost");
    let body = json!({"id": "a", "model": "m", "content": [], "stop_reason": "end_turn", "usage": {
        "input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 3, "service_tier": "priority",
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2},
        "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0}}});
    let (_, losses) = response(ChatToMessages, &body.to_string()).expect("translated");
    let wanted =
        "usage.cache_creation.ephemeral_1h_input_tokens, usage.server_tool_use.web_search_requests, usage.service_tier";
    assert_eq!(losses, wanted);
}
