//! Ratios of paired measurements: one per block, then the median, its spread and a bootstrap interval.
//!
//! Both sides of a pair ran within one block, so slow drift of the machine cancels out in their ratio.

/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;
/// Seed of the resampling: the same samples give the same interval.
pub(crate) const SEED: u64 = 0x5EED_0F3E;

/// A ratio over all blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    /// Median over the blocks.
    pub(crate) median: f64,
    /// Smallest and largest block.
    pub(crate) spread: (f64, f64),
    /// 95 % bootstrap interval of the median.
    pub(crate) interval: (f64, f64),
    /// Number of blocks.
    pub(crate) blocks: usize,
}

impl Ratio {
    /// From pairs of (ours, theirs), one per block; `None` without a usable pair.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let usable = pairs.iter().filter(|(ours, theirs)| *ours > 0.0 && *theirs > 0.0);
        let mut logs: Vec<f64> = usable.map(|(ours, theirs)| (ours / theirs).ln()).collect();
        if logs.is_empty() {
            return None;
        }
        logs.sort_by(f64::total_cmp);
        let (low, high) = bootstrap(&logs);
        Some(Self {
            median: median_of_sorted(&logs).exp(),
            spread: (logs[0].exp(), logs[logs.len() - 1].exp()),
            interval: (low.exp(), high.exp()),
            blocks: logs.len(),
        })
    }
}

/// Median of any values; `None` of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    if values.is_empty() { None } else { Some(median_of_sorted(&values)) }
}

fn median_of_sorted(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// 2.5 % and 97.5 % of the medians of resamples.
fn bootstrap(logs: &[f64]) -> (f64, f64) {
    let mut rng = SplitMix(SEED);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut sample = vec![0.0; logs.len()];
    for _ in 0..RESAMPLES {
        for slot in &mut sample {
            *slot = logs[(rng.next() % logs.len() as u64) as usize];
        }
        sample.sort_by(f64::total_cmp);
        medians.push(median_of_sorted(&sample));
    }
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
}

/// Sebastiano Vigna's SplitMix64: small, and the same everywhere.
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_ratio_has_no_spread() {
        let ratio = Ratio::of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).unwrap();
        assert!((ratio.median - 0.5).abs() < 1e-12);
        assert!((ratio.interval.0 - 0.5).abs() < 1e-12 && (ratio.interval.1 - 0.5).abs() < 1e-12);
        assert_eq!(ratio.blocks, 3);
    }

    #[test]
    fn pairs_cancel_a_drift_that_hits_both_sides() {
        let drift = [1.0, 1.5, 2.0, 4.0];
        let pairs: Vec<_> = drift.iter().map(|slow| (5.0 * slow, 10.0 * slow)).collect();
        assert!((Ratio::of(&pairs).unwrap().median - 0.5).abs() < 1e-12);
    }

    #[test]
    fn the_interval_lies_within_the_spread_and_holds_the_median() {
        let pairs = [(0.9, 1.0), (1.0, 1.0), (1.1, 1.0), (1.3, 1.0), (0.8, 1.0), (1.0, 1.1), (1.2, 1.0), (1.0, 0.9)];
        let ratio = Ratio::of(&pairs).unwrap();
        assert!(ratio.spread.0 <= ratio.interval.0 && ratio.interval.1 <= ratio.spread.1);
        assert!(ratio.interval.0 <= ratio.median && ratio.median <= ratio.interval.1);
        assert_eq!(Ratio::of(&pairs), Some(ratio), "the same seed gives the same interval");
    }

    #[test]
    fn unusable_pairs_are_left_out() {
        assert_eq!(Ratio::of(&[(0.0, 1.0), (1.0, 0.0)]), None);
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0, 10.0]), Some(2.5));
    }
}
