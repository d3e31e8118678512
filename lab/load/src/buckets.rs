//! A histogram for people: a few buckets of equal width on a logarithmic scale, from the shortest latency to the longest.

use crate::recorder::Recorder;

/// Samples up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The largest value in it, microseconds.
    pub micros_max: u64,
    /// Samples above the bucket before it.
    pub count: u64,
}

impl Recorder {
    /// All samples in at most `rows` buckets; empty without samples. The last ends at the longest latency.
    #[must_use]
    pub fn buckets(&self, rows: u32) -> Vec<Bucket> {
        let samples: Vec<(u64, u64)> = self.recorded().collect();
        let (Some((low, _)), Some((high, _))) = (samples.first(), samples.last()) else { return Vec::new() };
        let (low, high) = ((*low).max(1) as f64, (*high).max(1) as f64);
        let step = (high / low).powf(1.0 / f64::from(rows.max(1)));
        let mut buckets: Vec<Bucket> = (1..=rows.max(1))
            .map(|row| Bucket { micros_max: (low * step.powf(f64::from(row))).round() as u64, count: 0 })
            .collect();
        // Below ten microseconds several bounds are one.
        buckets.dedup_by_key(|bucket| bucket.micros_max);
        let last = buckets.len() - 1;
        buckets[last].micros_max = buckets[last].micros_max.max(high as u64);
        for (micros, count) in samples {
            let at = buckets.iter().position(|bucket| micros <= bucket.micros_max).unwrap_or(last);
            buckets[at].count += count;
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(micros: impl IntoIterator<Item = u64>) -> Recorder {
        let mut recorder = Recorder::new();
        micros.into_iter().for_each(|one| recorder.record_nanos(one * 1_000));
        recorder
    }

    #[test]
    fn every_sample_is_in_one_bucket_and_bounds_grow_by_one_factor() {
        let recorder = fed((0..10_000).map(|at| 100 + at * at / 1_000));
        let buckets = recorder.buckets(10);
        assert_eq!(buckets.len(), 10);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 10_000);
        assert_eq!(buckets[9].micros_max, recorder.max_micros());
        for pair in buckets.windows(2) {
            let factor = pair[1].micros_max as f64 / pair[0].micros_max as f64;
            assert!((1.8..2.2).contains(&factor), "{buckets:?}");
        }
    }

    #[test]
    fn few_values_have_few_buckets_and_none_has_none() {
        assert_eq!(fed([]).buckets(10), []);
        assert_eq!(fed([7, 7, 7]).buckets(10), [Bucket { micros_max: 7, count: 3 }]);
        let narrow = fed([1, 2, 2, 3]).buckets(10);
        assert_eq!(narrow.iter().map(|bucket| bucket.count).sum::<u64>(), 4);
        assert!(narrow.len() <= 3, "{narrow:?}");
    }
}
