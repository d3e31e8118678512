//! Through the gateway: the SDKs find the same objects as directly, and the bytes are the same.

use std::time::Duration;

use weir_tests::ai::{AiOrigin, KEY, PROVIDER_KEY, Sdk, gateway, usage};
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::{HttpClient, unchunked};
use weir_tests::stream::Address;

use crate::sdks::{FURTHER, holds};

/// A request with [`KEY`].
pub fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A chat whose reply is chosen by directives, with further members.
pub fn chat(directives: &str, members: &str) -> String {
    let messages = format!("[{{\"role\":\"user\",\"content\":\"[weir {directives}]\"}}]");
    post("/v1/chat/completions", &format!("{{\"model\":\"m\",\"messages\":{messages}{members}}}"))
}

pub fn url(gateway: &Gateway) -> String {
    format!("http://{}/v1", gateway.address.text())
}

/// The books agree: what the origin has billed for whole replies is in the usage log.
pub fn sums_agree(origin: &AiOrigin, gateway: Gateway, state: &std::path::Path) {
    let ledger = origin.ledger();
    let log = gateway.log();
    gateway.finish();
    let lines = usage(state);
    let entries = ledger["entries"].as_array().expect("entries");
    // A fault, whose name is the end, may come before the report of usage or after it.
    let billed = |name: &str| {
        let of = |may_be_exact: fn(&str) -> bool| -> u64 {
            let those = entries.iter().filter(|entry| entry["end"].as_str().is_some_and(may_be_exact));
            those.map(|entry| entry[name].as_u64().unwrap_or_default()).sum()
        };
        of(|end| end == "completed")..=of(|end| !["open", "disconnected", "refused"].contains(&end))
    };
    let is_exact = |line: &&serde_json::Value| line["flags"] == serde_json::json!([]) && line["status"] == 200;
    let logged =
        |name: &str| -> u64 { lines.iter().filter(is_exact).map(|line| line[name].as_u64().unwrap_or_default()).sum() };
    for (logged_as, billed_as) in
        [("input_tokens", "prompt"), ("output_tokens", "completion"), ("cached_input_tokens", "cached")]
    {
        let (logged, billed) = (logged(logged_as), billed(billed_as));
        assert!(billed.contains(&logged), "{logged_as}: {logged}, billed {billed:?}: {}", ledger["totals"]);
    }
    let text = lines.iter().map(ToString::to_string).collect::<String>() + &log;
    assert!(!text.contains(KEY) && !text.contains(PROVIDER_KEY) && !text.contains("[weir "), "a secret or a prompt");
}

#[test]
fn every_check_of_openai_holds_through_the_gateway() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    holds(&Sdk::OpenAi.run(&url(&gateway), KEY), 22);
    let ledger = origin.ledger();
    let entries = ledger["entries"].as_array().expect("entries");
    // The stream that is left early is cancelled at the provider.
    assert_eq!(entries.iter().filter(|entry| entry["end"] == "disconnected").count(), 1, "{}", ledger["totals"]);
    let keys: std::collections::BTreeSet<_> = entries.iter().map(|entry| entry["key"].to_string()).collect();
    assert_eq!(keys.len(), 1, "only the key of the provider: {keys:?}");
    sums_agree(&origin, gateway, state.path());
}

#[test]
fn every_check_of_anthropic_holds_through_the_gateway() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "anthropic", state.path(), "");
    holds(&Sdk::Anthropic.run(&url(&gateway), KEY), 10);
    sums_agree(&origin, gateway, state.path());
}

#[test]
fn every_check_of_langchain_and_of_node_holds_through_the_gateway() {
    for (sdk, least) in FURTHER {
        let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
        let gateway = gateway(&origin, "openai", state.path(), "");
        holds(&sdk.run(&url(&gateway), KEY), least);
        sums_agree(&origin, gateway, state.path());
    }
}

/// Requests that need no edit, with their paths.
fn untouched() -> Vec<(&'static str, String)> {
    let chat = |directives: &str, more: &str| {
        format!(
            "{{ \"model\":\"m\" ,\"messages\":[{{\"role\":\"user\",\"content\":\"\\u00e4 [weir {directives}]\"}}]{more}}}\n"
        )
    };
    let stream = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
    vec![
        ("/v1/chat/completions", chat("bytes=3000 word=5eed0001", "")),
        ("/v1/chat/completions", chat("bytes=300 word=5eed0002 events=9", stream)),
        ("/v1/chat/completions", chat("bytes=300 word=5eed0003 text=mixed lines=mixed split=utf8 comments=1", stream)),
        ("/v1/chat/completions", chat("events=4 word=5eed0004 fault=error at=2", stream)),
        ("/v1/chat/completions", chat("events=4 word=5eed0005 fault=no_done", stream)),
        ("/v1/chat/completions", chat("status=429 retry_after=9 code=slow", "")),
        (
            "/v1/responses",
            "{\"model\":\"m\",\"input\":\"[weir bytes=90 word=5eed0006 events=5]\",\"stream\":true}".to_owned(),
        ),
        ("/v1/completions", "{\"model\":\"m\",\"prompt\":\"[weir bytes=40 word=5eed0007]\"}".to_owned()),
        ("/v1/embeddings", "{\"model\":\"e\",\"input\":[\"one\"],\"dimensions\":4}".to_owned()),
    ]
}

#[test]
fn requests_and_responses_are_the_same_byte_for_byte() {
    // Two origins that have seen nothing: their replies have the same numbers.
    let (direct, behind) = (AiOrigin::start(), AiOrigin::start());
    let state = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&behind, "openai", state.path(), "");
    for (path, body) in untouched() {
        let ask = |address: &Address| {
            let mut client = HttpClient::connect(address);
            client.send(post(path, &body));
            let response = client.response();
            let content = match response.field("transfer-encoding") {
                Some(_) => unchunked(&response.body),
                None => response.body.clone(),
            };
            let field = |name| response.field(name);
            (response.status, field("content-type"), field("x-request-id"), field("retry-after"), content)
        };
        let (wanted, found) = (ask(&direct.address), ask(&gateway.address));
        assert_eq!(found.4, wanted.4, "{path} {body}\n{}", String::from_utf8_lossy(&found.4));
        assert_eq!(found, wanted, "{path} {body}");
    }
    let count = |origin: &AiOrigin| origin.ledger()["entries"].as_array().map(Vec::len);
    assert_eq!(count(&direct), count(&behind));
}

#[test]
fn a12_a_key_that_a_reload_disables_is_refused_at_once_and_its_stream_finishes() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    let body = "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"content\":\"[weir events=20 gap=50ms]\"}]}";
    let mut streaming = HttpClient::connect(&gateway.address);
    streaming.send(post("/v1/chat/completions", body));
    until_true("the stream to begin", || streaming.has_response());
    gateway.rewrite(|text| text.replace("name = \"sdk\"\n", "name = \"sdk\"\nenabled = false\n"));
    let reloaded = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    let mut refused = HttpClient::connect(&gateway.address);
    refused.send(post("/v1/chat/completions", body));
    let response = refused.response();
    assert_eq!((response.status, response.field("x-should-retry").as_deref()), (401, Some("false")));
    let whole = streaming.response();
    assert!(whole.content().ends_with("data: [DONE]\n\n"), "{}", whole.content());
    assert_eq!(gateway.metrics().sum_where("weir_ai_refusals_total", &[("reason", "key_disabled")]), 1.0);
}

#[test]
fn a4_a_client_that_does_not_read_holds_little_and_is_accounted_for() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    let before = gateway.process().resident();
    let body = "{\"model\":\"m\",\"stream\":true,\"messages\":[{\"content\":\"[weir bytes=16000000 events=20000]\"}]}";
    let clients: Vec<HttpClient> = (0..10)
        .map(|_| {
            let mut client = HttpClient::connect(&gateway.address);
            client.send(post("/v1/chat/completions", body));
            client
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2)); // the time in which everything would come
    let grown = gateway.process().resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for ten streams of 16 MB");
    drop(clients);
    gateway.wait_at_rest();
    gateway.finish();
    let lines = usage(state.path());
    assert_eq!(lines.len(), 10);
    assert!(lines.iter().all(|line| line["flags"] == serde_json::json!(["estimated", "partial"])), "{lines:?}");
}
