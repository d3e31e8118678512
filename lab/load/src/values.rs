//! The value of a key. A value is a keyed hash of (key, generation) stretched to the payload size, and carries its
//! generation, so that any reply can be verified with nothing but the seed: no table, no second request.
//!
//! Layout, for values of at least [`TAGGED_BYTES_MIN`] bytes: 8 bytes with the generation under a mask that depends on
//! the key, then the hash stream of (key, generation). Shorter values are the hash stream of the key alone: they prove
//! that the reply belongs to the key, not which SET it comes from. The bytes are random, so they do not compress.

use weir_base::rng::{GOLDEN, mix};

use crate::scenario::Payload;
use crate::shard::{Purpose, Shard, derive};

/// Values below this many bytes do not carry their generation: 8 bytes of it and at least 8 of proof.
pub const TAGGED_BYTES_MIN: usize = 16;

/// Which planned SET a value comes from: its shard and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(u64);

impl Generation {
    /// Generation of the values written by the preload, before the run.
    pub const PRELOADED: Self = Self(0);

    /// The `number`th planned SET of `shard`, from 1; 0 is [`Self::PRELOADED`] whatever the shard.
    #[must_use]
    pub const fn of_set(shard: Shard, number: u32) -> Self {
        match number {
            0 => Self::PRELOADED,
            _ => Self(((shard.index() as u64 + 1) << 32) | number as u64),
        }
    }

    /// Whether a run of `shards` shards with up to `sets_max` planned SETs each can have written it.
    #[must_use]
    pub const fn is_planned(self, shards: u32, sets_max: u32) -> bool {
        let (shard, number) = (self.0 >> 32, self.0 as u32);
        self.0 == 0 || (shard >= 1 && shard <= shards as u64 && number >= 1 && number <= sets_max)
    }
}

/// Meaning of the bytes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyValue {
    /// The whole value of the key as of this generation.
    Value(Generation),
    /// A whole value of the key, too short to carry its generation.
    Short,
    /// Not a value of this key.
    Foreign,
}

/// The values of one run.
#[derive(Clone, Debug)]
pub struct Values {
    secret: u64,
    /// Upper ends of the sizes' shares of `weight_total`, each with its size in bytes.
    sizes: Vec<(u64, usize)>,
    weight_total: u64,
}

impl Values {
    /// The values that runs with `seed` and `payload` write; all shards agree on them.
    #[must_use]
    pub fn new(seed: u64, payload: &Payload) -> Self {
        let mut weight_total = 0;
        let sizes = payload
            .sizes()
            .iter()
            .map(|one| {
                weight_total += u64::from(one.weight);
                (weight_total, one.bytes)
            })
            .collect();
        Self { secret: derive(seed, Purpose::Values as u64), sizes, weight_total }
    }

    /// Bytes of the value of `key` as of `generation`.
    #[must_use]
    pub fn size(&self, key: u64, generation: Generation) -> usize {
        if let [(_, only)] = self.sizes[..] {
            return only;
        }
        let draw = mix(self.stream(key, generation) ^ GOLDEN);
        let share = ((u128::from(draw) * u128::from(self.weight_total)) >> 64) as u64;
        let at = self.sizes.partition_point(|(end, _)| *end <= share);
        self.sizes.get(at).map_or(0, |(_, bytes)| *bytes)
    }

    /// Appends the value of `key` as of `generation`.
    pub fn write(&self, key: u64, generation: Generation, out: &mut Vec<u8>) {
        let size = self.size(key, generation);
        let (tag, stream) = if size < TAGGED_BYTES_MIN {
            (None, self.stream(key, Generation::PRELOADED))
        } else {
            (Some(generation.0 ^ self.mask(key)), self.stream(key, generation))
        };
        let end = out.len() + size;
        out.extend(tag.into_iter().flat_map(u64::to_le_bytes));
        let mut words = (0..).map(|at| word(stream, at));
        while end - out.len() >= 8 {
            out.extend_from_slice(&words.next().unwrap_or_default().to_le_bytes());
        }
        let rest = end - out.len();
        out.extend_from_slice(&words.next().unwrap_or_default().to_le_bytes()[..rest]);
    }

    /// Recognises `bytes`, the reply for `key`. Reads every byte.
    #[must_use]
    pub fn recognise(&self, key: u64, bytes: &[u8]) -> ReplyValue {
        if bytes.len() < TAGGED_BYTES_MIN {
            let is_size = self.sizes.iter().any(|(_, size)| *size == bytes.len());
            let is_own = is_size && matches(self.stream(key, Generation::PRELOADED), bytes);
            return if is_own { ReplyValue::Short } else { ReplyValue::Foreign };
        }
        let Some((tag, body)) = bytes.split_first_chunk() else {
            return ReplyValue::Foreign;
        };
        let generation = Generation(u64::from_le_bytes(*tag) ^ self.mask(key));
        let is_own = self.size(key, generation) == bytes.len() && matches(self.stream(key, generation), body);
        if is_own { ReplyValue::Value(generation) } else { ReplyValue::Foreign }
    }

    /// A word that only `key` has, for protocols that name what they ask for.
    #[inline]
    pub(crate) fn word(&self, key: u64) -> u64 {
        word(self.stream(key, Generation::PRELOADED), u64::MAX - 1)
    }

    fn mask(&self, key: u64) -> u64 {
        mix(self.stream(key, Generation::PRELOADED).wrapping_add(1))
    }

    /// Start of the hash stream of (key, generation).
    #[inline]
    fn stream(&self, key: u64, generation: Generation) -> u64 {
        mix(mix(self.secret.wrapping_add(key.wrapping_mul(GOLDEN))) ^ mix(generation.0.wrapping_add(GOLDEN)))
    }
}

/// Word `at` of a hash stream: splitmix64 with `stream` as its seed.
#[inline]
fn word(stream: u64, at: u64) -> u64 {
    mix(stream.wrapping_add((at + 1).wrapping_mul(GOLDEN)))
}

fn matches(stream: u64, bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let differs = words.iter().zip(0..).any(|(found, at)| u64::from_le_bytes(*found) != word(stream, at));
    !differs && *rest == word(stream, words.len() as u64).to_le_bytes()[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::PayloadSize;
    use proptest::prelude::*;

    fn values(sizes: &[(usize, u32)]) -> Values {
        let sizes = sizes.iter().map(|(bytes, weight)| PayloadSize { bytes: *bytes, weight: *weight }).collect();
        Values::new(7, &Payload::new(sizes).expect("a payload"))
    }

    fn value(values: &Values, key: u64, generation: Generation) -> Vec<u8> {
        let mut out = Vec::new();
        values.write(key, generation, &mut out);
        out
    }

    fn set(number: u32) -> Generation {
        Generation::of_set(Shard::ONLY, number)
    }

    proptest! {
        #[test]
        fn a_value_is_recognised_and_names_its_generation(key in any::<u64>(), number in any::<u32>(), size in 1usize..200) {
            let values = values(&[(size, 1)]);
            let bytes = value(&values, key, set(number));
            prop_assert_eq!(bytes.len(), size);
            let expected = if size < TAGGED_BYTES_MIN { ReplyValue::Short } else { ReplyValue::Value(set(number)) };
            prop_assert_eq!(values.recognise(key, &bytes), expected);
        }

        #[test]
        fn any_changed_byte_is_seen(key in any::<u64>(), at in any::<prop::sample::Index>(), flip in 1u8.., size in 1usize..200) {
            let values = values(&[(size, 1)]);
            let mut bytes = value(&values, key, set(3));
            let at = at.index(size);
            bytes[at] ^= flip;
            prop_assert_eq!(values.recognise(key, &bytes), ReplyValue::Foreign);
        }

        #[test]
        fn any_other_length_is_seen(key in any::<u64>(), size in 1usize..100, found in 0usize..120) {
            let (values, other) = (values(&[(size, 1)]), values(&[(found.max(1), 1)]));
            let mut bytes = value(&other, key, set(1));
            bytes.truncate(found);
            prop_assume!(found != size);
            prop_assert_eq!(values.recognise(key, &bytes), ReplyValue::Foreign);
        }
    }

    #[test]
    fn the_value_of_another_key_seed_or_nothing_is_foreign() {
        let one = values(&[(64, 1)]);
        let other_seed = Values::new(8, &Payload::new(vec![PayloadSize { bytes: 64, weight: 1 }]).unwrap());
        let bytes = value(&one, 1, set(5));
        assert_eq!(one.recognise(2, &bytes), ReplyValue::Foreign);
        assert_eq!(other_seed.recognise(1, &bytes), ReplyValue::Foreign);
        assert_eq!(one.recognise(1, b""), ReplyValue::Foreign);
        assert_eq!(one.recognise(1, &[0; 64]), ReplyValue::Foreign);
        assert_ne!(value(&one, 1, set(6)), bytes);
    }

    #[test]
    fn sizes_come_in_their_weights_and_are_part_of_the_value() {
        let mixed = values(&[(8, 1), (64, 2), (1_024, 1)]);
        let mut seen = [0u32; 3];
        for key in 0..8_000 {
            let bytes = value(&mixed, key, set(1));
            assert_ne!(mixed.recognise(key, &bytes), ReplyValue::Foreign);
            seen[[8, 64, 1_024].iter().position(|size| *size == bytes.len()).unwrap()] += 1;
        }
        assert!(seen[0].abs_diff(2_000) < 200 && seen[1].abs_diff(4_000) < 230 && seen[2].abs_diff(2_000) < 200);
    }

    #[test]
    fn planned_generations_are_distinguished_from_impossible_ones() {
        let last = Shard::new(3, 4).unwrap();
        assert!(Generation::PRELOADED.is_planned(1, 0));
        assert!(Generation::of_set(last, 9).is_planned(4, 9));
        assert!(!Generation::of_set(last, 10).is_planned(4, 9));
        assert!(!Generation::of_set(last, 9).is_planned(3, 9));
        assert!(!Generation(5).is_planned(4, 9));
        assert_eq!(Generation::of_set(last, 0), Generation::PRELOADED);
    }
}
