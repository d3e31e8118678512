//! A closed loop at one concurrency after the other, or with one CPU more at a time: the ladder per protocol, and cores to
//! throughput. All gateways of a group stand side by side and take turns at every rung, so that drift of the machine hits all.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_knee::judge::judge_ceiling;
use weir_knee::{Rules, Trial, Verdict};
use weir_load::scenario::{Mode, Phase};
use weir_load::{Scenario, StepRecord};
use weir_parties::place::allowed_cpus;
use weir_parties::{Peer, interrupt};

use crate::budget::Budget;
use crate::comparison::{Arm, MissingPeer};
use crate::fleet::{Fleet, Runner};
use crate::knee::Failure;
use crate::placement::Placement;
use crate::stage::{Stage, UpstreamKind};
use crate::swept::{Figures, Group, Rung};
use crate::trial::{self, TrialOutcome};

/// Attempts at one rung: others may have the machine for a while.
const ATTEMPTS: u32 = 3;

/// Most requests under way. Default 16,384: more connections than one address has ports for are another measurement.
pub const UNDER_WAY_MAX: u32 = 16_384;

/// A workload, and who carries it besides the gateway of this project.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its mode, connections and phases are not used.
    pub scenario: Scenario,
    /// Its text.
    pub source: String,
    /// Other gateways.
    pub peers: Vec<Peer>,
}

/// The query.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// One after the other.
    pub workloads: Vec<Workload>,
    /// Kind of server behind the gateways.
    pub behind: UpstreamKind,
    /// CPUs of each gateway, one budget after the other.
    pub budgets: Vec<Budget>,
    /// Requests under way, one rung after the other.
    pub under_way: Vec<u32>,
    /// Also without any gateway.
    pub is_direct: bool,
    /// Load before each window.
    pub warmup: Duration,
    /// Measured window of each run.
    pub window: Duration,
    /// Thresholds by which runs are judged.
    pub rules: Rules,
}

/// Progress of a sweep.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The programs of a group stand.
    Started {
        /// The workload.
        name: &'a str,
        /// CPUs of each party.
        placement: &'a Placement,
        /// Those that run.
        arms: &'a [Arm],
        /// Those that do not.
        missing: &'a [MissingPeer],
    },
    /// A budget cannot be measured here; why.
    NotRun(&'a str),
    /// A run is over, or has failed.
    Rung(&'a Rung),
}

/// A sweep that came to its end.
#[derive(Debug)]
pub struct Swept {
    /// In the order of the workloads, then of the budgets.
    pub groups: Vec<Group>,
    /// The last record: identity and machine; `None`: nothing was run.
    pub last: Option<StepRecord>,
}

/// Runs every rung. Takes workloads x budgets x rungs x arms runs. The calling thread is moved to the generator's CPUs.
///
/// # Errors
/// An origin or a gateway of this project that does not start; a scenario that what stands behind cannot serve; Ctrl-C. A peer
/// that does not start or fails, and a budget that the host does not have, are named in the result.
pub fn sweep(request: &Request, mut report: impl FnMut(&Progress<'_>)) -> Result<Swept, Failure> {
    // Read now: later this process has the generator's alone.
    let cpus = allowed_cpus()?;
    let workloads = check(request)?;
    let mut swept = Swept { groups: Vec::new(), last: None };
    for (workload, scenario) in request.workloads.iter().zip(&workloads) {
        for budget in &request.budgets {
            let mut group = Group {
                name: scenario.name.clone(),
                protocol: scenario.protocol.title().to_owned(),
                scenario: workload.source.clone(),
                payload: scenario.payload_words(),
                budget_vcpu: budget.vcpu(),
                placement: None,
                not_run: None,
                server: None,
                arms: Vec::new(),
                missing: Vec::new(),
                rungs: Vec::new(),
            };
            match Placement::on(&cpus, *budget) {
                Err(Failure::NotRun(why)) => {
                    let why = why.to_string();
                    report(&Progress::NotRun(&why));
                    group.not_run = Some(why);
                }
                Err(error) => return Err(error),
                Ok(placement) => {
                    placement.enter_generator()?;
                    group.placement = Some(placement.clone());
                    let last = climb(request, workload, scenario, *budget, &placement, &mut group, &mut report)?;
                    swept.last = last.or(swept.last);
                }
            }
            swept.groups.push(group);
        }
    }
    Ok(swept)
}

/// The scenarios as they can be sent.
fn check(request: &Request) -> Result<Vec<Scenario>> {
    ensure!(!request.under_way.is_empty() && !request.budgets.is_empty(), "there is nothing to run");
    for count in &request.under_way {
        let is_possible = (1..=UNDER_WAY_MAX).contains(count);
        ensure!(is_possible, "{count} requests under way: from 1 to {UNDER_WAY_MAX}");
    }
    let adapt = |workload: &Workload| {
        let protocol = workload.scenario.protocol.to_string();
        for peer in &workload.peers {
            let spoken = peer.protocols.join(", ");
            ensure!(peer.speaks(&protocol), "{} does not speak {protocol}; it speaks {spoken}", peer.name);
        }
        let Scenario { name, channels, .. } = &workload.scenario;
        ensure!(
            *channels == 0,
            "{name} has channels, whose audience would change with the connections: compare it instead"
        );
        trial::check(&workload.scenario)?;
        request.behind.adapted(&workload.scenario)
    };
    request.workloads.iter().map(adapt).collect()
}

/// All rungs of one scenario on one budget.
fn climb(
    request: &Request,
    workload: &Workload,
    scenario: &Scenario,
    budget: Budget,
    placement: &Placement,
    group: &mut Group,
    report: &mut impl FnMut(&Progress<'_>),
) -> Result<Option<StepRecord>> {
    // Room for the highest rung, whatever its connections are.
    let most = request.under_way.iter().copied().max().unwrap_or(1);
    let widest = Scenario { connections: most, pipeline: 1, ..scenario.clone() };
    let stage = Stage::start(&request.weir, &request.behind, placement, budget.share(), &widest)?;
    group.server = stage.server().cloned();
    let mut fleet = Fleet::start(stage, &workload.peers, &[], request.is_direct)?;
    group.arms = fleet.runners.iter().map(Runner::facts).collect();
    group.missing = std::mem::take(&mut fleet.missing);
    report(&Progress::Started { name: &group.name, placement, arms: &group.arms, missing: &group.missing });
    let mut gone = vec![false; group.arms.len()];
    let mut last = None;
    for under_way in &request.under_way {
        let scenario = rung_of(scenario, *under_way, request, placement);
        for (index, is_gone) in gone.iter_mut().enumerate() {
            if *is_gone {
                continue;
            }
            let arm = group.arms[index].name.clone();
            let connections = scenario.connections;
            let (figures, failed) = match attempt(&mut fleet, &scenario, index, request) {
                Ok((trial, record, verdict)) => {
                    let figures = figures(&trial, &record);
                    last = Some(record);
                    (Some(figures), verdict)
                }
                Err(error) => {
                    interrupt::check()?;
                    // The other arms continue, unless a server behind them ended too.
                    fleet.stage.check()?;
                    *is_gone = true;
                    (None, Some(format!("failed: {error:#}")))
                }
            };
            let mode = Mode::Closed.to_string();
            let rung = Rung { arm, under_way: *under_way, connections, mode, figures, failed };
            report(&Progress::Rung(&rung));
            group.rungs.push(rung);
        }
    }
    Ok(last)
}

/// A run that counts, or the last of some that do not, and why.
fn attempt(
    fleet: &mut Fleet,
    scenario: &Scenario,
    index: usize,
    request: &Request,
) -> Result<(Trial, StepRecord, Option<String>)> {
    let mut left = ATTEMPTS;
    loop {
        let TrialOutcome { mut trial, record, .. } = fleet.run(scenario, index, &request.rules)?;
        trial.backend = request.behind.backend();
        let verdict = judge_ceiling(&trial, &request.rules, true);
        left -= 1;
        match verdict {
            Verdict::Invalid(_) if left > 0 => {}
            // A saturated program is uneven: an unsteady window counts too.
            Verdict::Clean | Verdict::Unsteady => return Ok((trial, record, None)),
            _ => return Ok((trial, record, Some(verdict.to_string()))),
        }
    }
}

/// A closed loop with so many requests under way: on as few connections as the depth of the scenario allows, with the same
/// number on each.
fn rung_of(scenario: &Scenario, under_way: u32, request: &Request, placement: &Placement) -> Scenario {
    let connections = connections_of(under_way, scenario.pipeline);
    // More shards than CPUs would share a full core.
    let shards = scenario.shards.max(placement.generator.len() as u32).min(connections);
    let (warmup, duration) = (request.warmup, request.window);
    let phase = Phase { name: format!("{under_way} under way"), warmup, duration, ..Phase::default() };
    Scenario {
        mode: Mode::Closed,
        connections,
        pipeline: under_way / connections,
        shards,
        phases: vec![phase],
        ..scenario.clone()
    }
}

fn connections_of(under_way: u32, depth: u32) -> u32 {
    let fewest = under_way.div_ceil(depth.max(1));
    (fewest..=under_way).find(|connections| under_way.is_multiple_of(*connections)).unwrap_or(under_way)
}

fn figures(trial: &Trial, record: &StepRecord) -> Figures {
    let gateway = record.resources.parties.get("gateway");
    Figures {
        rate: trial.completed_rate(),
        refused: trial.shed,
        errors: trial.errors.total(),
        sojourn: record.latency.sojourn.clone(),
        cpu_us_per_req: trial.parties.gateway_cpu_us_per_req,
        kernel_share: gateway.and_then(|gateway| gateway.kernel_share),
        rss_max: gateway.and_then(|gateway| gateway.rss_max),
        fds_max: gateway.and_then(|gateway| gateway.fds_max),
        threads: gateway.and_then(|gateway| gateway.threads),
        gateway_busiest: trial.parties.gateway_core_busiest,
        origin_busiest: trial.parties.origin_core_busiest,
        generator_cpu: trial.host.generator_cpu,
        box_us: record.resources.box_us_per_req,
        steal: record.resources.steal.unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_under_way_are_shared_evenly_by_as_few_connections_as_can_be() {
        for (under_way, depth, connections) in [
            (1, 1, 1),
            (128, 1, 128),
            (1, 32, 1),
            (8, 32, 1),
            (64, 32, 2),
            (128, 32, 4),
            (100, 32, 4),
            (7, 4, 7),
            (9, 4, 3),
        ] {
            assert_eq!(connections_of(under_way, depth), connections, "{under_way} with {depth} each");
        }
    }
}
