//! What the access log says of a request, and how the requests of each route are counted.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    rc::Rc,
};

use weir_base::Time;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_telemetry::{
    CoreMetrics, Counter, Histogram,
    access::{AccessRecord, HttpAccess, printable},
    catalog,
};

use weir_upstream::settings::UpstreamSettings;

use crate::{
    client::SentBytes,
    connection::{Connection, Tls},
    exchange::Asked,
    metrics::Timing,
    policies::Identity,
    refusal::Refusal,
};

/// Routes that have labels of their own; further ones of a listener are counted as `other`. Default 256: six counters and a
/// histogram each, about 8 KiB of cells per worker.
pub const ROUTE_LABELS_MAX: usize = 256;

/// What is kept of a request that goes into the access log, from before anything of its head changes.
pub(crate) struct Notes {
    /// Bytes that the client has been sent so far.
    sent: SentBytes,
    sent_before: u64,
    texts: RefCell<Texts>,
    /// Of the request's body.
    pub(crate) body_bytes: Cell<u64>,
    /// How often an origin was asked.
    tries: Cell<u64>,
    /// When the head of the answer came.
    pub(crate) answer_began: Cell<Option<Time>>,
}

/// Texts of a request, one behind the other.
#[derive(Default)]
struct Texts {
    all: String,
    places: [Option<(usize, usize)>; Noted::COUNT],
}

/// What is noted of a request.
#[derive(Clone, Copy)]
enum Noted {
    Method,
    Path,
    Authority,
    UserAgent,
    ForwardedFor,
    Route,
    Endpoint,
    RequestId,
    TraceId,
}

impl Noted {
    const COUNT: usize = Self::TraceId as usize + 1;
}

impl Texts {
    /// Room for the texts of most requests.
    const BYTES: usize = 384;

    /// Writes down what `write` appends.
    fn note(&mut self, what: Noted, write: impl FnOnce(&mut String)) {
        let start = self.all.len();
        write(&mut self.all);
        self.places[what as usize] = Some((start, self.all.len()));
    }

    /// What a client wrote.
    fn note_bytes(&mut self, what: Noted, bytes: &[u8]) {
        self.note(what, |all| printable(bytes, all));
    }

    fn get(&self, what: Noted) -> Option<&str> {
        let (start, end) = self.places[what as usize]?;
        self.all.get(start..end)
    }
}

impl Notes {
    /// Of a request, if it was chosen for the log.
    pub(crate) fn of_sampled(
        connection: &Connection,
        head: &RequestHead,
        sent: impl FnOnce() -> SentBytes,
    ) -> Option<Box<Self>> {
        if !connection.service.sessions.samples_access() {
            return None;
        }
        let mut texts = Texts { all: String::with_capacity(Texts::BYTES), ..Texts::default() };
        texts.note_bytes(Noted::Method, head.method());
        // The query is where tokens and names are; it stays out of logs.
        texts.note_bytes(Noted::Path, head.target().split(|byte| *byte == b'?').next().unwrap_or_default());
        texts.note_bytes(Noted::Authority, head.authority());
        for (what, known) in [(Noted::UserAgent, Known::UserAgent), (Noted::ForwardedFor, Known::XForwardedFor)] {
            if let Some(value) = head.fields.get(known) {
                texts.note_bytes(what, value);
            }
        }
        let sent = sent();
        Some(Box::new(Self {
            sent_before: sent(),
            sent,
            texts: RefCell::new(texts),
            body_bytes: Cell::new(0),
            tries: Cell::new(0),
            answer_began: Cell::new(None),
        }))
    }

    /// It is of this route.
    pub(crate) fn note_route(&self, name: &str) {
        self.texts.borrow_mut().note(Noted::Route, |all| all.push_str(name));
    }

    /// This origin is asked now.
    pub(crate) fn note_try(&self, upstream: &UpstreamSettings, number: usize) {
        self.tries.set(self.tries.get() + 1);
        self.note_endpoint(upstream, number);
    }

    /// This origin was chosen last.
    pub(crate) fn note_endpoint(&self, upstream: &UpstreamSettings, number: usize) {
        let Some(address) = upstream.endpoints.get(number) else { return };
        self.texts.borrow_mut().note(Noted::Endpoint, |all| {
            // Writing to memory does not fail.
            let _ = write!(all, "{address}");
        });
    }

    /// What it goes on with.
    pub(crate) fn note_fields(&self, fields: &Fields) {
        let mut texts = self.texts.borrow_mut();
        if let Some(id) = fields.get(Known::XRequestId) {
            texts.note_bytes(Noted::RequestId, id);
        }
        if let Some(trace) = fields.get(Known::Traceparent).and_then(crate::trace::trace_id) {
            texts.note(Noted::TraceId, |all| all.push_str(trace));
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
    pub(crate) fn log_request(&self, asked: &Asked, timing: &Timing, flushed: Time, outcome: &Outcome<'_>) {
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
            duration_nanos: flushed.nanos_since(timing.arrived),
            upstream_nanos: timing.sent.map_or(0, |sent| timing.replied.nanos_since(sent)),
            request_bytes: notes.body_bytes.get(),
            reply_bytes: (notes.sent)() - notes.sent_before,
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
