//! The last requests in the admin API, over the real program: by whom they are, what they took, and what is kept of them.

use serde_json::Value;
use weir_tests::ai::{AiOrigin, gateway, usage};
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;

use crate::through::chat;

/// The requests that the admin API finds.
fn search(gateway: &Gateway, query: &str) -> Vec<Value> {
    let found = gateway.admin.get(&format!("/api/v1/ai/requests?{query}")).json();
    found["requests"].as_array().expect("requests").clone()
}

/// A request with further fields, of which each ends.
fn with_fields(request: &str, fields: &str) -> String {
    request.replacen("Content-Type", &format!("{fields}Content-Type"), 1)
}

/// The status of a request.
fn status(gateway: &Gateway, request: &str) -> u16 {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(request);
    client.response().status
}

#[test]
fn requests_are_found_by_the_fields_that_attribute_them() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let attribution = "[listener.ai.attribution]\nuser = \"x-litellm-end-user-id\"";
    let gateway = gateway(&origin, "openai", state.path(), attribution);
    let fields = "X-LiteLLM-End-User-Id: ada\r\nX-Weir-Agent: planner\r\nX-Weir-Tags: eu, prod\r\n";
    assert_eq!(status(&gateway, &with_fields(&chat("bytes=20", ""), fields)), 200);
    assert_eq!(status(&gateway, &chat("bytes=20", ",\"user\":\"bob\"")), 200);
    gateway.wait_at_rest();
    for (query, count) in
        [("", 2), ("user=ada", 1), ("user=bob", 1), ("agent=planner&tag=prod", 1), ("tag=pro", 0), ("user=eve", 0)]
    {
        assert_eq!(search(&gateway, query).len(), count, "{query}");
    }
    let metrics = gateway.metrics();
    assert!(!metrics.label_values().any(|value| ["ada", "planner", "eu", "bob"].contains(&value)), "a client's word");
    gateway.finish();
    let users: Vec<Value> = usage(state.path()).iter().map(|line| line["user"].clone()).collect();
    assert_eq!(users, ["ada", "bob"]);
}

#[test]
fn streams_have_a_time_per_output_token() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    assert_eq!(status(&gateway, &chat("bytes=40 events=5 gap=50ms", ",\"stream\":true")), 200);
    assert_eq!(status(&gateway, &chat("bytes=40", "")), 200);
    gateway.wait_at_rest();
    let metrics = gateway.metrics();
    let tokens = search(&gateway, "").last().expect("the stream")["gen_ai.usage.output_tokens"].as_f64();
    let behind_first = tokens.expect("tokens") - 1.0;
    let sum = |part: &str| metrics.sum(&format!("weir_ai_time_per_output_token_seconds_{part}"));
    assert_eq!(sum("count"), 1.0, "the stream alone");
    assert!((0.2..5.0).contains(&(sum("sum") * behind_first)), "four pauses of 50 ms: {}", sum("sum") * behind_first);
    gateway.finish();
}
