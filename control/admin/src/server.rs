//! The thread, the accept loop and the life of a connection.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::gateway::Gateway;
use crate::guard::AdminAccess;
use crate::limits::{ACCEPT_BACKOFF_MAX, ACCEPT_BACKOFF_MIN, HEAD_BYTES_MAX, HEADERS_MAX, STOP_GRACE};
use crate::routes;
use crate::seats::{OccupiedSeat, Seats};
use crate::settings::{AdminSettings, Deadlines, StartError};
use crate::stream::ClientStream;

/// A running admin server. Dropping it stops it.
#[derive(Debug)]
pub struct AdminServer {
    local: SocketAddr,
    access: AdminAccess,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Checks the settings, binds the address and starts the thread. The socket accepts when this returns.
    pub fn start(settings: AdminSettings, gateway: Arc<dyn Gateway>) -> Result<Self, StartError> {
        let listener = bind(&settings)?;
        Self::start_on(settings, listener, gateway)
    }

    /// As [`start`](Self::start), on a socket that listens already: see [`bind`].
    pub fn start_on(
        settings: AdminSettings,
        listener: StdListener,
        gateway: Arc<dyn Gateway>,
    ) -> Result<Self, StartError> {
        settings.check()?;
        let prepared = listener.set_nonblocking(true).and_then(|()| listener.local_addr());
        let local = prepared.map_err(|source| StartError::Bind { bind: settings.bind, source })?;
        // Built here so that a failure reaches the caller; run by the thread alone.
        let runtime = Builder::new_current_thread()
            .enable_all()
            // A reload may be requested while an upgrade waits, and is then refused; and a key be issued meanwhile.
            .max_blocking_threads(3)
            .thread_name("weir-control")
            .build()
            .map_err(StartError::Thread)?;
        let access = AdminAccess::new(&settings);
        let router = routes::router(access.clone(), gateway);
        let deadlines = settings.deadlines;
        let (stop, stopped) = watch::channel(false);
        let thread = thread::Builder::new()
            .name("weir-admin".to_owned())
            .spawn(move || run(runtime, listener, router, deadlines, stopped))
            .map_err(StartError::Thread)?;
        Ok(Self { local, access, stop, thread: Some(thread) })
    }

    /// The bound address; with port 0 in the settings, the port that was picked.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Handle for a reload that changes the token or the host names.
    pub fn access(&self) -> AdminAccess {
        self.access.clone()
    }

    /// Handle that stops this server once another process responds at its address.
    pub fn stopper(&self) -> AdminStopper {
        AdminStopper(self.stop.clone())
    }

    /// Stops accepting, lets exchanges under way finish for [`STOP_GRACE`] and ends the thread.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened; there is nothing left to end.
            let _panicked = thread.join();
        }
    }
}

/// Begins the end of an admin server from any thread, without waiting for it.
#[derive(Debug, Clone)]
pub struct AdminStopper(watch::Sender<bool>);

impl AdminStopper {
    /// No more connections are accepted, and those there end with the exchange under way.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// Checks the settings and binds the address; the kernel takes connections in from then on.
///
/// # Errors
/// All of [`StartError`] but the thread.
pub fn bind(settings: &AdminSettings) -> Result<StdListener, StartError> {
    settings.check()?;
    StdListener::bind(settings.bind).map_err(|source| StartError::Bind { bind: settings.bind, source })
}

fn run(runtime: Runtime, listener: StdListener, router: Router, deadlines: Deadlines, stopped: watch::Receiver<bool>) {
    LocalSet::new().block_on(&runtime, accept_loop(listener, router, deadlines, stopped));
    // A reload that is still reading its files does not hold up the end of the process.
    runtime.shutdown_timeout(STOP_GRACE);
}

async fn accept_loop(listener: StdListener, router: Router, deadlines: Deadlines, mut stopped: watch::Receiver<bool>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        // Only without a descriptor for the poller, which `enable_all` has made already.
        Err(error) => panic!("admin server: cannot register its listener: {error}"),
    };
    let seats = Rc::new(Seats::default());
    let mut backoff = ACCEPT_BACKOFF_MIN;
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            accepted = async { seats.vacancy().await; listener.accept().await } => accepted,
        };
        match accepted {
            Ok((socket, _peer)) => {
                backoff = ACCEPT_BACKOFF_MIN;
                spawn_local(serve(socket, seats.take(), router.clone(), deadlines, stopped.clone()));
            }
            Err(error) if is_the_peers(&error) => {}
            Err(_) => {
                sleep(backoff).await;
                backoff = next_backoff(backoff);
            }
        }
    }
    drop(listener);
    let _cut_short = timeout(STOP_GRACE, seats.all_free()).await;
}

/// True if `accept()` failed because this one connection broke; the next may be tried at once.
fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn next_backoff(backoff: Duration) -> Duration {
    (backoff * 2).min(ACCEPT_BACKOFF_MAX)
}

/// One connection, until the client goes, a deadline passes, its seat is needed or the server stops.
async fn serve(
    socket: TcpStream,
    occupied: OccupiedSeat,
    router: Router,
    deadlines: Deadlines,
    mut stopped: watch::Receiver<bool>,
) {
    // Failing to switch off Nagle costs milliseconds, not correctness.
    let _nodelay = socket.set_nodelay(true);
    let seat = Rc::clone(occupied.seat());
    let stream = ClientStream::new(socket, Rc::clone(&seat), deadlines.response);
    let routes = TowerToHyperService::new(router);
    let exchanges = Rc::clone(&seat);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let exchange = exchanges.begin_exchange();
        let response = routes.call(request);
        async move {
            let response = response.await;
            drop(exchange);
            response
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadlines.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut stopping = false;
    loop {
        tokio::select! {
            biased;
            // An error is the client's doing: gone, silent, or not HTTP. hyper has responded to all that it can.
            _ = connection.as_mut() => break,
            () = seat.evicted() => break,
            _ = stopped.wait_for(|stop| *stop), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_ceiling() {
        let mut backoff = ACCEPT_BACKOFF_MIN;
        for _ in 0..8 {
            backoff = next_backoff(backoff);
        }
        assert_eq!(backoff, ACCEPT_BACKOFF_MAX);
        assert_eq!(next_backoff(ACCEPT_BACKOFF_MIN), ACCEPT_BACKOFF_MIN * 2);
    }

    #[test]
    fn only_errors_of_one_connection_are_retried_at_once() {
        // 24 = EMFILE, 103 = ECONNABORTED on Linux.
        assert!(!is_the_peers(&io::Error::from_raw_os_error(24)));
        assert!(is_the_peers(&io::Error::from_raw_os_error(103)));
    }
}
