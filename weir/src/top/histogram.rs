//! Cumulative histogram buckets, their growth between two reads, and quantiles of that.

/// Upper bounds in seconds and how many values are at or below each.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram {
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Adds a bucket; they come in ascending order, `+Inf` last.
    pub(super) fn push(&mut self, bound: f64, count: f64) {
        self.buckets.push((bound, count));
    }

    /// Values in all buckets.
    pub(super) fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    /// Observations since `earlier`; `None` if the two do not fit together, as after a restart.
    pub(super) fn since(&self, earlier: &Self) -> Option<Self> {
        if self.buckets.len() != earlier.buckets.len() {
            return None;
        }
        let mut buckets = Vec::with_capacity(self.buckets.len());
        for ((bound, count), (earlier_bound, earlier_count)) in self.buckets.iter().zip(&earlier.buckets) {
            if bound != earlier_bound || count < earlier_count {
                return None;
            }
            buckets.push((*bound, count - earlier_count));
        }
        Some(Self { buckets })
    }

    /// The value below which this share of all values lies, interpolated inside its bucket as Prometheus does
    /// (`histogram_quantile`); infinite if it lies beyond the last finite bound, `None` if there are no values.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.count();
        if total <= 0.0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * total;
        let (mut below_bound, mut below_count) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= rank && *count > below_count {
                if bound.is_infinite() {
                    return Some(f64::INFINITY);
                }
                let inside = (rank - below_count) / (count - below_count);
                return Some(below_bound + (bound - below_bound) * inside);
            }
            (below_bound, below_count) = (*bound, *count);
        }
        Some(f64::INFINITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(buckets: &[(f64, f64)]) -> Histogram {
        Histogram { buckets: buckets.to_vec() }
    }

    #[test]
    fn a_quantile_is_interpolated_inside_its_bucket() {
        let histogram = of(&[(0.1, 0.0), (0.2, 90.0), (0.4, 100.0), (f64::INFINITY, 100.0)]);
        assert!((histogram.quantile(0.45).expect("values") - 0.15).abs() < 1e-12);
        assert!((histogram.quantile(0.95).expect("values") - 0.3).abs() < 1e-12);
        assert_eq!(histogram.quantile(1.0), Some(0.4));
        assert!((histogram.quantile(0.0).expect("values") - 0.1).abs() < 1e-12);
    }

    #[test]
    fn beyond_the_last_bound_is_infinite_and_empty_is_nothing() {
        let beyond = of(&[(1.0, 1.0), (f64::INFINITY, 10.0)]);
        assert_eq!(beyond.quantile(0.99), Some(f64::INFINITY));
        assert_eq!(of(&[(1.0, 0.0), (f64::INFINITY, 0.0)]).quantile(0.5), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn growth_is_the_difference_and_a_restart_has_none() {
        let earlier = of(&[(1.0, 5.0), (f64::INFINITY, 7.0)]);
        let later = of(&[(1.0, 5.0), (f64::INFINITY, 10.0)]);
        assert_eq!(later.since(&earlier), Some(of(&[(1.0, 0.0), (f64::INFINITY, 3.0)])));
        assert_eq!(earlier.since(&later), None);
        assert_eq!(later.since(&of(&[(2.0, 5.0), (f64::INFINITY, 7.0)])), None);
        assert_eq!(later.since(&Histogram::default()), None);
    }
}
