//! From the trials seen to the result.

use super::{Search, Stage};
use crate::command::Run;
use crate::estimate::Estimate;
use crate::judge::judge;
use crate::knee::{Knee, Loaded, SCHEMA, SearchOutcome, Side, TrialSummary};
use crate::stop::{Stop, stop_reason};

impl Search {
    pub(super) fn result(&self, outcome: SearchOutcome, stop: Option<Stop>) -> Knee {
        let sides = match (&self.stage, outcome) {
            (Stage::Overload(ladder), SearchOutcome::Verified) => Some((ladder.sides().0, Some(ladder.sides().1))),
            (Stage::Verify(round), SearchOutcome::AtCeiling) => Some((round.knee, None)),
            _ => None,
        };
        let clean = sides.map(|(knee, _)| self.side(knee));
        let not_clean = sides.and_then(|(_, above)| above).map(|above| self.side(above));
        let first_overload = sides.and_then(|(knee, _)| self.first_overload(knee));
        let peak = sides.and_then(|_| self.peak(first_overload.map_or(0.0, |step| step.rate)));
        Knee {
            schema: SCHEMA.to_owned(),
            outcome,
            clean,
            not_clean,
            first_overload,
            peak,
            overload_ended: None,
            stop,
            base: self.base,
            ceilings: self.ceilings,
            ceiling: self.allowed(),
            is_quota_shaped: self.is_quota_shaped,
            non_monotone: self.non_monotone.clone(),
            seen: self.seen.clone(),
            trail: self.trail.clone(),
            rules: self.rules.clone(),
            seed: self.seed,
        }
    }

    /// Why the rate failed, from its latest failed trial.
    pub(super) fn stop_at(&self, rate: f64) -> Option<Stop> {
        let trial = self.points.failed_trial(rate)?;
        Some(stop_reason(trial, &judge(trial, &self.rules), &self.ceilings, &self.rules))
    }

    /// Lowest load above the knee at which any valid trial was overload.
    pub(super) fn first_overload(&self, knee: f64) -> Option<Loaded> {
        let overloads = self.through_gateway().filter(|seen| seen.is_overload);
        let rate = overloads.map(|seen| seen.run.rate.offered()).filter(|rate| *rate > knee).reduce(f64::min)?;
        Some(Loaded { rate, completed: self.completed_at(rate)? })
    }

    /// Completed per second over the valid trials at a rate.
    pub(super) fn completed_at(&self, rate: f64) -> Option<Estimate> {
        let same = self.through_gateway().filter(|seen| seen.run.rate.offered() == rate);
        Estimate::of(&same.map(|seen| seen.completed_rate).collect::<Vec<_>>())
    }

    /// The step with the most completed at `from` or above.
    fn peak(&self, from: f64) -> Option<Loaded> {
        let mut rates: Vec<f64> = self.through_gateway().map(|seen| seen.run.rate.offered()).collect();
        rates.retain(|rate| *rate >= from);
        rates.sort_by(f64::total_cmp);
        rates.dedup();
        let steps = rates.into_iter().filter_map(|rate| Some(Loaded { rate, completed: self.completed_at(rate)? }));
        steps.max_by(|a, b| a.completed.mean.total_cmp(&b.completed.mean))
    }

    fn side(&self, rate: f64) -> Side {
        let is_here = |run: &Run| run.length.is_long && run.rate.offered() == rate;
        let long: Vec<&TrialSummary> = self.through_gateway().filter(|seen| is_here(&seen.run)).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Side {
            rate,
            repeats: count(long.len()),
            clean: count(long.iter().filter(|seen| seen.verdict.is_clean()).count()),
            completed: Estimate::of(&long.iter().map(|seen| seen.completed_rate).collect::<Vec<_>>()),
            sojourn_p99_us_max: long.iter().map(|seen| seen.sojourn_p99_us).max().unwrap_or(0),
        }
    }

    /// Valid trials at an offered load; calibration offered none.
    fn through_gateway(&self) -> impl Iterator<Item = &TrialSummary> {
        self.seen.iter().filter(|seen| seen.verdict.is_valid() && seen.run.rate.offered() > 0.0)
    }
}
