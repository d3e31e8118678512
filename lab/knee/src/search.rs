//! The search as a state machine. This file: what all states share (the trial under way, retries, the end).
//!
//! | state | file | asks for | leaves when |
//! |---|---|---|---|
//! | Calibrate | `climb.rs` | null sink, direct ceiling, low load | ceilings known; low load not clean: Done(`below`) |
//! | Ramp | `climb.rs` | rate x 2, x 1.5 after the first backlog | not clean (Bisect) or ceiling (Verify) |
//! | Bisect | `climb.rs` | middle of best clean and worst failed | the interval is 5 % wide (Verify) |
//! | Verify | `verify.rs` | knee and step above in turn, long | all clean below, majority failed above (Overload) |
//! | StepDown | `verify.rs` | the next lower rate, short | clean (Verify); 4 of them: Done(`unstable`) |
//! | StepUp | `verify.rs` | nothing: the step above becomes the knee | Verify; the second in a row: Ramp |
//! | Overload | `overload.rs` | x 1.1, 1.25, 1.5, 2 of first overload | completed fell twice, or the ladder ends |
//!
//! In every state an invalid or unsteady trial is run once more with more shards, and a clean rate above a failed one
//! makes both run again before anything else. A rate that the lab itself could not offer twice bounds the search from then
//! on (`reach.rs`).

mod climb;
mod end;
mod overload;
mod reach;
mod stage;
mod verify;

use serde::{Deserialize, Serialize};
use weir_base::rng::Rng;

use crate::command::{Command, Length, Observation, Purpose, Rate, Run};
use crate::judge::{Check, Finding, NotClean, Verdict, is_overload, judge, judge_ceiling, judge_uneven};
use crate::knee::{Base, SearchOutcome, Transition, TrialSummary};
use crate::points::{NonMonotone, Points};
use crate::rules::{BadRule, Rules};
use crate::stop::{Ceilings, Stop, stop_reason};
use crate::trial::{Backend, Trial};
use reach::Reach;
pub use stage::State;
use stage::{Recheck, ResumeAt, Stage};

/// Options of a search, as the scenario sets them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SearchOptions {
    /// Decides which ceiling bounds the load: a synthetic origin's own too, for a real back end only the generator's.
    pub backend: Backend,
    /// Highest rate to offer, requests per second.
    pub rate_max: Option<f64>,
    /// Generator shards to begin with.
    pub shards: u32,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { backend: Backend::Synthetic, rate_max: None, shards: 1 }
    }
}

/// The clean-knee search. Call `next(None)` once, then `next(Some(observation))` for every trial that was run, until it
/// returns [`Command::Done`].
#[derive(Clone, Debug)]
pub struct Search {
    options: SearchOptions,
    rules: Rules,
    seed: u64,
    rng: Rng,
    stage: Stage,
    again: Option<Recheck>,
    pending: Option<Run>,
    shards: u32,
    ceilings: Ceilings,
    base: Option<Base>,
    points: Points,
    reach: Option<Reach>,
    seen: Vec<TrialSummary>,
    trail: Vec<Transition>,
    non_monotone: Vec<NonMonotone>,
    step_downs: u32,
    step_ups: u32,
    /// Steps up since the last ramp or step down.
    step_ups_in_row: u32,
    is_quota_shaped: bool,
}

impl Search {
    /// A search that has measured nothing yet. `seed` decides the order of verifying trials.
    ///
    /// # Errors
    /// A rule, or a figure of `options`, with which the search could not work.
    pub fn new(options: SearchOptions, rules: Rules, seed: u64) -> Result<Self, BadRule> {
        rules.check()?;
        if options.rate_max.is_some_and(|rate| !(RATE_MIN..=RATE_MAX).contains(&rate)) {
            return Err(BadRule { rule: "rate_max", must: "within 0.001..=1e12" });
        }
        if !(1..=rules.shards_max).contains(&options.shards) {
            return Err(BadRule { rule: "shards", must: "within 1..=shards_max" });
        }
        Ok(Self {
            options,
            rules,
            seed,
            rng: Rng::new(seed),
            stage: Stage::Calibrate(Purpose::NullSink),
            again: None,
            pending: None,
            shards: options.shards,
            ceilings: Ceilings::default(),
            base: None,
            points: Points::default(),
            reach: None,
            seen: Vec::new(),
            trail: Vec::new(),
            non_monotone: Vec::new(),
            step_downs: 0,
            step_ups: 0,
            step_ups_in_row: 0,
            is_quota_shaped: false,
        })
    }

    /// Takes what was measured and says what to do next. An observation of another trial than the one under way is not
    /// taken: the command is repeated, as it is without any observation.
    pub fn next(&mut self, seen: Option<&Observation>) -> Command {
        if let (Some(run), Some(seen)) = (self.pending, seen)
            && run == seen.run
        {
            self.pending = None;
            self.absorb(&run, &seen.trial);
        }
        if self.pending.is_none() && !self.is_done() && self.trials() >= self.rules.trials_max {
            self.end_with(SearchOutcome::TrialLimit, None);
        }
        if let Stage::Done(knee) = &self.stage {
            return Command::Done(knee.clone());
        }
        let run = self.pending.unwrap_or_else(|| self.next_run());
        self.pending = Some(run);
        Command::Run(run)
    }

    /// The state of the table above that the search is in.
    #[must_use]
    pub fn state(&self) -> State {
        self.stage.state()
    }

    /// Every trial so far, retries included.
    #[must_use]
    pub fn seen(&self) -> &[TrialSummary] {
        &self.seen
    }

    fn trials(&self) -> u32 {
        u32::try_from(self.seen.len()).unwrap_or(u32::MAX)
    }

    fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done(_))
    }

    /// The trial that the present state needs.
    fn next_run(&mut self) -> Run {
        if let Some(again) = self.again {
            let rate = if again.first.is_none() { again.failed } else { again.clean };
            return self.run(Rate::Offered(rate), again.is_long, 1, Purpose::Recheck);
        }
        match &mut self.stage {
            Stage::Calibrate(Purpose::LowLoad) => {
                let rate = self.low_load();
                self.run(Rate::Offered(rate), false, 1, Purpose::LowLoad)
            }
            Stage::Calibrate(purpose) => {
                let purpose = *purpose;
                self.run(Rate::Saturate, false, 1, purpose)
            }
            Stage::Ramp { rate } => {
                let rate = *rate;
                self.run(Rate::Offered(rate), false, 1, Purpose::Ramp)
            }
            Stage::Bisect { rate } => {
                let rate = *rate;
                self.run(Rate::Offered(rate), false, 1, Purpose::Bisect)
            }
            Stage::Verify(round) => {
                let (rate, repeat, purpose) = round.next_run(&mut self.rng);
                self.run(Rate::Offered(rate), true, repeat, purpose)
            }
            Stage::StepDown { rate, .. } => {
                let rate = *rate;
                self.run(Rate::Offered(rate), false, 1, Purpose::StepDown)
            }
            Stage::Overload(ladder) => {
                let (rate, repeat) = (ladder.rate, ladder.repeat());
                self.run(Rate::Offered(rate), false, repeat, Purpose::Overload)
            }
            Stage::StepUp | Stage::Done(_) => unreachable!("left before a trial is requested"),
        }
    }

    fn run(&self, rate: Rate, is_long: bool, repeat: u32, purpose: Purpose) -> Run {
        let length = Length::of(is_long, rate, &self.rules);
        Run { rate, length, repeat, purpose, shards: self.shards, is_retry: false }
    }

    /// Judges a trial, retries it if it does not count, and hands it to the state if it does.
    fn absorb(&mut self, run: &Run, trial: &Trial) {
        let mut trial = trial.clone();
        trial.backend = self.options.backend;
        trial.ceiling = self.validity_ceiling();
        let verdict = self.verdict(run, &trial);
        let is_overload =
            verdict.is_valid() && self.base.is_some_and(|base| is_overload(&trial, base.own_p99_us, &self.rules));
        let completed_rate = if trial.completed_rate().is_finite() { trial.completed_rate() } else { 0.0 };
        self.seen.push(TrialSummary {
            run: *run,
            verdict,
            is_overload,
            completed_rate,
            completed: trial.completed,
            sojourn_p99_us: trial.latency.sojourn_p99_us,
            lag_p99_us: trial.latency.lag_p99_us,
            gateway_cpu_us_per_req: trial.parties.gateway_cpu_us_per_req.filter(|cost| cost.is_finite()),
            wire_gigabits: trial.wire_gigabits(),
        });
        self.is_quota_shaped |= trial.host.is_quota;
        match verdict {
            Verdict::Clean => self.accept(run, &trial, true),
            Verdict::NotClean(found) if found.reason == NotClean::MixUp => {
                let stop = stop_reason(&trial, &verdict, &self.ceilings, &self.rules);
                self.finish(SearchOutcome::MixUp, Some(stop));
            }
            Verdict::NotClean(_) => self.accept(run, &trial, false),
            Verdict::Invalid(_) | Verdict::Unsteady if !run.is_retry => self.retry(run),
            Verdict::Invalid(_) | Verdict::Unsteady if self.is_out_of_reach(run, &verdict) => {
                self.bound_by(run.rate.offered(), &trial, &verdict);
            }
            Verdict::Invalid(_) | Verdict::Unsteady => self.give_up(&trial, verdict),
        }
    }

    fn verdict(&self, run: &Run, trial: &Trial) -> Verdict {
        let options = run.rate.offered();
        let off = (trial.offered - options).abs();
        if off > self.rules.offered_tolerance * options {
            let limit = self.rules.offered_tolerance * options;
            return Verdict::Invalid(Finding::new(Check::ConfigMismatch, off, limit));
        }
        match run.purpose {
            Purpose::NullSink | Purpose::Direct => {
                match judge_ceiling(trial, &self.rules, run.purpose == Purpose::Direct) {
                    // A ceiling is a scale to begin with: one that stays uneven is still worth more than none.
                    Verdict::Unsteady if run.is_retry => Verdict::Clean,
                    verdict => verdict,
                }
            }
            _ if run.is_retry => judge_uneven(trial, &self.rules),
            _ => judge(trial, &self.rules),
        }
    }

    /// The same trial once more. The added shards stay: a generator that was too small once will be again.
    fn retry(&mut self, run: &Run) {
        self.shards = self.shards.saturating_mul(self.rules.shard_factor).min(self.rules.shards_max);
        self.pending = Some(Run { shards: self.shards, is_retry: true, ..*run });
    }

    /// The second failure of a trial ends the search with its reason.
    fn give_up(&mut self, trial: &Trial, verdict: Verdict) {
        let outcome = outcome_of(trial, &verdict);
        let stop = stop_reason(trial, &verdict, &self.ceilings, &self.rules);
        self.end_with(outcome, Some(stop));
    }

    /// Ends a search that cannot go on. Above a verified knee that ends only the ladder.
    fn end_with(&mut self, outcome: SearchOutcome, stop: Option<Stop>) {
        if matches!(self.stage, Stage::Overload(_)) {
            self.end_ladder(Some(outcome));
        } else {
            self.finish(outcome, stop);
        }
    }

    /// A valid trial moves its state on.
    fn accept(&mut self, run: &Run, trial: &Trial, is_clean: bool) {
        let rate = run.rate.offered();
        if self.again.is_some() {
            self.on_again(rate, trial, is_clean);
            return;
        }
        match run.purpose {
            Purpose::NullSink | Purpose::Direct | Purpose::LowLoad => self.on_calibrated(run, trial, is_clean),
            Purpose::Ramp => self.on_ramp(rate, trial, is_clean),
            Purpose::Bisect => self.on_bisect(rate, trial, is_clean),
            Purpose::VerifyKnee => self.on_knee(rate, trial, is_clean),
            Purpose::VerifyAbove => self.on_above(rate, trial, is_clean),
            Purpose::StepDown => self.on_step_down(rate, trial, is_clean),
            Purpose::Overload => self.on_rung(rate, trial, is_clean),
            Purpose::Recheck => unreachable!("a recheck runs only while `again` is set"),
        }
    }

    /// Leaves the present state.
    fn enter(&mut self, stage: Stage) {
        let from = self.state();
        self.stage = stage;
        let to = self.state();
        if from != to {
            self.trail.push(Transition { trials: self.trials(), from, to });
        }
    }

    /// Ends the search.
    fn finish(&mut self, outcome: SearchOutcome, stop: Option<Stop>) {
        self.again = None;
        let knee = self.result(outcome, stop);
        self.enter(Stage::Done(Box::new(knee)));
        if let Stage::Done(knee) = &mut self.stage {
            knee.trail.clone_from(&self.trail);
        }
    }
}

/// Outcome of a search that ends with a trial that does not count.
fn outcome_of(trial: &Trial, verdict: &Verdict) -> SearchOutcome {
    match verdict {
        Verdict::Invalid(found) if found.reason == Check::Samples => {
            SearchOutcome::TooFewSamples { n: trial.completed }
        }
        Verdict::Invalid(found) => SearchOutcome::Invalid { check: found.reason },
        Verdict::Unsteady | Verdict::Clean | Verdict::NotClean(_) => SearchOutcome::Unsteady,
    }
}

/// Bounds of a rate that a search can work with, requests per second. Below, one request takes a quarter of an hour.
const RATE_MIN: f64 = 0.001;
const RATE_MAX: f64 = 1e12;
