//! A client that speaks HTTP/2: its connection, on which every stream is one exchange.
//!
//! Frames, HPACK and flow control are the `h2` crate's, over the poll face of the stream. Floods are detected before it sees them
//! ([`weir_http_codec::frames`]).

mod body;
mod flow;
mod message;
pub(crate) mod origin;
pub(crate) mod preface;
pub(crate) mod probe;
mod response_stream;
mod stream;
mod tunnel;
pub(crate) mod windows;

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::Request;
use weir_base::time::turn;
use weir_engine::{Stream, poll_face::PollStream};
use weir_http_codec::{
    HeadLimits,
    frames::{Flood, FrameBudget},
};
use weir_listener::CloseReason;

use self::{
    flow::{FlowAccount, WindowControl},
    windows::CREDIT_BYTES,
};
use crate::{
    connection::Connection,
    limits::{HTTP2_SEND_BUFFER_BYTES, LINGER_TIMEOUT},
    settings::HttpListenerSettings,
};

/// Streams of one connection that clients have reset and the gateway has not forgotten, and those reset before they were
/// accepted. The defaults of `h2`, said here because much hangs on them (CVE-2023-44487).
const RESET_STREAMS_MAX: usize = 50;
const PENDING_RESET_STREAMS_MAX: usize = 20;
/// Streams that the gateway itself resets for what the client did wrong, in the life of a connection (CVE-2025-8671).
const REFUSED_STREAMS_MAX: usize = 500;

/// Cost of small DATA frames of a client beyond their bytes, as `h2` counts: 256 bytes less the frame, until it is read; then it ends the
/// connection. Allows a stream's whole first window of messages of 4 bytes at once. Streams that stall take their frames out
/// (`Incoming::poll_arrived`). Worst case 65,536 frames of about 150 bytes.
const FRAME_OVERHEAD_BYTES_MAX: usize = 16 << 20;

const FLOOD: &str = "too many frames of a kind that costs the client nothing";

/// Empty SETTINGS, and GOAWAY with ENHANCE_YOUR_CALM: to who floods before `h2` has read a word.
const CALM_DOWN_FRAMES: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0B";

type Server = h2::server::Connection<PollStream, Bytes>;

/// Serves a connection whose first bytes are `received`. Returns the reason of its end, and the stream.
pub(crate) async fn run(connection: &Rc<Connection>, stream: Stream, received: &[u8]) -> (CloseReason, Option<Stream>) {
    connection.handle.entry().details().version = "HTTP/2";
    let flood = Rc::new(Cell::new(None));
    let account = Rc::<FlowAccount>::default();
    let io = {
        let (flood, account, mut budget) = (flood.clone(), account.clone(), FrameBudget::default());
        let watch = move |bytes: &[u8]| {
            account.received(bytes.len());
            budget.observe(bytes, turn::now()).map_err(|found| flood.set(Some(found))).is_ok()
        };
        PollStream::new(stream, received, watch)
    };
    let handle = io.handle();
    let begun = begin(connection, io, &flood, account).await;
    let has_begun = begun.is_ok();
    let reason = match begun {
        Ok(mut driver) => {
            let reason = driver.run().await;
            driver.closed().await;
            reason
        }
        Err(reason) => reason,
    };
    let stream = handle.into_inner();
    if let (Some(stream), Some(_), false) = (&stream, flood.get(), has_begun) {
        stream.output.append(CALM_DOWN_FRAMES);
    }
    (reason, stream)
}

/// Exchanges the prefaces.
///
/// # Errors
/// The reason of the connection's end.
async fn begin<'a>(
    connection: &'a Rc<Connection>,
    io: PollStream,
    flood: &'a Cell<Option<Flood>>,
    account: Rc<FlowAccount>,
) -> Result<Driver<'a>, CloseReason> {
    let service = &connection.service;
    let http = service.http();
    let mut builder = builder(&http);
    if service.routing().offers_websocket {
        builder.enable_connect_protocol();
    }
    let mut handshake = pin!(builder.handshake::<_, Bytes>(io));
    let deadline = weir_engine::deadline();
    deadline.set(turn::now().saturating_add(service.sessions.settings().head_timeout));
    let begun = poll_fn(|context| {
        if connection.handle.poll_ending(context).is_some() || flood.get().is_some() {
            return Poll::Ready(None);
        }
        match handshake.as_mut().poll(context) {
            Poll::Ready(begun) => Poll::Ready(Some(begun)),
            Poll::Pending => deadline.poll_expired(context).map(|()| None),
        }
    });
    match (begun.await, flood.get()) {
        (None, Some(flood)) => Err(connection.violated(flood.reason(), FLOOD)),
        (Some(Ok(mut server)), _) => {
            let control = WindowControl::new(
                &mut server,
                account.clone(),
                http.http2_windows,
                service.sessions.core().bytes.clone(),
            );
            Ok(Driver {
                connection,
                server,
                account,
                control,
                flood,
                open_streams: Rc::default(),
                has_sent_goaway: false,
                deadline,
            })
        }
        (Some(Err(error)), _) => Err(reason_of(connection, &error)),
        (None, None) => {
            Err(connection.handle.ending().unwrap_or_else(|| connection.violated("head_timeout", "no preface in time")))
        }
    }
}

fn builder(http: &HttpListenerSettings) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(http.http2_windows.initial)
        .initial_connection_window_size(CREDIT_BYTES as u32)
        .data_frame_budget(FRAME_OVERHEAD_BYTES_MAX)
        .max_concurrent_streams(http.http2_streams_max)
        .max_header_list_size(HeadLimits::default().bytes as u32)
        .max_send_buffer_size(HTTP2_SEND_BUFFER_BYTES)
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESET_STREAMS_MAX)
        .max_local_error_reset_streams(Some(REFUSED_STREAMS_MAX));
    builder
}

/// Moves the frames of one connection.
struct Driver<'a> {
    connection: &'a Rc<Connection>,
    server: Server,
    account: Rc<FlowAccount>,
    control: WindowControl,
    flood: &'a Cell<Option<Flood>>,
    /// Streams with a response under way.
    open_streams: Rc<Cell<usize>>,
    /// The client has a GOAWAY.
    has_sent_goaway: bool,
    /// Deadline of a connection without a stream.
    deadline: weir_engine::Deadline,
}

impl Driver<'_> {
    /// Takes one stream after the other, until there is none any more; gives why.
    async fn run(&mut self) -> CloseReason {
        let mut was_busy = true;
        let mut reason = CloseReason::ClientClosed;
        loop {
            let event = poll_fn(|context| {
                let is_busy = self.open_streams.get() > 0;
                if was_busy && !is_busy {
                    self.deadline.set(turn::now().saturating_add(self.idle_timeout()));
                }
                was_busy = is_busy;
                self.poll_event(context)
            });
            match event.await {
                Event::Stream(request, respond) => self.serve(request, respond),
                Event::Closed => return reason,
                Event::Ended(reason) => return reason,
                Event::Failed(error) => return reason_of(self.connection, &error),
                Event::GoAway(why) => {
                    reason = why;
                    self.has_sent_goaway = true;
                    self.server.graceful_shutdown();
                    self.deadline.set(turn::now().saturating_add(self.idle_timeout()));
                }
                Event::Flood(flood) => {
                    self.server.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    return self.connection.violated(flood.reason(), FLOOD);
                }
            }
        }
    }

    /// Timeout without a stream: after a GOAWAY, a client only has to close.
    fn idle_timeout(&self) -> Duration {
        if self.has_sent_goaway { LINGER_TIMEOUT } else { self.connection.service.keep_alive_timeout() }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        if let Some(reason) = self.connection.handle.poll_ending(context) {
            return Poll::Ready(Event::Ended(reason));
        }
        if let Some(flood) = self.flood.get() {
            return Poll::Ready(Event::Flood(flood));
        }
        if !self.has_sent_goaway && self.connection.is_draining() {
            return Poll::Ready(Event::GoAway(CloseReason::Drained));
        }
        self.control.poll(&mut self.server, context);
        let mut accepted = self.server.poll_accept(context);
        while accepted.is_pending() && self.control.poll(&mut self.server, context) {
            accepted = self.server.poll_accept(context);
        }
        match accepted {
            Poll::Ready(Some(Ok((request, respond)))) => return Poll::Ready(Event::Stream(request, respond)),
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Event::Failed(error)),
            Poll::Ready(None) => return Poll::Ready(Event::Closed),
            Poll::Pending => {}
        }
        if self.open_streams.get() > 0 {
            return Poll::Pending;
        }
        match self.deadline.poll_expired(context) {
            Poll::Ready(()) if self.has_sent_goaway => Poll::Ready(Event::Closed),
            Poll::Ready(()) => Poll::Ready(Event::GoAway(CloseReason::IdleTimeout)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Serves one stream in a task of its own.
    fn serve(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let (connection, open) = (self.connection.clone(), StreamGuard::new(&self.open_streams, self.connection));
        let account = self.account.clone();
        // The future has some kilobytes: in a box it moves once, and not through each layer of the runtime.
        weir_engine::spawn(Box::pin(async move {
            let _open = open;
            stream::serve(&connection, account, request, respond).await;
        }))
        .detach();
    }

    /// Sends what is left to be said, within a moment.
    async fn closed(&mut self) {
        if self.connection.handle.ending().is_none() {
            // A client that does not take it in time loses it.
            let _ = weir_engine::timeout(LINGER_TIMEOUT, poll_fn(|context| self.server.poll_closed(context))).await;
        }
    }
}

/// The next event of a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "one lives at a time, and the large one is the usual one: a box would cost more"
)]
enum Event {
    Stream(Request<RecvStream>, SendResponse<Bytes>),
    /// The client closed it, or both sides have said all.
    Closed,
    /// It ends now.
    Ended(CloseReason),
    Failed(h2::Error),
    /// No further stream is taken.
    GoAway(CloseReason),
    Flood(Flood),
}

/// One open stream, counted until it is dropped.
struct StreamGuard {
    count: Rc<Cell<usize>>,
    connection: Rc<Connection>,
}

impl StreamGuard {
    fn new(count: &Rc<Cell<usize>>, connection: &Rc<Connection>) -> Self {
        count.set(count.get() + 1);
        connection.handle.begins();
        Self { count: count.clone(), connection: connection.clone() }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.connection.handle.ends();
        if self.count.get() == 0 {
            // Its time without a stream begins.
            self.connection.handle.wake();
        }
    }
}

/// The reason why a connection failed, counted if the client broke a rule.
fn reason_of(connection: &Connection, error: &h2::Error) -> CloseReason {
    if let Some(reason) = connection.handle.ending() {
        return reason;
    }
    if error.is_io() {
        let is_end = error.get_io().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        return if is_end { CloseReason::ClientClosed } else { CloseReason::ClientReset };
    }
    if error.is_remote() {
        return CloseReason::ClientClosed;
    }
    match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => {
            connection.violated("http2_flood", "more streams or frames than are bearable")
        }
        Some(Reason::COMPRESSION_ERROR) => connection.violated("http2_compression", "malformed header compression"),
        Some(Reason::FLOW_CONTROL_ERROR) => connection.violated("http2_flow_control", "more bytes than were allowed"),
        Some(Reason::FRAME_SIZE_ERROR) => connection.violated("http2_frame_size", "a frame of the wrong size"),
        _ => connection.violated("http2_protocol", "a rule of HTTP/2 was broken"),
    }
}
