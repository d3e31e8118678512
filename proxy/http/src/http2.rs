//! A client that speaks HTTP/2: its connection, on which every stream is one exchange.
//!
//! Frames, header compression, flow control and the rules of the protocol are those of [`weir_http2_codec`]. The task of the connection
//! reads; each stream has a task of its own. They share the codec by [`machine::Machine`], on the clients' side and on the origins'.

mod body;
mod control;
mod flow;
mod machine;
pub(crate) mod origin;
pub(crate) mod preface;
pub(crate) mod probe;
mod response_stream;
mod stall;
mod stream;
mod stream_handle;
mod tunnel;
pub(crate) mod windows;

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, ready},
};

use weir_base::time::turn;
use weir_engine::{Chunk, Deadline, Stream};
use weir_http_codec::WireError;
use weir_http2_codec::{Connection as Codec, ConnectionConfig, Event, ProtocolError, Request, ResetCause, StreamId};
use weir_listener::CloseReason;

use self::{
    control::WindowControl,
    machine::{DrivenMachine, Machine},
    stall::StallWatch,
    stream_handle::StreamHandle,
    windows::CREDIT_BYTES,
};
use crate::{
    connection::Connection,
    failure::{STALLED, STALLED_TEXT},
    limits::LINGER_TIMEOUT,
};

/// Serves a connection whose first bytes are `received`. Returns the reason of its end, and the stream.
pub(crate) async fn run(connection: &Rc<Connection>, stream: Stream, received: &[u8]) -> (CloseReason, Option<Stream>) {
    connection.handle.entry().details().version = "HTTP/2";
    let mut driver = Driver::new(connection, stream);
    let reason = driver.run(received).await;
    let Driver { machine, stream, .. } = driver;
    drop(machine);
    (reason, Some(stream))
}

fn config(connection: &Connection) -> ConnectionConfig {
    let http = connection.service.http();
    ConnectionConfig {
        streams_max: http.http2_streams_max,
        stream_window: http.http2_windows.initial,
        connection_window: CREDIT_BYTES as u32,
        connect_protocol: connection.service.routing().offers_websocket,
        ..ConnectionConfig::default()
    }
}

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The preface is to come.
    Preface,
    /// Streams are taken.
    Open,
    /// No further stream is taken, for this reason.
    GoingAway(CloseReason),
}

/// Reads one connection.
struct Driver<'a> {
    connection: &'a Rc<Connection>,
    stream: Stream,
    machine: DrivenMachine,
    control: WindowControl,
    stage: Stage,
    /// Streams with a response under way.
    open_streams: Rc<Cell<usize>>,
    was_busy: bool,
    /// Deadline of the preface, and of a connection without a stream.
    deadline: Deadline,
    stall: StallWatch,
}

impl<'a> Driver<'a> {
    fn new(connection: &'a Rc<Connection>, stream: Stream) -> Self {
        let sessions = &connection.service.sessions;
        let machine = Machine::new(Codec::server(config(connection)), stream.output.clone());
        let windows = connection.service.http().http2_windows;
        let control = WindowControl::new(&machine, windows, sessions.core().bytes.clone());
        let deadline = weir_engine::deadline();
        deadline.set(turn::now().saturating_add(sessions.settings().head_timeout));
        let (stage, open_streams, was_busy) = (Stage::Preface, Rc::default(), false);
        let (machine, stall) = (DrivenMachine::new(machine), StallWatch::new());
        Self { connection, stream, machine, control, stage, open_streams, was_busy, deadline, stall }
    }

    /// Reads, and begins the streams that come, until there is a reason to end.
    async fn run(&mut self, received: &[u8]) -> CloseReason {
        self.machine.receive(received);
        match self.take_events() {
            Some(reason) => reason,
            None => poll_fn(|context| self.poll(context)).await,
        }
    }

    /// Ready with the reason of the end.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        if let Some(reason) = self.connection.handle.poll_ending(context) {
            return Poll::Ready(reason);
        }
        if self.stage == Stage::Open && self.connection.is_draining() {
            self.go_away(CloseReason::Drained);
        }
        self.machine.poll_driven(context);
        self.control.poll(context);
        let received = self.poll_receive(context);
        // Until the preface is here, the time for that counts.
        if self.stage != Stage::Preface {
            self.machine.poll_deadlines(context);
        }
        if let Some(reason) = self.take_events() {
            return Poll::Ready(reason);
        }
        match received {
            _ if self.machine.is_over() => Poll::Ready(self.reason()),
            Poll::Ready(Ok(Some(_))) => {
                // The streams have their turn before more is read.
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(ended) => Poll::Ready(self.reason_of(ended)),
            Poll::Pending if self.poll_stalled(context).is_ready() => Poll::Ready(self.stalled()),
            Poll::Pending => self.poll_idle(context),
        }
    }

    /// Reads. A client that sends requests and does not read the responses is not read.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        if self.machine.is_congested() {
            return Poll::Pending;
        }
        let received = self.stream.reader.poll_receive(context);
        if let Poll::Ready(Ok(Some(chunk))) = &received {
            self.machine.receive(chunk);
        }
        received
    }

    /// Takes all events; gives the reason if the connection ends with one.
    fn take_events(&mut self) -> Option<CloseReason> {
        while let Some(event) = self.machine.next_event() {
            match event {
                Event::Request(stream, request) => self.serve(stream, request),
                Event::Reset(_, ResetCause::Breach(error)) | Event::Refused(error) => {
                    self.connection.violated(error.reason(), error.text());
                }
                Event::Failed(error) => return Some(self.failed(error)),
                Event::Settings if self.stage == Stage::Preface => {
                    self.stage = Stage::Open;
                    self.start_idle_time();
                }
                Event::Pong => self.control.measured(),
                _ => {}
            }
        }
        None
    }

    /// The reason of a connection that ends for a rule that the client broke: of one of a few kinds.
    fn failed(&self, error: ProtocolError) -> CloseReason {
        self.connection.handle.ending().unwrap_or_else(|| self.connection.violated(error.class(), error.text()))
    }

    /// The reason of a connection whose client does not read.
    fn stalled(&self) -> CloseReason {
        self.connection.handle.ending().unwrap_or_else(|| self.connection.violated(STALLED, STALLED_TEXT))
    }

    /// The reason of a connection that ends in order.
    fn reason(&self) -> CloseReason {
        if let Stage::GoingAway(reason) = self.stage { reason } else { CloseReason::ClientClosed }
    }

    /// The reason of a connection that the client has ended.
    fn reason_of(&self, ended: io::Result<Option<Chunk>>) -> CloseReason {
        match ended {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => CloseReason::ClientReset,
            _ => self.reason(),
        }
    }

    fn go_away(&mut self, reason: CloseReason) {
        self.stage = Stage::GoingAway(reason);
        self.machine.with(Codec::shut_down);
        self.start_idle_time();
    }

    /// The time without a stream begins: after a GOAWAY, a client only has to close.
    fn start_idle_time(&self) {
        let timeout = match self.stage {
            Stage::GoingAway(_) => LINGER_TIMEOUT,
            Stage::Preface | Stage::Open => self.connection.service.keep_alive_timeout(),
        };
        self.deadline.set(turn::now().saturating_add(timeout));
    }

    /// Ready if the client takes nothing. While there are streams, and it is read, each of them has a deadline for that.
    fn poll_stalled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let is_alone = self.open_streams.get() == 0 && self.machine.is_waiting();
        self.stall.poll_stalled(&self.stream.output, is_alone || self.machine.is_congested(), context)
    }

    /// Ready if the time without a stream is over.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<CloseReason> {
        let is_busy = self.open_streams.get() > 0 || self.machine.is_waiting();
        if std::mem::replace(&mut self.was_busy, is_busy) && !is_busy {
            self.start_idle_time();
        }
        if is_busy {
            return Poll::Pending;
        }
        ready!(self.deadline.poll_expired(context));
        match self.stage {
            Stage::Preface => Poll::Ready(self.connection.violated("head_timeout", "no preface in time")),
            Stage::GoingAway(reason) => Poll::Ready(reason),
            Stage::Open => {
                self.go_away(CloseReason::IdleTimeout);
                self.deadline.poll_expired(context).map(|()| CloseReason::IdleTimeout)
            }
        }
    }

    /// Serves one stream in a task of its own.
    fn serve(&mut self, stream: StreamId, request: Result<Request, WireError>) {
        // Its response may be over before the driver looks again.
        self.was_busy = true;
        let (connection, open) = (self.connection.clone(), StreamGuard::new(&self.open_streams, self.connection));
        let stream = StreamHandle::new(&self.machine, stream);
        // The future has some kilobytes: in a box it moves once, and not through each layer of the runtime.
        weir_engine::spawn(Box::pin(async move {
            let _open = open;
            stream::serve(&connection, stream, request).await;
        }))
        .detach();
    }
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
