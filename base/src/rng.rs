//! A small seeded generator for jitter, sampling and simulation. Never for keys, salts or tokens.
//!
//! xoshiro256++ seeded through splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021;
//! reference code <https://prng.di.unimi.it/>). Same seed, same sequence, on every platform.

use std::time::Duration;

/// The generator. 32 bytes of state; not shared between cores.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The generator for `seed`. Any seed will do, zero too.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(std::array::from_fn(|_| splitmix64(&mut state)))
    }

    /// A generator of its own for a child (a core, a lane), so that the order in which children draw does not matter.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A uniform number below `bound`; zero if `bound` is zero. Unbiased (Lemire's multiply with rejection).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// A uniform number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `base` spread by up to `fraction` (clamped to `0.0..=1.0`) to either side.
    pub fn jitter(&mut self, base: Duration, fraction: f64) -> Duration {
        let fraction = fraction.clamp(0.0, 1.0);
        base.mul_f64(1.0 + fraction * (2.0 * self.unit() - 1.0))
    }

    /// Exponential back-off with equal jitter: for `attempt` 0, 1, 2… a wait between half of and the whole of
    /// `min(first * 2^attempt, ceiling)`. Half is kept so that a retry is never immediate.
    pub fn backoff(&mut self, attempt: u32, first: Duration, ceiling: Duration) -> Duration {
        let whole = first.saturating_mul(1u32.checked_shl(attempt.min(31)).unwrap_or(u32::MAX)).min(ceiling);
        let half = whole / 2;
        half + half.mul_f64(self.unit())
    }
}

/// The seeding step of the xoshiro authors.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN);
    mix(*state)
}

/// Odd, near 2^64 divided by the golden ratio: neighbouring numbers end far apart.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014, variant 13 of Stafford): a bijection in which each input bit
/// moves about half of the output bits.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        // First outputs for seed 1234567, as listed with the reference implementation.
        let mut state = 1_234_567;
        let got: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(got, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn xoshiro_gives_the_published_sequence() {
        // State 1, 2, 3, 4: the vector used by the reference C code and by rand_xoshiro.
        let mut rng = Rng([1, 2, 3, 4]);
        let got: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(got, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn same_seed_same_sequence_and_forks_differ() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        assert!((0..100).all(|_| a.next_u64() == b.next_u64()));
        let (mut left, mut right) = (a.fork(), a.fork());
        assert_ne!(left.next_u64(), right.next_u64());
    }

    #[test]
    fn below_is_in_range_and_even() {
        let mut rng = Rng::new(1);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[usize::try_from(rng.below(7)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| (9_500..10_500).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
    }

    #[test]
    fn jitter_and_backoff_stay_in_their_bounds() {
        let mut rng = Rng::new(3);
        let (base, ceiling) = (Duration::from_millis(100), Duration::from_secs(5));
        for attempt in 0..200 {
            let jittered = rng.jitter(base, 0.2);
            assert!(jittered >= base.mul_f64(0.8) && jittered <= base.mul_f64(1.2));
            let whole = base.saturating_mul(2u32.saturating_pow(attempt)).min(ceiling);
            let wait = rng.backoff(attempt, base, ceiling);
            assert!(wait >= whole / 2 && wait <= whole, "{attempt}: {wait:?}");
        }
    }
}
