//! Every threshold of the lab, its default and its reason. A result stores the rules it was found with.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::trial::Trial;

/// Longest lag of the generator that is a scheduling delay and no stall. 50 ms.
pub const LAG_MAX: Duration = Duration::from_millis(50);

/// Thresholds. Shares are 0..=1, times microseconds (`_us`) or seconds (`_s`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// p99 generator lag always allowed. 200 us: about two wake-ups of an idle core.
    pub lag_p99_us_floor: u64,
    /// p99 generator lag allowed as a share of p99 sojourn. 10 %: the lab may colour the figure, not make it.
    pub lag_p99_share_max: f64,
    /// p99 generator lag allowed as a share of the latency target. 10 %, what `lag_p99_share_max` allows a trial that just
    /// meets its target: lag is part of the sojourn held against the target, so it can fail a trial and never pass one.
    /// Idle virtual machines wake up late. Comparisons of latency allow none of it.
    pub lag_p99_slo_share_max: f64,
    /// Longest lag allowed: [`LAG_MAX`].
    pub lag_max_us: u64,
    /// Busiest generator core. 85 %: above, an open loop queues inside itself before it shows as lag.
    pub generator_core_max: f64,
    /// Share of the window that a generator thread may wait for a CPU before that is the reason of a stop. 25 %: it then
    /// shares its core with somebody as busy as itself.
    pub generator_wait_max: f64,
    /// Offered load as a share of the ceiling. 80 %: closer, the lab's own queueing is part of the latency.
    pub ceiling_share_max: f64,
    /// Busiest origin core of synthetic rows. 85 %, as for the generator.
    pub origin_core_max: f64,
    /// Slices that may be lost to steal. 20 %: with more the window is no longer the one that was requested.
    pub slices_stolen_share_max: f64,
    /// Descriptors in use. 80 %: room for the gateway's upstream side and the drain.
    pub fds_share_max: f64,
    /// Ephemeral ports in use. 80 %: the kernel's search for a free one gets slow before they run out.
    pub ports_share_max: f64,
    /// Checked replies as a share of completions. 1 %.
    pub checked_share_min: f64,
    /// Checked replies at least (all of them where fewer completed). 1,000: finds a defect of 0.3 % with 95 %.
    pub checked_min: u64,
    /// Completions for a p99. 1,000: ten samples lie above it.
    pub p99_samples_min: u64,
    /// How far the offered load may be from the requested one. 1 %.
    pub offered_tolerance: f64,

    /// Completed of intended in a clean trial. 99.9 %: the edge of the window, nothing more.
    pub completed_share_min: f64,
    /// Completed of intended below which a trial is overload. 99 %.
    pub overload_completed_share: f64,
    /// p99 over the low-load p99 above which a trial is overload. 10.
    pub overload_p99_ratio: f64,

    /// Low load as a share of the ceiling. 5 %: no queueing to speak of.
    pub low_load_share: f64,
    /// Ramp factor while there is no backlog. 2: five trials from 5 % to the ceiling.
    pub ramp_factor: f64,
    /// Ramp factor after the first sign of backlog. 1.5: the knee is near, a wide bracket costs bisections.
    pub ramp_factor_backlog: f64,
    /// p99 over the low-load p99 that is a sign of backlog. 2.
    pub backlog_p99_ratio: f64,
    /// Width of the final interval, `(worst - best) / best`, and size of a step up or down. 5 %.
    pub precision: f64,
    /// Long trials on each side of the knee. 3.
    pub verify_repeats: u32,
    /// Long trials on each side while those above the knee disagree. 5.
    pub verify_repeats_max: u32,
    /// First step down as a share of `precision`. Half: the candidate was clean once, so the truth is near.
    pub step_down_first: f64,
    /// Steps down before the system counts as unstable. 4: a sixth of the load.
    pub step_downs_max: u32,
    /// Steps up before the system counts as unstable. 8; after two in a row the search ramps again.
    pub step_ups_max: u32,
    /// Multiples of the first overload that are tried for the peak, ascending.
    pub overload_ladder: Vec<f64>,
    /// Trials on each rung. 3: the peak gets an interval.
    pub overload_repeats: u32,
    /// A drop of completed smaller than this is noise, not a fall. 1 %.
    pub fall_share: f64,
    /// Generator shards are multiplied by this when a trial is retried. 2.
    pub shard_factor: u32,
    /// Most generator shards. 64: more than the cores of the boxes the lab knows.
    pub shards_max: u32,
    /// Trials after which the search gives up, retries included. 400 (about 3 hours); a usual search needs 25 to 40.
    pub trials_max: u32,

    /// Shortest warm-up of short and long trials. 2 s and 5 s.
    pub warmup_short_s: f64,
    /// See `warmup_short_s`.
    pub warmup_long_s: f64,
    /// How far three one-second slices in a row may be from their mean for a trial to be steady. 2 %, or four standard
    /// deviations of a Poisson count if that is more.
    pub steady_share: f64,
    /// Window of search trials. 10 s.
    pub window_short_s: f64,
    /// Window of verifying trials. 30 s.
    pub window_long_s: f64,
    /// Longest window that a low rate may stretch to, so that its p99 has samples. 600 s.
    pub window_max_s: f64,

    /// A core or budget at this share is saturated. 95 %.
    pub saturated_share: f64,
    /// Idle share of the box below which the box is the limit. 5 %.
    pub box_idle_min: f64,
    /// Completed as a share of the direct ceiling at which the direct row is flat too. 95 %.
    pub direct_flat_share: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            lag_p99_us_floor: 200,
            lag_p99_share_max: 0.10,
            lag_p99_slo_share_max: 0.10,
            lag_max_us: LAG_MAX.as_micros() as u64,
            generator_core_max: 0.85,
            generator_wait_max: 0.25,
            ceiling_share_max: 0.80,
            origin_core_max: 0.85,
            slices_stolen_share_max: 0.20,
            fds_share_max: 0.80,
            ports_share_max: 0.80,
            checked_share_min: 0.01,
            checked_min: 1_000,
            p99_samples_min: 1_000,
            offered_tolerance: 0.01,
            completed_share_min: 0.999,
            overload_completed_share: 0.99,
            overload_p99_ratio: 10.0,
            low_load_share: 0.05,
            ramp_factor: 2.0,
            ramp_factor_backlog: 1.5,
            backlog_p99_ratio: 2.0,
            precision: 0.05,
            verify_repeats: 3,
            verify_repeats_max: 5,
            step_down_first: 0.5,
            step_downs_max: 4,
            step_ups_max: 8,
            overload_ladder: vec![1.1, 1.25, 1.5, 2.0],
            overload_repeats: 3,
            fall_share: 0.01,
            shard_factor: 2,
            shards_max: 64,
            trials_max: 400,
            warmup_short_s: 2.0,
            warmup_long_s: 5.0,
            steady_share: 0.02,
            window_short_s: 10.0,
            window_long_s: 30.0,
            window_max_s: 600.0,
            saturated_share: 0.95,
            box_idle_min: 0.05,
            direct_flat_share: 0.95,
        }
    }
}

impl Rules {
    /// For a look within two minutes: trials of seconds and 10 % precision. Do not size from it.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            precision: 0.10,
            // With two or three slices, one may be lost.
            slices_stolen_share_max: 0.50,
            verify_repeats: 2,
            verify_repeats_max: 3,
            overload_ladder: vec![1.25, 1.5],
            overload_repeats: 1,
            trials_max: 60,
            warmup_short_s: 1.0,
            warmup_long_s: 1.0,
            steady_share: 0.15,
            window_short_s: 2.0,
            window_long_s: 3.0,
            window_max_s: 30.0,
            ..Self::default()
        }
    }
}

/// A rule with which the search would not end, or would mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRule {
    /// Name of the field.
    pub rule: &'static str,
    /// The requirement on its value.
    pub must: &'static str,
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule `{}` must be {}", self.rule, self.must)
    }
}

impl std::error::Error for BadRule {}

impl Rules {
    /// p99 generator lag up to which the trial counts: the most generous of the three rules.
    #[must_use]
    pub fn lag_p99_us_max(&self, trial: &Trial) -> f64 {
        let of_sojourn = self.lag_p99_share_max * trial.latency.sojourn_p99_us as f64;
        let of_target = self.lag_p99_slo_share_max * trial.slo_p99_us.unwrap_or(0) as f64;
        of_sojourn.max(of_target).max(self.lag_p99_us_floor as f64)
    }

    /// Whether a search can work with these rules.
    ///
    /// # Errors
    /// The first rule that is out of bounds.
    pub fn check(&self) -> Result<(), BadRule> {
        let is_ladder = self.overload_ladder.iter().all(|rung| (1.0..=100.0).contains(rung))
            && self.overload_ladder.is_sorted()
            && self.overload_ladder.len() <= 16;
        let windows = [self.window_short_s, self.window_long_s];
        let warmups = [self.warmup_short_s, self.warmup_long_s];
        let facts = [
            ("precision", "within 0.005..=0.5", (0.005..=0.5).contains(&self.precision)),
            ("step_down_first", "within 0.1..=1", (0.1..=1.0).contains(&self.step_down_first)),
            ("ramp_factor", "within 1.05..=16", (1.05..=16.0).contains(&self.ramp_factor)),
            ("ramp_factor_backlog", "within 1.05..=16", (1.05..=16.0).contains(&self.ramp_factor_backlog)),
            ("low_load_share", "within 0.0001..=0.5", (0.0001..=0.5).contains(&self.low_load_share)),
            ("ceiling_share_max", "within 0.1..=1", (0.1..=1.0).contains(&self.ceiling_share_max)),
            ("verify_repeats", "within 1..=100", (1..=100).contains(&self.verify_repeats)),
            (
                "verify_repeats_max",
                "within verify_repeats..=100",
                (self.verify_repeats..=100).contains(&self.verify_repeats_max),
            ),
            ("overload_repeats", "within 1..=100", (1..=100).contains(&self.overload_repeats)),
            ("overload_ladder", "at most 16 ascending factors within 1..=100", is_ladder),
            ("shard_factor", "within 1..=64", (1..=64).contains(&self.shard_factor)),
            ("shards_max", "within 1..=4096", (1..=4096).contains(&self.shards_max)),
            ("trials_max", "within 10..=10000", (10..=10_000).contains(&self.trials_max)),
            ("window_max_s", "within 1..=86400", (1.0..=86_400.0).contains(&self.window_max_s)),
            (
                "window_*_s",
                "within 0.001..=window_max_s",
                windows.iter().all(|w| (0.001..=self.window_max_s).contains(w)),
            ),
            ("warmup_*_s", "within 0..=3600", warmups.iter().all(|w| (0.0..=3600.0).contains(w))),
        ];
        match facts.iter().find(|(_, _, holds)| !holds) {
            Some(&(rule, must, _)) => Err(BadRule { rule, must }),
            None => Ok(()),
        }
    }
}
