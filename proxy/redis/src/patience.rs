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
    /// Since when the session is about to end. [`Time::NEVER`]: it is not. So for the next three.
    closing: Time,
    /// Since when its client takes no replies.
    stalled: Time,
    /// Since when a large command arrives.
    streaming: Time,
    /// Since when a command waits for room.
    room: Time,
    /// Bytes that the client had taken when it stalled.
    progress: u64,
    /// Bytes of the large command that arrived since then.
    streamed: usize,
}

impl Patience {
    pub(crate) fn new(settings: Rc<ListenerSettings>) -> Self {
        let (active, never) = (turn::now(), Time::NEVER);
        let (closing, stalled, streaming, room) = (never, never, never, never);
        Self { settings, armed: never, active, closing, stalled, streaming, room, progress: 0, streamed: 0 }
    }

    /// Bytes of the client arrived.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.active = turn::now();
        self.streamed += bytes;
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
                self.streaming = Time::NEVER;
            } else if self.streaming == Time::NEVER {
                (self.streaming, self.streamed) = (now, 0);
            }
        });
        if !output.is_congested() {
            self.stalled = Time::NEVER;
        } else if self.stalled == Time::NEVER || self.progress != output.progress() {
            (self.stalled, self.progress) = (now, output.progress());
        }
        let is_closing = next == Next::Wait && connection.with_session(|session| session.is_closing());
        track(&mut self.closing, is_closing, now);
    }

    fn earliest(&self, connection: &Connection) -> Time {
        let mut due = Time::NEVER;
        let mut at = |since: Time, limit: Duration| due = due.min(since.saturating_add(limit));
        at(self.room, limits::QUEUE_WAIT_MAX);
        at(self.stalled, limits::WRITE_IDLE_TIMEOUT);
        at(self.closing, self.settings.half_close_timeout);
        at(self.streaming, RATE_WINDOW);
        let active = self.active.max(connection.replied_at());
        if let Some(gap) = connection.drains_after() {
            at(active, gap);
        }
        connection.with_session(|session| {
            at(session.partial_since().unwrap_or(Time::NEVER), self.settings.head_timeout);
            at(session.delay().unwrap_or(Time::NEVER), Duration::ZERO);
            let is_resting = session.is_quiet() && !session.is_waiting_for_data();
            if let Some(idle) = self.settings.idle_timeout.filter(|_| is_resting) {
                at(active, idle);
            }
        });
        due
    }

    /// The action to take now that the deadline has passed.
    pub(crate) fn overdue(&mut self, connection: &Connection) -> Overdue {
        let now = turn::now();
        let is_past = |since: Time, limit| now >= since.saturating_add(limit);
        if is_past(self.room, limits::QUEUE_WAIT_MAX) {
            return Overdue::RefuseHeld;
        }
        if is_past(self.stalled, limits::WRITE_IDLE_TIMEOUT) {
            return Overdue::Violation(slow("slow_reader", "the client takes no replies"));
        }
        if is_past(self.closing, self.settings.half_close_timeout) {
            return Overdue::End(CloseReason::HalfCloseTimeout);
        }
        if is_past(self.streaming, RATE_WINDOW) {
            if self.streamed < RATE_BYTES_MIN {
                return Overdue::Violation(slow("slow_request", "a large command arrives too slowly"));
            }
            (self.streaming, self.streamed) = (now, 0);
        }
        let active = self.active.max(connection.replied_at());
        if connection.drains_after().is_some_and(|gap| is_past(active, gap)) {
            return Overdue::End(CloseReason::Drained);
        }
        connection.with_session(|session| {
            if is_past(session.partial_since().unwrap_or(Time::NEVER), self.settings.head_timeout) {
                return Overdue::Violation(slow("head_timeout", "a command was begun and not finished in time"));
            }
            if is_past(session.delay().unwrap_or(Time::NEVER), Duration::ZERO) {
                return Overdue::Wake;
            }
            match self.settings.idle_timeout {
                Some(idle) if session.is_quiet() && !session.is_waiting_for_data() && is_past(active, idle) => {
                    Overdue::End(CloseReason::IdleTimeout)
                }
                _ => Overdue::Nothing,
            }
        })
    }
}

/// Notes since when something holds.
fn track(since: &mut Time, holds: bool, now: Time) {
    *since = if holds { now.min(*since) } else { Time::NEVER };
}

fn slow(reason: &'static str, text: &'static str) -> Violation {
    Violation::rule(reason, Culprit::Client, text)
}
