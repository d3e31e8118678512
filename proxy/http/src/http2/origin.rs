//! Origins that speak HTTP/2: their connections, and one stream of them as the origin of an exchange.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::{error::Culprit, permit::ByteLease, time::turn};
use weir_engine::{Deadline, Stream};
use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead};
use weir_http2_codec::{Connection, ConnectionConfig, ErrorCode, Event, OpenError, RequestTarget, ResetCause};
use weir_upstream::{Carrier, LossCause, Multiplexer, Remains};

use super::{
    body::Incoming,
    control::WindowControl,
    machine::{DrivenMachine, Machine, ReceivedHead},
    stall::StallWatch,
    stream_handle::StreamHandle,
    windows::CREDIT_BYTES,
};
use crate::{
    body::{BodyError, Sink, Source},
    failure::AttemptFailure,
    http2::windows::WindowSettings,
    input::Input,
    limits::LINGER_TIMEOUT,
    origin::{AttemptContext, Download, Origin},
    refusal::Refusal,
};

/// HTTP/2 settings towards the origins of one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2OriginSettings {
    /// Streams that the gateway has open on one connection, if the origin takes as many.
    pub streams_max: u32,
    /// Windows for the bytes of origins.
    pub windows: WindowSettings,
}

/// HTTP/2 towards the origins of one upstream, on one worker.
#[derive(Clone, Debug)]
pub struct Http2Multiplexer {
    settings: Http2OriginSettings,
    bytes: ByteLease,
}

impl Http2Multiplexer {
    /// Charges `bytes` with what its connections may hold beyond their credit.
    pub fn new(settings: Http2OriginSettings, bytes: ByteLease) -> Self {
        Self { settings, bytes }
    }
}

impl Multiplexer for Http2Multiplexer {
    type Carrier = Http2Connection;

    async fn begin(&self, stream: Stream) -> io::Result<Http2Connection> {
        check_agreement(&stream)?;
        stream.output.charge_to(Some(Rc::new(RefCell::new(self.bytes.empty()))));
        let Http2OriginSettings { streams_max, windows } = self.settings;
        let shared = Rc::new(Shared {
            machine: Machine::new(Connection::client(config(windows)), stream.output.clone()),
            streams_max,
            is_cut: Cell::new(false),
            is_unused: Cell::new(false),
            watch: Cell::new(None),
        });
        let is_tls = !stream.is_plain();
        let control = WindowControl::new(&shared.machine, windows, self.bytes.clone());
        let driver = Driver {
            machine: DrivenMachine::new(shared.machine.clone()),
            stream,
            control,
            shared: shared.clone(),
            deadline: weir_engine::deadline(),
            stall: StallWatch::new(),
        };
        weir_engine::spawn(driver.run()).detach();
        Ok(Http2Connection { is_tls, shared })
    }
}

/// # Errors
/// The connection speaks TLS, and the origin did not choose HTTP/2 there.
pub(super) fn check_agreement(stream: &Stream) -> io::Result<()> {
    match stream.is_plain() || stream.has_agreed_on(b"h2") {
        true => Ok(()),
        false => Err(io::Error::other("the origin did not agree on HTTP/2 (ALPN \"h2\")")),
    }
}

/// The gateway's side of a connection to an origin.
pub(super) fn config(windows: WindowSettings) -> ConnectionConfig {
    ConnectionConfig {
        stream_window: windows.initial,
        connection_window: CREDIT_BYTES as u32,
        ..ConnectionConfig::default()
    }
}

/// State that a connection shares with the task that reads it.
struct Shared {
    machine: Rc<Machine>,
    streams_max: u32,
    /// It is to end now.
    is_cut: Cell<bool>,
    /// No exchange will come on it.
    is_unused: Cell<bool>,
    /// Woken when the connection takes another number of streams than this.
    watch: Cell<Option<(Option<u32>, Waker)>>,
}

impl Shared {
    fn exchanges_max(&self) -> Option<u32> {
        self.machine.look(|codec| match codec.streams_max() {
            0 => None,
            // An origin may allow none for a while.
            _ if !codec.can_open() => Some(0),
            streams_max => Some(streams_max.min(self.streams_max)),
        })
    }

    fn wake_watcher(&self) {
        match self.watch.take() {
            Some((seen, waker)) if seen != self.exchanges_max() => waker.wake(),
            same => self.watch.set(same),
        }
    }
}

/// Reads a connection until it has ended.
struct Driver {
    machine: DrivenMachine,
    stream: Stream,
    control: WindowControl,
    shared: Rc<Shared>,
    /// Deadline of the last bytes.
    deadline: Deadline,
    stall: StallWatch,
}

impl Driver {
    async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
        let Self { machine, stream, shared, .. } = self;
        // Its streams see why.
        drop(machine);
        shared.wake_watcher();
        stream.close(LINGER_TIMEOUT).await;
    }

    /// Ready once the connection ends. An origin that does not read is read all the same: it may wait for the gateway to do so.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let machine = &self.machine;
        machine.poll_driven(context);
        self.control.poll(context);
        let received = self.stream.reader.poll_receive(context);
        if let Poll::Ready(Ok(Some(chunk))) = &received {
            machine.receive(chunk);
        }
        machine.poll_deadlines(context);
        while let Some(event) = machine.next_event() {
            match event {
                Event::Pong => self.control.measured(),
                Event::Failed(error) => machine.uncounted.set(Some(error)),
                _ => {}
            }
        }
        self.shared.wake_watcher();
        match received {
            _ if machine.is_over() || self.shared.is_cut.get() => Poll::Ready(()),
            Poll::Ready(Ok(Some(_))) => {
                // The streams have their turn before more is read.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending if self.poll_stalled(context).is_ready() => Poll::Ready(()),
            Poll::Pending => {
                if self.shared.is_unused.get() && self.deadline.at().is_none() {
                    self.deadline.set(turn::now().saturating_add(LINGER_TIMEOUT));
                }
                self.deadline.poll_expired(context)
            }
        }
    }

    /// Ready if the origin takes nothing of many heads. Bodies have a deadline of their own.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.stall.poll_stalled(&self.stream.output, self.machine.is_congested(), context)
    }
}

/// One connection to an origin.
pub struct Http2Connection {
    is_tls: bool,
    shared: Rc<Shared>,
}

impl Carrier for Http2Connection {
    fn exchanges_max(&self) -> Option<u32> {
        self.shared.exchanges_max()
    }

    fn watch(&self, waker: &Waker) {
        self.shared.watch.set(Some((self.exchanges_max(), waker.clone())));
    }

    fn cut(&self) {
        self.shared.is_cut.set(true);
        self.shared.machine.account.wake();
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.shared.is_unused.set(true);
        self.shared.machine.with(Connection::shut_down);
        self.shared.machine.account.wake();
    }
}

impl Http2Connection {
    /// Sends the head of a request; `host` is the authority that it is for.
    ///
    /// # Errors
    /// The connection takes none any more, or none just now.
    pub(crate) fn send_request(
        &self,
        head: &RequestHead,
        host: &[u8],
        is_whole: bool,
    ) -> Result<Http2Origin, AttemptFailure> {
        let machine = &self.shared.machine;
        machine.account.expect_body();
        let scheme = if self.is_tls { b"https" } else { &b"http"[..] };
        // A client of HTTP/1.0 need not name a host, and HTTP/2 cannot leave it out.
        let authority = if host.is_empty() { b"localhost" } else { host };
        let target = RequestTarget { scheme, authority, protocol: None };
        match machine.with(|codec| codec.send_request(head, target, is_whole)) {
            Ok(stream) => Ok(Http2Origin { stream: StreamHandle::new(machine, stream), body: None }),
            Err(OpenError::Full) => Err(AttemptFailure::NotProcessed),
            Err(OpenError::Closing | OpenError::NoConnectProtocol) => Err(AttemptFailure::Drained),
        }
    }
}

/// One stream.
pub(crate) struct Http2Origin {
    stream: Rc<StreamHandle>,
    /// The body of the response, once there is its head.
    body: Option<Incoming>,
}

impl Origin for Http2Origin {
    type Upload<'a>
        = Http2Upload<'a>
    where
        Self: 'a;
    type Download<'a>
        = Http2Download<'a>
    where
        Self: 'a;

    fn split<'a>(&'a mut self, attempt: AttemptContext<'a>) -> (Http2Upload<'a>, Http2Download<'a>) {
        let Self { stream, body } = self;
        let upload = Http2Upload { stream, deadline: attempt.deadline };
        (upload, Http2Download { stream, body, attempt })
    }
}

/// The body of a request on its way to an origin.
pub(crate) struct Http2Upload<'a> {
    stream: &'a StreamHandle,
    deadline: &'a Deadline,
}

impl Sink for Http2Upload<'_> {
    fn data(&mut self, data: &[u8]) {
        self.stream.data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.stream.end(trailers);
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        self.stream.flush(self.deadline).await
    }
}

/// A response on its way in.
pub(crate) struct Http2Download<'a> {
    stream: &'a Rc<StreamHandle>,
    body: &'a mut Option<Incoming>,
    attempt: AttemptContext<'a>,
}

impl Http2Download<'_> {
    /// Counts the rule that the origin broke, if its stream ended for one: that of a connection once for all its streams.
    fn count_violation(&self, cause: ResetCause) {
        let error = match cause {
            ResetCause::Breach(error) => Some(error),
            ResetCause::Connection(_) => self.stream.machine.uncounted.take(),
            _ => None,
        };
        if let Some(error) = error {
            self.attempt.metrics.violation(&error.violation(Culprit::Upstream));
        }
    }
}

impl Source for Http2Download<'_> {
    fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(Incoming::is_done)
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        let filled = self.body.as_mut().ok_or(BodyError::Truncated)?.fill(self.attempt.origin_deadline).await;
        if filled.is_err()
            && let Some(cause) = self.stream.received().reset
        {
            self.count_violation(cause);
        }
        filled
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        self.body.as_mut().ok_or(BodyError::Truncated)?.pass(sink)
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        self.body.as_mut().map_or(Poll::Pending, |body| body.poll_arrived(context))
    }
}

impl Download for Http2Download<'_> {
    async fn head(&mut self) -> Result<ResponseHead, AttemptFailure> {
        let AttemptContext { origin_deadline, response_idle_timeout, .. } = self.attempt;
        let received = poll_fn(|context| {
            if let Some(received) = self.stream.take_head() {
                return Poll::Ready(Ok(received));
            }
            if let Poll::Ready(cause) = self.stream.poll_reset(context) {
                self.count_violation(cause);
                return Poll::Ready(Err(failure(cause)));
            }
            origin_deadline
                .poll_expired(context)
                .map(|()| Err(AttemptFailure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout)))
        });
        let ReceivedHead { head, is_end } = received.await?;
        if !head.is_interim() {
            let body = Incoming::new(self.stream.clone(), head.announced(), is_end, response_idle_timeout);
            *self.body = Some(body);
        }
        Ok(head)
    }

    fn begin(&mut self, head: &ResponseHead, is_head: bool) -> BodyLength {
        head.body(is_head)
    }

    fn limit_pauses(&mut self, idle_timeout: Duration) {
        if let Some(body) = self.body {
            body.idle_timeout = idle_timeout;
        }
    }

    fn rest(&mut self) -> Input {
        Input::default()
    }

    fn remains(&self) -> Option<Remains> {
        // The numbers of streams keep their frames apart.
        Some(Remains::Nothing)
    }

    fn trailers(&self) -> Option<&Fields> {
        self.body.as_ref().and_then(Incoming::trailers)
    }

    fn reuse(&mut self, _: ResponseHead) {}
}

/// The reason why there is no response.
fn failure(cause: ResetCause) -> AttemptFailure {
    match cause {
        // Neither was begun (RFC 9113 section 8.7).
        ResetCause::Peer(ErrorCode::REFUSED_STREAM) => AttemptFailure::NotProcessed,
        ResetCause::Unprocessed => AttemptFailure::Drained,
        ResetCause::Peer(_) => AttemptFailure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
        ResetCause::Breach(_) => AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation),
        // The gateway ends the connection for an error. All exchanges on it fail, for this one reason.
        ResetCause::Connection(_) => AttemptFailure::Connection,
        ResetCause::Closed | ResetCause::Local(_) => AttemptFailure::NoResponse,
    }
}
