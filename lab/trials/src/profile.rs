//! Where the gateway's time goes under a load.
//!
//! `perf record` samples the gateway's threads while the load runs. Guests without a performance counter sample a timer instead, which
//! sees code with interrupts off as the code right after it; the result says which was used.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use weir_knee::Trial;
use weir_knee::markdown::Table;
use weir_load::Scenario;
use weir_load::scenario::Phase;
use weir_parties::load::Length;
use weir_parties::peer::find_program;
use weir_parties::{Launch, Load, Peer, Process, interrupt};

use crate::budget::Budget;
use crate::comparison::Arm;
use crate::fleet::{Fleet, Runner};
use crate::knee::Failure;
use crate::placement::{Placement, list_of};
use crate::program::{self, Program};
use crate::stage::{Stage, UpstreamKind};
use crate::trial::{self, Subject};

mod group;
mod symbols;

use symbols::Symbol;

/// Symbols of the list.
const SYMBOLS: usize = 25;
/// Samples per second and CPU. Odd, so that it does not beat with the kernel's tick.
const FREQUENCY: &str = "1999";
/// Until perf has opened its events.
const PERF_STARTS: Duration = Duration::from_millis(500);
/// Until perf has written its file.
const PERF_ENDS: Duration = Duration::from_secs(30);

/// The query.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program that is gateway and origin.
    pub weir: PathBuf,
    /// The workload; its first phase is used.
    pub scenario: Scenario,
    /// Kind of server behind the gateway.
    pub behind: UpstreamKind,
    /// CPUs of the gateway.
    pub budget: Budget,
    /// Another gateway than that of this project.
    pub peer: Option<Peer>,
    /// The program of others that makes the load; `None`: the lab's own generator.
    pub load: Option<Load>,
}

/// A profile.
#[derive(Debug)]
pub struct Profile {
    /// CPUs of each party.
    pub placement: Placement,
    /// The gateway.
    pub arm: Arm,
    /// A run without sampling, which costs time itself.
    pub trial: Trial,
    /// The event that was sampled.
    pub event: &'static str,
    symbols: Vec<Symbol>,
}

/// Profiles the gateway. The calling thread is moved to the generator's CPUs.
///
/// # Errors
/// A budget that this host does not have; a scenario that the load program cannot send; a program that is not installed; an origin or
/// a gateway that does not start, or a load that fails; perf that may not sample; Ctrl-C.
pub fn profile(request: &Request) -> Result<Profile, Failure> {
    let placement = Placement::of(request.budget)?;
    let perf = find_program("perf").context("perf is not installed: apt install linux-perf")?;
    match &request.load {
        Some(load) => {
            load.find()?;
            program::check(load, &request.scenario)?;
        }
        None => trial::check(&request.scenario)?,
    }
    placement.enter_generator()?;
    let scenario = &request.scenario;
    let stage = Stage::start(&request.weir, &request.behind, &placement, request.budget.share(), scenario)?;
    let mut fleet = Fleet::start_one(stage, request.peer.as_ref())?;
    let arm = fleet.runners[0].facts();
    let phase = scenario.phases.first().context("a scenario without a phase")?;
    let scenario = scenario.alone(phase);
    let length = length(request, &mut fleet, &scenario, phase)?;
    let trial = run(request, &mut fleet, &scenario, length)?;
    let Runner::Gateway(gateway) = &fleet.runners[0] else { return Err(anyhow::anyhow!("no gateway").into()) };
    let gateway = gateway.process.id();
    let recorder = Recorder::start(&perf.to_string_lossy(), gateway, &placement, &fleet)?;
    run(request, &mut fleet, &scenario, length)?;
    let (event, symbols) = recorder.finish()?;
    Ok(Profile { placement, arm, trial, event, symbols })
}

/// Length of the runs of a load program.
fn length(request: &Request, fleet: &mut Fleet, scenario: &Scenario, phase: &Phase) -> Result<Option<Length>> {
    let Some(load) = &request.load else { return Ok(None) };
    let program = Program { load, changes: &[] };
    let rate = fleet.on(0, |subject, fleet| {
        program.look(scenario, subject, fleet)?;
        if load.counts_requests() { program.calibrate(scenario, subject, fleet) } else { Ok(0.0) }
    })?;
    Ok(Some(program.length(scenario, phase, rate)))
}

fn run(request: &Request, fleet: &mut Fleet, scenario: &Scenario, length: Option<Length>) -> Result<Trial> {
    match request.load.as_ref().zip(length) {
        None => Ok(fleet.run(scenario, 0, &weir_knee::Rules::default())?.trial),
        Some((load, length)) => {
            let program = Program { load, changes: &[] };
            let go = |subject: &Subject<'_>, fleet: &Fleet| program.measure(scenario, subject, length, fleet);
            Ok(fleet.on(0, go)?.0)
        }
    }
}

/// perf while it samples.
struct Recorder {
    perf: String,
    file: String,
    event: &'static str,
    process: Process,
}

impl Recorder {
    fn start(perf: &str, gateway: u32, placement: &Placement, fleet: &Fleet) -> Result<Self> {
        let (event, target) = (event(perf), gateway.to_string());
        let file = fleet.stage.folder().join("perf.data").to_string_lossy().into_owned();
        let words = [perf, "record", "-e", event, "-F", FREQUENCY, "-p", &target, "-o", &file];
        let launch = Launch::new("perf", Some(&list_of(&placement.generator)), words);
        let mut process = Process::start(launch, fleet.stage.folder())?;
        interrupt::sleep(PERF_STARTS)?;
        process.check_running().context("perf does not run; see /proc/sys/kernel/perf_event_paranoid")?;
        Ok(Self { perf: perf.to_owned(), file, event, process })
    }

    fn finish(mut self) -> Result<(&'static str, Vec<Symbol>)> {
        self.process.signal(Signal::INT)?;
        // perf ends with the signal that stopped it; what counts is the file.
        self.process.wait(PERF_ENDS)?;
        let mut command = Command::new(&self.perf);
        command.args(["report", "--stdio", "--no-children", "--percentage", "absolute", "-F", "overhead,sym,dso"]);
        let output = command.args(["-t", "\t", "-i", &self.file]).output()?;
        ensure!(output.status.success(), "perf report: {}", String::from_utf8_lossy(&output.stderr).trim());
        let symbols = symbols::parse(&String::from_utf8_lossy(&output.stdout));
        if symbols.is_empty() {
            bail!("perf recorded no samples; {}", self.process.tail());
        }
        Ok((self.event, symbols))
    }
}

/// The processor's cycles where the machine counts them, else the timer.
fn event(perf: &str) -> &'static str {
    let output = Command::new(perf).args(["stat", "-e", "cycles", "true"]).output();
    let counts = output.is_ok_and(|output| {
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("not supported")
    });
    if counts { "cycles" } else { "cpu-clock" }
}

impl Profile {
    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let cost = self.trial.parties.gateway_cpu_us_per_req;
        let cost = cost.map_or(String::new(), |cost| format!("{cost:.2} us gateway CPU per request, "));
        let share = |kernel: bool| {
            let side = self.symbols.iter().filter(|symbol| symbol.is_kernel == kernel);
            side.map(|symbol| symbol.percent).sum::<f64>()
        };
        let mut groups = Table::new(&["group", "self %"]);
        for (group, percent) in group::sums(&self.symbols) {
            groups.row(vec![group, format!("{percent:.1}")]);
        }
        let mut table = Table::new(&["self %", "where", "symbol"]);
        for symbol in self.symbols.iter().take(SYMBOLS) {
            let place = if symbol.is_kernel { "kernel".to_owned() } else { symbol.object.clone() };
            table.row(vec![format!("{:.2}", symbol.percent), place, symbol.name.clone()]);
        }
        format!(
            "# Where the time of {} goes\n\n- {}: {}, `{}`\n- {}\n- without sampling: {cost}{:.0} requests/s\n\n\
             Event `{}`. Kernel {:.1} %, user {:.1} %.\n\n{}\n{}",
            self.arm.name,
            self.arm.name,
            self.arm.version,
            self.arm.command,
            self.placement,
            self.trial.completed_rate(),
            self.event,
            share(true),
            share(false),
            groups.markdown(),
            table.markdown()
        )
    }
}
