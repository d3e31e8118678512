//! Calibrate, Ramp and Bisect: from nothing to a bracket of 5 %. And what to do with points that contradict each other.

use super::{RATE_MAX, RATE_MIN, Recheck, ResumeAt, Search, Stage};
use crate::command::{Purpose, Run};
use crate::judge::{Check, judge};
use crate::knee::{Base, SearchOutcome};
use crate::points::NonMonotone;
use crate::search::verify::Round;
use crate::stop::stop_reason;
use crate::trial::{Backend, Trial};

impl Search {
    /// Ceiling that the validity check holds the offered load against; `None` before calibration. A real back end is part
    /// of what is measured, so there only the generator's own ceiling counts.
    pub(super) fn validity_ceiling(&self) -> Option<f64> {
        let ceiling = match self.options.backend {
            Backend::Synthetic => self.ceilings.direct.min(self.ceilings.null_sink),
            Backend::Real => self.ceilings.null_sink,
        };
        (ceiling > 0.0).then_some(ceiling)
    }

    /// Highest load that the search may offer.
    pub(super) fn allowed(&self) -> f64 {
        let valid = self.rules.ceiling_share_max * self.validity_ceiling().unwrap_or(0.0);
        floor(valid.min(self.options.rate_max.unwrap_or(f64::INFINITY)))
    }

    /// The same, as far as the lab reaches.
    pub(super) fn ceiling(&self) -> f64 {
        self.allowed().min(self.reach_rate().unwrap_or(f64::INFINITY))
    }

    /// 5 % of what the lab can offer without the gateway, or of what the scenario allows.
    pub(super) fn low_load(&self) -> f64 {
        let ceiling = self.ceilings.direct.min(self.ceilings.null_sink).min(self.options.rate_max.unwrap_or(RATE_MAX));
        round(self.rules.low_load_share * ceiling).min(self.ceiling())
    }

    pub(super) fn on_calibrated(&mut self, run: &Run, trial: &Trial, is_clean: bool) {
        match run.purpose {
            Purpose::NullSink => {
                self.ceilings.null_sink = trial.completed_rate();
                self.stage = Stage::Calibrate(Purpose::Direct);
            }
            Purpose::Direct => {
                self.ceilings.direct = trial.completed_rate();
                self.stage = Stage::Calibrate(Purpose::LowLoad);
                // A ceiling out of bounds leaves no rate that arithmetic could work with.
                if !(RATE_MIN..=RATE_MAX).contains(&self.low_load()) {
                    self.finish(SearchOutcome::Invalid { check: Check::Ceiling }, None);
                }
            }
            _ => self.on_low_load(run.rate.offered(), trial, is_clean),
        }
    }

    fn on_low_load(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        self.points.record(rate, is_clean, trial);
        self.base = Some(Base::of(rate, trial));
        if is_clean {
            self.ramp_from(rate, self.rules.ramp_factor);
        } else {
            self.below(rate);
        }
    }

    fn ramp_from(&mut self, rate: f64, factor: f64) {
        if rate >= self.ceiling() {
            self.enter(Stage::Verify(Round::new(rate, None)));
        } else {
            let rate = round(rate * factor).min(self.ceiling());
            self.enter(Stage::Ramp { rate });
        }
    }

    pub(super) fn on_ramp(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        self.points.record(rate, is_clean, trial);
        if self.contradiction(false, ResumeAt::Settle) {
            return;
        }
        if is_clean && self.points.worst().is_none() {
            let factor = if self.has_backlog(trial) { self.rules.ramp_factor_backlog } else { self.rules.ramp_factor };
            self.ramp_from(rate, factor);
        } else {
            self.settle();
        }
    }

    /// A first sign that requests wait.
    fn has_backlog(&self, trial: &Trial) -> bool {
        let base = self.base.map_or(0, |base| base.own_p99_us);
        trial.latency.own_p99_us() as f64 > self.rules.backlog_p99_ratio * base as f64
    }

    pub(super) fn on_bisect(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        self.points.record(rate, is_clean, trial);
        if !self.contradiction(false, ResumeAt::Settle) {
            self.settle();
        }
    }

    /// The state that the points call for: neither a failed rate nor one out of reach asks for a ramp, a wide bracket for a
    /// bisection, a narrow one for verification.
    pub(super) fn settle(&mut self) {
        let (worst, reach) = (self.points.worst(), self.reach_rate());
        let Some(best) = self.points.best(reach) else { return self.below(worst.unwrap_or(0.0)) };
        match worst.into_iter().chain(reach).reduce(f64::min) {
            None => self.ramp_from(best, self.rules.ramp_factor_backlog),
            Some(bound) => {
                let middle = round(f64::midpoint(best, bound));
                let is_narrow = bound - best <= self.rules.precision * best * (1.0 + ROUNDING);
                if is_narrow || middle <= best || middle >= bound {
                    // A rate that cannot be offered is no step above.
                    self.enter(Stage::Verify(Round::new(best, worst.filter(|worst| *worst <= bound))));
                } else {
                    self.enter(Stage::Bisect { rate: middle });
                }
            }
        }
    }

    /// Interrupts the search if a clean rate lies above a failed one and they were not yet run again.
    pub(super) fn contradiction(&mut self, is_long: bool, then: ResumeAt) -> bool {
        let Some((failed, clean)) = self.points.inversion() else {
            return false;
        };
        self.run_again(failed, clean, is_long, then);
        true
    }

    pub(super) fn run_again(&mut self, failed: f64, clean: f64, is_long: bool, then: ResumeAt) {
        self.points.mark_rechecked(failed);
        self.points.mark_rechecked(clean);
        self.again = Some(Recheck { failed, clean, first: None, is_long, then });
    }

    pub(super) fn on_again(&mut self, rate: f64, trial: &Trial, is_clean: bool) {
        let Some(mut again) = self.again else { return };
        let is_first = again.first.is_none();
        if matches!(again.then, ResumeAt::Ladder) {
            // A verified knee is not unseated by short trials above it; the contradiction is on record.
            if !is_clean {
                self.points.keep_failed(rate, trial);
            }
        } else {
            self.points.record(rate, is_clean, trial);
        }
        if is_first {
            again.first = Some(is_clean);
            self.again = Some(again);
            return;
        }
        self.again = None;
        let is_failed_again = again.first == Some(false);
        let (failed, clean) = (again.failed, again.clean);
        self.non_monotone.push(NonMonotone { failed, clean, is_failed_again, is_clean_again: is_clean });
        match again.then {
            ResumeAt::Settle => self.settle(),
            ResumeAt::StepDown => self.step_down(failed),
            ResumeAt::Ladder => {}
        }
    }

    /// Nothing that was tried is clean.
    fn below(&mut self, rate: f64) {
        let rate = self.points.lowest().unwrap_or(rate);
        let stop = self.points.failed_trial(rate).map(|trial| {
            let verdict = judge(trial, &self.rules);
            stop_reason(trial, &verdict, &self.ceilings, &self.rules)
        });
        self.finish(SearchOutcome::Below { rate }, stop);
    }
}

/// Five significant digits: a rate that people can read and type, 0.005 % at the most from the one meant.
pub(super) fn round(rate: f64) -> f64 {
    five_digits(rate, f64::round)
}

/// Five significant digits, never above: for ceilings.
fn floor(rate: f64) -> f64 {
    five_digits(rate, f64::floor)
}

fn five_digits(rate: f64, how: fn(f64) -> f64) -> f64 {
    if rate <= 0.0 || !rate.is_finite() {
        return 0.0;
    }
    // Powers of ten are exact only upwards of one, so small rates are multiplied and large ones divided.
    let digits = rate.log10().floor() as i32;
    if digits >= 4 {
        let unit = 10f64.powi(digits - 4);
        how(rate / unit) * unit
    } else {
        let scale = 10f64.powi(4 - digits);
        how(rate * scale) / scale
    }
}

/// A bracket of exactly 5 % comes out of a multiplication.
const ROUNDING: f64 = 1e-9;
