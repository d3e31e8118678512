//! The deadlines of a client: one timer for the earliest of them.

use std::time::Duration;

use weir_base::{
    error::Culprit,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::Deadline;
use weir_listener::{CloseReason, DRAIN_GAP, Drain};
use weir_mongodb_session::face::Face;

use super::{
    lease::PINS_INTERVAL,
    life::{Life, Stage},
};

impl Life<'_> {
    pub(super) fn arm(&mut self, deadline: &Deadline) {
        self.stalled = match self.stalled {
            _ if !self.output.is_congested() => None,
            Some((since, progress)) if progress == self.output.progress() => Some((since, progress)),
            _ => Some((turn::now(), self.output.progress())),
        };
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
            Stage::Awaiting => self.session.deadline().unwrap_or(Time::NEVER),
            Stage::Unpresented => self.active.saturating_add(settings.queue_wait_timeout),
            Stage::Replying | Stage::Relaying | Stage::Flushing => {
                settings.request_timeout.map_or(Time::NEVER, |limit| self.lease.wanted.saturating_add(limit))
            }
            Stage::Request if self.input.is_empty() && self.session.face().is_some() => {
                let idle = settings.client_idle_timeout;
                idle.map_or(Time::NEVER, |limit| self.active.saturating_add(limit))
            }
            _ => Time::NEVER,
        };
        if self.session.face().is_none() || matches!(self.stage, Stage::Deriving(_) | Stage::Relaying) {
            due = due.min(self.login_due());
        }
        if let Some(since) = self.partial_since {
            due = due.min(since.saturating_add(settings.message_timeout));
        }
        if let Some((since, _)) = self.stalled {
            due = due.min(since.saturating_add(limits::WRITE_IDLE_TIMEOUT));
        }
        if self.connection.service.sessions.drain_state() == Drain::Gentle && self.lease.server.is_none() {
            due = due.min(self.active.saturating_add(DRAIN_GAP));
        }
        due.min(self.pins_due())
    }

    fn login_due(&self) -> Time {
        let since = if self.session.face().is_none() { self.begun } else { self.active };
        since.saturating_add(self.scene.settings.client_login_timeout)
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
        if self.stalled.is_some_and(|(since, _)| now >= since.saturating_add(limits::WRITE_IDLE_TIMEOUT)) {
            let violation = Violation::rule("slow_reader", Culprit::Client, "the client takes no replies");
            return Err(self.connection.violated(&violation));
        }
        let settings = self.scene.settings.clone();
        if self.partial_since.is_some_and(|since| now >= since.saturating_add(settings.message_timeout)) {
            let violation =
                Violation::rule("mongodb_message_timeout", Culprit::Client, "a message takes too long to come");
            return Err(self.connection.violated(&violation));
        }
        if now >= self.pins_due() {
            self.lease.pins_seen = now;
            self.session.expire_pins(now);
        }
        let is_login = self.session.face().is_none() || matches!(self.stage, Stage::Deriving(_) | Stage::Relaying);
        if is_login && now >= self.login_due() {
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
            Stage::Awaiting => {
                self.session.on_time(&self.scene.io(None), &mut self.own);
                self.after_awaited()
            }
            Stage::Unpresented if is_over(Some(settings.queue_wait_timeout), self.active) => {
                self.connection.service.metrics.shed("upstream_unreachable");
                Err(CloseReason::of_upstream("upstream_unreachable"))
            }
            Stage::Replying | Stage::Relaying | Stage::Flushing
                if is_over(settings.request_timeout, self.lease.wanted) =>
            {
                self.on_reply_overdue()
            }
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
