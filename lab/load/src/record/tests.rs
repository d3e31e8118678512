//! The record: golden shape, round trip, merging through text.

use std::collections::BTreeSet;

use super::*;
use crate::outcome::{ErrorClass, Stamps, Turn};
use crate::requests::Integrity;
use crate::scenario;

const SCENARIO: &str = r#"
name = "redis-get"
protocol = "redis"
slo_p99 = "2ms"
command = [{ name = "GET" }]
phase = [{ rate = 1000.5, duration = "10s" }]
"#;

fn outcome(part: u64) -> WindowResult {
    let mut outcome = WindowResult::new(Duration::from_secs(1));
    for request in part * 10_000..part * 10_000 + 2_000 {
        outcome.intended();
        outcome.sent();
        let intended = request * 1_000;
        let stamps =
            Stamps { intended, ready: intended, sent: intended + 7_000, completed: intended + 90_000 * (part + 1) };
        match request % 100 {
            0 => outcome.shed("queue_full", &stamps),
            1 => outcome.failed(ErrorClass::Status, Some(&stamps)),
            _ => outcome.completed(&stamps, Some(Integrity::Ok)),
        }
    }
    outcome.intended();
    outcome.skipped(Turn::SkipBacklog);
    outcome
}

fn record(outcome: &WindowResult) -> StepRecord {
    let scenario = scenario::parse("s.toml", SCENARIO).expect("a right scenario");
    StepRecord {
        identity: Identity {
            schema: SCHEMA.to_owned(),
            run_id: "r1".to_owned(),
            step: 3,
            repeat: 0,
            row: scenario.name.clone(),
            arm: "weir".to_owned(),
            commit: None,
            build: "0.1.0 release".to_owned(),
            seed: u64::MAX,
            started: "2026-01-02T03:04:05Z".to_owned(),
        },
        part: None,
        host: Host { cpus: Some(2), ..Host::default() },
        placement: Placement { budget_vcpu: Some(0.5), budget_kind: Some(BudgetKind::Quota), ..Placement::default() },
        load: Load::of(&scenario, &scenario.phases[0]),
        counts: outcome.counts.clone(),
        latency: Latency::of(&outcome.latencies),
        resources: Resources {
            parties: BTreeMap::from([("gateway".to_owned(), Party::default())]),
            ..Resources::default()
        },
        wire: Wire::default(),
        verdict: Verdict {
            valid: true,
            invalid_reason: None,
            failed_checks: Vec::new(),
            class: Some(Class::NotClean),
            not_clean_reason: Some("shed".to_owned()),
            stop_reason: None,
            evidence: BTreeMap::from([("shed".to_owned(), 20.into())]),
        },
        thresholds: Vec::new(),
    }
}

#[test]
fn a_record_reads_back_as_itself_from_one_line() {
    let record = record(&outcome(0));
    let line = record.to_line().expect("a line");
    assert!(!line.contains('\n'));
    assert_eq!(StepRecord::from_line(&line).expect("a record"), record);
}

#[test]
fn the_line_has_the_groups_and_names_of_the_schema() {
    let json: serde_json::Value = serde_json::from_str(&record(&outcome(0)).to_line().unwrap()).unwrap();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let names = |text: &str| -> BTreeSet<String> { text.split_whitespace().map(str::to_owned).collect() };
    let identity = "schema run_id step repeat row arm commit build seed started";
    let groups = "host placement load counts latency resources wire verdict";
    assert_eq!(keys(&json), names(&format!("{identity} {groups}")));
    for (group, expected) in [
        ("host", "kernel cpu_model cpus virt cgroup pmu nofile somaxconn clocksource"),
        ("placement", "budget_vcpu budget_kind pins driver tls telemetry"),
        ("load", "mode arrival offered connections pipeline streams payload window_s warmup_s late_limit_us"),
        ("counts", "intended sent completed late skipped_backlog skipped_generator shed errors integrity"),
        ("latency", "sojourn service backlog generator_lag first_event error_service"),
        ("resources", "parties box_us_per_req steal cycles_per_req instructions_per_req"),
        ("wire", "tx_bytes rx_bytes goodput_bytes connections_per_core"),
        ("verdict", "valid invalid_reason class not_clean_reason stop_reason evidence"),
    ] {
        assert_eq!(keys(&json[group]), names(expected), "{group}");
    }
    assert_eq!(keys(&json["latency"]["sojourn"]), names("min mean p50 p90 p99 p999 max n over_range hist"));
    assert_eq!(keys(&json["counts"]["errors"]), names("transport protocol status timeout payload"));
    assert_eq!(keys(&json["counts"]["integrity"]), names("checked failed race_suspect"));
    let party = "cpu_us_per_req kernel_share busiest_core rss_max fds_max threads throttled";
    assert_eq!(keys(&json["resources"]["parties"]["gateway"]), names(party));
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["seed"], u64::MAX);
    assert_eq!(json["load"]["offered"], 1_000.5);
    assert_eq!(json["load"]["arrival"], "poisson");
    assert_eq!(json["placement"]["budget_kind"], "quota");
    assert_eq!(json["verdict"]["class"], "not-clean");
    // 1,960 samples: enough for p99, not for p99.9.
    assert_eq!(json["latency"]["sojourn"]["n"], 1_960);
    assert_eq!(json["latency"]["sojourn"]["p99"], 90);
    assert!(json["latency"]["sojourn"]["p999"].is_null());
}

#[test]
fn two_processes_merge_to_the_measurement_of_one() {
    let (mut one, other) = (outcome(0), outcome(1));
    let read = |outcome: &WindowResult| {
        StepRecord::from_line(&record(outcome).to_line().unwrap()).unwrap().outcome().expect("whole histograms")
    };
    let mut merged = read(&one);
    assert_eq!(merged, one);
    merged.merge(&read(&other));
    one.merge(&other);
    assert_eq!(merged, one);
    assert_eq!(merged.counts.shed["queue_full"], 40);
}

#[test]
fn unknown_fields_pass_and_another_schema_does_not() {
    let line = record(&outcome(0)).to_line().unwrap();
    let newer = line.replacen('{', "{\"later\":{\"x\":1},", 1).replacen("\"valid\":", "\"more\":[],\"valid\":", 1);
    assert_eq!(StepRecord::from_line(&newer).expect("a record"), record(&outcome(0)));
    let other = line.replacen("weir.lab.step/1", "weir.lab.step/2", 1);
    assert!(matches!(StepRecord::from_line(&other), Err(RecordError::Schema(found)) if found.ends_with("/2")));
    assert!(matches!(StepRecord::from_line("{}"), Err(RecordError::Json(_))));
    let mut damaged = record(&outcome(0));
    damaged.latency.sojourn.hist.truncate(8);
    assert!(matches!(damaged.outcome(), Err(RecordError::Histogram(_))));
}
