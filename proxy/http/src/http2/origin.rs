//! Origins that speak HTTP/2: their connections, and one stream of them as the origin of an exchange.

use std::{
    cell::{Cell, RefCell},
    future::{Future as _, poll_fn},
    io,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Reason,
    client::{ResponseFuture, SendRequest},
};
use weir_base::{permit::ByteLease, time::turn};
use weir_engine::{Deadline, Stream, poll_face::PollStream};
use weir_http_codec::{BodyLength, Fields, HeadLimits, RequestHead, ResponseHead};
use weir_upstream::{Carrier, LossCause, Multiplexer, Remains};

use super::{
    body::{Incoming, Outgoing, flush},
    flow::{FlowAccount, WindowControl},
    message,
    windows::CREDIT_BYTES,
};
use crate::{
    body::{BodyError, Sink, Source},
    failure::AttemptFailure,
    http2::windows::WindowSettings,
    input::Input,
    limits::{HTTP2_SEND_BUFFER_BYTES, LINGER_TIMEOUT},
    origin::{AttemptContext, Download, Origin},
    refusal::Refusal,
};

/// Cost of small DATA frames of an origin beyond their bytes, as `h2` counts: 256 bytes less the frame, until it is read; then it ends
/// the connection with all its streams. Streams that stall take their frames out ([`Incoming::poll_arrived`]), so this is for bursts: a
/// whole credit of frames of 8 bytes. Worst case 131,072 frames of about 150 bytes.
const FRAME_OVERHEAD_BYTES_MAX: usize = 32 << 20;

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
        let is_tls = !stream.is_plain();
        if is_tls && !stream.has_agreed_on(b"h2") {
            return Err(io::Error::other("the origin did not agree on HTTP/2 (ALPN \"h2\")"));
        }
        stream.output.charge_to(Some(Rc::new(RefCell::new(self.bytes.empty()))));
        let account = Rc::<FlowAccount>::default();
        let arrived = account.clone();
        let io = PollStream::new(stream, b"", move |bytes| {
            arrived.received(bytes.len());
            true
        });
        let handle = io.handle();
        let Http2OriginSettings { streams_max, windows } = self.settings;
        let begun = builder(windows).handshake::<_, Bytes>(io).await;
        let (sender, mut connection) = begun.map_err(io::Error::other)?;
        let control = WindowControl::new(&mut connection, account.clone(), windows, self.bytes.clone());
        let state = Rc::new(State { sender: RefCell::new(Some(sender)), streams_max, ..State::default() });
        weir_engine::spawn(drive(connection, control, handle, state.clone())).detach();
        Ok(Http2Connection { is_tls, state, account })
    }
}

pub(crate) fn builder(windows: WindowSettings) -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(windows.initial)
        .initial_connection_window_size(CREDIT_BYTES as u32)
        .data_frame_budget(FRAME_OVERHEAD_BYTES_MAX)
        .max_header_list_size(HeadLimits::default().bytes as u32)
        .max_send_buffer_size(HTTP2_SEND_BUFFER_BYTES);
    builder
}

/// State that a connection shares with the task that moves its frames.
#[derive(Default)]
struct State {
    /// `None` once the connection has no user left.
    sender: RefCell<Option<SendRequest<Bytes>>>,
    streams_max: u32,
    /// The connection has ended.
    is_over: Cell<bool>,
    /// It is to end now.
    is_cut: Cell<bool>,
    /// Waker of the task.
    waker: Cell<Option<Waker>>,
    /// Woken when the connection takes another number of streams than this.
    watch: Cell<Option<(u32, Waker)>>,
}

impl State {
    fn exchanges_max(&self) -> u32 {
        let mut sender = self.sender.borrow_mut();
        let Some(sender) = sender.as_mut().filter(|_| !self.is_over.get()) else { return 0 };
        match sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(_)) => 0,
            // An origin that takes no stream just now may take some later: its connection is full, not over.
            _ => self.streams_max.min(u32::try_from(sender.current_max_send_streams()).unwrap_or(u32::MAX)).max(1),
        }
    }

    /// Frames have moved, GOAWAY or SETTINGS perhaps.
    fn tell_watcher(&self) {
        let Some((seen, waker)) = self.watch.take() else { return };
        match seen == self.exchanges_max() {
            true => self.watch.set(Some((seen, waker))),
            false => waker.wake(),
        }
    }

    fn wake_task(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Moves the frames of a connection until it has ended.
async fn drive(
    mut connection: h2::client::Connection<PollStream, Bytes>,
    mut control: WindowControl,
    handle: PollStream,
    state: Rc<State>,
) {
    let deadline = weir_engine::deadline();
    poll_fn(|context| {
        control.poll(&mut connection, context);
        let mut moved = Pin::new(&mut connection).poll(context);
        while moved.is_pending() && control.poll(&mut connection, context) {
            moved = Pin::new(&mut connection).poll(context);
        }
        if moved.is_ready() || state.is_cut.get() {
            // Its streams see why.
            return Poll::Ready(());
        }
        state.tell_watcher();
        if state.sender.borrow().is_some() {
            state.waker.set(Some(context.waker().clone()));
            return Poll::Pending;
        }
        if deadline.at().is_none() {
            deadline.set(turn::now().saturating_add(LINGER_TIMEOUT));
        }
        deadline.poll_expired(context)
    })
    .await;
    state.is_over.set(true);
    state.tell_watcher();
    drop(connection);
    if let Some(stream) = handle.into_inner() {
        stream.close(LINGER_TIMEOUT).await;
    }
}

/// One connection to an origin.
pub struct Http2Connection {
    is_tls: bool,
    state: Rc<State>,
    account: Rc<FlowAccount>,
}

impl Carrier for Http2Connection {
    fn exchanges_max(&self) -> u32 {
        self.state.exchanges_max()
    }

    fn watch(&self, waker: &Waker) {
        self.state.watch.set(Some((self.exchanges_max(), waker.clone())));
    }

    fn cut(&self) {
        self.state.is_cut.set(true);
        self.state.wake_task();
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        self.state.sender.take();
        self.state.wake_task();
    }
}

impl Http2Connection {
    /// Sends the head of a request; `host` is the authority that it is for.
    ///
    /// # Errors
    /// The connection takes none any more.
    pub(crate) fn send_request(
        &self,
        head: &RequestHead,
        host: &[u8],
        is_whole: bool,
    ) -> Result<Http2Origin, AttemptFailure> {
        let scheme = if self.is_tls { "https" } else { "http" };
        let request = message::request_to(head, host, scheme).ok_or(AttemptFailure::Client(Refusal::HOST))?;
        self.account.expect_body();
        // Each clone may have one request waiting for a stream.
        let mut sender = self.state.sender.borrow().clone().ok_or(AttemptFailure::Drained)?;
        let (response, stream) = sender.send_request(request, is_whole).map_err(|_| AttemptFailure::Drained)?;
        Ok(Http2Origin {
            upload: Outgoing::new(stream),
            stage: ReceiveStage::BeforeHead(response),
            account: self.account.clone(),
        })
    }
}

/// One stream.
pub(crate) struct Http2Origin {
    upload: Outgoing,
    stage: ReceiveStage,
    account: Rc<FlowAccount>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "each becomes the large one, so a box would cost an allocation and save nothing"
)]
enum ReceiveStage {
    BeforeHead(ResponseFuture),
    Body(Incoming),
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
        let Self { upload, stage, account } = self;
        let upload = Http2Upload { outgoing: RefCell::new(upload), deadline: attempt.deadline };
        (upload, Http2Download { stage, account, attempt })
    }
}

/// The body of a request on its way to an origin.
pub(crate) struct Http2Upload<'a> {
    outgoing: RefCell<&'a mut Outgoing>,
    deadline: &'a Deadline,
}

impl Sink for Http2Upload<'_> {
    fn data(&mut self, data: &[u8]) {
        self.outgoing.get_mut().data(data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.outgoing.get_mut().end(trailers);
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        flush(|poll| poll(&mut self.outgoing.borrow_mut()), self.deadline).await
    }
}

/// A response on its way in.
pub(crate) struct Http2Download<'a> {
    stage: &'a mut ReceiveStage,
    account: &'a Rc<FlowAccount>,
    attempt: AttemptContext<'a>,
}

impl Source for Http2Download<'_> {
    fn is_done(&self) -> bool {
        matches!(&self.stage, ReceiveStage::Body(body) if body.is_done())
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        match &mut self.stage {
            ReceiveStage::Body(body) => body.fill(self.attempt.origin_deadline).await,
            ReceiveStage::BeforeHead(_) => Err(BodyError::Truncated),
        }
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        match &mut self.stage {
            ReceiveStage::Body(body) => body.pass(sink),
            ReceiveStage::BeforeHead(_) => Err(BodyError::Truncated),
        }
    }

    fn poll_arrived(&mut self, context: &mut Context<'_>) -> Poll<BodyError> {
        match &mut self.stage {
            ReceiveStage::Body(body) => body.poll_arrived(context),
            ReceiveStage::BeforeHead(_) => Poll::Pending,
        }
    }
}

impl Download for Http2Download<'_> {
    async fn head(&mut self) -> Result<ResponseHead, AttemptFailure> {
        let ReceiveStage::BeforeHead(response) = &mut self.stage else { return Err(MALFORMED) };
        let deadline = self.attempt.origin_deadline;
        let received = poll_fn(|context| {
            if let Poll::Ready(Some(interim)) = response.poll_informational(context) {
                return Poll::Ready(interim.map(|interim| interim.map(|()| None)).map_err(|error| failure(&error)));
            }
            match Pin::new(&mut *response).poll(context) {
                Poll::Ready(received) => {
                    Poll::Ready(received.map(|received| received.map(Some)).map_err(|error| failure(&error)))
                }
                Poll::Pending => deadline
                    .poll_expired(context)
                    .map(|()| Err(AttemptFailure::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout))),
            }
        });
        let (parts, body) = received.await?.into_parts();
        let is_whole = body.as_ref().is_none_or(h2::RecvStream::is_end_stream);
        let head = message::response_head(&parts, is_whole).map_err(|_| MALFORMED)?;
        if let Some(body) = body {
            let (length, idle_timeout) = (head.announced(), self.attempt.answer_idle_timeout);
            *self.stage = ReceiveStage::Body(Incoming::new(body, length, idle_timeout, self.account.clone()));
        }
        Ok(head)
    }

    fn begin(&mut self, head: &ResponseHead, is_head: bool) -> BodyLength {
        head.body(is_head)
    }

    fn limit_pauses(&mut self, idle_timeout: Duration) {
        if let ReceiveStage::Body(body) = &mut self.stage {
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
        match &self.stage {
            ReceiveStage::Body(body) => body.trailers(),
            ReceiveStage::BeforeHead(_) => None,
        }
    }

    fn reuse(&mut self, _: ResponseHead) {}
}

const MALFORMED: AttemptFailure = AttemptFailure::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation);

/// The reason why there is no response.
fn failure(error: &h2::Error) -> AttemptFailure {
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    match error.is_remote() {
        // Neither was begun (RFC 9113 section 8.7). Only streams above the last one of GOAWAY end so, whatever its error code; the
        // others go on, and end with an I/O error if the origin closes.
        true if is_refused => AttemptFailure::NotProcessed,
        true if error.is_go_away() => AttemptFailure::Drained,
        true => AttemptFailure::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
        false if error.is_io() => AttemptFailure::NoResponse,
        // The gateway ends the connection for an error. All exchanges on it fail, for this one reason.
        false if error.is_go_away() => AttemptFailure::Connection,
        false => MALFORMED,
    }
}
