//! The run: shards on cores of their own, one phase after the other, a record for each.
//!
//! | file | concept |
//! |---|---|
//! | `worker` | one core: connects, preloads, runs phases as ordered |
//! | `generator`, `queue` | its connections, free slots, and requests on their way |
//! | `fan_out` | requests whose replies come on other connections: publish and subscribe |
//! | `connection` | one connection: made, read, made again |
//! | `visit` | one request on a connection of its own |
//! | `dispatch`, `bell` | when a request is sent: by the schedule (open) or by a reply (closed) |
//! | `tally` | counts: of the window, and of the running second |
//! | `second` | seconds for the live view, added up over shards and processes |
//! | `barrier` | where the processes of one run wait for each other |
//! | `step`, `host`, `calendar` | the record of a phase; the machine; dates |
//! | `error` | why there are no further records |
//!
//! Latency never comes from the clock of the loop's turn: each stamp reads the clock. `sent` is the instant at which the
//! writer hands the bytes to the kernel, `completed` the one at which the last byte of the reply was parsed.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use rustix::process::setpriority_process;
use weir_base::Time;
use weir_engine::settings::{Address, RuntimeSettings};
use weir_engine::{Mailbox, Worker, mailbox};
use weir_knee::Trial;

use self::step::Run;
use self::worker::{Job, Order, Report, Reporter};
use crate::part::Part;
use crate::record::StepRecord;
use crate::scenario::{Phase, Scenario};

mod barrier;
mod bell;
mod calendar;
mod connection;
mod dispatch;
mod error;
mod fan_out;
mod generator;
mod host;
mod queue;
mod second;
mod step;
mod tally;
mod visit;
mod worker;

pub use barrier::{Barrier, ClockBarrier, SingleProcess, Start, unix_micros};
pub use calendar::instant;
pub use error::RunError;
pub use host::run_id;
pub use second::{Second, Seconds, Slice, Stage};

/// The longest that a process waits before a phase for connections that were lost to be made again.
pub const GATHER_MAX: Duration = connection::CONNECT_TIMEOUT;

/// Progress of a run.
#[derive(Debug)]
pub enum Event {
    /// Connections stand; so many keys are being written.
    Preloading(u64),
    /// A phase is about to begin: it is measured from one instant to the other. Its schedule begins a little later than
    /// this is reported, so that a watcher of other processes gets ready.
    Phase {
        /// Begin of the window.
        measures: Time,
        /// Its end.
        ends: Time,
    },
    /// A second of a phase is over.
    Second(Box<Second>),
    /// A phase is over.
    Step {
        /// Its name.
        phase: String,
        /// Its result.
        record: Box<StepRecord>,
        /// The same as bare figures, for the judge.
        trial: Box<Trial>,
    },
}

/// Runs all phases of `scenario` against `target`, and sends each second and each result to `events`. Blocks until the
/// last phase is over. The receiver may be dropped.
///
/// # Errors
/// See [`RunError`]. Results that were reported before it are complete.
pub fn run(scenario: &Scenario, target: &Address, events: &mpsc::Sender<Event>) -> Result<(), RunError> {
    run_part(scenario, target, Part::WHOLE, run_id(), &mut SingleProcess, events)
}

/// As [`run()`], but only the shards of `part`, together with the processes behind `barrier` that run the others. `run_id` is
/// the same for all of them. Events and records are those of the part.
///
/// # Errors
/// See [`RunError`].
pub fn run_part(
    scenario: &Scenario,
    target: &Address,
    part: Part,
    run_id: String,
    barrier: &mut dyn Barrier,
    events: &mpsc::Sender<Event>,
) -> Result<(), RunError> {
    part.check(scenario).map_err(RunError::Shards)?;
    if scenario.phases.iter().any(Phase::has_shape) {
        return Err(RunError::Shape);
    }
    let scenario = Arc::new(scenario.clone());
    let crew = WorkerThreads::start(&scenario, target, part)?;
    // A listener that is gone changes nothing about the run.
    let tell = |event| drop(events.send(event));
    crew.until_done()?;
    barrier.connected().map_err(RunError::Barrier)?;
    if scenario.keys.preload {
        let preloads = part.shards(scenario.shards).filter_map(|shard| scenario.protocol.preload(&scenario, shard));
        let keys = preloads.map(|preload| preload.left()).sum();
        tell(Event::Preloading(keys));
        crew.order(|| Order::Preload);
        crew.until_done()?;
    }
    let run = Run::new(run_id, target.to_string(), part);
    for (index, phase) in scenario.phases.iter().enumerate() {
        crew.gather(part.connections(&scenario))?;
        let start = barrier.ready(index).map_err(RunError::Barrier)?;
        let measures = start.at().saturating_add(phase.warmup);
        tell(Event::Phase { measures, ends: measures.saturating_add(phase.duration) });
        crew.order(|| Order::Phase { index, begins: start.at() });
        let shards =
            crew.until_ended(|second, slice| tell(Event::Second(Box::new(Second::new(phase, second, slice)))))?;
        let (record, trial) = run.record(&scenario, index, start, shards);
        tell(Event::Step { phase: phase.name.clone(), record: Box::new(record), trial: Box::new(trial) });
    }
    Ok(())
}

/// Niceness of the generator's threads, which may share their core with a server: the scheduler lets them run when they wake.
const GENERATOR_NICENESS: i32 = -15;

/// The workers of the shards of this process. Dropped, they end.
struct WorkerThreads {
    members: Vec<(Worker, Mailbox<Order>)>,
    reports: mpsc::Receiver<Report>,
}

impl WorkerThreads {
    fn start(scenario: &Arc<Scenario>, target: &Address, part: Part) -> Result<Self, RunError> {
        let (reporter, reports) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), reports };
        for shard in part.shards(scenario.shards) {
            let job = Job { scenario: scenario.clone(), shard, target: target.clone() };
            let (orders, inbox) = mailbox();
            let reporter = Reporter(reporter.clone());
            // Not pinned: the operator chooses the cores of the generator at its start (taskset, cpuset).
            let id = shard.index() as usize;
            let main = move || {
                // A generator that comes late measures itself. Without the right to it, the lag decides whether the run counts.
                let _ = setpriority_process(None, GENERATOR_NICENESS);
                worker::serve(job, inbox, reporter)
            };
            let worker = Worker::start(id, None, &RuntimeSettings::without_pauses(), Arc::default(), main);
            crew.members.push((worker.map_err(RunError::Worker)?, orders));
        }
        Ok(crew)
    }

    fn order(&self, order: impl Fn() -> Order) {
        self.members.iter().for_each(|(_, orders)| orders.send(order()));
    }

    /// The next report that is no bad news.
    fn next(&self) -> Result<Report, RunError> {
        match self.reports.recv() {
            Ok(Report::Failed(error)) => Err(error),
            Ok(Report::Gone) | Err(_) => Err(RunError::Panicked),
            Ok(report) => Ok(report),
        }
    }

    /// Until every worker has carried out its order.
    fn until_done(&self) -> Result<(), RunError> {
        let mut left = self.members.len();
        while left > 0 {
            left -= usize::from(matches!(self.next()?, Report::Done));
        }
        Ok(())
    }

    fn gather(&self, wanted: u32) -> Result<(), RunError> {
        self.order(|| Order::Gather);
        let (mut left, mut missing) = (self.members.len(), 0);
        while left > 0 {
            if let Report::Gathered(gone) = self.next()? {
                left -= 1;
                missing += gone;
            }
        }
        if missing > 0 { Err(RunError::Connections { wanted, missing }) } else { Ok(()) }
    }

    /// Until every worker has ended the phase. `each` gets the seconds that all shards have reported.
    fn until_ended(&self, mut each: impl FnMut(u32, Slice)) -> Result<Vec<worker::ShardStep>, RunError> {
        let mut parts = Vec::new();
        let mut seconds = Seconds::new(self.members.len());
        while parts.len() < self.members.len() {
            match self.next()? {
                Report::Ended(part) => parts.push(*part),
                Report::Slice(second, slice) => {
                    if let Some(sum) = seconds.add(second, &slice) {
                        each(second, sum);
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.order(|| Order::End);
        for (worker, _) in self.members.drain(..) {
            // The report has described the panic.
            let _ = worker.join();
        }
    }
}
