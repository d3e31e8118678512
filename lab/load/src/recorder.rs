//! One latency histogram: log-linear, 3 significant digits, 1 us to 60 s. Merged by adding counts, never by averaging
//! percentiles; and silent about a percentile that too few samples stand behind.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2Serializer};
use serde::{Deserialize, Serialize};

use crate::scenario::LATENCY_MAX;

/// Lowest value distinguished, highest value held, both in microseconds, and digits kept in between.
const MICROS_MIN: u64 = 1;
const MICROS_MAX: u64 = LATENCY_MAX.as_micros() as u64;
const DIGITS: u8 = 3;
/// Digits of what is only shown while a run goes on.
const DIGITS_SHOWN: u8 = 2;

/// Samples that must lie above a percentile before it is printed.
const SAMPLES_ABOVE_MIN: u64 = 10;
/// Samples that must lie above it in both of two histograms before a claim compares them.
const SAMPLES_ABOVE_CLAIM: u64 = 100;

/// The percentiles of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tail {
    /// The median.
    P50,
    /// 1 of 10 lies above.
    P90,
    /// 1 of 20.
    P95,
    /// 1 of 100.
    P99,
    /// 1 of 1,000.
    P999,
    /// 1 of 10,000.
    P9999,
}

impl Tail {
    /// The number of samples of which one lies above the percentile.
    #[must_use]
    pub const fn one_in(self) -> u64 {
        match self {
            Self::P50 => 2,
            Self::P90 => 10,
            Self::P95 => 20,
            Self::P99 => 100,
            Self::P999 => 1_000,
            Self::P9999 => 10_000,
        }
    }

    /// Samples that make it printable: p99 needs 1,000.
    #[must_use]
    pub const fn samples_min(self) -> u64 {
        self.one_in() * SAMPLES_ABOVE_MIN
    }

    /// Samples that make a comparison of two such tails a claim: p99 needs 10,000 on each side.
    #[must_use]
    pub const fn samples_claim(self) -> u64 {
        self.one_in() * SAMPLES_ABOVE_CLAIM
    }

    fn quantile(self) -> f64 {
        1.0 - 1.0 / self.one_in() as f64
    }
}

/// A percentile, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Percentile {
    /// Microseconds.
    Micros(u64),
    /// Too few samples.
    TooFew {
        /// So many.
        n: u64,
    },
}

impl Percentile {
    /// Microseconds, if there are enough samples.
    #[must_use]
    pub const fn micros(self) -> Option<u64> {
        match self {
            Self::Micros(micros) => Some(micros),
            Self::TooFew { .. } => None,
        }
    }
}

/// `740 us`, `2.10 ms`, `1.25 s`, or `n/a (n = 512)`.
impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Micros(micros) if micros < 1_000 => write!(f, "{micros} us"),
            Self::Micros(micros) if micros < 1_000_000 => write!(f, "{:.2} ms", micros as f64 / 1e3),
            Self::Micros(micros) => write!(f, "{:.2} s", micros as f64 / 1e6),
            Self::TooFew { n } => write!(f, "n/a (n = {n})"),
        }
    }
}

/// A histogram of durations. About 140 KiB; recording is a few nanoseconds and allocates nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorder {
    histogram: Histogram<u64>,
    over_range: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::of(DIGITS)
    }

    /// An empty one of two digits, for one second of a live view: 20 KiB instead of 220. Fresh pages of the large one
    /// would stall the generator once a second, by milliseconds on virtual machines.
    #[must_use]
    pub fn live() -> Self {
        Self::of(DIGITS_SHOWN)
    }

    fn of(digits: u8) -> Self {
        let histogram = Histogram::new_with_bounds(MICROS_MIN, MICROS_MAX, digits);
        // The bounds are constants that the tests construct.
        Self { histogram: histogram.unwrap_or_else(|_| unreachable!("fixed bounds")), over_range: 0 }
    }

    /// Adds a duration in nanoseconds, rounded to the nearest microsecond. Beyond 60 s it counts as 60 s and as over range.
    #[inline]
    pub fn record_nanos(&mut self, nanos: u64) {
        let micros = nanos.saturating_add(500) / 1_000;
        self.over_range += u64::from(micros > MICROS_MAX);
        self.histogram.saturating_record(micros.min(MICROS_MAX));
    }

    /// Adds all samples of `other`: the result equals one recorder that saw both.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so this cannot fail; `read` checks them.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
        self.over_range = self.over_range.saturating_add(other.over_range);
    }

    /// Samples.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.histogram.len()
    }

    /// A percentile, if the sample-size rule allows it.
    #[must_use]
    pub fn percentile(&self, tail: Tail) -> Percentile {
        let n = self.n();
        if n < tail.samples_min() {
            return Percentile::TooFew { n };
        }
        Percentile::Micros(self.histogram.value_at_quantile(tail.quantile()))
    }

    /// The largest sample in microseconds, exact to 3 digits; 0 if there is none. For rules on single outliers.
    #[must_use]
    pub fn max_micros(&self) -> u64 {
        self.histogram.max()
    }

    /// Every value in microseconds that was recorded, ascending, with its count.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|value| (value.value_iterated_to(), value.count_since_last_iteration()))
    }

    /// The numbers of a record, and the histogram itself.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let some = |value: u64| (self.n() > 0).then_some(value);
        let percentile = |tail| self.percentile(tail).micros();
        Summary {
            min: some(self.histogram.min()),
            mean: some(self.histogram.mean().round() as u64),
            p50: percentile(Tail::P50),
            p90: percentile(Tail::P90),
            p99: percentile(Tail::P99),
            p999: percentile(Tail::P999),
            max: some(self.max_micros()),
            n: self.n(),
            over_range: self.over_range,
            hist: self.to_base64(),
        }
    }

    /// The histogram in the V2 encoding of HdrHistogram (not deflated), as base64.
    #[must_use]
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        // Into memory, with counts below 2^63: nothing that can fail.
        let written = V2Serializer::new().serialize(&self.histogram, &mut bytes);
        debug_assert!(written.is_ok());
        BASE64.encode(bytes)
    }

    /// Reads what [`Self::summary`] wrote; deflated V2 as well.
    ///
    /// # Errors
    /// No base64, no histogram, or one with other bounds, which could not be merged without loss.
    pub fn from_summary(summary: &Summary) -> Result<Self, HistogramError> {
        Self::read(summary, DIGITS)
    }

    /// As [`Self::from_summary`], for one that was made by [`Self::live`].
    ///
    /// # Errors
    /// As there.
    pub fn live_from_summary(summary: &Summary) -> Result<Self, HistogramError> {
        Self::read(summary, DIGITS_SHOWN)
    }

    fn read(summary: &Summary, digits: u8) -> Result<Self, HistogramError> {
        let bytes = BASE64.decode(&summary.hist).map_err(|error| HistogramError(format!("no base64: {error}")))?;
        let histogram: Histogram<u64> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| HistogramError(format!("no V2 histogram: {error}")))?;
        let bounds = (histogram.low(), histogram.high(), histogram.sigfig());
        if bounds != (MICROS_MIN, MICROS_MAX, digits) {
            let (low, high, digits) = bounds;
            return Err(HistogramError(format!("bounds are {low} to {high} us with {digits} digits")));
        }
        if histogram.len() != summary.n {
            return Err(HistogramError(format!("{} samples, but n = {}", histogram.len(), summary.n)));
        }
        Ok(Self { histogram, over_range: summary.over_range })
    }
}

/// Why a stored histogram cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramError(String);

impl fmt::Display for HistogramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unusable latency histogram: {}", self.0)
    }
}

impl std::error::Error for HistogramError {}

/// A latency in a record. Integer microseconds; `null` where there are too few samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The smallest sample.
    pub min: Option<u64>,
    /// The mean.
    pub mean: Option<u64>,
    /// 50th percentile; needs at least 20 samples.
    pub p50: Option<u64>,
    /// 90th percentile; needs at least 100 samples.
    pub p90: Option<u64>,
    /// 99th percentile; needs at least 1,000 samples.
    pub p99: Option<u64>,
    /// 99.9th percentile; needs at least 10,000 samples.
    pub p999: Option<u64>,
    /// The largest sample.
    pub max: Option<u64>,
    /// Samples.
    pub n: u64,
    /// Samples beyond 60 s, which are counted as 60 s.
    #[serde(default)]
    pub over_range: u64,
    /// Base64 of the V2 encoding of HdrHistogram.
    pub hist: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fed(nanos: &[u64]) -> Recorder {
        let mut recorder = Recorder::new();
        nanos.iter().for_each(|one| recorder.record_nanos(*one));
        recorder
    }

    /// All decades of the range, zero and beyond.
    fn durations() -> impl Strategy<Value = Vec<u64>> {
        let one = (0u32..12, 1u64..1_000).prop_map(|(decade, mantissa)| mantissa * 10u64.pow(decade));
        proptest::collection::vec(prop_oneof![1 => Just(0u64), 20 => one], 0..300)
    }

    proptest! {
        #[test]
        fn merged_equals_one_recorder_fed_the_union(a in durations(), b in durations(), c in durations()) {
            let mut merged = fed(&a);
            merged.merge(&fed(&b));
            merged.merge(&fed(&c));
            let union = fed(&[a, b, c].concat());
            prop_assert_eq!(&merged, &union);
            prop_assert_eq!(merged.summary(), union.summary());
        }

        #[test]
        fn a_stored_histogram_reads_back_as_itself(nanos in durations()) {
            let recorder = fed(&nanos);
            prop_assert_eq!(Recorder::from_summary(&recorder.summary()), Ok(recorder));
        }

        #[test]
        fn values_are_exact_to_three_digits(micros in 1u64..=60_000_000) {
            let max = fed(&[micros * 1_000]).max_micros();
            prop_assert!(max.abs_diff(micros) as f64 <= micros as f64 / 1_000.0, "{max}");
        }
    }

    #[test]
    fn a_percentile_needs_ten_samples_above_it() {
        let needs =
            [(Tail::P50, 20), (Tail::P90, 100), (Tail::P99, 1_000), (Tail::P999, 10_000), (Tail::P9999, 100_000)];
        for (tail, needed) in needs {
            assert_eq!((tail.samples_min(), tail.samples_claim()), (needed, needed * 10));
            let almost = fed(&vec![5_000; needed as usize - 1]);
            assert_eq!(almost.percentile(tail), Percentile::TooFew { n: needed - 1 });
            let enough = fed(&vec![5_000; needed as usize]);
            assert_eq!(enough.percentile(tail), Percentile::Micros(5));
        }
        assert_eq!(fed(&[1; 512]).percentile(Tail::P99).to_string(), "n/a (n = 512)");
        assert_eq!(Percentile::Micros(740).to_string(), "740 us");
        assert_eq!(Percentile::Micros(2_100).to_string(), "2.10 ms");
        assert_eq!(Percentile::Micros(1_250_000).to_string(), "1.25 s");
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let recorder = fed(&(1..=10_000u64).map(|micros| micros * 1_000).collect::<Vec<_>>());
        for (tail, exact) in [(Tail::P50, 5_000), (Tail::P90, 9_000), (Tail::P99, 9_900), (Tail::P999, 9_990)] {
            let found = recorder.percentile(tail).micros().expect("enough samples");
            assert!(found.abs_diff(exact) * 1_000 <= exact, "{tail:?}: {found}");
        }
    }

    #[test]
    fn beyond_the_range_is_counted_and_nothing_is_lost() {
        let recorder = fed(&[0, 61_000_000_000, u64::MAX, 60_000_000_000]);
        let summary = recorder.summary();
        assert_eq!((summary.n, summary.over_range, summary.min), (4, 2, Some(0)));
        let max = summary.max.expect("samples");
        assert!(max.abs_diff(60_000_000) <= 60_000, "{max}");
        assert_eq!(fed(&[]).summary().min, None);
    }

    #[test]
    fn foreign_histograms_are_refused() {
        let good = fed(&[1_000]).summary();
        let mut other: Histogram<u64> = Histogram::new_with_bounds(1, 1_000, 2).expect("bounds");
        other.record(5).expect("in range");
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&other, &mut bytes).expect("into memory");
        for hist in ["", "%", "AAAA", &BASE64.encode(bytes)] {
            let wrong = Summary { hist: hist.to_owned(), ..good.clone() };
            assert!(Recorder::from_summary(&wrong).is_err(), "{hist}");
        }
        assert!(Recorder::from_summary(&Summary { n: 2, ..good }).is_err());
    }
}
