//! The search, from the first calibration to the last rung.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use weir_engine::settings::Address;
use weir_knee::search::SearchOptions;
use weir_knee::{Command, Knee, Observation, Purpose, Rate, Rules, Run, Search, Trial, Verdict};
use weir_load::Scenario;
use weir_load::record::Host;
use weir_load::scenario::{Mode, Phase};
use weir_parties::Process;
use weir_parties::peer::{Running, Telemetry};

use crate::budget::Budget;
use crate::course::Course;
use crate::placement::{NotRun, Placement};
use crate::stage::{Stage, UpstreamKind, front_of};
use crate::trial::{self, Subject, TrialOutcome};

/// The query.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; its phases are not used.
    pub scenario: Scenario,
    /// Kind of server behind the gateway.
    pub behind: UpstreamKind,
    /// CPUs of the gateway.
    pub budget: Budget,
    /// How much the gateway observes of itself.
    pub telemetry: Telemetry,
    /// Highest rate to offer, requests per second.
    pub rate_max: Option<f64>,
    /// Thresholds and lengths.
    pub rules: Rules,
}

/// Progress of a search.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The programs stand.
    Started {
        /// CPUs of each party.
        placement: &'a Placement,
        /// The gateway's configuration.
        config: &'a str,
    },
    /// A trial begins.
    Begins(&'a Run),
    /// A trial is over.
    Ended {
        /// The request.
        run: &'a Run,
        /// Measurements of the trial.
        trial: &'a Trial,
        /// Verdict on the trial.
        verdict: Verdict,
    },
}

/// A search that came to its end.
#[derive(Debug)]
pub struct FoundKnee {
    /// The result.
    pub knee: Knee,
    /// Courses of all trials of `knee.seen`, in its order.
    pub courses: Vec<Course>,
    /// CPUs of each party.
    pub placement: Placement,
    /// The gateway's configuration.
    pub config: String,
    /// Id of the last trial; plans cite it.
    pub run_id: String,
    /// Version and profile of the build.
    pub build: String,
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

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotRun(why) => why.fmt(f),
            Self::Other(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

/// Finds the clean knee of a gateway. Takes minutes; the calling thread is moved to the generator's CPUs.
///
/// # Errors
/// A budget that this host does not have; programs that do not start; a target that cannot be reached; Ctrl-C.
pub fn knee(request: &Request, mut told: impl FnMut(&Progress<'_>)) -> Result<FoundKnee, Failure> {
    let placement = Placement::of(request.budget)?;
    let mut search = search_of(request, &placement)?;
    placement.enter_generator()?;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.budget.share(), &request.scenario)?;
    let gateway = stage.start_gateway(&stage.weir(request.telemetry)?)?;
    told(&Progress::Started { placement: &placement, config: &gateway.config });
    let config = gateway.config.clone();
    let mut driver = Driver { scenario: &request.scenario, rules: &request.rules, stage, gateway, sink: None };
    let (mut run_id, mut build, mut host) = (String::new(), String::new(), Host::default());
    let mut courses = Vec::new();
    let mut command = search.next(None);
    loop {
        let run = match command {
            Command::Done(knee) => {
                return Ok(FoundKnee { knee: *knee, courses, placement, config, run_id, build, host });
            }
            Command::Run(run) => run,
        };
        told(&Progress::Begins(&run));
        let TrialOutcome { trial, record, course } = driver.run(&run)?;
        courses.push(course);
        (run_id, build, host) = (record.identity.run_id, record.identity.build, record.host);
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
    trial::check(scenario)?;
    // More shards than CPUs would share a full core and each look half idle.
    let shards_max = (placement.generator.len() as u32).max(scenario.shards);
    let rules = Rules { shards_max, ..rules.clone() };
    let asked = SearchOptions { backend: behind.backend(), rate_max: *rate_max, shards: scenario.shards };
    Ok(Search::new(asked, rules, scenario.seed)?)
}

/// The scenario with one phase: this trial.
fn scenario_of(scenario: &Scenario, asked: &Run) -> Result<Scenario> {
    let mut scenario = scenario.clone();
    let rate = match asked.rate {
        Rate::Saturate => {
            scenario.mode = Mode::Closed;
            None
        }
        Rate::Offered(rate) => match weir_load::Rate::per_second(rate) {
            Some(rate) => Some(rate),
            None => bail!("a rate of {rate} requests per second is beyond the generator"),
        },
    };
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
    let (warmup, duration) = (seconds(asked.length.warmup_s), seconds(asked.length.window_s));
    scenario.phases = vec![Phase { name: "trial".to_owned(), rate, warmup, duration, ..Phase::default() }];
    scenario.shards = asked.shards.min(scenario.connections);
    Ok(scenario)
}

/// Runs the trials that the search asks for.
struct Driver<'a> {
    scenario: &'a Scenario,
    rules: &'a Rules,
    stage: Stage,
    gateway: Running,
    sink: Option<(Process, Address)>,
}

impl Driver<'_> {
    fn run(&mut self, run: &Run) -> Result<TrialOutcome> {
        self.check()?;
        let scenario = scenario_of(self.scenario, run)?;
        let outcome = match run.purpose {
            Purpose::NullSink => self.run_on_sink(&scenario),
            Purpose::Direct => {
                let direct = Subject { gateway: None, ..self.through(self.stage.behind()) };
                trial::run(&scenario, &direct, self.rules)
            }
            _ => trial::run(&scenario, &self.through(&front_of(&self.gateway)), self.rules),
        };
        if run.purpose != Purpose::NullSink {
            self.sink = None;
        }
        // A program that ended says more than the load that failed on it.
        outcome.map_err(|error| self.check().err().unwrap_or(error))
    }

    /// An error with its last words if one of the programs has ended.
    fn check(&mut self) -> Result<()> {
        self.gateway.process.check_running()?;
        self.stage.check()
    }

    /// The first of all, and perhaps again with more shards: the generator's own ceiling.
    fn run_on_sink(&mut self, scenario: &Scenario) -> Result<TrialOutcome> {
        let (process, target) = match &self.sink {
            Some(sink) => sink,
            None => self.sink.insert(self.stage.start_sink()?),
        };
        let subject = Subject {
            target,
            gateway: None,
            origin: Some(process.id()),
            generator_cpus: self.stage.generator_cpus(),
            has_counters: false,
        };
        trial::run(scenario, &subject, self.rules)
    }

    fn through<'a>(&'a self, target: &'a Address) -> Subject<'a> {
        let (origin, generator_cpus) = (self.stage.origin(), self.stage.generator_cpus());
        Subject { target, gateway: Some(&self.gateway), origin, generator_cpus, has_counters: false }
    }
}
