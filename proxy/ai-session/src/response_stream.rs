//! Follows a stream of events while it passes.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use weir_sse_codec::{Kind, Limits, Splitter, SseError, Unit};

use crate::dialect::Dialect;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::text_event::TextEvent;
use crate::usage::{Doubts, Figures, Usage, event_facts};

/// Bytes of an event that are held until it is whole. Default 64 KiB: the buffer of one stream. A larger event is
/// forwarded while it arrives. A chunk of usage has some hundred bytes.
pub const HELD_BYTES_MAX: usize = 64 * 1024;

/// Bytes of that buffer that a stream keeps between events. Default 4 KiB: tens of thousands of idle streams keep
/// little.
pub const KEPT_BYTES_MAX: usize = 4 * 1024;

static SEQUENCE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"sequence_number\":"));

/// The treatment of a chunk that a chat's stream has for its usage alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageChunk {
    /// The client requests it, or the dialect has none.
    Forward,
    /// The gateway has requested it: [`Splice::include_usage`](crate::Splice::include_usage). The client must not see
    /// it.
    Drop,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// More must follow: an end here is a break.
    #[default]
    Missing,
    /// The last event of the dialect has passed: `[DONE]`, `response.completed` or `.incomplete`, `message_stop`.
    Done,
    /// The provider has reported an error in the stream, whatever has followed it.
    Failed,
}

/// Follows one stream. Bytes pass as they came, except for the chunk of usage that the client did not request.
///
/// Call order: [`push`](Self::push) for each piece, then [`finish`](Self::finish) at the end of the body, or
/// [`fail`](Self::fail) to end the stream in its own words. Only whole events pass, so that one more may always follow.
#[derive(Clone, Debug)]
pub struct ResponseStream {
    splitter: Splitter,
    /// The beginning of the event under way.
    held: Vec<u8>,
    /// The beginning of that event has passed, for it is large.
    is_open: bool,
    follower: Follower,
}

impl ResponseStream {
    /// In front of the body of a stream, without its content coding.
    pub fn new(dialect: Dialect, usage_chunk: UsageChunk, limits: Limits) -> Self {
        let follower = Follower {
            dialect,
            usage_chunk,
            is_dropping: false,
            figures: None,
            progress: Progress::default(),
            end: End::Missing,
            sequence: None,
            text_event: TextEvent::default(),
        };
        Self { splitter: Splitter::new(limits), held: Vec::new(), is_open: false, follower }
    }

    /// Takes the next piece, and gives `forward` the bytes that may go on: parts of the piece, and what was held before
    /// it.
    ///
    /// # Errors
    /// A line or an event beyond its limit. All whole events before it have passed. The stream can only
    /// [`fail`](Self::fail).
    pub fn push(&mut self, piece: &[u8], forward: &mut impl FnMut(&[u8])) -> Result<(), SseError> {
        // Bytes before `at` belong to whole events, and those before `passed` have passed.
        let (mut at, mut passed) = (0, 0);
        let outcome = loop {
            let unit = match self.splitter.next(&piece[at..]) {
                Ok(Some(unit)) => unit,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let end = at + unit.bytes;
            if self.follower.take(&unit, self.is_open) {
                give(&piece[passed..at], forward);
                passed = end;
            } else {
                give(&self.held, forward);
            }
            self.held.clear();
            self.held.shrink_to(KEPT_BYTES_MAX);
            self.is_open = false;
            at = end;
        };
        give(&piece[passed..at], forward);
        if outcome.is_ok() {
            self.hold(&piece[at..], forward);
        }
        outcome
    }

    /// The body has ended. The held bytes pass: they are no event, but they came.
    pub fn finish(&mut self, forward: &mut impl FnMut(&[u8])) -> End {
        give(&std::mem::take(&mut self.held), forward);
        self.follower.end
    }

    /// Ends the stream with an error in the form of its dialect. The held bytes do not pass. Nothing may follow.
    pub fn fail(&mut self, failure: &Failure<'_>, out: &mut Vec<u8>) {
        self.held = Vec::new();
        if std::mem::take(&mut self.is_open) {
            // The half of an event that has passed becomes one that no client can read, which is the truth.
            out.extend_from_slice(b"\n\n");
        }
        self.follower.end = End::Failed;
        let sequence = self.follower.sequence.map_or(0, |last| last.saturating_add(1));
        failure.write(self.follower.dialect, sequence, out);
    }

    /// How far the stream has come.
    pub fn end(&self) -> End {
        self.follower.end
    }

    /// Output so far.
    pub fn progress(&self) -> Progress {
        self.follower.progress
    }

    /// Usage by the last report so far; `None`: there is none. Without the [`end`](Self::end) of the stream it is
    /// partial: output counts as far as it was streamed.
    pub fn usage(&self) -> Option<Usage> {
        let Follower { dialect, progress, figures, end, .. } = &self.follower;
        let mut usage = figures.as_ref()?.usage(*dialect, progress);
        // An early report is no lie.
        usage.doubts.set(Doubts::BELOW_STREAM, *end == End::Done && usage.doubts.contains(Doubts::BELOW_STREAM));
        Some(usage)
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Bytes of memory, at most: the held bytes, and the parts of the event under way, whose buffers double as they grow.
    pub fn memory_bytes(&self) -> u64 {
        self.held.capacity() as u64 + 2 * self.splitter.pending_bytes()
    }

    /// The piece ends within an event.
    fn hold(&mut self, rest: &[u8], forward: &mut impl FnMut(&[u8])) {
        if self.is_open || self.held.len() + rest.len() > HELD_BYTES_MAX {
            self.is_open |= !rest.is_empty();
            give(&std::mem::take(&mut self.held), forward);
            give(rest, forward);
        } else {
            self.held.extend_from_slice(rest);
        }
    }
}

fn give(bytes: &[u8], forward: &mut impl FnMut(&[u8])) {
    if !bytes.is_empty() {
        forward(bytes);
    }
}

/// The findings in a stream, apart from its bytes.
#[derive(Clone, Debug)]
struct Follower {
    dialect: Dialect,
    usage_chunk: UsageChunk,
    /// The last unit was dropped: a line feed that comes apart from it goes the same way.
    is_dropping: bool,
    figures: Option<Figures>,
    progress: Progress,
    end: End,
    /// The number of the last event, in responses.
    sequence: Option<u64>,
    text_event: TextEvent,
}

impl Follower {
    /// Takes a unit, the beginning of which has passed if it `is_open`. Whether the client must not see it.
    fn take(&mut self, unit: &Unit<'_>, is_open: bool) -> bool {
        self.is_dropping = match unit.kind {
            Kind::LineFeed => self.is_dropping,
            Kind::Event => unit.data.is_some_and(|data| self.event(unit.name.unwrap_or_default(), data)) && !is_open,
            Kind::Comment | Kind::Blank => false,
        };
        self.is_dropping
    }

    /// Takes an event. Whether it is the chunk of usage that the client did not request.
    fn event(&mut self, name: &[u8], data: &[u8]) -> bool {
        if let Some(text) = self.text_event.text_of(name, data) {
            self.progress.take_text(text);
            return false;
        }
        let before = self.progress;
        let around = self.progress.take(self.dialect, data);
        // A failure stays one: some servers send their last event behind the error.
        let end = end_of(self.dialect, name, data);
        self.end = if self.end == End::Failed || end == End::Missing { self.end } else { end };
        if self.dialect == Dialect::Responses {
            // No two events have the same number.
            self.sequence = sequence(data).or(self.sequence);
        }
        let Some(facts) = event_facts(self.dialect, data, around) else {
            let text_bytes = (data.len() - around[0].len() - around[1].len()) as u64;
            let has_one_text = text_bytes > 0 && self.progress.output_bytes == before.output_bytes + text_bytes;
            if has_one_text && end == End::Missing && self.progress.is_generated == before.is_generated {
                self.text_event.keep(name, around);
            }
            return false;
        };
        match &mut self.figures {
            _ if facts.figures.is_empty() => {}
            Some(figures) => figures.replace(facts.figures, self.dialect),
            None => self.figures = Some(facts.figures),
        }
        self.usage_chunk == UsageChunk::Drop && self.dialect == Dialect::Chat && facts.is_for_usage()
    }
}

/// Whether the stream ends with this event.
fn end_of(dialect: Dialect, name: &[u8], data: &[u8]) -> End {
    // Named errors, and the object by which chats report theirs.
    if name == b"error" || data.starts_with(b"{\"error\":{") || data.starts_with(b"{\"error\": {") {
        return End::Failed;
    }
    if dialect == Dialect::Chat {
        return if data.trim_ascii() == b"[DONE]" { End::Done } else { End::Missing };
    }
    // Some servers leave the name to the type in the data.
    let name = if name.is_empty() { leading_type(data) } else { name };
    match (dialect, name) {
        (Dialect::Responses, b"response.completed" | b"response.incomplete") => End::Done,
        (Dialect::Anthropic, b"message_stop") => End::Done,
        (Dialect::Responses, b"response.failed" | b"error") | (Dialect::Anthropic, b"error") => End::Failed,
        _ => End::Missing,
    }
}

/// The value of `type`, if it is the first member.
fn leading_type(data: &[u8]) -> &[u8] {
    let value =
        data.strip_prefix(b"{\"type\":").map(<[u8]>::trim_ascii_start).and_then(|rest| rest.strip_prefix(b"\""));
    value.and_then(|value| value.split(|&byte| byte == b'"').next()).unwrap_or_default()
}

/// The number of an event of responses.
fn sequence(data: &[u8]) -> Option<u64> {
    let behind = data[SEQUENCE.find(data)? + SEQUENCE.needle().len()..].trim_ascii_start();
    let end = behind.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(behind.len());
    weir_json_codec::integer(&behind[..end], u64::MAX).ok()
}
