//! The requests of the search to its driver, and the observations that the driver returns.

use serde::{Deserialize, Serialize};

use crate::knee::Knee;
use crate::rules::Rules;
use crate::trial::Trial;

/// The next step for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Run this trial and hand its observation to `next`.
    Run(Run),
    /// The search is over.
    Done(Box<Knee>),
}

/// One trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Load to offer.
    pub rate: Rate,
    /// Warm-up and window.
    pub length: Length,
    /// Which trial of its step this is, from 1.
    pub repeat: u32,
    /// Purpose of the trial: the driver needs it for the two calibrations, the report for the rest.
    pub purpose: Purpose,
    /// Generator shards to use.
    pub shards: u32,
    /// The trial before this one was invalid or unsteady, and this one repeats it.
    pub is_retry: bool,
}

/// Load of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// As fast as generator and target can, closed loop: measures a ceiling.
    Saturate,
    /// Open loop, requests per second.
    Offered(f64),
}

impl Rate {
    /// Requests per second; 0 for a saturating run.
    #[must_use]
    pub fn offered(self) -> f64 {
        match self {
            Self::Saturate => 0.0,
            Self::Offered(rate) => rate,
        }
    }
}

/// How long a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Length {
    /// A verifying trial.
    pub is_long: bool,
    /// Warm-up, seconds.
    pub warmup_s: f64,
    /// Measured window, seconds.
    pub window_s: f64,
}

impl Length {
    /// The length for a rate: stretched where a low rate would give too few samples for a p99.
    #[must_use]
    pub fn of(is_long: bool, rate: Rate, rules: &Rules) -> Self {
        let (warmup_s, window_s) = if is_long {
            (rules.warmup_long_s, rules.window_long_s)
        } else {
            (rules.warmup_short_s, rules.window_short_s)
        };
        let offered = rate.offered();
        let needed_s = if offered > 0.0 { SAMPLES_MARGIN * rules.p99_samples_min as f64 / offered } else { 0.0 };
        Self { is_long, warmup_s, window_s: window_s.max(needed_s.ceil()).min(rules.window_max_s) }
    }
}

/// Poisson arrivals scatter by 3 % around 1,000; 20 % more is never too few.
const SAMPLES_MARGIN: f64 = 1.2;

/// The purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Generator towards a sink that never responds: the generator's own ceiling.
    NullSink,
    /// Generator towards the origin, no gateway: the direct ceiling.
    Direct,
    /// 5 % of the ceiling through the gateway: base latency and CPU.
    LowLoad,
    /// Upwards until something is not clean.
    Ramp,
    /// Middle of the bracket.
    Bisect,
    /// A point that another one contradicts, run again.
    Recheck,
    /// The candidate for the knee.
    VerifyKnee,
    /// The step above it.
    VerifyAbove,
    /// A lower rate, after the candidate failed.
    StepDown,
    /// Above the first overload, for the peak.
    Overload,
}

/// The measurements of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// The command that it carries out.
    pub run: Run,
    /// The facts.
    pub trial: Trial,
}
