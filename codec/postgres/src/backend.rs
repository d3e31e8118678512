//! Messages of servers. Views take the body of one whole message; encoders append a message.

mod authentication;
mod encode;
mod report;
mod rows;

pub use authentication::{Authentication, Mechanisms};
pub use encode::*;
pub use report::{ErrorFields, ErrorReport, Severity, error, error_as, notice};
pub use rows::{Column, CopyResponse, DataRow, RowDescription, data_row, row_description};

use crate::body::{Body, Oids};
use crate::error::MessageError;
use crate::limits::CANCEL_SECRET_BYTES;
use crate::startup::Version;

/// Type bytes.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod tag {
    pub const AUTHENTICATION: u8 = b'R';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const BACKEND_KEY_DATA: u8 = b'K';
    pub const READY_FOR_QUERY: u8 = b'Z';
    pub const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';
    pub const ROW_DESCRIPTION: u8 = b'T';
    pub const DATA_ROW: u8 = b'D';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const EMPTY_QUERY: u8 = b'I';
    pub const ERROR: u8 = b'E';
    pub const NOTICE: u8 = b'N';
    pub const NOTIFICATION: u8 = b'A';
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const NO_DATA: u8 = b'n';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const COPY_IN: u8 = b'G';
    pub const COPY_OUT: u8 = b'H';
    pub const COPY_BOTH: u8 = b'W';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const FUNCTION_CALL: u8 = b'V';
}

/// A server sends messages with this type byte.
#[inline]
pub const fn is_known(tag: u8) -> bool {
    matches!(
        tag,
        b'R' | b'S'
            | b'K'
            | b'Z'
            | b'v'
            | b'T'
            | b'D'
            | b'C'
            | b'I'
            | b'E'
            | b'N'
            | b'A'
            | b'1'
            | b'2'
            | b'3'
            | b'n'
            | b't'
            | b's'
            | b'G'
            | b'H'
            | b'W'
            | b'd'
            | b'c'
            | b'V'
    )
}

/// The place of a session with respect to transaction blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// In no block (`I`).
    Idle,
    /// In a block (`T`).
    InBlock,
    /// In a block that has failed: only its end is accepted (`E`).
    Failed,
}

impl TransactionStatus {
    /// From its byte on the wire.
    #[inline]
    pub const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'I' => Some(Self::Idle),
            b'T' => Some(Self::InBlock),
            b'E' => Some(Self::Failed),
            _ => None,
        }
    }

    /// Its byte on the wire.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InBlock => b'T',
            Self::Failed => b'E',
        }
    }
}

/// The server has processed everything up to a Query, Sync or FunctionCall (`Z`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyForQuery(pub TransactionStatus);

impl ReadyForQuery {
    /// # Errors
    /// The body is not one byte of the three.
    #[inline]
    pub fn read(body: &[u8]) -> Result<Self, MessageError> {
        match *body {
            [byte] => TransactionStatus::of(byte).map(Self).ok_or(MessageError::TransactionStatus(byte)),
            [] => Err(MessageError::Short),
            _ => Err(MessageError::Trailing),
        }
    }
}

/// The value of a setting that the server reports (`S`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterStatus<'a> {
    /// Name of the setting.
    pub name: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> ParameterStatus<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let status = Self { name: body.string()?, value: body.string()? };
        body.end()?;
        Ok(status)
    }
}

/// The key of cancel requests for this connection (`K`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BackendKeyData<'a> {
    /// The server's process.
    pub pid: u32,
    /// The secret: 4 bytes in protocol 3.0, up to 256 in 3.2.
    pub secret: &'a [u8],
}

impl std::fmt::Debug for BackendKeyData<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackendKeyData").field("pid", &self.pid).finish_non_exhaustive()
    }
}

impl<'a> BackendKeyData<'a> {
    /// # Errors
    /// The body does not have this form, or the secret has a length out of range.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let key = Self { pid: body.u32()?, secret: body.rest() };
        if CANCEL_SECRET_BYTES.contains(&key.secret.len()) { Ok(key) } else { Err(MessageError::CancelSecret) }
    }
}

/// A statement has been executed (`C`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandComplete<'a> {
    /// The action that was done, such as `SELECT 1` or `BEGIN`.
    pub tag: &'a [u8],
}

impl<'a> CommandComplete<'a> {
    /// # Errors
    /// No NUL at the end, or bytes behind it.
    #[inline]
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let tag = body.string()?;
        body.end()?;
        Ok(Self { tag })
    }

    /// The rows that the tag counts, if it counts any.
    pub fn rows(&self) -> Option<u64> {
        let last = self.tag.rsplit(|byte| *byte == b' ').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    }
}

/// A message of NOTIFY (`A`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationResponse<'a> {
    /// The server process of the sender.
    pub pid: u32,
    /// The channel.
    pub channel: &'a [u8],
    /// The text; empty if there is none.
    pub payload: &'a [u8],
}

impl<'a> NotificationResponse<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let notification = Self { pid: body.u32()?, channel: body.string()?, payload: body.string()? };
        body.end()?;
        Ok(notification)
    }
}

/// The server does not know the client's version or options (`v`). The login goes on without them.
#[derive(Clone, Copy, Debug)]
pub struct NegotiateProtocolVersion<'a> {
    /// The newest version that the server speaks.
    pub version: Version,
    options: Body<'a>,
}

impl<'a> NegotiateProtocolVersion<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let (version, count) = (Version::of(body.u32()?), body.u32()?);
        let options = body;
        for _ in 0..count {
            body.string()?;
        }
        body.end()?;
        Ok(Self { version, options })
    }

    /// The options that the server does not know.
    pub fn options(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut options = self.options;
        std::iter::from_fn(move || options.string().ok())
    }
}

/// Types of the parameters of a statement (`t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterDescription<'a> {
    /// The types.
    pub types: Oids<'a>,
}

impl<'a> ParameterDescription<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let types = Oids::read(&mut body)?;
        body.end()?;
        Ok(Self { types })
    }
}

/// The result of a FunctionCall (`V`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCallResponse<'a> {
    /// The result; `None` is SQL's NULL.
    pub value: Option<&'a [u8]>,
}

impl<'a> FunctionCallResponse<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let value = body.value()?;
        body.end()?;
        Ok(Self { value })
    }
}
