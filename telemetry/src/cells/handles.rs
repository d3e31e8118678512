//! The parts of a worker: one pointer per metric.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Slot;

/// A counter of one core. Clones share the cell.
#[derive(Clone)]
pub struct Counter {
    slot: Arc<Slot>,
    one_writer: PhantomData<Rc<()>>,
}

impl Counter {
    pub(super) fn new(slot: Arc<Slot>) -> Counter {
        Counter { slot, one_writer: PhantomData }
    }

    /// Adds `n`, in cell units: nanoseconds for families in seconds.
    #[inline]
    pub fn add(&self, n: u64) {
        let cell = self.slot.cell();
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Follows a total that is counted elsewhere, such as CPU time; never goes back.
    #[inline]
    pub fn advance_to(&self, total: u64) {
        let cell = self.slot.cell();
        cell.store(cell.load(Ordering::Relaxed).max(total), Ordering::Relaxed);
    }

    /// This core's count.
    #[inline]
    #[must_use]
    pub fn value(&self) -> u64 {
        self.slot.cell().load(Ordering::Relaxed)
    }
}

/// A gauge of one core. Clones share the cell. May be negative on one core while the sum over cores is not: what is
/// handed over is counted up here and down there.
#[derive(Clone)]
pub struct Gauge {
    slot: Arc<Slot>,
    one_writer: PhantomData<Rc<()>>,
}

impl Gauge {
    pub(super) fn new(slot: Arc<Slot>) -> Gauge {
        Gauge { slot, one_writer: PhantomData }
    }

    /// Sets the value, in cell units.
    #[inline]
    pub fn set(&self, value: i64) {
        self.slot.cell().store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.set(self.value().wrapping_add(n));
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Takes one away. Prefer [`Gauge::guard`], which cannot be forgotten.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Sets a share between 0 and 1, for families in ratios.
    #[inline]
    pub fn set_ratio(&self, ratio: f64) {
        self.set((ratio.clamp(0.0, 1.0) * 1e6) as i64);
    }

    /// Sets a duration, for families in seconds. One of more than 292 years is cut.
    #[inline]
    pub fn set_duration(&self, duration: Duration) {
        self.set(nanoseconds(duration));
    }

    /// Counts one up now and down when the guard is dropped.
    #[must_use = "the guard counts down when it is dropped"]
    pub fn guard(&self) -> GaugeGuard {
        self.inc();
        GaugeGuard(self.clone())
    }

    /// This core's value.
    #[inline]
    #[must_use]
    pub fn value(&self) -> i64 {
        self.slot.cell().load(Ordering::Relaxed).cast_signed()
    }
}

/// One unit of a gauge, for as long as it lives.
#[must_use = "the guard counts down when it is dropped"]
pub struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A counter that several threads may write.
#[derive(Clone)]
pub struct SharedCounter(Arc<Slot>);

impl SharedCounter {
    pub(super) fn new(slot: Arc<Slot>) -> SharedCounter {
        SharedCounter(slot)
    }

    /// Adds `n`, in cell units.
    pub fn add(&self, n: u64) {
        self.0.cell().fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Follows a total that is counted elsewhere; never goes back.
    pub fn advance_to(&self, total: u64) {
        self.0.cell().fetch_max(total, Ordering::Relaxed);
    }
}

/// A gauge that several threads may write.
#[derive(Clone)]
pub struct SharedGauge(Arc<Slot>);

impl SharedGauge {
    pub(super) fn new(slot: Arc<Slot>) -> SharedGauge {
        SharedGauge(slot)
    }

    /// Sets the value, in cell units: nanoseconds for families in seconds.
    pub fn set(&self, value: i64) {
        self.0.cell().store(value.cast_unsigned(), Ordering::Relaxed);
    }

    /// Sets a duration, for families in seconds. One of more than 292 years is cut.
    pub fn set_duration(&self, duration: Duration) {
        self.set(nanoseconds(duration));
    }

    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.cell().fetch_add(n.cast_unsigned(), Ordering::Relaxed);
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.cell().load(Ordering::Relaxed).cast_signed()
    }
}

/// The cell units of families in seconds.
fn nanoseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
