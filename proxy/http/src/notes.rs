//! What is kept of a request for the access log.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
};

use weir_base::Time;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_telemetry::access::printable;
use weir_upstream::settings::UpstreamSettings;

use crate::trace;

/// Tells how many bytes the client has been sent so far, on its connection or on its stream.
pub(crate) type SentBytes = Box<dyn Fn() -> u64>;

/// What is kept of a request that goes into the access log, from before anything of its head changes.
pub(crate) struct Notes {
    sent: SentBytes,
    sent_before: u64,
    pub(crate) texts: RefCell<Texts>,
    /// Of the request's body.
    pub(crate) body_bytes: Cell<u64>,
    /// How often an origin was asked.
    pub(crate) tries: Cell<u64>,
    /// When the head of the answer came.
    pub(crate) answer_began: Cell<Option<Time>>,
}

/// Texts of a request, one behind the other.
#[derive(Default)]
pub(crate) struct Texts {
    all: String,
    places: [Option<(usize, usize)>; Noted::COUNT],
}

/// What is noted of a request.
#[derive(Clone, Copy)]
pub(crate) enum Noted {
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

    pub(crate) fn get(&self, what: Noted) -> Option<&str> {
        let (start, end) = self.places[what as usize]?;
        self.all.get(start..end)
    }
}

impl Notes {
    /// The notes of a request that was chosen for the log.
    pub(crate) fn new(head: &RequestHead, sent: SentBytes) -> Box<Self> {
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
        Box::new(Self {
            sent_before: sent(),
            sent,
            texts: RefCell::new(texts),
            body_bytes: Cell::new(0),
            tries: Cell::new(0),
            answer_began: Cell::new(None),
        })
    }

    /// Bytes that the client has been sent for the request.
    pub(crate) fn reply_bytes(&self) -> u64 {
        (self.sent)() - self.sent_before
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
        if let Some(trace) = fields.get(Known::Traceparent).and_then(trace::trace_id) {
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
