//! Typed events from a worker to the log's thread, which formats and writes them, and finished lines of the access log.
//!
//! Both are bounded and never block: when there is no room, the event or line is dropped and counted. Redaction happens by
//! type: no event has a field that could hold a key, a value, an argument or a secret of a database.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

use weir_base::{Culprit, Time, Violation, limits};

use crate::access::{AccessForm, AccessRecord};

/// Kind of the peer of a client connection.
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
    /// The broken rule and the culprit, with count and limit.
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
    /// The changes.
    pub change: UpstreamChange,
    /// Stable word for why.
    pub reason: &'static str,
    /// The operating system's or the server's own words, if any; already free of secrets.
    pub detail: Option<Box<str>>,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// Changes at an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamChange {
    /// The endpoint is healthy again.
    Up,
    /// The first health check of the endpoint failed: at a start, or after a reload that added it.
    Unreachable,
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
    /// A server was left out of those that a name leads to.
    LeftOut,
    /// A standby was promoted.
    Primary,
    /// A primary has become a standby.
    Standby,
}

impl UpstreamChange {
    /// The stable snake_case word used in logs and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            UpstreamChange::Up => "up",
            UpstreamChange::Unreachable => "unreachable",
            UpstreamChange::Down => "down",
            UpstreamChange::LaneClosed => "lane_closed",
            UpstreamChange::ConnectFailed => "connect_failed",
            UpstreamChange::BreakerOpened => "breaker_opened",
            UpstreamChange::Ejected => "ejected",
            UpstreamChange::BreakerHalfOpen => "breaker_half_open",
            UpstreamChange::BreakerClosed => "breaker_closed",
            UpstreamChange::SubscriptionGap => "subscription_gap",
            UpstreamChange::JwksFailed => "jwks_failed",
            UpstreamChange::LeftOut => "left_out",
            UpstreamChange::Primary => "primary",
            UpstreamChange::Standby => "standby",
        }
    }
}

/// The series of [`SlowStatement`].
pub const SLOW_STATEMENT: &str = "slow_statement";

/// A statement of a database client took longer than the limit of the configuration.
#[derive(Clone, Debug)]
pub struct SlowStatement {
    /// When it ended.
    pub at: Time,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The client.
    pub peer: Peer,
    /// Number of the client connection, unique in the process.
    pub connection: u64,
    /// The user, as the client names it.
    pub user: String,
    /// The database, as the client names it.
    pub database: String,
    /// The class of the statement, if its text is known.
    pub class: Option<&'static str>,
    /// The fingerprint of its text, if that is known: it has no literal.
    pub fingerprint: Option<u64>,
    /// The time of its server.
    pub duration: Duration,
    /// Lines like this one that sampling left out since the last.
    pub suppressed: u64,
}

/// Lines that sampling left out of a series that is over.
#[derive(Clone, Debug)]
pub struct Suppressed {
    /// When that was known.
    pub at: Time,
    /// The listener, or the endpoint behind its upstream.
    pub of: Arc<str>,
    /// The stable word of the series.
    pub reason: &'static str,
    /// Lines left out since the last one that was written.
    pub count: u64,
}

/// A message of a worker.
#[derive(Clone, Debug)]
pub enum LogEvent {
    /// See [`DefensiveClose`].
    Close(DefensiveClose),
    /// See [`Refusal`].
    Refusal(Refusal),
    /// See [`Denial`].
    Denial(Denial),
    /// See [`UpstreamEvent`].
    Upstream(UpstreamEvent),
    /// See [`SlowStatement`].
    Slow(SlowStatement),
    /// See [`Suppressed`].
    Suppressed(Suppressed),
}

impl LogEvent {
    /// When it happened.
    #[must_use]
    pub fn at(&self) -> Time {
        match self {
            LogEvent::Close(close) => close.at,
            LogEvent::Refusal(refusal) => refusal.at,
            LogEvent::Denial(denial) => denial.at,
            LogEvent::Upstream(event) => event.at,
            LogEvent::Slow(slow) => slow.at,
            LogEvent::Suppressed(tail) => tail.at,
        }
    }

    /// The listener, or the endpoint behind its upstream: with the reason, the series that sampling knows it by.
    #[must_use]
    pub fn of(&self) -> Arc<str> {
        match self {
            LogEvent::Close(close) => close.listener.clone(),
            LogEvent::Refusal(refusal) => refusal.listener.clone(),
            LogEvent::Denial(denial) => denial.listener.clone(),
            LogEvent::Upstream(event) => endpoint_of(&event.upstream, &event.endpoint),
            LogEvent::Slow(slow) => slow.listener.clone(),
            LogEvent::Suppressed(tail) => tail.of.clone(),
        }
    }

    /// The stable word of the series.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            LogEvent::Close(close) => close.violation.reason,
            LogEvent::Refusal(refusal) => refusal.reason,
            LogEvent::Denial(denial) => denial.reason,
            LogEvent::Upstream(event) => event.change.as_str(),
            LogEvent::Slow(_) => SLOW_STATEMENT,
            LogEvent::Suppressed(tail) => tail.reason,
        }
    }

    /// Lines that it stands for besides itself: those left out before it, or those of a series that is over.
    #[must_use]
    pub fn suppressed(&self) -> u64 {
        match self {
            LogEvent::Close(close) => close.suppressed,
            LogEvent::Refusal(refusal) => refusal.suppressed,
            LogEvent::Denial(denial) => denial.suppressed,
            LogEvent::Upstream(event) => event.suppressed,
            LogEvent::Slow(slow) => slow.suppressed,
            LogEvent::Suppressed(tail) => tail.count,
        }
    }
}

/// An endpoint as series of events know it.
#[must_use]
pub fn endpoint_of(upstream: &str, endpoint: &str) -> Arc<str> {
    format!("{upstream} {endpoint}").into()
}

/// Memory that is kept for lines to come.
const SPARE_BYTES_MAX: usize = 256 << 10;

struct Ring {
    events: ArrayQueue<LogEvent>,
    /// How lines of the access log are written; `None`: they are not.
    form: Option<AccessForm>,
    /// Lines that wait for the reader. The writer takes them out to add one and puts them back; the reader takes them for good.
    lines: ArrayQueue<Vec<u8>>,
    /// Buffers that the reader has written out, kept for their memory.
    spare: ArrayQueue<Vec<u8>>,
    dropped: AtomicU64,
}

/// The worker's end. Cheap to clone within the worker.
#[derive(Clone)]
pub struct LogWriter(Arc<Ring>);

/// The end of the log's thread.
pub struct LogReader(Arc<Ring>);

/// A ring for `capacity` events (at least one), one per worker; see [`weir_base::limits::LOG_RING_EVENTS`] for the default.
/// With a `form` there is an access log, of which [`limits::ACCESS_LINES_BYTES_MAX`] may wait.
#[must_use]
pub fn log_ring(capacity: usize, form: Option<AccessForm>) -> (LogWriter, LogReader) {
    let ring = Arc::new(Ring {
        events: ArrayQueue::new(capacity.max(1)),
        form,
        lines: ArrayQueue::new(1),
        spare: ArrayQueue::new(1),
        dropped: AtomicU64::new(0),
    });
    (LogWriter(ring.clone()), LogReader(ring))
}

impl LogWriter {
    /// Events and lines dropped so far because there was no room.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// There is an access log.
    #[must_use]
    pub fn has_access_log(&self) -> bool {
        self.0.form.is_some()
    }

    /// Adds the line of an exchange that ends now, or drops it and counts if too many bytes wait. Never blocks: no thread keeps
    /// the lines for longer than it takes to put them back. Only the worker itself may call this.
    pub fn access(&self, record: &AccessRecord<'_>) {
        let Some(form) = &self.0.form else { return };
        let mut lines = self.0.lines.pop().or_else(|| self.0.spare.pop()).unwrap_or_default();
        if lines.len() < limits::ACCESS_LINES_BYTES_MAX {
            form.write(record, &mut lines);
        } else {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        // There is room: no other thread puts lines there.
        let _ = self.0.lines.push(lines);
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

    /// Has the lines of the access log that wait written by `write`, which tells how many were lost. While the worker adds one
    /// there are none.
    pub fn take_lines(&self, write: impl FnOnce(&[u8]) -> u64) {
        let Some(mut lines) = self.0.lines.pop() else { return };
        self.0.dropped.fetch_add(write(&lines), Ordering::Relaxed);
        lines.clear();
        // One burst is no reason to keep its memory.
        lines.shrink_to(SPARE_BYTES_MAX);
        // A spare that is there already is as good.
        let _ = self.0.spare.push(lines);
    }

    /// Events and lines dropped so far because there was no room; for `weir_log_events_dropped_total`.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{AccessField, AccessFormat};

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
        let (writer, reader) = log_ring(2, None);
        let queued: Vec<bool> = (0..4).map(|n| writer.push(refusal(n))).collect();
        assert_eq!(queued, [true, true, false, false]);
        assert_eq!(reader.dropped(), 2);
        let events: Vec<u64> = std::iter::from_fn(|| reader.pop()).map(|event| count_of(&event)).collect();
        assert_eq!(events, [0, 1]);
        assert!(writer.push(refusal(9)), "room again");
    }

    #[test]
    fn events_cross_threads_in_order_and_none_is_lost_uncounted() {
        let (writer, reader) = log_ring(64, None);
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

    fn access(writer: &LogWriter, connection: u64) {
        writer.access(&AccessRecord {
            listener: "cache",
            peer: Peer::Unix,
            connection,
            command: "get",
            upstream: None,
            duration_nanos: 0,
            upstream_nanos: 0,
            request_bytes: 0,
            reply_bytes: 0,
            outcome: "ok",
            http: None,
        });
    }

    fn numbers() -> Option<AccessForm> {
        Some(AccessForm { format: AccessFormat::Text, fields: Some(vec![AccessField::Connection]) })
    }

    #[test]
    fn lines_cross_threads_whole_and_in_order() {
        let (writer, reader) = log_ring(1, numbers());
        let thread = std::thread::spawn(move || (0..100_000).for_each(|number| access(&writer, number)));
        let mut text = Vec::new();
        loop {
            let finished = thread.is_finished();
            reader.take_lines(|lines| {
                text.extend_from_slice(lines);
                0
            });
            if finished {
                break;
            }
        }
        thread.join().unwrap();
        let expected: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        assert!(text == expected.as_bytes() && reader.dropped() == 0);
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        let (writer, reader) = log_ring(1, numbers());
        let all = limits::ACCESS_LINES_BYTES_MAX as u64 / 2;
        (0..all).for_each(|number| access(&writer, number));
        let mut told = 0;
        reader.take_lines(|lines| {
            told = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            0
        });
        assert!(told < all && told + reader.dropped() == all);
        access(&writer, 1);
        let before = reader.dropped();
        reader.take_lines(|lines| {
            assert_eq!(lines, b"1\n", "room again");
            1
        });
        assert_eq!(reader.dropped(), before + 1, "it could not be written");
        let (writer, reader) = log_ring(1, None);
        access(&writer, 1);
        assert!(!writer.has_access_log());
        reader.take_lines(|_| panic!("there is no access log"));
    }

    #[test]
    fn an_event_is_small_enough_for_the_ring_bound() {
        assert!(size_of::<LogEvent>() <= 200, "{}", size_of::<LogEvent>());
    }
}
