//! Cells that one core writes and the control thread reads.
//!
//! A [`Registry`] belongs to the process. Each worker asks it for its [`CoreMetrics`] and creates handles there, at
//! start or when a listener, upstream or command first appears. Creating a handle takes a short lock and allocates;
//! using it is a plain load and store of a relaxed atomic, because a cell has exactly one writer. Handles are not
//! `Send`, so that the compiler keeps it so.
//!
//! Memory is bounded. A family holds at most [`Family::label_sets_max`] label sets; later ones share one series in which
//! every label is `other`, and `weir_telemetry_label_overflows_total` counts them. The cells of a core stand in chunks
//! of their own cache lines, so cores do not disturb each other. [`Registry::retire`] takes the series of a removed
//! listener or upstream out of every family: readers no longer see them, their places count as free, and each cell is
//! reused once the last handle to it is dropped. A name that comes back after that starts at zero, which Prometheus
//! treats as a counter reset.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::catalog::{self, Family, Kind};
use crate::histogram::{Histogram, HistogramCell};
use crate::snapshot::{FamilySnapshot, Labels, SeriesSnapshot, Snapshot, Value};

mod handles;

pub use handles::{Counter, Gauge, GaugeGuard, SharedCounter, SharedGauge};

/// Bytes of one label value; longer ones are cut. Names in the configuration are shorter.
const LABEL_VALUE_BYTES_MAX: usize = 128;
/// Cells per chunk: 512 bytes, eight cache lines.
const CHUNK_CELLS: usize = 64;
/// Stands for the threads that share cells (control, watchdog).
const SHARED_CORE: u32 = u32::MAX;

/// How much is measured. See [`Registry::set_level`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `/metrics` shows gauges only, for a benchmark of what telemetry costs.
    Off,
    /// `/metrics` shows gauges and counters.
    Counters,
    /// Everything; the default.
    Full,
}

/// Cells that belong to one core alone; aligned so that no cache line is shared with another core.
#[repr(align(128))]
struct Chunk([AtomicU64; CHUNK_CELLS]);

/// The cells of one core and which of them are free.
struct Block {
    core: u32,
    free: Mutex<Vec<(Arc<Chunk>, u8)>>,
}

impl Block {
    fn new(core: u32) -> Arc<Block> {
        Arc::new(Block { core, free: Mutex::new(Vec::new()) })
    }

    fn slot(self: &Arc<Block>) -> Arc<Slot> {
        let mut free = lock(&self.free);
        if free.is_empty() {
            let chunk = Arc::new(Chunk([const { AtomicU64::new(0) }; CHUNK_CELLS]));
            free.extend((0..CHUNK_CELLS as u8).rev().map(|index| (chunk.clone(), index)));
        }
        let (chunk, index) = free.pop().expect("a chunk was just added");
        chunk.0[usize::from(index)].store(0, Ordering::Relaxed);
        Arc::new(Slot { chunk, index, block: self.clone() })
    }
}

/// One cell. Goes back to its block when neither a handle nor a series refers to it.
struct Slot {
    chunk: Arc<Chunk>,
    index: u8,
    block: Arc<Block>,
}

impl Slot {
    #[inline]
    fn cell(&self) -> &AtomicU64 {
        &self.chunk.0[usize::from(self.index) % CHUNK_CELLS]
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.block.free).push((self.chunk.clone(), self.index));
    }
}

#[derive(Clone)]
enum Cell {
    Number(Arc<Slot>),
    Histogram(Arc<HistogramCell>),
}

/// One label set of a family, with one cell for each core that has requested it.
struct Series {
    labels: Labels,
    cells: Mutex<Vec<(u32, Cell)>>,
}

#[derive(Default)]
struct FamilySeries {
    series: BTreeMap<Labels, Arc<Series>>,
    overflows: u64,
}

struct Inner {
    /// A [`Level`].
    level: AtomicU8,
    families: Vec<Mutex<FamilySeries>>,
    blocks: Mutex<BTreeMap<u32, Arc<Block>>>,
}

/// All cells of the process. Clones share them.
#[derive(Clone)]
pub struct Registry(Arc<Inner>);

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// An empty registry that measures everything.
    #[must_use]
    pub fn new() -> Registry {
        Registry::with_level(Level::Full)
    }

    /// An empty registry that measures what `level` says. Handles can be created and used all the same.
    #[must_use]
    pub fn with_level(level: Level) -> Registry {
        let families = catalog::ALL.iter().map(|_| Mutex::default()).collect();
        Registry(Arc::new(Inner { level: AtomicU8::new(level as u8), families, blocks: Mutex::default() }))
    }

    /// The level of detail that is measured.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.0.level.load(Ordering::Relaxed) {
            0 => Level::Off,
            1 => Level::Counters,
            _ => Level::Full,
        }
    }

    /// Measures what `level` says from now on, also through the handles that there are. Counters go on counting at every level,
    /// for that costs what throwing the count away would; below theirs they are not exposed. Histograms do not record below
    /// theirs, and keep what they have.
    pub fn set_level(&self, level: Level) {
        self.0.level.store(level as u8, Ordering::Relaxed);
        for family in catalog::ALL.iter().filter(|family| family.kind == Kind::Histogram) {
            let listed: Vec<Arc<Series>> = lock(&self.0.families[family.index]).series.values().cloned().collect();
            for series in listed {
                for (_, cell) in lock(&series.cells).iter() {
                    if let Cell::Histogram(histogram) = cell {
                        histogram.switch(level == Level::Full);
                    }
                }
            }
        }
    }

    /// The metrics of worker `core`. To be called on that worker's thread, and for one `core` by one thread at a time:
    /// two writers would lose each other's counts.
    #[must_use]
    pub fn core(&self, core: u32) -> CoreMetrics {
        CoreMetrics { registry: self.clone(), block: self.block(core), one_writer: PhantomData }
    }

    /// Metrics for threads that are not workers. Their handles may be shared between threads and cost an atomic
    /// read-modify-write.
    #[must_use]
    pub fn shared(&self) -> SharedMetrics {
        SharedMetrics { registry: self.clone(), block: self.block(SHARED_CORE) }
    }

    /// Takes every series whose label `label` is `value` out of every family; see the module for what becomes of the
    /// cells. Returns how many series went. Call it when a removed listener or upstream has drained.
    pub fn retire(&self, label: &str, value: &str) -> usize {
        catalog::ALL.iter().map(|family| self.retire_from(family, label, value)).sum()
    }

    /// Takes one series out of its family: what it was about is gone, while the listener or upstream stays. Returns whether it was
    /// there.
    pub fn retire_series(&self, family: &'static Family, values: &[&str]) -> bool {
        let retired = lock(&self.0.families[family.index]).series.remove(&labels_of(values));
        // Dropped here, outside the lock of the family.
        retired.is_some()
    }

    fn retire_from(&self, family: &'static Family, label: &str, value: &str) -> usize {
        let Some(position) = family.labels.iter().position(|name| *name == label) else { return 0 };
        let mut entry = lock(&self.0.families[family.index]);
        let gone = entry.series.extract_if(.., |labels, _| labels[position].as_ref() == value);
        let retired: Vec<_> = gone.collect();
        drop(entry);
        // Dropped here, outside the lock of the family.
        retired.len()
    }

    /// The sum of the counters of one family whose label `label` is `value`, as [`Registry::read`] would tell it without
    /// reading everything else; `None` if there is none.
    #[must_use]
    pub fn sum(&self, family: &'static Family, label: &str, value: &str) -> Option<u64> {
        let position = family.labels.iter().position(|name| *name == label)?;
        let listed = self.listed(family, position, value);
        let count = |series: &Arc<Series>| match read_series(family, series).value {
            Value::Counter(count) => Some(count),
            _ => None,
        };
        listed.iter().filter_map(count).reduce(u64::wrapping_add)
    }

    /// The counter with these label values, read by itself; `None` if there is none.
    #[must_use]
    pub fn count(&self, family: &'static Family, values: &[&str]) -> Option<u64> {
        let series = lock(&self.0.families[family.index]).series.get(&labels_of(values)).cloned()?;
        match read_series(family, &series).value {
            Value::Counter(count) => Some(count),
            _ => None,
        }
    }

    /// The series of a family whose label at `position` is `value`. The lock of the family is held for that only.
    fn listed(&self, family: &'static Family, position: usize, value: &str) -> Vec<Arc<Series>> {
        let entry = lock(&self.0.families[family.index]);
        entry.series.values().filter(|series| series.labels[position].as_ref() == value).cloned().collect()
    }

    /// Reads every cell that is kept up to date: counters and gauges at every level, histograms where they record. Holds no lock
    /// that a worker's recording needs; each family is locked only to list its series.
    #[must_use]
    pub fn read(&self) -> Snapshot {
        let is_full = self.level() == Level::Full;
        self.read_where(|family, _| family.kind != Kind::Histogram || is_full)
    }

    /// As [`Registry::read`], without what the level keeps from `/metrics`: below [`Level::Counters`] what workers count.
    #[must_use]
    pub fn exposed(&self) -> Snapshot {
        let level = self.level();
        self.read_where(|family, series| is_exposed(family, series, level))
    }

    fn read_where(&self, is_wanted: impl Fn(&'static Family, &Series) -> bool) -> Snapshot {
        let mut families: Vec<FamilySnapshot> = Vec::with_capacity(catalog::ALL.len());
        let mut overflows = Vec::new();
        for family in catalog::ALL {
            let listed: Vec<Arc<Series>> = {
                let entry = lock(&self.0.families[family.index]);
                if entry.overflows > 0 {
                    overflows.push((family.name, entry.overflows));
                }
                entry.series.values().cloned().collect()
            };
            let wanted = listed.iter().filter(|series| is_wanted(family, series));
            let series = wanted.map(|series| read_series(family, series)).collect();
            families.push(FamilySnapshot { family, series });
        }
        families[catalog::LABEL_OVERFLOWS.index].series.extend(
            overflows
                .into_iter()
                .map(|(name, count)| SeriesSnapshot { labels: [Arc::from(name)].into(), value: Value::Counter(count) }),
        );
        Snapshot::new(families)
    }

    fn block(&self, core: u32) -> Arc<Block> {
        lock(&self.0.blocks).entry(core).or_insert_with(|| Block::new(core)).clone()
    }

    /// The cell of (family, labels) on the block's core, created if it is new.
    fn cell(&self, family: &'static Family, kind: Kind, values: &[&str], block: &Arc<Block>) -> Cell {
        assert!(family.kind == kind, "{} is a {}", family.name, family.kind.as_str());
        assert!(family.labels.len() == values.len(), "{} has the labels {:?}", family.name, family.labels);
        let series = self.series(family, values);
        let mut cells = lock(&series.cells);
        if let Some((_, cell)) = cells.iter().find(|(core, _)| *core == block.core) {
            return cell.clone();
        }
        let cell = match kind {
            // Read under the lock of the cells: a level that is set meanwhile is seen here, or switches this one.
            Kind::Histogram => {
                Cell::Histogram(Arc::new(HistogramCell::new(family.buckets.shift, self.level() == Level::Full)))
            }
            Kind::Counter | Kind::Gauge => Cell::Number(block.slot()),
        };
        cells.push((block.core, cell.clone()));
        cell
    }

    fn series(&self, family: &'static Family, values: &[&str]) -> Arc<Series> {
        let mut labels = labels_of(values);
        let mut entry = lock(&self.0.families[family.index]);
        if let Some(series) = entry.series.get(&labels) {
            return series.clone();
        }
        if entry.series.len() >= family.label_sets_max {
            entry.overflows += 1;
            labels = values.iter().map(|_| Arc::from("other")).collect();
        }
        let new = || Arc::new(Series { labels: labels.clone(), cells: Mutex::default() });
        entry.series.entry(labels.clone()).or_insert_with(new).clone()
    }
}

/// The metrics of one worker; creates its handles. Not `Send`.
///
/// ```compile_fail,E0277
/// let core = weir_telemetry::Registry::new().core(0);
/// std::thread::spawn(move || core.core()); // a second writer does not compile
/// ```
///
/// The methods panic if the family is of another kind or has other labels: a mistake in the code, not in the input.
#[derive(Clone)]
pub struct CoreMetrics {
    registry: Registry,
    block: Arc<Block>,
    one_writer: PhantomData<Rc<()>>,
}

impl CoreMetrics {
    /// The worker's number.
    #[must_use]
    pub fn core(&self) -> u32 {
        self.block.core
    }

    /// The registry these metrics belong to.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The counter with these label values, at zero if it is new.
    #[must_use]
    pub fn counter(&self, family: &'static Family, values: &[&str]) -> Counter {
        Counter::new(self.number(family, Kind::Counter, values))
    }

    /// The gauge with these label values, at zero if it is new.
    #[must_use]
    pub fn gauge(&self, family: &'static Family, values: &[&str]) -> Gauge {
        Gauge::new(self.number(family, Kind::Gauge, values))
    }

    /// The histogram with these label values, empty if it is new; its memory comes with the first record.
    #[must_use]
    pub fn histogram(&self, family: &'static Family, values: &[&str]) -> Histogram {
        match self.registry.cell(family, Kind::Histogram, values, &self.block) {
            Cell::Histogram(cell) => Histogram::new(Some(cell)),
            Cell::Number(_) => Histogram::disabled(),
        }
    }

    fn number(&self, family: &'static Family, kind: Kind, values: &[&str]) -> Arc<Slot> {
        number(self.registry.cell(family, kind, values, &self.block), &self.block)
    }
}

/// Metrics of the threads that are not workers. `Send` and `Sync`; panics as [`CoreMetrics`] does.
#[derive(Clone)]
pub struct SharedMetrics {
    registry: Registry,
    block: Arc<Block>,
}

impl SharedMetrics {
    /// The counter with these label values, at zero if it is new.
    #[must_use]
    pub fn counter(&self, family: &'static Family, values: &[&str]) -> SharedCounter {
        SharedCounter::new(number(self.registry.cell(family, Kind::Counter, values, &self.block), &self.block))
    }

    /// The gauge with these label values, at zero if it is new.
    #[must_use]
    pub fn gauge(&self, family: &'static Family, values: &[&str]) -> SharedGauge {
        SharedGauge::new(number(self.registry.cell(family, Kind::Gauge, values, &self.block), &self.block))
    }
}

/// A family holds cells of its kind only, so the second arm is never taken; it keeps the match total without a panic.
fn number(cell: Cell, block: &Arc<Block>) -> Arc<Slot> {
    match cell {
        Cell::Number(slot) => slot,
        Cell::Histogram(_) => block.slot(),
    }
}

/// Whether a series is exposed at `level`. Series counted by the control thread are exposed at every level.
fn is_exposed(family: &'static Family, series: &Series, level: Level) -> bool {
    match family.kind {
        Kind::Gauge => true,
        Kind::Counter if level == Level::Off => lock(&series.cells).iter().any(|(core, _)| *core == SHARED_CORE),
        Kind::Counter => true,
        Kind::Histogram => level == Level::Full,
    }
}

fn read_series(family: &'static Family, series: &Series) -> SeriesSnapshot {
    let cells: Vec<Cell> = lock(&series.cells).iter().map(|(_, cell)| cell.clone()).collect();
    let parts = cells.iter().map(|cell| match (family.kind, cell) {
        (Kind::Counter, Cell::Number(slot)) => Value::Counter(slot.cell().load(Ordering::Relaxed)),
        (_, Cell::Number(slot)) => Value::Gauge(slot.cell().load(Ordering::Relaxed).cast_signed()),
        (_, Cell::Histogram(histogram)) => Value::Histogram(histogram.snapshot()),
    });
    let value = parts.reduce(|a, b| a.merged(b, family.merge)).unwrap_or_else(|| Value::empty(family.kind));
    SeriesSnapshot { labels: series.labels.clone(), value }
}

/// The label values of a series.
fn labels_of(values: &[&str]) -> Labels {
    values.iter().map(|value| Arc::from(shortened(value))).collect()
}

/// `value`, cut at a character boundary if it is too long.
fn shortened(value: &str) -> &str {
    &value[..value.floor_char_boundary(LABEL_VALUE_BYTES_MAX)]
}

/// The data behind these mutexes is consistent after every statement, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
