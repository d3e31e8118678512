//! What a trial looked like while it went on: second by second, and core by core.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_load::recorder::Tail;
use weir_load::{Second, Stage};

use crate::watch::{Party, Watched};

/// Threads below this share of a core carry no load: admin, log.
const BUSY_MIN: f64 = 0.01;

/// The course of one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// From the first of the warm-up to the last of the drain.
    pub seconds: Vec<Tick>,
    /// By party: share of the window that each of its threads was on a CPU, 0 to 1, the busiest first.
    pub busy: BTreeMap<String, Vec<f64>>,
}

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Requests completed in it.
    pub completed: u64,
    /// Shed, failed and skipped in it.
    pub failed: u64,
    /// Sojourn of what completed, microseconds; `None`: too few for a p99.
    pub p99_us: Option<u64>,
    /// It lies in the measured window.
    pub is_measured: bool,
}

impl Course {
    pub(crate) fn add(&mut self, second: &Second) {
        self.seconds.push(Tick {
            completed: second.slice.completed,
            failed: second.slice.failed,
            p99_us: second.sojourn(Tail::P99).micros(),
            is_measured: second.stage == Stage::Window,
        });
    }

    pub(crate) fn watched(&mut self, watched: &Watched) {
        for (party, used) in &watched.parties {
            let mut shares: Vec<f64> = used.threads.iter().copied().filter(|share| *share >= BUSY_MIN).collect();
            shares.sort_by(|a, b| b.total_cmp(a));
            self.busy.insert(party.name().to_owned(), shares);
        }
    }

    /// Completed per second of the measured window: what the rate of a trial is made of.
    pub(crate) fn completed(&self) -> Vec<f64> {
        self.seconds.iter().map(|tick| tick.completed as f64).collect()
    }

    /// Of the party's busiest thread.
    pub(crate) fn busiest(&self, party: Party) -> Option<f64> {
        self.busy.get(party.name())?.first().copied()
    }
}
