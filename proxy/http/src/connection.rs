//! One client connection: heads in, one exchange after the other.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker},
};

use weir_base::{
    error::Culprit,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Cutter, Deadline, Stream};
use weir_http_codec::{BodyDecoder, BodyLength, HeadLimits, RequestHead, RequestParser, ResponseParser, WireError};
use weir_listener::{ConnectionGuard, DRAIN_GAP, Drain};
use weir_telemetry::log::Peer;

use crate::{
    exchange::{self, After},
    forward,
    input::Input,
    refusal::Refusal,
    relay::relieved,
    service::Service,
    settings::LINGER_TIMEOUT,
};

/// What is known of a connection when it is handed over.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// The client.
    pub peer: Peer,
    /// It came through TLS.
    pub is_tls: bool,
}

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    pub(crate) service: Rc<Service>,
    pub(crate) peer: Peer,
    pub(crate) is_tls: bool,
    /// As origins are told of it.
    pub(crate) peer_name: Box<str>,
    guard: ConnectionGuard,
    cutter: Cutter,
    waker: RefCell<Option<Waker>>,
    ending: Cell<Option<&'static str>>,
}

/// The client's side of the exchanges of a connection.
pub(crate) struct Front<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) stream: &'a mut Stream,
    pub(crate) input: Input,
    /// What is left of the body of the present request.
    pub(crate) body: BodyDecoder,
    /// Of what the client does.
    pub(crate) deadline: Deadline,
    /// Of what the origin does.
    pub(crate) origin_deadline: Deadline,
    /// Kept for its memory.
    pub(crate) answers: ResponseParser,
}

/// Why no further request comes.
enum End {
    /// There is nobody to tell.
    Quiet(&'static str),
    /// The client is told.
    Refused(Refusal),
}

/// Serves one admitted connection until it ends.
///
/// The stream comes in a box and rare work goes into one: an idle connection pays for the size of this future.
pub async fn serve(service: Rc<Service>, mut stream: Box<Stream>, guard: ConnectionGuard, arrived: Arrived) {
    let Arrived { peer, is_tls } = arrived;
    let cutter = stream.cutter();
    let connection = Rc::new(Connection {
        service,
        peer,
        is_tls,
        peer_name: forward::peer_name(peer),
        guard,
        cutter,
        waker: RefCell::default(),
        ending: Cell::new(None),
    });
    let metrics = &connection.service.metrics;
    let _listed = connection.service.enter(&connection);
    let accepted = turn::now();
    let open = metrics.open.guard();
    metrics.total.inc();
    let run = AssertUnwindSafe(run(&connection, &mut stream));
    let reason = match futures_util::FutureExt::catch_unwind(run).await {
        Ok(reason) => reason,
        Err(_) => {
            let broken =
                Violation::rule("internal_invariant", Culprit::Gateway, "the session of a connection panicked");
            connection.service.report(&broken, peer, connection.id());
            "internal_invariant"
        }
    };
    metrics.closed(reason);
    metrics.duration.record(turn::now().nanos_since(accepted));
    metrics.written_bytes.add(stream.output.appended());
    if connection.ending.get().is_none() && reason != "client_reset" {
        Box::pin(linger(*stream)).await;
    }
    drop(open);
}

/// Ends our direction and lets the client read what it was sent: closing at once, with bytes of its own unread, would reset
/// the connection.
async fn linger(mut stream: Stream) {
    stream.finish();
    let rest = async { while let Ok(Some(_)) = stream.reader.receive().await {} };
    // A client that does not close in time has had its chance.
    let _ = weir_engine::timeout(LINGER_TIMEOUT, rest).await;
    stream.close(LINGER_TIMEOUT).await;
}

/// One request after the other; gives why there is none any more.
async fn run(connection: &Connection, stream: &mut Stream) -> &'static str {
    let mut parser = RequestParser::new();
    let mut front = Front {
        connection,
        stream,
        input: Input::default(),
        body: BodyDecoder::new(BodyLength::default()),
        deadline: weir_engine::deadline(),
        origin_deadline: weir_engine::deadline(),
        answers: ResponseParser::new(),
    };
    loop {
        let mut head = match next_head(&mut front, &mut parser).await {
            Ok(head) => head,
            Err(End::Quiet(reason)) => return reason,
            Err(End::Refused(refusal)) => {
                connection.report(refusal);
                let chance = connection.service.chance();
                front.stream.output.with(|into| refusal.write(None, false, true, chance, into));
                return refusal.reason;
            }
        };
        let entry = connection.guard.entry();
        entry.in_flight.store(1, Relaxed);
        entry.active_at.store(turn::now().as_nanos(), Relaxed);
        let after = exchange::run(&mut front, &mut head).await;
        entry.in_flight.store(0, Relaxed);
        match after {
            After::Another => parser.reuse(head),
            After::Close(reason) => return connection.ending.get().unwrap_or(reason),
        }
        // Who sends requests and does not read the answers is not read from.
        if relieved(&front.stream.output, &front.deadline).await.is_err() {
            return connection.ending.get().unwrap_or("client_stalled");
        }
    }
}

/// The next request's head, within its deadline: the time between requests has one, and so has the head from its first byte
/// on, whatever comes of it meanwhile.
async fn next_head(front: &mut Front<'_>, parser: &mut RequestParser) -> Result<RequestHead, End> {
    let Front { connection, stream, input, deadline, .. } = front;
    let limits = HeadLimits::default();
    let listener = connection.service.listener();
    let mut begun: Option<Time> = None;
    loop {
        match parser.parse(input.bytes(), &limits) {
            Ok(Some(used)) => {
                input.spend(used);
                return Ok(parser.take());
            }
            Ok(None) => {}
            Err(error) => return Err(End::Refused(Refusal::malformed(error))),
        }
        let is_between = input.bytes().is_empty();
        if is_between {
            let keep_alive = listener.idle_timeout.unwrap_or(connection.service.http().keep_alive_timeout);
            deadline.set(turn::now().saturating_add(keep_alive));
        } else if begun.is_none() {
            begun = Some(turn::now());
            deadline.set(turn::now().saturating_add(listener.head_timeout));
        }
        input.keep();
        let received = poll_fn(|context| {
            if let Some(reason) = connection.poll_ending(context, is_between, deadline) {
                return Poll::Ready(Err(End::Quiet(reason)));
            }
            if let Poll::Ready(received) = input.poll_more(&mut stream.reader, context) {
                return Poll::Ready(Ok(received));
            }
            match deadline.poll_expired(context) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(()) if !is_between => Poll::Ready(Err(End::Refused(Refusal::HEAD_TIMEOUT))),
                Poll::Ready(()) if connection.is_draining() => Poll::Ready(Err(End::Quiet("drained"))),
                Poll::Ready(()) => Poll::Ready(Err(End::Quiet("idle_timeout"))),
            }
        });
        match received.await? {
            Ok(0) => return Err(End::Quiet("client_closed")),
            Ok(count) => connection.service.metrics.read_bytes.add(count as u64),
            Err(_) => return Err(End::Quiet("client_reset")),
        }
    }
}

impl Connection {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.guard.entry().id
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
    }

    /// Counts and logs a refusal that breaks the connection off.
    pub(crate) fn report(&self, refusal: Refusal) {
        let violation = Violation::rule(refusal.reason, Culprit::Client, refusal.text);
        self.service.report(&violation, self.peer, self.id());
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
    fn poll_ending(&self, context: &mut Context<'_>, is_between: bool, deadline: &Deadline) -> Option<&'static str> {
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

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::malformed(error)
    }
}
