//! The arms of a measurement: gateways in front of one origin, and the load without any. All of them are started once and kept:
//! during the runs only the load moves.

use anyhow::Result;
use weir_load::Scenario;
use weir_parties::Peer;
use weir_parties::interrupt;
use weir_parties::peer::{DIRECT, Running, Telemetry};

use weir_knee::Rules;

use crate::comparison::{Arm, Missing};
use crate::stage::{Stage, front_of};
use crate::trial::{self, Subject, TrialOutcome};

/// What carries the load of an arm: a gateway, or none.
pub(crate) enum Runner {
    Gateway(Box<Running>),
    Direct,
}

impl Runner {
    pub(crate) fn facts(&self) -> Arm {
        match self {
            Self::Direct => {
                Arm { name: DIRECT.to_owned(), version: String::new(), command: String::new(), config: String::new() }
            }
            Self::Gateway(running) => Arm {
                name: running.name.clone(),
                version: running.version.clone(),
                command: running.command.clone(),
                config: running.config.clone(),
            },
        }
    }
}

/// All arms.
pub(crate) struct Fleet {
    pub(crate) stage: Stage,
    pub(crate) runners: Vec<Runner>,
    pub(crate) missing: Vec<Missing>,
    /// Count cycles and instructions of the gateways, which costs them a little at every switch of threads.
    pub(crate) has_counters: bool,
}

impl Fleet {
    /// Starts the gateway of this project, then `peers`; who does not start is missing.
    pub(crate) fn start(stage: Stage, peers: &[Peer], is_direct: bool) -> Result<Self> {
        let mut runners = vec![Runner::Gateway(Box::new(stage.start_gateway(&stage.weir(Telemetry::On)?)?))];
        let mut missing = Vec::new();
        for peer in peers {
            match stage.start_gateway(peer) {
                Ok(running) => runners.push(Runner::Gateway(Box::new(running))),
                Err(error) => {
                    // An interrupt is not a missing peer.
                    interrupt::check()?;
                    missing.push(Missing { name: peer.name.clone(), reason: format!("{error:#}") });
                }
            }
        }
        runners.extend(is_direct.then_some(Runner::Direct));
        Ok(Self { stage, runners, missing, has_counters: false })
    }

    /// Without a gateway, whether that is an arm or not.
    pub(crate) fn run_direct(&self, scenario: &Scenario, rules: &Rules) -> Result<TrialOutcome> {
        let subject = Subject {
            target: self.stage.behind(),
            gateway: None,
            origin: self.stage.origin(),
            generator_cpus: self.stage.generator_cpus(),
            has_counters: false,
        };
        trial::run(scenario, &subject, rules)
    }

    /// One run of the arm `index`.
    pub(crate) fn run(&mut self, scenario: &Scenario, index: usize, rules: &Rules) -> Result<TrialOutcome> {
        let (target, gateway) = match &self.runners[index] {
            Runner::Gateway(running) => (front_of(running), Some(&**running)),
            Runner::Direct => (self.stage.behind().clone(), None),
        };
        let (origin, generator_cpus) = (self.stage.origin(), self.stage.generator_cpus());
        let subject = Subject { target: &target, gateway, origin, generator_cpus, has_counters: self.has_counters };
        let outcome = trial::run(scenario, &subject, rules);
        // A program that ended says more than the load that failed on it.
        let ended = match &mut self.runners[index] {
            Runner::Gateway(running) => running.process.check_running(),
            Runner::Direct => Ok(()),
        };
        self.stage.check()?;
        ended?;
        outcome
    }
}
