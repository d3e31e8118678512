//! The states and what each needs to know; and what interrupts them.

use serde::{Deserialize, Serialize};

use super::overload::Ladder;
use super::verify::Round;
use crate::command::Purpose;
use crate::knee::Knee;

/// A state of the table in `search.rs`, or the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Ceilings and low load.
    Calibrate,
    /// Upwards.
    Ramp,
    /// Narrowing.
    Bisect,
    /// Long repeats.
    Verify,
    /// The candidate failed.
    StepDown,
    /// The step above passed.
    StepUp,
    /// Above the knee.
    Overload,
    /// Over.
    Done,
}

/// A state with what it needs to know.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// The calibration under way.
    Calibrate(Purpose),
    Ramp {
        rate: f64,
    },
    Bisect {
        rate: f64,
    },
    Verify(Round),
    StepDown {
        rate: f64,
        above: f64,
    },
    /// Left at once, unless a contradiction is to be run again first.
    StepUp,
    Overload(Ladder),
    Done(Box<Knee>),
}

impl Stage {
    pub(super) fn state(&self) -> State {
        match self {
            Self::Calibrate(_) => State::Calibrate,
            Self::Ramp { .. } => State::Ramp,
            Self::Bisect { .. } => State::Bisect,
            Self::Verify(_) => State::Verify,
            Self::StepDown { .. } => State::StepDown,
            Self::StepUp => State::StepUp,
            Self::Overload(_) => State::Overload,
            Self::Done(_) => State::Done,
        }
    }
}

/// Two contradicting rates that are run again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recheck {
    pub(super) failed: f64,
    pub(super) clean: f64,
    /// Outcome of the failed rate's second run.
    pub(super) first: Option<bool>,
    pub(super) is_long: bool,
    pub(super) then: ResumeAt,
}

/// Where a contradiction interrupted the search.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResumeAt {
    Settle,
    StepDown,
    Ladder,
}
