//! Hashes of keys.

use crc::{CRC_16_XMODEM, Crc, Table};

/// Slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

const CRC16: Crc<u16, Table<1>> = Crc::<u16, Table<1>>::new(&CRC_16_XMODEM);

/// How a key becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHash {
    /// twemproxy's `fnv1a_64`: FNV-1a with the 64-bit constants cut to 32 bits (`nc_fnv.c`).
    Fnv1a64,
    /// Envoy's: MurmurHash64A with the seed of libstdc++ (`murmur_hash.cc`).
    Murmur2,
    /// CRC-16/XMODEM, as Redis Cluster has it.
    Crc16,
}

impl KeyHash {
    /// The hash of `key`.
    #[inline]
    pub fn of(self, key: &[u8]) -> u64 {
        match self {
            KeyHash::Fnv1a64 => u64::from(fnv1a_64(key)),
            KeyHash::Murmur2 => murmur2(key, MURMUR_SEED),
            KeyHash::Crc16 => u64::from(CRC16.checksum(key)),
        }
    }
}

/// The slot of a key whose [tag](super::HashTag::CLUSTER) was cut out (Redis Cluster specification, "Key distribution model").
#[inline]
pub fn slot(tag: &[u8]) -> u16 {
    CRC16.checksum(tag) % SLOTS
}

fn fnv1a_64(key: &[u8]) -> u32 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    key.iter().fold(BASIS as u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME as u32))
}

/// `std::_Hash_bytes` of libstdc++, which Envoy keeps for its rings.
const MURMUR_SEED: u64 = 0xc70f_6907;

/// MurmurHash64A by Austin Appleby.
fn murmur2(key: &[u8], seed: u64) -> u64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |word: u64| {
        let word = word.wrapping_mul(MUL);
        (word ^ (word >> 47)).wrapping_mul(MUL)
    };
    let mut hash = seed ^ (key.len() as u64).wrapping_mul(MUL);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = (hash ^ mix(u64::from_le_bytes(*word))).wrapping_mul(MUL);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MUL);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(MUL);
    hash ^ (hash >> 47)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // `CLUSTER KEYSLOT` of Redis 7.0.
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn hashes_are_those_of_the_programs() {
        // Envoy `test/common/common/hash_test.cc` (std_hash_bytes of the words).
        assert_eq!(KeyHash::Murmur2.of(b"foo"), 9_631_199_822_919_835_226);
        assert_eq!(KeyHash::Murmur2.of(b"bar"), 11_474_628_671_133_349_555);
        assert_eq!(KeyHash::Murmur2.of(b""), 6_142_509_188_972_423_790);
        // twemproxy `tests/test_hashkit.c`.
        assert_eq!(KeyHash::Fnv1a64.of(b"apple"), 1_488_911_807);
    }
}
