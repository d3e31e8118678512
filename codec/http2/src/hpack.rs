//! HPACK: header blocks (RFC 7541).
//!
//! - [`Decoder`]: a block to fields, which a callback receives as borrowed bytes.
//! - [`Encoder`]: fields to a block, appended to a caller's buffer.
//!
//! Each holds one dynamic table, so both go with one connection and must see all its blocks in the order of the wire. Names and values are
//! bytes: whether HTTP/2 allows them is for the caller to judge.

mod decoder;
mod encoder;
mod error;
mod huffman;
mod integer;
mod static_table;
mod table;

pub use decoder::{DecodedBlock, Decoder, HeaderField};
pub use encoder::{ENCODER_TABLE_BYTES_MAX, Encoder};
pub use error::HpackError;

/// A block may go beyond the limit of its list this many times over, and its connection goes on: 512 KiB for the default limit of 64 KiB.
pub const LIST_EXCESS_MAX: usize = 8;

/// Bytes of a dynamic table before anything else is agreed on (RFC 9113 section 6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4096;

/// Bytes that a field counts besides its name and value: in a table (RFC 7541 section 4.1) and in a list (RFC 9113 section 6.5.2).
pub const FIELD_BYTES_EXTRA: usize = 32;
