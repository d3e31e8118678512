//! The line of a request in the access log.

use weir_listener::Timing;
use weir_telemetry::access::{AccessRecord, HttpAccess, printable};

use crate::{
    access_notes::{LoggedOutcome, NotedText},
    connection::{Connection, Tls},
    policies::Identity,
    refusal::Refusal,
    request_context::RequestContext,
};

impl Connection {
    /// Writes a request to the access log, if it was chosen.
    pub(crate) fn log_request(&self, request: &RequestContext, timing: &Timing, outcome: &LoggedOutcome<'_>) {
        let Some(notes) = &request.notes else { return };
        let identity = request.policy_fields.get().and_then(|fields| fields.identity.as_ref());
        let user = identity.and_then(Identity::name).map(|name| {
            let mut user = String::new();
            printable(name.as_bytes(), &mut user);
            user
        });
        let texts = notes.texts.borrow();
        let tls = self.tls.as_deref();
        let text = |what| texts.get(what);
        self.service.sessions.log_access(&AccessRecord {
            listener: self.service.sessions.name(),
            peer: self.handle.peer(),
            connection: self.handle.id(),
            command: request.method,
            upstream: Some(outcome.upstream).filter(|name| !name.is_empty()),
            duration_nanos: timing.flushed.nanos_since(timing.arrived),
            upstream_nanos: timing.sent.map_or(0, |sent| timing.replied.nanos_since(sent)),
            request_bytes: notes.body_bytes.get(),
            reply_bytes: notes.reply_bytes(),
            outcome: outcome.reason,
            http: Some(HttpAccess {
                status: outcome.status,
                method: text(NotedText::Method).unwrap_or_default(),
                path: text(NotedText::Path).unwrap_or_default(),
                protocol: request.version.name(),
                authority: text(NotedText::Authority).unwrap_or_default(),
                route: text(NotedText::Route),
                endpoint: text(NotedText::Endpoint),
                user: user.as_deref(),
                user_agent: text(NotedText::UserAgent),
                forwarded_for: text(NotedText::ForwardedFor),
                request_id: text(NotedText::RequestId),
                trace_id: text(NotedText::TraceId),
                tries: notes.tries.get(),
                first_byte_nanos: notes.response_began.get().map(|began| began.nanos_since(timing.arrived)),
                tls_version: tls.and_then(Tls::version),
                tls_cipher: tls.and_then(Tls::cipher),
                grpc_status: request.grpc_status.get(),
            }),
        });
    }

    /// Writes a request without a valid head to the access log.
    pub(crate) fn log_malformed(&self, protocol: &'static str, refusal: &Refusal, reply_bytes: u64) {
        if !self.service.sessions.samples_access() {
            return;
        }
        let tls = self.tls.as_deref();
        self.service.sessions.log_access(&AccessRecord {
            listener: self.service.sessions.name(),
            peer: self.handle.peer(),
            connection: self.handle.id(),
            command: "unknown",
            upstream: None,
            duration_nanos: 0,
            upstream_nanos: 0,
            request_bytes: 0,
            reply_bytes,
            outcome: refusal.reason,
            http: Some(HttpAccess {
                status: refusal.status,
                method: "-",
                path: "-",
                protocol,
                authority: "-",
                tls_version: tls.and_then(Tls::version),
                tls_cipher: tls.and_then(Tls::cipher),
                ..HttpAccess::default()
            }),
        });
    }
}
