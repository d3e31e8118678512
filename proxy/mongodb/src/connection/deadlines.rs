//! The deadlines of a client: one timer for the earliest of them.

use std::time::Duration;

use weir_base::{
    error::Culprit,
    exchange::LossCause,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::Deadline;
use weir_listener::{CloseReason, DRAIN_GAP, Drain};
use weir_mongodb_session::face::Face;

use super::{
    lease::{Link, PINS_INTERVAL},
    life::{Life, Stage},
};
use crate::settings::MongodbListenerSettings;

/// Bytes that a client must take within [`limits::WRITE_IDLE_TIMEOUT`] while it holds a server and more wait for it, or the rest of a reply that
/// was taken in front of it. Default 64 KiB, about 1 KiB a second: a client that takes single bytes would keep a server, or a part of the byte
/// budget, from all others. Otherwise any progress counts.
const TAKEN_BYTES_MIN: u64 = 64 * 1024;

/// How often it is looked whether others wait for the server of a client that takes its reply slowly. Default 100 ms.
const REST_LOOK: Duration = Duration::from_millis(100);

/// The time of a request that wants no reply, up to the reply to the ping behind it.
fn settle_limit(settings: &MongodbListenerSettings) -> Duration {
    settings.request_timeout.map_or(settings.settle_timeout, |limit| limit.min(settings.settle_timeout))
}

/// A client takes too little of its replies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    since: Time,
    /// Bytes that it had taken then.
    taken: u64,
}

impl Stall {
    /// The stall behind that of `before`. `backlog`: bytes that the client has taken so far, while more wait for it.
    fn of(before: Option<Self>, backlog: Option<u64>, least: u64, now: Time) -> Option<Self> {
        let taken = backlog?;
        before.filter(|stall| taken.saturating_sub(stall.taken) < least).or(Some(Self { since: now, taken }))
    }

    fn due(self) -> Time {
        self.since.saturating_add(limits::WRITE_IDLE_TIMEOUT)
    }
}

impl Life<'_> {
    pub(super) fn arm(&mut self, deadline: &Deadline) {
        let backlog = self.output.is_congested().then(|| self.output.progress());
        self.has_rest &= backlog.is_some();
        let least = if self.lease.server.is_some() || self.has_rest { TAKEN_BYTES_MIN } else { 1 };
        self.stalled = Stall::of(self.stalled, backlog, least, turn::now());
        let due = self.due();
        if self.armed != Some(due) {
            self.armed = Some(due);
            deadline.set(due);
        }
    }

    fn due(&self) -> Time {
        let settings = &self.scene.settings;
        let mut due = match &self.stage {
            Stage::Punished(until, _) | Stage::Answering(until, ..) => *until,
            Stage::Awaiting if !self.is_held_back => self.session.deadline().unwrap_or(Time::NEVER),
            Stage::Unpresented => self.active.saturating_add(settings.queue_wait_timeout),
            Stage::Replying | Stage::Relaying => {
                settings.request_timeout.map_or(Time::NEVER, |limit| self.lease.wanted.saturating_add(limit))
            }
            Stage::Flushing => self.lease.wanted.saturating_add(settle_limit(settings)),
            Stage::Request if self.input.is_empty() && self.session.face().is_some() => {
                let idle = settings.client_idle_timeout;
                idle.map_or(Time::NEVER, |limit| self.active.saturating_add(limit))
            }
            _ => Time::NEVER,
        };
        due = due.min(self.login_due());
        if let Some(since) = self.partial_since {
            due = due.min(since.saturating_add(settings.message_timeout));
        }
        if let Some(stall) = self.stalled {
            due = due.min(stall.due());
        }
        if let Some(since) = self.gone_since {
            due = due.min(since.saturating_add(settings.queue_wait_timeout));
        }
        if self.connection.service.sessions.drain_state() == Drain::Gentle && self.lease.server.is_none() {
            due = due.min(self.active.saturating_add(DRAIN_GAP));
        }
        due.min(self.rest_due()).min(self.pins_due())
    }

    /// While a client takes its reply slowly, others may come to wait for its server.
    fn rest_due(&self) -> Time {
        let is_held = matches!(self.stage, Stage::Replying) && matches!(self.lease.server, Some(Link::Pooled(_)));
        if self.stalled.is_some() && is_held { turn::now().saturating_add(REST_LOOK) } else { Time::NEVER }
    }

    /// A client has its time up to its first hello, and again for a login from its beginning. One that says hello and has no need of a login
    /// stays: monitors of drivers are such.
    fn login_due(&self) -> Time {
        let since = match self.session.face() {
            None => Some(self.begun),
            // The delays behind wrong passwords have times of their own.
            Some(_) if matches!(self.stage, Stage::Punished(..) | Stage::Answering(..)) => None,
            Some(_) => self.login_since,
        };
        since.map_or(Time::NEVER, |since| since.saturating_add(self.scene.settings.client_login_timeout))
    }

    /// Pins of the connection's own are looked at once a minute.
    fn pins_due(&self) -> Time {
        match self.session.face() == Some(Face::LoadBalancer) && self.session.has_pins() {
            true => self.lease.pins_seen.saturating_add(PINS_INTERVAL),
            false => Time::NEVER,
        }
    }

    #[cold]
    pub(super) fn on_overdue(&mut self) -> Result<(), CloseReason> {
        self.armed = None;
        let now = turn::now();
        if self.stalled.is_some_and(|stall| now >= stall.due()) {
            let violation = Violation::rule("slow_reader", Culprit::Client, "the client takes its replies too slowly");
            return Err(self.connection.violated(&violation));
        }
        let settings = self.scene.settings.clone();
        if self.gone_since.is_some_and(|since| now >= since.saturating_add(settings.queue_wait_timeout)) {
            return Err(CloseReason::ClientClosed);
        }
        if self.partial_since.is_some_and(|since| now >= since.saturating_add(settings.message_timeout)) {
            if matches!(self.stage, Stage::Sending(_)) && self.lease.is_congested() {
                // The client waits for the server with the rest of its message.
                return self.lost(LossCause::Timeout);
            }
            let violation =
                Violation::rule("mongodb_message_timeout", Culprit::Client, "a message takes too long to come");
            return Err(self.connection.violated(&violation));
        }
        if now >= self.pins_due() {
            self.lease.pins_seen = now;
            self.session.expire_pins(now);
        }
        if now >= self.login_due() {
            let violation = Violation::rule("login_timeout", Culprit::Client, "the handshake takes too long");
            return Err(self.connection.violated(&violation));
        }
        self.on_stage_overdue(now)?;
        let is_draining = self.connection.service.sessions.drain_state() == Drain::Gentle;
        if is_draining && now >= self.active.saturating_add(DRAIN_GAP) {
            if self.is_idle(false) {
                return Err(CloseReason::Drained);
            }
            // Its cursors are in the way: a look now and then is enough.
            self.active = now;
        }
        Ok(())
    }

    fn on_stage_overdue(&mut self, now: Time) -> Result<(), CloseReason> {
        let settings = self.scene.settings.clone();
        let is_over =
            |limit: Option<Duration>, since: Time| limit.is_some_and(|limit| now >= since.saturating_add(limit));
        match &self.stage {
            Stage::Punished(until, _) if now >= *until => {
                self.has_waited = true;
                self.stage = Stage::Request;
                self.go_on()
            }
            Stage::Answering(until, ..) if now >= *until => self.answer_now(),
            Stage::Awaiting => self.on_hello_due(),
            Stage::Unpresented if is_over(Some(settings.queue_wait_timeout), self.active) => {
                self.connection.service.metrics.shed("upstream_unreachable");
                Err(CloseReason::of_upstream("upstream_unreachable"))
            }
            Stage::Replying | Stage::Relaying if is_over(settings.request_timeout, self.lease.wanted) => {
                self.on_reply_overdue()
            }
            Stage::Flushing if is_over(Some(settle_limit(&settings)), self.lease.wanted) => self.on_reply_overdue(),
            Stage::Request
                if self.input.is_empty()
                    && self.session.face().is_some()
                    && is_over(settings.client_idle_timeout, self.active) =>
            {
                Err(CloseReason::IdleTimeout)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m12_a_client_that_holds_a_server_has_to_take_more_than_single_bytes() {
        let at = |seconds| Time::ZERO.saturating_add(Duration::from_secs(seconds));
        let drops = |least| {
            let mut stall = None;
            (0..=60).all(|second| {
                stall = Stall::of(stall, Some(second * 100), least, at(second));
                at(second) < stall.unwrap().due()
            })
        };
        assert!(drops(1) && !drops(TAKEN_BYTES_MIN));
        let first = Stall::of(None, Some(0), TAKEN_BYTES_MIN, at(0));
        let next = Stall::of(first, Some(TAKEN_BYTES_MIN), TAKEN_BYTES_MIN, at(59));
        assert_eq!(next.unwrap().due(), at(119), "fast enough");
        assert!(Stall::of(next, None, TAKEN_BYTES_MIN, at(60)).is_none(), "all is taken");
    }
}
