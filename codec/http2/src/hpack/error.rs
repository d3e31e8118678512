//! Errors of header blocks. Each ends the connection: its dynamic table is lost.

use std::fmt;

use crate::error_code::ErrorCode;

/// A rule of RFC 7541 that a header block breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer above 2^32-1, or of more bytes than that takes (section 5.1).
    Integer,
    /// An index that neither table has, or 0 for a field (section 2.3.3).
    Index,
    /// Huffman code with EOS in it, or with padding that is longer than 7 bits or not of ones (section 5.2).
    Huffman,
    /// A table size above the one that was advertised (section 6.3).
    TableSize,
    /// A table size behind the first field of a block (section 4.2).
    TableSizeLate,
    /// No table size at the start of the first block after the advertised one shrank (section 4.2).
    TableSizeMissing,
    /// Fields far beyond the limit of a list: a few bytes of a block can stand for the longest field of the table each. To work them off, so that
    /// the next block can be decoded, would cost more than the connection is worth.
    ListTooLong,
}

impl HpackError {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Truncated,
        Self::Integer,
        Self::Index,
        Self::Huffman,
        Self::TableSize,
        Self::TableSizeLate,
        Self::TableSizeMissing,
        Self::ListTooLong,
    ];

    /// The code for GOAWAY.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::ListTooLong => ErrorCode::ENHANCE_YOUR_CALM,
            _ => ErrorCode::COMPRESSION_ERROR,
        }
    }

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Truncated => "http2_block_truncated",
            Self::Integer => "http2_block_integer",
            Self::Index => "http2_block_index",
            Self::Huffman => "http2_block_huffman",
            Self::TableSize => "http2_block_table_size",
            Self::TableSizeLate => "http2_block_table_size_late",
            Self::TableSizeMissing => "http2_block_table_size_missing",
            Self::ListTooLong => "http2_block_list_too_long",
        }
    }

    /// The rule, never the bytes that broke it; short enough for the debug data of GOAWAY.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "header block ends within a field",
            Self::Integer => "integer out of range in a header block",
            Self::Index => "unknown index in a header block",
            Self::Huffman => "invalid Huffman code in a header block",
            Self::TableSize => "dynamic table above SETTINGS_HEADER_TABLE_SIZE",
            Self::TableSizeLate => "table size update behind a field",
            Self::TableSizeMissing => "no table size update after SETTINGS",
            Self::ListTooLong => "header list far beyond its limit",
        }
    }
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for HpackError {}
