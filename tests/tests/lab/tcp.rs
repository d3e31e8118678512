//! TCP: a load is sent and checked, by one process or several, and every gateway that the lab knows carries it.

use std::fs;

use serde_json::Value;

use super::{Bench, Origin, number, word};

const SCENARIO: &str = r#"
name = "tcp-small"
protocol = "tcp"
arrival = "deterministic"
shards = 2
connections = 8
pipeline = 2
payload.size = "1KiB"
[[phase]]
rate = 500
warmup = "200ms"
duration = "1s"
"#;

/// The output of a command, and the JSON of its output file.
fn run(bench: &Bench, words: &[&str], json: &str) -> (String, Value) {
    let output = bench.weir(&[], &[words, &["--json", json]].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path(json)).expect("a result");
    (told, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn every_message_comes_back_to_one_process_or_two_and_is_checked() {
    let bench = Bench::new(SCENARIO);
    let origin = Origin::of("tcp", &["--workers", "2"]);
    let load = ["lab", "load", "scenario.toml", "--target", &origin.address];
    for processes in ["1", "2"] {
        let (told, record) = run(&bench, &[&load[..], &["--processes", processes]].concat(), "load.jsonl");
        assert!(told.contains("tcp-small / phase-1: open loop, 1.0 s"), "{told}");
        for path in ["/counts/intended", "/counts/completed", "/counts/integrity/checked"] {
            assert_eq!(number(&record, path), 500.0, "{processes} processes: {path} in\n{told}");
        }
        assert_eq!(number(&record, "/counts/integrity/failed"), 0.0, "{told}");
        assert_eq!((number(&record, "/load/connections"), number(&record, "/load/pipeline")), (8.0, 2.0));
    }
}

#[test]
fn every_gateway_carries_tcp_without_a_wrong_byte() {
    let bench = Bench::new(SCENARIO);
    let words = ["lab", "ladder", "scenario.toml", "--at", "8", "--warmup", "200ms", "--seconds", "1"];
    let (told, result) = run(&bench, &[&words[..], &["--peers", "haproxy,envoy,direct"]].concat(), "ladder.json");
    assert!(told.contains("## TCP, 1KiB"), "{told}");
    assert_eq!(word(&result, "/groups/0/protocol"), "TCP");
    for (rung, arm) in ["weir", "haproxy", "envoy-tcp", "direct"].into_iter().enumerate() {
        let path = |rest: &str| format!("/groups/0/rungs/{rung}{rest}");
        assert_eq!(word(&result, &path("/arm")), arm, "{told}");
        assert!(number(&result, &path("/figures/rate")) > 100.0, "{arm}\n{told}");
        let failures = number(&result, &path("/figures/errors")) + number(&result, &path("/figures/refused"));
        assert_eq!(failures, 0.0, "{arm}\n{told}");
    }
}

#[test]
fn a_knee_and_a_comparison_are_made_with_the_origin_of_the_protocol() {
    let bench = Bench::new(&SCENARIO.replace("arrival = \"deterministic\"\n", "slo_p99 = \"500ms\"\n"));
    let output = bench.compare(&["--peers", "direct", "--quick", "--json", "compared.json"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let compared = fs::read_to_string(bench.path("compared.json")).expect("a result");
    let compared: Value = serde_json::from_str(&compared).expect("JSON");
    assert_eq!(
        (word(&compared, "/arms/0/name"), word(&compared, "/behind")),
        ("weir", "an origin of the lab"),
        "{told}"
    );
    let (told, found) = bench.knee(&[], &["--rate-max", "1000"]);
    let found = found.unwrap_or_else(|| panic!("no result:\n{told}"));
    assert!(
        word(&found, "/shape/row").starts_with("tcp-small: TCP echo, 1KiB, 8 connections, pipeline 2"),
        "{found:#}"
    );
}
