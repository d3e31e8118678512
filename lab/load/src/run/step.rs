//! The record of a phase, over the shards of this process.

use weir_knee::Trial;

use super::barrier::Start;
use super::host;
use super::worker::ShardStep;
use crate::measured::{Measured, rounded, verdict};
use crate::part::Part;
use crate::program;
use crate::record::{Identity, Load, PartOfRun, Placement, SCHEMA, StepRecord};
use crate::scenario::{Phase, Scenario};

/// Which run the records belong to.
pub(super) struct Run {
    id: String,
    target: String,
    part: Part,
    host: crate::record::Host,
}

impl Run {
    pub(super) fn new(id: String, target: String, part: Part) -> Self {
        Self { id, target, part, host: host::facts() }
    }

    /// The record of phase `index`.
    pub(super) fn record(
        &self,
        scenario: &Scenario,
        index: usize,
        start: Start,
        shards: Vec<ShardStep>,
    ) -> (StepRecord, Trial) {
        let phase = &scenario.phases[index];
        let measured = measured(scenario, phase, shards);
        let load = self.part.load(scenario, phase);
        let slo_p99_us = scenario.slo_p99.map(|slo| slo.as_micros() as u64);
        let trial = measured.trial(&load, slo_p99_us);
        let part = (!self.part.is_whole()).then(|| PartOfRun {
            index: self.part.index() + 1,
            of: self.part.of(),
            phase: phase.name.clone(),
            scenario: scenario.fingerprint(),
            begins_unix_us: start.unix_micros(),
            load: Load::of(scenario, phase),
            slo_p99_us,
            cpu_ns: measured.cpu_nanos,
            connections_lost: measured.connections_lost,
        });
        let record = StepRecord {
            identity: self.identity(scenario, index, start),
            part,
            host: self.host.clone(),
            placement: Placement::default(),
            load,
            latency: measured.latency(),
            resources: measured.resources(),
            wire: measured.wire(),
            verdict: verdict(&trial),
            counts: measured.outcome.counts,
            thresholds: Vec::new(),
        };
        (record, trial)
    }

    fn identity(&self, scenario: &Scenario, index: usize, start: Start) -> Identity {
        Identity {
            schema: SCHEMA.to_owned(),
            run_id: self.id.clone(),
            step: index as u32,
            repeat: 0,
            row: scenario.name.clone(),
            arm: self.target.clone(),
            commit: program::commit(),
            build: program::build(),
            seed: scenario.seed,
            started: weir_base::time::rfc3339(start.unix_micros() / 1_000_000),
        }
    }
}

fn measured(scenario: &Scenario, phase: &Phase, shards: Vec<ShardStep>) -> Measured {
    let window = phase.duration.as_secs_f64();
    let mut sum = Measured::none(scenario.late_limit);
    for ShardStep { outcome, used, connections_lost } in shards {
        sum.merge(&Measured {
            outcome,
            cpu_nanos: used.cpu_nanos,
            busiest_core: rounded(used.cpu_nanos as f64 / 1e9 / window),
            threads: 1,
            connections_lost,
            tx_bytes: used.tx_bytes,
            rx_bytes: used.rx_bytes,
        });
    }
    sum
}
