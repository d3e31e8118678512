//! A reply before it is written: what it says, how it is delivered, and what is billed for it.

use std::time::Duration;

use super::{
    fault::Fault,
    framing::{LineEnds, Split},
    ledger::Entry,
    text::Templates,
    usage::Tokens,
};

/// A body with a length.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Status of the reply.
    pub status: u16,
    /// Header lines besides those that every reply has.
    pub fields: Vec<u8>,
    /// Its type.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Whole {
    /// JSON with status 200.
    pub fn json(body: Vec<u8>) -> Self {
        Self { status: 200, fields: Vec::new(), content_type: "application/json", body }
    }
}

/// An event; its data has been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name, in dialects that have names.
    pub name: Option<&'static str>,
    /// Tokens that are billed for it; `None`: it says nothing to a user, and comes without a wait.
    pub tokens: Option<u64>,
    /// The dialect knows by it that the stream is whole.
    pub is_last: bool,
}

impl Event {
    /// One of the frame around a text.
    pub const FRAME: Self = Self { name: None, tokens: None, is_last: false };
}

/// The events of one stream, made one by one: a stream that waits holds little.
pub trait Events {
    /// Appends the data of the next event to an empty buffer; `None`: there is none.
    fn next(&mut self, templates: &Templates, data: &mut Vec<u8>) -> Option<Event>;
}

/// The body of a reply.
pub enum Body {
    /// At once.
    Whole(Whole),
    /// Event by event.
    Stream {
        /// The events.
        events: Box<dyn Events>,
        /// `data: [DONE]` ends it.
        has_done: bool,
        /// Name and data of an error event.
        error: (Option<&'static str>, Vec<u8>),
    },
}

/// How a reply goes out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Delivery {
    /// Before the first event with text, or the head of a whole reply.
    pub first: Duration,
    /// Before each further event with text.
    pub gap: Duration,
    /// The same as a script, in place of `gap`.
    pub gaps: Vec<Duration>,
    /// The fault, and behind how many events with text.
    pub fault: Option<(Fault, usize)>,
    /// Ends of lines.
    pub lines: LineEnds,
    /// Chunks.
    pub split: Split,
    /// A comment before each event.
    pub has_comments: bool,
}

impl Delivery {
    /// The wait before event `at` with text, from 0.
    pub fn wait(&self, at: usize) -> Duration {
        match (at, self.gaps.len()) {
            (0, _) => self.first,
            (_, 0) => self.gap,
            (at, count) => self.gaps[(at - 1) % count],
        }
    }

    /// The fault, if it is one of these.
    pub fn has(&self, faults: &[Fault]) -> bool {
        self.fault.is_some_and(|(fault, _)| faults.contains(&fault))
    }
}

/// A reply.
pub struct Reply {
    /// Its body.
    pub body: Body,
    /// How.
    pub delivery: Delivery,
    /// Its entry in the ledger, and what is billed if all of it goes out; `None`: no model was reached.
    pub bill: Option<(Entry, Tokens)>,
}

impl Reply {
    /// One that costs nothing.
    pub fn free(whole: Whole) -> Self {
        Self { body: Body::Whole(whole), delivery: Delivery::default(), bill: None }
    }
}
