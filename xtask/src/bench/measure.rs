//! One measured run: the load, and the CPU time of every party over exactly that time.

use std::time::Instant;

use anyhow::{Context, Result};

use super::contest::Contest;
use super::peers::Arm;
use super::place::Place;
use weir_parties::cpu::{BoxTime, CpuTime, family};

/// What the load generator saw. Latencies in milliseconds; with a pipeline they are those of the whole batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    /// Requests that were answered without an error.
    pub(crate) completed: u64,
    /// Requests per second.
    pub(crate) rate: f64,
    /// Median latency.
    pub(crate) p50: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile; `None` if there are too few samples, or the generator does not tell it.
    pub(crate) p999: Option<f64>,
}

/// What one run gave. Times in microseconds of CPU per completed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The gateway; 0 without one.
    pub(crate) gateway_us: f64,
    /// Its sampled user part.
    pub(crate) user_us: f64,
    /// Its sampled system part.
    pub(crate) system_us: f64,
    /// What stands behind, all of it.
    pub(crate) origin_us: f64,
    /// The load generator.
    pub(crate) load_us: f64,
    /// All CPUs of the machine.
    pub(crate) box_us: f64,
    /// What the load generator saw.
    pub(crate) outcome: Outcome,
    /// Length of the run.
    pub(crate) seconds: f64,
    /// Share of time that the hypervisor took.
    pub(crate) steal: f64,
    /// CPUs that were busy with something that has no part in the run.
    pub(crate) foreign_cpus: f64,
}

impl Sample {
    /// CPUs that a party kept busy, told by what it used per request.
    pub(crate) fn cpus(&self, each_us: f64) -> f64 {
        each_us * self.outcome.completed as f64 / 1e6 / self.seconds
    }
}

/// What stays the same over all runs.
pub(crate) struct Bench<'a, C> {
    /// CPUs and files.
    pub(crate) place: &'a Place,
    /// What stands behind, and the load.
    pub(crate) contest: C,
}

impl<C: Contest> Bench<'_, C> {
    /// A short run from which the length of the others is derived; also the first warm-up. Requests per second.
    pub(crate) fn calibrate(&self, row: &C::Row, arm: &Arm) -> Result<f64> {
        Ok(self.load(row, arm, self.contest.first_length(row))?.rate)
    }

    /// Warm-up, then one measured run.
    pub(crate) fn sample(&mut self, row: &C::Row, arm: &mut Arm, length: C::Length) -> Result<Sample> {
        self.load(row, arm, self.contest.warm_up_length(row, length))?;
        let asked = self.contest.count()?;
        let before = self.look(arm)?;
        let outcome = self.load(row, arm, length)?;
        let after = self.look(arm)?;
        let answered = self.contest.count()?;
        self.contest.prove(&asked, &answered, &outcome)?;
        if let Some(process) = &mut arm.process {
            process.check_running()?;
        }
        Ok(after.since(&before, outcome))
    }

    fn load(&self, row: &C::Row, arm: &Arm, length: C::Length) -> Result<Outcome> {
        self.contest.load(self.place, row, &arm.goal, length)
    }

    fn look(&self, arm: &Arm) -> Result<Look> {
        let gateway = arm.process.as_ref().map(|process| CpuTime::of(&family(process.id())?)).transpose();
        Ok(Look {
            at: Instant::now(),
            gateway: gateway.with_context(|| format!("{} is gone", arm.name))?,
            origin: CpuTime::of(&self.contest.servers())?,
            load: CpuTime::of_ended_children()?,
            own: CpuTime::of(&[std::process::id()])?,
            machine: BoxTime::now()?,
        })
    }
}

/// Every account at one instant.
struct Look {
    at: Instant,
    gateway: Option<CpuTime>,
    origin: CpuTime,
    /// The load generator: it has ended, and been waited for, at the second look.
    load: CpuTime,
    own: CpuTime,
    machine: BoxTime,
}

impl Look {
    fn since(&self, before: &Self, outcome: Outcome) -> Sample {
        let gateway = match (self.gateway, before.gateway) {
            (Some(now), Some(then)) => now.since(then),
            _ => weir_parties::CpuUse::default(),
        };
        let origin = self.origin.since(before.origin);
        let load = self.load.since(before.load);
        let own = self.own.since(before.own);
        let machine = self.machine.since(before.machine);
        let known = gateway.total_us + origin.total_us + load.total_us + own.total_us;
        let seconds = (self.at - before.at).as_secs_f64();
        let each = |micros: f64| micros / outcome.completed as f64;
        Sample {
            gateway_us: each(gateway.total_us),
            user_us: each(gateway.user_us),
            system_us: each(gateway.system_us),
            origin_us: each(origin.total_us),
            load_us: each(load.total_us),
            box_us: each(machine.busy_us),
            outcome,
            seconds,
            steal: machine.steal,
            foreign_cpus: ((machine.busy_us - known) / 1e6 / seconds).max(0.0),
        }
    }
}
