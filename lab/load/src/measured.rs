//! The sum of the measurements of several shards in one phase: those of one process, or of all that run a scenario together.
//! The figures of a record and its verdict both come from these sums, so both are judged alike.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_knee::judge::failed_checks;
use weir_knee::trial::{Backend, Integrity, Parties, Trial};
use weir_knee::{Rules, judge};

use crate::outcome::WindowResult;
use crate::record::{Class, Latency, Load, Party, Resources, Verdict, Wire};
use crate::recorder::{Recorder, Tail};

/// The sums of some shards.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) outcome: WindowResult,
    /// CPU of their threads within the window.
    pub(crate) cpu_nanos: u64,
    /// Busy share of the busiest of these threads, to a thousandth.
    pub(crate) busiest_core: f64,
    pub(crate) threads: u32,
    pub(crate) connections_lost: u32,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_bytes: u64,
}

impl Measured {
    /// The sum of no shards.
    pub(crate) fn none(late_limit: Duration) -> Self {
        Self {
            outcome: WindowResult::new(late_limit),
            cpu_nanos: 0,
            busiest_core: 0.0,
            threads: 0,
            connections_lost: 0,
            tx_bytes: 0,
            rx_bytes: 0,
        }
    }

    /// Adds other shards. In which order, and in which groups, makes no difference.
    pub(crate) fn merge(&mut self, other: &Self) {
        let Self { outcome, cpu_nanos, busiest_core, threads, connections_lost, tx_bytes, rx_bytes } = other;
        self.outcome.merge(outcome);
        self.cpu_nanos += cpu_nanos;
        self.busiest_core = self.busiest_core.max(*busiest_core);
        self.threads = self.threads.saturating_add(*threads);
        self.connections_lost = self.connections_lost.saturating_add(*connections_lost);
        self.tx_bytes += tx_bytes;
        self.rx_bytes += rx_bytes;
    }

    pub(crate) fn latency(&self) -> Latency {
        Latency::of(&self.outcome.latencies)
    }

    pub(crate) fn resources(&self) -> Resources {
        let completed = self.outcome.counts.completed;
        let generator = Party {
            cpu_us_per_req: (completed > 0).then(|| rounded(self.cpu_nanos as f64 / 1e3 / completed as f64)),
            busiest_core: Some(self.busiest_core),
            threads: Some(self.threads),
            ..Party::default()
        };
        Resources { parties: BTreeMap::from([("generator".to_owned(), generator)]), ..Resources::default() }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire { tx_bytes: self.tx_bytes, rx_bytes: self.rx_bytes, ..Wire::default() }
    }

    /// The figures that the generator can supply for a trial; the CPU of the other parties and the rest of the box are not its
    /// own. `load` is the load that these shards had to generate.
    pub(crate) fn trial(&self, load: &Load, slo_p99_us: Option<u64>) -> Trial {
        let counts = &self.outcome.counts;
        let latencies = &self.outcome.latencies;
        let micros =
            |recorder: &Recorder, tail| recorder.percentile(tail).micros().unwrap_or_else(|| recorder.max_micros());
        Trial {
            offered: load.offered.unwrap_or(0.0),
            window_s: load.window_s,
            intended: counts.intended,
            completed: counts.completed,
            wire_bytes: self.tx_bytes + self.rx_bytes,
            skipped_backlog: counts.skipped_backlog,
            skipped_generator: counts.skipped_generator,
            shed: counts.shed_total(),
            errors: counts.errors,
            integrity: Integrity {
                checked: counts.integrity.checked,
                failed: counts.integrity.failed,
                mix_ups: 0,
                is_status_only: load.is_status_only,
            },
            latency: weir_knee::trial::Latency {
                sojourn_p50_us: micros(&latencies.sojourn, Tail::P50),
                sojourn_p99_us: micros(&latencies.sojourn, Tail::P99),
                lag_p99_us: micros(&latencies.generator_lag, Tail::P99),
                lag_max_us: latencies.generator_lag.max_micros(),
            },
            slo_p99_us,
            is_steady: true,
            resources: weir_knee::trial::Resources {
                sockets_asked: load.connections.into(),
                sockets_established: load.connections.saturating_sub(self.connections_lost).into(),
                ..Default::default()
            },
            // The kind of server behind the target is not known here, so its CPU is no check.
            backend: Backend::Real,
            parties: Parties { generator_core_busiest: self.busiest_core, ..Parties::default() },
            ..Trial::default()
        }
    }
}

/// Judged by what the generator itself knows.
pub(crate) fn verdict(trial: &Trial) -> Verdict {
    let mut judged = trial.clone();
    if trial.offered == 0.0 {
        // In a closed loop the generator is meant to be as busy as it can, and is late by its nature.
        judged.parties.generator_core_busiest = 0.0;
        (judged.latency.lag_p99_us, judged.latency.lag_max_us, judged.skipped_generator) = (0, 0, 0);
    }
    let rules = Rules::default();
    let (class, invalid_reason, not_clean_reason) = match judge(&judged, &rules) {
        weir_knee::Verdict::Clean => (Some(Class::Clean), None, None),
        weir_knee::Verdict::NotClean(found) => (Some(Class::NotClean), None, Some(found.reason.to_string())),
        weir_knee::Verdict::Invalid(found) => (None, Some(found.reason.to_string()), None),
        weir_knee::Verdict::Unsteady => (None, Some("unsteady".to_owned()), None),
    };
    let mut failed_checks: Vec<String> =
        failed_checks(&judged, &rules).iter().map(|found| found.reason.to_string()).collect();
    if failed_checks.is_empty() {
        // Too few samples are found last, and are no such check.
        failed_checks.extend(invalid_reason.clone());
    }
    let lost = trial.resources.sockets_asked - trial.resources.sockets_established;
    let evidence = BTreeMap::from([
        ("connections_lost".to_owned(), lost.into()),
        ("generator_core_busiest".to_owned(), trial.parties.generator_core_busiest.into()),
        ("generator_lag_max_us".to_owned(), trial.latency.lag_max_us.into()),
    ]);
    let valid = invalid_reason.is_none();
    Verdict { valid, invalid_reason, failed_checks, class, not_clean_reason, stop_reason: None, evidence }
}

/// To a thousandth: more would be noise, and such numbers read back from JSON as they were.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ErrorClass, Stamps};
    use crate::requests::Integrity;
    use crate::scenario;

    const SOURCE: &str = r#"
name = "s"
protocol = "redis"
command = [{ name = "GET" }]
phase = [{ rate = 1000, duration = "10s" }]
"#;
    const SLO_US: u64 = 2_000;

    /// 2,000 good requests, sent `lag_micros` after they were ready and answered 500 us later.
    fn outcome(lag_micros: u64, integrity: Option<Integrity>) -> WindowResult {
        let mut outcome = WindowResult::new(Duration::from_secs(1));
        for _ in 0..2_000 {
            outcome.intended();
            outcome.sent();
            let sent = 1 + lag_micros * 1_000;
            outcome.completed(&Stamps { intended: 1, ready: 1, sent, completed: sent + 500_000 }, integrity);
        }
        outcome
    }

    fn measured(outcome: &WindowResult, lost: u32, busiest: f64) -> Measured {
        Measured {
            outcome: outcome.clone(),
            cpu_nanos: 3_000_000,
            busiest_core: busiest,
            threads: 1,
            connections_lost: lost,
            tx_bytes: 10,
            rx_bytes: 20,
        }
    }

    fn verdict(outcome: &WindowResult, lost: u32, busiest: f64) -> (Option<String>, Option<String>) {
        let scenario = scenario::parse("s.toml", SOURCE).expect("a right scenario");
        let load = Load::of(&scenario, &scenario.phases[0]);
        let verdict = super::verdict(&measured(outcome, lost, busiest).trial(&load, Some(SLO_US)));
        assert_eq!(verdict.valid, verdict.class.is_some());
        (verdict.invalid_reason, verdict.not_clean_reason)
    }

    #[test]
    fn a_step_names_the_reason_why_it_is_invalid() {
        let ok = Some(Integrity::Ok);
        assert_eq!(verdict(&outcome(100, ok), 0, 0.5), (None, None));
        for (outcome, lost, busiest, reason) in [
            (outcome(100, ok), 1, 0.5, "connections"),
            (outcome(100, ok), 0, 0.9, "generator-cpu"),
            (outcome(300, ok), 0, 0.5, "generator-lag"),
            (outcome(100, None), 0, 0.5, "unchecked"),
        ] {
            assert_eq!(verdict(&outcome, lost, busiest), (Some(reason.to_owned()), None));
        }
    }

    #[test]
    fn a_step_that_knows_only_statuses_needs_no_checked_replies() {
        let scenario = scenario::parse("s.toml", SOURCE).expect("a right scenario");
        let mut load = Load::of(&scenario, &scenario.phases[0]);
        let judged = |load: &Load| super::verdict(&measured(&outcome(100, None), 0, 0.5).trial(load, None));
        assert_eq!(judged(&load).invalid_reason.as_deref(), Some("unchecked"));
        load.is_status_only = true;
        assert!(judged(&load).valid);
    }

    #[test]
    fn an_invalid_step_names_every_failed_check_and_whether_they_are_the_targets() {
        let scenario = scenario::parse("s.toml", SOURCE).expect("a right scenario");
        let load = Load::of(&scenario, &scenario.phases[0]);
        let judged = |lag, lost, busiest| {
            super::verdict(&measured(&outcome(lag, Some(Integrity::Ok)), lost, busiest).trial(&load, Some(SLO_US)))
        };
        let dropped = judged(100, 1, 0.5);
        assert_eq!((&dropped.failed_checks[..], dropped.is_of_target()), (&["connections".to_owned()][..], true));
        let late = judged(300, 1, 0.9);
        assert_eq!(late.failed_checks, ["connections", "generator-cpu", "generator-lag"]);
        assert!(!late.is_of_target() && judged(100, 0, 0.5).is_of_target());
    }

    #[test]
    fn a_valid_step_names_its_blemish() {
        let mut failed = outcome(100, Some(Integrity::Ok));
        failed.intended();
        failed.failed(ErrorClass::Status, None);
        assert_eq!(verdict(&failed, 0, 0.5), (None, Some("errors".to_owned())));
        let mut slow = WindowResult::new(Duration::from_secs(1));
        for _ in 0..2_000 {
            slow.intended();
            slow.completed(&Stamps { intended: 1, ready: 1, sent: 1, completed: 2_500_001 }, Some(Integrity::Ok));
        }
        assert_eq!(verdict(&slow, 0, 0.5), (None, Some("slo".to_owned())));
    }

    #[test]
    fn shards_merge_in_any_order_and_grouping() {
        let parts = [
            measured(&outcome(100, Some(Integrity::Ok)), 0, 0.5),
            measured(&outcome(300, None), 2, 0.25),
            measured(&outcome(7, Some(Integrity::Missing)), 1, 0.875),
        ];
        let sum = |order: &[&Measured]| {
            let mut sum = order[0].clone();
            order[1..].iter().for_each(|other| sum.merge(other));
            sum
        };
        let [a, b, c] = &parts;
        let left = sum(&[a, b, c]);
        assert_eq!(left, sum(&[c, a, b]));
        assert_eq!(left, sum(&[a, &sum(&[b, c])]));
        assert_eq!((left.cpu_nanos, left.busiest_core, left.threads, left.connections_lost), (9_000_000, 0.875, 3, 3));
    }
}
