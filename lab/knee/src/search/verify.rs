//! Verify, StepDown and StepUp: long repeats on both sides of the candidate, in an order that the seed decides.
//!
//! A rate at which one long trial failed is barred from being the knee, so a reported knee never has a failed repeat.
//! That also ends the swing between a rate that mostly passes and the one below it.

use weir_base::rng::Rng;

use super::climb::round;
use super::{ResumeAt, Search, Stage};
use crate::command::Purpose;
use crate::knee::SearchOutcome;
use crate::trial::Trial;

/// One attempt at verifying a candidate.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) knee: f64,
    /// The step above; `None` at the ceiling.
    pub(super) above: Option<f64>,
    /// The step above cannot be offered any more: what was seen of it has to do.
    is_above_lost: bool,
    knee_clean: u32,
    above_clean: u32,
    above_failed: u32,
    /// Second trial of the present pair.
    second: Option<Purpose>,
}

impl Round {
    pub(super) fn new(knee: f64, above: Option<f64>) -> Self {
        Self { knee, above, is_above_lost: false, knee_clean: 0, above_clean: 0, above_failed: 0, second: None }
    }

    /// See `is_above_lost`.
    pub(super) fn lose_above(&mut self) {
        (self.is_above_lost, self.second) = (true, None);
    }

    /// Rate, repeat and purpose of the next trial. Trials come in pairs, so that drift meets both sides alike.
    pub(super) fn next_run(&mut self, rng: &mut Rng) -> (f64, u32, Purpose) {
        let purpose = match (self.above, self.second.take()) {
            (None, _) => Purpose::VerifyKnee,
            _ if self.is_above_lost => Purpose::VerifyKnee,
            (Some(_), Some(second)) => second,
            (Some(_), None) => {
                let mut pair = [Purpose::VerifyKnee, Purpose::VerifyAbove];
                if rng.below(2) == 1 {
                    pair.reverse();
                }
                self.second = Some(pair[1]);
                pair[0]
            }
        };
        match (purpose, self.above) {
            (Purpose::VerifyAbove, Some(above)) => (above, self.above_clean + self.above_failed + 1, purpose),
            _ => (self.knee, self.knee_clean + 1, Purpose::VerifyKnee),
        }
    }
}

impl Search {
    pub(super) fn on_knee(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        let Stage::Verify(round) = &mut self.stage else { return };
        if is_clean {
            round.knee_clean += 1;
            self.weigh();
            return;
        }
        let contradicting = round.above.filter(|_| round.above_clean > 0 && round.above_failed == 0);
        self.points.record(rate, false, trial);
        self.points.refuse(rate);
        match contradicting {
            Some(above) => {
                self.points.accept(above);
                self.run_again(rate, above, true, ResumeAt::StepDown);
            }
            None => self.step_down(rate),
        }
    }

    pub(super) fn on_above(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        if !is_clean {
            self.points.keep_failed(rate, trial);
        }
        let Stage::Verify(round) = &mut self.stage else { return };
        if is_clean {
            round.above_clean += 1;
        } else {
            round.above_failed += 1;
        }
        self.weigh();
    }

    /// Whether the repeats so far decide.
    pub(super) fn weigh(&mut self) {
        let Stage::Verify(round) = &self.stage else { return };
        // A pair is finished before it is weighed.
        if round.second.is_some() || round.knee_clean < self.rules.verify_repeats {
            return;
        }
        let Some(above) = round.above.filter(|_| !round.is_above_lost || round.above_failed > 0) else {
            self.finish_at_ceiling();
            return;
        };
        if round.is_above_lost {
            // It was offered once, and failed: that is the upper side.
            self.enter_overload(round.knee, above);
            return;
        }
        let repeats = round.above_clean + round.above_failed;
        let is_majority_failed = 2 * round.above_failed > repeats;
        // One failed repeat already bars the step above; more are run only to see on which side the majority is.
        let is_barred = self.points.is_refused(above) || repeats >= self.rules.verify_repeats_max;
        let knee = round.knee;
        if is_majority_failed || (is_barred && (round.above_failed > 0 || self.points.is_refused(above))) {
            self.enter_overload(knee, above);
        } else if round.above_failed == 0 {
            self.step_up(above);
        }
    }

    /// The step above passed: it becomes the knee. Twice in a row means that the bracket was wrong, so it is sought again
    /// with short trials.
    fn step_up(&mut self, above: f64) {
        self.enter(Stage::StepUp);
        self.points.accept(above);
        self.step_ups += 1;
        self.step_ups_in_row += 1;
        if self.step_ups > self.rules.step_ups_max {
            let stop = self.stop_at(above);
            self.finish(SearchOutcome::Unstable, stop);
            return;
        }
        if self.contradiction(false, ResumeAt::Settle) {
            return;
        }
        let ceiling = self.ceiling();
        if self.step_ups_in_row > 1 && above < ceiling {
            self.step_ups_in_row = 0;
            self.enter(Stage::Ramp { rate: round(above * self.rules.ramp_factor_backlog).min(ceiling) });
            return;
        }
        let next = (above < ceiling).then(|| round(above * (1.0 + self.rules.precision)).min(ceiling));
        self.enter(Stage::Verify(Round::new(above, next)));
    }

    /// The candidate failed: the next lower rate is probed with a short trial before long ones are spent on it.
    pub(super) fn step_down(&mut self, failed: f64) {
        self.step_ups_in_row = 0;
        if self.step_downs >= self.rules.step_downs_max {
            let stop = self.stop_at(failed);
            self.finish(SearchOutcome::Unstable, stop);
            return;
        }
        let share = if self.step_downs == 0 { self.rules.step_down_first } else { 1.0 };
        self.step_downs += 1;
        self.enter(Stage::StepDown { rate: round(failed / (1.0 + share * self.rules.precision)), above: failed });
    }

    pub(super) fn on_step_down(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        let Stage::StepDown { above, .. } = self.stage else { return };
        self.points.record(rate, is_clean, trial);
        if is_clean && !self.points.is_refused(rate) {
            self.enter(Stage::Verify(Round::new(rate, Some(above))));
        } else {
            self.step_down(rate);
        }
    }
}
