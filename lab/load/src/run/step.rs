//! The record of a phase, and what the generator itself can say of its worth.

use std::collections::BTreeMap;

use super::host;
use super::worker::ShardStep;
use crate::outcome::Outcome;
use crate::record::{Class, Identity, Latency, Load, Party, Placement, Resources, SCHEMA, StepRecord, Verdict, Wire};
use crate::recorder::{Percentile, Tail};
use crate::scenario::{Phase, Scenario};

/// p99 of the generator's lag: at most this, or a tenth of the p99 sojourn.
const LAG_P99_MICROS_MAX: u64 = 200;
const LAG_P99_SHARE: u64 = 10;
const LAG_MICROS_MAX: u64 = 50_000;
/// Busy share of a generator core.
const GENERATOR_CORE_MAX: f64 = 0.85;
/// Replies that must be checked: one in so many, and so many of any run that has them.
const CHECKED_ONE_IN: u64 = 100;
const CHECKED_MIN: u64 = 1_000;
/// Share of the intended requests that a clean step completes.
const COMPLETED_SHARE_MIN: f64 = 0.999;

/// Which run the records belong to.
pub(super) struct Run {
    id: String,
    target: String,
    host: crate::record::Host,
}

impl Run {
    pub(super) fn new(target: String) -> Self {
        Self { id: host::run_id(), target, host: host::facts() }
    }

    /// The record of phase `index`, over all shards.
    pub(super) fn record(&self, scenario: &Scenario, index: usize, started: String, parts: &[ShardStep]) -> StepRecord {
        let phase = &scenario.phases[index];
        let mut outcome = Outcome::new(scenario.late_limit);
        parts.iter().for_each(|part| outcome.merge(&part.outcome));
        let window = phase.duration.as_secs_f64();
        let busiest = parts.iter().map(|part| part.used.cpu_nanos as f64 / 1e9 / window).fold(0.0, f64::max);
        let busiest = rounded(busiest);
        let lost = parts.iter().map(|part| part.connections_lost).sum();
        let cpu_nanos: u64 = parts.iter().map(|part| part.used.cpu_nanos).sum();
        let completed = outcome.counts.completed;
        let generator = Party {
            cpu_us_per_req: (completed > 0).then(|| rounded(cpu_nanos as f64 / 1e3 / completed as f64)),
            busiest_core: Some(busiest),
            threads: Some(parts.len() as u32),
            ..Party::default()
        };
        StepRecord {
            identity: self.identity(scenario, index, started),
            host: self.host.clone(),
            placement: Placement::default(),
            load: Load::of(scenario, phase),
            latency: Latency::of(&outcome.latencies),
            resources: Resources {
                parties: BTreeMap::from([("generator".to_owned(), generator)]),
                ..Resources::default()
            },
            wire: Wire {
                tx_bytes: parts.iter().map(|part| part.used.tx_bytes).sum(),
                rx_bytes: parts.iter().map(|part| part.used.rx_bytes).sum(),
                ..Wire::default()
            },
            verdict: judge(scenario, phase, &outcome, lost, busiest),
            counts: outcome.counts,
        }
    }

    fn identity(&self, scenario: &Scenario, index: usize, started: String) -> Identity {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Identity {
            schema: SCHEMA.to_owned(),
            run_id: self.id.clone(),
            step: index as u32,
            repeat: 0,
            row: scenario.name.clone(),
            arm: self.target.clone(),
            commit: None,
            build: format!("{} {profile}", env!("CARGO_PKG_VERSION")),
            seed: scenario.seed,
            started,
        }
    }
}

/// The checks that need nothing but the generator. Those of the box and of the other parties are not made here.
fn judge(scenario: &Scenario, phase: &Phase, outcome: &Outcome, connections_lost: u32, busiest: f64) -> Verdict {
    let counts = &outcome.counts;
    let p99_sojourn = outcome.latencies.sojourn.percentile(Tail::P99);
    let lag = &outcome.latencies.generator_lag;
    let lag_limit = LAG_P99_MICROS_MAX.max(p99_sojourn.micros().unwrap_or(0) / LAG_P99_SHARE);
    let is_open = phase.rate.is_some();
    let lags = lag.percentile(Tail::P99).micros().is_some_and(|p99| p99 > lag_limit)
        || lag.max_micros() > LAG_MICROS_MAX
        || counts.skipped_generator > 0;
    let checked_min = (counts.completed / CHECKED_ONE_IN).max(CHECKED_MIN.min(counts.completed));
    let invalid = [
        (connections_lost > 0, "connections"),
        // In a closed loop the generator is meant to be as busy as it can.
        (is_open && busiest > GENERATOR_CORE_MAX, "generator-cpu"),
        (is_open && lags, "generator-lag"),
        (counts.integrity.checked < checked_min, "unchecked"),
        (scenario.slo_p99.is_some() && p99_sojourn.micros().is_none() && has_completed(outcome), "samples"),
    ];
    let invalid_reason = first(&invalid);
    let misses_slo = match (scenario.slo_p99, p99_sojourn) {
        (Some(slo), Percentile::Micros(p99)) => u128::from(p99) > slo.as_micros(),
        _ => false,
    };
    let not_clean = [
        (counts.integrity.failed > 0, "integrity"),
        (counts.errors.total() > 0, "errors"),
        (counts.shed_total() > 0, "shed"),
        (counts.skipped() > 0, "skipped"),
        (!has_completed(outcome), "completed"),
        (misses_slo, "slo"),
    ];
    let not_clean_reason = if invalid_reason.is_none() { first(&not_clean) } else { None };
    let class = if not_clean_reason.is_some() { Class::NotClean } else { Class::Clean };
    let evidence = BTreeMap::from([
        ("connections_lost".to_owned(), connections_lost.into()),
        ("generator_core_busiest".to_owned(), busiest.into()),
        ("generator_lag_max_us".to_owned(), lag.max_micros().into()),
    ]);
    Verdict {
        valid: invalid_reason.is_none(),
        class: invalid_reason.is_none().then_some(class),
        invalid_reason,
        not_clean_reason,
        stop_reason: None,
        evidence,
    }
}

/// Enough of what was wanted was completed.
fn has_completed(outcome: &Outcome) -> bool {
    let counts = &outcome.counts;
    counts.intended > 0 && counts.completed as f64 >= COMPLETED_SHARE_MIN * counts.intended as f64
}

/// To a thousandth: more would be noise, and such numbers read back from JSON as they were.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

fn first(reasons: &[(bool, &str)]) -> Option<String> {
    reasons.iter().find(|(applies, _)| *applies).map(|(_, reason)| (*reason).to_owned())
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
slo_p99 = "2ms"
command = [{ name = "GET" }]
phase = [{ rate = 1000, duration = "10s" }]
"#;

    /// 2,000 good requests, sent `lag_micros` after they were ready and answered 500 us later.
    fn outcome(lag_micros: u64, integrity: Option<Integrity>) -> Outcome {
        let mut outcome = Outcome::new(std::time::Duration::from_secs(1));
        for _ in 0..2_000 {
            outcome.intended();
            outcome.sent();
            let sent = 1 + lag_micros * 1_000;
            outcome.answered(&Stamps { intended: 1, ready: 1, sent, completed: sent + 500_000 }, integrity);
        }
        outcome
    }

    fn verdict(outcome: &Outcome, lost: u32, busiest: f64) -> (Option<String>, Option<String>) {
        let scenario = scenario::parse("s.toml", SOURCE).expect("a right scenario");
        let verdict = judge(&scenario, &scenario.phases[0], outcome, lost, busiest);
        assert_eq!(verdict.valid, verdict.class.is_some());
        (verdict.invalid_reason, verdict.not_clean_reason)
    }

    #[test]
    fn a_step_names_what_makes_it_invalid() {
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
    fn a_valid_step_names_its_blemish() {
        let mut failed = outcome(100, Some(Integrity::Ok));
        failed.intended();
        failed.failed(ErrorClass::Status, None);
        assert_eq!(verdict(&failed, 0, 0.5), (None, Some("errors".to_owned())));
        let mut slow = Outcome::new(std::time::Duration::from_secs(1));
        for _ in 0..2_000 {
            slow.intended();
            slow.answered(&Stamps { intended: 1, ready: 1, sent: 1, completed: 2_500_001 }, Some(Integrity::Ok));
        }
        assert_eq!(verdict(&slow, 0, 0.5), (None, Some("slo".to_owned())));
    }
}
