//! Header blocks to fields (RFC 7541 sections 3 and 6).

use super::HpackError;

/// One decoded field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// The name as received.
    pub name: &'a [u8],
    /// The value as received.
    pub value: &'a [u8],
    /// The lowest index of this name in the static table (RFC 7541 appendix A), if the sender took the name from there: 1 is `:authority`,
    /// 8 is `:status`. 0: compare the name itself.
    pub static_name: u8,
    /// The sender forbids tables for it on all further hops (RFC 7541 section 6.2.3): [`Encoder::field_never_indexed`](super::Encoder::field_never_indexed).
    pub is_never_indexed: bool,
}

/// The account of a whole block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedBlock {
    /// Fields, also those beyond the limit.
    pub fields: usize,
    /// Bytes of names and values, and 32 for each field, also beyond the limit.
    pub list_bytes: usize,
    /// The limit was exceeded: the fields from there on did not go to the caller. The table is in step all the same.
    pub is_over: bool,
}

/// Decodes the header blocks of one direction.
#[derive(Debug)]
pub struct Decoder {}

impl Decoder {
    /// With an empty table of at most `table_bytes_max`: our SETTINGS_HEADER_TABLE_SIZE. Allocates with the first entry.
    pub fn new(table_bytes_max: u32) -> Self {
        let _ = table_bytes_max;
        Self {}
    }

    /// Takes another SETTINGS_HEADER_TABLE_SIZE of ours, once the peer has acknowledged it.
    pub fn set_table_bytes_max(&mut self, table_bytes_max: u32) {
        let _ = table_bytes_max;
    }

    /// Decodes a whole block: the fragments of HEADERS and its CONTINUATION frames, one after the other. `field` gets every field in
    /// order, until they have more than `list_bytes_max` in all; the block is decoded to its end even then. Work is linear in the block.
    ///
    /// # Errors
    /// The connection ends: no further block can be decoded.
    pub fn decode(
        &mut self,
        block: &[u8],
        list_bytes_max: usize,
        mut field: impl FnMut(HeaderField<'_>),
    ) -> Result<DecodedBlock, HpackError> {
        let _ = (block, list_bytes_max, &mut field);
        Ok(DecodedBlock::default())
    }
}
