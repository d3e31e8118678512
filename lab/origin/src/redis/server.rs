//! Starting and stopping: sockets, worker threads, counters.

use std::{
    future::{Future, poll_fn},
    io,
    net::SocketAddr,
    path::PathBuf,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread,
    time::Duration,
};

use socket2::Socket;
use weir_base::Time;
use weir_engine::{
    Mailbox, Worker,
    accept::{Accepted, HandedOver, accept_loop},
    mailbox::Inbox,
    net,
    settings::Address,
    sleep, spawn,
};

use super::{
    connection,
    core::{Core, WorkerStats, add},
    settings::OriginSettings,
};

/// Pending connections of one listening socket: a wave of clients, not a queue to live in.
const BACKLOG: u32 = 4_096;

/// How often ended keys are swept and processor time is read.
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

/// What an origin did so far, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Open connections.
    pub connections: u64,
    /// Connections since the start.
    pub accepted: u64,
    /// Commands since the start, refused ones too.
    pub requests: u64,
    /// Processor time of the worker threads, at most 100 ms old.
    pub cpu: Duration,
}

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings that contradict each other; otherwise the address cannot be bound, or
/// a worker's runtime cannot be built.
pub fn start(settings: OriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let listeners = bind(&settings)?;
    let mut origin = Origin {
        addresses: listeners.first().and_then(|socket| socket.local_addr().ok()?.as_socket()).into_iter().collect(),
        socket_path: if let Address::Unix(path) = &settings.bind { Some(path.clone()) } else { None },
        workers: Vec::new(),
    };
    let client_ids = Arc::new(AtomicU64::new(0));
    let begun = Time::now();
    for (id, listener) in listeners.into_iter().enumerate() {
        let cpu = settings.cpus.get(id % settings.cpus.len().max(1)).copied();
        let (stop, inbox) = weir_engine::mailbox();
        let stats = Arc::new(WorkerStats::default());
        let (worker_settings, worker_stats, ids) = (settings.clone(), stats.clone(), client_ids.clone());
        let worker = Worker::start(id, cpu, &settings.runtime, Arc::default(), move || {
            run(Rc::new(Core::new(worker_settings, id, begun, worker_stats, ids)), listener, inbox)
        })?;
        origin.workers.push(Running { worker, stop, stats });
    }
    Ok(origin)
}

/// One listening socket per worker. Those of a port share it (`SO_REUSEPORT`); those of a path share one queue.
fn bind(settings: &OriginSettings) -> io::Result<Vec<Socket>> {
    let first = net::bind(&settings.bind)?;
    let mut listeners = vec![first];
    for _ in 1..settings.workers {
        let next = match listeners[0].local_addr()?.as_socket() {
            Some(address) => net::bind(&Address::Socket(address))?,
            None => listeners[0].try_clone()?,
        };
        listeners.push(next);
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
        // Nobody is left to be told about a worker that panicked; its message is on standard error.
        let _ = match thread::panicking() {
            // compio-executor 0.1.4 aborts the process when a thread that unwinds wakes a task of another thread.
            true => thread::scope(|scope| scope.spawn(|| self.halt()).join().unwrap_or(Ok(()))),
            false => self.halt(),
        };
    }
}

/// A worker's main task: accepts until it is told to stop.
async fn run(core: Rc<Core>, listener: Socket, inbox: Inbox<()>) {
    let _housekeeper = spawn(keep_house(core.clone()));
    let take = |accepted: Accepted| connection::admit(&core, accepted.socket);
    // A connection that failed before it was accepted never reached us; the client sees it.
    let mut accepting = pin!(accept_loop(&listener, HandedOver::default(), take, |_, _| {}));
    let mut stopping = pin!(inbox.receive());
    let failed = poll_fn(|context| match stopping.as_mut().poll(context) {
        Poll::Ready(_) => Poll::Ready(false),
        Poll::Pending => accepting.as_mut().poll(context).map(|outcome| outcome.is_err()),
    })
    .await;
    core.stats.has_failed.store(failed, Ordering::Relaxed);
}

async fn keep_house(core: Rc<Core>) {
    loop {
        let now = Time::now();
        core.store.borrow_mut().sweep(now);
        core.stats.cpu_nanos.store(net::thread_cpu_nanos(), Ordering::Relaxed);
        sleep(HOUSEKEEPING).await;
    }
}

/// Counts a connection for as long as it is open.
pub struct Open(Rc<Core>);

impl Open {
    /// `None`: the limit is reached.
    pub fn new(core: &Rc<Core>) -> Option<Self> {
        let open = core.stats.connections.load(Ordering::Relaxed);
        if open >= core.settings.connections_max as u64 {
            return None;
        }
        add(&core.stats.connections, 1);
        Some(Self(core.clone()))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        add(&self.0.stats.connections, u64::MAX);
    }
}
