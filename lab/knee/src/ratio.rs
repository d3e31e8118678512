//! Ratios of paired measurements: one per block, then the median, its spread and a bootstrap interval.
//!
//! Both sides of a pair ran within one block, so slow drift of the machine cancels out in their ratio.

use serde::{Deserialize, Serialize};
use weir_base::rng::Rng;

/// Resamples of the bootstrap.
const RESAMPLES: usize = 10_000;
/// Seed of the resampling: the same samples give the same interval.
pub const SEED: u64 = 0x5EED_0F3E;

/// Effects up to this are not worth a word. 2 %: placement of code in memory alone makes as much.
pub const EFFECT_MIN: f64 = 0.02;
/// Blocks below which a ratio is a look and no claim.
pub const BLOCKS_MIN: usize = 8;

/// A ratio over all blocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median over the blocks.
    pub median: f64,
    /// Smallest and largest block.
    pub spread: (f64, f64),
    /// 95 % bootstrap interval of the median.
    pub interval: (f64, f64),
    /// Number of blocks.
    pub blocks: usize,
}

impl Ratio {
    /// Whether a difference is shown: the interval excludes 1, and the effect exceeds [`EFFECT_MIN`].
    #[must_use]
    pub fn is_difference(&self) -> bool {
        let excludes_one = self.interval.0 > 1.0 || self.interval.1 < 1.0;
        excludes_one && (self.median - 1.0).abs() > EFFECT_MIN
    }

    /// From pairs of (ours, theirs), one per block; `None` without a usable pair.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
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
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
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
    let mut rng = Rng::new(SEED);
    let mut medians = Vec::with_capacity(RESAMPLES);
    let mut sample = vec![0.0; logs.len()];
    for _ in 0..RESAMPLES {
        for slot in &mut sample {
            *slot = logs[rng.below(logs.len() as u64) as usize];
        }
        sample.sort_by(f64::total_cmp);
        medians.push(median_of_sorted(&sample));
    }
    medians.sort_by(f64::total_cmp);
    (medians[RESAMPLES / 40], medians[RESAMPLES - 1 - RESAMPLES / 40])
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
    fn a_difference_is_shown_only_beyond_one_and_beyond_two_percent() {
        let of = |interval: (f64, f64), median| Ratio { median, spread: interval, interval, blocks: 8 };
        assert!(of((0.6, 0.8), 0.7).is_difference() && of((1.1, 1.3), 1.2).is_difference());
        assert!(!of((0.9, 1.1), 0.95).is_difference(), "1 lies within");
        assert!(!of((0.985, 0.995), 0.99).is_difference(), "too small");
    }

    #[test]
    fn the_interval_covers_the_truth_in_about_95_of_100_comparisons() {
        let mut rng = Rng::new(3);
        // Noise of about 5 %, from twelve uniform numbers.
        let mut noise = || (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
        let covered = (0..400).filter(|_| {
            let pairs: Vec<(f64, f64)> =
                (0..12).map(|_| (0.7 * (0.05 * noise()).exp(), (0.05 * noise()).exp())).collect();
            let (low, high) = Ratio::of(&pairs).expect("usable pairs").interval;
            (low..=high).contains(&0.7)
        });
        let share = covered.count() as f64 / 400.0;
        assert!((0.90..=0.99).contains(&share), "{share}");
    }

    #[test]
    fn unusable_pairs_are_left_out() {
        assert_eq!(Ratio::of(&[(0.0, 1.0), (1.0, 0.0)]), None);
        assert_eq!(median([]), None);
        assert_eq!(median([3.0, 1.0, 2.0, 10.0]), Some(2.5));
    }
}
