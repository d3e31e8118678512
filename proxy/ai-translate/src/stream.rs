//! Streams, event by event.

mod to_chat;
mod to_messages;

use std::fmt;

use weir_ai_session::{End, Failure};
use weir_sse_codec::write::comment;
use weir_sse_codec::{Kind, Limits, Splitter, SseError};

use crate::direction::Direction;
use crate::error::Report;
use crate::json::{Json, Object};
use crate::loss::Losses;
use crate::mistake::Mistake;

use to_chat::Chunks;
use to_messages::Events;

/// The reason why a stream cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// A line or an event beyond its limit.
    Sse(SseError),
    /// An event that is not part of the provider's dialect.
    Event(Mistake),
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sse(error) => error.fmt(f),
            Self::Event(mistake) => mistake.fmt(f),
        }
    }
}

impl std::error::Error for StreamError {}

impl From<Mistake> for StreamError {
    fn from(mistake: Mistake) -> Self {
        Self::Event(mistake)
    }
}

/// Translates one stream.
///
/// Call order: [`push`](Self::push) for each piece, then [`finish`](Self::finish) at the end of the body. An error of
/// either, a missing end, and a deadline of the shell end the stream with [`fail`](Self::fail).
///
/// It holds the event that a piece cuts, a few bytes for each tool call, and the state of each open block. A comment of
/// the provider, and Anthropic's `ping`, become a comment: they are a sign of life in both dialects.
#[derive(Debug)]
pub struct StreamTranslator {
    direction: Direction,
    splitter: Splitter,
    side: Side,
    end: End,
    losses: Losses,
}

#[derive(Debug)]
enum Side {
    Chat(Chunks),
    Messages(Events),
}

/// An event of a stream, which is translated into `out`.
struct Event<'a> {
    data: Object<'a>,
    losses: &'a mut Losses,
    out: &'a mut Vec<u8>,
}

impl StreamTranslator {
    /// In front of the body of a stream, without its content coding.
    ///
    /// `created` is the time in seconds since 1970, and `includes_usage` is
    /// [`Request::includes_usage`](crate::Request::includes_usage): both concern a chat's client alone.
    pub fn new(direction: Direction, created: u64, includes_usage: bool, limits: Limits) -> Self {
        let side = match direction {
            Direction::ChatToMessages => Side::Chat(Chunks::new(created, includes_usage)),
            Direction::MessagesToChat => Side::Messages(Events::default()),
        };
        Self { direction, splitter: Splitter::new(limits), side, end: End::Missing, losses: Losses::default() }
    }

    /// Takes the next piece of the provider's body, and appends whole events for the client. Bytes behind the end of the
    /// stream are ignored.
    ///
    /// Every chunk of a chat repeats an id and a model of at most [`NAME_BYTES_MAX`](crate::limits::NAME_BYTES_MAX)
    /// each. So the sender of small events can make `out` some thirty times larger than `piece`, and the end of the
    /// stream adds a chunk for each block that is open: the shell bounds the piece.
    ///
    /// # Errors
    /// The provider broke a limit or its dialect. The events before that are in `out`. The stream can only
    /// [`fail`](Self::fail).
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), StreamError> {
        let mut rest = piece;
        while self.end == End::Missing {
            let Some(unit) = self.splitter.next(rest).map_err(StreamError::Sse)? else { return Ok(()) };
            rest = &rest[unit.bytes..];
            match (unit.kind, unit.data) {
                (Kind::Comment, _) => comment(out, b"keep-alive"),
                (Kind::Event, Some(data)) if !data.trim_ascii().is_empty() => {
                    let is_error = unit.name == Some(b"error");
                    self.end = event(self.direction, &mut self.side, &mut self.losses, is_error, data, out)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The provider's body has ended. A message whose reason to end has come is whole without its last event, which some
    /// servers do not send.
    ///
    /// # Errors
    /// A call of a tool is not whole.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<End, StreamError> {
        if self.end != End::Missing {
            return Ok(self.end);
        }
        match &mut self.side {
            Side::Chat(chunks) if chunks.is_finished() => chunks.end(out),
            Side::Messages(events) if events.is_finished() => events.end(&mut self.losses, out)?,
            _ => return Ok(End::Missing),
        }
        self.end = End::Done;
        Ok(End::Done)
    }

    /// Ends the stream with an error in the form of the client's dialect. Nothing may follow.
    pub fn fail(&mut self, failure: &Failure<'_>, out: &mut Vec<u8>) {
        self.end = End::Failed;
        failure.write(self.direction.client(), 0, out);
    }

    /// How far the stream has come. [`End::Failed`]: the provider has reported an error, which the client has got.
    pub fn end(&self) -> End {
        self.end
    }

    /// Bytes of memory, at most: the parts of the event under way, whose buffers double as they grow, and the state of calls and open blocks.
    /// The output of a call of [`push`](Self::push) is the caller's own.
    pub fn memory_bytes(&self) -> u64 {
        let state = match &self.side {
            Side::Chat(chunks) => chunks.memory_bytes(),
            Side::Messages(events) => events.memory_bytes(),
        };
        2 * self.splitter.pending_bytes() + state as u64
    }

    /// The parts that the client did not get so far. They come too late for a header: they are for the log.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }
}

fn event(
    direction: Direction,
    side: &mut Side,
    losses: &mut Losses,
    is_error: bool,
    data: &[u8],
    out: &mut Vec<u8>,
) -> Result<End, StreamError> {
    if let Side::Messages(events) = side
        && data.trim_ascii() == b"[DONE]"
    {
        events.end(losses, out)?;
        return Ok(End::Done);
    }
    let report = |out: &mut Vec<u8>| {
        Report::read(direction.provider(), None, data).event(direction.client(), out);
        Ok(End::Failed)
    };
    if is_error {
        return report(out);
    }
    let mut event = Event { data: Object::read(Json::check(data)?, "")?, losses, out };
    let end = match side {
        Side::Chat(chunks) => chunks.event(&mut event)?,
        Side::Messages(events) => events.chunk(&mut event)?,
    };
    if end == End::Failed { report(event.out) } else { Ok(end) }
}
