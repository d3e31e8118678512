//! The sections of an OP_MSG that arrives in pieces and is never held whole.

use crate::arguments::{Arguments, NAME_BYTES_MAX};
use crate::checksum::{CHECKSUM_BYTES, Checksum};
use crate::error::MessageError;
use crate::header::{HEADER_BYTES, Header};
use crate::limits::{IDENTIFIER_BYTES_MAX, SEQUENCES_MAX};
use crate::message::{Flags, first_body};

/// Follows one message from its header to its end, and applies the rules of [`Message::read`](crate::message::Message::read) that need
/// no document: kinds, sizes and names of sections, one body, the checksum.
///
/// A client's message may be forwarded before its last byte has come. A flaw that shows late must end the server's connection: a
/// server acts on whole messages alone.
#[derive(Clone, Debug)]
pub struct SectionFramer {
    /// Bytes of the message that are still to come.
    left: usize,
    at: At,
    checksum: Option<Checksum>,
    has_body: bool,
    /// Sequences that may be there; `None`: any.
    possible: Option<Arguments>,
    /// The beginning of the present identifier.
    name: [u8; NAME_BYTES_MAX],
    /// Hashes of the identifiers so far.
    identifiers: [u64; SEQUENCES_MAX],
    sequences: usize,
}

/// The place in the message.
#[derive(Clone, Copy, Debug)]
enum At {
    Header { left: usize },
    Flags(Number),
    Kind,
    Size { kind: u8, number: Number },
    Section { kind: u8, size: u32 },
    Identifier { hash: u64, bytes: usize, left: usize },
    Skip { left: usize },
    Checksum(Number),
    End,
}

/// Four bytes that may come one by one.
#[derive(Clone, Copy, Debug, Default)]
struct Number {
    bytes: [u8; 4],
    count: usize,
}

impl Number {
    /// Takes the missing bytes. The value is there with the fourth byte.
    fn take(&mut self, input: &mut &[u8]) -> Option<u32> {
        let count = input.len().min(4 - self.count);
        self.bytes[self.count..self.count + count].copy_from_slice(&input[..count]);
        self.count += count;
        *input = &input[count..];
        (self.count == 4).then(|| u32::from_le_bytes(self.bytes))
    }
}

impl SectionFramer {
    /// The message with this header. [`SectionFramer::take`] gets the header's bytes as well.
    pub fn new(header: &Header) -> Self {
        Self {
            left: header.bytes,
            at: At::Header { left: HEADER_BYTES },
            // Whether there is one is known behind the header.
            checksum: Some(Checksum::default()),
            has_body: false,
            possible: None,
            name: [0; NAME_BYTES_MAX],
            identifiers: [0; SEQUENCES_MAX],
            sequences: 0,
        }
    }

    /// The request with this header whose first bytes are `first`, from its header to the end of its body at least. It takes them, and
    /// refuses a sequence that is no argument of the command, in front of the body and behind it.
    ///
    /// # Errors
    /// The message breaks a rule, or its body is not there.
    pub fn of_request(header: &Header, first: &[u8]) -> Result<Self, MessageError> {
        let (_, body) = first_body(first)?.ok_or(MessageError::NoBody)?;
        let mut framer = Self { possible: Some(Arguments::beside(body)?), ..Self::new(header) };
        framer.take(first)?;
        Ok(framer)
    }

    /// The next bytes of the message.
    ///
    /// # Errors
    /// The message breaks a rule. The framer is of no more use.
    pub fn take(&mut self, mut input: &[u8]) -> Result<(), MessageError> {
        debug_assert!(input.len() <= self.left, "bytes of another message");
        while !input.is_empty() {
            let before = input;
            self.step(&mut input)?;
            let taken = &before[..before.len() - input.len()];
            self.left = self.left.saturating_sub(taken.len());
            if let (Some(checksum), false) = (&mut self.checksum, matches!(self.at, At::Checksum(_) | At::End)) {
                checksum.update(taken);
            }
            self.turn()?;
        }
        Ok(())
    }

    /// The message has ended, and everything was right.
    pub const fn is_end(&self) -> bool {
        matches!(self.at, At::End)
    }

    /// Takes bytes of one field.
    fn step(&mut self, input: &mut &[u8]) -> Result<(), MessageError> {
        match &mut self.at {
            At::Header { left } | At::Skip { left } => {
                let count = input.len().min(*left);
                *left -= count;
                *input = &input[count..];
            }
            At::Flags(number) => {
                if let Some(bits) = number.take(input) {
                    let flags = Flags::read(bits)?;
                    if !flags.contains(Flags::CHECKSUM_PRESENT) {
                        self.checksum = None;
                    }
                    self.at = At::Skip { left: 0 };
                }
            }
            At::Kind => {
                self.at = At::Size { kind: input[0], number: Number::default() };
                *input = &input[1..];
            }
            At::Size { kind, number } => {
                let kind = *kind;
                if let Some(size) = number.take(input) {
                    self.at = At::Section { kind, size };
                }
            }
            At::Identifier { hash, bytes, left } => {
                let byte = input[0];
                *input = &input[1..];
                // FNV-1a: two names with one hash are refused as if they were one, which harms their sender alone.
                *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
                (*bytes, *left) = (*bytes + 1, *left - 1);
                let (hash, bytes, left) = (*hash, *bytes, *left);
                if let Some(place) = self.name.get_mut(bytes - 1) {
                    *place = byte;
                }
                if byte == 0 {
                    self.name(hash, bytes - 1)?;
                    self.at = At::Skip { left };
                } else if bytes > IDENTIFIER_BYTES_MAX || left == 0 {
                    return Err(MessageError::IdentifierBytes);
                }
            }
            At::Checksum(number) => {
                if let Some(sum) = number.take(input) {
                    let expected = self.checksum.take().map(Checksum::value);
                    if expected != Some(sum) {
                        return Err(MessageError::Checksum);
                    }
                    self.at = At::End;
                }
            }
            At::Section { .. } | At::End => return Err(MessageError::Short),
        }
        Ok(())
    }

    /// The content of a section, whose size counts itself.
    fn section(&mut self, kind: u8, size: u32) -> Result<At, MessageError> {
        let content = (size as usize).checked_sub(4).filter(|content| *content > 0);
        let room = self.left.saturating_sub(self.trailer());
        let content = content.filter(|content| *content <= room).ok_or(MessageError::SectionSize)?;
        match kind {
            0 if self.has_body => Err(MessageError::SecondBody),
            0 => {
                self.has_body = true;
                Ok(At::Skip { left: content })
            }
            1 => Ok(At::Identifier { hash: 0xcbf2_9ce4_8422_2325, bytes: 0, left: content }),
            _ => Err(MessageError::SectionKind(kind)),
        }
    }

    fn name(&mut self, hash: u64, bytes: usize) -> Result<(), MessageError> {
        // A name that is not whole here is longer than any that may be there.
        let name = self.name.get(..bytes).unwrap_or_default();
        if self.possible.is_some_and(|possible| !possible.has(name)) {
            return Err(MessageError::Argument);
        }
        if self.identifiers[..self.sequences].contains(&hash) {
            return Err(MessageError::Identifier);
        }
        *self.identifiers.get_mut(self.sequences).ok_or(MessageError::Sequences)? = hash;
        self.sequences += 1;
        Ok(())
    }

    fn trailer(&self) -> usize {
        if self.checksum.is_some() { CHECKSUM_BYTES } else { 0 }
    }

    /// Goes on behind a field that has ended.
    fn turn(&mut self) -> Result<(), MessageError> {
        match self.at {
            At::Section { kind, size } => self.at = self.section(kind, size)?,
            At::Header { left: 0 } if self.left > 0 => self.at = At::Flags(Number::default()),
            At::Skip { left: 0 } if self.left > self.trailer() => self.at = At::Kind,
            At::Skip { left: 0 } if self.left < self.trailer() => return Err(MessageError::Short),
            At::Skip { left: 0 } if !self.has_body => return Err(MessageError::NoBody),
            At::Skip { left: 0 } if self.checksum.is_some() => self.at = At::Checksum(Number::default()),
            At::Skip { left: 0 } => self.at = At::End,
            At::Header { .. } | At::Flags(_) | At::Kind | At::Size { .. } | At::Identifier { .. } if self.left == 0 => {
                return Err(MessageError::Short);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{self, Ids, Message};

    fn follow(bytes: &[u8], piece: usize) -> Result<bool, MessageError> {
        let header = Header::read(bytes)?.ok_or(MessageError::Short)?;
        let mut framer = SectionFramer::new(&header);
        bytes.chunks(piece).try_for_each(|piece| framer.take(piece))?;
        Ok(framer.is_end())
    }

    fn written(flags: Flags) -> Vec<u8> {
        let mut out = Vec::new();
        let mut document = Vec::new();
        crate::bson::document(&mut document, |writer| writer.int32("_id", 1));
        let documents = std::iter::repeat_n(crate::bson::Document::read(&document).unwrap(), 3);
        let ids = Ids { request: 1, response_to: 0 };
        message::write_with_sequence(&mut out, ids, flags, |body| body.string("insert", "a"), "documents", documents);
        out
    }

    #[test]
    fn a_message_in_any_pieces_is_followed_to_its_end() {
        for flags in [Flags::empty(), Flags::CHECKSUM_PRESENT] {
            let message = written(flags);
            for piece in 1..=message.len() {
                assert_eq!(follow(&message, piece), Ok(true), "pieces of {piece}");
            }
        }
    }

    #[test]
    fn m5_the_rules_are_those_of_a_whole_message() {
        let whole = written(Flags::CHECKSUM_PRESENT);
        for at in 16..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x41;
            let read = Message::read(&broken).map(|_| ());
            // Documents are the reader's alone.
            let (read, followed) = (read.err(), follow(&broken, 1).err());
            assert!(followed.is_some() == read.is_some(), "at {at}: {read:?} {followed:?}");
        }
    }

    #[test]
    fn s9_a_sequence_that_its_command_does_not_have_is_refused_in_any_pieces() {
        let followed = |command: &str, field: Option<&str>, identifier: &str, is_body_last: bool| {
            let mut document = Vec::new();
            crate::bson::document(&mut document, |writer| writer.int32("_id", 1));
            let documents = std::iter::repeat_n(crate::bson::Document::read(&document).unwrap(), 3);
            let (mut out, ids) = (Vec::new(), Ids { request: 1, response_to: 0 });
            let body = |body: &mut crate::bson::Writer<'_>| {
                body.string(command, "orders");
                if let Some(field) = field {
                    body.int32(field, 1);
                }
            };
            message::write_with_sequence(&mut out, ids, Flags::empty(), body, identifier, documents);
            let body_end = 21 + u32::from_le_bytes(out[21..25].try_into().unwrap()) as usize;
            let mut first = body_end;
            if is_body_last {
                out[20..].rotate_left(body_end - 20);
                first = out.len();
            }
            let header = Header::read(&out).unwrap().unwrap();
            let results = (1..=out.len()).map(|piece| {
                let mut framer = SectionFramer::of_request(&header, &out[..first])?;
                out[first..].chunks(piece).try_for_each(|piece| framer.take(piece))?;
                assert!(framer.is_end());
                Ok(())
            });
            let results: Vec<_> = results.collect();
            assert!(results.iter().all(|result| *result == results[0]));
            results[0]
        };
        for is_body_last in [false, true] {
            for (command, name) in [("insert", "documents"), ("update", "updates"), ("bulkWrite", "nsInfo")] {
                assert_eq!(followed(command, None, name, is_body_last), Ok(()));
                assert_eq!(followed(command, Some(name), name, is_body_last), Err(MessageError::Argument), "twice");
                assert_eq!(followed("find", None, name, is_body_last), Err(MessageError::Argument));
            }
            for name in ["pipeline", "filter", "$db", "documents2", "writeConcern"] {
                assert_eq!(followed("insert", None, name, is_body_last), Err(MessageError::Argument), "{name}");
                assert_eq!(followed("aggregate", None, name, is_body_last), Err(MessageError::Argument), "{name}");
            }
        }
    }

    #[test]
    fn a_message_that_is_shorter_than_its_flags_is_refused() {
        for length in 16..20_u32 {
            let head = [&length.to_le_bytes()[..], &[0; 8], &2013_u32.to_le_bytes(), &[0; 3]].concat();
            assert_eq!(follow(&head[..length as usize], 5), Err(MessageError::Short), "{length}");
        }
    }
}
