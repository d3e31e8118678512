//! HTTP/1.1, HTTP/2 and WebSocket: every gateway that the lab knows carries them, and the tables of a sweep come out.

use std::fs;

use serde_json::Value;

use super::{Bench, number, word};

/// A scenario of `protocol` as its example has it, with `streams` for HTTP/2.
fn scenario(protocol: &str) -> String {
    let depth = if protocol == "http2" { "streams = 4\n" } else { "" };
    format!(
        "name = \"{protocol}-small\"\nprotocol = \"{protocol}\"\n{depth}payload.size = \"1KiB\"\n\
         [[phase]]\nrate = 500\nduration = \"1s\"\n"
    )
}

fn bench() -> Bench {
    let bench = Bench::new("");
    for protocol in ["http1", "http2", "websocket"] {
        fs::write(bench.path(&format!("{protocol}.toml")), scenario(protocol)).expect("written");
    }
    bench
}

/// The output of a command, and its result.
fn run(bench: &Bench, words: &[&str], json: &str) -> (String, Value) {
    let output = bench.weir(&[], &[words, &["--warmup", "200ms", "--seconds", "1", "--json", json]].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path(json)).expect("a result");
    (told, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn every_protocol_is_carried_by_every_gateway_without_a_wrong_response_and_cores_have_their_share() {
    let bench = bench();
    let peers = ["--peers", "nginx,haproxy,envoy,direct"];
    let scenarios = ["lab", "ladder", "http1.toml", "http2.toml", "websocket.toml", "--at", "8"];
    let (told, result) = run(&bench, &[&scenarios[..], &peers].concat(), "ladder.json");
    assert_eq!(word(&result, "/schema"), "weir.lab.sweep/1");
    assert!(number(&result, "/rules/steady_share") > 0.0, "the thresholds are stored");
    for (at, (protocol, arms)) in [
        ("HTTP/1.1", ["weir", "nginx", "haproxy-http", "envoy-http", "direct"]),
        ("HTTP/2", ["weir", "nginx-http2", "haproxy-http2", "envoy-http2", "direct"]),
        ("WebSocket", ["weir", "nginx-websocket", "haproxy-http", "envoy-http", "direct"]),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(word(&result, &format!("/groups/{at}/protocol")), protocol);
        assert!(told.contains(&format!("## {protocol}, 1KiB")), "{told}");
        for (rung, arm) in arms.into_iter().enumerate() {
            let path = |rest: &str| format!("/groups/{at}/rungs/{rung}{rest}");
            assert_eq!((word(&result, &path("/arm")), word(&result, &path("/mode"))), (arm, "closed"), "{told}");
            // Whether the machine was fit decides on no test; what was answered does.
            assert!(number(&result, &path("/figures/rate")) > 100.0, "{protocol} {arm}\n{told}");
            let failures = number(&result, &path("/figures/errors")) + number(&result, &path("/figures/refused"));
            assert_eq!(failures, 0.0, "{protocol} {arm}\n{told}");
            let cost = result.pointer(&path("/figures/cpu_us_per_req")).and_then(Value::as_f64);
            assert_eq!(cost.is_some_and(|micros| micros > 1.0), arm != "direct", "{protocol} {arm}: {cost:?}\n{told}");
            // Two connections of HTTP/2 with four streams each.
            let connections = if protocol == "HTTP/2" { 2.0 } else { 8.0 };
            assert_eq!(number(&result, &path("/connections")), connections);
        }
    }
    let (told, result) = run(&bench, &["lab", "cores", "http1.toml", "--cores", "1,512", "--users", "8"], "cores.json");
    assert!(told.contains("not run: a budget of 512 CPUs"), "{told}");
    assert!(word(&result, "/groups/0/server/version").contains("nginx"), "{told}");
    let is_not_run = |line: &str| line.starts_with("|   512 |") && line.contains("not run");
    assert!(told.lines().any(is_not_run), "{told}");
    for rung in 0..2 {
        assert_eq!(number(&result, &format!("/groups/0/rungs/{rung}/figures/errors")), 0.0, "{told}");
    }
    // Both stand in one report.
    let reported = bench.weir(&[], &["lab", "report", "."]);
    assert!(reported.status.success(), "{}", String::from_utf8_lossy(&reported.stderr));
    let page = |name: &str| fs::read_to_string(bench.path(name)).expect("a report");
    let (text, html) = (page("report.md"), page("report.html"));
    for words in ["## Ladder", "### WebSocket, 1KiB", "## Cores to throughput", "% of direct", "| haproxy-http2"] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    // A drawing has figures that count, and where the machine was not fit there are none.
    let counts = |rung: &Value| rung["failed"].is_null();
    let has_counted = result["groups"][0]["rungs"].as_array().is_some_and(|rungs| rungs.iter().any(counts));
    assert_eq!(html.contains("throughput against cores"), has_counted, "{html}");
}

#[test]
fn a_sweep_that_cannot_be_is_refused_before_any_load() {
    let bench = bench();
    let refusal = |words: &[&str]| {
        let output = bench.weir(&[], words);
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refusal(&["lab", "cores", "http2.toml"]).contains("nginx can stand behind a scenario with protocol"));
    assert!(refusal(&["lab", "cores", "http1.toml", "--cores", "512"]).contains("nothing was measured: not run"));
    assert!(
        refusal(&["lab", "ladder", "http1.toml", "--peers", "twemproxy"]).contains("twemproxy does not speak http1")
    );
    assert!(refusal(&["lab", "ladder", "http1.toml", "--at", "0"]).contains("invalid value '0'"));
    assert!(refusal(&["lab", "ladder", "http1.toml", "--behind", "127.0.0.1:9"]).contains("cannot reach 127.0.0.1:9"));
}
