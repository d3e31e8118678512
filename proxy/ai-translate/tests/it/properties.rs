//! Streams against whole messages, and requests there and back.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};

use crate::accumulate::{completion, message};
use crate::support::{chat_stream, messages_stream, request, response, translate};

/// A text, also with escapes, line breaks and characters of several bytes.
fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "é", "\n", "\"", "\\", "😀", "data: ", "}", " "]), 1..8)
        .prop_map(|parts| parts.concat())
}

/// A text that is more than white space, which Anthropic refuses.
fn visible() -> impl Strategy<Value = String> {
    text().prop_filter("a text", |text| !text.trim().is_empty())
}

/// An object of arguments as text.
fn arguments() -> impl Strategy<Value = Value> {
    let value = prop_oneof![text().prop_map(Value::from), any::<i32>().prop_map(Value::from), Just(json!([{}, null]))];
    prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), value, 0..3)
        .prop_map(|members| json!(members))
}

#[derive(Clone, Debug)]
struct Reply {
    texts: Vec<String>,
    calls: Vec<Value>,
    stop: &'static str,
    usage: (u32, Option<u32>, Option<u32>, u32),
}

fn reply(stops: &'static [&'static str]) -> impl Strategy<Value = Reply> {
    let figure = || 0..1_000_000_u32;
    let usage = (figure(), prop::option::of(figure()), prop::option::of(figure()), figure());
    let parts = (prop::collection::vec(text(), 0..4), prop::collection::vec(arguments(), 0..4));
    (parts, prop::sample::select(stops), usage).prop_map(|((texts, calls), stop, usage)| Reply {
        texts,
        calls,
        stop,
        usage,
    })
}

/// Pieces of a text of at most `size` characters.
fn pieces(text: &str, size: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// Anthropic's events of a reply. Calls come behind the texts.
fn events(reply: &Reply, size: usize) -> Vec<Value> {
    let (input, cached, written, output) = reply.usage;
    let usage = json!({"input_tokens": input, "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written, "output_tokens": 1});
    let mut events = vec![json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
        "role": "assistant", "model": "m", "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}})];
    let mut index = 0;
    let mut block = |start: Value, deltas: Vec<Value>| {
        let wrap = |delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let mut all = vec![json!({"type": "content_block_start", "index": index, "content_block": start})];
        all.extend(deltas.into_iter().map(wrap));
        all.push(json!({"type": "content_block_stop", "index": index}));
        index += 1;
        all
    };
    for text in &reply.texts {
        let delta = |text: String| json!({"type": "text_delta", "text": text});
        events.extend(block(json!({"type": "text", "text": ""}), pieces(text, size).into_iter().map(delta).collect()));
    }
    for (at, call) in reply.calls.iter().enumerate() {
        let delta = |part: String| json!({"type": "input_json_delta", "partial_json": part});
        let input = if *call == json!({}) { String::new() } else { call.to_string() };
        let start = json!({"type": "tool_use", "id": format!("t{at}"), "name": "f", "input": {}});
        events.extend(block(start, pieces(&input, size).into_iter().map(delta).collect()));
        events.push(json!({"type": "ping"}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reply.stop, "stop_sequence": null},
        "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    events
}

/// The same as a message.
fn whole_message(reply: &Reply) -> Value {
    let (input, cached, written, output) = reply.usage;
    let mut content: Vec<Value> = reply.texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
    content.extend(
        reply
            .calls
            .iter()
            .enumerate()
            .map(|(at, call)| json!({"type": "tool_use", "id": format!("t{at}"), "name": "f", "input": call})),
    );
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": reply.stop, "stop_sequence": null, "usage": {"input_tokens": input,
            "cache_read_input_tokens": cached, "cache_creation_input_tokens": written, "output_tokens": output}})
}

/// Chunks of a reply. Its calls come one after the other, or in turn.
fn chunks(reply: &Reply, size: usize, is_interleaved: bool) -> Vec<Value> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1,
        "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null})
    };
    let mut chunks = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    for piece in pieces(&reply.texts.concat(), size) {
        chunks.push(chunk(json!({"content": piece}), None));
    }
    let mut parts: Vec<(usize, Value)> = Vec::new();
    for (at, call) in reply.calls.iter().enumerate() {
        let call_start = json!({"index": at, "id": format!("t{at}"), "type": "function",
            "function": {"name": "f", "arguments": ""}});
        parts.push((0, call_start));
        for (number, piece) in pieces(&call.to_string(), size).into_iter().enumerate() {
            parts.push((number + 1, json!({"index": at, "function": {"arguments": piece}})));
        }
    }
    if is_interleaved {
        parts.sort_by_key(|(number, _)| *number);
    }
    chunks.extend(parts.into_iter().map(|(_, part)| chunk(json!({"tool_calls": [part]}), None)));
    chunks.push(chunk(json!({}), Some(reply.stop)));
    let mut last = chunk(json!({}), None);
    (last["choices"], last["usage"]) = (json!([]), chat_usage(reply));
    chunks.push(last);
    chunks
}

fn chat_usage(reply: &Reply) -> Value {
    let (prompt, cached, written, output) = reply.usage;
    json!({"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": u64::from(prompt) + u64::from(output),
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written}})
}

/// The same as a completion.
fn whole_completion(reply: &Reply) -> Value {
    let calls: Vec<Value> = reply
        .calls
        .iter()
        .enumerate()
        .map(|(at, call)| {
            json!({"id": format!("t{at}"),
        "type": "function", "function": {"name": "f", "arguments": call.to_string()}})
        })
        .collect();
    let mut message = json!({"role": "assistant", "content": reply.texts.concat(), "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "usage": chat_usage(reply),
        "choices": [{"index": 0, "message": message, "finish_reason": reply.stop}]})
}

/// Contents and arguments as values: a stream cannot know that no text will come, and the text of arguments may differ.
fn same_form(mut completion: Value) -> Value {
    let message = &mut completion["choices"][0]["message"];
    if message["content"].is_null() {
        message["content"] = json!("");
    }
    for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
        let arguments = &mut call["function"]["arguments"];
        // A limit may have cut a call before its arguments.
        if *arguments != "" {
            *arguments = serde_json::from_str(arguments.as_str().expect("a text")).expect("JSON");
        }
    }
    completion
}

/// A conversation in the form that both dialects can say.
fn conversation() -> impl Strategy<Value = Value> {
    let message = prop_oneof![
        visible().prop_map(|text| json!([{"role": "user", "content": text}])),
        prop::collection::vec(visible(), 2..4).prop_map(|texts| {
            let parts: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            json!([{"role": "user", "content": parts}])
        }),
        Just(
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}])
        ),
        visible().prop_map(|text| json!([{"role": "assistant", "content": text}])),
        (prop::option::of(visible()), prop::collection::vec((arguments(), visible()), 1..3)).prop_map(
            |(said, calls)| {
                let call = |(at, (input, _)): (usize, &(Value, String))| {
                    json!({"id": format!("c{at}"), "type": "function",
                "function": {"name": "f", "arguments": input.to_string()}})
                };
                let result = |(at, (_, text)): (usize, &(Value, String))| {
                    json!({"role": "tool",
                "tool_call_id": format!("c{at}"), "content": text})
                };
                let tool_calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
                let mut messages = vec![json!({"role": "assistant", "content": said, "tool_calls": tool_calls})];
                messages.extend(calls.iter().enumerate().map(result));
                json!(messages)
            }
        ),
    ];
    (prop::option::of(visible()), prop::collection::vec(message, 1..5)).prop_map(|(system, groups)| {
        let mut messages: Vec<Value> =
            system.map(|text| json!({"role": "system", "content": text})).into_iter().collect();
        for group in groups {
            let group = group.as_array().expect("messages").clone();
            // Adjacent messages of a side would become one.
            let is_again = messages.last().is_some_and(|last| side(last) == side(&group[0]));
            if !is_again {
                messages.extend(group);
            }
        }
        // A message of the assistant at the end is refused: Anthropic continues it.
        if messages.last().is_none_or(|last| side(last) == "assistant") {
            messages.push(json!({"role": "user", "content": "end"}));
        }
        json!(messages)
    })
}

fn side(message: &Value) -> &str {
    match message["role"].as_str() {
        Some("tool") => "user",
        role => role.unwrap_or_default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_translated_stream_of_anthropic_is_the_translated_message(
        reply in reply(&["end_turn", "tool_use", "max_tokens", "refusal"]),
        size in 1..9_usize,
        cuts in prop::collection::vec(0..4000_usize, 0..6),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let stream = messages_stream(&events(&reply, size));
        let found = translate(ChatToMessages, true, &stream, &cuts);
        prop_assert_eq!((&found.error, &*found.losses), (&None, ""));
        let (wanted, losses) = response(ChatToMessages, &whole_message(&reply).to_string()).expect("translated");
        prop_assert_eq!(same_form(completion(found.out.as_bytes())), same_form(wanted));
        prop_assert_eq!(losses, "");
    }

    #[test]
    fn a_translated_stream_of_a_chat_is_the_translated_completion(
        reply in reply(&["stop", "tool_calls", "length", "content_filter"]),
        size in 1..9_usize,
        is_interleaved: bool,
        cuts in prop::collection::vec(0..4000_usize, 0..6),
    ) {
        let mut cuts = cuts;
        cuts.sort_unstable();
        let stream = chat_stream(&chunks(&reply, size, is_interleaved));
        let found = translate(MessagesToChat, false, &stream, &cuts);
        prop_assert_eq!(&found.error, &None);
        let (wanted, losses) = response(MessagesToChat, &whole_completion(&reply).to_string()).expect("translated");
        prop_assert_eq!(message(found.out.as_bytes()), wanted);
        prop_assert_eq!(losses, found.losses);
    }

    #[test]
    fn a_reply_there_and_back_is_the_reply(reply in reply(&["end_turn", "tool_use", "max_tokens", "refusal"])) {
        let reply = Reply { stop: if reply.calls.is_empty() && reply.stop == "tool_use" { "end_turn" } else { reply.stop }, ..reply };
        let (there, _) = response(ChatToMessages, &whole_message(&reply).to_string()).expect("translated");
        let (back, losses) = response(MessagesToChat, &there.to_string()).expect("translated");
        // A chat joins the texts, and sums the input.
        let texts = reply.texts.concat();
        let joined = Reply { texts: if texts.is_empty() { vec![] } else { vec![texts] }, ..reply };
        let mut wanted = whole_message(&joined);
        if joined.stop == "end_turn" && !joined.calls.is_empty() {
            wanted["stop_reason"] = json!("tool_use");
        }
        if wanted["usage"]["cache_read_input_tokens"].is_null() && !wanted["usage"]["cache_creation_input_tokens"].is_null() {
            wanted["usage"]["cache_read_input_tokens"] = json!(0);
        }
        for key in ["cache_read_input_tokens", "cache_creation_input_tokens"] {
            if wanted["usage"][key].is_null() {
                wanted["usage"].as_object_mut().expect("usage").remove(key);
            }
        }
        prop_assert_eq!(back, wanted);
        prop_assert_eq!(losses, "");
    }

    #[test]
    fn a_request_there_and_back_is_the_request(
        messages in conversation(),
        tools in prop::collection::vec(arguments(), 0..3),
        choice in prop::sample::select(vec![json!("auto"), json!("required"), json!("none"),
            json!({"type": "function", "function": {"name": "f0"}})]),
        is_parallel: bool,
        (stream, temperature, stop) in (any::<bool>(), 0..4_u8, prop::collection::vec(visible(), 1..3)),
    ) {
        let mut body = json!({"model": "m", "max_completion_tokens": 9, "messages": messages, "user": "u", "stop": stop,
            "temperature": f64::from(temperature) / 4.0, "reasoning_effort": "low"});
        let functions: Vec<Value> = tools.iter().enumerate().map(|(at, schema)| json!({"type": "function",
            "function": {"name": format!("f{at}"), "description": "d", "parameters": {"type": "object", "x": schema}}})).collect();
        if !functions.is_empty() {
            (body["tools"], body["tool_choice"]) = (functions.into(), choice.clone());
            if !is_parallel && choice != "none" {
                body["parallel_tool_calls"] = json!(false);
            }
        }
        if stream {
            (body["stream"], body["stream_options"]) = (json!(true), json!({"include_usage": true}));
        }
        let (there, losses) = request(ChatToMessages, &body.to_string()).expect("translated");
        prop_assert_eq!(losses, "");
        let (back, losses) = request(MessagesToChat, &there.to_string()).expect("translated");
        prop_assert_eq!(losses, "");
        prop_assert_eq!(back, body);
    }
}
