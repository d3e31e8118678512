//! How far the lab reaches: above some rate the generator is late or the origin full, whatever the gateway does.
//!
//! Such a rate ends nothing: below it the search goes on, and ends at the highest load that could be offered, with the lab
//! as the stop reason.

use super::{ResumeAt, Search, Stage, outcome_of};
use crate::command::Run;
use crate::judge::{Check, Verdict};
use crate::knee::SearchOutcome;
use crate::stop::{Stop, stop_reason};
use crate::trial::Trial;

/// Lowest rate that the lab could not offer, twice.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    rate: f64,
    /// As a search that ended there would have ended: what lies above was not looked at.
    pub(super) outcome: SearchOutcome,
    /// Why.
    pub(super) stop: Stop,
}

/// Faults of the lab that more load makes. Others say nothing about any rate.
const LOAD_MAKES: [Check; 3] = [Check::GeneratorCpu, Check::GeneratorLag, Check::OriginCpu];

impl Search {
    pub(super) fn reach_rate(&self) -> Option<f64> {
        self.reach.as_ref().map(|reach| reach.rate)
    }

    pub(super) fn reach_outcome(&self) -> Option<SearchOutcome> {
        self.reach.as_ref().map(|reach| reach.outcome)
    }

    /// A trial failed twice for want of a lab that carries its rate, and a lower one was clean.
    pub(super) fn is_out_of_reach(&self, run: &Run, verdict: &Verdict) -> bool {
        let is_made_by_load = matches!(verdict, Verdict::Invalid(found) if LOAD_MAKES.contains(&found.reason));
        let is_climbing = !matches!(self.stage, Stage::Calibrate(_) | Stage::Overload(_));
        is_made_by_load && is_climbing && self.points.best(Some(run.rate.offered())).is_some()
    }

    /// Goes on below a rate that is out of reach.
    pub(super) fn bound_by(&mut self, rate: f64, trial: &Trial, verdict: &Verdict) {
        if self.reach_rate().is_none_or(|reach| rate <= reach) {
            let stop = stop_reason(trial, verdict, &self.ceilings, &self.rules);
            self.reach = Some(Reach { rate, outcome: outcome_of(trial, verdict), stop });
        }
        if let Some(again) = self.again.take()
            && matches!(again.then, ResumeAt::StepDown)
        {
            return self.step_down(again.failed);
        }
        match &mut self.stage {
            Stage::Verify(round) if round.above == Some(rate) => {
                // The knee's own repeats stand.
                round.lose_above();
                self.weigh();
            }
            _ => self.settle(),
        }
    }
}
