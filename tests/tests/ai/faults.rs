//! Faults of clients and providers (cases A3 to A11) in front of the real program and the lab's origin.

use std::time::{Duration, Instant};

use weir_tests::ai::{AiOrigin, KEY, PROVIDER_KEY, gateway, gateway_under, usage};
use weir_tests::gateway::Gateway;
use weir_tests::http::{HttpClient, Response};

use crate::through::{chat, post};

/// One exchange on a connection of its own.
fn exchange(gateway: &Gateway, request: &str) -> Response {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(request);
    client.response()
}

#[test]
fn a3_a_line_without_an_end_is_cut_with_an_error_event() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    let before = gateway.process().resident();
    let response = exchange(&gateway, &chat("events=4 fault=endless at=1", ",\"stream\":true"));
    let text = response.content();
    assert!(text.contains("{\"error\":{") && !text.contains("[DONE]"), "{} bytes", text.len());
    assert!(text.len() < 2 << 20, "{} bytes were forwarded", text.len());
    let grown = gateway.process().resident_peak().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    // The connection to the provider is closed, and its slot is free.
    assert!(origin.ledger()["totals"]["open"] == 0);
    assert_eq!(exchange(&gateway, &chat("bytes=2", "")).status, 200);
}

#[test]
fn a6_each_deadline_has_its_name() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let deadlines = "first_token_timeout = \"300ms\"\ntoken_gap_timeout = \"300ms\"";
    let gateway = gateway(&origin, "openai", state.path(), deadlines);
    let begun = Instant::now();
    let late = exchange(&gateway, &chat("first=20s", ",\"stream\":true"));
    assert_eq!(late.status, 504, "{}", late.text());
    assert!(late.content().contains("ttft_timeout"), "{}", late.text());
    let paused = exchange(&gateway, &chat("events=4 gap=20s", ",\"stream\":true")).content();
    assert!(paused.contains("idle_timeout") && !paused.contains("[DONE]"), "{paused}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a8_the_value_that_is_checked_is_the_value_that_is_used() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "body_bytes_max = \"1MiB\"");
    let body = |text: &str| post("/v1/chat/completions", text);
    let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    for text in ["{\"model\":\"a\",\"model\":\"b\"}", "{\"model\":\"a\",\"mo\\u0064el\":\"b\"}", &deep] {
        let refused = exchange(&gateway, &body(text));
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    let long = exchange(&gateway, &body(&format!("{{\"model\":\"m\",\"x\":\"{}\"}}", "y".repeat(1 << 20))));
    assert_eq!(long.status, 413, "{}", long.text());
    let bomb = body("{}").replace("Content-Type", "Content-Encoding: gzip\r\nContent-Type");
    assert_eq!(exchange(&gateway, &bomb).status, 415);
    assert_eq!(origin.ledger()["entries"], serde_json::json!([]), "the provider sees none of them");
    assert_eq!(exchange(&gateway, &chat("bytes=2", ",\"temperature\":1e-9999999")).status, 200);
}

#[test]
fn a9_one_of_two_requests_gets_the_last_tokens() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    // Room for one reservation of about 100 tokens.
    gateway.rewrite(|text| text.replace("name = \"sdk\"\n", "name = \"sdk\"\nday_tokens = 190\n"));
    let reloaded = gateway.admin.post("/api/v1/reload", "");
    assert_eq!(reloaded.json()["outcome"], "applied", "{}", reloaded.json());
    let request = chat("bytes=2 first=500ms prompt=9", ",\"max_tokens\":90");
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let racers = [(); 2].map(|()| scope.spawn(|| exchange(&gateway, &request).status));
        racers.into_iter().map(|racer| racer.join().expect("it ends")).collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 429]);
}

#[test]
fn a10_a_storm_of_refusals_is_not_multiplied() {
    let origins = [(); 3].map(|()| AiOrigin::start());
    let state = tempfile::tempdir().expect("a folder");
    let further: String = origins[1..]
        .iter()
        .enumerate()
        .map(|(number, origin)| {
            format!(
                "[[upstream]]\nname = \"p{number}\"\nendpoints = [\"{}\"]\n[upstream.ai]\napi_key = \"env:PROVIDER_KEY\"\n",
                origin.address.text()
            )
        })
        .collect();
    let targets = ["provider", "p0", "p1"];
    let targets: String =
        targets.iter().map(|name| format!("[[listener.ai.model.target]]\nupstream = \"{name}\"\n")).collect();
    let model = format!("[[listener.ai.model]]\nname = \"m\"\n{targets}");
    let gateway = gateway_under(&origins[0], "openai", state.path(), &model, &further);
    const REQUESTS: usize = 200;
    for number in 0..REQUESTS {
        let status = [429, 500, 503][number % 3];
        let response = exchange(&gateway, &chat(&format!("status={status} word={number:08x}"), ""));
        assert!(response.status >= 429, "{}", response.text());
    }
    let tries: usize = origins.iter().map(|origin| origin.ledger()["entries"].as_array().map_or(0, Vec::len)).sum();
    // Each target once, at most; the budget of retries makes it less.
    assert!((REQUESTS..=3 * REQUESTS).contains(&tries), "{tries} tries for {REQUESTS} requests");
    // A failure within a stream is not tried again.
    let seen = |origin: &AiOrigin| origin.ledger()["entries"].as_array().map_or(0, Vec::len);
    let before: usize = origins.iter().map(seen).sum();
    exchange(&gateway, &chat("events=5 fault=cut at=2", ",\"stream\":true"));
    assert_eq!(origins.iter().map(seen).sum::<usize>(), before + 1);
}

#[test]
fn a11_names_inject_nothing_and_secrets_are_nowhere() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    let hostile = "x\\r\\nX-Injected: 1\\r\\n\\r\\nGET / HTTP/1.1";
    let members = format!(
        ",\"user\":\"{hostile}\",\"tools\":[{{\"type\":\"function\",\"function\":{{\"name\":\"{hostile}\",\"parameters\":{{}}}}}}]"
    );
    for request in [
        chat("bytes=2", &members),
        post(
            "/v1/chat/completions",
            &format!("{{\"model\":\"{hostile}\",\"messages\":[{{\"content\":\"[weir bytes=2] planted-secret-1\"}}]}}"),
        ),
    ] {
        let response = exchange(&gateway, &request);
        assert!(response.field("x-injected").is_none(), "{}", String::from_utf8_lossy(&response.head));
    }
    assert!(origin.ledger()["entries"].as_array().map_or(0, Vec::len) <= 2, "a request was split");
    let metrics = gateway.admin.get("/metrics");
    let log = gateway.log();
    gateway.finish();
    let lines: String = usage(state.path()).iter().map(ToString::to_string).collect();
    for secret in [KEY, PROVIDER_KEY, "planted-secret-1", "[weir "] {
        for (place, text) in [("usage log", &lines), ("log", &log), ("metrics", &format!("{metrics:?}"))] {
            assert!(!text.contains(secret), "{secret} is in the {place}");
        }
    }
}
