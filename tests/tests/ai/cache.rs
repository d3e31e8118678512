//! The exact cache: the origin's ledger, the usage log and the bytes of clients, with two workers and two tenants.

use std::path::Path;

use serde_json::{Value, json};
use weir_tests::ai::{AiOrigin, KEY, PROVIDER_KEY, Sdk, usage};
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::{HttpClient, Response, unchunked};
use weir_tests::port;
use weir_tests::stream::Address;

use crate::sdks::holds;
use crate::through::{chat, sums_agree, url};

/// A key of another tenant.
const OTHER_KEY: &str = "sk-weir-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A gateway with two workers and two keys whose responses are cached by these lines. `ai`: further lines of `[ai]`.
fn cached(origin: &AiOrigin, state: &Path, ai: &str, rule: &str) -> Gateway {
    let address = Address::port(port::free());
    let key = |name: &str, hash: &str| format!("[[listener.ai.key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n{rule}\n");
    let text = format!(
        "[runtime]\nworkers = 2\n[ai]\nstate = \"{}\"\n{ai}\n\
         [[upstream]]\nname = \"provider\"\nendpoints = [\"{}\"]\n[upstream.ai]\napi_key = \"env:PROVIDER_KEY\"\n\
         [[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{}\"\nupstream = \"provider\"\n\
         [listener.ai]\nkeys = \"required\"\n\
         [[listener.ai.price]]\nmodels = \"*\"\ninput = \"1\"\noutput = \"2\"\n{}{}",
        state.display(),
        origin.address.text(),
        address.text(),
        key("sdk", "100d9230e98fa6b38710e53e7a179699304f740315e7a2968324695861f1cb6f"),
        key("other", "5a56879d080925fa5ebc961caf77c40c58af0527c163413c085fbb3fcf24775c"),
    );
    Gateway::with_environment(&text, address, &[("PROVIDER_KEY".to_owned(), PROVIDER_KEY.to_owned())])
}

/// One exchange on a connection of its own.
fn exchange(gateway: &Gateway, request: &str) -> Response {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(request);
    client.response()
}

/// The way of a request, by the field of its response.
fn way(response: &Response) -> String {
    response.field("x-weir-cache").unwrap_or_default()
}

/// The body of a response without its framing.
fn content(response: &Response) -> Vec<u8> {
    match response.field("transfer-encoding") {
        Some(_) => unchunked(&response.body),
        None => response.body.clone(),
    }
}

fn entries(origin: &AiOrigin) -> usize {
    origin.ledger()["entries"].as_array().map_or(0, Vec::len)
}

#[test]
fn equal_requests_at_once_reach_the_provider_once_and_the_books_agree() {
    const CLIENTS: usize = 16;
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"10m\"");
    let request = chat("bytes=3000 events=20 first=300ms prompt=50", ",\"stream\":true");
    let mut clients: Vec<HttpClient> = (0..CLIENTS)
        .map(|_| {
            let mut client = HttpClient::connect(&gateway.address);
            client.send(&request);
            client
        })
        .collect();
    let responses: Vec<Response> = clients.iter_mut().map(HttpClient::response).collect();
    let first = content(&responses[0]);
    assert!(first.ends_with(b"data: [DONE]\n\n") && first.len() > 3_000);
    assert!(responses.iter().all(|response| response.status == 200 && content(response) == first));
    assert_eq!(responses.iter().filter(|response| way(response) == "miss").count(), 1);
    assert_eq!(entries(&origin), 1, "{}", origin.ledger());
    // Each response is one of its own, apart from the body.
    let ids: std::collections::HashSet<_> = responses.iter().map(|response| response.field("x-request-id")).collect();
    assert_eq!(ids.len(), CLIENTS);
    drop(clients);
    gateway.wait_at_rest();
    let metrics = gateway.metrics();
    let hits = metrics.sum_where("weir_ai_cache_requests_total", &[("result", "hit")]);
    assert_eq!(hits, (CLIENTS - 1) as f64);
    let bill = origin.ledger()["entries"][0].clone();
    let billed = bill["prompt"].as_u64().unwrap_or(0) + bill["completion"].as_u64().unwrap_or(0);
    assert_eq!(metrics.sum("weir_ai_cache_saved_tokens_total"), hits * billed as f64);
    sums_agree(&origin, gateway, state.path());
    let lines = usage(state.path());
    let (hits, live): (Vec<&Value>, Vec<&Value>) =
        lines.iter().partition(|line| line["flags"] == serde_json::json!(["cached"]));
    assert_eq!((hits.len(), live.len()), (CLIENTS - 1, 1));
    assert!(hits.iter().all(|line| line["charged_tokens"] == 0 && line["cost_micro"] == 0), "{hits:?}");
    assert!(hits.iter().all(|line| line["saved_tokens"] == billed), "{hits:?}");
    assert_eq!(live[0]["charged_tokens"], billed);
}

#[test]
fn behind_a_failure_one_request_after_the_other_goes_on() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"10m\"");
    // The first two tries fail.
    let request = chat("bytes=30 first=100ms status=500 fails=2 word=5eed0101", "");
    let mut clients: Vec<HttpClient> = (0..8)
        .map(|_| {
            let mut client = HttpClient::connect(&gateway.address);
            client.send(&request);
            client
        })
        .collect();
    let responses: Vec<Response> = clients.iter_mut().map(HttpClient::response).collect();
    let count = |status: u16, wanted: &str| {
        responses.iter().filter(|response| response.status == status && way(response) == wanted).count()
    };
    assert_eq!((count(500, "miss"), count(200, "miss"), count(200, "hit")), (2, 1, 5));
    assert_eq!(entries(&origin), 3);
}

#[test]
fn errors_other_tenants_and_old_responses_go_to_the_provider() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"3s\"");
    let wrong = chat("status=400", "");
    for count in 1..=2 {
        assert_eq!(exchange(&gateway, &wrong).status, 400);
        assert_eq!(entries(&origin), count);
    }
    let request = chat("bytes=30", "");
    assert_eq!(way(&exchange(&gateway, &request)), "miss");
    assert_eq!(way(&exchange(&gateway, &request)), "hit");
    let of_other = request.replace(KEY, OTHER_KEY);
    assert_eq!(way(&exchange(&gateway, &of_other)), "miss");
    assert_eq!(entries(&origin), 4);
    until_true("the response to be too old", || way(&exchange(&gateway, &request)) == "miss");
    assert_eq!(way(&exchange(&gateway, &request)), "hit");
    assert_eq!(entries(&origin), 5);
}

#[test]
fn a_replay_is_the_same_byte_for_byte_whatever_the_form_of_the_stream() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"10m\"");
    let usage = ",\"stream\":true,\"stream_options\":{\"include_usage\":true}";
    for form in ["lines=lf", "lines=crlf", "lines=cr", "lines=mixed split=utf8", "lines=crlf comments=1"] {
        let words = format!("bytes=150 events=5 text=mixed {form}");
        for members in [",\"stream\":true", usage] {
            let live = exchange(&gateway, &chat(&words, members));
            let replayed = exchange(&gateway, &chat(&words, members));
            assert_eq!(way(&replayed), "hit", "{form}");
            assert_eq!(content(&live), content(&replayed), "{form}: {}", live.content());
            assert_eq!(live.field("content-type"), replayed.field("content-type"));
            assert_eq!(live.content().contains("\"prompt_tokens\":"), members == usage, "{form}");
        }
    }
    // Whether the client wants the usage makes no other request.
    assert_eq!(entries(&origin), 5);
}

#[test]
fn the_bound_holds_while_responses_come_and_go() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let bounds = "cache_bytes_max = \"64KiB\"\ncache_response_bytes_max = \"8KiB\"";
    let gateway = cached(&origin, state.path(), bounds, "cache_ttl = \"10m\"");
    for number in 0..60 {
        assert_eq!(way(&exchange(&gateway, &chat(&format!("bytes=4000 word={number:08x}"), ""))), "miss");
    }
    let last = chat(&format!("bytes=4000 word={:08x}", 59), "");
    assert_eq!(way(&exchange(&gateway, &last)), "hit", "the last ones are there");
    gateway.wait_metric("weir_ai_cache_evictions_total", &[("reason", "capacity")], 40.0);
    let bytes = gateway.metric("weir_ai_cache_bytes");
    assert!((8_000.0..=65_536.0).contains(&bytes), "{bytes}");
    let long = chat("bytes=20000", "");
    for _ in 0..2 {
        assert_eq!(way(&exchange(&gateway, &long)), "miss", "it is too long");
    }
    assert_eq!(entries(&origin), 62);
}

#[test]
fn a_reload_that_changes_the_policy_makes_old_responses_miss() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"10m\"");
    let reload = |from: &str, to: &str| {
        gateway.rewrite(|text| text.replace(from, to));
        let reloaded = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    };
    let request = chat("bytes=30", "");
    assert_eq!(way(&exchange(&gateway, &request)), "miss");
    reload("input = \"1\"", "input = \"3\"");
    assert_eq!(way(&exchange(&gateway, &request)), "hit", "a price changes no response");
    reload("cache_ttl = \"10m\"", "cache_ttl = \"10m\"\ntools_max = 3");
    assert_eq!(way(&exchange(&gateway, &request)), "miss");
    assert_eq!(way(&exchange(&gateway, &request)), "hit");
    reload("cache_ttl = \"10m\"\n", "");
    assert_eq!(way(&exchange(&gateway, &request)), "", "nothing is cached any more");
    assert_eq!(entries(&origin), 3);
}

#[test]
fn an_issued_key_has_a_rule_of_its_own_and_its_hits_are_among_the_last_requests() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "");
    let order = |method: &str, path: &str, body: &Value| {
        let json = [("Content-Type", "application/json")];
        let response = gateway.admin.request(method, path, &json, &body.to_string()).expect("a response");
        assert!(matches!(response.status, 200 | 201), "{}", response.json());
        response.json()
    };
    let issued = order("POST", "/api/v1/ai/keys", &json!({ "name": "ci", "policy": { "cache_ttl": "10m" } }));
    let request = chat("bytes=30", "").replace(KEY, issued["text"].as_str().expect("a text"));
    assert_eq!(way(&exchange(&gateway, &request)), "miss");
    assert_eq!(way(&exchange(&gateway, &request)), "hit");
    let change = |policy: Value| order("PATCH", "/api/v1/ai/keys/ci", &json!({ "policy": policy }));
    assert_eq!(change(json!({ "tools_max": 3 }))["policy"], json!({ "cache_ttl": "10m", "tools_max": 3 }));
    assert_eq!(way(&exchange(&gateway, &request)), "miss", "it has another policy");
    change(json!({ "cache_ttl": null }));
    assert_eq!(way(&exchange(&gateway, &request)), "", "nothing is cached any more");
    assert_eq!(entries(&origin), 3);
    gateway.wait_at_rest();
    let last = gateway.admin.get("/api/v1/ai/requests?key=ci").json();
    let last = last["requests"].as_array().expect("requests");
    let hits: Vec<&Value> = last.iter().filter(|one| one["flags"] == json!(["cached"])).collect();
    assert_eq!((last.len(), hits.len()), (4, 1), "{last:?}");
    assert!(hits[0]["saved_tokens"].as_u64() > Some(0) && hits[0]["charged_tokens"] == 0, "{hits:?}");
}

#[test]
fn the_sdk_of_openai_finds_the_same_in_the_cache() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = cached(&origin, state.path(), "", "cache_ttl = \"10m\"\ncache_sampled = true");
    for _ in 0..2 {
        holds(&Sdk::OpenAi.run(&url(&gateway), KEY), 22);
    }
    let hits = gateway.metrics().sum_where("weir_ai_cache_requests_total", &[("result", "hit")]);
    assert!(hits >= 15.0, "{hits}");
    sums_agree(&origin, gateway, state.path());
}
