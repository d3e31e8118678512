//! What the access log says of a request.

use weir_listener::Timing;
use weir_telemetry::access::{AccessRecord, HttpAccess, printable};

use crate::{
    asked::Asked,
    connection::{Connection, Tls},
    notes::{Noted, Outcome},
    policies::Identity,
    refusal::Refusal,
};

impl Connection {
    /// Writes a request to the access log, if it was chosen.
    pub(crate) fn log_request(&self, asked: &Asked, timing: &Timing, outcome: &Outcome<'_>) {
        let Some(notes) = &asked.notes else { return };
        let identity = asked.answer_fields.get().and_then(|answer| answer.identity.as_ref());
        let user = identity.and_then(Identity::name).map(|name| {
            let mut user = String::new();
            printable(name.as_bytes(), &mut user);
            user
        });
        let texts = notes.texts.borrow();
        let tls = self.tls.as_deref();
        let noted = |what| texts.get(what);
        self.service.sessions.log_access(&AccessRecord {
            listener: self.service.sessions.name(),
            peer: self.handle.peer(),
            connection: self.handle.id(),
            command: asked.method,
            upstream: Some(outcome.upstream).filter(|name| !name.is_empty()),
            duration_nanos: timing.flushed.nanos_since(timing.arrived),
            upstream_nanos: timing.sent.map_or(0, |sent| timing.replied.nanos_since(sent)),
            request_bytes: notes.body_bytes.get(),
            reply_bytes: notes.reply_bytes(),
            outcome: outcome.reason,
            http: Some(HttpAccess {
                status: outcome.status,
                method: noted(Noted::Method).unwrap_or_default(),
                path: noted(Noted::Path).unwrap_or_default(),
                protocol: asked.version.name(),
                authority: noted(Noted::Authority).unwrap_or_default(),
                route: noted(Noted::Route),
                endpoint: noted(Noted::Endpoint),
                user: user.as_deref(),
                user_agent: noted(Noted::UserAgent),
                forwarded_for: noted(Noted::ForwardedFor),
                request_id: noted(Noted::RequestId),
                trace_id: noted(Noted::TraceId),
                tries: notes.tries.get(),
                first_byte_nanos: notes.answer_began.get().map(|began| began.nanos_since(timing.arrived)),
                tls_version: tls.and_then(Tls::version),
                tls_cipher: tls.and_then(Tls::cipher),
                grpc_status: asked.grpc_status.get(),
            }),
        });
    }

    /// Writes a request to the access log of which there is no head that could be trusted.
    pub(crate) fn log_unread(&self, protocol: &'static str, refusal: &Refusal, reply_bytes: u64) {
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
