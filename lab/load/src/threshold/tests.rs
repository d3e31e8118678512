//! Thresholds, and whose fault a miss is.

use super::*;
use crate::outcome::Latencies;
use crate::record::Latency;

/// Record of an open loop without any requests.
const RECORD: &str = r#"{"schema":"weir.lab.step/1","run_id":"r1","step":0,"repeat":0,"row":"s","arm":"a","commit":null,
    "build":"0.1.0","seed":1,"started":"2026-01-02T03:04:05Z","host":{},"placement":{"pins":{}},
    "load":{"mode":"open","arrival":"poisson","offered":100.0,"connections":5,"pipeline":1,"streams":null,
    "payload":"64B","window_s":10.0,"warmup_s":0.0,"late_limit_us":1000000},
    "counts":{"intended":0,"sent":0,"completed":0,"late":0,"skipped_backlog":0,"skipped_generator":0,"shed":{},
    "errors":{"transport":0,"protocol":0,"status":0,"timeout":0,"payload":0},
    "integrity":{"checked":0,"failed":0,"race_suspect":0}},
    "latency":{"sojourn":{"n":0,"hist":""},"service":{"n":0,"hist":""},"backlog":{"n":0,"hist":""},
    "generator_lag":{"n":0,"hist":""},"error_service":{"n":0,"hist":""}},
    "resources":{"parties":{}},"wire":{"tx_bytes":0,"rx_bytes":0},"verdict":{"valid":true,"evidence":{}}}"#;

#[test]
fn a_threshold_is_read_with_its_unit_and_written_as_it_was() {
    for (text, metric, comparison, bound) in [
        ("p99<5ms", Metric::Percentile(Tail::P99), Comparison::Below, 5_000.0),
        ("p99.9 <= 1.5s", Metric::Percentile(Tail::P999), Comparison::AtMost, 1_500_000.0),
        ("p95<500us", Metric::Percentile(Tail::P95), Comparison::Below, 500.0),
        ("errors<0.1%", Metric::Errors, Comparison::Below, 0.001),
        ("errors==0", Metric::Errors, Comparison::Equal, 0.0),
        ("rate>1990", Metric::Rate, Comparison::Above, 1_990.0),
        ("rate>=2.5k/s", Metric::Rate, Comparison::AtLeast, 2_500.0),
        ("avg<1ms", Metric::Mean, Comparison::Below, 1_000.0),
    ] {
        let read: Threshold = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((read.metric, read.comparison), (metric, comparison), "{text}");
        assert!((read.bound - bound).abs() < 1e-9, "{text}: {}", read.bound);
        assert_eq!(read.to_string(), text.replace(' ', ""));
    }
    assert_eq!(Threshold::of_slo(Duration::from_micros(500)).to_string(), "p99<=500us");
}

#[test]
fn a_wrong_threshold_names_its_mistake() {
    for (text, why) in [
        ("p99", "has no comparison"),
        ("p98<5ms", "no figure \"p98\"; write one of p50, p90"),
        ("p99<5", "the bound \"5\" is not a time"),
        ("max<61s", "at most 60s"),
        ("p99=5ms", "the comparison is one of"),
        ("errors<0.1ms", "is not a share"),
        ("errors<200%", "is not a share"),
        ("rate>-1", "is not requests per second"),
        ("rate>inf", "is not requests per second"),
        ("rate>", "is not requests per second"),
    ] {
        let error = text.parse::<Threshold>().expect_err(text).to_string();
        assert!(error.contains(why) && error.starts_with(&format!("threshold \"{text}\"")), "{error}");
    }
}

/// A record of an open loop with what became of `intended` requests.
fn record(intended: u64, change: impl FnOnce(&mut StepRecord)) -> StepRecord {
    let mut record = StepRecord::from_line(RECORD).expect("a record");
    record.latency = Latency::of(&Latencies::default());
    record.counts.intended = intended;
    change(&mut record);
    record
}

fn invalid(record: &mut StepRecord, reasons: &[&str]) {
    record.verdict.valid = false;
    record.verdict.invalid_reason = reasons.first().map(|reason| (*reason).to_owned());
    record.verdict.failed_checks = reasons.iter().map(|reason| (*reason).to_owned()).collect();
}

fn judged(mut record: StepRecord, threshold: &str) -> (Gate, &'static str) {
    record.judge(&[threshold.parse().expect("right")]).expect("whole histograms");
    (Gate::of(&record), record.thresholds[0].word())
}

#[test]
fn a_late_generator_makes_no_errors() {
    let late = |change: fn(&mut Counts)| {
        record(1_000, |record| {
            (record.counts.completed, record.counts.skipped_generator) = (900, 100);
            change(&mut record.counts);
            invalid(record, &["generator-lag"]);
        })
    };
    assert_eq!(judged(late(|_| {}), "errors<1%"), (Gate::Invalid, "met"));
    assert_eq!(judged(late(|_| {}), "rate>95"), (Gate::Invalid, "unknown"));
    // It reads replies late too: what looks like a backlog or a timeout may be its own.
    let behind = |counts: &mut Counts| {
        (counts.completed, counts.skipped_backlog, counts.errors.timeout) = (850, 25, 25);
    };
    assert_eq!(judged(late(behind), "errors<1%"), (Gate::Invalid, "unknown"));
    let failed = |counts: &mut Counts| (counts.completed, counts.errors.status) = (850, 50);
    assert_eq!(judged(late(failed), "errors<1%"), (Gate::Missed, "MISSED"));
    assert_eq!(judged(late(failed), "errors==0"), (Gate::Missed, "MISSED"));
    // Few errors of a starved run do not prove that a whole one has as few.
    assert_eq!(judged(late(failed), "errors>10%"), (Gate::Invalid, "unknown"));
}

#[test]
fn a_target_that_completes_nothing_misses_its_thresholds() {
    let dead = |intended: u64| {
        record(intended, |record| {
            record.counts.errors.status = intended;
            record.verdict.not_clean_reason = Some("errors".to_owned());
        })
    };
    for threshold in ["p99<5ms", "max<5ms", "rate>1", "errors<1%"] {
        assert_eq!(judged(dead(2_000), threshold), (Gate::Missed, "MISSED"), "{threshold}");
    }
    // No target could have made a p99 of so few.
    assert_eq!(judged(dead(20), "p99<5ms"), (Gate::Invalid, "unknown"));
    let closed = |record: &mut StepRecord| record.load.offered = None;
    let mut few = dead(20);
    closed(&mut few);
    assert_eq!(judged(few, "p99<5ms"), (Gate::Missed, "MISSED"));
    let mut short = record(20, |record| record.counts.completed = 20);
    closed(&mut short);
    assert_eq!(judged(short, "p99<5ms"), (Gate::Invalid, "unknown"));
    // It hangs since the warm-up.
    let silent = || record(0, closed);
    assert_eq!(judged(silent(), "p99<5ms"), (Gate::Missed, "MISSED"));
    assert_eq!(judged(silent(), "errors<1%"), (Gate::Missed, "MISSED"));
    let mut starved = dead(2_000);
    invalid(&mut starved, &["generator-cpu"]);
    assert_eq!(judged(starved, "p99<5ms"), (Gate::Invalid, "unknown"));
}

#[test]
fn connections_that_the_target_dropped_excuse_no_missed_threshold() {
    let dropped = |reasons: &[&str]| {
        record(2_000, |record| {
            (record.counts.completed, record.counts.errors.timeout) = (500, 1_500);
            invalid(record, reasons);
        })
    };
    assert_eq!(judged(dropped(&["connections"]), "rate>90"), (Gate::Missed, "MISSED"));
    assert_eq!(judged(dropped(&["connections"]), "p99<5ms"), (Gate::Missed, "MISSED"));
    assert_eq!(judged(dropped(&["connections"]), "rate>10"), (Gate::Invalid, "met"));
    assert_eq!(judged(dropped(&["connections", "generator-lag"]), "rate>90"), (Gate::Invalid, "unknown"));
}
