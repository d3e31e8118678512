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
            run(&waiting, &shared, settings.coalesce, main);
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
    /// The worker panicked.
    pub fn join(self) -> io::Result<()> {
        self.thread.join().map_err(|_| io::Error::other(format!("worker {} panicked", self.id)))
    }
}

/// Time for tasks in one turn. Tasks still ready then go on after a poll of the sockets and the deadlines.
const TURN_TIME_MAX: Duration = Duration::from_micros(500);
/// Clients that must wait for replies before it pays to wait for more of them.
const COALESCE_CLIENTS_MIN: u32 = 10;
/// Pause for each of them. Each costs the machine several microseconds of work anyway.
const COALESCE_PER_CLIENT: Duration = Duration::from_micros(3);
/// The share of the time to a reply, one part in so many, that a pause may take instead: a server that needs a millisecond for each reply
/// has enough to do meanwhile.
const COALESCE_REPLY_SHARE: u32 = 8;
/// Longest reply that counts: the default of the longest pause is an eighth of it. A few slow statements do not delay the quick ones.
const REPLY_TIME_MAX: Duration = Duration::from_micros(3_200);
/// The weight of one reply, one part in so many, in the time to a reply of late.
const REPLY_TIME_WEIGHT: u32 = 16;
/// A turn that began longer than this after the one before says that the worker is not busy.
const COALESCE_GAP: Duration = Duration::from_millis(1);
/// The share of the clients of late, one in so many, that each turn forgets.
const COALESCE_DECAY: u32 = 8;

thread_local! {
    static WAITING_CLIENTS: Cell<u32> = const { Cell::new(0) };
    /// How long upstreams took of late, in nanoseconds.
    static REPLY_TIME: Cell<u32> = const { Cell::new(0) };
    static DEADLINES: RefCell<Option<Deadlines>> = const { RefCell::new(None) };
}

/// A deadline on this worker's wheel, not set yet.
///
/// # Panics
/// Outside a worker thread.
pub fn deadline() -> Deadline {
    DEADLINES.with_borrow(|deadlines| deadlines.as_ref().expect("on a worker thread").deadline())
}

/// Notes that `change` more clients of this worker wait for a reply now: what the loop judges its load by.
pub fn note_waiting_clients(change: i32) {
    WAITING_CLIENTS.with(|waiting| waiting.set(waiting.get().saturating_add_signed(change)));
}

/// Notes that an upstream needed `time` for a reply. A worker of many clients whose upstreams are slow looks less often.
pub fn note_reply_time(time: Duration) {
    let nanos = time.min(REPLY_TIME_MAX).as_nanos() as u32;
    REPLY_TIME.with(|of_late| {
        let (before, part) = (of_late.get(), |nanos: u32| nanos / REPLY_TIME_WEIGHT);
        of_late.set(before - part(before) + part(nanos));
    });
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

/// The loop. One turn: read the clock once, run what is ready, then wait for the sockets and the driver.
fn run<F, M>(waiting: &Waiting, state: &WorkerState, coalesce: Duration, main: F)
where
    F: FnOnce() -> M,
    M: Future<Output = ()> + 'static,
{
    let is_done = Rc::new(Cell::new(false));
    let mut cpu_sampled = turn::refresh();
    let deadlines = Deadlines::new(cpu_sampled);
    DEADLINES.set(Some(deadlines.clone()));
    let mut coalesce = Coalesce::new(coalesce);
    let mut first_timer = FirstTimer::new();
    waiting.runtime.enter(|| {
        // Dropped before the runtime is left, which its tasks may use.
        let tasks = Tasks::start(waiting.wakes.clone());
        let done = is_done.clone();
        let main = main();
        let handle = spawn(async move {
            let _set = SetOnDrop(done);
            main.await;
        });
        loop {
            let now = turn::refresh();
            state.turned_at.store(now.as_nanos(), Ordering::Relaxed);
            state.turns.store(state.turns.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
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
                has_more = coalesce.wait(now, || waiting.look());
            }
            let timer = first_timer.due(&waiting.runtime, now);
            let due = deadlines.next_deadline().map_or(timer, |deadline| deadline.min(timer));
            waiting.wait(now, (!has_more).then_some(due), timer <= now);
            state.is_parked.store(false, Ordering::Relaxed);
        }
        drop(handle);
    });
}

/// Lets requests of many clients gather before a busy worker looks at them.
///
/// On a machine with cores to spare each request wakes the worker by itself, and its upstream write and its reply's read
/// serve only that request. While many clients wait anyway, a pause of tens of microseconds lets one write carry dozens of
/// requests; the server behind saves as much as the gateway. It never happens with few clients or between sparse requests.
///
/// Requests to slow upstreams, each of which has a connection of its own there, save nothing but the wakes. There a pause stands only in
/// place of a sleep: where events have come during the turn, as on a core that the worker shares, it would be one more sleep.
struct Coalesce {
    longest: Duration,
    last: Time,
    /// Clients that waited at the same time of late: right after a round of replies few do, and many are about to.
    clients: u32,
}

impl Coalesce {
    fn new(longest: Duration) -> Self {
        if !longest.is_zero() {
            net::set_timer_slack(Duration::from_nanos(1));
        }
        Self { longest, last: Time::ZERO, clients: 0 }
    }

    /// Pauses if that pays. Returns true instead if `look` has found events.
    fn wait(&mut self, turn: Time, look: impl FnOnce() -> bool) -> bool {
        let is_busy = turn.since(self.last) < COALESCE_GAP;
        self.last = turn;
        let of_late = if is_busy { self.clients - self.clients.div_ceil(COALESCE_DECAY) } else { 0 };
        self.clients = of_late.max(WAITING_CLIENTS.get());
        if is_busy && self.clients >= COALESCE_CLIENTS_MIN && !self.longest.is_zero() {
            let by_reply = Duration::from_nanos(u64::from(REPLY_TIME.get() / COALESCE_REPLY_SHARE));
            if !by_reply.is_zero() && look() {
                return true;
            }
            thread::sleep(self.longest.min(by_reply.max(COALESCE_PER_CLIENT * self.clients)));
        }
        false
    }
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
