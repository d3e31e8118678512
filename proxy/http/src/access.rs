//! What the access log says of a request, and how the requests of each route are counted.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
};

use weir_http_codec::{Fields, Known, RequestHead};
use weir_telemetry::{
    CoreMetrics, Counter, Histogram, catalog,
    log::{AccessRecord, HttpAccess, TEXT_BYTES_MAX, printable},
};

use weir_upstream::settings::UpstreamSettings;

use crate::{
    client::SentBytes, connection::Connection, exchange::Asked, metrics::Timing, policies::Identity, service::HttpLane,
};

/// Routes that have labels of their own; further ones of a listener are counted as `other`. Default 256: six counters and a
/// histogram each, about 8 KiB of cells per worker.
pub const ROUTE_LABELS_MAX: usize = 256;

/// What is kept of a request that goes into the access log, from before anything of its head changes.
pub(crate) struct Notes {
    /// Bytes that the client has been sent so far.
    sent: SentBytes,
    sent_before: u64,
    method: Box<str>,
    path: Box<str>,
    authority: Box<str>,
    user_agent: Option<Box<str>>,
    forwarded_for: Option<Box<str>>,
    route: OnceCell<Box<str>>,
    endpoint: RefCell<Option<Box<str>>>,
    request_id: OnceCell<Box<str>>,
    trace_id: OnceCell<Box<str>>,
    /// Of the request's body.
    pub(crate) body_bytes: Cell<u64>,
}

impl Notes {
    /// Of a request, if it was chosen for the log.
    pub(crate) fn of_sampled(
        connection: &Connection,
        head: &RequestHead,
        sent: impl FnOnce() -> SentBytes,
    ) -> Option<Box<Self>> {
        if !connection.service.samples_access() {
            return None;
        }
        let field = |known| head.fields.get(known).map(|value| printable(value, TEXT_BYTES_MAX));
        // The query is where tokens and names are; it stays out of logs.
        let path = head.target().split(|byte| *byte == b'?').next().unwrap_or_default();
        let sent = sent();
        Some(Box::new(Self {
            sent_before: sent(),
            sent,
            method: printable(head.method(), TEXT_BYTES_MAX),
            path: printable(path, TEXT_BYTES_MAX),
            authority: printable(head.authority(), TEXT_BYTES_MAX),
            user_agent: field(Known::UserAgent),
            forwarded_for: field(Known::XForwardedFor),
            route: OnceCell::new(),
            endpoint: RefCell::default(),
            request_id: OnceCell::new(),
            trace_id: OnceCell::new(),
            body_bytes: Cell::new(0),
        }))
    }

    /// It is of this route.
    pub(crate) fn note_route(&self, name: &str) {
        let _ = self.route.set(name.into());
    }

    /// This origin was asked last.
    pub(crate) fn note_endpoint(&self, upstream: &UpstreamSettings, lane: &HttpLane) {
        *self.endpoint.borrow_mut() = upstream.endpoints.get(lane.number()).map(|address| address.to_string().into());
    }

    /// What it goes on with.
    pub(crate) fn note_fields(&self, fields: &Fields) {
        if let Some(id) = fields.get(Known::XRequestId) {
            let _ = self.request_id.set(printable(id, TEXT_BYTES_MAX));
        }
        if let Some(trace) = fields.get(Known::Traceparent).and_then(crate::trace::trace_id) {
            let _ = self.trace_id.set(trace.into());
        }
    }
}

/// How a request ended, for the log.
pub(crate) struct Outcome<'a> {
    pub(crate) status: u16,
    pub(crate) upstream: &'a str,
    pub(crate) reason: &'static str,
}

impl Connection {
    /// Writes a request to the access log, if it was chosen.
    pub(crate) fn log_request(&self, asked: &Asked, timing: &Timing, flushed: weir_base::Time, outcome: &Outcome<'_>) {
        let Some(notes) = &asked.notes else { return };
        let identity = asked.answer_fields.get().and_then(|answer| answer.identity.as_ref());
        let user = identity.and_then(Identity::name).map(|name| printable(name.as_bytes(), TEXT_BYTES_MAX));
        self.service.log_access(AccessRecord {
            at: flushed,
            listener: self.service.name().clone(),
            peer: self.peer,
            connection: self.id(),
            command: asked.method,
            upstream: timing.sent.map(|_| Arc::from(outcome.upstream)),
            duration_nanos: flushed.nanos_since(timing.arrived),
            upstream_nanos: timing.sent.map_or(0, |sent| timing.replied.nanos_since(sent)),
            request_bytes: notes.body_bytes.get(),
            reply_bytes: (notes.sent)() - notes.sent_before,
            outcome: outcome.reason,
            http: Some(Box::new(HttpAccess {
                status: outcome.status,
                method: notes.method.clone(),
                path: notes.path.clone(),
                protocol: asked.version.name(),
                authority: notes.authority.clone(),
                route: notes.route.get().cloned(),
                endpoint: notes.endpoint.borrow().clone(),
                user,
                user_agent: notes.user_agent.clone(),
                forwarded_for: notes.forwarded_for.clone(),
                request_id: notes.request_id.get().cloned(),
                trace_id: notes.trace_id.get().cloned(),
            })),
        });
    }
}

/// Cells of one route of a listener on one worker.
pub(crate) struct RouteMetrics {
    /// By the first digit of the status; 0 for answers that broke off.
    responses: [Counter; CLASSES.len()],
    request: Histogram,
}

const CLASSES: [&str; 6] = ["broken", "1xx", "2xx", "3xx", "4xx", "5xx"];

impl RouteMetrics {
    fn new(core: &CoreMetrics, listener: &str, route: &str) -> Rc<Self> {
        let responses = CLASSES.map(|class| core.counter(&catalog::HTTP_ROUTE_RESPONSES, &[listener, route, class]));
        let request = core.histogram(&catalog::HTTP_ROUTE_DURATION, &[listener, route]);
        Rc::new(Self { responses, request })
    }

    /// The cells of these routes, in their order. None for a listener without routes of its own: its requests are those of the
    /// listener.
    pub(crate) fn all(core: &CoreMetrics, listener: &str, names: &[Box<str>]) -> Vec<Rc<Self>> {
        if names.len() < 2 {
            return Vec::new();
        }
        let own = names.iter().take(ROUTE_LABELS_MAX).map(|name| Self::new(core, listener, name));
        let mut all: Vec<_> = own.collect();
        if names.len() > ROUTE_LABELS_MAX {
            let other = Self::new(core, listener, "other");
            all.resize(names.len(), other);
        }
        all
    }

    #[inline]
    pub(crate) fn answered(&self, status: u16, nanos: u64) {
        self.responses[usize::from(status / 100).min(CLASSES.len() - 1)].inc();
        self.request.record(nanos);
    }
}
