//! The arms of a measurement: gateways in front of one origin, and the load without any. All of them are started once and kept:
//! during the runs only the load moves.

use anyhow::Result;
use weir_load::Scenario;
use weir_parties::Peer;
use weir_parties::interrupt;
use weir_parties::peer::{Change, DIRECT, Running, Telemetry};

use weir_knee::Rules;

use crate::comparison::{Arm, MissingPeer};
use crate::stage::{Stage, front_of};
use crate::trial::{self, Subject, TrialOutcome};

/// The program that carries the load of an arm: a gateway, or none.
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

/// Whether a file of a user says how this gateway is set: it has its name.
pub(crate) fn is_ours(peer: &Peer) -> bool {
    peer.name == Telemetry::On.peer_name()
}

/// All arms.
pub(crate) struct Fleet {
    pub(crate) stage: Stage,
    pub(crate) runners: Vec<Runner>,
    pub(crate) missing: Vec<MissingPeer>,
    /// Count cycles and instructions of the gateways, which costs them a little at every switch of threads.
    pub(crate) has_counters: bool,
}

impl Fleet {
    /// Starts the gateway of this project, then `peers`, each with `changes`; who does not start is missing. A peer that
    /// [is this gateway](is_ours) takes the place of the one as it is delivered.
    pub(crate) fn start(stage: Stage, peers: &[Peer], changes: &[Change], is_direct: bool) -> Result<Self> {
        if changes.contains(&Change::Tls) {
            stage.make_certificate()?;
        }
        let start = |peer: &Peer| {
            let peer = changes.iter().try_fold(peer.clone(), |peer, change| peer.changed(*change))?;
            stage.start_gateway(&peer)
        };
        let (own, peers): (Vec<&Peer>, Vec<&Peer>) = peers.iter().partition(|peer| is_ours(peer));
        let ours = own.first().map_or_else(|| stage.weir(Telemetry::On), |peer| Ok((*peer).clone()))?;
        let mut runners = vec![Runner::Gateway(Box::new(start(&ours)?))];
        let mut missing = Vec::new();
        for peer in peers {
            match start(peer) {
                Ok(running) => runners.push(Runner::Gateway(Box::new(running))),
                Err(error) => {
                    // An interrupt is not a missing peer.
                    interrupt::check()?;
                    missing.push(MissingPeer { name: peer.name.clone(), reason: format!("{error:#}") });
                }
            }
        }
        runners.extend(is_direct.then_some(Runner::Direct));
        Ok(Self { stage, runners, missing, has_counters: false })
    }

    /// Starts one gateway alone; `None`: that of this project.
    pub(crate) fn start_one(stage: Stage, peer: Option<&Peer>) -> Result<Self> {
        let running = match peer {
            Some(peer) => stage.start_gateway(peer)?,
            None => stage.start_gateway(&stage.weir(Telemetry::On)?)?,
        };
        Ok(Self { stage, runners: vec![Runner::Gateway(Box::new(running))], missing: Vec::new(), has_counters: false })
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

    /// One run of the arm `index` with the lab's own generator.
    pub(crate) fn run(&mut self, scenario: &Scenario, index: usize, rules: &Rules) -> Result<TrialOutcome> {
        self.on(index, |subject, _| trial::run(scenario, subject, rules))
    }

    /// Does something with the arm `index`. If it ends meanwhile, that is the error.
    pub(crate) fn on<T>(&mut self, index: usize, go: impl FnOnce(&Subject<'_>, &Self) -> Result<T>) -> Result<T> {
        let (target, gateway) = match &self.runners[index] {
            Runner::Gateway(running) => (front_of(running), Some(&**running)),
            Runner::Direct => (self.stage.behind().clone(), None),
        };
        let (origin, generator_cpus) = (self.stage.origin(), self.stage.generator_cpus());
        let subject = Subject { target: &target, gateway, origin, generator_cpus, has_counters: self.has_counters };
        let outcome = go(&subject, self);
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
