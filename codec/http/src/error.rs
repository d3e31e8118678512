//! Errors of the wire format. Each kind has one stable label, one text, and for requests one status.

use std::fmt;

use weir_base::{error::Culprit, violation::Violation};

/// A peer broke a rule of HTTP, or a limit. The connection cannot be read any further: where the next message begins is
/// not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireError {
    /// A line ended by LF alone, or a CR inside a line.
    LineEnd,
    /// The first line has not the three parts of a request line.
    RequestLine,
    /// The method is no token, or the beginning of another protocol.
    Method,
    /// A method that a gateway in front of origins does not take: CONNECT, TRACE.
    MethodRefused,
    /// The target is in no form that belongs to the method, or has a byte that no target has.
    Target,
    /// The target is longer than its limit.
    TargetTooLong,
    /// Not `HTTP/1.0` or `HTTP/1.1`.
    Version,
    /// A well-formed version of another protocol generation.
    VersionUnsupported,
    /// The first line has not the parts of a status line.
    StatusLine,
    /// A field line without a name, with a name that is no token, or with a blank before the colon.
    FieldName,
    /// A control character in a value.
    FieldValue,
    /// A field continued on the next line (obsolete since RFC 7230).
    FieldFolded,
    /// More fields than the limit.
    FieldsTooMany,
    /// A head longer than its limit.
    HeadTooLong,
    /// No Host, several, or one that is no host.
    Host,
    /// Host and the authority of the target differ.
    HostMismatch,
    /// Content-Length is no plain number below 2^63, or there are several.
    ContentLength,
    /// Transfer-Encoding beside Content-Length, several times, on HTTP/1.0, or with `chunked` not last and alone.
    TransferEncoding,
    /// A transfer coding that is none of `chunked`.
    TransferCoding,
    /// A chunk size that is no plain hexadecimal number, or a chunk not ended by CRLF.
    Chunk,
    /// More chunk extensions than the limit.
    ChunkExtensions,
    /// More trailers than the limit.
    TrailersTooLong,
    /// An expectation other than `100-continue`.
    Expectation,
}

impl WireError {
    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::LineEnd => "line_end",
            Self::RequestLine => "request_line",
            Self::Method => "method",
            Self::MethodRefused => "method_refused",
            Self::Target => "target",
            Self::TargetTooLong => "target_too_long",
            Self::Version => "version",
            Self::VersionUnsupported => "version_unsupported",
            Self::StatusLine => "status_line",
            Self::FieldName => "field_name",
            Self::FieldValue => "field_value",
            Self::FieldFolded => "field_folded",
            Self::FieldsTooMany => "fields_too_many",
            Self::HeadTooLong => "head_too_long",
            Self::Host => "host",
            Self::HostMismatch => "host_mismatch",
            Self::ContentLength => "content_length",
            Self::TransferEncoding => "transfer_encoding",
            Self::TransferCoding => "transfer_coding",
            Self::Chunk => "chunk",
            Self::ChunkExtensions => "chunk_extensions",
            Self::TrailersTooLong => "trailers_too_long",
            Self::Expectation => "expectation",
        }
    }

    /// The status of the response (RFC 9110 section 15.5, RFC 6585).
    pub const fn status(self) -> u16 {
        match self {
            Self::MethodRefused => 405,
            Self::TargetTooLong => 414,
            Self::Expectation => 417,
            Self::FieldsTooMany | Self::HeadTooLong | Self::TrailersTooLong => 431,
            Self::TransferCoding => 501,
            Self::VersionUnsupported => 505,
            _ => 400,
        }
    }

    /// The rule, never the bytes that broke it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::LineEnd => "a line is not ended by CRLF",
            Self::RequestLine => "malformed request line",
            Self::Method => "malformed method",
            Self::MethodRefused => "method not allowed here",
            Self::Target => "malformed request target",
            Self::TargetTooLong => "request target too long",
            Self::Version => "malformed HTTP version",
            Self::VersionUnsupported => "HTTP version not supported",
            Self::StatusLine => "malformed status line",
            Self::FieldName => "malformed field name",
            Self::FieldValue => "control character in a field value",
            Self::FieldFolded => "folded field line",
            Self::FieldsTooMany => "too many header fields",
            Self::HeadTooLong => "message head too long",
            Self::Host => "missing, repeated or malformed Host",
            Self::HostMismatch => "Host differs from the authority of the target",
            Self::ContentLength => "malformed or repeated Content-Length",
            Self::TransferEncoding => "Transfer-Encoding leaves the length of the body open",
            Self::TransferCoding => "transfer coding not supported",
            Self::Chunk => "malformed chunk",
            Self::ChunkExtensions => "too many chunk extensions",
            Self::TrailersTooLong => "trailers too long",
            Self::Expectation => "expectation not supported",
        }
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.reason(), culprit, self.text())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for WireError {}
