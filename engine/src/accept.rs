//! The accept loop of one listening socket on one worker.

use std::{
    cell::Cell,
    io,
    os::fd::AsRawFd,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use socket2::Socket;
use weir_base::rng::Rng;

use crate::{
    net,
    socket::DataSocket,
    worker::{self, WorkerState},
};

/// Connections accepted per wake before other tasks get their turn.
const BURST_MAX: usize = 16;
/// First pause after the process ran out of a resource; doubles up to [`BACKOFF_MAX`], with jitter.
const BACKOFF_MIN: Duration = Duration::from_millis(5);
const BACKOFF_MAX: Duration = Duration::from_millis(100);

/// Turns of the loop in a row in which somebody else may be accepting; from then on this one looks again after
/// [`BUSY_PAUSE`]. To accept takes some microseconds, so it lasts mostly because the other one has lost its processor: this
/// worker may have the very one, and must not keep it busy with looking.
const BUSY_TURNS_MAX: u32 = 8;
const BUSY_PAUSE: Duration = Duration::from_micros(500);

/// The class of an accept error.
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
pub struct AcceptedConnection {
    /// The connected socket.
    pub socket: Socket,
    /// The peer's address as text; `unix:N` for a Unix socket.
    pub peer: String,
    /// The peer's IP address, if it has one.
    pub source: Option<std::net::IpAddr>,
}

impl AcceptedConnection {
    fn new(socket: Socket, address: &socket2::SockAddr) -> Self {
        let peer = net::peer_name(&socket, address);
        let source = address.as_socket().map(|address| address.ip());
        Self { socket, peer, source }
    }
}

/// Whether another process accepts from a listening socket as well, so that it must go on listening without us.
#[derive(Clone, Debug, Default)]
pub struct HandedOverFlag(Rc<Cell<bool>>);

impl HandedOverFlag {
    /// From now on it does.
    pub fn set(&self) {
        self.0.set(true);
    }
}

/// Ends listening when the accept loop ends. Closing the descriptor is not enough: while a copy of it is open, clients would connect
/// to a socket that no loop accepts from.
struct ListenGuard<'a>(&'a Socket, HandedOverFlag);

impl Drop for ListenGuard<'_> {
    fn drop(&mut self) {
        // A shutdown ends the socket itself, for all who have a descriptor of it.
        if !self.1.0.get() {
            let _ = self.0.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Accepts until the loop is dropped or the socket is unusable; then no client can connect any more, unless the socket was
/// `handed_over` before. `accept` takes the next connection, with [`accept_one`], or several, and returns how many; zero
/// while another caller is accepting. `fail` gets each error.
///
/// # Errors
/// The listening socket is unusable, or cannot be watched.
///
/// # Panics
/// Outside a worker thread.
pub async fn accept_loop(
    listener: &Socket,
    handed_over: HandedOverFlag,
    mut accept: impl FnMut() -> io::Result<usize>,
    mut fail: impl FnMut(AcceptError, &io::Error),
) -> io::Result<()> {
    let _listening = ListenGuard(listener, handed_over);
    let watched = DataSocket::new(listener.try_clone()?)?;
    let mut jitter = Rng::new(listener.as_raw_fd() as u64 ^ weir_base::time::Time::now().as_nanos());
    let (mut attempt, mut busy_turns) = (0, 0);
    let mut has_more = false;
    loop {
        if !has_more {
            watched.found_nothing();
            watched.readable().await;
        }
        has_more = true;
        let mut burst = 0;
        while burst < BURST_MAX {
            let accepted = accept();
            busy_turns = if matches!(accepted, Ok(0)) { busy_turns + 1 } else { 0 };
            match accepted {
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
                            crate::sleep(jitter.backoff(attempt, BACKOFF_MIN, BACKOFF_MAX)).await;
                            attempt += 1;
                            break;
                        }
                    }
                }
            }
        }
        if busy_turns > BUSY_TURNS_MAX {
            crate::sleep(BUSY_PAUSE).await;
        } else if has_more {
            worker::yield_now().await;
        }
    }
}

/// The connection that has waited longest.
///
/// # Errors
/// As `accept(2)`; `WouldBlock` if none waits.
pub fn accept_one(listener: &Socket) -> io::Result<AcceptedConnection> {
    let (socket, address) = net::accept_one(listener)?;
    Ok(AcceptedConnection::new(socket, &address))
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

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        sync::mpsc,
    };

    use super::*;
    use crate::{Worker, settings::RuntimeSettings};

    /// It spun for as long as the worker whose turn it was had no processor.
    #[test]
    fn a_worker_that_waits_for_its_turn_to_accept_does_not_spin() {
        const WAIT: Duration = Duration::from_millis(50);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (told, outcome) = mpsc::channel();
        let worker = Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), move || async move {
            let (listener, calls) = (Socket::from(listener), Cell::new(0_u32));
            let accept = || {
                calls.set(calls.get() + 1);
                Ok(0)
            };
            let accepted = accept_loop(&listener, HandedOverFlag::default(), accept, |_, _| {});
            let is_over = crate::timeout(WAIT, accepted).await.is_ok();
            told.send((is_over, calls.get())).expect("the test waits");
        });
        let (is_over, calls) = outcome.recv_timeout(Duration::from_secs(10)).expect("an outcome");
        worker.expect("started").join().expect("no panic");
        let most = BUSY_TURNS_MAX + (WAIT.as_micros() / BUSY_PAUSE.as_micros()) as u32 + 2;
        assert!(!is_over && calls > BUSY_TURNS_MAX && calls <= most, "{calls} calls, {most} at most");
    }
}
