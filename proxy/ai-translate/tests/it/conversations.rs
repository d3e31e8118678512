//! Conversations of a chat that Anthropic would refuse, or understand in another way.

use serde_json::{Value, json};
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};
use weir_ai_translate::{Options, translate_request};

use crate::support::{json as parsed, request};

fn with(messages: Value, members: Value) -> String {
    let mut body = json!({"model": "m", "messages": messages});
    for (key, value) in members.as_object().expect("an object") {
        body[key] = value.clone();
    }
    body.to_string()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_chat_that_ends_with_the_assistant_is_refused() {
    let messages = json!([{"role": "user", "content": "Name a colour"}, {"role": "assistant", "content": "I like "}]);
    assert_eq!(request(ChatToMessages, &with(messages, json!({}))).expect_err("refused").param, "messages");
}

#[test]
fn a_conversation_without_a_text_is_refused() {
    for messages in [
        json!([]),
        json!([{"role": "user", "content": ""}]),
        json!([{"role": "user", "content": " \n"}]),
        json!([{"role": "system", "content": "s"}]),
    ] {
        let mistake = request(ChatToMessages, &with(messages.clone(), json!({}))).expect_err("refused");
        assert_eq!(mistake.param, "messages", "{messages}");
    }
}

#[test]
fn texts_of_white_space_are_left_out() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([{"role": "system", "content": "\t"}, {"role": "user", "content": [text(" "), text(" a")]},
        {"role": "assistant", "content": "\n\n", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": [text("\r\n"), text("r")]}]);
    let (found, _) = request(ChatToMessages, &with(messages, json!({}))).expect("translated");
    assert_eq!(found.get("system"), None);
    assert_eq!(
        found["messages"],
        json!([{"role": "user", "content": [text(" a")]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [text("r")]}]}])
    );
}

#[test]
fn thinking_is_lost_behind_a_turn_with_calls() {
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let mut messages = vec![
        json!({"role": "user", "content": "a"}),
        json!({"role": "assistant", "tool_calls": [call]}),
        json!({"role": "tool", "tool_call_id": "c", "content": "r"}),
    ];
    let (found, losses) = request(ChatToMessages, &with(json!(messages), thinking.clone())).expect("translated");
    assert_eq!((found.get("thinking"), &*losses), (None, "thinking"));
    messages.extend([json!({"role": "assistant", "content": "b"}), json!({"role": "user", "content": "c"})]);
    let (found, losses) = request(ChatToMessages, &with(json!(messages), thinking.clone())).expect("translated");
    assert_eq!((&found["thinking"], &*losses), (&thinking["thinking"], ""));
}

#[test]
fn one_of_temperature_and_top_p_goes_to_anthropic() {
    let user = json!([{"role": "user", "content": "a"}]);
    for (members, top_p, lost) in [
        (json!({"temperature": 0.7, "top_p": 1}), None, ""),
        (json!({"temperature": 0.7, "top_p": 0.5}), None, "top_p"),
        (json!({"top_p": 0.5}), Some(json!(0.5)), ""),
    ] {
        let (found, losses) = request(ChatToMessages, &with(user.clone(), members)).expect("translated");
        assert_eq!((found.get("top_p").cloned(), &*losses), (top_p, lost));
    }
}

#[test]
fn values_that_mean_something_are_named_though_they_are_zero_or_false() {
    let user = json!([{"role": "user", "content": "a"}]);
    let members = json!({"seed": 0, "skip_special_tokens": false, "frequency_penalty": 0, "store": false, "x": []});
    let (_, losses) = request(ChatToMessages, &with(user, members)).expect("translated");
    let mut names: Vec<&str> = losses.split(", ").collect();
    names.sort_unstable();
    assert_eq!(names, ["seed", "skip_special_tokens"]);
}

#[test]
fn effort_is_lost_where_the_model_has_none() {
    let body = with(json!([{"role": "user", "content": "a"}]), json!({"reasoning_effort": "high"}));
    let options = Options { has_effort: false, ..Options::default() };
    let found = translate_request(ChatToMessages, body.as_bytes(), &options).expect("translated");
    assert_eq!(parsed(&found.body).get("output_config"), None);
    assert_eq!(found.losses.header_value(), "reasoning_effort");
}

#[test]
fn images_and_documents_have_a_form_that_the_provider_takes() {
    let image = |url: &str| {
        let messages = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]);
        request(ChatToMessages, &with(messages, json!({})))
    };
    assert_eq!(image("data:image/svg+xml,%3Csvg").expect_err("refused").param, "messages.content.image_url.url");
    let (found, _) = image("data:image/jpg;BASE64,AAAA").expect("translated");
    let source = json!({"type": "base64", "media_type": "image/jpeg", "data": "AAAA"});
    assert_eq!(found["messages"][0]["content"][0]["source"], source);
    let document = |media: &str, title: &str| {
        let block = json!({"type": "document", "title": title,
            "source": {"type": "base64", "media_type": media, "data": "AA\"=="}});
        request(MessagesToChat, &with(json!([{"role": "user", "content": [block]}]), json!({})))
    };
    assert_eq!(document("text/csv", "t").expect_err("refused").param, "messages.content.source.media_type");
    for title in ["Q3 report", "Q3 report.pdf"] {
        let (found, _) = document("application/pdf", title).expect("translated");
        let file = &found["messages"][0]["content"][0]["file"];
        assert_eq!(file["filename"], "Q3 report.pdf");
        assert_eq!(file["file_data"], "data:application/pdf;base64,AA\"==");
    }
}

#[test]
fn tools_and_stops_that_anthropic_refuses_are_mended_or_refused() {
    let user = json!([{"role": "user", "content": "a"}]);
    let tool = json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]});
    let (found, _) = request(ChatToMessages, &with(user.clone(), tool)).expect("translated");
    assert_eq!(found["tools"][0]["input_schema"]["type"], "object");
    for members in [json!({"stop": "\n"}), json!({"stop": ["a", " "]})] {
        assert_eq!(request(ChatToMessages, &with(user.clone(), members)).expect_err("refused").param, "stop");
    }
    let tool = json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]});
    assert!(request(ChatToMessages, &with(user, tool)).is_err());
}
