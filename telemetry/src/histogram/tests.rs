use super::*;
use proptest::prelude::*;

/// The promised bound on the relative error of a quantile.
const ERROR_MAX: f64 = 0.027;

/// `value` is a reported quantile of `exact`: close in ratio, or within one linear bucket at the bottom.
fn is_close(value: u64, exact: u64) -> bool {
    value.abs_diff(exact) as f64 <= (exact as f64 * ERROR_MAX).max(2.5)
}

/// Durations spread evenly over the logarithm, 30 ns to 60 s.
fn spread(rng: &mut weir_base::Rng) -> u64 {
    (30.0 * (2e9f64).powf(rng.unit())) as u64
}

#[test]
fn bucket_edges_and_bucket_numbers_agree() {
    for index in 0..OVERFLOW {
        let (low, high) = (lower_edge(index), lower_edge(index + 1));
        assert!(low < high, "{index}");
        if index >= PER_OCTAVE {
            assert!(high / low - 1.0 < 0.053, "{index}: {low} {high}");
        }
        let inside = (low + (high - low) * 0.5) * 1e9;
        if high * 1e9 - low * 1e9 > 2.0 {
            assert_eq!(bucket_of(inside.round() as u64), index);
        }
    }
    assert_eq!(bucket_of(0), 0);
    assert_eq!(bucket_of(u64::MAX), OVERFLOW);
}

#[test]
fn bucket_numbers_never_fall() {
    let mut last = 0;
    let mut nanos = 0u64;
    while nanos < 80_000_000_000 {
        let bucket = bucket_of(nanos);
        assert!(bucket >= last, "{nanos}");
        last = bucket;
        nanos += 1 + nanos / 10_000;
    }
    assert_eq!(last, OVERFLOW);
}

/// `le` includes its boundary: exactly one second is counted under `le="1"`, one nanosecond more is not.
#[test]
fn a_boundary_belongs_to_the_bucket_below_it() {
    for (nanos, edge) in [(1_000_000_000, 48), (500_000_000, 46), (31_250_000, 38), (64_000_000_000, 60)] {
        let histogram = Histogram::detached();
        histogram.record(nanos);
        assert_eq!(histogram.snapshot().cumulative()(edge), 1, "{nanos} <= 2^({edge}/2 - 24) s");
        histogram.record(nanos + 1);
        assert_eq!(histogram.snapshot().cumulative()(edge), 1, "{nanos} + 1");
    }
}

#[test]
fn quantiles_agree_with_sorted_values() {
    for seed in 0..8 {
        let mut rng = weir_base::Rng::new(seed);
        let histogram = Histogram::detached();
        let mut values: Vec<u64> = (0..5_000).map(|_| spread(&mut rng)).collect();
        values.iter().for_each(|&value| histogram.record(value));
        values.sort_unstable();
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 5_000);
        assert_eq!(snapshot.sum(), values.iter().sum::<u64>());
        assert_eq!(snapshot.max(), values[4_999]);
        assert!(snapshot.quantile(1.0).unwrap() <= snapshot.max());
        for q in [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = ((q * 5_000.0f64).ceil() as usize).max(1);
            let (reported, exact) = (snapshot.quantile(q).unwrap(), values[rank - 1]);
            assert!(is_close(reported, exact), "seed {seed} q {q}: {reported} for {exact}");
        }
    }
}

#[test]
fn quantiles_agree_with_hdrhistogram() {
    let mut rng = weir_base::Rng::new(11);
    let ours = Histogram::detached();
    let mut theirs = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 64_000_000_000, 3).unwrap();
    for _ in 0..50_000 {
        let value = spread(&mut rng);
        ours.record(value);
        theirs.record(value).unwrap();
    }
    let snapshot = ours.snapshot();
    for q in [0.001, 0.1, 0.5, 0.75, 0.95, 0.99, 0.999, 0.9999] {
        let (reported, reference) = (snapshot.quantile(q).unwrap(), theirs.value_at_quantile(q));
        // Their own buckets are 0.1 % wide.
        let near = |reference: f64| is_close(reported, reference as u64);
        let (low, high) = (reference as f64 * 0.999, reference as f64 * 1.001);
        assert!(near(low) || near(high), "q {q}: {reported} for {reference}");
    }
}

#[test]
fn values_beyond_the_range_are_counted_with_their_true_sum_and_maximum() {
    let histogram = Histogram::detached();
    histogram.record(70_000_000_000);
    histogram.record(500_000_000_000);
    let snapshot = histogram.snapshot();
    assert_eq!((snapshot.count(), snapshot.sum(), snapshot.max()), (2, 570_000_000_000, 500_000_000_000));
    assert_eq!(snapshot.quantile(0.5), Some(500_000_000_000), "beyond the range only the maximum is known");
    assert_eq!(snapshot.cumulative()(60), 0);
}

#[test]
fn a_shifted_histogram_measures_hours() {
    let histogram = Histogram::new(Some(Arc::new(HistogramCell::new(10, true))));
    let hours = 9 * 3_600 * 1_000_000_000;
    histogram.record(hours);
    histogram.record(2_000_000);
    let snapshot = histogram.snapshot();
    assert!(is_close(snapshot.quantile(0.9).unwrap(), hours));
    assert!(is_close(snapshot.quantile(0.1).unwrap(), 2_000_000));
    assert_eq!(snapshot.cumulative()(60), 2);
}

#[test]
fn nothing_is_allocated_or_answered_before_the_first_record() {
    let histogram = Histogram::detached();
    assert!(histogram.cell.as_ref().unwrap().cells.get().is_none());
    let empty = histogram.snapshot();
    assert_eq!((empty.count(), empty.mean(), empty.quantile(0.5)), (0, None, None));
    let disabled = Histogram::disabled();
    disabled.record(1);
    assert!(!disabled.is_enabled());
    assert_eq!(disabled.snapshot().count(), 0);
}

#[test]
fn a_reader_on_another_thread_sees_a_count_that_only_grows() {
    let cell = Arc::new(HistogramCell::new(0, true));
    let reader = cell.clone();
    let thread = std::thread::spawn(move || {
        let mut last = 0;
        while last < 200_000 {
            let count = reader.snapshot().count();
            assert!(count >= last);
            last = count;
        }
        last
    });
    let histogram = Histogram::new(Some(cell));
    for nanos in 0..200_000 {
        histogram.record(nanos);
    }
    assert_eq!(thread.join().unwrap(), 200_000);
}

proptest! {
    #[test]
    fn merging_is_recording_into_one(a: Vec<u32>, b: Vec<u32>, times in 1u64..5) {
        let (left, right, both) = (Histogram::detached(), Histogram::detached(), Histogram::detached());
        for &value in &a {
            left.record(u64::from(value));
            both.record(u64::from(value));
        }
        for &value in &b {
            right.record_many(u64::from(value), times);
            (0..times).for_each(|_| both.record(u64::from(value)));
        }
        let mut merged = left.snapshot();
        merged.merge(&right.snapshot());
        prop_assert_eq!(&merged, &both.snapshot());
        let difference = merged.since(&left.snapshot());
        prop_assert_eq!(difference.counts, right.snapshot().counts);
        prop_assert_eq!(difference.sum, right.snapshot().sum);
    }

    #[test]
    fn one_value_is_reported_within_the_bound(nanos in 0u64..64_000_000_000) {
        let histogram = Histogram::detached();
        histogram.record(nanos);
        histogram.record(64_000_000_000);
        let reported = histogram.snapshot().quantile(0.5).unwrap();
        prop_assert!(is_close(reported, nanos), "{} for {}", reported, nanos);
    }
}
