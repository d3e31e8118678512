//! Log-linear histogram over nanoseconds: one writer, lock-free readers.
//!
//! An octave (a factor of two) is two half octaves at the square root of two, and each half octave eight linear
//! buckets. So a bucket is at most 5.3 % wide, and its midpoint is at most 2.7 % from any value in it. Octaves are
//! anchored at powers of two *seconds*, not nanoseconds: the edges of octaves and half octaves are then exactly the
//! boundaries of Prometheus native histograms of schema 0 and 1, and exposing those needs no interpolation.
//!
//! The range is 30 octaves, 2^-24 s (60 ns) to 2^6 s (64 s), with 16 linear buckets of 3.7 ns below and one bucket for
//! everything above: 497 buckets. With `shift` the whole range moves up by 2^`shift`.
//!
//! Memory: [`BYTES`] per histogram that has recorded anything (under 4 KiB), a few words before that.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Buckets per octave.
const PER_OCTAVE: usize = 16;
/// Binary digits of an internal unit below one second: 2^-36 s is 14.6 ps, so that conversion loses nothing that counts.
const UNIT_BITS: i32 = 36;
/// Internal units per nanosecond, as a 32.32 fixed-point number: 2^36 / 10^9 x 2^32, rounded.
const UNITS_PER_NANO: u128 = 295_147_905_179;
/// Octave of the first half-octave bucket: 2^12 units = 2^-24 s. Below it, linear.
const FIRST_OCTAVE: u32 = 12;
/// Octave at which overflow begins: 2^42 units = 2^6 s.
const END_OCTAVE: u32 = 42;
/// The bucket for what is beyond the range.
const OVERFLOW: usize = PER_OCTAVE * (END_OCTAVE - FIRST_OCTAVE + 1) as usize;
/// Number of buckets.
pub const BUCKETS: usize = OVERFLOW + 1;
/// Bytes of one histogram that is in use.
pub const BYTES: usize = size_of::<Cells>();
const _: () = assert!(BYTES <= 4096);

/// The square root of two, scaled so that 2^31 is one.
const SQRT_2_Q31: u64 = 3_037_000_500;
/// Start of each half octave and the factor that maps its width to 8 x 2^48.
const HALVES: [(u64, u64); 2] =
    [(1 << 31, (8 << 48) / (SQRT_2_Q31 - (1 << 31))), (SQRT_2_Q31, (8 << 48) / ((1 << 32) - SQRT_2_Q31))];

#[repr(align(128))]
struct Cells {
    buckets: [AtomicU64; BUCKETS],
    /// Nanoseconds.
    sum: AtomicU64,
    /// Nanoseconds.
    max: AtomicU64,
}

/// State shared by the writer and the readers; the buckets come with the first record.
pub(crate) struct HistogramCell {
    shift: u32,
    /// False: records are thrown away. Beside the pointer to the buckets, so that a look at it costs no further cache line.
    is_on: AtomicBool,
    cells: OnceLock<Box<Cells>>,
}

impl HistogramCell {
    pub(crate) fn new(shift: u32, is_on: bool) -> HistogramCell {
        HistogramCell { shift, is_on: AtomicBool::new(is_on), cells: OnceLock::new() }
    }

    /// Begins or ends to record; what was recorded stays.
    pub(crate) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Only called by the one writer; plain loads and stores.
    #[inline]
    fn record(&self, nanos: u64, times: u64) {
        if !self.is_on() {
            return;
        }
        let cells = self.cells.get_or_init(empty_cells);
        add(&cells.buckets[bucket_of(nanos >> self.shift)], times);
        add(&cells.sum, nanos.wrapping_mul(times));
        if nanos > cells.max.load(Ordering::Relaxed) {
            cells.max.store(nanos, Ordering::Relaxed);
        }
    }

    /// A copy. A record under way may be in the buckets and not yet in the sum; the count is made from the buckets.
    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot { shift: self.shift, ..HistogramSnapshot::default() };
        let Some(cells) = self.cells.get() else {
            return snapshot;
        };
        snapshot.sum = cells.sum.load(Ordering::Relaxed);
        snapshot.max = cells.max.load(Ordering::Relaxed);
        for (index, cell) in (0u16..).zip(&cells.buckets) {
            let count = cell.load(Ordering::Relaxed);
            if count > 0 {
                snapshot.counts.push((index, count));
                snapshot.count += count;
            }
        }
        snapshot
    }
}

#[cold]
fn empty_cells() -> Box<Cells> {
    let buckets = [const { AtomicU64::new(0) }; BUCKETS];
    Box::new(Cells { buckets, sum: AtomicU64::new(0), max: AtomicU64::new(0) })
}

/// One writer: no read-modify-write instruction is needed.
#[inline]
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// The bucket of a value in nanoseconds.
#[inline]
fn bucket_of(nanos: u64) -> usize {
    let wide = (u128::from(nanos) * UNITS_PER_NANO) >> 32;
    let units = u64::try_from(wide).unwrap_or(u64::MAX);
    if units < 1 << FIRST_OCTAVE {
        return (units >> (FIRST_OCTAVE - 4)) as usize;
    }
    if units >= 1 << END_OCTAVE {
        return OVERFLOW;
    }
    let octave = units.ilog2();
    // The value within its octave, 2^31 (one) to 2^32 (two).
    let mantissa = if octave >= 31 { units >> (octave - 31) } else { units << (31 - octave) };
    let half = usize::from(mantissa >= SQRT_2_Q31);
    let (start, factor) = HALVES[half];
    let step = (((mantissa - start) * factor) >> 48) as usize;
    PER_OCTAVE * (octave - FIRST_OCTAVE + 1) as usize + 8 * half + step
}

/// Lower edge of a bucket in seconds, before `shift`. The edge after the last is infinite.
fn lower_edge(index: usize) -> f64 {
    if index < PER_OCTAVE {
        return index as f64 * exp2(-24) / PER_OCTAVE as f64;
    }
    if index > OVERFLOW {
        return f64::INFINITY;
    }
    let (octave, within) = (index / PER_OCTAVE, index % PER_OCTAVE);
    let (start, width) = match within < 8 {
        true => (1.0, std::f64::consts::SQRT_2 - 1.0),
        false => (std::f64::consts::SQRT_2, 2.0 - std::f64::consts::SQRT_2),
    };
    let octave = i32::try_from(octave).unwrap_or(0) + FIRST_OCTAVE as i32 - 1 - UNIT_BITS;
    (start + width * (within % 8) as f64 / 8.0) * exp2(octave)
}

/// 2^`exponent`, exact on every platform.
pub(crate) fn exp2(exponent: i32) -> f64 {
    2f64.powi(exponent)
}

/// The writer's handle. Only one thread records into a histogram, which is why it is not `Send`; clones share it.
#[derive(Clone)]
pub struct Histogram {
    cell: Option<Arc<HistogramCell>>,
    one_writer: PhantomData<Rc<()>>,
}

impl Histogram {
    pub(crate) fn new(cell: Option<Arc<HistogramCell>>) -> Histogram {
        Histogram { cell, one_writer: PhantomData }
    }

    /// A histogram of its own, outside any registry; for load generators and tests.
    #[must_use]
    pub fn detached() -> Histogram {
        Histogram::new(Some(Arc::new(HistogramCell::new(0, true))))
    }

    /// A histogram that records nothing.
    #[must_use]
    pub fn disabled() -> Histogram {
        Histogram::new(None)
    }

    /// Whether recording does anything now; the level of its registry may change that.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.cell.as_ref().is_some_and(|cell| cell.is_on())
    }

    /// Records one duration in nanoseconds. A few nanoseconds; allocates once, on the first record.
    #[inline]
    pub fn record(&self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// Records the same duration `times` times: requests that left in one write share its duration.
    #[inline]
    pub fn record_many(&self, nanos: u64, times: u64) {
        if let Some(cell) = &self.cell {
            cell.record(nanos, times);
        }
    }

    /// A copy of what was recorded.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        self.cell.as_ref().map(|cell| cell.snapshot()).unwrap_or_default()
    }
}

/// A copy of a histogram: mergeable, subtractable, with quantiles. Holds only buckets that are not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    shift: u32,
    /// (bucket, count), ascending by bucket, no zero counts.
    counts: Vec<(u16, u64)>,
    count: u64,
    sum: u64,
    max: u64,
}

impl HistogramSnapshot {
    /// Number of records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the records in nanoseconds, exact (modulo 2^64: 584 years).
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest record in nanoseconds, exact. After [`HistogramSnapshot::since`], of the whole life.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Mean in nanoseconds; `None` without records.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The value in nanoseconds at quantile `q` (0 to 1): the middle of the bucket that holds the record of rank
    /// ceil(q x count), at most the maximum. `None` without records.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = ((q.clamp(0.0, 1.0) * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for &(index, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return Some(self.midpoint(usize::from(index)).min(self.max));
            }
        }
        None
    }

    /// Adds `other`. Histograms of different ranges do not mix: then nothing is added.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        if self.count == 0 {
            self.shift = other.shift;
        }
        debug_assert!(other.count == 0 || self.shift == other.shift, "ranges differ");
        if self.shift != other.shift || other.count == 0 {
            return;
        }
        let mut dense = self.dense();
        for &(index, count) in &other.counts {
            dense[usize::from(index)] += count;
        }
        self.fill(&dense);
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The values recorded since `earlier`, a snapshot of the same histogram. `max` stays that of the whole life.
    #[must_use]
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let mut dense = self.dense();
        for &(index, count) in &earlier.counts {
            let cell = &mut dense[usize::from(index)];
            *cell = cell.saturating_sub(count);
        }
        let mut difference = self.clone();
        difference.fill(&dense);
        difference.sum = self.sum.saturating_sub(earlier.sum);
        difference
    }

    /// For ascending edges: how many records are not above each. Edge `e` lies `e` half octaves above
    /// 2^-24 s x 2^shift; these are the boundaries of native schema 1, and every second one is one of schema 0.
    pub(crate) fn cumulative(&self) -> impl FnMut(usize) -> u64 {
        let mut rest = self.counts.iter().peekable();
        let mut total = 0;
        move |edge| {
            let end = PER_OCTAVE + edge * PER_OCTAVE / 2;
            while let Some((_, count)) = rest.next_if(|(index, _)| usize::from(*index) < end) {
                total += count;
            }
            total
        }
    }

    fn midpoint(&self, index: usize) -> u64 {
        if index >= OVERFLOW {
            return self.max;
        }
        let middle = f64::midpoint(lower_edge(index), lower_edge(index + 1)) * 1e9;
        (middle * (1u64 << self.shift) as f64).round() as u64
    }

    fn dense(&self) -> Vec<u64> {
        let mut dense = vec![0; BUCKETS];
        for &(index, count) in &self.counts {
            dense[usize::from(index)] = count;
        }
        dense
    }

    fn fill(&mut self, dense: &[u64]) {
        let filled = (0u16..).zip(dense.iter().copied()).filter(|(_, count)| *count > 0);
        self.counts = filled.collect();
        self.count = self.counts.iter().map(|(_, count)| count).sum();
    }
}

#[cfg(test)]
mod tests;
