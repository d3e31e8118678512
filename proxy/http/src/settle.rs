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
    response_class::ResponseClass,
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
        let class = ResponseClass::of_status(asked.status_of_call(status));
        self.ended(asked, (status, class), sent, Outcome { status, upstream, reason: outcome });
        asked.settle(status, upstream, if outcome == "ok" { End::Answered } else { End::Refused }, outcome);
    }

    /// Counts and logs an answer that did not come to its end, and a client that did not take it; its head had this status.
    pub(crate) fn broke_off(
        &self,
        asked: &Asked,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        reason: CloseReason,
    ) {
        let (class, is_gone) = (ResponseClass::of_break(reason), reason == CloseReason::ClientReset);
        let reason = reason.name();
        if reason == STALLED {
            self.violated(STALLED, STALLED_TEXT);
        }
        self.ended(asked, (0, class), sent, Outcome { status, upstream, reason });
        asked.settle(status, upstream, if is_gone { End::ClientGone } else { End::BrokenOff }, reason);
    }

    /// `counted`, `class`: what it is counted under.
    fn ended(&self, asked: &Asked, (counted, class): (u16, ResponseClass), sent: Option<Time>, outcome: Outcome<'_>) {
        let flushed = Time::now();
        let timing = Timing { arrived: asked.arrived, sent, replied: turn::now(), flushed };
        self.service.metrics.durations.record(&timing, 1, asked.stages().as_ref());
        self.service.metrics.responded(counted, class);
        if asked.is_grpc {
            self.service.metrics.called(asked.grpc_status.get().unwrap_or(grpc::status_of(counted)));
        }
        if let Some(route) = asked.route.get() {
            route.responded(class, flushed.nanos_since(asked.arrived));
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
    /// The status that a response with `status` counts under. A gRPC call that ends in a 2xx ends well or badly by its own status, as in
    /// Envoy; without one its client takes it for UNKNOWN.
    pub(crate) fn status_of_call(&self, status: u16) -> u16 {
        match status {
            200..300 if self.is_call => {
                grpc::http_status(self.grpc_status.get().unwrap_or_else(|| grpc::status_of(status)))
            }
            _ => status,
        }
    }

    fn settle(&self, status: u16, upstream: &str, end: End, reason: &str) {
        if let Some(company) = self.company.get() {
            company.settle(status, upstream, end, reason);
        }
    }
}
