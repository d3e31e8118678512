//! The course of a trial: second by second, and thread by thread.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_load::recorder::Tail;
use weir_load::{Second, Stage};

use crate::watch::{Party, WindowUsage};

/// Threads below this share of a CPU carry no load: admin, log.
const BUSY_MIN: f64 = 0.01;

/// The course of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Seconds of warm-up, window and drain, as far as they were reported.
    pub seconds: Vec<CourseSecond>,
    /// By party: share of the window that each of its threads was on a CPU, the busiest first. The share is one of the CPU time
    /// that the party may use: with a quota, 1.0 is all of it.
    pub busy: BTreeMap<String, Vec<f64>>,
}

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CourseSecond {
    /// Requests completed in it.
    pub completed: u64,
    /// Shed, failed and skipped in it.
    pub failed: u64,
    /// Sojourn of what completed, microseconds to two digits; `None`: too few for a p99.
    pub p99_us: Option<u64>,
    /// It lies in the measured window.
    pub is_measured: bool,
}

impl Course {
    pub(crate) fn add(&mut self, second: &Second) {
        self.seconds.push(CourseSecond {
            completed: second.slice.completed,
            failed: second.slice.failed,
            p99_us: second.sojourn(Tail::P99).micros(),
            is_measured: second.stage == Stage::Window,
        });
    }

    /// `share` is what the gateway may use of its CPUs.
    pub(crate) fn watched(&mut self, watched: &WindowUsage, share: Option<f64>) {
        for (party, used) in &watched.parties {
            let whole = share.filter(|_| *party == Party::Gateway).unwrap_or(1.0);
            let mut busy: Vec<f64> =
                used.threads.iter().map(|thread| thread / whole).filter(|busy| *busy >= BUSY_MIN).collect();
            busy.sort_by(|a, b| b.total_cmp(a));
            self.busy.insert(party.name().to_owned(), busy);
        }
    }

    /// Completed in each second, whatever part of the trial it lies in.
    pub(crate) fn completed(&self) -> Vec<f64> {
        self.seconds.iter().map(|second| second.completed as f64).collect()
    }

    /// Busy share of the party's busiest thread.
    pub(crate) fn busiest(&self, party: Party) -> Option<f64> {
        self.busy.get(party.name())?.first().copied()
    }

    /// From the first to the last of the window: what drains after it is another load.
    pub(crate) fn until_window_ends(&self) -> &[CourseSecond] {
        let end = self.seconds.iter().rposition(|second| second.is_measured).map_or(0, |last| last + 1);
        &self.seconds[..end]
    }
}
