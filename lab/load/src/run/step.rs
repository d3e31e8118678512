//! The record of a phase, and what the generator itself can say of its worth.

use std::collections::BTreeMap;

use weir_knee::trial::{Backend, Integrity, Parties, Trial};
use weir_knee::{Rules, judge};

use super::host;
use super::worker::ShardStep;
use crate::arrivals::Rate;
use crate::outcome::Outcome;
use crate::record::{Class, Identity, Latency, Load, Party, Placement, Resources, SCHEMA, StepRecord, Verdict, Wire};
use crate::recorder::{Recorder, Tail};
use crate::scenario::{Phase, Scenario};

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
    pub(super) fn record(
        &self,
        scenario: &Scenario,
        index: usize,
        started: String,
        parts: &[ShardStep],
    ) -> (StepRecord, Trial) {
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
        let wire = Wire {
            tx_bytes: parts.iter().map(|part| part.used.tx_bytes).sum(),
            rx_bytes: parts.iter().map(|part| part.used.rx_bytes).sum(),
            ..Wire::default()
        };
        let trial =
            Trial { wire_bytes: wire.tx_bytes + wire.rx_bytes, ..trial(scenario, phase, &outcome, lost, busiest) };
        let record = StepRecord {
            identity: self.identity(scenario, index, started),
            host: self.host.clone(),
            placement: Placement::default(),
            load: Load::of(scenario, phase),
            latency: Latency::of(&outcome.latencies),
            resources: Resources {
                parties: BTreeMap::from([("generator".to_owned(), generator)]),
                ..Resources::default()
            },
            wire,
            verdict: verdict(&trial),
            counts: outcome.counts,
        };
        (record, trial)
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

/// What the generator can say of a trial; the CPU of the other parties and the rest of the box are not its own.
fn trial(scenario: &Scenario, phase: &Phase, outcome: &Outcome, connections_lost: u32, busiest: f64) -> Trial {
    let counts = &outcome.counts;
    let latencies = &outcome.latencies;
    let micros =
        |recorder: &Recorder, tail| recorder.percentile(tail).micros().unwrap_or_else(|| recorder.max_micros());
    Trial {
        offered: phase.rate.map_or(0.0, Rate::as_per_second),
        window_s: phase.duration.as_secs_f64(),
        intended: counts.intended,
        completed: counts.completed,
        skipped_backlog: counts.skipped_backlog,
        skipped_generator: counts.skipped_generator,
        shed: counts.shed_total(),
        errors: counts.errors,
        integrity: Integrity { checked: counts.integrity.checked, failed: counts.integrity.failed, mix_ups: 0 },
        latency: weir_knee::trial::Latency {
            sojourn_p50_us: micros(&latencies.sojourn, Tail::P50),
            sojourn_p99_us: micros(&latencies.sojourn, Tail::P99),
            lag_p99_us: micros(&latencies.generator_lag, Tail::P99),
            lag_max_us: latencies.generator_lag.max_micros(),
        },
        slo_p99_us: scenario.slo_p99.map(|slo| slo.as_micros() as u64),
        is_steady: true,
        resources: weir_knee::trial::Resources {
            sockets_asked: scenario.connections.into(),
            sockets_established: scenario.connections.saturating_sub(connections_lost).into(),
            ..Default::default()
        },
        // What stands behind the target is not known here, so its CPU is no check.
        backend: Backend::Real,
        parties: Parties { generator_core_busiest: busiest, ..Parties::default() },
        ..Trial::default()
    }
}

/// Judged by what the generator itself knows.
fn verdict(trial: &Trial) -> Verdict {
    let mut judged = trial.clone();
    if trial.offered == 0.0 {
        // In a closed loop the generator is meant to be as busy as it can, and is late by its nature.
        judged.parties.generator_core_busiest = 0.0;
        (judged.latency.lag_p99_us, judged.latency.lag_max_us, judged.skipped_generator) = (0, 0, 0);
    }
    let (class, invalid_reason, not_clean_reason) = match judge(&judged, &Rules::default()) {
        weir_knee::Verdict::Clean => (Some(Class::Clean), None, None),
        weir_knee::Verdict::NotClean(found) => (Some(Class::NotClean), None, Some(found.reason.to_string())),
        weir_knee::Verdict::Invalid(found) => (None, Some(found.reason.to_string()), None),
        weir_knee::Verdict::Unsteady => (None, Some("unsteady".to_owned()), None),
    };
    let lost = trial.resources.sockets_asked - trial.resources.sockets_established;
    let evidence = BTreeMap::from([
        ("connections_lost".to_owned(), lost.into()),
        ("generator_core_busiest".to_owned(), trial.parties.generator_core_busiest.into()),
        ("generator_lag_max_us".to_owned(), trial.latency.lag_max_us.into()),
    ]);
    Verdict { valid: invalid_reason.is_none(), class, invalid_reason, not_clean_reason, stop_reason: None, evidence }
}

/// To a thousandth: more would be noise, and such numbers read back from JSON as they were.
fn rounded(number: f64) -> f64 {
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
        let verdict = super::verdict(&trial(&scenario, &scenario.phases[0], outcome, lost, busiest));
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
