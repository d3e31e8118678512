//! The known results of each rate, and the places where points contradict each other.

use serde::{Deserialize, Serialize};

use crate::trial::Trial;

/// A clean rate above a failed one, and what running both again said.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NonMonotone {
    /// The lower rate, which was not clean.
    pub failed: f64,
    /// The higher rate, which was clean.
    pub clean: f64,
    /// The lower rate failed again.
    pub is_failed_again: bool,
    /// The higher rate was clean again.
    pub is_clean_again: bool,
}

/// The latest word on one rate.
#[derive(Clone, Debug)]
struct Point {
    rate: f64,
    is_clean: bool,
    /// A long trial failed here while it was the candidate: no later trial makes it clean.
    is_refused: bool,
    /// Was run again because of a contradiction; each rate gets one.
    is_rechecked: bool,
    /// Facts of its latest failed trial.
    failed: Option<Trial>,
}

/// All rates measured through the gateway.
#[derive(Clone, Debug, Default)]
pub struct Points(Vec<Point>);

impl Points {
    /// Adds a valid trial.
    pub fn record(&mut self, rate: f64, is_clean: bool, trial: &Trial) {
        let point = self.at(rate);
        point.is_clean = is_clean && !point.is_refused;
        if !is_clean {
            point.failed = Some(trial.clone());
        }
    }

    /// Adds a failed trial that does not change what is thought of the rate (a repeat above the knee).
    pub fn keep_failed(&mut self, rate: f64, trial: &Trial) {
        self.at(rate).failed = Some(trial.clone());
    }

    /// Bars a rate from being the knee.
    pub fn refuse(&mut self, rate: f64) {
        let point = self.at(rate);
        point.is_clean = false;
        point.is_refused = true;
    }

    /// A long trial failed at this rate while it was the candidate.
    #[must_use]
    pub fn is_refused(&self, rate: f64) -> bool {
        self.0.iter().any(|point| point.rate == rate && point.is_refused)
    }

    /// Takes long clean repeats as the last word on a rate.
    pub fn accept(&mut self, rate: f64) {
        let point = self.at(rate);
        point.is_clean = !point.is_refused;
    }

    /// Lowest failed rate.
    #[must_use]
    pub fn worst(&self) -> Option<f64> {
        self.0.iter().filter(|point| !point.is_clean).map(|point| point.rate).reduce(f64::min)
    }

    /// Highest clean rate below every failed one, and below `reach` if there is one. A clean rate above a failed one is not
    /// trusted: load passes through every lower rate on its way up.
    #[must_use]
    pub fn best(&self, reach: Option<f64>) -> Option<f64> {
        let bound = self.worst().into_iter().chain(reach).fold(f64::INFINITY, f64::min);
        self.0.iter().filter(|point| point.is_clean && point.rate < bound).map(|point| point.rate).reduce(f64::max)
    }

    /// Lowest rate tried.
    #[must_use]
    pub fn lowest(&self) -> Option<f64> {
        self.0.iter().map(|point| point.rate).reduce(f64::min)
    }

    /// The contradiction of the lowest failed rate with a clean one above, `(failed, clean)`, unless both were run again.
    #[must_use]
    pub fn inversion(&self) -> Option<(f64, f64)> {
        let failed = self.worst()?;
        let above = self.0.iter().filter(|point| point.is_clean && point.rate > failed);
        let clean = above.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
        let is_done = clean.is_rechecked && self.0.iter().any(|point| point.rate == failed && point.is_rechecked);
        (!is_done).then_some((failed, clean.rate))
    }

    /// Remembers that a rate was run again.
    pub fn mark_rechecked(&mut self, rate: f64) {
        self.at(rate).is_rechecked = true;
    }

    /// Facts of the latest failed trial at a rate.
    #[must_use]
    pub fn failed_trial(&self, rate: f64) -> Option<&Trial> {
        self.0.iter().find(|point| point.rate == rate)?.failed.as_ref()
    }

    /// The point of a rate. Rates are compared exactly: the search repeats the very number it chose before.
    fn at(&mut self, rate: f64) -> &mut Point {
        let place = self.0.iter().position(|point| point.rate == rate).unwrap_or_else(|| {
            self.0.push(Point { rate, is_clean: false, is_refused: false, is_rechecked: false, failed: None });
            self.0.len() - 1
        });
        &mut self.0[place]
    }
}
