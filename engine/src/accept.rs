//! The accept loop of one listening socket on one worker.

use std::{
    cell::Cell,
    io,
    os::fd::AsRawFd,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use compio::{driver::SharedFd, runtime::fd::PollFd};
use socket2::Socket;
use weir_base::rng::Rng;

use crate::{
    net,
    worker::{self, WorkerState},
};

/// Connections accepted per wake before other tasks get their turn.
const BURST_MAX: usize = 16;
/// First pause after the process ran out of a resource; doubles up to [`BACKOFF_MAX`], with jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// What an accept error means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// This one connection is gone (reset in the queue, a firewall's no): take the next.
    Connection,
    /// The process or the box is out of descriptors or memory: pause, then try again.
    Resource,
    /// The listening socket itself is unusable.
    Fatal,
}

impl AcceptError {
    /// The label value of the error counter.
    pub fn name(self) -> &'static str {
        match self {
            AcceptError::Connection => "connection",
            AcceptError::Resource => "resource",
            AcceptError::Fatal => "fatal",
        }
    }
}

/// Sorts an error of `accept(2)` into its class; the list of passing errors is the manual page's.
pub fn classify(error: &io::Error) -> AcceptError {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => AcceptError::Resource,
        Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP | libc::EFAULT) => AcceptError::Fatal,
        _ => AcceptError::Connection,
    }
}

/// A connection fresh from a listener, on its way to its worker.
pub struct Accepted {
    /// The connected socket.
    pub socket: Socket,
    /// The peer's address as text; `unix:N` for a Unix socket.
    pub peer: String,
    /// The peer's IP address, if it has one.
    pub source: Option<std::net::IpAddr>,
}

impl Accepted {
    fn new(socket: Socket, address: &socket2::SockAddr) -> Self {
        let peer = net::peer_name(&socket, address);
        let source = address.as_socket().map(|address| address.ip());
        Self { socket, peer, source }
    }
}

/// Whether another process accepts from a listening socket as well, so that it must go on listening without us.
#[derive(Clone, Debug, Default)]
pub struct HandedOver(Rc<Cell<bool>>);

impl HandedOver {
    /// From now on it does.
    pub fn set(&self) {
        self.0.set(true);
    }
}

/// Ends listening when the accept loop ends. Closing the descriptor is not enough: the driver may hold the socket until the
/// kernel has taken down its ring, and clients would connect to nobody.
struct Listening<'a>(&'a Socket, HandedOver);

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        // A shutdown ends the socket itself, for all who have a descriptor of it.
        if !self.1.0.get() {
            let _ = self.0.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Accepts until the loop is dropped or the socket is unusable; then nobody can connect any more, unless the socket was
/// `handed_over` before. `accept` takes the next connection, with [`accept_one`], or several, and returns how many; 0 asks to
/// be called again in the next turn. `fail` gets each error.
pub async fn accept_loop(
    listener: &Socket,
    handed_over: HandedOver,
    mut accept: impl FnMut() -> io::Result<usize>,
    mut fail: impl FnMut(AcceptError, &io::Error),
) -> io::Result<()> {
    let _listening = Listening(listener, handed_over);
    // SAFETY: the clone is an open descriptor that the shared handle owns; no registration is needed on Linux drivers.
    let shared = unsafe { SharedFd::new_unchecked(listener.try_clone()?) };
    let readiness = PollFd::from_shared_fd(shared)?;
    let mut jitter = Rng::new(listener.as_raw_fd() as u64 ^ weir_base::time::Time::now().as_nanos());
    let mut attempt = 0;
    let mut has_more = false;
    loop {
        if !has_more {
            readiness.accept_ready().await?;
        }
        has_more = true;
        let mut burst = 0;
        while burst < BURST_MAX {
            match accept() {
                Ok(0) => break,
                Ok(taken) => (attempt, burst) = (0, burst + taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    has_more = false;
                    break;
                }
                Err(error) => {
                    let class = classify(&error);
                    fail(class, &error);
                    match class {
                        AcceptError::Connection => burst += 1,
                        AcceptError::Fatal => return Err(error),
                        AcceptError::Resource => {
                            compio::time::sleep(jitter.backoff(attempt, BACKOFF_MIN, BACKOFF_MAX)).await;
                            attempt += 1;
                            break;
                        }
                    }
                }
            }
        }
        if has_more {
            worker::yield_now().await;
        }
    }
}

/// The connection that has waited longest.
///
/// # Errors
/// As `accept(2)`; `WouldBlock` if none waits.
pub fn accept_one(listener: &Socket) -> io::Result<Accepted> {
    let (socket, address) = net::accept_one(listener)?;
    Ok(Accepted::new(socket, &address))
}

/// Chooses the worker of each new connection: the one with the fewest.
pub struct Balancer {
    workers: Vec<Arc<WorkerState>>,
    /// Two workers that accept at the same instant must not both choose the same third one.
    turn: Mutex<()>,
}

impl Balancer {
    /// A balancer over all workers, in the order of their ids.
    pub fn new(workers: Vec<Arc<WorkerState>>) -> Self {
        Self { workers, turn: Mutex::new(()) }
    }

    /// The id of the least-loaded worker, which is charged with one connection; `own` wins a tie.
    /// The worker gives the charge back with [`WorkerState::connections`] when the connection ends.
    pub fn choose(&self, own: usize) -> usize {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let load = |id: usize| self.workers[id].connections.load(Ordering::Relaxed);
        let least = (0..self.workers.len()).min_by_key(|&id| (load(id), id != own)).unwrap_or(own);
        self.workers[least].connections.fetch_add(1, Ordering::Relaxed);
        least
    }
}
