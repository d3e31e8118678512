//! The result of a search: an interval, what verified it, where overload begins, and what stopped it.

use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::command::Run;
use crate::estimate::Estimate;
use crate::judge::{Check, Verdict};
use crate::points::NonMonotone;
use crate::rules::Rules;
use crate::search::State;
use crate::stop::{Ceilings, Stop};
use crate::trial::Trial;

/// Name and version of the record; a changed meaning gets a new number.
pub const SCHEMA: &str = "weir.lab.knee/1";

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchOutcome {
    /// Clean repeats at the knee, failed ones above it.
    Verified,
    /// Clean repeats at the highest load that could be offered; the true knee is not below it.
    AtCeiling,
    /// The lowest rate tried was not clean.
    Below {
        /// That rate, requests per second.
        rate: f64,
    },
    /// Candidates kept failing, or the step above kept passing.
    Unstable,
    /// A trial was invalid twice.
    Invalid {
        /// Why, the second time.
        check: Check,
    },
    /// Warm-up did not settle, twice.
    Unsteady,
    /// Too few completions for a p99, twice.
    TooFewSamples {
        /// How many there were.
        n: u64,
    },
    /// A reply of another connection came back: the gateway is broken, capacity is beside the point.
    MixUp,
    /// [`Rules::trials_max`] was reached.
    TrialLimit,
}

/// One side of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Offered load, requests per second.
    pub rate: f64,
    /// Valid long trials at this rate.
    pub repeats: u32,
    /// Clean trials among them.
    pub clean: u32,
    /// Completed per second over these trials.
    pub completed: Option<Estimate>,
    /// Worst p99 sojourn of these trials, microseconds.
    pub sojourn_p99_us_max: u64,
}

/// A step at or above the first overload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Offered load, requests per second.
    pub rate: f64,
    /// Completed per second over its valid trials.
    pub completed: Estimate,
}

/// The low-load row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// Offered load, requests per second.
    pub rate: f64,
    /// Median sojourn, microseconds.
    pub sojourn_p50_us: u64,
    /// p99 sojourn, microseconds.
    pub sojourn_p99_us: u64,
    /// The same without the lag of the generator: what overload is held against.
    #[serde(default)]
    pub own_p99_us: u64,
    /// CPU of the gateway per request, microseconds.
    pub gateway_cpu_us_per_req: Option<f64>,
}

impl Base {
    /// From the low-load trial.
    #[must_use]
    pub fn of(rate: f64, trial: &Trial) -> Self {
        Self {
            rate,
            sojourn_p50_us: trial.latency.sojourn_p50_us,
            sojourn_p99_us: trial.latency.sojourn_p99_us,
            own_p99_us: trial.latency.own_p99_us(),
            gateway_cpu_us_per_req: trial.parties.gateway_cpu_us_per_req.filter(|cost| cost.is_finite()),
        }
    }
}

/// One trial of the search, in the order it was run. Its full record is the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialSummary {
    /// The request.
    pub run: Run,
    /// Verdict on the trial.
    pub verdict: Verdict,
    /// Valid and overloaded.
    pub is_overload: bool,
    /// Completed per second.
    pub completed_rate: f64,
    /// Completed in all: too few make no percentile.
    #[serde(default)]
    pub completed: u64,
    /// p99 sojourn, microseconds.
    pub sojourn_p99_us: u64,
    /// Lag of the generator behind its schedule, p99, microseconds: a part of the sojourn that is not the gateway's.
    #[serde(default)]
    pub lag_p99_us: u64,
    /// CPU of the gateway per completed request, microseconds.
    #[serde(default)]
    pub gateway_cpu_us_per_req: Option<f64>,
    /// Gb/s of the generator, both directions.
    #[serde(default)]
    pub wire_gigabits: f64,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transition {
    /// Trials run so far.
    pub trials: u32,
    /// State left.
    pub from: State,
    /// State entered.
    pub to: State,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// [`SCHEMA`].
    pub schema: String,
    /// How the search ended.
    pub outcome: SearchOutcome,
    /// Last clean rate, verified; the number to size from. Only for `Verified` and `AtCeiling`.
    pub clean: Option<Side>,
    /// First rate that is not clean; only for `Verified`.
    pub not_clean: Option<Side>,
    /// Lowest measured load above the knee that is overload.
    pub first_overload: Option<Loaded>,
    /// Step with the most completed at or above first overload; without an overload, of all valid steps.
    pub peak: Option<Loaded>,
    /// Why the ladder above the knee ended early, if the lab was not fit for it.
    pub overload_ended: Option<SearchOutcome>,
    /// The limit that stopped the gateway.
    pub stop: Option<Stop>,
    /// Low-load row.
    pub base: Option<Base>,
    /// Highest rates that the generator and the origin can reach.
    pub ceilings: Ceilings,
    /// Highest load that the search was allowed to offer; 0 before calibration.
    pub ceiling: f64,
    /// The budget is a quota: latency has steps of a period's length.
    pub is_quota_shaped: bool,
    /// Clean rates above failed ones, each run again.
    pub non_monotone: Vec<NonMonotone>,
    /// Every trial.
    pub seen: Vec<TrialSummary>,
    /// Every change of state.
    pub trail: Vec<Transition>,
    /// The thresholds used.
    pub rules: Rules,
    /// Decides the order of verifying trials.
    pub seed: u64,
}

impl Knee {
    /// The cell "clean knee".
    #[must_use]
    pub fn clean_cell(&self, unit: &str) -> Cell {
        match (self.outcome, &self.clean) {
            (SearchOutcome::Verified | SearchOutcome::AtCeiling, Some(side)) => number(side.rate, unit),
            _ => failure(&self.outcome),
        }
    }

    /// The cell "first overload". Without one: `not reached` if the ladder could be climbed, else why it could not.
    #[must_use]
    pub fn overload_cell(&self, unit: &str) -> Cell {
        match (&self.clean, &self.first_overload, &self.overload_ended) {
            (None, _, _) => failure(&self.outcome),
            (Some(_), Some(step), _) => number(step.rate, unit),
            (Some(_), None, Some(ended)) => failure(ended),
            (Some(_), None, None) => Cell::NotReached,
        }
    }

    /// The cell "peak completed".
    #[must_use]
    pub fn peak_cell(&self, unit: &str) -> Cell {
        match (&self.clean, &self.peak) {
            (Some(_), Some(step)) => number(step.completed.mean, unit),
            _ => failure(&self.outcome),
        }
    }

    /// The column "planning read".
    #[must_use]
    pub fn planning_read(&self) -> String {
        self.stop.as_ref().map_or_else(|| "no limit was measured".to_owned(), Stop::planning_read)
    }

    /// The rate to size from; `None` if no knee was verified.
    #[must_use]
    pub fn capacity(&self) -> Option<f64> {
        let is_verified = matches!(self.outcome, SearchOutcome::Verified | SearchOutcome::AtCeiling);
        self.clean.filter(|_| is_verified).map(|side| side.rate)
    }
}

/// Why there is no number.
fn failure(outcome: &SearchOutcome) -> Cell {
    match outcome {
        SearchOutcome::Below { rate } => Cell::Below(*rate),
        SearchOutcome::TooFewSamples { n } => Cell::NotAvailable { n: *n },
        SearchOutcome::Invalid { check } => Cell::Invalid(check.to_string()),
        SearchOutcome::Unsteady => Cell::Invalid("unsteady".into()),
        SearchOutcome::Unstable => Cell::Invalid("unstable".into()),
        SearchOutcome::MixUp => Cell::Invalid("mix-up".into()),
        SearchOutcome::TrialLimit => Cell::Invalid("trial-limit".into()),
        // A knee always carries its side; a record edited by hand may not.
        SearchOutcome::Verified | SearchOutcome::AtCeiling => Cell::Invalid("no clean side".into()),
    }
}

fn number(value: f64, unit: &str) -> Cell {
    Cell::Number { value, unit: unit.to_owned() }
}
