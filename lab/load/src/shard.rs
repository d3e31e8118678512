//! One of n shards of the generator: a core, or a core of another process that runs the same scenario.

use weir_base::{
    Rng,
    rng::{GOLDEN, mix},
};

/// Shards of one run. Default 256: generations of values keep the shard in their upper bits, and no machine of the lab
/// has more cores for its generator.
pub const SHARDS_MAX: u32 = 256;

/// Which shard, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    index: u32,
    of: u32,
}

/// Purpose of a random stream; each purpose has a stream of its own, so that a change of one leaves the others alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Intended times.
    Arrivals = 1,
    /// Which command, which key.
    Requests = 2,
    /// Contents of keys.
    Values = 3,
}

impl Shard {
    /// The whole generator as a single shard.
    pub const ONLY: Self = Self { index: 0, of: 1 };

    /// Shard `index` (from 0) of `of`; `None` unless `index < of <= SHARDS_MAX`.
    #[must_use]
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (index < of && of <= SHARDS_MAX).then_some(Self { index, of })
    }

    /// Every shard of `of`, in order; none if `of` is beyond [`SHARDS_MAX`].
    pub fn all(of: u32) -> impl Iterator<Item = Self> {
        (0..of).filter_map(move |index| Self::new(index, of))
    }

    /// From 0.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Shards of the run.
    #[must_use]
    pub const fn of(self) -> u32 {
        self.of
    }

    /// This shard's part of `total` connections (or workers). The parts add up to `total` and differ by at most one.
    #[must_use]
    pub const fn part(self, total: u32) -> u32 {
        total / self.of + (self.index < total % self.of) as u32
    }

    /// The random stream of this shard for `purpose`. Streams of different shards, purposes and `rounds` (say, the phase
    /// of the scenario) are independent.
    #[must_use]
    pub fn stream(self, seed: u64, purpose: Purpose, round: u64) -> Rng {
        Rng::new(derive(derive(derive(seed, purpose as u64), round), u64::from(self.index) + 1))
    }

    /// The random stream that all shards share for `purpose`.
    #[must_use]
    pub fn common_stream(seed: u64, purpose: Purpose, round: u64) -> Rng {
        Rng::new(derive(derive(derive(seed, purpose as u64), round), 0))
    }
}

/// A seed of its own for `word` under `seed`.
pub(crate) fn derive(seed: u64, word: u64) -> u64 {
    mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add(word.wrapping_mul(GOLDEN)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_differ_by_at_most_one() {
        for of in [1, 2, 3, 7, 256] {
            for total in [0, 1, 6, 7, 50, 2_000] {
                let parts: Vec<u32> = Shard::all(of).map(|shard| shard.part(total)).collect();
                assert_eq!(parts.len(), of as usize);
                assert_eq!(parts.iter().sum::<u32>(), total);
                assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn a_shard_outside_its_run_does_not_exist() {
        assert_eq!(Shard::new(2, 2), None);
        assert_eq!(Shard::new(0, 0), None);
        assert_eq!(Shard::new(0, SHARDS_MAX + 1), None);
        assert_eq!(Shard::new(0, 1), Some(Shard::ONLY));
    }

    #[test]
    fn streams_repeat_and_none_equals_another() {
        let mut firsts = Vec::new();
        for shard in Shard::all(8) {
            for purpose in [Purpose::Arrivals, Purpose::Requests, Purpose::Values] {
                for round in 0..4 {
                    let first = shard.stream(7, purpose, round).next_u64();
                    assert_eq!(first, shard.stream(7, purpose, round).next_u64());
                    firsts.push(first);
                }
            }
        }
        firsts.push(Shard::common_stream(7, Purpose::Arrivals, 0).next_u64());
        firsts.push(Shard::ONLY.stream(8, Purpose::Arrivals, 0).next_u64());
        let count = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), count);
    }
}
