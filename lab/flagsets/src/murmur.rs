//! MurmurHash3 for 32 bits (A. Appleby, `MurmurHash3_x86_32`). The client specification decides rollouts and variants by it.

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

/// A number between 1 and `most` (at least 1) for a user of a group.
pub(crate) fn normalized(group: &str, user: &str, most: u32, seed: u32) -> u32 {
    hash(format!("{group}:{user}").as_bytes(), seed) % most.max(1) + 1
}

fn hash(bytes: &[u8], seed: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let state = words.iter().fold(seed, |state, word| {
        (state ^ scrambled(u32::from_le_bytes(*word))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    let tail = rest.iter().rev().fold(0, |tail, byte| tail << 8 | u32::from(*byte));
    // The length counts modulo 2^32, as in the reference.
    let mixed = state ^ scrambled(tail) ^ bytes.len() as u32;
    let mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
    let mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

const fn scrambled(word: u32) -> u32 {
    word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_sdks() {
        // unleash-client-node, src/test/strategy/util.test.ts.
        assert_eq!((normalized("gr1", "123", 100, 0), normalized("groupX", "999", 100, 0)), (73, 25));
        assert_eq!(hash(b"The quick brown fox jumps over the lazy dog", 0x9747_b28c), 0x2fa8_26cd);
    }
}
