//! Publish and subscribe: every subscriber hears every message, through every gateway and from several processes.

use std::fs;

use serde_json::Value;

use super::{Bench, Origin, number, word};

const SCENARIO: &str = r#"
name = "fan-out"
protocol = "redis-pubsub"
arrival = "deterministic"
shards = 2
connections = 40
channels = 4
pipeline = 16
[[phase]]
rate = 2_000
warmup = "200ms"
duration = "1s"
"#;

fn json(bench: &Bench, name: &str) -> Value {
    let text = fs::read_to_string(bench.path(name)).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn subscribers_of_one_process_or_two_hear_everything() {
    let bench = Bench::new(SCENARIO);
    let origin = Origin::of("redis", &[]);
    for processes in ["1", "2"] {
        let words = ["lab", "load", "scenario.toml", "--target", &origin.address, "--processes", processes];
        let output = bench.weir(&[], &[&words[..], &["--json", "load.jsonl"]].concat());
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
        let record = json(&bench, "load.jsonl");
        for path in ["/counts/intended", "/counts/completed", "/counts/integrity/checked"] {
            assert_eq!(number(&record, path), 2_000.0, "{processes} processes: {path} in\n{told}");
        }
        assert_eq!(number(&record, "/counts/integrity/failed"), 0.0, "{told}");
    }
}

#[test]
fn every_gateway_delivers_every_message_and_the_cost_of_origin_and_gateway_is_reported() {
    let bench = Bench::new(&SCENARIO.replace("warmup = \"200ms\"", "warmup = \"1s\""));
    let output = bench.compare(&["--peers", "haproxy,direct", "--quick", "--json", "compared.json"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("origin CPU-s per million"), "{told}");
    let compared = json(&bench, "compared.json");
    for arm in ["weir", "haproxy", "direct"] {
        for run in 0..2 {
            let path = |rest: &str| format!("/rows/0/blocks/1/runs/{arm}/{run}{rest}");
            let count = |what: &str| number(&compared, &path(&format!("/trial/{what}")));
            // A busy machine is late, and then skips; nothing may be lost, damaged or out of order.
            let skipped = count("skipped_backlog") + count("skipped_generator");
            assert_eq!(count("completed") + skipped, 4_000.0, "{arm}\n{told}");
            assert!(count("completed") > 400.0 && count("integrity/failed") == 0.0, "{arm}\n{told}");
            assert!(number(&compared, &path("/origin_us")) > 0.0, "{arm}\n{told}");
        }
    }
    assert!(number(&compared, "/rows/0/blocks/0/runs/weir/0/trial/parties/gateway_cpu_us_per_req") > 0.1, "{told}");
    // A target that does not speak it is refused, and so is a sweep, which would change the audience.
    let refused = bench.compare(&["--peers", "twemproxy"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("twemproxy does not speak redis-pubsub"), "{complaint}");
    let refused = bench.weir(&[], &["lab", "ladder", "scenario.toml"]);
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("fan-out has channels"), "{complaint}");
}

#[test]
fn a_knee_counts_deliveries() {
    let bench = Bench::new(&SCENARIO.replace("shards = 2\n", "slo_p99 = \"500ms\"\n"));
    let (told, found) = bench.knee(&[], &["--rate-max", "4000"]);
    let found = found.unwrap_or_else(|| panic!("no result:\n{told}"));
    let row = word(&found, "/shape/row");
    assert!(row.starts_with("fan-out: messages to 4 channels, 10 subscribers each, 64B, 40 connections"), "{row}");
}
