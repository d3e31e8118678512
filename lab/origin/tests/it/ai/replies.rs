//! Whole replies of every endpoint.

use serde_json::{Value, json};
use weir_origin::ai::AiOriginSettings;

use super::client::{Client, origin, origin_with};

#[test]
fn a_request_chooses_its_text_and_what_it_costs() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let reply = client.chat("bytes=20 word=5eed0001 prompt=7 cached=3 reasoning=2", "");
    assert_eq!((reply.status, reply.field("content-type")), (200, Some("application/json")));
    assert!(reply.field("x-request-id").is_some_and(|id| id.starts_with("req_")), "{:?}", reply.fields);
    let found = reply.json();
    assert_eq!(found["choices"][0]["message"]["content"], "5eed00010000000 5eed");
    assert_eq!(found["choices"][0]["finish_reason"], "stop");
    assert_eq!((&found["usage"]["prompt_tokens"], &found["usage"]["completion_tokens"]), (&json!(7), &json!(5 + 2)));
    assert_eq!(found["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
    let again = client.chat("bytes=20 word=5eed0001 prompt=7 cached=3 reasoning=2", "").json();
    assert_eq!(again, found, "the same request, the same reply");
    let limited = client.chat("bytes=100", "\"max_tokens\":3").json();
    assert_eq!(limited["choices"][0]["message"]["content"].as_str().map(str::len), Some(12));
    assert_eq!(
        (&limited["choices"][0]["finish_reason"], &limited["usage"]["completion_tokens"]),
        (&json!("length"), &json!(3))
    );
    let several = client.chat("bytes=8", "\"n\":3").json();
    assert_eq!(
        (several["choices"].as_array().map(Vec::len), &several["usage"]["completion_tokens"]),
        (Some(3), &json!(6))
    );
}

#[test]
fn tools_and_schemas_get_what_fits_them() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let tools = r#""tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}},
        {"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"b":{"type":"boolean"}}}}}]"#;
    let calls = |reply: &Value| -> Vec<String> {
        let calls = reply["choices"][0]["message"]["tool_calls"].as_array().expect("calls");
        let words = |call: &Value| {
            let function = &call["function"];
            format!("{}({})", function["name"].as_str().expect("text"), function["arguments"].as_str().expect("text"))
        };
        calls.iter().map(words).collect()
    };
    let both = client.chat("calls=2", tools).json();
    assert_eq!(calls(&both), ["f({\"a\":7})", "g({\"b\":true})"]);
    assert_eq!(both["choices"][0]["finish_reason"], "tool_calls");
    let named = format!("{tools},\"tool_choice\":{{\"type\":\"function\",\"function\":{{\"name\":\"g\"}}}}");
    assert_eq!(calls(&client.chat("", &named).json()), ["g({\"b\":true})"]);
    let free = client.chat("bytes=4", &format!("{tools},\"tool_choice\":\"auto\"")).json();
    assert!(free["choices"][0]["message"].get("tool_calls").is_none(), "{free}");
    let schema = r#""response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}}"#;
    assert_eq!(client.chat("", schema).json()["choices"][0]["message"]["content"], "{\"ok\":true}");
    let refused = client.chat("refusal=1 bytes=8 word=5eed0001", schema).json();
    assert_eq!(refused["choices"][0]["message"]["refusal"], "5eed0001");
    let body = r#"{"model":"m","input":"[weir calls=1]","tools":[{"type":"function","name":"h","parameters":{}}]}"#;
    let response = client.post("/v1/responses", body).json();
    assert_eq!(
        (&response["output"][0]["type"], &response["output"][0]["name"]),
        (&json!("function_call"), &json!("h"))
    );
    let body = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"[weir calls=1]"}],
        "tools":[{"name":"k","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}]}"#;
    let message = client.post("/v1/messages", body).json();
    assert_eq!((&message["content"][0]["name"], &message["stop_reason"]), (&json!("k"), &json!("tool_use")));
    assert!(message["content"][0]["input"]["a"].is_string(), "{message}");
}

#[test]
fn every_endpoint_answers_and_the_others_say_no() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let message = client.post(
        "/v1/messages",
        r#"{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"[weir bytes=8]"}]}"#,
    );
    assert_eq!(message.json()["content"][0]["text"].as_str().map(str::len), Some(8));
    assert!(message.field("request-id").is_some());
    let count = client.post("/v1/messages/count_tokens", r#"{"model":"m","messages":[1],"system":"[weir prompt=42]"}"#);
    assert_eq!(count.json(), json!({ "input_tokens": 42 }));
    let completion = client.post("/v1/completions", r#"{"model":"m","prompt":"[weir bytes=8 word=5eed0001]"}"#).json();
    assert_eq!(
        (&completion["object"], &completion["choices"][0]["text"]),
        (&json!("text_completion"), &json!("5eed0001"))
    );
    let response = client.post("/v1/responses", r#"{"model":"m","input":"[weir bytes=8 finish=length]"}"#).json();
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let floats = client.post("/v1/embeddings", r#"{"model":"m","input":["a","b"],"dimensions":3}"#).json();
    assert_eq!(
        (floats["data"].as_array().map(Vec::len), floats["data"][1]["embedding"].as_array().map(Vec::len)),
        (Some(2), Some(3))
    );
    let base64 =
        client.post("/v1/embeddings", r#"{"model":"m","input":"a","dimensions":3,"encoding_format":"base64"}"#).json();
    assert_eq!(base64["data"][0]["embedding"].as_str().map(str::len), Some(16), "twelve bytes");
    assert!(client.get("/v1/models").json()["data"].as_array().is_some_and(|all| all.len() > 2));
    assert_eq!(client.get("/v1/models/any").json()["id"], "any");
    assert_eq!(client.get("/v1/models/no-such-model").json()["error"]["code"], "model_not_found");
    let wrong = client.get("/v1/chat/completions");
    assert_eq!((wrong.status, wrong.field("allow")), (405, Some("post")));
    assert_eq!(client.get("/v1/nothing").status, 404);
    assert_eq!(client.get("/health").json()["status"], "ok");
    assert!(client.get("/requests").text().parse::<u64>().is_ok_and(|count| count > 10));
}

#[test]
fn errors_and_keys_are_chosen_or_earned() {
    let (_origin, address) = origin_with(AiOriginSettings { key: Some("k1".into()), ..AiOriginSettings::default() });
    let mut client = Client::to(address);
    let refused = client.chat("", "");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    for field in ["Authorization: Bearer k1", "x-api-key: k1", "api-key: k1"] {
        client.send(
            "POST",
            "/v1/chat/completions",
            &format!("{field}\r\n"),
            &super::client::prompt("status=429 retry_after=7", ""),
        );
        let limited = client.reply();
        assert_eq!((limited.status, limited.field("retry-after")), (429, Some("7")), "{field}");
        assert_eq!(limited.field("x-ratelimit-reset-tokens"), Some("6m0s"));
    }
    client.send("POST", "/v1/messages", "x-api-key: k1\r\n", &super::client::prompt("status=529", ""));
    assert_eq!(client.reply().json()["error"]["type"], "overloaded_error");
}

#[test]
fn the_first_tries_may_fail_and_a_slip_of_the_pen_is_an_error() {
    let (_origin, address) = origin();
    let mut client = Client::to(address);
    let statuses: Vec<u16> = (0..3).map(|_| client.chat("status=503 fails=2 word=5eed0001", "").status).collect();
    assert_eq!(statuses, [503, 503, 200]);
    let wrong = client.chat("byte=3", "");
    assert!(wrong.status == 400 && wrong.text().contains("byte=3"), "{}", wrong.text());
    assert_eq!(client.chat("fault=endless", "").status, 400, "a fault of streams");
    assert_eq!(client.post("/v1/chat/completions", "{").status, 400);
    assert_eq!(client.post("/v1/chat/completions", r#"{"model":"m"}"#).json()["error"]["param"], "messages");
    client.send("POST", "/v1/chat/completions", "x-weir-lab: bytes=4\r\n", &super::client::prompt("bytes=8", ""));
    assert_eq!(client.reply().json()["usage"]["completion_tokens"], 1, "a header wins");
}
