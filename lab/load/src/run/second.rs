//! One second of a phase, for the live view and the course of a trial: of one shard, of a process, of all.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::recorder::{HistogramError, Percentile, Recorder, Summary, Tail};
use crate::scenario::Phase;

/// Requests that ended in one second, warm-up and drain included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "StoredSlice", try_from = "StoredSlice")]
pub struct Slice {
    /// Completed requests.
    pub completed: u64,
    /// Shed, failed and skipped.
    pub failed: u64,
    /// Sojourn of completed requests, to two digits.
    pub sojourn: Recorder,
    /// Generator lag of requests that were sent, to two digits.
    pub generator_lag: Recorder,
}

impl Default for Slice {
    fn default() -> Self {
        Self { completed: 0, failed: 0, sojourn: Recorder::live(), generator_lag: Recorder::live() }
    }
}

impl Slice {
    /// Adds what others saw in the same second.
    pub fn merge(&mut self, other: &Self) {
        let Self { completed, failed, sojourn, generator_lag } = other;
        self.completed += completed;
        self.failed += failed;
        self.sojourn.merge(sojourn);
        self.generator_lag.merge(generator_lag);
    }
}

/// A slice on its way between processes.
#[derive(Serialize, Deserialize)]
struct StoredSlice {
    completed: u64,
    failed: u64,
    sojourn: Summary,
    generator_lag: Summary,
}

impl From<Slice> for StoredSlice {
    fn from(slice: Slice) -> Self {
        let Slice { completed, failed, sojourn, generator_lag } = slice;
        Self { completed, failed, sojourn: sojourn.summary(), generator_lag: generator_lag.summary() }
    }
}

impl TryFrom<StoredSlice> for Slice {
    type Error = HistogramError;

    fn try_from(stored: StoredSlice) -> Result<Self, HistogramError> {
        let StoredSlice { completed, failed, sojourn, generator_lag } = stored;
        let read = |summary: &Summary| Recorder::live_from_summary(summary);
        Ok(Self { completed, failed, sojourn: read(&sojourn)?, generator_lag: read(&generator_lag)? })
    }
}

/// Adds up the seconds of all reporters of a phase, and returns each second once all have reported it. A second that only some
/// report, because the others have drained, is never returned.
#[derive(Debug)]
pub struct Seconds {
    tellers: usize,
    open: BTreeMap<u32, (usize, Slice)>,
}

impl Seconds {
    /// For `tellers` reporters.
    #[must_use]
    pub fn new(tellers: usize) -> Self {
        Self { tellers, open: BTreeMap::new() }
    }

    /// One of them reported second `index`. The sum, if it was the last.
    pub fn add(&mut self, index: u32, slice: &Slice) -> Option<Slice> {
        let (told, sum) = self.open.entry(index).or_default();
        *told += 1;
        sum.merge(slice);
        if *told < self.tellers {
            return None;
        }
        self.open.remove(&index).map(|(_, sum)| sum)
    }
}

/// The parts of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Load that is not recorded.
    Warmup,
    /// The window that is measured.
    Window,
    /// Nothing new is wanted; what is late or under way ends.
    Drain,
}

/// One second of a phase, over all shards of those who tell.
#[derive(Clone, Debug)]
pub struct Second {
    /// Name of the phase.
    pub phase: String,
    /// Which, from 1.
    pub index: u32,
    /// The part of the phase in which it ended.
    pub stage: Stage,
    /// Requests that ended in it.
    pub slice: Slice,
    /// Until the window ends; zero while the step drains.
    pub left: Duration,
}

impl Second {
    /// Second `index` (from 1) of `phase`.
    #[must_use]
    pub fn new(phase: &Phase, index: u32, slice: Slice) -> Self {
        let ended = Duration::from_secs(u64::from(index));
        let length = phase.warmup + phase.duration;
        let stage = match ended {
            _ if ended <= phase.warmup => Stage::Warmup,
            _ if ended <= length => Stage::Window,
            _ => Stage::Drain,
        };
        Self { phase: phase.name.clone(), index, stage, slice, left: length.saturating_sub(ended) }
    }

    /// Sojourn of what completed.
    #[must_use]
    pub fn sojourn(&self, tail: Tail) -> Percentile {
        self.slice.sojourn.percentile(tail)
    }

    /// p99 lag of the generator behind its schedule.
    #[must_use]
    pub fn lag_p99(&self) -> Percentile {
        self.slice.generator_lag.percentile(Tail::P99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(micros: u64) -> Slice {
        let mut slice = Slice { completed: 30, failed: 2, ..Slice::default() };
        for step in 0..30 {
            slice.sojourn.record_nanos((micros + step) * 1_000);
            slice.generator_lag.record_nanos(step * 1_000);
        }
        slice
    }

    #[test]
    fn a_second_is_given_when_all_shards_have_reported_and_survives_the_way_as_text() {
        let mut seconds = Seconds::new(2);
        let on_its_way: Slice = serde_json::from_str(&serde_json::to_string(&slice(500)).unwrap()).unwrap();
        assert_eq!(on_its_way, slice(500));
        assert_eq!(seconds.add(1, &on_its_way), None);
        assert_eq!(seconds.add(2, &slice(500)), None);
        let sum = seconds.add(1, &slice(9_000)).expect("both told");
        let mut expected = slice(500);
        expected.merge(&slice(9_000));
        assert_eq!(sum, expected);
        assert_eq!((sum.completed, sum.failed, sum.sojourn.n()), (60, 4, 60));
        assert!(seconds.add(2, &slice(9_000)).is_some());
    }
}
