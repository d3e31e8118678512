//! One connection: a line, its exchange, its answer, until one side ends it.

use std::{
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt as _;
use weir_base::{
    error::Culprit,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Account as _, Chunk, Deadline, Stream};
use weir_listener::{Arrival, CloseReason, ConnectionHandle, DRAIN_GAP, Drain, Session as ListedSession};
use weir_telemetry::access::AccessRecord;

use crate::{exchange::exchange, line::Lines, service::Service, settings::IDLE_TIMEOUT};

/// How long a closed connection may take to let the peer read the last bytes.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// One client connection, as its listener sees it.
pub(crate) struct Connection {
    service: Rc<Service>,
    handle: ConnectionHandle,
}

impl ListedSession for Connection {
    fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }
}

/// Serves one admitted connection until it ends.
pub(crate) async fn serve(service: Rc<Service>, arrival: Arrival) {
    let Arrival { mut stream, guard, peer, .. } = arrival;
    let transport = Box::new(stream.cutter());
    let handle = ConnectionHandle::new(guard, peer, Some(transport), &service.sessions.core().bytes);
    stream.output.charge_to(Some(handle.account().clone()));
    let connection = Rc::new(Connection { service, handle });
    let sessions = &connection.service.sessions;
    let opened = sessions.open(connection.clone());
    connection.handle.entry().details().version = "ECHO";
    let lines = Lines::new(connection.service.line_bytes_max());
    let mut session = Session { connection: &connection, lines, charged: 0, deadline: weir_engine::deadline() };
    let life = AssertUnwindSafe(session.run(&mut stream)).catch_unwind();
    let reason = match life.await {
        Ok(reason) => connection.handle.ending().unwrap_or(reason),
        Err(_) => sessions.panicked(&connection.handle, "the session of a connection panicked"),
    };
    session.charge(0);
    opened.close(reason);
    sessions.written(stream.output.appended());
    if connection.handle.ending().is_none() {
        stream.close(LINGER_TIMEOUT).await;
    }
}

struct Session<'a> {
    connection: &'a Connection,
    lines: Lines,
    /// Bytes of `lines` that the account has.
    charged: usize,
    deadline: Deadline,
}

impl Session<'_> {
    async fn run(&mut self, stream: &mut Stream) -> CloseReason {
        loop {
            let line = match self.line(stream).await {
                Ok(line) => line,
                Err(reason) => return reason,
            };
            self.connection.handle.begins();
            let answered = self.answer(&line, stream).await;
            self.connection.handle.ends();
            if let Err(reason) = answered {
                return reason;
            }
            if stream.output.is_congested() && !stream.output.drained(limits::WRITE_IDLE_TIMEOUT).await {
                return CloseReason::ClientReset;
            }
        }
    }

    /// Answers a line; a listener that ends the connection does not wait for it.
    async fn answer(&self, line: &[u8], stream: &Stream) -> Result<(), CloseReason> {
        let (service, handle) = (&self.connection.service, &self.connection.handle);
        let begun = turn::now();
        let mut exchange = pin!(exchange(service, handle, line));
        let ended = poll_fn(|context| match handle.poll_ending(context) {
            Some(reason) => Poll::Ready(Err(reason)),
            None => exchange.as_mut().poll(context).map(Ok),
        });
        let answer = ended.await?;
        let (outcome, written) = match &answer {
            Ok(answer) => ("ok", said(stream, &[answer, b"\n"])),
            Err(word) => (*word, refuse(stream, word)),
        };
        if service.sessions.samples_access() {
            let upstream = service.upstream();
            service.sessions.log_access(&AccessRecord {
                listener: service.sessions.name(),
                peer: handle.peer(),
                connection: handle.id(),
                command: "line",
                upstream: Some(&upstream.settings().name),
                duration_nanos: turn::now().nanos_since(begun),
                upstream_nanos: turn::now().nanos_since(begun),
                request_bytes: line.len() as u64 + 1,
                reply_bytes: written,
                outcome,
                http: None,
            });
        }
        Ok(())
    }

    /// The next line of the client.
    async fn line(&mut self, stream: &mut Stream) -> Result<Vec<u8>, CloseReason> {
        let mut since = turn::now();
        loop {
            match self.lines.take() {
                Ok(Some(line)) => {
                    self.charge(self.lines.len());
                    return Ok(line);
                }
                Ok(None) => {}
                Err(_) => {
                    refuse(stream, "line_too_long");
                    return Err(self.violated("line_too_long", "a line is longer than line_bytes_max"));
                }
            }
            let chunk = poll_fn(|context| self.poll_chunk(stream, since, context)).await?;
            if self.lines.is_empty() {
                since = turn::now();
            }
            self.connection.service.sessions.read(chunk.len() as u64);
            self.lines.push(&chunk);
            if !self.charge(self.lines.len()) {
                refuse(stream, "buffered_bytes");
                return Err(CloseReason::Broken { reason: "buffered_bytes", culprit: Culprit::Gateway });
            }
        }
    }

    /// Bytes of the client, or the end of the wait for them, which began at `since`.
    fn poll_chunk(
        &self,
        stream: &mut Stream,
        since: Time,
        context: &mut Context<'_>,
    ) -> Poll<Result<Chunk, CloseReason>> {
        if let Some(reason) = self.connection.handle.poll_ending(context) {
            return Poll::Ready(Err(reason));
        }
        match stream.reader.poll_receive(context) {
            Poll::Ready(Ok(Some(chunk))) => return Poll::Ready(Ok(chunk)),
            Poll::Ready(Ok(None)) => return Poll::Ready(Err(CloseReason::ClientClosed)),
            Poll::Ready(Err(_)) => return Poll::Ready(Err(CloseReason::ClientReset)),
            Poll::Pending => {}
        }
        let sessions = &self.connection.service.sessions;
        let settings = sessions.settings();
        let (limit, is_draining) = match sessions.drain_state() {
            _ if !self.lines.is_empty() => (settings.head_timeout, false),
            Drain::Off => (settings.idle_timeout.unwrap_or(IDLE_TIMEOUT), false),
            Drain::Gentle => (DRAIN_GAP, true),
            Drain::Firm => return Poll::Ready(Err(CloseReason::Drained)),
        };
        self.deadline.set(since.saturating_add(limit));
        self.deadline.poll_expired(context).map(|()| {
            Err(match (is_draining, self.lines.is_empty()) {
                (true, _) => CloseReason::Drained,
                (false, true) => CloseReason::IdleTimeout,
                (false, false) => {
                    refuse(stream, "head_timeout");
                    self.violated("head_timeout", "a line took too long to arrive")
                }
            })
        })
    }

    /// Tells the account that `bytes` are held. False: there is no room for them.
    fn charge(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.charged, bytes);
        self.connection.handle.account().charge(before, bytes)
    }

    fn violated(&self, reason: &'static str, text: &'static str) -> CloseReason {
        let Connection { service, handle } = self.connection;
        service.sessions.violated(handle, &Violation::rule(reason, Culprit::Client, text))
    }
}

/// Writes a refusal in the form of the protocol: `!` and a word. Returns its bytes.
fn refuse(stream: &Stream, word: &str) -> u64 {
    said(stream, &[b"!", word.as_bytes(), b"\n"])
}

fn said(stream: &Stream, parts: &[&[u8]]) -> u64 {
    parts.iter().for_each(|part| stream.output.append(part));
    parts.iter().map(|part| part.len() as u64).sum()
}
