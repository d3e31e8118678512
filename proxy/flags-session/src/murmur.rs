//! MurmurHash3 for 32 bits (A. Appleby, `MurmurHash3_x86_32`), fed piece by piece.
//!
//! Every SDK maps a user to a number between 1 and 100 with it, so all agree about a rollout. The text is `group:user`. The part of the group
//! is hashed once, when the flag is compiled.

const C1: u32 = 0xcc9e_2d51;
const C2: u32 = 0x1b87_3593;

/// The seed of variants. That of rollouts is zero. Different ones keep the users of a rollout of one half from having one variant.
pub(crate) const VARIANT_SEED: u32 = 86_028_157;

/// A hash in front of the next piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Murmur {
    hash: u32,
    bytes: u32,
    /// Up to three bytes that make no block yet, the first in the lowest place.
    tail: u32,
}

impl Murmur {
    /// The hash of `group:`, in front of the text of a user.
    pub(crate) fn of_group(group: &str, seed: u32) -> Self {
        Self { hash: seed, bytes: 0, tail: 0 }.with(group.as_bytes()).with(b":")
    }

    /// The hash behind this piece.
    fn with(mut self, mut piece: &[u8]) -> Self {
        let held = self.bytes % 4;
        if held > 0 {
            let wanted = (4 - held) as usize;
            let (front, behind) = piece.split_at(piece.len().min(wanted));
            for (at, byte) in front.iter().enumerate() {
                self.tail |= u32::from(*byte) << (8 * (held as usize + at));
            }
            self.bytes = self.bytes.wrapping_add(front.len() as u32);
            if front.len() < wanted {
                return self;
            }
            self.hash = block(self.hash, self.tail);
            self.tail = 0;
            piece = behind;
        }
        let (blocks, rest) = piece.as_chunks();
        for bytes in blocks {
            self.hash = block(self.hash, u32::from_le_bytes(*bytes));
        }
        for (at, byte) in rest.iter().enumerate() {
            self.tail |= u32::from(*byte) << (8 * at);
        }
        self.bytes = self.bytes.wrapping_add(piece.len() as u32);
        self
    }

    fn finish(self) -> u32 {
        let mut hash = self.hash ^ scrambled(self.tail) ^ self.bytes;
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        hash ^ (hash >> 16)
    }

    /// A number between 1 and `most`, which must not be zero.
    pub(crate) fn normalized(self, user: &str, most: u32) -> u32 {
        debug_assert!(most > 0, "there is no number");
        self.with(user.as_bytes()).finish() % most + 1
    }
}

const fn scrambled(word: u32) -> u32 {
    word.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2)
}

const fn block(hash: u32, word: u32) -> u32 {
    (hash ^ scrambled(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(text: &[u8], seed: u32) -> u32 {
        Murmur { hash: seed, bytes: 0, tail: 0 }.with(text).finish()
    }

    #[test]
    fn hashes_are_those_of_the_reference() {
        // Vectors of the reference implementation, as its ports list them.
        assert_eq!(hash(b"", 0), 0);
        assert_eq!(hash(b"", 1), 0x514e_28b7);
        assert_eq!(hash(b"", 0xffff_ffff), 0x81f1_6f39);
        assert_eq!(hash(b"\xff\xff\xff\xff", 0), 0x7629_3b50);
        assert_eq!(hash(b"!Ce\x87", 0), 0xf55b_516b);
        assert_eq!(hash(b"!Ce", 0), 0x7e4a_8634);
        assert_eq!(hash(b"!C", 0), 0xa0f7_b07a);
        assert_eq!(hash(b"!", 0), 0x7266_1cf4);
        assert_eq!(hash(b"Hello, world!", 1234), 0xfaf6_cdb3);
        assert_eq!(hash(b"The quick brown fox jumps over the lazy dog", 0x9747_b28c), 0x2fa8_26cd);
    }

    #[test]
    fn the_place_of_a_cut_changes_nothing() {
        let text: Vec<u8> = (0..37).map(|byte| byte * 7).collect();
        for first in 0..text.len() {
            for second in first..text.len() {
                let cut = Murmur { hash: 9, bytes: 0, tail: 0 }
                    .with(&text[..first])
                    .with(&text[first..second])
                    .with(&text[second..]);
                assert_eq!(cut.finish(), hash(&text, 9), "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn normalized_numbers_are_those_of_the_sdks() {
        // unleash-client-node, src/test/strategy/util.test.ts.
        let normalized = |user: &str, group: &str| Murmur::of_group(group, 0).normalized(user, 100);
        assert_eq!((normalized("123", "gr1"), normalized("999", "groupX")), (73, 25));
    }
}
