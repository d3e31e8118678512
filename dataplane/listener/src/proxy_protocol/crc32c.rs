//! CRC-32C (Castagnoli), as RFC 4960 appendix B has it: reflected, all ones before and after.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// The checksum of `parts` one after the other. Headers are short: a table of bytes is fast enough.
pub(super) fn crc32c(parts: &[&[u8]]) -> u32 {
    let step = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize];
    !parts.iter().flat_map(|part| part.iter()).fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// Vectors of RFC 3720 appendix B.4, and the check value of the CRC catalogue.
    #[test]
    fn published_vectors() {
        assert_eq!(crc32c(&[b"123456789"]), 0xe306_9283);
        assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(crc32c(&[&[0xff; 32]]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&[&ascending[..7], &[], &ascending[7..]]), 0x46dd_794e);
        assert_eq!(crc32c(&[]), 0);
    }
}
