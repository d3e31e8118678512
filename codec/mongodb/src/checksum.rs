//! CRC-32C of a message, which its last four bytes may hold.

use crc::{CRC_32_ISCSI, Crc, Table};

/// Sixteen tables: several bytes at a time.
static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes of a checksum.
pub const CHECKSUM_BYTES: usize = 4;

/// The checksum of a message that arrives in pieces.
#[derive(Clone)]
pub struct Checksum(crc::Digest<'static, u32, Table<16>>);

impl Default for Checksum {
    fn default() -> Self {
        Self(CASTAGNOLI.digest())
    }
}

impl std::fmt::Debug for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Checksum")
    }
}

impl Checksum {
    /// The next bytes of the message, its header first, without the checksum itself.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn value(self) -> u32 {
        self.0.finalize()
    }
}

/// The checksum of `bytes`: a message up to its checksum.
pub fn of(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn the_checksum_is_that_of_the_rfc() {
        assert_eq!(of(&[0; 32]), 0x8a91_36aa);
        assert_eq!(of(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(of(&rising), 0x46dd_794e);
        let mut pieces = Checksum::default();
        rising.chunks(5).for_each(|piece| pieces.update(piece));
        assert_eq!(pieces.value(), 0x46dd_794e);
    }
}
