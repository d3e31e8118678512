//! Rules of the wire that a peer can break. Each kind has one stable label and one text.

use std::fmt;

use weir_base::error::Culprit;
use weir_base::violation::Violation;

use crate::limits::{DEPTH_MAX, IDENTIFIER_BYTES_MAX, INFLATE_RATIO_MAX, MESSAGE_BYTES_MAX, SEQUENCES_MAX};

/// Gives an error its `Display`, `Error` and `violation`, all from its `reason`, `text` and `numbers`.
macro_rules! rules {
    ($($error:ident)*) => {$(
        impl $error {
            /// The violation that `culprit` committed with it.
            pub fn violation(self, culprit: Culprit) -> Violation {
                match self.numbers() {
                    Some((count, limit)) => Violation::limit(self.reason(), culprit, self.text(), count, limit),
                    None => Violation::rule(self.reason(), culprit, self.text()),
                }
            }
        }

        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }

        impl std::error::Error for $error {}
    )*};
}
rules!(MessageError BsonError InflateError CommandError);

/// A message that cannot be followed or read. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The length is below 16 or above [`MESSAGE_BYTES_MAX`].
    Length {
        /// The value of the length field.
        claimed: i32,
    },
    /// The first bytes are a request of HTTP or of Redis.
    CrossProtocol,
    /// No opcode of the protocol.
    OpCode(i32),
    /// The message ends inside of a field.
    Short,
    /// A required flag that this codec does not know (bits 2 to 15).
    Flags(u32),
    /// A section that is neither a body nor a document sequence.
    SectionKind(u8),
    /// A section whose size does not fit the message.
    SectionSize,
    /// Two bodies.
    SecondBody,
    /// No body.
    NoBody,
    /// Two document sequences of one name.
    Identifier,
    /// A document sequence that its command does not have, or that the body has as well.
    Argument,
    /// The name of a document sequence has no end, or is too long.
    IdentifierBytes,
    /// Too many document sequences.
    Sequences,
    /// The checksum is another.
    Checksum,
    /// OP_COMPRESSED around OP_COMPRESSED.
    Nested,
    /// A compressor that does not exist.
    Compressor(u8),
    /// The size after inflating is negative, or beyond the bytes that a message may have.
    InflatedSize {
        /// The value of the size field.
        claimed: i32,
    },
    /// A document is broken.
    Bson(BsonError),
}

impl From<BsonError> for MessageError {
    fn from(error: BsonError) -> Self {
        Self::Bson(error)
    }
}

impl MessageError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Length { .. } => "mongodb_message_length",
            Self::CrossProtocol => "cross_protocol",
            Self::OpCode(_) => "mongodb_opcode",
            Self::Short => "mongodb_message_short",
            Self::Flags(_) => "mongodb_flags",
            Self::SectionKind(_) | Self::SectionSize => "mongodb_section",
            Self::SecondBody | Self::NoBody => "mongodb_body",
            Self::Identifier | Self::Argument | Self::IdentifierBytes | Self::Sequences => "mongodb_sequence",
            Self::Checksum => "mongodb_checksum",
            Self::Nested => "mongodb_compressed_twice",
            Self::Compressor(_) => "mongodb_compressor",
            Self::InflatedSize { .. } => "mongodb_inflated_size",
            Self::Bson(error) => error.reason(),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Length { .. } => "a message has 16 to 48,000,000 bytes",
            Self::CrossProtocol => "the client speaks another protocol",
            Self::OpCode(_) => "the opcode does not exist, or has no place here",
            Self::Short => "the message ends inside of a field",
            Self::Flags(_) => "a required flag is unknown",
            Self::SectionKind(_) => "the kind of a section is unknown",
            Self::SectionSize => "the size of a section does not fit the message",
            Self::SecondBody => "the message has two bodies",
            Self::NoBody => "the message has no body",
            Self::Identifier => "two document sequences have one name",
            Self::Argument => "a document sequence is no argument of its command, or is there twice",
            Self::IdentifierBytes => "the name of a document sequence is too long",
            Self::Sequences => "the message has too many document sequences",
            Self::Checksum => "the checksum of the message is wrong",
            Self::Nested => "a compressed message is inside of a compressed message",
            Self::Compressor(_) => "the compressor does not exist",
            Self::InflatedSize { .. } => "the size of the inflated message is beyond the limit",
            Self::Bson(error) => error.text(),
        }
    }

    const fn numbers(self) -> Option<(u64, u64)> {
        match self {
            Self::Length { claimed } | Self::InflatedSize { claimed } => {
                Some((claimed as u32 as u64, MESSAGE_BYTES_MAX as u64))
            }
            Self::IdentifierBytes => Some((IDENTIFIER_BYTES_MAX as u64 + 1, IDENTIFIER_BYTES_MAX as u64)),
            Self::Sequences => Some((SEQUENCES_MAX as u64 + 1, SEQUENCES_MAX as u64)),
            Self::Bson(error) => error.numbers(),
            _ => None,
        }
    }
}

/// A document whose lengths, types or ends do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BsonError {
    /// The bytes end inside of the document, or an element reaches beyond the end of its document.
    Short,
    /// A length that no value of its type has.
    Length {
        /// The value of the length field.
        claimed: i32,
    },
    /// A document or a text does not end with a zero byte, or ends before its length.
    Terminator,
    /// A type of element that does not exist.
    Kind(u8),
    /// More documents inside of each other than [`DEPTH_MAX`], or than the caller permits.
    Depth,
}

impl BsonError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Short => "bson_short",
            Self::Length { .. } => "bson_length",
            Self::Terminator => "bson_terminator",
            Self::Kind(_) => "bson_type",
            Self::Depth => "bson_depth",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Short => "a document ends inside of an element",
            Self::Length { .. } => "a length in a document is impossible",
            Self::Terminator => "a document or a text has no zero byte at its end",
            Self::Kind(_) => "the type of an element does not exist",
            Self::Depth => "documents are nested too deeply",
        }
    }

    const fn numbers(self) -> Option<(u64, u64)> {
        match self {
            Self::Depth => Some((DEPTH_MAX as u64 + 1, DEPTH_MAX as u64)),
            _ => None,
        }
    }
}

/// A compressed message that cannot be inflated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InflateError {
    /// More bytes than [`INFLATE_RATIO_MAX`] for each compressed one.
    Ratio,
    /// The compressed bytes are broken.
    Broken,
    /// The message has more or fewer bytes than its head claims.
    Size,
}

impl InflateError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Ratio => "mongodb_inflate_ratio",
            Self::Broken => "mongodb_inflate_broken",
            Self::Size => "mongodb_inflate_size",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Ratio => "a compressed message grows too much",
            Self::Broken => "a compressed message is broken",
            Self::Size => "a compressed message has another size than it claims",
        }
    }

    const fn numbers(self) -> Option<(u64, u64)> {
        match self {
            Self::Ratio => Some((INFLATE_RATIO_MAX as u64 + 1, INFLATE_RATIO_MAX as u64)),
            Self::Broken | Self::Size => None,
        }
    }
}

/// A body that is no command, or one that two readers could read in two ways. The client gets an error; nothing is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The body has no element.
    Empty,
    /// A field that decides about the command is there twice.
    Duplicate,
    /// A document sequence that the command does not have, or that the body has as well.
    Argument,
    /// A field that decides about the command has a wrong type.
    Type,
    /// `$db` is missing.
    NoDatabase,
    /// The name of a database or a collection cannot be one.
    Namespace,
    /// The body is broken.
    Bson(BsonError),
}

impl From<BsonError> for CommandError {
    fn from(error: BsonError) -> Self {
        Self::Bson(error)
    }
}

impl CommandError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Empty => "mongodb_command_empty",
            Self::Duplicate => "mongodb_field_twice",
            Self::Argument => "mongodb_sequence",
            Self::Type => "mongodb_field_type",
            Self::NoDatabase => "mongodb_no_database",
            Self::Namespace => "mongodb_namespace",
            Self::Bson(error) => error.reason(),
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Empty => "a command has no field",
            Self::Duplicate => "a field of a command is there twice",
            Self::Argument => "a document sequence is no argument of its command, or is there twice",
            Self::Type => "a field of a command has a wrong type",
            Self::NoDatabase => "a command names no database",
            Self::Namespace => "the name of a database or a collection is invalid",
            Self::Bson(error) => error.text(),
        }
    }

    const fn numbers(self) -> Option<(u64, u64)> {
        match self {
            Self::Bson(error) => error.numbers(),
            _ => None,
        }
    }
}
