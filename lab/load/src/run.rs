//! The run: shards on cores of their own, one phase after the other, a record for each.
//!
//! | file | concept |
//! |---|---|
//! | `worker` | one core: connects, preloads, runs phases as ordered |
//! | `generator` | its connections, free slots, and requests on their way |
//! | `connection`, `replies` | one connection: made, read, made again; whole replies out of chunks |
//! | `dispatch`, `bell` | when a request is sent: by the schedule (open) or by a reply (closed) |
//! | `tally` | what is counted: the window, and the running second |
//! | `step`, `host` | the record of a phase and its verdict; the machine |
//!
//! Latency never comes from the clock of the loop's turn: each stamp reads the clock. `sent` is the instant at which the
//! writer hands the bytes to the kernel, `completed` the one at which the last byte of the reply was parsed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir_base::Time;
use weir_engine::settings::{Address, RuntimeSettings};
use weir_engine::{Mailbox, Worker, mailbox};
use weir_knee::Trial;

use self::step::Run;
use self::tally::Slice;
use self::worker::{Job, Order, Report, Reporter};
use crate::record::StepRecord;
use crate::recorder::{Percentile, Tail};
use crate::scenario::{Phase, Scenario};
use crate::shard::Shard;

mod bell;
mod connection;
mod dispatch;
mod generator;
mod host;
mod replies;
mod step;
mod tally;
mod worker;

/// From the order to the begin of a schedule: time for every shard to get ready.
const START_DELAY: Duration = Duration::from_millis(20);

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Event {
    /// Connections stand; so many keys are being written.
    Preloading(u64),
    /// A phase is about to begin: it is measured from one instant to the other. Its schedule begins a little later than
    /// this is told, so that whoever watches other processes gets ready.
    Phase {
        /// Begin of the window.
        measures: Time,
        /// Its end.
        ends: Time,
    },
    /// A second of a phase is over.
    Second(Second),
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

/// One second of a phase over all shards, of whatever requests ended in it.
#[derive(Clone, Debug)]
pub struct Second {
    /// Name of the phase.
    pub phase: String,
    /// The part of the phase in which it ended.
    pub stage: Stage,
    /// Completed requests per second.
    pub completed: u64,
    /// Shed, failed and skipped.
    pub failed: u64,
    /// Median sojourn.
    pub p50: Percentile,
    /// Sojourn.
    pub p99: Percentile,
    /// Of the generator behind its schedule.
    pub lag_p99: Percentile,
    /// Until the window ends; zero while the step drains.
    pub left: Duration,
}

/// The parts of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Load that is not recorded.
    Warmup,
    /// The window that is measured.
    Window,
    /// Nothing new is wanted; what is late or under way ends.
    Drain,
}

/// Why there are no further records.
#[derive(Debug)]
pub enum RunError {
    /// A worker could not be started.
    Worker(io::Error),
    /// The target takes no connection. Nothing was sent.
    Unreachable {
        /// The target.
        target: String,
        /// Why.
        error: io::Error,
    },
    /// The keys could not be written. No load was made.
    Preload {
        /// The target.
        target: String,
        /// What it did instead.
        reply: String,
    },
    /// Connections were gone before a phase and did not come back. The phase did not begin.
    Connections {
        /// So many are wanted.
        wanted: u32,
        /// So many do not stand.
        missing: u32,
    },
    /// A worker panicked; its message is on standard error.
    Panicked,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(error) => write!(f, "cannot start a generator core: {error}; fewer `shards` need less"),
            Self::Unreachable { target, error } => write!(
                f,
                "cannot reach {target}: {error}; nothing was sent. Start the target, or mend the address, or raise the \
                 limit of open files (ulimit -n) if the scenario has many `connections`"
            ),
            Self::Preload { target, reply } => write!(
                f,
                "cannot write the keys to {target}: {reply}; no load was made. The target must be Redis without a \
                 password that takes SET; or write `preload = false` under [keys]"
            ),
            Self::Connections { wanted, missing } => write!(
                f,
                "connections: {missing} of {wanted} do not stand, so the phase was not begun. Check the connection limit \
                 of the target, or lower `connections`"
            ),
            Self::Panicked => {
                f.write_str("a generator core failed; this is a bug of the lab, its message stands above")
            }
        }
    }
}

impl std::error::Error for RunError {}

/// Runs all phases of `scenario` against `target`, and tells `events` of each second and each result. Blocks until the
/// last phase is over. Nobody needs to listen.
///
/// # Errors
/// See [`RunError`]. Results that were told before it are whole.
pub fn run(scenario: &Scenario, target: &Address, events: &mpsc::Sender<Event>) -> Result<(), RunError> {
    let scenario = Arc::new(scenario.clone());
    let crew = Crew::start(&scenario, target)?;
    // A listener that is gone changes nothing about the run.
    let tell = |event| drop(events.send(event));
    crew.until_done()?;
    if scenario.keys.preload {
        tell(Event::Preloading(scenario.keys.count));
        crew.order(|| Order::Preload);
        crew.until_done()?;
    }
    let run = Run::new(target.to_string());
    for (index, phase) in scenario.phases.iter().enumerate() {
        crew.gather(scenario.connections)?;
        let started = host::timestamp();
        let begins = Time::now().saturating_add(START_DELAY);
        let measures = begins.saturating_add(phase.warmup);
        tell(Event::Phase { measures, ends: measures.saturating_add(phase.duration) });
        crew.order(|| Order::Phase { index, begins });
        let parts = crew.until_ended(|second, slice| tell(Event::Second(summed(phase, second, slice))))?;
        let (record, trial) = run.record(&scenario, index, started, &parts);
        tell(Event::Step { phase: phase.name.clone(), record: Box::new(record), trial: Box::new(trial) });
    }
    Ok(())
}

fn summed(phase: &Phase, second: u32, slice: &Slice) -> Second {
    let ended = Duration::from_secs(u64::from(second));
    let length = phase.warmup + phase.duration;
    let stage = match ended {
        _ if ended <= phase.warmup => Stage::Warmup,
        _ if ended <= length => Stage::Window,
        _ => Stage::Drain,
    };
    Second {
        phase: phase.name.clone(),
        stage,
        completed: slice.completed,
        failed: slice.failed,
        p50: slice.sojourn.percentile(Tail::P50),
        p99: slice.sojourn.percentile(Tail::P99),
        lag_p99: slice.generator_lag.percentile(Tail::P99),
        left: length.saturating_sub(ended),
    }
}

/// The workers of all shards. Dropped, they end.
struct Crew {
    members: Vec<(Worker, Mailbox<Order>)>,
    reports: mpsc::Receiver<Report>,
}

impl Crew {
    fn start(scenario: &Arc<Scenario>, target: &Address) -> Result<Self, RunError> {
        let (reporter, reports) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), reports };
        for shard in Shard::all(scenario.shards) {
            let job = Job { scenario: scenario.clone(), shard, target: target.clone() };
            let (orders, inbox) = mailbox();
            let reporter = Reporter(reporter.clone());
            // Not pinned: which cores are the generator's is for whoever started it to say (taskset, cpuset). The pause
            // that gathers requests of waiting clients never happens, since a generator notes none of them.
            let id = shard.index() as usize;
            let main = move || worker::serve(job, inbox, reporter);
            let worker = Worker::start(id, None, &RuntimeSettings::default(), Arc::default(), main);
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

    /// Until every worker has ended the phase. `each` gets the seconds of which all shards have told.
    fn until_ended(&self, mut each: impl FnMut(u32, &Slice)) -> Result<Vec<worker::ShardStep>, RunError> {
        let mut parts = Vec::new();
        let mut seconds: BTreeMap<u32, (usize, Slice)> = BTreeMap::new();
        while parts.len() < self.members.len() {
            match self.next()? {
                Report::Ended(part) => parts.push(*part),
                Report::Slice(second, slice) => {
                    let (told, sum) = seconds.entry(second).or_default();
                    *told += 1;
                    sum.merge(&slice);
                    if *told == self.members.len() {
                        each(second, sum);
                        seconds.remove(&second);
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.order(|| Order::End);
        for (worker, _) in self.members.drain(..) {
            // A panic was told by its report.
            let _ = worker.join();
        }
    }
}
