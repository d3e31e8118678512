//! Overload: a ladder above the knee, for first overload and peak completed. The curve is not monotone up here, so nothing
//! is bisected.

use super::{ResumeAt, Search, Stage};
use crate::knee::SearchOutcome;
use crate::search::climb::round;
use crate::stop::stop_at_ceiling;
use crate::trial::Trial;

/// Where the ladder stands.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    knee: f64,
    above: f64,
    /// Rungs are multiples of this rate: the first overload, or the step above the knee while there is none.
    base: f64,
    rung: usize,
    /// Rate of the rung.
    pub(super) rate: f64,
    /// Completed per second of this rung's trials.
    completed: Vec<f64>,
    /// Mean completed of the step before.
    before: f64,
    /// Falls in a row.
    falls: u32,
    /// A clean rung above the failed step was met, and both were run again.
    has_contradicted: bool,
}

impl Ladder {
    pub(super) fn repeat(&self) -> u32 {
        u32::try_from(self.completed.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    pub(super) fn sides(&self) -> (f64, f64) {
        (self.knee, self.above)
    }
}

impl Search {
    pub(super) fn enter_overload(&mut self, knee: f64, above: f64) {
        let base = self.first_overload(knee).map_or(above, |step| step.rate);
        let before = self.completed_at(base).map_or(0.0, |estimate| estimate.mean);
        self.enter(Stage::Overload(Ladder {
            knee,
            above,
            base,
            rung: 0,
            rate: 0.0,
            completed: Vec::new(),
            before,
            falls: 0,
            has_contradicted: false,
        }));
        self.climb();
    }

    /// Sets the rate of the present rung, or ends the ladder: at its last rung, or where the lab could not tell.
    fn climb(&mut self) {
        let (ceiling, allowed) = (self.ceiling(), self.allowed());
        let Stage::Overload(ladder) = &mut self.stage else { return };
        let rate = self.rules.overload_ladder.get(ladder.rung).map(|factor| round(ladder.base * factor));
        match rate.filter(|rate| *rate <= allowed) {
            Some(rate) if rate <= ceiling => ladder.rate = rate,
            // There are further rungs, and the lab cannot climb them.
            Some(_) => self.end_ladder(self.reach_outcome()),
            None => self.end_ladder(None),
        }
    }

    pub(super) fn on_rung(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        let (repeats, fall_share) = (self.rules.overload_repeats, self.rules.fall_share);
        let Stage::Overload(ladder) = &mut self.stage else { return };
        ladder.completed.push(trial.completed_rate());
        let above = ladder.above;
        let is_rung_done = ladder.repeat() > repeats;
        if is_rung_done {
            let mean = ladder.completed.iter().sum::<f64>() / f64::from(repeats);
            ladder.falls = if mean < ladder.before * (1.0 - fall_share) { ladder.falls + 1 } else { 0 };
            ladder.before = mean;
            ladder.completed.clear();
            ladder.rung += 1;
        }
        let is_falling = ladder.falls >= 2;
        // Once: the step above the knee failed in long trials, a second look is for the record.
        let is_contradiction = is_clean && !ladder.has_contradicted;
        ladder.has_contradicted |= is_clean;
        if is_falling {
            self.end_ladder(None);
        } else if is_rung_done {
            self.climb();
        }
        if is_contradiction && matches!(self.stage, Stage::Overload(_)) {
            self.run_again(above, rate, false, ResumeAt::Ladder);
        }
    }

    /// The knee stands whatever the ladder met; `ended` says why it was not climbed to its end.
    pub(super) fn end_ladder(&mut self, ended: Option<SearchOutcome>) {
        let Stage::Overload(ladder) = &self.stage else { return };
        let stop = self.stop_at(ladder.above);
        self.finish(SearchOutcome::Verified, stop);
        if let Stage::Done(knee) = &mut self.stage {
            knee.overload_ended = ended;
        }
    }

    /// Verified at the highest load that could be offered: there is nothing above to climb.
    pub(super) fn finish_at_ceiling(&mut self) {
        let stop = match (&self.reach, self.points.worst()) {
            // A short trial failed above the knee by itself; the lab was only not fit for long ones.
            (Some(_), Some(worst)) if self.stop_at(worst).is_some() => self.stop_at(worst),
            (Some(reach), _) => Some(reach.stop.clone()),
            (None, _) => Some(stop_at_ceiling(&self.ceilings, self.ceiling(), self.options.rate_max, &self.rules)),
        };
        let ended = self.reach_outcome();
        self.finish(SearchOutcome::AtCeiling, stop);
        if let Stage::Done(knee) = &mut self.stage {
            knee.overload_ended = ended;
        }
    }
}
