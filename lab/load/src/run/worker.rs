//! One generator core: connects, then does what the conductor orders and reports.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir_base::Time;
use weir_engine::mailbox::Inbox;
use weir_engine::settings::Address;
use weir_engine::{sleep, spawn};

use super::RunError;
use super::connection::{self, CONNECT_TIMEOUT, Line, Refusal};
use super::dispatch::{self, Times};
use super::generator::{Generator, Usage};
use super::second::Slice;
use super::tally::Tally;
use crate::arrivals::Schedule;
use crate::outcome::WindowResult;
use crate::protocols::Seat;
use crate::requests::{REQUESTS_MAX, Requests};
use crate::scenario::{Mode, Phase, Scenario};
use crate::shard::Shard;

/// Requests in the plan of a closed loop, whose number is not known in advance. Default 262,144.
const CLOSED_PLAN: u64 = REQUESTS_MAX as u64 / 4;

/// The next order of the conductor.
pub(super) enum Order {
    /// Write the keys of the shard.
    Preload,
    /// Wait until all connections stand, up to the connect timeout.
    Gather,
    /// Run phase `index`; its schedule begins at `begins`.
    Phase {
        index: usize,
        begins: Time,
    },
    End,
}

/// A message of a worker.
pub(super) enum Report {
    /// The last order was carried out; before the first one: all connections stand.
    Done,
    /// So many connections do not stand.
    Gathered(u32),
    /// Second `index` of the phase is over.
    Slice(u32, Box<Slice>),
    /// The phase is over.
    Ended(Box<ShardStep>),
    /// Nothing more will come.
    Failed(RunError),
    /// The worker has ended; before its end was ordered, because it panicked.
    Gone,
}

/// Measurements of one shard in one phase.
pub(super) struct ShardStep {
    pub(super) outcome: WindowResult,
    /// Used within the window.
    pub(super) used: Usage,
    pub(super) connections_lost: u32,
}

/// The reporting end, which says when it is dropped.
pub(super) struct Reporter(pub(super) mpsc::Sender<Report>);

impl Reporter {
    /// A conductor that is gone listens no more.
    fn send(&self, report: Report) {
        let _ = self.0.send(report);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.send(Report::Gone);
    }
}

/// The parts of a worker.
pub(super) struct Job {
    pub(super) scenario: Arc<Scenario>,
    pub(super) shard: Shard,
    pub(super) target: Address,
}

impl Job {
    /// Requests are planned before anything is connected, so that no connection waits for it.
    fn plan(&self) -> Requests {
        let copies = self.scenario.copies();
        let count = |phase: &Phase| match phase.rate {
            Some(rate) => {
                rate.per_copies(copies).mean_count(phase.warmup + phase.duration) / f64::from(self.shard.of())
            }
            None => CLOSED_PLAN as f64,
        };
        let most = self.scenario.phases.iter().map(count).fold(1.0, f64::max);
        Requests::build(&self.scenario, self.shard, most.ceil() as u64)
    }

    /// Connections of the shard, the publisher's among them where there are channels.
    fn links(&self) -> usize {
        self.shard.part(self.scenario.connections) as usize + usize::from(self.scenario.channels > 0)
    }
}

/// The main task of a worker.
pub(super) async fn serve(job: Job, inbox: Inbox<Order>, reporter: Reporter) {
    let reporter = Rc::new(reporter);
    let requests = job.plan();
    let links = job.links();
    // With a connection for each request, one shows that the target can be reached.
    let count = if job.scenario.churn { 1 } else { links };
    let mut lines = match connection::connect_all(&job.target, &job.scenario, job.shard, count).await {
        Ok(lines) => lines,
        Err(refusal) => {
            let target = job.target.to_string();
            return reporter.send(Report::Failed(match refusal {
                Refusal::Connect(error) => RunError::Unreachable { target, error },
                Refusal::Protocol(why) => {
                    RunError::Protocol { target, protocol: job.scenario.protocol.to_string(), why }
                }
            }));
        }
    };
    let generator = Generator::new(job.scenario.clone(), job.shard, job.target.clone(), requests, links);
    let generator = Rc::new(generator);
    reporter.send(Report::Done);
    loop {
        for order in inbox.receive().await {
            match order {
                Order::Preload => match preload(&job, &mut lines).await {
                    Ok(()) => reporter.send(Report::Done),
                    Err(reply) => {
                        let target = job.target.to_string();
                        return reporter.send(Report::Failed(RunError::Preload { target, reply }));
                    }
                },
                Order::Gather => {
                    if job.scenario.churn {
                        lines.clear();
                    }
                    // The first time; afterwards the connections keep themselves.
                    for (at, line) in lines.drain(..).enumerate() {
                        spawn(connection::keep(generator.clone(), at, line)).detach();
                    }
                    reporter.send(Report::Gathered(gather(&generator).await));
                }
                Order::Phase { index, begins } => {
                    let step = run_phase(&generator, &reporter, index, begins).await;
                    if let Err(why) = audit(&job).await {
                        let target = job.target.to_string();
                        return reporter.send(Report::Failed(RunError::Audit { target, why }));
                    }
                    reporter.send(Report::Ended(Box::new(step)));
                }
                Order::End => return,
            }
        }
    }
}

async fn preload(job: &Job, lines: &mut [Line]) -> Result<(), String> {
    let preload = job.scenario.protocol.preload(&job.scenario, job.shard);
    match (preload, lines.first_mut()) {
        (Some(mut preload), Some(line)) => preload.write(&mut line.stream).await,
        _ => Ok(()),
    }
}

/// The first shard looks at what all of them have left behind.
async fn audit(job: &Job) -> Result<(), String> {
    let audit = job.scenario.protocol.audit(&job.scenario);
    let Some(audit) = audit.filter(|_| job.shard.index() == 0 && job.scenario.integrity) else { return Ok(()) };
    let seat = Seat { shard: job.shard, at: 0 };
    let mut line = match connection::connect(&job.target, &job.scenario, seat).await {
        Ok(line) => line,
        Err(Refusal::Connect(error)) => return Err(error.to_string()),
        Err(Refusal::Protocol(why)) => return Err(why),
    };
    audit(&mut line.stream).await?;
    line.stream.output.append(line.wire.farewell());
    line.stream.close(connection::CONNECT_TIMEOUT).await;
    Ok(())
}

async fn gather(generator: &Generator) -> u32 {
    let limit = Time::now().saturating_add(CONNECT_TIMEOUT);
    while generator.missing() > 0 && Time::now() < limit {
        generator.bell.wait(limit).await;
    }
    generator.missing()
}

async fn run_phase(generator: &Rc<Generator>, reporter: &Rc<Reporter>, index: usize, begins: Time) -> ShardStep {
    let (scenario, shard) = (generator.scenario.clone(), generator.shard);
    let phase = &scenario.phases[index];
    let measures = begins.saturating_add(phase.warmup);
    let ends = measures.saturating_add(phase.duration);
    let times = Times { begins, measures, ends, drained: ends.saturating_add(scenario.late_limit) };
    generator.begin(Tally::new(times.measures.as_nanos()..times.ends.as_nanos(), scenario.late_limit));
    let ticking = spawn(tick(generator.clone(), reporter.clone(), begins));
    let sending = match (scenario.mode, phase.rate) {
        (Mode::Open(arrival), Some(rate)) => {
            let length = phase.warmup + phase.duration;
            let rate = rate.per_copies(scenario.copies());
            let schedule = Schedule::new(arrival, rate, scenario.seed, index as u64, shard, length);
            spawn(dispatch::open(generator.clone(), schedule, times))
        }
        _ => spawn(dispatch::closed(generator.clone(), times)),
    };
    sleep_until(times.measures).await;
    let before = generator.usage();
    sleep_until(times.ends).await;
    let after = generator.usage();
    if sending.await.is_err() {
        // Its message is on standard error; the conductor learns it from the report that is dropped.
        panic!("the dispatcher of shard {} failed", shard.index());
    }
    drop(ticking);
    // Requests between the phases belong to no phase.
    let tally = generator.tally.replace(Tally::new(0..0, scenario.late_limit));
    let used = Usage {
        cpu_nanos: after.cpu_nanos - before.cpu_nanos,
        tx_bytes: after.tx_bytes - before.tx_bytes,
        rx_bytes: after.rx_bytes - before.rx_bytes,
    };
    ShardStep { outcome: tally.outcome, used, connections_lost: tally.connections_lost }
}

async fn tick(generator: Rc<Generator>, reporter: Rc<Reporter>, begins: Time) {
    for second in 1.. {
        sleep_until(begins.saturating_add(Duration::from_secs(u64::from(second)))).await;
        let slice = generator.tally.borrow_mut().take_slice();
        reporter.send(Report::Slice(second, Box::new(slice)));
    }
}

async fn sleep_until(time: Time) {
    sleep(time.since(Time::now())).await;
}
