//! OP_MSG: flags, exactly one body, and document sequences beside it.
//!
//! Source: "OP_MSG" of the driver specifications. Sections have any order, so that the body may be the last one.

use bitflags::bitflags;

use crate::arguments::Arguments;
use crate::bson::{self, Document, Writer};
use crate::checksum::{self, CHECKSUM_BYTES};
use crate::error::{BsonError, CommandError, MessageError};
use crate::header::{HEADER_BYTES, Header, OpCode};
use crate::limits::{IDENTIFIER_BYTES_MAX, MESSAGE_BYTES_MAX, SEQUENCES_MAX};

/// Bytes in front of the first section.
pub(crate) const SECTIONS_AT: usize = HEADER_BYTES + 4;

/// The kind of a section with the body.
const BODY: u8 = 0;
/// The kind of a section with a document sequence.
const SEQUENCE: u8 = 1;

bitflags! {
    /// Flags of an OP_MSG. The lower half is required of a receiver, the upper half is not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// The last four bytes are a checksum. PyMongo takes none in a reply.
        const CHECKSUM_PRESENT = 1;
        /// In a request: there will be no reply. In a reply: another reply follows, without another request.
        const MORE_TO_COME = 1 << 1;
        /// In a request: replies with `MORE_TO_COME` are welcome. Servers use it for getMore and hello.
        const EXHAUST_ALLOWED = 1 << 16;
    }
}

impl Flags {
    /// From the wire. Unknown optional flags are left out here, and stay in the message.
    ///
    /// # Errors
    /// A required flag is unknown.
    #[inline]
    pub const fn read(bits: u32) -> Result<Self, MessageError> {
        let flags = Self::from_bits_truncate(bits);
        if bits & 0xffff & !flags.bits() == 0 { Ok(flags) } else { Err(MessageError::Flags(bits)) }
    }

    /// Bytes behind the sections.
    pub(crate) const fn trailer(self) -> usize {
        if self.contains(Self::CHECKSUM_PRESENT) { CHECKSUM_BYTES } else { 0 }
    }
}

/// The ids of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id of this message.
    pub request: i32,
    /// The id of the message that this one replies to; 0 in requests.
    pub response_to: i32,
}

/// A whole OP_MSG whose sections fit it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Its header.
    pub header: Header,
    /// Its flags.
    pub flags: Flags,
    /// The command or the reply.
    pub body: Document<'a>,
    sections: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a whole message, from its header to its last byte, and verifies its checksum.
    ///
    /// # Errors
    /// The message is another opcode, or breaks a rule of OP_MSG. Documents of a sequence are not looked at; see [`Sequence`].
    pub fn read(message: &'a [u8]) -> Result<Self, MessageError> {
        let Parts { header, flags, sections } = parts(message)?.ok_or(MessageError::Short)?;
        if header.bytes != message.len() {
            return Err(MessageError::Length { claimed: header.bytes as i32 });
        }
        let size = sections.len().checked_sub(flags.trailer()).ok_or(MessageError::Short)?;
        let (sections, end) = (&sections[..size], SECTIONS_AT + size);
        if flags.contains(Flags::CHECKSUM_PRESENT) {
            let (signed, sum) = message.split_at(end);
            if sum != checksum::of(signed).to_le_bytes() {
                return Err(MessageError::Checksum);
            }
        }
        let body = only_body(sections)?;
        Ok(Self { header, flags, body, sections })
    }

    /// Whether each sequence is an argument of the command in the body, and not in the body as well.
    ///
    /// # Errors
    /// One is not, or the body is broken.
    pub fn check_arguments(self) -> Result<(), CommandError> {
        let mut sequences = self.sequences().peekable();
        if sequences.peek().is_none() {
            return Ok(());
        }
        let possible = Arguments::beside(self.body)?;
        if sequences.all(|sequence| possible.has(sequence.identifier)) { Ok(()) } else { Err(CommandError::Argument) }
    }

    /// The document sequences, in order.
    pub fn sequences(self) -> impl Iterator<Item = Sequence<'a>> {
        // They were read before.
        Sections(self.sections).filter_map(|section| match section {
            Ok(Section::Sequence(sequence)) => Some(sequence),
            _ => None,
        })
    }
}

/// The body of a message of which the first bytes are there; `None`: they do not hold the body yet. The rest of the message is
/// followed by a [`SectionFramer`](crate::sections::SectionFramer), which finds a second body.
///
/// # Errors
/// As [`Message::read`], as far as the bytes show it.
pub fn first_body(available: &[u8]) -> Result<Option<(Flags, Document<'_>)>, MessageError> {
    let Some(Parts { header, flags, sections: mut rest }) = parts(available)? else { return Ok(None) };
    let mut left = header.bytes.checked_sub(SECTIONS_AT + flags.trailer()).ok_or(MessageError::Short)?;
    loop {
        let Some((&kind, payload)) = rest.split_first() else { return Ok(None) };
        if left == 0 {
            return Err(MessageError::NoBody);
        }
        let Some(size) = size(payload, left - 1)? else { return Ok(None) };
        match kind {
            BODY => return payload.get(..size).map(|body| Ok((flags, Document::read(body)?))).transpose(),
            SEQUENCE => {}
            _ => return Err(MessageError::SectionKind(kind)),
        }
        left -= 1 + size;
        let Some(behind) = payload.get(size..) else { return Ok(None) };
        rest = behind;
    }
}

/// Header, flags, and the bytes behind them.
struct Parts<'a> {
    header: Header,
    flags: Flags,
    sections: &'a [u8],
}

fn parts(message: &[u8]) -> Result<Option<Parts<'_>>, MessageError> {
    let Some(header) = Header::read(message)? else { return Ok(None) };
    if header.op_code != OpCode::Msg {
        return Err(MessageError::OpCode(header.op_code.number()));
    }
    let Some((bits, sections)) = message[HEADER_BYTES..].split_first_chunk() else { return Ok(None) };
    let flags = Flags::read(u32::from_le_bytes(*bits))?;
    Ok(Some(Parts { header, flags, sections }))
}

/// Bytes of a section behind its kind; `None`: its length is not there yet. `left`: bytes that the message has for it.
fn size(payload: &[u8], left: usize) -> Result<Option<usize>, MessageError> {
    let Some(&size) = payload.first_chunk() else {
        return if left < 4 { Err(MessageError::SectionSize) } else { Ok(None) };
    };
    match usize::try_from(i32::from_le_bytes(size)) {
        Ok(size) if (5..=left).contains(&size) => Ok(Some(size)),
        _ => Err(MessageError::SectionSize),
    }
}

/// A section of a message.
enum Section<'a> {
    Body(Document<'a>),
    Sequence(Sequence<'a>),
}

/// Sections that are left. An error is the last item.
struct Sections<'a>(&'a [u8]);

impl<'a> Sections<'a> {
    fn read(&mut self, kind: u8, payload: &'a [u8]) -> Result<Section<'a>, MessageError> {
        let size = size(payload, payload.len())?.ok_or(MessageError::SectionSize)?;
        let (payload, rest) = payload.split_at(size);
        self.0 = rest;
        match kind {
            BODY => Ok(Section::Body(Document::read(payload)?)),
            SEQUENCE => {
                let rest = &payload[4..];
                let end = memchr::memchr(0, &rest[..rest.len().min(IDENTIFIER_BYTES_MAX + 1)]);
                let end = end.ok_or(MessageError::IdentifierBytes)?;
                Ok(Section::Sequence(Sequence { identifier: &rest[..end], documents: &rest[end + 1..] }))
            }
            _ => Err(MessageError::SectionKind(kind)),
        }
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Result<Section<'a>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, payload) = self.0.split_first()?;
        let section = self.read(kind, payload);
        if section.is_err() {
            self.0 = &[];
        }
        Some(section)
    }
}

/// The one body. Every section is read, and each identifier is there once.
fn only_body(sections: &[u8]) -> Result<Document<'_>, MessageError> {
    let mut body = None;
    let mut known: [&[u8]; SEQUENCES_MAX] = [&[]; SEQUENCES_MAX];
    let mut sequences = 0;
    for section in Sections(sections) {
        match section? {
            Section::Body(document) => {
                if body.replace(document).is_some() {
                    return Err(MessageError::SecondBody);
                }
            }
            Section::Sequence(sequence) => {
                if known[..sequences].contains(&sequence.identifier) {
                    return Err(MessageError::Identifier);
                }
                *known.get_mut(sequences).ok_or(MessageError::Sequences)? = sequence.identifier;
                sequences += 1;
            }
        }
    }
    body.ok_or(MessageError::NoBody)
}

/// A document sequence: an argument of the command that is an array of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'a> {
    /// The name of the argument.
    pub identifier: &'a [u8],
    documents: &'a [u8],
}

impl<'a> Sequence<'a> {
    /// The documents, in order. An error is the last item: lengths that do not fit the section.
    pub fn documents(self) -> impl Iterator<Item = Result<Document<'a>, BsonError>> {
        let mut rest = self.documents;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let document = Document::first(rest);
            rest = document.map_or(&[], |document| &rest[document.bytes().len()..]);
            Some(document)
        })
    }
}

/// Appends a message with a body of its own. With [`Flags::CHECKSUM_PRESENT`] the checksum follows.
pub fn write(out: &mut Vec<u8>, ids: Ids, flags: Flags, body: impl FnOnce(&mut Writer<'_>)) {
    write_sections(out, ids, flags, |out| {
        out.push(BODY);
        bson::document(out, body);
    });
}

/// Appends a message with a body and one document sequence.
pub fn write_with_sequence<'a>(
    out: &mut Vec<u8>,
    ids: Ids,
    flags: Flags,
    body: impl FnOnce(&mut Writer<'_>),
    identifier: &str,
    documents: impl IntoIterator<Item = Document<'a>>,
) {
    debug_assert!(identifier.len() <= IDENTIFIER_BYTES_MAX && !identifier.contains('\0'), "callers own the name");
    write_sections(out, ids, flags, |out| {
        out.push(BODY);
        bson::document(out, body);
        out.push(SEQUENCE);
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(identifier.as_bytes());
        out.push(0);
        documents.into_iter().for_each(|document| out.extend_from_slice(document.bytes()));
        let size = out.len() - start;
        out[start..start + 4].copy_from_slice(&(size as u32).to_le_bytes());
    });
}

fn write_sections(out: &mut Vec<u8>, ids: Ids, flags: Flags, sections: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let header = Header { bytes: 0, request: ids.request, response_to: ids.response_to, op_code: OpCode::Msg };
    header.write(out);
    out.extend_from_slice(&flags.bits().to_le_bytes());
    sections(out);
    let bytes = out.len() - start + flags.trailer();
    debug_assert!(bytes <= MESSAGE_BYTES_MAX, "callers own the size of a message");
    out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    if flags.contains(Flags::CHECKSUM_PRESENT) {
        let sum = checksum::of(&out[start..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }
}

/// Gives a whole message other ids, and a checksum of them if it has one. Everything else stays.
///
/// # Errors
/// `message` is no whole OP_MSG.
pub fn set_ids(message: &mut [u8], ids: Ids) -> Result<(), MessageError> {
    let Parts { header, flags, .. } = parts(message)?.ok_or(MessageError::Short)?;
    let end = message.len().checked_sub(flags.trailer()).filter(|end| *end >= SECTIONS_AT);
    let end = end.filter(|_| header.bytes == message.len()).ok_or(MessageError::Short)?;
    message[4..8].copy_from_slice(&ids.request.to_le_bytes());
    message[8..12].copy_from_slice(&ids.response_to.to_le_bytes());
    if flags.contains(Flags::CHECKSUM_PRESENT) {
        let sum = checksum::of(&message[..end]);
        message[end..].copy_from_slice(&sum.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
