//! The end of an exchange: what is counted and told of it.

use weir_base::time::{Time, turn};
use weir_listener::{CloseReason, Timing};

use crate::{
    asked::Asked,
    body::Broken,
    connection::Connection,
    doors::End,
    failure::{Failure, STALLED, STALLED_TEXT},
    grpc,
    notes::Outcome,
    refusal::Refusal,
};

impl Connection {
    /// Counts an answer, and logs it if it was chosen.
    pub(crate) fn answered(
        &self,
        asked: &Asked,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        outcome: &'static str,
    ) {
        self.ended(asked, status, sent, Outcome { status, upstream, reason: outcome });
        asked.settle(status, upstream, if outcome == "ok" { End::Answered } else { End::Refused }, outcome);
    }

    /// Counts and logs an answer that did not come to its end, and a client that did not take it; its head had this status.
    pub(crate) fn broke_off(
        &self,
        asked: &Asked,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        reason: &'static str,
    ) {
        if reason == STALLED {
            self.violated(STALLED, STALLED_TEXT);
        }
        self.ended(asked, 0, sent, Outcome { status, upstream, reason });
        let is_gone = reason == CloseReason::ClientReset.name();
        asked.settle(status, upstream, if is_gone { End::ClientGone } else { End::BrokenOff }, reason);
    }

    /// `counted`: the status that it is counted under.
    fn ended(&self, asked: &Asked, counted: u16, sent: Option<Time>, outcome: Outcome<'_>) {
        let flushed = Time::now();
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now(), flushed };
        self.service.metrics.durations.record(&timing, 1, asked.stages().as_ref());
        self.service.metrics.answered(counted);
        if asked.is_grpc {
            self.service.metrics.called(asked.grpc_status.get().unwrap_or(grpc::status_of(counted)));
        }
        if let Some(route) = asked.route.get() {
            route.answered(counted, flushed.nanos_since(asked.arrived));
        }
        self.log_request(asked, &timing, &outcome);
    }

    /// Why the body of a request did not come to its end; counts one that had to make room.
    pub(crate) fn unread(&self, broken: Broken) -> Failure {
        if broken == Broken::GivenUp {
            self.service.metrics.shed(Refusal::UPLOAD_GIVEN_UP.reason);
        }
        Failure::of_client(broken)
    }

    /// Counts and logs what the client did wrong with its request's body.
    pub(crate) fn at_fault(&self, refusal: &Refusal) {
        if refusal.reason == Refusal::BODY_TOO_LONG.reason {
            self.service.metrics.denied(refusal.reason);
        }
        self.violated(refusal.reason, refusal.text);
    }

    /// Nobody waits for the answer any more, and there was nothing of it yet.
    pub(crate) fn abandoned(&self, asked: &Asked, sent: Option<Time>, upstream: &str) {
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now(), flushed: Time::now() };
        let reason = CloseReason::ClientReset.name();
        self.log_request(asked, &timing, &Outcome { status: 0, upstream, reason });
        asked.settle(0, upstream, End::ClientGone, reason);
    }
}

impl Asked {
    fn settle(&self, status: u16, upstream: &str, end: End, reason: &str) {
        if let Some(company) = self.company.get() {
            company.settle(status, upstream, end, reason);
        }
    }
}
