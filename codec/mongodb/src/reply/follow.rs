//! A reply that arrives in pieces. Batches of a cursor have up to 16 MiB, and its id and `ok` come behind them.

use crate::bson::{Element, Kind, Value};
use crate::error::{BsonError, MessageError};
use crate::header::Header;
use crate::limits::REPLY_ELEMENT_BYTES_MAX;
use crate::message::{Flags, SECTIONS_AT};
use crate::reply::{Reply, is_cursor};

/// Follows one reply from its header to its end. It holds the beginning of one element at most: [`REPLY_ELEMENT_BYTES_MAX`] bytes.
///
/// A reply has one section, the body: this is the form in which every server answers drivers.
#[derive(Clone, Debug)]
pub struct ReplyFollower {
    /// Bytes of the message that are still to come, and those of the present value, which is not needed.
    left: usize,
    skip: usize,
    /// Bytes that are left of the body, and of `cursor` if it is open.
    body: usize,
    cursor: Option<usize>,
    place: Place,
    flags: Flags,
    /// The beginning of an element that is not whole.
    held: Vec<u8>,
    reply: Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Header, flags, kind of the section, length of the document.
    Head,
    Elements,
    End,
}

/// Bytes up to the first element.
const HEAD_BYTES: usize = SECTIONS_AT + 1 + 4;

/// The consequence of the bytes in front.
enum Step {
    /// They do not suffice.
    More,
    /// So many are done, and so many behind them are skipped.
    Took(usize, usize),
}

impl ReplyFollower {
    /// The reply with this header. [`ReplyFollower::take`] gets the header's bytes as well.
    pub fn new(header: &Header) -> Self {
        Self {
            left: header.bytes,
            skip: 0,
            body: 0,
            cursor: None,
            place: Place::Head,
            flags: Flags::empty(),
            held: Vec::new(),
            reply: Reply::default(),
        }
    }

    /// The next bytes of the message.
    ///
    /// # Errors
    /// The reply is broken. The follower is of no more use.
    pub fn take(&mut self, mut input: &[u8]) -> Result<(), MessageError> {
        while !input.is_empty() {
            if self.skip > 0 {
                let count = self.skip.min(input.len());
                input = &input[count..];
                self.pass(count)?;
                self.skip -= count;
            } else if self.held.is_empty() {
                match self.step(input)? {
                    Step::More => {
                        self.hold(input)?;
                        input = &[];
                    }
                    Step::Took(count, skip) => {
                        input = &input[count..];
                        self.pass(count)?;
                        self.skip = skip;
                    }
                }
            } else {
                let before = self.held.len();
                // The piece may be much longer than the element.
                let more = input.len().min(REPLY_ELEMENT_BYTES_MAX - before);
                self.hold(&input[..more])?;
                let held = std::mem::take(&mut self.held);
                match self.step(&held)? {
                    Step::More if held.len() == REPLY_ELEMENT_BYTES_MAX => return Err(BsonError::Short.into()),
                    Step::More => {
                        self.held = held;
                        input = &input[more..];
                    }
                    Step::Took(count, skip) => {
                        // The beginning of a value that is skipped may have been held.
                        let skipped = before.saturating_sub(count);
                        input = &input[count.saturating_sub(before)..];
                        self.pass(count + skipped)?;
                        self.skip = skip - skipped;
                        self.held = held;
                        self.held.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// The facts, once the message has ended.
    pub fn reply(&self) -> Option<(Flags, Reply)> {
        (self.place == Place::End && self.left == 0).then_some((self.flags, self.reply))
    }

    fn hold(&mut self, input: &[u8]) -> Result<(), MessageError> {
        if self.held.len() + input.len() > REPLY_ELEMENT_BYTES_MAX {
            return Err(MessageError::Bson(BsonError::Short));
        }
        self.held.extend_from_slice(input);
        Ok(())
    }

    /// Takes bytes off every length that counts them.
    fn pass(&mut self, count: usize) -> Result<(), MessageError> {
        self.left = self.left.checked_sub(count).ok_or(MessageError::Short)?;
        if self.place == Place::Elements && self.body > 0 {
            self.body = self.body.checked_sub(count).ok_or(BsonError::Short)?;
            if let Some(cursor) = &mut self.cursor {
                *cursor = cursor.checked_sub(count).ok_or(BsonError::Short)?;
                self.cursor = self.cursor.filter(|left| *left > 0);
            }
            if self.body == 0 {
                self.place = Place::End;
            }
        }
        Ok(())
    }

    fn step(&mut self, bytes: &[u8]) -> Result<Step, MessageError> {
        match self.place {
            Place::Head => self.head(bytes),
            Place::Elements => Ok(self.element(bytes)?),
            // A checksum may follow the section.
            Place::End if self.flags.contains(Flags::CHECKSUM_PRESENT) => Ok(Step::Took(bytes.len(), 0)),
            Place::End => Err(MessageError::SectionSize),
        }
    }

    fn head(&mut self, bytes: &[u8]) -> Result<Step, MessageError> {
        let Some(head) = bytes.get(SECTIONS_AT - 4..HEAD_BYTES) else {
            return if self.left < HEAD_BYTES { Err(MessageError::Short) } else { Ok(Step::More) };
        };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        self.flags = Flags::read(number(0))?;
        if head[4] != 0 {
            return Err(MessageError::SectionKind(head[4]));
        }
        let length = number(5) as usize;
        if length < 5 || length + SECTIONS_AT + 1 + self.flags.trailer() != self.left {
            return Err(MessageError::SectionSize);
        }
        // The head is passed as a part of it.
        self.body = HEAD_BYTES + length - 4;
        self.place = Place::Elements;
        Ok(Step::Took(HEAD_BYTES, 0))
    }

    /// One element, the end of a document, or the head of a value that is skipped.
    fn element(&mut self, bytes: &[u8]) -> Result<Step, BsonError> {
        let room = self.cursor.unwrap_or(self.body);
        let Some(&byte) = bytes.first() else { return Ok(Step::More) };
        if byte == 0 {
            return if room == 1 { Ok(Step::Took(1, 0)) } else { Err(BsonError::Terminator) };
        }
        let kind = Kind::of(byte).ok_or(BsonError::Kind(byte))?;
        let Some(end) = memchr::memchr(0, &bytes[1..]) else { return Ok(Step::More) };
        let (name, rest) = (&bytes[1..1 + end], &bytes[end + 2..]);
        let head = end + 2;
        let length = match kind.length(rest) {
            Ok(length) => length,
            Err(BsonError::Short) => return Ok(Step::More),
            Err(error) => return Err(error),
        };
        // The document's own end is behind every element.
        if head + length >= room {
            return Err(BsonError::Short);
        }
        if self.cursor.is_none() && is_cursor(name, kind) {
            self.cursor = Some(head + length);
            return Ok(Step::Took(head + 4, 0));
        }
        let is_wanted = match self.cursor {
            Some(_) => name == b"id",
            None => matches!(name, b"ok" | b"code" | b"errorLabels" | b"writeErrors" | b"writeConcernError"),
        };
        let is_name_enough = name == b"writeErrors";
        if !is_wanted || is_name_enough || head + length > REPLY_ELEMENT_BYTES_MAX {
            self.reply.has_write_errors |= self.cursor.is_none() && name == b"writeErrors";
            self.reply.has_write_concern_error |= self.cursor.is_none() && name == b"writeConcernError";
            return Ok(Step::Took(head, length));
        }
        let Some(value) = rest.get(..length) else { return Ok(Step::More) };
        let element = Element { name, value: Value { kind, bytes: value } };
        match self.cursor {
            Some(_) => self.reply.note_in_cursor(element),
            None => self.reply.note(element)?,
        }
        Ok(Step::Took(head + length, 0))
    }
}
