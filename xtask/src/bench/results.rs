//! What all runs gave: per row and arm one sample per block, or the reason why there is none.

use std::collections::BTreeMap;

use super::measure::Sample;
use super::row::Row;
use weir_knee::ratio::{Ratio, median};

/// A block in which the hypervisor took more than this share of the time, in any of its runs, is left out of ratios.
const STEAL_MAX: f64 = 0.01;

/// Results of one row.
pub(crate) struct RowResults<R> {
    /// The row.
    pub(crate) row: R,
    /// Of each measured run, for people.
    pub(crate) length: String,
    samples: BTreeMap<&'static str, BTreeMap<usize, Sample>>,
    /// Arm and error of each run that failed.
    pub(crate) failures: Vec<(&'static str, String)>,
}

impl<R: Row> RowResults<R> {
    /// Nothing yet.
    pub(crate) fn new(row: R) -> Self {
        Self { row, length: String::new(), samples: BTreeMap::new(), failures: Vec::new() }
    }

    /// Keeps what an arm gave in a block.
    pub(crate) fn add(&mut self, arm: &'static str, block: usize, sample: Sample) {
        self.samples.entry(arm).or_default().insert(block, sample);
    }

    /// Whether an arm has failed in this row; it is then not run again.
    pub(crate) fn has_failed(&self, arm: &str) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == arm)
    }

    /// Median over all blocks of what `field` picks.
    pub(crate) fn median(&self, arm: &str, field: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        median(self.samples.get(arm)?.values().filter_map(field))
    }

    /// Every sample of every arm.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Sample> {
        self.samples.values().flat_map(BTreeMap::values)
    }

    /// Ratio of what `field` picks, paired by block.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str, field: impl Fn(&Sample) -> f64) -> Option<Ratio> {
        let (ours, theirs) = (self.samples.get(ours)?, self.samples.get(theirs)?);
        let stolen = self.stolen_blocks();
        let pair = |(block, sample): (&usize, &Sample)| {
            let usable = !stolen.contains(block);
            usable.then(|| Some((field(sample), field(theirs.get(block)?)))).flatten()
        };
        let pairs: Vec<(f64, f64)> = ours.iter().filter_map(pair).collect();
        Ratio::of(&pairs)
    }

    /// Blocks with too much stolen time.
    pub(crate) fn stolen_blocks(&self) -> Vec<usize> {
        let runs = self.samples.values().flat_map(BTreeMap::iter);
        let mut blocks: Vec<usize> = runs.filter(|(_, run)| run.steal > STEAL_MAX).map(|(block, _)| *block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::Outcome;
    use crate::bench::redis::row::RedisRow;

    fn sample(gateway_us: f64, steal: f64) -> Sample {
        let outcome = Outcome { completed: 1, rate: 1.0, p50: 1.0, p99: 1.0, p999: None };
        Sample {
            gateway_us,
            user_us: 0.0,
            system_us: 0.0,
            origin_us: 0.0,
            load_us: 0.0,
            box_us: 0.0,
            outcome,
            seconds: 1.0,
            steal,
            foreign_cpus: 0.0,
        }
    }

    #[test]
    fn only_blocks_that_both_sides_finished_and_nobody_stole_are_paired() {
        let mut results = RowResults::new(RedisRow::all()[0]);
        for (block, ours, theirs, steal) in [(0, 1.0, 2.0, 0.0), (1, 9.0, 2.0, 0.5), (2, 1.0, 2.0, 0.0)] {
            results.add("a", block, sample(ours, steal));
            results.add("b", block, sample(theirs, 0.0));
        }
        results.add("a", 3, sample(7.0, 0.0));
        let ratio = results.ratio("a", "b", |sample| sample.gateway_us).unwrap();
        assert_eq!((ratio.blocks, results.stolen_blocks()), (2, vec![1]));
        assert!((ratio.median - 0.5).abs() < 1e-12);
        assert_eq!(results.ratio("a", "c", |sample| sample.gateway_us), None);
        assert_eq!(results.median("b", |sample| Some(sample.gateway_us)), Some(2.0));
        assert_eq!(results.median("b", |sample| sample.outcome.p999), None);
    }
}
