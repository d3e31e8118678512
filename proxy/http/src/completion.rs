//! The end of an exchange: its counters, its log line and the call of its filter.

use weir_base::{
    error::Culprit,
    time::{Time, turn},
};
use weir_listener::{CloseReason, Timing};

use crate::{
    access_notes::LoggedOutcome,
    body::BodyError,
    connection::Connection,
    failure::{AttemptFailure, EXPIRED, STALLED, STALLED_TEXT},
    filter::CompletionStatus,
    grpc,
    refusal::Refusal,
    request_context::RequestContext,
    response_class::ResponseClass,
};

impl Connection {
    /// Counts a response, and logs it if it was chosen.
    pub(crate) fn record_response(
        &self,
        request: &RequestContext,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        outcome: &'static str,
    ) {
        self.count_timeout(outcome);
        let class = ResponseClass::of_status(request.status_of_call(status));
        self.record(request, (status, class), sent, LoggedOutcome { status, upstream, reason: outcome });
        request.notify_filter(
            status,
            upstream,
            (if outcome == "ok" { CompletionStatus::Completed } else { CompletionStatus::Refused }, None),
            outcome,
        );
    }

    /// Counts and logs a response that broke off, and a client that did not take it. `status` is that of its head, 0 without one.
    pub(crate) fn record_abort(
        &self,
        request: &RequestContext,
        status: u16,
        sent: Option<Time>,
        upstream: &str,
        reason: CloseReason,
    ) {
        if request.is_grpc {
            request.grpc_status.set(Some(status_of_break(reason)));
        }
        let (class, is_gone) = (ResponseClass::of_break(reason), reason == CloseReason::ClientReset);
        let culprit = reason.culprit();
        let reason = reason.name();
        self.count_timeout(reason);
        if reason == STALLED {
            self.violated(STALLED, STALLED_TEXT);
        }
        self.record(request, (0, class), sent, LoggedOutcome { status, upstream, reason });
        request.notify_filter(
            status,
            upstream,
            (if is_gone { CompletionStatus::ClientGone } else { CompletionStatus::Aborted }, culprit),
            reason,
        );
    }

    /// Counts a deadline that has ended an exchange.
    fn count_timeout(&self, reason: &'static str) {
        const TIMEOUTS: [&str; 5] = [
            Refusal::RESPONSE_TIMEOUT.reason,
            Refusal::REQUEST_TIMEOUT.reason,
            Refusal::FIRST_BYTE_TIMEOUT.reason,
            Refusal::IDLE_TIMEOUT.reason,
            EXPIRED.name(),
        ];
        if reason != "ok" && TIMEOUTS.contains(&reason) {
            self.service.metrics.timed_out(reason);
        }
    }

    /// `counted`, `class`: what it is counted under.
    fn record(
        &self,
        request: &RequestContext,
        (counted, class): (u16, ResponseClass),
        sent: Option<Time>,
        outcome: LoggedOutcome<'_>,
    ) {
        let flushed = Time::now();
        let timing = Timing { arrived: request.arrived, sent, replied: turn::now(), flushed };
        // A request that got no response has no last byte of one. The time that a client waited in vain is not the gateway's.
        let took = (outcome.status != 0).then(|| flushed.nanos_since(request.arrived));
        if took.is_some() {
            self.service.metrics.durations.record(&timing, 1, request.stages().as_ref());
        }
        self.service.metrics.responded(counted, class);
        if request.is_grpc {
            self.service.metrics.called(request.grpc_status.get().unwrap_or(grpc::status_of(counted)));
        }
        if let Some(route) = request.route.get() {
            route.responded(class, took);
        }
        self.log_request(request, &timing, &outcome);
    }

    /// The reason why the body of a request did not come to its end. Counts a body that was dropped for memory.
    pub(crate) fn body_failure(&self, broken: BodyError) -> AttemptFailure {
        if broken == BodyError::Evicted {
            self.service.metrics.shed(Refusal::UPLOAD_GIVEN_UP.reason);
        }
        AttemptFailure::of_client(broken)
    }

    /// Counts and logs what the client did wrong with its request's body.
    pub(crate) fn record_client_fault(&self, refusal: &Refusal) {
        if refusal.reason == Refusal::BODY_TOO_LONG.reason {
            self.service.metrics.denied(refusal.reason);
        }
        self.violated(refusal.reason, refusal.text);
    }

    /// The reason of the end of an exchange whose client is gone. The client is not at fault if the gateway has ended its connection.
    pub(crate) fn disconnect_reason(&self) -> CloseReason {
        self.handle.ending().unwrap_or(CloseReason::ClientReset)
    }

    /// Counts and logs a request whose client was gone before the response began.
    pub(crate) fn record_disconnect(&self, request: &RequestContext, sent: Option<Time>, upstream: &str) {
        self.record_abort(request, 0, sent, upstream, self.disconnect_reason());
    }
}

/// The status of a gRPC call that breaks off for this reason, as its client learns it: by trailers, by its own doing, by the reset of
/// the stream, or by the end of the connection.
fn status_of_break(reason: CloseReason) -> u8 {
    match reason.culprit() {
        _ if reason == EXPIRED => grpc::DEADLINE_EXCEEDED,
        Some(Culprit::Client) => grpc::CANCELLED,
        Some(_) => grpc::INTERNAL,
        None => grpc::UNAVAILABLE,
    }
}

impl RequestContext {
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

    fn notify_filter(&self, status: u16, upstream: &str, end: (CompletionStatus, Option<Culprit>), reason: &str) {
        if let Some(filter_handle) = self.filter_handle.get() {
            filter_handle.complete(status, upstream, end, reason);
        }
    }
}
