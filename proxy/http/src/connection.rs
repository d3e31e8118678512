//! One client connection: what it is, how it is told to end, and its end.

use std::{
    cell::{Cell, OnceCell, RefCell},
    net::SocketAddr,
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Waker},
};

use weir_base::{error::Culprit, limits, time::turn, violation::Violation};
use weir_engine::{Cutter, Deadline, Stream, tls::PeerIdentity};
use weir_listener::{ConnectionGuard, DRAIN_GAP, Drain, Listed, Roster};
use weir_telemetry::log::Peer;

use crate::{
    forward::{self, Forwarded},
    http1::{self, End},
    http2,
    service::Service,
    settings::{DISCARD_BYTES_MAX, LINGER_TIMEOUT},
};

/// What is known of a connection when it is handed over.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The client.
    pub peer: Peer,
    /// Where it has connected to, if a PROXY header says so.
    pub local: Option<SocketAddr>,
    /// What was agreed on, if it came through TLS.
    pub tls: Option<Box<Tls>>,
    /// The client has chosen HTTP/2 in the TLS handshake.
    pub is_http2: bool,
}

/// What a handshake of TLS has agreed on.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Version and cipher suite, as [`Stream::tls_facts`] has them.
    pub facts: Option<(&'static str, &'static str)>,
    /// Who the client is by its certificate, if it has shown one.
    pub identity: Option<PeerIdentity>,
}

impl Tls {
    /// `1.3`.
    pub(crate) fn version(&self) -> Option<&'static str> {
        self.facts.map(|(version, _)| version)
    }

    /// The cipher suite by the name that IANA has for it.
    pub(crate) fn cipher(&self) -> Option<&'static str> {
        self.facts.map(|(_, cipher)| cipher)
    }
}

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    pub(crate) service: Rc<Service>,
    pub(crate) peer: Peer,
    /// See [`Arrived::local`].
    local: Option<SocketAddr>,
    pub(crate) tls: Option<Box<Tls>>,
    /// As origins are told of it.
    pub(crate) peer_name: Box<str>,
    /// What origins are told of its certificate.
    pub(crate) client_cert: Option<Box<str>>,
    guard: ConnectionGuard,
    cutter: Cutter,
    waker: RefCell<Option<Waker>>,
    /// Its tasks that hear of its end: tunnels, and what policies wait for.
    listening: OnceCell<Roster<Listening>>,
    ending: Cell<Option<&'static str>>,
}

/// Who is to be woken of one task.
#[derive(Default)]
pub(crate) struct Listening(RefCell<Option<Waker>>);

impl Listening {
    /// As [`Connection::poll_ended`], for one of several tasks of a connection.
    pub(crate) fn poll_ended(&self, connection: &Connection, context: &mut Context<'_>) -> bool {
        *self.0.borrow_mut() = Some(context.waker().clone());
        connection.ending.get().is_some()
    }
}

/// Serves one admitted connection until it ends.
///
/// The stream comes in a box and rare work goes into one: an idle connection pays for the size of this future.
pub async fn serve(service: Rc<Service>, stream: Box<Stream>, guard: ConnectionGuard, arrived: Arrived) {
    let Arrived { peer, local, tls, is_http2 } = arrived;
    let identity = tls.as_ref().and_then(|tls| tls.identity.as_ref());
    let client_cert = identity.filter(|_| service.http().forwarded_client_cert).map(forward::client_cert);
    let cutter = stream.cutter();
    let connection = Rc::new(Connection {
        service,
        peer,
        local,
        tls,
        peer_name: forward::peer_name(peer),
        client_cert,
        guard,
        cutter,
        waker: RefCell::default(),
        listening: OnceCell::new(),
        ending: Cell::new(None),
    });
    let metrics = &connection.service.metrics;
    let _listed = connection.service.connections.enter(&connection);
    let accepted = turn::now();
    let open = metrics.open.guard();
    metrics.total.inc();
    let run = AssertUnwindSafe(run(&connection, stream, is_http2));
    let (reason, stream) = match futures_util::FutureExt::catch_unwind(run).await {
        Ok(ended) => ended,
        Err(_) => {
            let broken =
                Violation::rule("internal_invariant", Culprit::Gateway, "the session of a connection panicked");
            connection.service.reports.report(&broken, peer, connection.id(), true);
            ("internal_invariant", None)
        }
    };
    metrics.closed(reason);
    metrics.duration.record(turn::now().nanos_since(accepted));
    if let Some(stream) = stream {
        metrics.written_bytes.add(stream.output.appended());
        if connection.ending.get().is_none() && reason != "client_reset" {
            Box::pin(linger(stream)).await;
        }
    }
    drop(open);
}

/// Serves the connection in the version that the client speaks; why it ended, and what is left of it.
async fn run(connection: &Rc<Connection>, mut stream: Box<Stream>, is_http2: bool) -> (&'static str, Option<Stream>) {
    let received = match is_http2 {
        true => Vec::new(),
        false => match http1::run(connection, &mut stream).await {
            End::Http2(received) => received,
            End::Quiet(reason) => return (reason, Some(*stream)),
            End::Torn(reason) => {
                connection.service.metrics.written_bytes.add(stream.output.appended());
                stream.reset();
                return (reason, None);
            }
            End::Refused(refusal) => return (refusal.reason, Some(*stream)),
        },
    };
    Box::pin(http2::run(connection, *stream, &received)).await
}

/// Ends our direction and lets the client read what it was sent: closing at once, with bytes of its own unread, would reset
/// the connection.
async fn linger(mut stream: Stream) {
    stream.finish();
    if !stream.output.drained(limits::WRITE_IDLE_TIMEOUT).await {
        return;
    }
    let rest = async {
        let mut left = DISCARD_BYTES_MAX;
        while let Ok(Some(chunk)) = stream.reader.receive().await {
            // Who still floods gets no more attention.
            let Some(rest) = left.checked_sub(chunk.len() as u64) else { break };
            left = rest;
        }
    };
    // A client that does not close in time has had its chance.
    let _ = weir_engine::timeout(LINGER_TIMEOUT, rest).await;
    stream.close(LINGER_TIMEOUT).await;
}

impl Connection {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.guard.entry().id
    }

    /// What origins are told of the client.
    pub(crate) fn forwarded(&self) -> Forwarded<'_> {
        Forwarded { peer: &self.peer_name, is_tls: self.is_tls(), client_cert: self.client_cert.as_deref(), via: None }
    }

    /// It came through TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Where the client has connected to.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.local.or_else(|| self.cutter.local_address())
    }

    /// A request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.guard.entry().in_flight.load(Relaxed) > 0
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.guard.entry().is_killed()
    }

    /// No further request is taken on it.
    pub(crate) fn is_draining(&self) -> bool {
        self.service.drain_state() != Drain::Off
    }

    /// Ends it now.
    pub(crate) fn end(&self, reason: &'static str) {
        if self.ending.get().is_none() {
            self.ending.set(Some(reason));
            self.cutter.cut();
        }
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
        if let Some(listening) = self.listening.get() {
            listening.all().iter().filter_map(|one| one.0.borrow_mut().take()).for_each(Waker::wake);
        }
    }

    /// A task is to hear of the connection's end and of a drain, until the result is dropped.
    pub(crate) fn listening(&self) -> (Rc<Listening>, Listed<Listening>) {
        let listening = Rc::<Listening>::default();
        let listed = self.listening.get_or_init(Roster::default).enter(&listening);
        (listening, listed)
    }

    /// Counts and logs what the client did, and gives the reason back.
    pub(crate) fn report(&self, reason: &'static str, text: &'static str) -> &'static str {
        let violation = Violation::rule(reason, Culprit::Client, text);
        self.service.reports.report(&violation, self.peer, self.id(), true);
        reason
    }

    /// An exchange begins.
    pub(crate) fn begins(&self) {
        let entry = self.guard.entry();
        entry.in_flight.fetch_add(1, Relaxed);
        entry.active_at.store(turn::now().as_nanos(), Relaxed);
    }

    /// An exchange is over.
    pub(crate) fn ends(&self) {
        self.guard.entry().in_flight.fetch_sub(1, Relaxed);
    }

    /// Why it was told to end at once, if it was.
    pub(crate) fn ending(&self) -> Option<&'static str> {
        self.ending.get()
    }

    /// It was told to end at once; the task is woken if it is.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.ending.get().is_some()
    }

    /// Why the connection is to end before its next request, if it is. Between requests a gentle drain waits a moment: one may
    /// be on its way.
    pub(crate) fn poll_ending(
        &self,
        context: &mut Context<'_>,
        is_between: bool,
        deadline: &Deadline,
    ) -> Option<&'static str> {
        if self.poll_ended(context) {
            return self.ending.get();
        }
        match self.service.drain_state() {
            Drain::Firm if is_between => Some("drained"),
            Drain::Gentle if is_between => {
                let soon = turn::now().saturating_add(DRAIN_GAP);
                if deadline.at().is_none_or(|at| at > soon) {
                    deadline.set(soon);
                }
                None
            }
            _ => None,
        }
    }
}
