//! One measured run: the load, and the CPU time of every party over exactly that time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::load::{self, Outcome};
use super::peers::Arm;
use super::peers::backend::{Backend, counters_of_all};
use super::place::Place;
use super::resp::Connection;
use super::row::Row;
use weir_parties::cpu::{BoxTime, CpuTime, family};

/// A warm-up has this share of a run's requests.
const WARM_UP_SHARE: u64 = 8;

/// What one run gave. Times in microseconds of CPU per completed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The gateway; 0 without one.
    pub(crate) gateway_us: f64,
    /// Its sampled user part.
    pub(crate) user_us: f64,
    /// Its sampled system part.
    pub(crate) system_us: f64,
    /// redis-server, all of them.
    pub(crate) origin_us: f64,
    /// All CPUs of the machine.
    pub(crate) box_us: f64,
    /// What redis-benchmark saw.
    pub(crate) outcome: Outcome,
    /// Share of time that the hypervisor took.
    pub(crate) steal: f64,
    /// CPUs that were busy with something that has no part in the run.
    pub(crate) foreign_cpus: f64,
}

/// What stays the same over all runs.
pub(crate) struct Bench<'a> {
    /// CPUs and files.
    pub(crate) place: &'a Place,
    /// What stands behind.
    pub(crate) backend: &'a Backend,
    /// A connection to each of its servers beside the load.
    pub(crate) controls: Vec<Connection>,
}

impl Bench<'_> {
    /// A short run from which the length of the others is derived; also the first warm-up. Requests per second.
    pub(crate) fn calibrate(&self, row: &Row, arm: &Arm) -> Result<f64> {
        Ok(self.load(row, arm, row.calibration_requests())?.rate)
    }

    /// Warm-up, then one measured run.
    pub(crate) fn sample(&mut self, row: &Row, arm: &mut Arm, requests: u64) -> Result<Sample> {
        self.load(row, arm, (requests / WARM_UP_SHARE).max(u64::from(row.connections)))?;
        let asked = counters_of_all(&mut self.controls)?;
        let before = self.look(arm)?;
        let outcome = self.load(row, arm, requests)?;
        let after = self.look(arm)?;
        let answered = counters_of_all(&mut self.controls)?;
        if answered.commands - asked.commands < outcome.completed {
            bail!("redis-server executed fewer commands than redis-benchmark counted replies");
        }
        if answered.misses != asked.misses {
            bail!("{} reads found no key", answered.misses - asked.misses);
        }
        if let Some(process) = &mut arm.process {
            process.check_running()?;
        }
        Ok(after.since(&before, outcome))
    }

    fn load(&self, row: &Row, arm: &Arm, requests: u64) -> Result<Outcome> {
        load::run(row, &arm.goal, requests, &self.place.load_cpu, self.place.path())
    }

    fn look(&self, arm: &Arm) -> Result<Look> {
        let gateway = arm.process.as_ref().map(|process| CpuTime::of(&family(process.id())?)).transpose();
        let servers: Vec<u32> = self.backend.servers.iter().map(|server| server.process.id()).collect();
        Ok(Look {
            at: Instant::now(),
            gateway: gateway.with_context(|| format!("{} is gone", arm.name))?,
            origin: CpuTime::of(&servers)?,
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
    /// redis-benchmark: it has ended, and been waited for, at the second look.
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
        let length: Duration = self.at - before.at;
        let each = |micros: f64| micros / outcome.completed as f64;
        Sample {
            gateway_us: each(gateway.total_us),
            user_us: each(gateway.user_us),
            system_us: each(gateway.system_us),
            origin_us: each(origin.total_us),
            box_us: each(machine.busy_us),
            outcome,
            steal: machine.steal,
            foreign_cpus: ((machine.busy_us - known) / 1e6 / length.as_secs_f64()).max(0.0),
        }
    }
}
