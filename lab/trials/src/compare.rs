//! Gateways side by side: the same load at the same rate on each, interleaved, so that drift of the machine hits all.
//!
//! A block runs every arm twice, in an order drawn from the seed and then in its mirror image (A B C C B A): a drift that
//! grows evenly over the block weighs the same on every arm. Ratios are paired by block.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use weir_base::rng::Rng;
use weir_knee::judge::judge_ceiling;
use weir_knee::{Rules, Trial, Verdict, judge};
use weir_load::scenario::{Mode, Phase};
use weir_load::{Scenario, StepRecord};
use weir_parties::Peer;
use weir_parties::interrupt;
use weir_parties::peer::Telemetry;

use crate::budget::Budget;
use crate::comparison::{Arm, Block, Failed, Missing, Row, Sample, Worth};
use crate::fleet::{Fleet, Runner};
use crate::knee::Failure;
use crate::placement::Placement;
use crate::stage::{Behind, Stage};
use crate::trial::{self, TrialOutcome};

/// Warm-up, window and attempts of the direct ceiling.
const CEILING_WARMUP: Duration = Duration::from_secs(1);
const CEILING_WINDOW: Duration = Duration::from_secs(3);
const CEILING_ATTEMPTS: u32 = 3;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; each of its phases is a row.
    pub scenario: Scenario,
    /// What stands behind the gateways.
    pub behind: Behind,
    /// CPUs of each gateway.
    pub budget: Budget,
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
    /// Requests per second without a gateway, closed loop.
    Ceiling(f64),
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
    /// Those that ended, or refused the load.
    pub failed: Vec<Failed>,
    /// Requests per second without a gateway, closed loop.
    pub direct_ceiling: f64,
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
    let placement = Placement::of(request.budget)?;
    check(request)?;
    placement.enter_generator()?;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.budget.share(), &request.scenario)?;
    let fleet = Fleet::start(stage, &request.peers, request.is_direct)?;
    let mut fleet = Fleet { has_counters: true, ..fleet };
    let arms: Vec<Arm> = fleet.runners.iter().map(Runner::facts).collect();
    told(&Progress::Started { placement: &placement, arms: &arms, missing: &fleet.missing });
    if arms.len() < 2 {
        return Err(anyhow!("nobody is left to compare with; the reasons stand above").into());
    }
    let (direct_ceiling, mut last) = direct_ceiling(&fleet, request)?;
    told(&Progress::Ceiling(direct_ceiling));
    let mut rng = Rng::new(request.scenario.seed);
    let mut rows = Vec::new();
    let mut failed: Vec<Failed> = Vec::new();
    'rows: for phase in &request.scenario.phases {
        let scenario = Scenario { phases: vec![phase.clone()], ..request.scenario.clone() };
        let mut row = Row::new(phase);
        for number in 1..=request.blocks {
            told(&Progress::Block { phase, block: number });
            let mut block = Block::default();
            for index in order(fleet.runners.len(), &mut rng) {
                let arm = &arms[index].name;
                // It is gone, or refuses the load.
                if failed.iter().any(|failed| failed.arm == *arm) {
                    continue;
                }
                match fleet.run(&scenario, index, &request.rules) {
                    Ok(TrialOutcome { mut trial, record, .. }) => {
                        trial.backend = request.behind.backend();
                        trial.ceiling = Some(direct_ceiling);
                        let verdict = match phase.rate {
                            Some(_) => judge(&trial, &request.rules),
                            None => judge_ceiling(&trial, &request.rules, true),
                        };
                        told(&Progress::Ended { arm, trial: &trial, verdict });
                        let worth = Worth::of(&trial, verdict, &request.rules);
                        let sample = Sample::new(trial, verdict, worth, &record);
                        row.add_latency(arm, &sample, &record)?;
                        block.add(arm, sample);
                        last = record;
                    }
                    Err(error) => {
                        interrupt::check()?;
                        // Its end is nobody else's failure.
                        fleet.stage.check()?;
                        told(&Progress::Failed { arm, error: &error });
                        failed.push(Failed { arm: arm.clone(), at: row.title(), reason: format!("{error:#}") });
                    }
                }
            }
            row.blocks.push(block);
            if failed.iter().any(|failed| failed.arm == arms[0].name) {
                // Without our own gateway nothing is left to compare.
                row.conclude();
                rows.push(row);
                break 'rows;
            }
        }
        row.conclude();
        rows.push(row);
    }
    Ok(Compared { placement, arms, missing: fleet.missing, failed, direct_ceiling, rows, last })
}

fn check(request: &Request) -> Result<()> {
    // Results and files are told apart by name.
    let protocol = request.scenario.protocol.to_string();
    let ours = [Telemetry::On.peer_name().to_owned(), "origin".to_owned()];
    let mut names: Vec<&str> =
        request.peers.iter().map(|peer| &*peer.name).chain(ours.iter().map(|name| &**name)).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{} is named twice, or is a name of the lab's own; choose another `name`", twice[0]);
    }
    if request.peers.is_empty() && !request.is_direct {
        bail!("there is nobody to compare with; name peers");
    }
    for peer in &request.peers {
        if !peer.speaks(&protocol) {
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

/// What generator and back end can do without a gateway: closer to it than the rules allow, a run shows the lab.
fn direct_ceiling(fleet: &Fleet, request: &Request) -> Result<(f64, StepRecord)> {
    let phase = Phase { name: "direct".to_owned(), rate: None, warmup: CEILING_WARMUP, duration: CEILING_WINDOW };
    let scenario = Scenario { mode: Mode::Closed, phases: vec![phase], ..request.scenario.clone() };
    // Of its few seconds one may be lost.
    let slices_stolen_share_max = Rules::quick().slices_stolen_share_max;
    let rules = Rules { slices_stolen_share_max, ..request.rules.clone() };
    let mut reason = String::new();
    for _ in 0..CEILING_ATTEMPTS {
        let TrialOutcome { trial, record, .. } = fleet.run_direct(&scenario, &rules)?;
        match judge_ceiling(&trial, &rules, true) {
            Verdict::Invalid(found) => reason = found.reason.to_string(),
            _ => return Ok((trial.completed_rate(), record)),
        }
    }
    bail!("the direct ceiling could not be measured in {CEILING_ATTEMPTS} attempts: {reason}")
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
