//! Weighted choice among targets.

use std::fmt;

/// Why targets cannot be chosen among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// There is none.
    NoTarget,
    /// Weights are given, and all are 0.
    NoWeight,
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoTarget => "there is no target",
            Self::NoWeight => "no target has a weight above 0 (once one has a weight, those without have 0)",
        })
    }
}

impl std::error::Error for SplitError {}

/// Targets with their shares.
#[derive(Clone, Debug)]
pub struct Split<T> {
    targets: Vec<T>,
    /// Where the share of each target ends. Never falls; the last is the sum of weights.
    ends: Vec<u64>,
}

impl<T> Split<T> {
    /// Weights are relative to their sum. If none is given all targets get the same; if any is, those without get nothing.
    ///
    /// # Errors
    /// No target, or none that could be chosen.
    pub fn new(targets: Vec<(T, Option<u32>)>) -> Result<Self, SplitError> {
        if targets.is_empty() {
            return Err(SplitError::NoTarget);
        }
        let missing = u32::from(targets.iter().all(|(_, weight)| weight.is_none()));
        let mut end = 0_u64;
        let (targets, ends) = targets
            .into_iter()
            .map(|(target, weight)| {
                end += u64::from(weight.unwrap_or(missing));
                (target, end)
            })
            .unzip();
        if end == 0 { Err(SplitError::NoWeight) } else { Ok(Self { targets, ends }) }
    }

    /// The target for a uniform random number, or for a hash: the same number gives the same target.
    pub fn choose(&self, random: u64) -> &T {
        &self.targets[self.position(random)]
    }

    /// Its place among those given to [`new`](Self::new).
    pub fn position(&self, random: u64) -> usize {
        let sum = self.ends.last().copied().unwrap_or_default();
        // The high bits decide (Lemire); uneven by less than the sum of weights in 2^64.
        let point = ((u128::from(random) * u128::from(sum)) >> 64) as u64;
        self.ends.partition_point(|&end| end <= point)
    }

    /// Targets and weights, in the order given.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = (&T, u64)> {
        self.targets.iter().enumerate().map(|(at, target)| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            (target, self.ends[at] - start)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers spread evenly over all that there are.
    fn counts(split: &Split<&str>) -> Vec<usize> {
        const DRAWS: u64 = 10_000;
        let mut counts = vec![0; split.targets.len()];
        (0..DRAWS).for_each(|draw| counts[split.position(draw * (u64::MAX / DRAWS))] += 1);
        counts
    }

    #[test]
    fn shares_are_relative() {
        for (weights, expected) in [
            (vec![Some(90), Some(10)], vec![9_000, 1_000]),
            (vec![Some(1), Some(3)], vec![2_500, 7_500]),
            (vec![None, None, None, None], vec![2_500; 4]),
            (vec![Some(5), None], vec![10_000, 0]),
            (vec![Some(0), Some(1), Some(0)], vec![0, 10_000, 0]),
            (vec![Some(u32::MAX), Some(u32::MAX)], vec![5_000, 5_000]),
        ] {
            let split = Split::new(weights.iter().map(|weight| ("target", *weight)).collect()).expect("a split");
            for (got, expected) in counts(&split).into_iter().zip(expected) {
                assert!(got.abs_diff(expected) <= 1, "{weights:?}: {got}, not {expected}");
            }
        }
    }

    #[test]
    fn every_number_gives_a_target_and_the_same_one_again() {
        let split = Split::new(vec![("a", Some(0)), ("b", Some(2)), ("c", Some(0))]).expect("a split");
        for random in [0, 1, u64::MAX / 2, u64::MAX] {
            assert_eq!(split.choose(random), &"b", "{random}");
        }
        let targets: Vec<_> = split.targets().collect();
        assert_eq!(targets, [(&"a", 0), (&"b", 2), (&"c", 0)]);
    }

    #[test]
    fn a_split_that_chooses_nothing_is_refused() {
        assert_eq!(Split::<()>::new(vec![]).err(), Some(SplitError::NoTarget));
        assert_eq!(Split::new(vec![((), Some(0)), ((), None)]).err(), Some(SplitError::NoWeight));
    }
}
