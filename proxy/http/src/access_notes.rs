//! The data of a request for the access log.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
};

use weir_base::Time;
use weir_http_codec::{Fields, Known, RequestHead};
use weir_telemetry::access::printable;
use weir_upstream::settings::UpstreamSettings;

use crate::trace;

/// Returns the bytes sent to the client so far, on its connection or on its stream.
pub(crate) type SentBytes = Box<dyn Fn() -> u64>;

/// The data of a request for the access log, from before its head changes.
pub(crate) struct AccessNotes {
    sent: SentBytes,
    sent_before: u64,
    pub(crate) texts: RefCell<Texts>,
    /// Bytes of the request's body.
    pub(crate) body_bytes: Cell<u64>,
    /// Number of attempts.
    pub(crate) tries: Cell<u64>,
    /// Time of the response head.
    pub(crate) response_began: Cell<Option<Time>>,
}

/// Texts of a request, one behind the other.
#[derive(Default)]
pub(crate) struct Texts {
    all: String,
    places: [Option<(usize, usize)>; NotedText::COUNT],
}

/// A text in the notes of a request.
#[derive(Clone, Copy)]
pub(crate) enum NotedText {
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

impl NotedText {
    const COUNT: usize = Self::TraceId as usize + 1;
}

impl Texts {
    /// Room for the texts of most requests.
    const BYTES: usize = 384;

    /// Writes down what `write` appends.
    fn note(&mut self, what: NotedText, write: impl FnOnce(&mut String)) {
        let start = self.all.len();
        write(&mut self.all);
        self.places[what as usize] = Some((start, self.all.len()));
    }

    /// Adds text of a client.
    fn note_bytes(&mut self, what: NotedText, bytes: &[u8]) {
        self.note(what, |all| printable(bytes, all));
    }

    pub(crate) fn get(&self, what: NotedText) -> Option<&str> {
        let (start, end) = self.places[what as usize]?;
        self.all.get(start..end)
    }
}

impl AccessNotes {
    /// The notes of a request that was chosen for the log.
    pub(crate) fn new(head: &RequestHead, sent: SentBytes) -> Box<Self> {
        let mut texts = Texts { all: String::with_capacity(Texts::BYTES), ..Texts::default() };
        texts.note_bytes(NotedText::Method, head.method());
        // The query is where tokens and names are; it stays out of logs.
        texts.note_bytes(NotedText::Path, head.target().split(|byte| *byte == b'?').next().unwrap_or_default());
        texts.note_bytes(NotedText::Authority, head.authority());
        for (what, known) in [(NotedText::UserAgent, Known::UserAgent), (NotedText::ForwardedFor, Known::XForwardedFor)]
        {
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
            response_began: Cell::new(None),
        })
    }

    /// Bytes that the client has been sent for the request.
    pub(crate) fn reply_bytes(&self) -> u64 {
        (self.sent)() - self.sent_before
    }

    /// It is of this route.
    pub(crate) fn note_route(&self, name: &str) {
        self.texts.borrow_mut().note(NotedText::Route, |all| all.push_str(name));
    }

    /// An attempt goes to this endpoint.
    pub(crate) fn note_try(&self, upstream: &UpstreamSettings, number: usize) {
        self.tries.set(self.tries.get() + 1);
        self.note_endpoint(upstream, number);
    }

    /// This origin was chosen last.
    pub(crate) fn note_endpoint(&self, upstream: &UpstreamSettings, number: usize) {
        let Some(address) = upstream.endpoints.get(number) else { return };
        self.texts.borrow_mut().note(NotedText::Endpoint, |all| {
            // Writing to memory does not fail.
            let _ = write!(all, "{address}");
        });
    }

    /// Adds the ids that the request goes on with.
    pub(crate) fn note_fields(&self, fields: &Fields) {
        let mut texts = self.texts.borrow_mut();
        if let Some(id) = fields.get(Known::XRequestId) {
            texts.note_bytes(NotedText::RequestId, id);
        }
        if let Some(trace) = fields.get(Known::Traceparent).and_then(trace::trace_id) {
            texts.note(NotedText::TraceId, |all| all.push_str(trace));
        }
    }
}

/// Outcome of a request, for the log.
pub(crate) struct LoggedOutcome<'a> {
    pub(crate) status: u16,
    pub(crate) upstream: &'a str,
    pub(crate) reason: &'static str,
}
