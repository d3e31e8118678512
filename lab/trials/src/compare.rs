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
use weir_parties::load::Length;
use weir_parties::peer::Change;
use weir_parties::{Load, Peer, interrupt};

use crate::budget::Budget;
use crate::comparison::{Arm, Block, FailedArm, MissingPeer, Row, Sample, Worth};
use crate::fleet::{Fleet, Runner, is_ours};
use crate::knee::Failure;
use crate::placement::Placement;
use crate::program::{self, Program};
use crate::stage::{Stage, UpstreamKind};
use crate::trial::{self, Subject, TrialOutcome};

/// Warm-up and window of the direct ceiling, at least, and its attempts.
const CEILING_WARMUP: Duration = Duration::from_secs(1);
const CEILING_WINDOW: Duration = Duration::from_secs(3);
const CEILING_ATTEMPTS: u32 = 3;

/// The query.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; each of its phases is a row.
    pub scenario: Scenario,
    /// Kind of server behind the gateways.
    pub behind: UpstreamKind,
    /// CPUs of each gateway.
    pub budget: Budget,
    /// Those that are compared with the gateway of this project.
    pub peers: Vec<Peer>,
    /// The parts that each gateway has besides what its file says.
    pub changes: Vec<Change>,
    /// The program of others that makes the load; `None`: the lab's own generator.
    pub load: Option<Load>,
    /// Also without any gateway.
    pub is_direct: bool,
    /// Blocks of each row.
    pub blocks: u32,
    /// Thresholds by which a trial is judged.
    pub rules: Rules,
}

/// Progress of a comparison.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The gateways stand, all of them or some.
    Started {
        /// CPUs of each party.
        placement: &'a Placement,
        /// Those that run.
        arms: &'a [Arm],
        /// Those that do not.
        missing: &'a [MissingPeer],
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
        /// Measurements of the run.
        trial: &'a Trial,
        /// Verdict on the run.
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
pub struct ComparisonResult {
    /// CPUs of each party.
    pub placement: Placement,
    /// Those that ran.
    pub arms: Vec<Arm>,
    /// Those that did not.
    pub missing: Vec<MissingPeer>,
    /// Those that ended, or refused the load.
    pub failed: Vec<FailedArm>,
    /// Requests per second without a gateway, closed loop; `None`: not measured.
    pub direct_ceiling: Option<f64>,
    /// One per phase.
    pub rows: Vec<Row>,
    /// The last record: identity and machine.
    pub last: StepRecord,
}

/// Compares the gateways. Takes long: phases x blocks x arms x 2 runs. The calling thread is moved to the generator's CPUs.
///
/// # Errors
/// A budget that this host does not have; a scenario that the load program cannot send, or a program that is not installed; an
/// origin or a gateway of this project that does not start; Ctrl-C. A peer that does not start, or ends, is named in the result,
/// and the others are compared.
pub fn compare(request: &Request, mut report: impl FnMut(&Progress<'_>)) -> Result<ComparisonResult, Failure> {
    let placement = Placement::of(request.budget)?;
    check(request)?;
    placement.enter_generator()?;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.budget.share(), &request.scenario)?;
    let fleet = Fleet::start(stage, &request.peers, &request.changes, request.is_direct)?;
    let fleet = Fleet { has_counters: true, ..fleet };
    let arms: Vec<Arm> = fleet.runners.iter().map(Runner::facts).collect();
    report(&Progress::Started { placement: &placement, arms: &arms, missing: &fleet.missing });
    if arms.len() < 2 {
        return Err(anyhow!("no peer is left to compare with; the reasons stand above").into());
    }
    let mut runs =
        Runs { request, fleet, arms, failed: Vec::new(), direct_ceiling: None, last: None, report: &mut report };
    // A server that makes a process for each connection takes fewer of them than a gateway that keeps its own: no ceiling.
    if request.load.is_none() && !request.scenario.churn {
        let (ceiling, record) = direct_ceiling(&runs.fleet, request)?;
        (runs.direct_ceiling, runs.last) = (Some(ceiling), Some(record));
        (runs.report)(&Progress::Ceiling(ceiling));
    }
    let mut rng = Rng::new(request.scenario.seed);
    let mut rows = Vec::new();
    for phase in &request.scenario.phases {
        rows.push(runs.row(phase, &mut rng)?);
        if runs.is_over() {
            break;
        }
    }
    let Runs { fleet, arms, failed, direct_ceiling, last, .. } = runs;
    let Some(last) = last else {
        let reasons = failed.iter().map(|failed| format!("{}: {}", failed.arm, failed.reason)).collect::<Vec<_>>();
        return Err(anyhow!("nothing was measured: {}", reasons.join("; ")).into());
    };
    Ok(ComparisonResult { placement, arms, missing: fleet.missing, failed, direct_ceiling, rows, last })
}

/// A comparison that goes on.
struct Runs<'a> {
    request: &'a Request,
    fleet: Fleet,
    arms: Vec<Arm>,
    failed: Vec<FailedArm>,
    direct_ceiling: Option<f64>,
    last: Option<StepRecord>,
    report: &'a mut dyn FnMut(&Progress<'_>),
}

impl Runs<'_> {
    /// Whether the arm is gone, or refuses the load.
    fn has_failed(&self, index: usize) -> bool {
        self.failed.iter().any(|failed| failed.arm == self.arms[index].name)
    }

    /// Without our own gateway nothing is left to compare.
    fn is_over(&self) -> bool {
        self.has_failed(0)
    }

    /// All blocks of a phase.
    fn row(&mut self, phase: &Phase, rng: &mut Rng) -> Result<Row> {
        let scenario = self.request.scenario.alone(phase);
        let mut row = Row::new(phase);
        let length = self.prepare(&scenario, phase, &mut row)?;
        for number in 1..=self.request.blocks {
            if self.is_over() {
                break;
            }
            (self.report)(&Progress::Block { phase, block: number });
            let mut block = Block::default();
            for index in order(self.fleet.runners.len(), rng) {
                if !self.has_failed(index) {
                    let ran = self.run(&scenario, index, length);
                    match ran.and_then(|(sample, record)| Ok((self.add(&mut row, index, &sample, record)?, sample))) {
                        Ok(((), sample)) => block.add(&self.arms[index].name, sample),
                        Err(error) => self.fail(index, &row, &error)?,
                    }
                }
            }
            row.blocks.push(block);
        }
        row.conclude();
        Ok(row)
    }

    /// The checks before the runs of a load program: that every arm responds, with the keys of the load, and how
    /// long its runs are.
    fn prepare(&mut self, scenario: &Scenario, phase: &Phase, row: &mut Row) -> Result<Option<Length>> {
        let Some(program) = self.request.load.as_ref() else { return Ok(None) };
        let program = Program { load: program, changes: &self.request.changes };
        let mut slowest = f64::INFINITY;
        for index in 0..self.arms.len() {
            if self.has_failed(index) {
                continue;
            }
            let prepared = self.fleet.on(index, |subject, fleet| {
                let record = program.look(scenario, subject, fleet)?;
                let rate = match program.load.counts_requests() {
                    true => program.calibrate(scenario, subject, fleet)?,
                    false => f64::INFINITY,
                };
                Ok((record, rate))
            });
            match prepared {
                Ok((record, rate)) => {
                    slowest = slowest.min(rate);
                    self.last = Some(record);
                }
                Err(error) => self.fail(index, row, &error)?,
            }
        }
        let length = program.length(scenario, phase, if slowest.is_finite() { slowest } else { 0.0 });
        row.load = program.shown(scenario, length)?;
        Ok(Some(length))
    }

    /// One run, of the load program if `length` is its.
    fn run(
        &mut self,
        scenario: &Scenario,
        index: usize,
        length: Option<Length>,
    ) -> Result<(Sample, Option<StepRecord>)> {
        let Request { rules, load, changes, behind, .. } = self.request;
        let (mut trial, resources, record) = match load.as_ref().zip(length) {
            None => {
                let TrialOutcome { trial, record, .. } = self.fleet.run(scenario, index, rules)?;
                (trial, record.resources.clone(), Some(record))
            }
            Some((load, length)) => {
                let program = Program { load, changes };
                let go = |subject: &Subject<'_>, fleet: &Fleet| program.measure(scenario, subject, length, fleet);
                let (trial, resources) = self.fleet.on(index, go)?;
                (trial, resources, None)
            }
        };
        trial.backend = behind.backend();
        trial.ceiling = self.direct_ceiling;
        let verdict = match scenario.phases[0].rate {
            Some(_) => judge(&trial, rules),
            // Others do not check replies.
            None => judge_ceiling(&trial, rules, load.is_none()),
        };
        (self.report)(&Progress::Ended { arm: &self.arms[index].name, trial: &trial, verdict });
        let worth = Worth::of(&trial, verdict, rules);
        Ok((Sample::new(trial, verdict, worth, &resources), record))
    }

    fn add(&mut self, row: &mut Row, index: usize, sample: &Sample, record: Option<StepRecord>) -> Result<()> {
        if let Some(record) = record {
            row.add_latency(&self.arms[index].name, sample, &record)?;
            self.last = Some(record);
        }
        Ok(())
    }

    /// Records that an arm ended, or refuses the load. The other arms continue.
    fn fail(&mut self, index: usize, row: &Row, error: &anyhow::Error) -> Result<()> {
        interrupt::check()?;
        self.fleet.stage.check()?;
        let arm = self.arms[index].name.clone();
        (self.report)(&Progress::Failed { arm: &arm, error });
        self.failed.push(FailedArm { arm, at: row.title(), reason: format!("{error:#}") });
        Ok(())
    }
}

fn check(request: &Request) -> Result<()> {
    // Results and files are distinguished by name.
    let protocol = request.scenario.protocol.to_string();
    let mut names: Vec<&str> = request.peers.iter().map(|peer| &*peer.name).chain(["origin"]).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("{} is named twice, or is a name of the lab's own; choose another `name`", twice[0]);
    }
    if let Some(other) = request.peers.iter().find(|peer| is_ours(peer) && !peer.is_weir()) {
        bail!(
            "{} is the name of this gateway, and {} another program; choose another `name`",
            other.name,
            other.program
        );
    }
    if request.peers.iter().all(is_ours) && !request.is_direct {
        bail!("there is no peer to compare with; name peers");
    }
    if request.is_direct && request.changes.contains(&Change::Tls) {
        bail!("the server behind does not speak TLS, so there is no direct arm; name peers without direct");
    }
    for peer in &request.peers {
        if !peer.speaks(&protocol) {
            bail!("{} does not speak {protocol}; it speaks {}", peer.name, peer.protocols.join(", "));
        }
    }
    match &request.load {
        Some(load) => {
            load.find()?;
            program::check(load, &request.scenario)
        }
        None if request.changes.contains(&Change::Tls) => {
            bail!("the lab's own generator does not speak TLS; name a load program that does: --load")
        }
        None => trial::check(&request.scenario),
    }
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

/// Rate that the generator and the back end reach without a gateway. A run that comes closer to it than the rules allow
/// measures the lab.
fn direct_ceiling(fleet: &Fleet, request: &Request) -> Result<(f64, StepRecord)> {
    // The warm-up of a scenario is longer than its longest response. A shorter window would see none of them.
    let longest = request.scenario.phases.iter().map(|phase| phase.warmup).max().unwrap_or_default();
    let (warmup, duration) = (CEILING_WARMUP.max(longest), CEILING_WINDOW.max(longest));
    let phase = Phase { name: "direct".to_owned(), warmup, duration, ..Phase::default() };
    let scenario = Scenario { mode: Mode::Closed, phases: vec![phase], ..request.scenario.clone() };
    // The window has only a few seconds, of which one may be lost.
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
