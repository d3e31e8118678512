//! Starts the processes, lets them begin together, merges what they tell.

use std::io::BufReader;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use weir_base::Time;
use weir_engine::settings::Address;
use weir_knee::Trial;
use weir_load::run::{GATHER_MAX, Seconds, Slice};
use weir_load::{Event, Named, Part, Scenario, Second, Start, StepRecord, merge, run};
use weir_parties::{Launch, Process, interrupt};

use super::protocol::{self, Job, Order, Report};

/// Pause between two looks at Ctrl-C and at the clock.
const LOOK: Duration = Duration::from_millis(50);
/// From the order to begin until all begin: time for each process to read it and to get its shards ready. Default 100 ms: on
/// a machine whose CPUs are all busy a process waits some tens of them for its turn.
const START_DELAY: Duration = Duration::from_millis(100);
/// How much longer than its longest time a step of a process may take before it counts as hung. Default 30 s.
const GRACE: Duration = Duration::from_secs(30);

/// A load for several processes.
#[derive(Debug)]
pub struct Request {
    /// This very program.
    pub weir: PathBuf,
    /// The scenario, checked.
    pub scenario: Scenario,
    /// Its text.
    pub source: String,
    /// Thresholds of the command line, which the text does not have.
    pub thresholds: Vec<String>,
    /// Where to send the load.
    pub target: Address,
    /// How many, at least 1 and at most one per shard.
    pub processes: u32,
}

/// Runs the scenario in several processes and reports to `tell` as [`weir_load::run()`] does: the seconds and records are those
/// of all together. Call it on a thread that lives as long as it does.
///
/// # Errors
/// Too few shards; a process could not be started, failed, died, or fell silent; Ctrl-C. Records that were reported before it
/// are complete.
pub fn conduct(request: &Request, mut tell: impl FnMut(Event)) -> Result<()> {
    let Request { scenario, processes, .. } = request;
    if let Some(part) = Part::new(0, *processes) {
        part.check(scenario)?;
    }
    interrupt::watch()?;
    let mut crew = ProcessGroup::start(request)?;
    // Plans and keys may be many: they take the time they take.
    crew.until("to connect", None, |member| member.is_connected, |_, _| {})?;
    crew.order(|| Order::AllConnected)?;
    if scenario.keys.preload {
        tell(Event::Preloading(scenario.keys.count));
    }
    for (index, phase) in scenario.phases.iter().enumerate() {
        let limit = (index > 0).then_some(GATHER_MAX);
        crew.until("to be ready for the phase", limit, |member| member.ready == Some(index), |_, _| {})?;
        let start = Start::after(START_DELAY);
        crew.order(|| Order::Phase { index, begins_unix_us: start.unix_micros() })?;
        let measures = start.at().saturating_add(phase.warmup);
        tell(Event::Phase { measures, ends: measures.saturating_add(phase.duration) });
        let mut seconds = Seconds::new(crew.members.len());
        let each = |second, slice: Slice| {
            if let Some(sum) = seconds.add(second, &slice) {
                tell(Event::Second(Box::new(Second::new(phase, second, sum))));
            }
        };
        let longest = START_DELAY + phase.warmup + phase.duration + scenario.late_limit;
        crew.until("to end the phase", Some(longest), |member| member.record.is_some(), each)?;
        let (record, trial) = crew.merged()?;
        tell(Event::Step { phase: phase.name.clone(), record: Box::new(record), trial: Box::new(trial) });
    }
    crew.until("to end", Some(Duration::ZERO), |member| member.is_done, |_, _| {})
}

/// A process, and its reports.
struct Member {
    name: String,
    process: Process,
    input: ChildStdin,
    is_connected: bool,
    /// For which phase.
    ready: Option<usize>,
    /// Record of the current phase.
    record: Option<StepRecord>,
    is_done: bool,
}

/// The output of a process.
enum ProcessOutput {
    Report(Report),
    /// Its output is not understood.
    Broken(std::io::Error),
    /// Its output has ended.
    End,
}

/// All processes. Dropped, they end; before the folder of their output does.
struct ProcessGroup {
    members: Vec<Member>,
    output: Receiver<(usize, ProcessOutput)>,
    _folder: tempfile::TempDir,
}

impl ProcessGroup {
    fn start(request: &Request) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("weir-lab-").tempdir()?;
        let (sender, output) = mpsc::channel();
        let mut members = Vec::new();
        let run_id = run::run_id();
        for part in Part::all(request.processes) {
            let name = format!("process-{}", part.index() + 1);
            let words = [request.weir.as_os_str(), "lab".as_ref(), "load-part".as_ref()];
            // Not pinned, as the shards of one process are not: the operator chose the CPUs when starting this one.
            let (process, pipes) = Process::start_piped(Launch::new(&name, None, words), folder.path())?;
            let sender = sender.clone();
            let index = members.len();
            thread::spawn(move || listen(index, pipes.output, &sender));
            let mut member = Member {
                name,
                process,
                input: pipes.input,
                is_connected: false,
                ready: None,
                record: None,
                is_done: false,
            };
            member.order(&Order::Job(Job {
                schema: protocol::SCHEMA.to_owned(),
                run_id: run_id.clone(),
                part: part.to_string(),
                target: request.target.to_string(),
                scenario: request.source.clone(),
                thresholds: request.thresholds.clone(),
            }))?;
            members.push(member);
        }
        Ok(Self { members, output, _folder: folder })
    }

    fn order(&mut self, order: impl Fn() -> Order) -> Result<()> {
        self.members.iter_mut().try_for_each(|member| member.order(&order()))
    }

    /// Listens until every process `is_so`; `each` gets the seconds that are reported meanwhile. `limit` is the longest that
    /// this takes; `None`: unknown.
    fn until(
        &mut self,
        what: &str,
        limit: Option<Duration>,
        is_so: impl Fn(&Member) -> bool,
        mut each: impl FnMut(u32, Slice),
    ) -> Result<()> {
        let deadline = limit.map(|limit| Time::now().saturating_add(limit + GRACE));
        while let Some(open) = self.members.iter().find(|member| !is_so(member)) {
            interrupt::check()?;
            if deadline.is_some_and(|deadline| Time::now() >= deadline) {
                bail!("{} of the generator hangs: waited in vain for it {what}", open.name);
            }
            match self.output.recv_timeout(LOOK) {
                Ok((from, output)) => {
                    if let Some((second, slice)) = self.members[from].on_output(output)? {
                        each(second, slice);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the output of all processes of the generator has ended"),
            }
        }
        Ok(())
    }

    /// One record of those of all, which are taken.
    fn merged(&mut self) -> Result<(StepRecord, Trial)> {
        let records: Vec<(String, StepRecord)> =
            self.members.iter_mut().filter_map(|member| Some((member.name.clone(), member.record.take()?))).collect();
        let named: Vec<Named<'_>> = records.iter().map(|(name, record)| Named { name, record }).collect();
        Ok(merge(&named)?)
    }
}

impl Member {
    fn order(&mut self, order: &Order) -> Result<()> {
        protocol::write(&mut self.input, order).map_err(|_| self.last_words())
    }

    /// Takes note of its report; a second is handed on.
    fn on_output(&mut self, output: ProcessOutput) -> Result<Option<(u32, Slice)>> {
        match output {
            ProcessOutput::Report(Report::Connected) => self.is_connected = true,
            ProcessOutput::Report(Report::Ready { index }) => self.ready = Some(index),
            ProcessOutput::Report(Report::Second { index, slice, .. }) => return Ok(Some((index, *slice))),
            ProcessOutput::Report(Report::Step(record)) => self.record = Some(*record),
            ProcessOutput::Report(Report::Done) => self.is_done = true,
            ProcessOutput::Report(Report::Failed(why)) => bail!("{} of the generator: {why}", self.name),
            // One that was killed may have died in the middle of a line.
            ProcessOutput::Broken(error) => {
                let gone = self.last_words();
                bail!("{} sent an unknown message: {error}; {gone:#}", self.name)
            }
            ProcessOutput::End if self.is_done => {}
            ProcessOutput::End => return Err(self.last_words()),
        }
        Ok(None)
    }

    /// Why it has gone; it tells nothing any more.
    fn last_words(&mut self) -> anyhow::Error {
        match self.process.wait(GRACE) {
            Ok(status) => anyhow!("{} of the generator ended with {status}; {}", self.name, self.process.tail()),
            Err(error) => error,
        }
    }
}

/// Hands on what a process tells, until its end.
fn listen(index: usize, output: ChildStdout, sender: &Sender<(usize, ProcessOutput)>) {
    let mut output = BufReader::new(output);
    loop {
        let (output, is_last) = match protocol::read(&mut output) {
            Ok(Some(report)) => (ProcessOutput::Report(report), false),
            Ok(None) => (ProcessOutput::End, true),
            Err(error) => (ProcessOutput::Broken(error), true),
        };
        // A conductor that is gone ends the process too.
        if sender.send((index, output)).is_err() || is_last {
            return;
        }
    }
}
