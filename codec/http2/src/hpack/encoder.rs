//! Fields to header blocks (RFC 7541 sections 4.2 and 6).

/// Bytes of the dynamic table, even where the peer allows more.
pub const ENCODER_TABLE_BYTES_MAX: u32 = 4096;

/// Encodes the header blocks of one direction: [`Encoder::begin`], then each field in order, pseudo-header fields first. A block that has
/// begun must be sent, or the peer's table is out of step.
#[derive(Debug, Default)]
pub struct Encoder {}

impl Encoder {
    /// With an empty table. Allocates with the first entry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE. The next block begins with what it needs to know of that.
    pub fn set_table_bytes_max(&mut self, table_bytes_max: u32) {
        let _ = table_bytes_max;
    }

    /// Begins a block.
    pub fn begin(&mut self, into: &mut Vec<u8>) {
        let _ = into;
    }

    /// Appends a field with a name in lower case.
    pub fn field(&mut self, into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let _ = (into, name, value);
    }

    /// Appends a field that no table on the way may hold (RFC 7541 section 6.2.3).
    pub fn field_never_indexed(&mut self, into: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let _ = (into, name, value);
    }

    /// Appends `:status`. `status`: from 100 to 999.
    pub fn status(&mut self, into: &mut Vec<u8>, status: u16) {
        let _ = (into, status);
    }
}
