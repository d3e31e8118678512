//! Gateways side by side: the same load at the same rate on each, interleaved, so that drift of the machine hits all.
//!
//! A block runs every arm twice, in an order drawn from the seed and then in its mirror image (A B C C B A): a drift that
//! grows evenly over the block weighs the same on every arm. Ratios are paired by block.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use weir_base::rng::Rng;
use weir_knee::judge::judge_ceiling;
use weir_knee::{Rules, Trial, Verdict, judge};
use weir_load::scenario::Phase;
use weir_load::{Scenario, StepRecord};
use weir_parties::Peer;
use weir_parties::interrupt;
use weir_parties::peer::{DIRECT, Running};
use weir_parties::place::allowed_cpus;

use crate::comparison::{Arm, Block, Counts, Missing, Row, Sample};
use crate::knee::Failure;
use crate::placement::Placement;
use crate::stage::{Behind, Stage, front_of};
use crate::trial::{self, Subject};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; each of its phases is a row.
    pub scenario: Scenario,
    /// What stands behind the gateways.
    pub behind: Behind,
    /// CPUs of each gateway, one worker each.
    pub budget: u32,
    /// Those that are compared with the gateway of this project.
    pub peers: Vec<Peer>,
    /// Also without any gateway.
    pub is_direct: bool,
    /// Blocks of each row.
    pub blocks: u32,
    /// Thresholds by which a trial is judged.
    pub rules: Rules,
}

/// What is told while the comparison goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The gateways stand, all of them or some.
    Started {
        /// Who runs where.
        placement: &'a Placement,
        /// Those that run.
        arms: &'a [Arm],
        /// Those that do not.
        missing: &'a [Missing],
    },
    /// A block begins.
    Block {
        /// The row.
        phase: &'a Phase,
        /// From 1.
        block: u32,
    },
    /// A run is over.
    Ended {
        /// Whose.
        arm: &'a str,
        /// What it measured.
        trial: &'a Trial,
        /// What it was worth.
        verdict: Verdict,
    },
    /// An arm ended, or refused the load. It is not run again.
    Failed {
        /// Which.
        arm: &'a str,
        /// Why.
        error: &'a anyhow::Error,
    },
}

/// A comparison that came to its end.
#[derive(Debug)]
pub struct Compared {
    /// Who ran where.
    pub placement: Placement,
    /// Those that ran.
    pub arms: Vec<Arm>,
    /// Those that did not.
    pub missing: Vec<Missing>,
    /// Those that ended, or refused the load, and where.
    pub failed: Vec<String>,
    /// One per phase.
    pub rows: Vec<Row>,
    /// The last record: identity and machine.
    pub last: StepRecord,
}

/// Compares the gateways. Takes long: phases x blocks x arms x 2 runs. The calling thread is moved to the generator's CPUs.
///
/// # Errors
/// A budget that this host does not have; an origin or a gateway of this project that does not start; Ctrl-C. A peer that
/// does not start, or ends, is named in the result, and the others are compared.
pub fn compare(request: &Request, mut told: impl FnMut(&Progress<'_>)) -> Result<Compared, Failure> {
    let placement = Placement::divide(&allowed_cpus()?, request.budget).map_err(Failure::NotRun)?;
    check(request)?;
    placement.enter_generator()?;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.scenario.connections)?;
    let mut fleet = Fleet::start(request, stage)?;
    let arms: Vec<Arm> = fleet.lanes.iter().map(Lane::facts).collect();
    told(&Progress::Started { placement: &placement, arms: &arms, missing: &fleet.missing });
    let mut rng = Rng::new(request.scenario.seed);
    let mut rows = Vec::new();
    let mut last = None;
    // An arm that failed once is not run again: it is gone, or refuses the load.
    let mut failed: BTreeMap<String, String> = BTreeMap::new();
    for phase in &request.scenario.phases {
        let scenario = Scenario { phases: vec![phase.clone()], ..request.scenario.clone() };
        let mut row = Row::new(phase);
        for number in 1..=request.blocks {
            told(&Progress::Block { phase, block: number });
            let mut block = Block::default();
            for index in order(fleet.lanes.len(), &mut rng) {
                let arm = &arms[index].name;
                if failed.contains_key(arm) {
                    continue;
                }
                match fleet.run(&scenario, index, &request.rules) {
                    Ok((trial, record)) => {
                        let verdict = match phase.rate {
                            Some(_) => judge(&trial, &request.rules),
                            None => judge_ceiling(&trial, &request.rules, true),
                        };
                        let counts = Counts::of(&trial, verdict, &request.rules);
                        told(&Progress::Ended { arm, trial: &trial, verdict });
                        let sample = Sample::new(trial, verdict, counts, &record);
                        row.add_latency(arm, &sample, &record)?;
                        block.add(arm, sample);
                        last = Some(record);
                    }
                    Err(error) => {
                        interrupt::check()?;
                        told(&Progress::Failed { arm, error: &error });
                        failed.insert(arm.clone(), format!("{} at {}: {error:#}", arm, row.title()));
                    }
                }
            }
            row.blocks.push(block);
        }
        row.conclude();
        rows.push(row);
    }
    let Some(last) = last else { return Err(anyhow::anyhow!("nothing was run").into()) };
    let failed = failed.into_values().collect();
    Ok(Compared { placement, arms, missing: fleet.missing, failed, rows, last })
}

fn check(request: &Request) -> Result<()> {
    let mut names: Vec<&str> = request.peers.iter().map(|peer| &*peer.name).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{} is named twice", twice[0]);
    }
    if names.is_empty() && !request.is_direct {
        bail!("there is nobody to compare with; name peers");
    }
    let protocol = request.scenario.protocol.to_string();
    for peer in &request.peers {
        if !peer.protocols.contains(&protocol) {
            bail!("{} does not speak {protocol}; it speaks {}", peer.name, peer.protocols.join(", "));
        }
    }
    trial::check(&request.scenario)
}

/// Indices of the arms in the order of a block: each twice.
fn order(arms: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..arms).collect();
    for last in (1..arms).rev() {
        order.swap(last, rng.below(last as u64 + 1) as usize);
    }
    let mirrored: Vec<usize> = order.iter().rev().copied().collect();
    [order, mirrored].concat()
}

/// A gateway that runs; none for the direct arm.
enum Lane {
    Gateway(Running),
    Direct,
}

impl Lane {
    fn facts(&self) -> Arm {
        match self {
            Self::Direct => Arm { name: DIRECT.to_owned(), version: String::new(), config: String::new() },
            Self::Gateway(running) => {
                Arm { name: running.name.clone(), version: running.version.clone(), config: running.config.clone() }
            }
        }
    }
}

/// All arms, started once and kept: during the runs only the load moves.
struct Fleet {
    stage: Stage,
    lanes: Vec<Lane>,
    missing: Vec<Missing>,
}

impl Fleet {
    fn start(request: &Request, stage: Stage) -> Result<Self> {
        let mut lanes = vec![Lane::Gateway(stage.start_gateway(&Peer::weir())?)];
        let mut missing = Vec::new();
        for peer in &request.peers {
            match stage.start_gateway(peer) {
                Ok(running) => lanes.push(Lane::Gateway(running)),
                Err(error) => {
                    // An interrupt is not a missing peer.
                    interrupt::check()?;
                    missing.push(Missing { name: peer.name.clone(), reason: format!("{error:#}") });
                }
            }
        }
        lanes.extend(request.is_direct.then_some(Lane::Direct));
        Ok(Self { stage, lanes, missing })
    }

    fn run(&mut self, scenario: &Scenario, index: usize, rules: &Rules) -> Result<(Trial, StepRecord)> {
        let (target, gateway) = match &self.lanes[index] {
            Lane::Gateway(running) => (front_of(running), Some(running.process.id())),
            Lane::Direct => (self.stage.behind().clone(), None),
        };
        let subject = Subject { target: &target, gateway, origin: self.stage.origin() };
        let outcome = trial::run(scenario, &subject, rules);
        // A program that ended says more than the load that failed on it.
        let ended = match &mut self.lanes[index] {
            Lane::Gateway(running) => running.process.check_running(),
            Lane::Direct => Ok(()),
        };
        self.stage.check()?;
        ended?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_runs_every_arm_twice_and_its_second_half_mirrors_the_first() {
        let mut rng = Rng::new(1);
        let orders: Vec<Vec<usize>> = (0..20).map(|_| order(4, &mut rng)).collect();
        for order in &orders {
            let (first, second) = order.split_at(4);
            assert!(first.iter().eq(second.iter().rev()), "{order:?}");
            let mut sorted = first.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        assert!(orders.iter().any(|order| order != &orders[0]), "the seed draws the order");
    }
}
