//! Rules of the wire that a peer can break. Each kind has one stable label and one text: PostgreSQL's own where it has one.

use std::borrow::Cow;
use std::fmt;

use weir_base::error::Culprit;
use weir_base::violation::Violation;

use crate::limits::{CANCEL_SECRET_BYTES, MESSAGE_BYTES_MAX, STARTUP_BYTES_MAX};
use crate::sqlstate;
use crate::startup::Version;

/// The first packet of a client cannot be used. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupError {
    /// The length field is outside of 8 to 10,004, or does not fit the kind of packet.
    Length {
        /// The value of the length field.
        claimed: u32,
    },
    /// A secret of a cancel request below 4 or above 256 bytes.
    CancelSecret {
        /// Bytes of the secret.
        bytes: usize,
    },
    /// The first bytes are a request of HTTP or of Redis.
    CrossProtocol,
    /// A major version other than 3, a second request for the same encryption included.
    Version(Version),
    /// The list of parameters has no terminator as its last byte.
    Layout,
}

impl StartupError {
    /// PostgreSQL closes without a word: the client gets no error message.
    pub const fn is_silent(self) -> bool {
        self.sqlstate().is_none()
    }

    /// SQLSTATE of the FATAL error for the client; `None` if the close is silent.
    pub const fn sqlstate(self) -> Option<&'static str> {
        match self {
            Self::Length { .. } | Self::CancelSecret { .. } | Self::CrossProtocol => None,
            Self::Version(_) => Some(sqlstate::FEATURE_NOT_SUPPORTED),
            Self::Layout => Some(sqlstate::PROTOCOL_VIOLATION),
        }
    }

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Length { .. } => "postgres_startup_length",
            Self::CancelSecret { .. } => "postgres_cancel_secret",
            Self::CrossProtocol => "cross_protocol",
            Self::Version(_) => "postgres_protocol_version",
            Self::Layout => "postgres_startup_layout",
        }
    }

    /// The text for the client or the log.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::Length { .. } => "invalid length of startup packet".into(),
            Self::CancelSecret { .. } => "invalid length of query cancel packet".into(),
            Self::CrossProtocol => "the client speaks another protocol".into(),
            Self::Version(version) => {
                format!("unsupported frontend protocol {version}: server supports 3.0 to {}", Version::LATEST).into()
            }
            Self::Layout => "invalid startup packet layout: expected terminator as last byte".into(),
        }
    }

    /// The violation that a client committed with it.
    pub fn violation(self) -> Violation {
        match self {
            Self::Length { claimed } => Violation::limit(
                self.reason(),
                Culprit::Client,
                self.text(),
                u64::from(claimed),
                STARTUP_BYTES_MAX as u64 + 4,
            ),
            Self::CancelSecret { bytes } => Violation::limit(
                self.reason(),
                Culprit::Client,
                self.text(),
                bytes as u64,
                *CANCEL_SECRET_BYTES.end() as u64,
            ),
            _ => Violation::rule(self.reason(), Culprit::Client, self.text()),
        }
    }
}

impl fmt::Display for StartupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for StartupError {}

/// The length field of a message is no length. Nothing after it can be read; PostgreSQL closes without an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// Type byte of the message.
    pub tag: u8,
    /// The length field. The body would have 4 bytes less.
    pub claimed: i32,
}

impl FrameError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        "postgres_message_length"
    }

    /// The rule, never the bytes that broke it.
    pub const fn text(self) -> &'static str {
        "invalid message length"
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        match u64::try_from(self.claimed) {
            Ok(claimed) if claimed >= 4 => {
                Violation::limit(self.reason(), culprit, self.text(), claimed - 4, MESSAGE_BYTES_MAX as u64)
            }
            _ => Violation::rule(self.reason(), culprit, self.text()),
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for FrameError {}

/// The body of a message does not have the form of its type. Its end is known all the same: a client's session goes on after an
/// error with SQLSTATE 08P01, as in PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// A string without its NUL.
    String,
    /// Fewer bytes than a count or a length claims, or a negative length.
    Short,
    /// Bytes behind the end.
    Trailing,
    /// Describe of neither a statement nor a portal.
    DescribeTarget(u8),
    /// Close of neither a statement nor a portal.
    CloseTarget(u8),
    /// A password with a NUL inside.
    PasswordSize,
    /// ReadyForQuery with none of `I`, `T`, `E`.
    TransactionStatus(u8),
    /// A request for authentication that does not exist.
    AuthenticationCode(u32),
    /// A cancel secret below 4 or above 256 bytes.
    CancelSecret,
    /// A format of COPY that is neither text nor binary.
    CopyFormat,
}

impl MessageError {
    /// SQLSTATE of the error for a client.
    pub const fn sqlstate(self) -> &'static str {
        sqlstate::PROTOCOL_VIOLATION
    }

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::String => "postgres_string",
            Self::Short => "postgres_message_short",
            Self::Trailing => "postgres_message_trailing",
            Self::DescribeTarget(_) | Self::CloseTarget(_) => "postgres_target",
            Self::PasswordSize => "postgres_password_size",
            Self::TransactionStatus(_) => "postgres_transaction_status",
            Self::AuthenticationCode(_) => "postgres_authentication_code",
            Self::CancelSecret => "postgres_cancel_secret",
            Self::CopyFormat => "postgres_copy_format",
        }
    }

    /// The text for the client or the log.
    pub fn text(self) -> Cow<'static, str> {
        match self {
            Self::String => "invalid string in message".into(),
            Self::Short => "insufficient data left in message".into(),
            Self::Trailing => "invalid message format".into(),
            Self::DescribeTarget(byte) => format!("invalid DESCRIBE message subtype {byte}").into(),
            Self::CloseTarget(byte) => format!("invalid CLOSE message subtype {byte}").into(),
            Self::PasswordSize => "invalid password packet size".into(),
            Self::TransactionStatus(byte) => format!("unknown transaction status {byte}").into(),
            Self::AuthenticationCode(code) => format!("unknown authentication request {code}").into(),
            Self::CancelSecret => "invalid length of cancel key".into(),
            Self::CopyFormat => "unknown format of COPY".into(),
        }
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.reason(), culprit, self.text())
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for MessageError {}
