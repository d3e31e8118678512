//! A worker: one pinned thread, one runtime, one loop.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    io,
    os::fd::AsRawFd,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use compio::runtime::Runtime;
use weir_base::time::{Time, turn};

use crate::{
    alarm::Alarm,
    chunk::map_large_buffers,
    coalesce::Coalesce,
    driver,
    driver::Driver,
    flush, net,
    settings::RuntimeSettings,
    socket::Sockets,
    tasks::{Tasks, Wakes, spawn},
    timers::FirstTimer,
    wheel::{Deadline, Deadlines},
};

/// How often a worker publishes its processor time.
const CPU_SAMPLE: Duration = Duration::from_millis(250);

/// State of a worker that other threads may read. The worker writes it with plain stores, the control thread reads it.
#[derive(Debug, Default)]
pub struct WorkerState {
    /// Loop turns so far.
    pub turns: AtomicU64,
    /// [`weir_base::time::Time`] of the last turn's begin, in nanoseconds.
    pub turned_at: AtomicU64,
    /// True while the worker sleeps in the kernel.
    pub is_parked: AtomicBool,
    /// Processor time of the thread in nanoseconds, at most 250 ms old while it runs.
    pub cpu_nanos: AtomicU64,
    /// Connections that this worker owns or has been promised; the balancer of new ones.
    pub connections: AtomicUsize,
    driver: AtomicU8,
}

impl WorkerState {
    /// The driver this worker runs on.
    pub fn driver(&self) -> Driver {
        match self.driver.load(Ordering::Relaxed) {
            0 => Driver::IoUring,
            1 => Driver::IoUringReduced,
            _ => Driver::Polling,
        }
    }

    /// How long the current turn has run at `now`; zero while parked. A value of seconds names a stalled worker.
    pub fn turn_age(&self, now: Time) -> Duration {
        if self.is_parked.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let begun = self.turned_at.load(Ordering::Relaxed);
        Duration::from_nanos(now.as_nanos().saturating_sub(begun))
    }
}

/// A running worker thread.
pub struct Worker {
    /// Position among the workers, from 0.
    pub id: usize,
    /// Its shared state.
    pub state: Arc<WorkerState>,
    thread: thread::JoinHandle<()>,
}

impl Worker {
    /// Starts worker `id` pinned to `cpu` and waits until its runtime stands. `main` runs on it, publishing in `state`; the worker ends when
    /// that future does.
    ///
    /// # Errors
    /// The runtime could not be built: see `driver::build`.
    pub fn start<F, M>(
        id: usize,
        cpu: Option<usize>,
        settings: &RuntimeSettings,
        state: Arc<WorkerState>,
        main: F,
    ) -> io::Result<Worker>
    where
        F: FnOnce() -> M + Send + 'static,
        M: Future<Output = ()> + 'static,
    {
        map_large_buffers();
        let shared = state.clone();
        let settings = settings.clone();
        let (started, outcome) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("worker-{id}")).spawn(move || {
            let (runtime, driver) = match driver::build(&settings, cpu) {
                Ok(built) => built,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            shared.driver.store(driver as u8, Ordering::Relaxed);
            let waiting = match Waiting::new(runtime) {
                Ok(waiting) => waiting,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            let has_ended = run(&waiting, &shared, settings.latency_budget, main);
            // Tasks outlive each other's panics, and this one is the worker's own: `join` reports it.
            assert!(has_ended, "the main task of worker {id} panicked");
        })?;
        match outcome.recv() {
            Ok(Ok(())) => Ok(Worker { id, state, thread }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(io::Error::other("the worker thread died at start")),
        }
    }

    /// The thread has ended, so [`Worker::join`] does not block.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the thread.
    ///
    /// # Errors
    /// The worker or its `main` panicked. A panic of another task ends that task alone.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().map_err(|_| io::Error::other(format!("worker {} panicked", self.id)))
    }
}

/// Time for tasks in one turn. Tasks still ready then go on after a poll of the sockets and the deadlines.
const TURN_TIME_MAX: Duration = Duration::from_micros(500);

thread_local! {
    static DEADLINES: RefCell<Option<Deadlines>> = const { RefCell::new(None) };
}

/// A deadline on this worker's wheel, not set yet.
///
/// # Panics
/// Outside a worker thread.
pub fn deadline() -> Deadline {
    DEADLINES.with_borrow(|deadlines| deadlines.as_ref().expect("on a worker thread").deadline())
}

/// Lets the other ready tasks run first.
pub async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// The loop. One turn: read the clock once, run what is ready, then wait for the sockets and the driver. Returns whether `main` came to its end:
/// otherwise it has panicked.
fn run<F, M>(waiting: &Waiting, state: &WorkerState, latency_budget: Duration, main: F) -> bool
where
    F: FnOnce() -> M,
    M: Future<Output = ()> + 'static,
{
    let (is_done, has_ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let mut cpu_sampled = turn::refresh();
    let deadlines = Deadlines::new(cpu_sampled);
    DEADLINES.set(Some(deadlines.clone()));
    let mut coalesce = Coalesce::new(latency_budget);
    // A pause lasts as long as it says.
    net::set_timer_slack(Duration::from_nanos(1));
    let mut first_timer = FirstTimer::new();
    waiting.runtime.enter(|| {
        // Dropped before the runtime is left, which its tasks may use.
        let tasks = Tasks::start(waiting.wakes.clone());
        let (done, ended) = (is_done.clone(), has_ended.clone());
        let main = main();
        let handle = spawn(async move {
            let _set = SetOnDrop(done);
            main.await;
            ended.set(true);
        });
        loop {
            let now = turn::refresh();
            state.turned_at.store(now.as_nanos(), Ordering::Relaxed);
            state.turns.store(state.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            coalesce.note(now);
            deadlines.expire(now);
            let mut has_more = run_tasks(&tasks, now);
            if is_done.get() {
                break;
            }
            if now.since(cpu_sampled) >= CPU_SAMPLE {
                cpu_sampled = now;
                state.cpu_nanos.store(net::thread_cpu_nanos(), Ordering::Relaxed);
            }
            state.is_parked.store(true, Ordering::Relaxed);
            if !has_more {
                has_more = coalesce.wait(|| waiting.look());
            }
            let timer = first_timer.due(&waiting.runtime, now);
            let due = deadlines.next_deadline().map_or(timer, |deadline| deadline.min(timer));
            waiting.wait(now, (!has_more).then_some(due), timer <= now);
            state.is_parked.store(false, Ordering::Relaxed);
        }
        drop(handle);
    });
    has_ended.get()
}

/// Runs what is ready, and what that makes ready, and sends what it appended. Returns whether there is still more.
fn run_tasks(tasks: &Tasks, begun: Time) -> bool {
    let is_over = || Time::now().since(begun) > TURN_TIME_MAX;
    loop {
        while tasks.run() && !is_over() {}
        // That bytes have left may wake tasks, and these may append more.
        flush::run();
        if !tasks.has_ready() && !flush::is_due() {
            return false;
        }
        if is_over() {
            return true;
        }
    }
}

/// The end of a turn: events of the sockets, and completions of the runtime's driver.
struct Waiting {
    runtime: Runtime,
    sockets: Rc<Sockets>,
    wakes: Arc<Wakes>,
    alarm: Alarm,
}

impl Waiting {
    /// # Errors
    /// No descriptors left.
    fn new(runtime: Runtime) -> io::Result<Self> {
        let (wakes, alarm) = (Wakes::new()?, Alarm::new()?);
        let sockets = Sockets::start(runtime.as_raw_fd(), wakes.as_raw_fd(), alarm.as_raw_fd())?;
        Ok(Self { runtime, sockets, wakes, alarm })
    }

    /// Waits up to `sleeps_until`, or not at all, then wakes the tasks that waited for these events. `turn` is the begin of the turn.
    ///
    /// The worker sleeps at the sockets, so that a request costs no call but this one, its receive and its send. The driver, which has
    /// timers and connects, is polled when it has something. A poll before the sleep may wake tasks, so there is no sleep after it.
    fn wait(&self, turn: Time, sleeps_until: Option<Time>, is_timer_due: bool) {
        let mut sleeps_until = sleeps_until;
        let (has_to_be_flushed, is_ring) = (driver::has_to_be_flushed(), self.runtime.driver_type().is_iouring());
        // Polling keeps a cancelled operation, and its socket, until it is polled.
        if is_timer_due || (has_to_be_flushed && !is_ring) {
            self.poll_driver();
            driver::flushed(has_to_be_flushed && is_ring);
            sleeps_until = None;
        } else if has_to_be_flushed {
            let is_refused = self.runtime.flush();
            driver::flushed(is_refused);
            if is_refused {
                sleeps_until = None;
            }
        }
        if let Some(due) = sleeps_until {
            self.alarm.set(due, turn);
        }
        let sleeps = sleeps_until.is_some() && self.wakes.begin_sleep();
        let found = self.sockets.wait(sleeps);
        self.wakes.end_sleep();
        if found.has_completions {
            self.poll_driver();
        }
    }

    /// Wakes the tasks that waited for events that are there. Returns whether there were any.
    fn look(&self) -> bool {
        let found = self.sockets.wait(false);
        if found.has_completions {
            self.poll_driver();
        }
        found.has_some
    }

    /// Wakes the tasks whose operations and timers are over.
    fn poll_driver(&self) {
        self.runtime.poll_with(Some(Duration::ZERO));
    }
}

/// Sets the flag also when the main future panics, so that the thread ends instead of waiting for ever.
struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}
