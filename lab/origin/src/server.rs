//! Common parts of the origins of all protocols: worker threads, each with a listening socket, and their counters.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    thread,
    time::Duration,
};

use socket2::Socket;
use weir_engine::{
    JoinHandle, Mailbox, Worker,
    accept::{HandedOverFlag, accept_loop, accept_one},
    mailbox::Inbox,
    net, occupant,
    settings::{Address, RuntimeSettings},
    sleep, spawn,
};

/// Pending connections of one listening socket: a wave of clients, not a queue to live in.
const BACKLOG: u32 = 4_096;

/// How often processor time is read.
const HOUSEKEEPING: Duration = Duration::from_millis(100);

/// A running origin. Dropped, it stops.
pub struct Origin {
    addresses: Vec<SocketAddr>,
    socket_path: Option<PathBuf>,
    workers: Vec<Running>,
}

struct Running {
    worker: Worker,
    stop: Mailbox<()>,
    stats: Arc<WorkerStats>,
}

/// The counts of an origin so far, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Open connections.
    pub connections: u64,
    /// Connections since the start.
    pub accepted: u64,
    /// Requests since the start, refused ones too.
    pub requests: u64,
    /// Processor time of the worker threads, at most 100 ms old.
    pub cpu: Duration,
}

/// Counters of one worker: written by it with plain stores, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct WorkerStats {
    /// Open connections.
    pub connections: AtomicU64,
    /// Connections since the start.
    pub accepted: AtomicU64,
    /// Requests read, refused ones too.
    pub requests: AtomicU64,
    /// Processor time of the thread in nanoseconds, as of the last housekeeping.
    pub cpu_nanos: AtomicU64,
    /// The worker ended on its own: it could not accept any more.
    pub has_failed: AtomicBool,
}

/// Adds to a counter that one thread writes.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The parts of a serving worker.
pub(crate) struct Post {
    /// Number of the worker, from 0.
    pub id: usize,
    /// Socket of this worker alone, or shared with others if it is a path.
    pub listener: Socket,
    /// The word to end.
    pub inbox: Inbox<()>,
    /// To be counted in.
    pub stats: Arc<WorkerStats>,
}

/// How many workers, and where.
pub(crate) struct Places<'a> {
    pub bind: &'a Address,
    pub workers: usize,
    /// See the settings of an origin.
    pub cpus: &'a [usize],
    pub runtime: &'a RuntimeSettings,
}

/// Binds, and starts workers that do what `make` gives for their post. When it returns, clients can connect.
pub(crate) fn start<M, F>(places: &Places<'_>, make: impl Fn(Post) -> M) -> io::Result<Origin>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let listeners = bind(places.bind, places.workers)?;
    let mut origin = Origin {
        addresses: listeners.first().and_then(|socket| socket.local_addr().ok()?.as_socket()).into_iter().collect(),
        socket_path: if let Address::Unix(path) = places.bind { Some(path.clone()) } else { None },
        workers: Vec::new(),
    };
    for (id, listener) in listeners.into_iter().enumerate() {
        let cpu = places.cpus.get(id % places.cpus.len().max(1)).copied();
        let (stop, inbox) = weir_engine::mailbox();
        let stats = Arc::new(WorkerStats::default());
        let run = make(Post { id, listener, inbox, stats: stats.clone() });
        let worker = Worker::start(id, cpu, places.runtime, Arc::default(), run)?;
        origin.workers.push(Running { worker, stop, stats });
    }
    Ok(origin)
}

/// One listening socket per worker, with the address in the text of an error.
fn bind(address: &Address, workers: usize) -> io::Result<Vec<Socket>> {
    bind_all(address, workers).map_err(|error| {
        let is_bare = error.kind() == io::ErrorKind::AddrInUse && error.raw_os_error().is_some();
        let error = if is_bare { occupant::in_use(address) } else { error };
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

/// Those of a port share it (`SO_REUSEPORT`) with each other and with no other process; those of a path share one queue.
fn bind_all(address: &Address, workers: usize) -> io::Result<Vec<Socket>> {
    if !net::wait_for_sole_use(address)? {
        return Err(occupant::in_use(address));
    }
    let first = net::bind(address)?;
    let mut listeners = vec![first];
    for _ in 1..workers {
        let next = match listeners[0].local_addr()?.as_socket() {
            Some(address) => net::bind(&Address::Socket(address))?,
            None => listeners[0].try_clone()?,
        };
        listeners.push(next);
    }
    if !matches!(address, Address::Unix(_)) {
        net::listen_alone(&listeners[0], BACKLOG)?;
    }
    listeners.iter().try_for_each(|listener| net::listen(listener, BACKLOG))?;
    Ok(listeners)
}

impl Origin {
    /// Where it listens, with the port that was taken. Empty for a Unix socket.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// The counters now.
    pub fn stats(&self) -> OriginStats {
        let mut sum = OriginStats::default();
        for Running { stats, .. } in &self.workers {
            sum.connections += stats.connections.load(Ordering::Relaxed);
            sum.accepted += stats.accepted.load(Ordering::Relaxed);
            sum.requests += stats.requests.load(Ordering::Relaxed);
            sum.cpu += Duration::from_nanos(stats.cpu_nanos.load(Ordering::Relaxed));
        }
        sum
    }

    /// Ends the workers; connections are closed without ceremony. A Unix socket's path is removed.
    ///
    /// # Errors
    /// A worker panicked, or had ended before because its listening socket failed.
    pub fn stop(mut self) -> io::Result<()> {
        self.halt()
    }

    fn halt(&mut self) -> io::Result<()> {
        for running in &self.workers {
            running.stop.send(());
        }
        let mut outcome = Ok(());
        for running in self.workers.drain(..) {
            outcome = outcome.and(running.worker.join());
            if running.stats.has_failed.load(Ordering::Relaxed) {
                outcome = outcome.and(Err(io::Error::other("the listening socket of a worker failed")));
            }
        }
        if let Some(path) = self.socket_path.take() {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
        outcome
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // No thread is left that could report a panic of a worker; its message is on standard error.
        let _ = match thread::panicking() {
            // compio-executor 0.1.4 aborts the process when a thread that unwinds wakes a task of another thread.
            true => thread::scope(|scope| scope.spawn(|| self.halt()).join().unwrap_or(Ok(()))),
            false => self.halt(),
        };
    }
}

/// Reads the processor time of this worker again and again, for as long as the task is kept.
pub(crate) fn count_cpu(stats: Arc<WorkerStats>) -> JoinHandle<()> {
    spawn(async move {
        loop {
            stats.cpu_nanos.store(net::thread_cpu_nanos(), Ordering::Relaxed);
            sleep(HOUSEKEEPING).await;
        }
    })
}

/// Accepts until it gets the order to stop.
pub(crate) async fn accept(listener: &Socket, inbox: Inbox<()>, stats: &WorkerStats, admit: impl FnMut(Socket)) {
    let mut admit = admit;
    let take = || accept_one(listener).map(|accepted| admit(accepted.socket)).map(|()| 1);
    // A connection that failed before it was accepted never reached us; the client sees it.
    let mut accepting = pin!(accept_loop(listener, HandedOverFlag::default(), take, |_, _| {}));
    let mut stopping = pin!(inbox.receive());
    let failed = poll_fn(|context| match stopping.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => accepting.as_mut().poll(context).map(|outcome| outcome.is_err()),
    })
    .await;
    stats.has_failed.store(failed, Ordering::Relaxed);
}

/// Counts a connection for as long as it is open.
pub(crate) struct Open(Arc<WorkerStats>);

impl Open {
    /// `None`: the limit is reached.
    pub fn new(stats: &Arc<WorkerStats>, connections_max: usize) -> Option<Self> {
        let open = stats.connections.load(Ordering::Relaxed);
        if open >= connections_max as u64 {
            return None;
        }
        add(&stats.connections, 1);
        Some(Self(stats.clone()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        add(&self.0.connections, u64::MAX);
    }
}
