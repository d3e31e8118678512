//! Golden pairs of requests: a row of the table each.

use serde_json::{Value, json};
use weir_ai_session::Dialect;
use weir_ai_translate::Direction::{ChatToMessages, MessagesToChat};
use weir_ai_translate::{Direction, Options, translate_request};

use crate::support::request;

/// A request with these members beside the smallest one.
fn body(direction: Direction, members: &str) -> String {
    let tokens = if direction == MessagesToChat { r#","max_tokens":9"# } else { "" };
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}]{tokens}{comma}{members}}}"#)
}

/// The translation of the smallest request.
fn base(direction: Direction) -> Value {
    match direction {
        ChatToMessages => json!({"model": "m", "max_tokens": 8192,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}),
        MessagesToChat => json!({"model": "m", "max_completion_tokens": 9,
            "messages": [{"role": "user", "content": "hi"}]}),
    }
}

/// Each row: members of the client, members for the provider, losses.
fn check(direction: Direction, rows: &[(&str, Value, &str)]) {
    for (members, added, lost) in rows {
        let (found, losses) =
            request(direction, &body(direction, members)).unwrap_or_else(|it| panic!("{members}: {it}"));
        let mut wanted = base(direction);
        for (key, value) in added.as_object().expect("an object") {
            wanted[key] = value.clone();
        }
        assert_eq!(found, wanted, "{members}");
        assert_eq!(losses, *lost, "{members}");
    }
}

/// Each row: members of the client, and the member that the refusal names.
fn check_refused(direction: Direction, rows: &[(&str, &str)]) {
    for (members, param) in rows {
        let mistake = request(direction, &body(direction, members)).expect_err(members);
        assert_eq!(mistake.param, *param, "{members}: {mistake}");
    }
}

/// Each row: messages of the client, the rest of the provider's request that they decide, losses.
fn check_messages(direction: Direction, rows: &[(Value, Value, &str)]) {
    for (messages, added, lost) in rows {
        let body = json!({"model": "m", "max_tokens": 9, "messages": messages}).to_string();
        let (mut found, losses) = request(direction, &body).unwrap_or_else(|it| panic!("{messages}: {it}"));
        let found = found.as_object_mut().expect("an object");
        for key in ["model", "max_tokens", "max_completion_tokens"] {
            found.remove(key);
        }
        assert_eq!(Value::Object(found.clone()), *added, "{messages}");
        assert_eq!(losses, *lost, "{messages}");
    }
}

#[test]
fn members_of_a_chat_have_their_place_at_anthropic() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    check(
        ChatToMessages,
        &[
            ("", json!({}), ""),
            (r#""max_tokens":7"#, json!({"max_tokens": 7}), ""),
            (r#""max_tokens":7,"max_completion_tokens":8"#, json!({"max_tokens": 8}), ""),
            (r#""stop":"x\n""#, json!({"stop_sequences": ["x\n"]}), ""),
            (r#""stop":["x","y"]"#, json!({"stop_sequences": ["x", "y"]}), ""),
            (r#""stop":null"#, json!({}), ""),
            (r#""temperature":0.25,"top_p":0.5"#, json!({"temperature": 0.25}), "top_p"),
            (r#""temperature":1"#, json!({"temperature": 1}), ""),
            (r#""temperature":1.5"#, json!({"temperature": 1}), "temperature"),
            (r#""user":"u""#, json!({"metadata": {"user_id": "u"}}), ""),
            (r#""user":"u","safety_identifier":"s""#, json!({"metadata": {"user_id": "s"}}), "user"),
            (r#""metadata":{"a":"b"}"#, json!({}), "metadata"),
            (r#""stream":true,"stream_options":{"include_usage":true}"#, json!({"stream": true}), ""),
            (r#""stream":true,"stream_options":{"include_obfuscation":true}"#, json!({"stream": true}), ""),
            (r#""stream":false,"n":1,"logprobs":false,"logit_bias":{},"modalities":["text"]"#, json!({}), ""),
            (r#""seed":0,"frequency_penalty":0.0,"store":false"#, json!({}), "seed"),
            (
                r#""seed":7,"frequency_penalty":0.5,"presence_penalty":-1,"store":true"#,
                json!({}),
                "seed, frequency_penalty, presence_penalty, store",
            ),
            (r#""prompt_cache_key":"k","verbosity":"low","x":1"#, json!({}), "prompt_cache_key, verbosity, x"),
            (
                r#""top_k":5,"thinking":{"type":"enabled","budget_tokens":1024}"#,
                json!({"top_k": 5, "thinking": {"type": "enabled", "budget_tokens": 1024}}),
                "",
            ),
            (r#""service_tier":"auto""#, json!({}), ""),
            (r#""service_tier":"default""#, json!({"service_tier": "standard_only"}), ""),
            (r#""service_tier":"flex""#, json!({}), "service_tier"),
            (r#""reasoning_effort":"high""#, json!({"output_config": {"effort": "high"}}), ""),
            (r#""reasoning_effort":"minimal""#, json!({"output_config": {"effort": "low"}}), "reasoning_effort"),
            (r#""reasoning_effort":"none""#, json!({"thinking": {"type": "disabled"}}), ""),
            (r#""response_format":{"type":"text"}"#, json!({}), ""),
            (
                &format!(
                    r#""response_format":{{"type":"json_schema","json_schema":{{"name":"n","strict":true,"schema":{schema}}}}}"#
                ),
                json!({"output_config": {"format": {"type": "json_schema", "schema": schema}}}),
                "",
            ),
            (
                r#""response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","schema":{}}}"#,
                json!({"output_config": {"format": {"type": "json_schema", "schema": {}}}}),
                "response_format.json_schema.description",
            ),
        ],
    );
}

#[test]
fn tools_of_a_chat_have_their_place_at_anthropic() {
    let tools = r#""tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,
        "parameters":{"type":"object","x":1e2}}},{"type":"function","function":{"name":"g"}}]"#;
    let with = |members: &str| format!("{tools}{members}");
    let added = |choice: Value| {
        let mut added = json!({"tools": [
            {"name": "f", "description": "d", "strict": true, "input_schema": {"type": "object", "x": 1e2}},
            {"name": "g", "input_schema": {"type": "object", "properties": {}}}]});
        if !choice.is_null() {
            added["tool_choice"] = choice;
        }
        added
    };
    check(
        ChatToMessages,
        &[
            (&with(""), added(Value::Null), ""),
            (&with(r#","tool_choice":"auto""#), added(json!({"type": "auto"})), ""),
            (&with(r#","tool_choice":"none","parallel_tool_calls":false"#), added(json!({"type": "none"})), ""),
            (&with(r#","tool_choice":"required""#), added(json!({"type": "any"})), ""),
            (
                &with(r#","tool_choice":{"type":"function","function":{"name":"g"}}"#),
                added(json!({"type": "tool", "name": "g"})),
                "",
            ),
            (
                &with(r#","parallel_tool_calls":false"#),
                added(json!({"type": "auto", "disable_parallel_tool_use": true})),
                "",
            ),
            (
                &with(r#","tool_choice":"required","parallel_tool_calls":false"#),
                added(json!({"type": "any", "disable_parallel_tool_use": true})),
                "",
            ),
            (&with(r#","parallel_tool_calls":true"#), added(Value::Null), ""),
            (r#""tools":[],"tool_choice":"auto","parallel_tool_calls":false"#, json!({}), ""),
        ],
    );
}

#[test]
fn a_chat_is_refused_where_a_loss_would_change_its_meaning() {
    check_refused(
        ChatToMessages,
        &[
            (r#""n":2"#, "n"),
            (r#""logprobs":true"#, "logprobs"),
            (r#""top_logprobs":3"#, "top_logprobs"),
            (r#""logit_bias":{"50256":-100}"#, "logit_bias"),
            (r#""modalities":["text","audio"]"#, "modalities"),
            (r#""audio":{"voice":"x","format":"mp3"}"#, "audio"),
            (r#""functions":[{"name":"f"}]"#, "functions"),
            (r#""function_call":"auto""#, "function_call"),
            (r#""moderation":{"model":"m"}"#, "moderation"),
            (r#""web_search_options":{}"#, "web_search_options"),
            (r#""response_format":{"type":"json_object"}"#, "response_format.type"),
            (
                r#""response_format":{"type":"json_schema","json_schema":{"name":"n"}}"#,
                "response_format.json_schema.schema",
            ),
            (r#""tools":[{"type":"custom","custom":{"name":"f"}}]"#, "tools.type"),
            (r#""tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}"#, "tool_choice"),
            (r#""tool_choice":"sometimes""#, "tool_choice"),
            (r#""stop":7"#, "stop"),
            (r#""temperature":"1""#, "temperature"),
            (r#""stream":"true""#, "stream"),
            (r#""seed":1,"se\u0065d":2"#, ""),
        ],
    );
    let refused = |messages: Value| {
        let body = json!({"model": "m", "messages": messages}).to_string();
        request(ChatToMessages, &body).expect_err(&body).param.into_owned()
    };
    let user = |part: Value| json!([{"role": "user", "content": [part]}]);
    assert_eq!(refused(user(json!({"type": "input_audio", "input_audio": {}}))), "messages.content.type");
    assert_eq!(refused(user(json!({"type": "file", "file": {"file_id": "f"}}))), "messages.content.file.file_data");
    assert_eq!(refused(json!([{"role": "function", "name": "f", "content": "x"}])), "messages.role");
    assert_eq!(refused(json!([{"role": "user"}])), "messages.content");
    assert_eq!(refused(json!("hi")), "messages");
    let call = |arguments: &str| {
        json!([{"role": "assistant", "tool_calls":
        [{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]}])
    };
    for arguments in ["[]", "{\"a\":", "7", "{} x"] {
        assert_eq!(refused(call(arguments)), "messages.tool_calls.function.arguments", "{arguments}");
    }
    for body in ["", "[]", "{", "null", r#"{"model":"m"}"#, r#"{"messages":[]}"#] {
        assert!(request(ChatToMessages, body).is_err() && request(MessagesToChat, body).is_err(), "{body}");
    }
}

#[test]
fn messages_of_a_chat_become_turns() {
    let text = |text: &str| json!({"type": "text", "text": text});
    check_messages(
        ChatToMessages,
        &[
            (
                json!([{"role": "system", "content": "a"}, {"role": "developer", "content": [text("b"), text("")]},
            {"role": "user", "content": [text("c"), text("d")]}]),
                json!({"system": [text("a"), text("b")], "messages": [{"role": "user", "content": [text("c"), text("d")]}]}),
                "",
            ),
            (
                json!([{"role": "user", "content": "a", "name": "n"}, {"role": "system", "content": "b"}]),
                json!({"system": [text("b")], "messages": [{"role": "user", "content": [text("a")]}]}),
                "messages.name, messages.position",
            ),
            (
                json!([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "auto"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"}}]}]),
                json!({"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
                {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
                    "title": "a.pdf"}]}]}),
                "messages.content.image_url.detail",
            ),
            (
                json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1.50}"}},
                {"id": "functions.g:2", "type": "function", "function": {"name": "g", "arguments": ""}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "r1"},
            {"role": "tool", "tool_call_id": "functions.g:2", "content": [text("r2"), text("r3")]},
            {"role": "user", "content": "b"},
            {"role": "assistant", "content": [text("c"), {"type": "refusal", "refusal": "d"}], "refusal": "e"},
            {"role": "assistant", "content": "f"}, {"role": "user", "content": "g"}]),
                json!({"messages": [
                {"role": "user", "content": [text("a")]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1.5}},
                    {"type": "tool_use", "id": "functions_g_2", "name": "g", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
                    {"type": "tool_result", "tool_use_id": "functions_g_2", "content": [text("r2"), text("r3")]}, text("b")]},
                {"role": "assistant", "content": [text("c"), text("d"), text("e"), text("f")]},
                {"role": "user", "content": [text("g")]}]}),
                "",
            ),
        ],
    );
}

#[test]
fn members_of_anthropic_have_their_place_in_a_chat() {
    let tools = r#""tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"strict":true,
        "cache_control":{"type":"ephemeral"}}]"#;
    let functions = json!([{"type": "function", "function":
        {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}}]);
    let with = |members: &str| format!("{tools},{members}");
    check(
        MessagesToChat,
        &[
            ("", json!({}), ""),
            (r#""temperature":0.5,"top_p":0.5,"top_k":5"#, json!({"temperature": 0.5, "top_p": 0.5}), "top_k"),
            (r#""stop_sequences":["a"],"metadata":{"user_id":"u"}"#, json!({"stop": ["a"], "user": "u"}), ""),
            (&format!(r#""metadata":{{"user_id":"{}"}}"#, "é".repeat(65)), json!({}), "metadata.user_id"),
            (r#""stop_sequences":[]"#, json!({}), ""),
            (r#""stream":true"#, json!({"stream": true, "stream_options": {"include_usage": true}}), ""),
            (
                r#""system":"s""#,
                json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}),
                "",
            ),
            (
                r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"t"}]"#,
                json!({"messages": [{"role": "system", "content":
                [{"type": "text", "text": "s"}, {"type": "text", "text": "t"}]}, {"role": "user", "content": "hi"}]}),
                "system.cache_control",
            ),
            (tools, json!({"tools": functions}), "tools.cache_control"),
            (
                &with(r#""tool_choice":{"type":"any","disable_parallel_tool_use":true}"#),
                json!({"tools": functions, "tool_choice": "required", "parallel_tool_calls": false}),
                "tools.cache_control",
            ),
            (
                &with(r#""tool_choice":{"type":"tool","name":"f"}"#),
                json!({"tools": functions, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
                "tools.cache_control",
            ),
            (
                &with(r#""tool_choice":{"type":"none"}"#),
                json!({"tools": functions, "tool_choice": "none"}),
                "tools.cache_control",
            ),
            (r#""tool_choice":{"type":"auto"}"#, json!({}), ""),
            (r#""thinking":{"type":"enabled","budget_tokens":1024}"#, json!({}), "thinking"),
            (r#""thinking":{"type":"disabled"}"#, json!({}), "thinking"),
            (
                r#""output_config":{"effort":"xhigh","format":{"type":"json_schema","schema":{"type":"object"}}}"#,
                json!({"reasoning_effort": "xhigh", "response_format": {"type": "json_schema", "json_schema":
                {"name": "response", "schema": {"type": "object"}, "strict": true}}}),
                "",
            ),
            (r#""service_tier":"standard_only","speed":"fast""#, json!({"service_tier": "default"}), "speed"),
        ],
    );
    check_refused(
        MessagesToChat,
        &[
            (r#""mcp_servers":[{"url":"x"}]"#, "mcp_servers"),
            (r#""container":"c""#, "container"),
            (r#""inference_geo":"eu""#, "inference_geo"),
            (r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#, "tools.type"),
            (r#""tool_choice":{"type":"some"}"#, "tool_choice.type"),
            (r#""stop_sequences":"a""#, "stop_sequences"),
            (r#""system":[{"type":"image"}]"#, "system.type"),
            (r#""output_config":{"format":{"type":"xml"}}"#, "output_config.format.type"),
        ],
    );
}

#[test]
fn turns_become_messages_of_a_chat() {
    let text = |text: &str| json!({"type": "text", "text": text});
    check_messages(
        MessagesToChat,
        &[
            (
                json!([{"role": "user", "content": [text("a"), text("b")]}, {"role": "system", "content": "s"}]),
                json!({"messages": [{"role": "user", "content": [text("a"), text("b")]},
                {"role": "system", "content": "s"}]}),
                "",
            ),
            (
                json!([{"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                text("a"), text("b"),
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1.5}, "cache_control": {"type": "ephemeral"}},
                {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "r1", "is_error": true},
                {"type": "tool_result", "tool_use_id": "t2", "content": [text("r2"), text("r3"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                {"type": "tool_result", "tool_use_id": "t3"}, text("b")]}]),
                json!({"messages": [
                {"role": "assistant", "content": "ab", "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1.5}"}},
                    {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "t1", "content": "r1"},
                {"role": "tool", "tool_call_id": "t2", "content": [text("r2"), text("r3")]},
                {"role": "tool", "tool_call_id": "t3", "content": ""},
                {"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, text("b")]}]}),
                "messages.content.thinking, messages.content.redacted_thinking, messages.content.cache_control, \
             messages.content.is_error, messages.content.content.position",
            ),
            (
                json!([{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "BB"}, "title": "t"},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}]},
            {"role": "user", "content": []}]),
                json!({"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                {"type": "file", "file": {"filename": "t.pdf", "file_data": "data:application/pdf;base64,BB"}},
                text("plain")]}]}),
                "messages.content.thinking",
            ),
        ],
    );
    let refused = |part: Value| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": [part]}]}).to_string();
        request(MessagesToChat, &body).expect_err(&body).param.into_owned()
    };
    assert_eq!(refused(json!({"type": "search_result", "content": []})), "messages.content.type");
    assert_eq!(refused(json!({"type": "server_tool_use", "id": "s"})), "messages.content.type");
    let prefill = json!({"model": "m", "messages": [{"role": "assistant", "content": "{"}]}).to_string();
    assert_eq!(request(MessagesToChat, &prefill).expect_err("refused").param, "messages");
    let source = json!({"type": "file", "file_id": "f"});
    assert_eq!(refused(json!({"type": "image", "source": source})), "messages.content.source.type");
}

#[test]
fn numbers_escapes_and_schemas_keep_their_form() {
    let body = r#"{"model":"m\u0065","messages":[{"role":"user","content":"\u00e9 \/ é"}],"max_tokens":1e3,"temperature":0.10,
        "tools":[{"type":"function","function":{"name":"f","parameters":{ "z":1.0, "a":12345678901234567890123,"z2":[ ] }}}]}"#;
    let found = translate_request(ChatToMessages, body.as_bytes(), &Options::default()).expect("translated");
    let text = String::from_utf8(found.body).expect("UTF-8");
    for part in [
        r#""model":"m\u0065""#,
        r#""text":"\u00e9 \/ é""#,
        r#""max_tokens":1e3"#,
        r#""temperature":0.10"#,
        r#""input_schema":{ "z":1.0, "a":12345678901234567890123,"z2":[ ] }"#,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f",
        "input":{ "a":1.00,"b":"\u00e9\n"}}]},{"role":"user","content":"x"}]}"#;
    let found = translate_request(MessagesToChat, body.as_bytes(), &Options::default()).expect("translated");
    let found = crate::support::json(&found.body);
    let arguments = &found["messages"][0]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(arguments, r#"{ "a":1.00,"b":"\u00e9\n"}"#);
}

#[test]
fn options_say_what_a_provider_takes() {
    let options = Options { tokens_max: 7, has_completion_limit: false, has_effort: true, has_stream_usage: false };
    let found = translate_request(ChatToMessages, body(ChatToMessages, "").as_bytes(), &options).expect("translated");
    assert_eq!(crate::support::json(&found.body)["max_tokens"], 7);
    let stream = body(MessagesToChat, r#""stream":true"#);
    let found = translate_request(MessagesToChat, stream.as_bytes(), &options).expect("translated");
    assert!(found.is_stream && !found.includes_usage);
    let found = crate::support::json(&found.body);
    assert_eq!((&found["max_tokens"], &found["stream"], found.get("stream_options")), (&json!(9), &json!(true), None));
    let stream = body(ChatToMessages, r#""stream":true,"stream_options":{"include_usage":true}"#);
    assert!(translate_request(ChatToMessages, stream.as_bytes(), &options).expect("translated").includes_usage);
}

#[test]
fn a_refusal_has_the_form_of_the_client() {
    let mistake = request(ChatToMessages, &body(ChatToMessages, r#""n":2"#)).expect_err("refused");
    let error = crate::support::json(&mistake.body(Dialect::Chat));
    assert_eq!(
        error,
        json!({"error": {"message": "'n' cannot be translated: Anthropic gives one choice: `n` must be 1.",
        "type": "invalid_request_error", "param": "n", "code": null}})
    );
    let mistake = request(MessagesToChat, "{").expect_err("refused");
    let error = crate::support::json(&mistake.body(Dialect::Anthropic));
    assert_eq!(
        error,
        json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "The body cannot be translated: unexpected end."}})
    );
}
