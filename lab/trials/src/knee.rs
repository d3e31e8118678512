//! The search, from the first calibration to the last rung.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_setaffinity};
use weir_engine::settings::Address;
use weir_knee::search::Asked;
use weir_knee::{Command, Knee, Observation, Purpose, Rules, Run, Search, Trial, Verdict};
use weir_load::record::Host;
use weir_load::scenario::{CommandKind, Mode};
use weir_load::{Scenario, StepRecord};
use weir_parties::place::allowed_cpus;
use weir_parties::{Process, interrupt};

use crate::placement::{NotRun, Placement};
use crate::stage::{Behind, Stage};
use crate::trial::{self, Subject};

/// What is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; its phases are not used.
    pub scenario: Scenario,
    /// What stands behind the gateway.
    pub behind: Behind,
    /// CPUs of the gateway, one worker each.
    pub budget: u32,
    /// Highest rate to offer, requests per second.
    pub rate_max: Option<f64>,
    /// Thresholds and lengths.
    pub rules: Rules,
}

/// What is told while the search goes on.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The programs stand.
    Started {
        /// Who runs where.
        placement: &'a Placement,
        /// The gateway's configuration.
        config: &'a str,
    },
    /// A trial begins.
    Begins(&'a Run),
    /// A trial is over.
    Ended {
        /// What was asked.
        run: &'a Run,
        /// What it measured.
        trial: &'a Trial,
        /// What it was worth.
        verdict: Verdict,
    },
}

/// A search that came to its end.
#[derive(Debug)]
pub struct Found {
    /// The result.
    pub knee: Knee,
    /// Who ran where.
    pub placement: Placement,
    /// The gateway's configuration.
    pub config: String,
    /// Of the last trial; plans cite it.
    pub run_id: String,
    /// The machine.
    pub host: Host,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Failure {
    /// The host cannot give the budget.
    NotRun(NotRun),
    /// Something else, which is in the text.
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Finds the clean knee of a gateway. Takes minutes; the calling thread is moved to the generator's CPUs.
///
/// # Errors
/// A budget that this host does not have; programs that do not start; a target that cannot be reached; Ctrl-C.
pub fn knee(request: &Request, mut told: impl FnMut(&Progress<'_>)) -> Result<Found, Failure> {
    let placement = Placement::divide(&allowed_cpus()?, request.budget).map_err(Failure::NotRun)?;
    let mut search = search_of(request, &placement)?;
    interrupt::watch()?;
    weir_engine::net::raise_descriptor_limit().context("the limit of open files")?;
    let mut set = CpuSet::new();
    placement.generator.iter().for_each(|cpu| set.set(*cpu as usize));
    // Threads of the generator inherit it.
    sched_setaffinity(None, &set).context("the generator's CPUs")?;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.scenario.connections)?;
    told(&Progress::Started { placement: &placement, config: stage.config() });
    let config = stage.config().to_owned();
    let mut driver = Driver { scenario: &request.scenario, rules: &request.rules, stage, sink: None };
    let (mut run_id, mut host) = (String::new(), Host::default());
    let mut command = search.next(None);
    loop {
        let run = match command {
            Command::Done(knee) => return Ok(Found { knee: *knee, placement, config, run_id, host }),
            Command::Run(run) => run,
        };
        told(&Progress::Begins(&run));
        let (trial, record) = driver.run(&run)?;
        (run_id, host) = (record.identity.run_id, record.host);
        let observation = Observation { run, trial };
        command = search.next(Some(&observation));
        if let Some(last) = search.seen().last() {
            told(&Progress::Ended { run: &run, trial: &observation.trial, verdict: last.verdict });
        }
    }
}

fn search_of(request: &Request, placement: &Placement) -> Result<Search> {
    let Request { scenario, behind, rate_max, rules, .. } = request;
    if scenario.mode == Mode::Closed {
        bail!("a closed loop has no rate, so it has no knee: write `mode = \"open\"`");
    }
    let reads =
        scenario.commands.iter().any(|command| matches!(command.kind, CommandKind::Get | CommandKind::Mget { .. }));
    let writes = scenario.commands.iter().any(|command| matches!(command.kind, CommandKind::Set));
    if scenario.integrity && reads && writes && !scenario.keys.preload {
        bail!(
            "replies cannot be checked: without `preload = true` under [keys] a trial reads what the one before it wrote; \
             preload, or write `integrity = false`"
        );
    }
    // More shards than CPUs would share a full core and each look half idle.
    let shards_max = (placement.generator.len() as u32).max(scenario.shards);
    let rules = Rules { shards_max, ..rules.clone() };
    let asked = Asked { backend: behind.backend(), rate_max: *rate_max, shards: scenario.shards };
    Ok(Search::new(asked, rules, scenario.seed)?)
}

/// Runs the trials that the search asks for. Each writes the keys anew, if the scenario does so at all: what a reply must
/// hold depends on the plan of the trial, and every trial finds the same data.
struct Driver<'a> {
    scenario: &'a Scenario,
    rules: &'a Rules,
    stage: Stage,
    sink: Option<(Process, Address)>,
}

impl Driver<'_> {
    fn run(&mut self, run: &Run) -> Result<(Trial, StepRecord)> {
        self.stage.check()?;
        let outcome = match run.purpose {
            Purpose::NullSink => self.run_on_sink(run),
            Purpose::Direct => {
                let direct = Subject { gateway: None, ..self.through(self.stage.behind()) };
                trial::run(self.scenario, run, &direct, self.rules)
            }
            _ => trial::run(self.scenario, run, &self.through(self.stage.front()), self.rules),
        };
        if run.purpose != Purpose::NullSink {
            self.sink = None;
        }
        // A program that ended says more than the load that failed on it.
        outcome.map_err(|error| self.stage.check().err().unwrap_or(error))
    }

    /// The first of all, and perhaps again with more shards: the generator's own ceiling.
    fn run_on_sink(&mut self, run: &Run) -> Result<(Trial, StepRecord)> {
        let (process, target) = match &self.sink {
            Some(sink) => sink,
            None => self.sink.insert(self.stage.start_sink()?),
        };
        let subject = Subject { target, gateway: None, origin: Some(process.id()) };
        trial::run(self.scenario, run, &subject, self.rules)
    }

    fn through<'a>(&self, target: &'a Address) -> Subject<'a> {
        Subject { target, gateway: Some(self.stage.gateway()), origin: self.stage.origin() }
    }
}
