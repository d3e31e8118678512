//! Messages by their parts, right or wrong.

use weir_mongodb_codec::bson::Writer;

use crate::mongodb::wire::document;

/// The id of each message.
pub const ID: i32 = 77;
/// The opcode of OP_MSG.
pub const MSG: i32 = 2013;
/// The opcode of OP_COMPRESSED.
pub const COMPRESSED: i32 = 2012;

/// A message of any opcode, with the length that it has.
#[must_use]
pub fn raw(op_code: i32, payload: &[u8]) -> Vec<u8> {
    with_length(16 + payload.len() as i32, op_code, payload)
}

/// The same with the length that it claims.
#[must_use]
pub fn with_length(claimed: i32, op_code: i32, payload: &[u8]) -> Vec<u8> {
    let head = [claimed, ID, 0, op_code].map(i32::to_le_bytes).concat();
    [&head, payload].concat()
}

/// An OP_MSG of these flags and sections.
#[must_use]
pub fn sections(flags: u32, parts: &[Vec<u8>]) -> Vec<u8> {
    raw(MSG, &[flags.to_le_bytes().to_vec(), parts.concat()].concat())
}

/// A section with a body.
#[must_use]
pub fn body(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    [vec![0], document(write)].concat()
}

/// A section with a document sequence, with the size that it has.
#[must_use]
pub fn sequence(identifier: &str, documents: &[u8]) -> Vec<u8> {
    let size = (4 + identifier.len() + 1 + documents.len()) as u32;
    [&[1][..], &size.to_le_bytes(), identifier.as_bytes(), b"\0", documents].concat()
}

/// An OP_COMPRESSED: the opcode and the size that it claims, the number of its compressor, its data.
#[must_use]
pub fn compressed(op_code: i32, size: i32, compressor: u8, data: &[u8]) -> Vec<u8> {
    raw(COMPRESSED, &[&op_code.to_le_bytes()[..], &size.to_le_bytes(), &[compressor], data].concat())
}
