//! Typed events from a worker to the control thread, which formats and writes them.
//!
//! The ring is bounded and never blocks: when it is full the event is dropped and counted. Redaction happens here, by
//! type: no event has a field that could hold a key, a value, an argument or a secret of a database. Of an HTTP request
//! there are its path without the query and some fields, cut and made printable: see [`HttpAccess`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;

use weir_base::{Culprit, Time, Violation};

/// Who is at the other end of a client connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// An address, from the socket or from a trusted PROXY header.
    Ip(SocketAddr),
    /// A Unix socket, which has none.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ip(address) => address.fmt(f),
            Peer::Unix => f.write_str("unix"),
        }
    }
}

/// One exchange that was chosen for the access log.
#[derive(Clone, Debug)]
pub struct AccessRecord {
    /// When the reply was complete.
    pub at: Time,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The client.
    pub peer: Peer,
    /// Number of the client connection, unique in the process.
    pub connection: u64,
    /// Name from the command table, or `unknown`; never what the client wrote.
    pub command: &'static str,
    /// Name of the upstream; none if the gateway answered by itself.
    pub upstream: Option<Arc<str>>,
    /// From head complete to the end of the reply, in nanoseconds.
    pub duration_nanos: u64,
    /// The part of it spent waiting for the upstream, in nanoseconds.
    pub upstream_nanos: u64,
    /// Bytes of the request.
    pub request_bytes: u64,
    /// Bytes of the reply.
    pub reply_bytes: u64,
    /// `ok`, `error`, or the reason the gateway refused.
    pub outcome: &'static str,
    /// Of an HTTP request. Its `request_bytes` are those of its body, its `reply_bytes` all that the client was sent.
    pub http: Option<Box<HttpAccess>>,
}

/// One thing that a line of the access log can say. The words of the file, and the keys of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "the names are those of the fields of `AccessRecord` and `HttpAccess`, times in microseconds"
)]
pub enum AccessField {
    Time,
    Listener,
    Peer,
    Connection,
    Command,
    Upstream,
    DurationUs,
    UpstreamUs,
    RequestBytes,
    ReplyBytes,
    Outcome,
    Status,
    Method,
    Path,
    Protocol,
    Authority,
    Route,
    Endpoint,
    User,
    UserAgent,
    ForwardedFor,
    RequestId,
    TraceId,
}

impl AccessField {
    /// Every one with its word, in the order of a line that has all.
    pub const NAMED: [(&'static str, Self); 23] = [
        ("time", Self::Time),
        ("listener", Self::Listener),
        ("peer", Self::Peer),
        ("connection", Self::Connection),
        ("command", Self::Command),
        ("upstream", Self::Upstream),
        ("duration_us", Self::DurationUs),
        ("upstream_us", Self::UpstreamUs),
        ("request_bytes", Self::RequestBytes),
        ("reply_bytes", Self::ReplyBytes),
        ("outcome", Self::Outcome),
        ("status", Self::Status),
        ("method", Self::Method),
        ("path", Self::Path),
        ("protocol", Self::Protocol),
        ("authority", Self::Authority),
        ("route", Self::Route),
        ("endpoint", Self::Endpoint),
        ("user", Self::User),
        ("user_agent", Self::UserAgent),
        ("forwarded_for", Self::ForwardedFor),
        ("request_id", Self::RequestId),
        ("trace_id", Self::TraceId),
    ];
}

/// Bytes of one text of a client in the access log. Default 1,024; the rest is cut off.
pub const TEXT_BYTES_MAX: usize = 1_024;

/// What the access log says of an HTTP request besides. What a client wrote has gone through [`printable`].
#[derive(Clone, Debug)]
pub struct HttpAccess {
    /// Status of the answer; 0 if it broke off.
    pub status: u16,
    /// Method.
    pub method: Box<str>,
    /// Path as it came, without the query.
    pub path: Box<str>,
    /// `HTTP/1.1`.
    pub protocol: &'static str,
    /// Host and port that were asked for.
    pub authority: Box<str>,
    /// Name of the route.
    pub route: Option<Box<str>>,
    /// Address of the endpoint that was asked last, as configured.
    pub endpoint: Option<Box<str>>,
    /// Who authentication found.
    pub user: Option<Box<str>>,
    /// User-Agent.
    pub user_agent: Option<Box<str>>,
    /// X-Forwarded-For as it came.
    pub forwarded_for: Option<Box<str>>,
    /// X-Request-Id as it went on.
    pub request_id: Option<Box<str>>,
    /// Trace of the W3C trace context as it went on.
    pub trace_id: Option<Box<str>>,
}

/// A text of a client for a log: at most so many bytes, and everything but printable ASCII as `?`, so that nobody writes
/// lines of others or moves a terminal's cursor.
#[must_use]
pub fn printable(text: &[u8], bytes_max: usize) -> Box<str> {
    let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
    text.iter().take(bytes_max).map(shown).collect::<String>().into()
}

/// The gateway closed a connection to defend itself.
#[derive(Clone, Debug)]
pub struct DefensiveClose {
    /// When.
    pub at: Time,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The client.
    pub peer: Peer,
    /// Number of the client connection, unique in the process.
    pub connection: u64,
    /// What was broken, by whom, with count and limit.
    pub violation: Violation,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// Requests or connections were refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// When.
    pub at: Time,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// Stable word: the limit that said no.
    pub reason: &'static str,
    /// Whose limit or fault it is.
    pub culprit: Culprit,
    /// How full it was.
    pub count: u64,
    /// How full it may be.
    pub limit: u64,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// A user was denied something by its rules or limits.
#[derive(Clone, Debug)]
pub struct Denial {
    /// When.
    pub at: Time,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The client.
    pub peer: Peer,
    /// Number of the client connection, unique in the process.
    pub connection: u64,
    /// The user, as the configuration names it.
    pub user: String,
    /// Stable word: what it was denied for.
    pub reason: &'static str,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// Something changed at an upstream.
#[derive(Clone, Debug)]
pub struct UpstreamEvent {
    /// When.
    pub at: Time,
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// Address of the endpoint, as configured.
    pub endpoint: Arc<str>,
    /// What changed.
    pub change: UpstreamChange,
    /// Stable word for why.
    pub reason: &'static str,
    /// The operating system's or the server's own words, if any; already free of secrets.
    pub detail: Option<Box<str>>,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// What can change at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamChange {
    /// The endpoint is healthy again.
    Up,
    /// The endpoint failed its health checks or its traffic.
    Down,
    /// A lane ended.
    LaneClosed,
    /// A lane could not be made.
    ConnectFailed,
    /// The breaker opened.
    BreakerOpened,
    /// An endpoint that answered badly is left out for a while.
    Ejected,
    /// The breaker lets trial requests through.
    BreakerHalfOpen,
    /// The breaker closed.
    BreakerClosed,
    /// Subscriptions were without a server for a moment: their messages are lost.
    SubscriptionGap,
    /// The keys of tokens could not be had from it.
    JwksFailed,
}

impl UpstreamChange {
    /// The stable snake_case word used in logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            UpstreamChange::Up => "up",
            UpstreamChange::Down => "down",
            UpstreamChange::LaneClosed => "lane_closed",
            UpstreamChange::ConnectFailed => "connect_failed",
            UpstreamChange::BreakerOpened => "breaker_opened",
            UpstreamChange::Ejected => "ejected",
            UpstreamChange::BreakerHalfOpen => "breaker_half_open",
            UpstreamChange::BreakerClosed => "breaker_closed",
            UpstreamChange::SubscriptionGap => "subscription_gap",
            UpstreamChange::JwksFailed => "jwks_failed",
        }
    }
}

/// The tail of a storm: lines that sampling left out and no later line has told of.
#[derive(Clone, Debug)]
pub struct Suppressed {
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The reason of those lines.
    pub reason: &'static str,
    /// How many.
    pub count: u64,
}

/// What a worker has to tell.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// See [`AccessRecord`].
    Access(AccessRecord),
    /// See [`DefensiveClose`].
    Close(DefensiveClose),
    /// See [`Refusal`].
    Refusal(Refusal),
    /// See [`Denial`].
    Denial(Denial),
    /// See [`UpstreamEvent`].
    Upstream(UpstreamEvent),
    /// See [`Suppressed`].
    Suppressed(Suppressed),
}

struct Ring {
    events: ArrayQueue<LogEvent>,
    dropped: AtomicU64,
}

/// The worker's end. Cheap to clone within the worker.
#[derive(Clone)]
pub struct LogWriter(Arc<Ring>);

/// The control thread's end.
pub struct LogReader(Arc<Ring>);

/// A ring for `capacity` events (at least one), one per worker;
/// see [`weir_base::limits::LOG_RING_EVENTS`] for the default.
#[must_use]
pub fn log_ring(capacity: usize) -> (LogWriter, LogReader) {
    let ring = Arc::new(Ring { events: ArrayQueue::new(capacity.max(1)), dropped: AtomicU64::new(0) });
    (LogWriter(ring.clone()), LogReader(ring))
}

impl LogWriter {
    /// Events dropped so far because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Queues the event, or drops it and counts if the ring is full. Never waits. Returns whether it was queued.
    pub fn push(&self, event: LogEvent) -> bool {
        let queued = self.0.events.push(event).is_ok();
        if !queued {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        queued
    }
}

impl LogReader {
    /// The oldest event that is queued.
    pub fn pop(&self) -> Option<LogEvent> {
        self.0.events.pop()
    }

    /// Events dropped so far because the ring was full; for `weir_log_events_dropped_total`.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(count: u64) -> LogEvent {
        LogEvent::Refusal(Refusal {
            at: Time::ZERO,
            listener: Arc::from("cache"),
            reason: "lane_queue_full",
            culprit: Culprit::Gateway,
            count,
            limit: 1,
            suppressed: 0,
        })
    }

    fn count_of(event: &LogEvent) -> u64 {
        match event {
            LogEvent::Refusal(refusal) => refusal.count,
            other => panic!("unexpected {other:?}"),
        }
    }

    #[test]
    fn a_full_ring_drops_the_newest_and_counts() {
        let (writer, reader) = log_ring(2);
        let queued: Vec<bool> = (0..4).map(|n| writer.push(refusal(n))).collect();
        assert_eq!(queued, [true, true, false, false]);
        assert_eq!(reader.dropped(), 2);
        let events: Vec<u64> = std::iter::from_fn(|| reader.pop()).map(|event| count_of(&event)).collect();
        assert_eq!(events, [0, 1]);
        assert!(writer.push(refusal(9)), "room again");
    }

    #[test]
    fn events_cross_threads_in_order_and_none_is_lost_uncounted() {
        let (writer, reader) = log_ring(64);
        let thread = std::thread::spawn(move || (0..20_000).filter(|&n| writer.push(refusal(n))).count());
        let (mut seen, mut last) = (0, None);
        loop {
            let finished = thread.is_finished();
            while let Some(event) = reader.pop() {
                let count = count_of(&event);
                assert!(last < Some(count));
                last = Some(count);
                seen += 1;
            }
            if finished {
                break;
            }
        }
        let queued = thread.join().unwrap();
        assert_eq!(seen, queued);
        assert_eq!(queued as u64 + reader.dropped(), 20_000);
    }

    #[test]
    fn an_event_is_small_enough_for_the_ring_bound() {
        assert!(size_of::<LogEvent>() <= 200, "{}", size_of::<LogEvent>());
    }
}
