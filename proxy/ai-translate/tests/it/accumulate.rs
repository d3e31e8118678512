//! Whole messages from streams, as the SDKs of both providers accumulate them (read in their Python sources: blocks by
//! index, calls by index, usage replaced).

use serde_json::{Value, json};

use crate::support::events;

/// Anthropic's message. It panics where the SDK raises, and where a rule of the stream is broken.
pub fn message(stream: &[u8]) -> Value {
    let mut message = Value::Null;
    let mut inputs: Vec<String> = Vec::new();
    let mut open: Vec<bool> = Vec::new();
    let mut is_stopped = false;
    for (name, data) in events(stream) {
        assert!(!is_stopped, "nothing follows the stop");
        let data: Value = serde_json::from_str(&data).expect("JSON");
        assert_eq!(name.as_deref(), data["type"].as_str(), "the SDK skips events without a name");
        let index = data["index"].as_u64().unwrap_or(0) as usize;
        match data["type"].as_str().expect("a type") {
            "message_start" => {
                assert!(message.is_null(), "one start");
                message = data["message"].clone();
            }
            _ if message.is_null() => panic!("the stream begins with its start"),
            "content_block_start" => {
                assert_eq!(index, open.len(), "the SDK appends blocks");
                message["content"].as_array_mut().expect("an array").push(data["content_block"].clone());
                open.push(true);
                inputs.push(String::new());
            }
            "content_block_delta" => {
                assert!(open[index], "the block is open");
                let delta = &data["delta"];
                let block = &mut message["content"][index];
                match delta["type"].as_str().expect("a type") {
                    "text_delta" => {
                        assert_eq!(block["type"], "text");
                        let text = [&block["text"], &delta["text"]].map(|text| text.as_str().expect("a text"));
                        block["text"] = text.concat().into();
                    }
                    "input_json_delta" => {
                        assert_eq!(block["type"], "tool_use");
                        inputs[index].push_str(delta["partial_json"].as_str().expect("a text"));
                    }
                    other => panic!("{other}"),
                }
            }
            "content_block_stop" => assert!(std::mem::take(&mut open[index]), "the block is open"),
            "message_delta" => {
                assert!(open.iter().all(|open| !open), "every block has ended");
                message["stop_reason"] = data["delta"]["stop_reason"].clone();
                message["stop_sequence"] = data["delta"]["stop_sequence"].clone();
                for (key, value) in data["usage"].as_object().expect("usage") {
                    message["usage"][key] = value.clone();
                }
            }
            "message_stop" => is_stopped = true,
            other => panic!("{other}"),
        }
    }
    assert!(is_stopped, "the stream has its end");
    for (block, input) in message["content"].as_array_mut().expect("an array").iter_mut().zip(&inputs) {
        if !input.is_empty() {
            // A text that a limit has cut is no object.
            block["input"] = serde_json::from_str(input).unwrap_or(json!({}));
        }
    }
    message
}

/// A chat's completion. Usage is null if the stream has none.
pub fn completion(stream: &[u8]) -> Value {
    let mut found = events(stream);
    assert_eq!(found.pop().expect("an end").1, "[DONE]");
    let (mut content, mut calls, mut finish, mut usage) =
        (String::new(), Vec::<Value>::new(), Value::Null, Value::Null);
    let mut names = Value::Null;
    for (name, data) in found {
        assert_eq!(name, None);
        let chunk: Value = serde_json::from_str(&data).expect("JSON");
        let own = json!([chunk["id"], chunk["object"], chunk["created"], chunk["model"]]);
        assert!(names.is_null() || names == own, "each chunk repeats the same");
        names = own;
        assert!(usage.is_null(), "the chunk of usage is the last");
        let choices = chunk["choices"].as_array().expect("choices");
        if choices.is_empty() {
            usage = chunk["usage"].clone();
            continue;
        }
        assert!(finish.is_null() && choices.len() == 1 && choices[0]["index"] == 0);
        finish = choices[0]["finish_reason"].clone();
        let delta = &choices[0]["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("an index") as usize;
            if index == calls.len() {
                calls.push(json!({"id": call["id"], "type": call["type"],
                    "function": {"name": call["function"]["name"], "arguments": ""}}));
            }
            let arguments = &mut calls[index]["function"]["arguments"];
            let parts = [&*arguments, &call["function"]["arguments"]].map(|part| part.as_str().expect("a text"));
            *arguments = parts.concat().into();
        }
    }
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({"id": names[0], "created": names[2], "model": names[3], "object": "chat.completion", "usage": usage,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}]})
}
