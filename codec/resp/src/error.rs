//! Violations on the wire. Each kind has one stable label and one text; Redis' own text where Redis has one.

use std::borrow::Cow;
use std::fmt;

use weir_base::error::Culprit;
use weir_base::violation::Violation;

/// A peer broke a wire rule. The connection cannot be read any further and must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolError {
    // The clients.
    /// `*` header that is no canonical number or exceeds the argument cap.
    InvalidMultibulkLength,
    /// `$` header that is no canonical number, is negative, or exceeds the bulk cap.
    InvalidBulkLength,
    /// More than ten arguments before authentication.
    UnauthenticatedMultibulkLength,
    /// More than 16,384 bytes in one argument before authentication.
    UnauthenticatedBulkLength,
    /// An inline command longer than the line cap.
    InlineTooBig,
    /// A `*` header longer than the line cap.
    MultibulkHeaderTooBig,
    /// A `$` header longer than the line cap.
    BulkHeaderTooBig,
    /// An argument that does not start with `$`.
    ExpectedBulk {
        /// The byte found in its place.
        got: u8,
    },
    /// An inline command with unbalanced quotes, or text glued to a closing quote.
    UnbalancedQuotes,
    /// A NUL byte in an inline command. Redis never finds the end of such a line.
    InlineNul,
    /// A header line that ends with LF alone. Redis would wait for ever; another parser might accept it.
    HeaderLineEnd,
    /// A payload not followed by CRLF. Redis skips the two bytes unseen.
    BulkEnd,
    /// An HTTP request: `POST` or `Host:` as the first word of an inline command. Close without a reply.
    CrossProtocol,

    // The upstreams.
    /// A reply type that does not exist.
    ReplyType {
        /// The byte found where a type byte belongs.
        got: u8,
    },
    /// `$?`, `*?` and their like: no server sends them.
    ReplyStreamed,
    /// A length that is no canonical number, or a null form where none exists.
    ReplyLength,
    /// A bulk longer than the cap.
    ReplyBulkTooLong,
    /// More elements in one aggregate than the cap.
    ReplyElements,
    /// Deeper nesting than the cap.
    ReplyDepth,
    /// A line that is not ended by CRLF, or a CR or LF inside it.
    ReplyLineEnd,
    /// A simple line longer than the cap.
    ReplyLineTooLong,
    /// A payload not followed by CRLF.
    ReplyBulkEnd,
    /// A scalar whose text does not fit its type; only decoded values are checked for that.
    ReplyScalar,
    /// More nodes or bytes than a decoded value may have.
    ReplyTooBig,
}

impl ProtocolError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InvalidMultibulkLength => "invalid_multibulk_length",
            Self::InvalidBulkLength => "invalid_bulk_length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated_multibulk_length",
            Self::UnauthenticatedBulkLength => "unauthenticated_bulk_length",
            Self::InlineTooBig => "inline_too_big",
            Self::MultibulkHeaderTooBig => "multibulk_header_too_big",
            Self::BulkHeaderTooBig => "bulk_header_too_big",
            Self::ExpectedBulk { .. } => "expected_bulk",
            Self::UnbalancedQuotes => "unbalanced_quotes",
            Self::InlineNul => "inline_nul",
            Self::HeaderLineEnd => "header_line_end",
            Self::BulkEnd => "bulk_end",
            Self::CrossProtocol => "cross_protocol",
            Self::ReplyType { .. } => "reply_type",
            Self::ReplyStreamed => "reply_streamed",
            Self::ReplyLength => "reply_length",
            Self::ReplyBulkTooLong => "reply_bulk_too_long",
            Self::ReplyElements => "reply_elements",
            Self::ReplyDepth => "reply_depth",
            Self::ReplyLineEnd => "reply_line_end",
            Self::ReplyLineTooLong => "reply_line_too_long",
            Self::ReplyBulkEnd => "reply_bulk_end",
            Self::ReplyScalar => "reply_scalar",
            Self::ReplyTooBig => "reply_too_big",
        }
    }

    /// The whole text for the client, `ERR` included, or `None` where the rule is to close without a reply.
    /// Texts of Redis 7.0 where it has one (`networking.c`, `setProtocolError` and its callers).
    /// Never for upstream errors: those are ours to handle, not the client's.
    pub fn client_text(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::InvalidMultibulkLength => "ERR Protocol error: invalid multibulk length",
            Self::InvalidBulkLength => "ERR Protocol error: invalid bulk length",
            Self::UnauthenticatedMultibulkLength => "ERR Protocol error: unauthenticated multibulk length",
            Self::UnauthenticatedBulkLength => "ERR Protocol error: unauthenticated bulk length",
            Self::InlineTooBig => "ERR Protocol error: too big inline request",
            Self::MultibulkHeaderTooBig => "ERR Protocol error: too big mbulk count string",
            Self::BulkHeaderTooBig => "ERR Protocol error: too big bulk count string",
            Self::ExpectedBulk { got } => return Some(Cow::Owned(expected_bulk(*got))),
            Self::UnbalancedQuotes => "ERR Protocol error: unbalanced quotes in request",
            Self::InlineNul => "ERR Protocol error: NUL in inline request",
            Self::HeaderLineEnd => "ERR Protocol error: expected CRLF after length",
            Self::BulkEnd => "ERR Protocol error: expected CRLF after bulk",
            _ => return None,
        }))
    }

    /// Whether an upstream, rather than a client, broke the rule.
    pub fn is_upstream(&self) -> bool {
        self.reason().starts_with("reply_")
    }
}

/// Redis prints the byte as it is; anything but printable ASCII is escaped here, so that the text stays one line.
fn expected_bulk(got: u8) -> String {
    match got {
        // Redis' error writer turns line ends into blanks.
        b'\r' | b'\n' => "ERR Protocol error: expected '$', got ' '".to_owned(),
        b' '..=b'~' => format!("ERR Protocol error: expected '$', got '{}'", char::from(got)),
        _ => format!("ERR Protocol error: expected '$', got '\\x{got:02x}'"),
    }
}

impl ProtocolError {
    /// The text for an operator: the rule, never the bytes that broke it.
    fn rule(&self) -> &'static str {
        match self {
            Self::InvalidMultibulkLength => "invalid multibulk length",
            Self::InvalidBulkLength => "invalid bulk length",
            Self::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            Self::UnauthenticatedBulkLength => "unauthenticated bulk length",
            Self::InlineTooBig => "too big inline request",
            Self::MultibulkHeaderTooBig => "too big mbulk count string",
            Self::BulkHeaderTooBig => "too big bulk count string",
            Self::ExpectedBulk { .. } => "argument does not start with '$'",
            Self::UnbalancedQuotes => "unbalanced quotes in request",
            Self::InlineNul => "NUL in inline request",
            Self::HeaderLineEnd => "expected CRLF after length",
            Self::BulkEnd => "expected CRLF after bulk",
            Self::CrossProtocol => "HTTP request on a Redis port",
            Self::ReplyType { .. } => "unknown reply type",
            Self::ReplyStreamed => "streamed reply type",
            Self::ReplyLength => "invalid length in reply",
            Self::ReplyBulkTooLong => "reply bulk exceeds its limit",
            Self::ReplyElements => "reply aggregate exceeds its element limit",
            Self::ReplyDepth => "reply nested deeper than its limit",
            Self::ReplyLineEnd => "reply line not ended by CRLF",
            Self::ReplyLineTooLong => "reply line exceeds its limit",
            Self::ReplyBulkEnd => "reply bulk not followed by CRLF",
            Self::ReplyScalar => "reply scalar does not fit its type",
            Self::ReplyTooBig => "reply exceeds the limits of a decoded value",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl std::error::Error for ProtocolError {}

impl From<ProtocolError> for Violation {
    fn from(error: ProtocolError) -> Self {
        let culprit = if error.is_upstream() { Culprit::Upstream } else { Culprit::Client };
        Violation::rule(error.reason(), culprit, error.rule())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_bulk_stays_one_printable_line() {
        for (got, want) in [(b'+', "'+'"), (b'\n', "' '"), (b'\r', "' '"), (0, "'\\x00'"), (0xff, "'\\xff'")] {
            let text = ProtocolError::ExpectedBulk { got }.client_text().unwrap();
            assert_eq!(text, format!("ERR Protocol error: expected '$', got {want}"));
        }
    }

    #[test]
    fn upstream_errors_are_never_shown_to_the_client() {
        let error = ProtocolError::ReplyDepth;
        assert!(error.is_upstream() && error.client_text().is_none());
        let violation = Violation::from(error);
        assert_eq!((violation.reason, violation.culprit), ("reply_depth", Culprit::Upstream));
        assert_eq!(Violation::from(ProtocolError::BulkEnd).culprit, Culprit::Client);
    }
}
