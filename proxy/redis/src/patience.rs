//! How long a connection may keep others waiting: deadlines of whole messages, of silence, and of slow reading.

use std::{rc::Rc, time::Duration};

use weir_base::{
    error::Culprit,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::Deadline;
use weir_listener::{CloseReason, settings::ListenerSettings};

use weir_redis_session::session::Next;

use crate::connection::Connection;

/// A large command must bring at least this many bytes in each [`RATE_WINDOW`], once it is under way.
const RATE_BYTES_MIN: usize = 10 * 1024;
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Action after a deadline has passed.
pub(crate) enum Overdue {
    Nothing,
    Wake,
    /// The held command has waited for room long enough.
    RefuseHeld,
    End(CloseReason),
    Violation(Violation),
}

/// The clocks of one connection.
pub(crate) struct Patience {
    settings: Rc<ListenerSettings>,
    armed: Time,
    active: Time,
    closing: Option<Time>,
    stalled: Option<(Time, u64)>,
    streaming: Option<(Time, usize)>,
    room: Option<Time>,
}

impl Patience {
    pub(crate) fn new(settings: Rc<ListenerSettings>) -> Self {
        let active = turn::now();
        Self { settings, armed: Time::NEVER, active, closing: None, stalled: None, streaming: None, room: None }
    }

    /// Bytes of the client arrived.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.active = turn::now();
        if let Some((_, received)) = &mut self.streaming {
            *received += bytes;
        }
    }

    /// Sets the deadline to the earliest of those that apply.
    pub(crate) fn arm(&mut self, deadline: &Deadline, connection: &Connection, next: Next) {
        self.observe(connection, next);
        let due = self.earliest(connection);
        if due != self.armed || deadline.is_expired() {
            self.armed = due;
            deadline.set(due);
        }
    }

    fn observe(&mut self, connection: &Connection, next: Next) {
        let now = turn::now();
        let output = weir_upstream::Waiter::output(connection);
        connection.with_session(|session| {
            track(&mut self.room, session.waits_for_room(), now);
            if !session.is_streaming() || next != Next::Read {
                // While the client is not read, its pace is not its own.
                self.streaming = None;
            } else if self.streaming.is_none() {
                self.streaming = Some((now, 0));
            }
        });
        self.stalled = match self.stalled {
            _ if !output.is_congested() => None,
            Some((since, progress)) if progress == output.progress() => Some((since, progress)),
            _ => Some((now, output.progress())),
        };
        let is_closing = next == Next::Wait && connection.with_session(|session| session.is_closing());
        track(&mut self.closing, is_closing, now);
    }

    fn earliest(&self, connection: &Connection) -> Time {
        let mut due = Time::NEVER;
        let mut at = |since: Option<Time>, limit: Duration| {
            if let Some(since) = since {
                due = due.min(since.saturating_add(limit));
            }
        };
        at(self.room, limits::QUEUE_WAIT_MAX);
        at(self.stalled.map(|(since, _)| since), limits::WRITE_IDLE_TIMEOUT);
        at(self.closing, self.settings.half_close_timeout);
        at(self.streaming.map(|(since, _)| since), RATE_WINDOW);
        let active = self.active.max(connection.replied_at());
        at(connection.drains_after().map(|gap| active.saturating_add(gap)), Duration::ZERO);
        connection.with_session(|session| {
            at(session.partial_since(), self.settings.head_timeout);
            at(session.delay(), Duration::ZERO);
            let is_resting = session.is_quiet() && !session.is_waiting_for_data();
            if let Some(idle) = self.settings.idle_timeout.filter(|_| is_resting) {
                at(Some(active), idle);
            }
        });
        due
    }

    /// The action to take now that the deadline has passed.
    pub(crate) fn overdue(&mut self, connection: &Connection) -> Overdue {
        let now = turn::now();
        let is_past = |since: Option<Time>, limit| since.is_some_and(|since| now >= since.saturating_add(limit));
        if is_past(self.room, limits::QUEUE_WAIT_MAX) {
            return Overdue::RefuseHeld;
        }
        if is_past(self.stalled.map(|(since, _)| since), limits::WRITE_IDLE_TIMEOUT) {
            return Overdue::Violation(slow("slow_reader", "the client takes no replies"));
        }
        if is_past(self.closing, self.settings.half_close_timeout) {
            return Overdue::End(CloseReason::HalfCloseTimeout);
        }
        if let Some((_, received)) = self.streaming.filter(|(since, _)| is_past(Some(*since), RATE_WINDOW)) {
            if received < RATE_BYTES_MIN {
                return Overdue::Violation(slow("slow_request", "a large command arrives too slowly"));
            }
            self.streaming = Some((now, 0));
        }
        let active = self.active.max(connection.replied_at());
        if connection.drains_after().is_some_and(|gap| now >= active.saturating_add(gap)) {
            return Overdue::End(CloseReason::Drained);
        }
        connection.with_session(|session| {
            if is_past(session.partial_since(), self.settings.head_timeout) {
                return Overdue::Violation(slow("head_timeout", "a command was begun and not finished in time"));
            }
            if is_past(session.delay(), Duration::ZERO) {
                return Overdue::Wake;
            }
            match self.settings.idle_timeout {
                Some(idle) if session.is_quiet() && !session.is_waiting_for_data() && is_past(Some(active), idle) => {
                    Overdue::End(CloseReason::IdleTimeout)
                }
                _ => Overdue::Nothing,
            }
        })
    }
}

/// Notes since when something holds.
fn track(since: &mut Option<Time>, holds: bool, now: Time) {
    *since = holds.then(|| since.unwrap_or(now));
}

fn slow(reason: &'static str, text: &'static str) -> Violation {
    Violation::rule(reason, Culprit::Client, text)
}
