//! Verdict on one trial: clean, not clean, invalid or unsteady, and why. Pure functions of a trial and the rules.
//!
//! Causes are checked before their symptoms, so that the reason printed is the one to mend: too few descriptors before
//! missing connections, steal before generator lag.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::trial::{Backend, Trial};

/// A validity check; its name is the reason that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// Driver, TLS state, workers, pinning or rate differ from the scenario; or a figure is not a number.
    ConfigMismatch,
    /// Descriptors near their limit.
    Fds,
    /// Ephemeral ports near their limit.
    Ports,
    /// The box swapped.
    Memory,
    /// Fewer sockets than requested.
    Connections,
    /// The kernel dropped on the lab's own sockets.
    KernelDrops,
    /// Too much of the window was stolen by other guests.
    Steal,
    /// A party was throttled although its budget is no quota.
    Throttled,
    /// Offered load too near to what generator and origin can do, or no ceiling could be measured.
    Ceiling,
    /// A generator core is too busy.
    GeneratorCpu,
    /// The generator was behind its own schedule.
    GeneratorLag,
    /// A core of the synthetic origin is too busy, or was not measured.
    OriginCpu,
    /// Too few replies were checked.
    Unchecked,
    /// Too few completions for a p99.
    Samples,
}

impl Check {
    /// The reason printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMismatch => "config-mismatch",
            Self::Fds => "fds",
            Self::Ports => "ports",
            Self::Memory => "memory",
            Self::Connections => "connections",
            Self::KernelDrops => "kernel-drops",
            Self::Steal => "steal",
            Self::Throttled => "throttled",
            Self::Ceiling => "ceiling",
            Self::GeneratorCpu => "generator-cpu",
            Self::GeneratorLag => "generator-lag",
            Self::OriginCpu => "origin-cpu",
            Self::Unchecked => "unchecked",
            Self::Samples => "samples",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a valid trial is not clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotClean {
    /// A reply of another stream or connection. Ends the search.
    MixUp,
    /// A reply with wrong contents.
    Integrity,
    /// Any of the five error classes.
    Errors,
    /// The gateway refused work.
    Shed,
    /// Requests were too late to send.
    Skipped,
    /// Too few of the intended requests completed.
    Completed,
    /// p99 sojourn above the target.
    Slo,
}

impl NotClean {
    /// The reason printed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MixUp => "mix-up",
            Self::Integrity => "integrity",
            Self::Errors => "errors",
            Self::Shed => "shed",
            Self::Skipped => "skipped",
            Self::Completed => "completed",
            Self::Slo => "slo",
        }
    }
}

impl fmt::Display for NotClean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason with the figure that broke it and the bound it broke.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding<R> {
    /// Which rule.
    pub reason: R,
    /// The measured value, in the unit of the rule.
    pub value: f64,
    /// The bound.
    pub limit: f64,
}

impl<R> Finding<R> {
    /// A finding that any record can hold: a figure that is not a number is given as its bound, an endless one as the
    /// largest there is.
    #[must_use]
    pub fn new(reason: R, value: f64, limit: f64) -> Self {
        let value = if value.is_nan() { limit } else { value };
        Self { reason, value: value.clamp(f64::MIN, f64::MAX), limit: limit.clamp(f64::MIN, f64::MAX) }
    }
}

/// The class of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Valid and without a blemish.
    Clean,
    /// Valid; the gateway, or what stands behind it, could not carry the load.
    NotClean(Finding<NotClean>),
    /// The lab was not fit to tell.
    Invalid(Finding<Check>),
    /// Valid, and its seconds do not agree about the completed rate.
    Unsteady,
}

impl Verdict {
    /// Valid and clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(self, Self::Clean)
    }

    /// The trial counts: clean or not clean.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        matches!(self, Self::Clean | Self::NotClean(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("clean"),
            Self::NotClean(found) => write!(f, "not clean: {}", found.reason),
            Self::Invalid(found) => write!(f, "invalid: {}", found.reason),
            Self::Unsteady => f.write_str("unsteady"),
        }
    }
}

/// The class of a trial at an offered load. Validity comes first: an invalid trial says nothing about the gateway. An
/// unsteady one may say something, see [`judge_uneven`].
#[must_use]
pub fn judge(trial: &Trial, rules: &Rules) -> Verdict {
    match judge_uneven(trial, rules) {
        Verdict::NotClean(_) if !trial.is_steady => Verdict::Unsteady,
        verdict => verdict,
    }
}

/// As [`judge`], of a trial that is run once more: one that fails has failed then, since a queue that runs over need not
/// do so evenly. It still cannot be clean.
#[must_use]
pub fn judge_uneven(trial: &Trial, rules: &Rules) -> Verdict {
    if let Some(&found) = failed_checks(trial, rules).first() {
        return Verdict::Invalid(found);
    }
    if let Some(found) = blemish(trial, rules) {
        return Verdict::NotClean(found);
    }
    // Last, so that a gateway that completes nothing is overloaded and not "n/a".
    if trial.slo_p99_us.is_some() && trial.completed < rules.p99_samples_min {
        let (value, limit) = (trial.completed as f64, rules.p99_samples_min as f64);
        return Verdict::Invalid(Finding::new(Check::Samples, value, limit));
    }
    match slo_missed(trial) {
        Some(found) => Verdict::NotClean(found),
        None if trial.is_steady => Verdict::Clean,
        None => Verdict::Unsteady,
    }
}

/// Checks that a closed loop fails by its nature: generator and origin are meant to be busy, and late.
pub const IGNORED_BY_CEILINGS: [Check; 4] =
    [Check::Ceiling, Check::GeneratorCpu, Check::GeneratorLag, Check::OriginCpu];

/// The class of a saturating run that measures a ceiling: the generator is meant to be busy and late, so only the checks
/// of the box and of the set-up apply. `has_replies` is false towards a null sink, where nothing can be checked.
#[must_use]
pub fn judge_ceiling(trial: &Trial, rules: &Rules, has_replies: bool) -> Verdict {
    let applies = |check: Check| !IGNORED_BY_CEILINGS.contains(&check) && (has_replies || check != Check::Unchecked);
    if let Some(&found) = failed_checks(trial, rules).iter().find(|found| applies(found.reason)) {
        return Verdict::Invalid(found);
    }
    if trial.completed == 0 || !trial.completed_rate().is_finite() {
        return Verdict::Invalid(Finding::new(Check::Ceiling, 0.0, 0.0));
    }
    if trial.integrity.mix_ups > 0 {
        return Verdict::NotClean(counted(NotClean::MixUp, trial.integrity.mix_ups));
    }
    if trial.is_steady { Verdict::Clean } else { Verdict::Unsteady }
}

/// All validity checks that a trial fails, causes before symptoms.
#[must_use]
pub fn failed_checks(trial: &Trial, rules: &Rules) -> Vec<Finding<Check>> {
    let resources = &trial.resources;
    let latency = &trial.latency;
    let origin = match (trial.backend, trial.parties.origin_core_busiest) {
        (Backend::Real, _) => 0.0,
        (Backend::Synthetic, busiest) => busiest.unwrap_or(f64::NAN),
    };
    let throttled = if trial.host.is_quota { 0 } else { trial.host.throttled_periods };
    let stolen = share(trial.host.slices_stolen, trial.host.slices);
    let missing = resources.sockets_asked.saturating_sub(resources.sockets_established);
    let completed = trial.completed as f64;
    let checked_min = (rules.checked_share_min * completed).max(trial.completed.min(rules.checked_min) as f64);
    let checked = trial.integrity.checked as f64;
    let mismatches = u64::from(trial.config_mismatch.is_some()) + u64::from(!is_sane(trial));
    let ceiling = trial.ceiling.map_or(f64::MAX, |ceiling| ceiling * rules.ceiling_share_max * (1.0 + ROUNDING));
    let mut found = Vec::new();
    let mut at_most = |reason, value: f64, limit: f64| {
        // A figure that is not a number must fail its check.
        if value.is_nan() || value > limit {
            found.push(Finding::new(reason, value, limit));
        }
    };
    at_most(Check::ConfigMismatch, mismatches as f64, 0.0);
    at_most(Check::Fds, resources.fds.share(), rules.fds_share_max);
    at_most(Check::Ports, resources.ports.share(), rules.ports_share_max);
    at_most(Check::Memory, resources.swap_bytes as f64, 0.0);
    at_most(Check::Connections, missing as f64, 0.0);
    at_most(Check::KernelDrops, resources.kernel_drops as f64, 0.0);
    at_most(Check::Steal, stolen, rules.slices_stolen_share_max);
    at_most(Check::Throttled, throttled as f64, 0.0);
    at_most(Check::Ceiling, trial.offered, ceiling);
    at_most(Check::GeneratorCpu, trial.parties.generator_core_busiest, rules.generator_core_max);
    at_most(Check::GeneratorLag, latency.lag_p99_us as f64, rules.lag_p99_us_max(trial));
    at_most(Check::GeneratorLag, latency.lag_max_us as f64, rules.lag_max_us as f64);
    at_most(Check::GeneratorLag, trial.skipped_generator as f64, 0.0);
    at_most(Check::OriginCpu, origin, rules.origin_core_max);
    if !trial.integrity.is_status_only && checked < checked_min {
        found.push(Finding::new(Check::Unchecked, checked, checked_min));
    }
    found
}

/// Whether a valid trial is overload: any error, shed or skip, or completed far below offered, or p99 far above that of
/// the low load, both without the generator's lag. A trial that only misses its SLO is not clean, but not yet overload.
#[must_use]
pub fn is_overload(trial: &Trial, low_load_p99_us: u64, rules: &Rules) -> bool {
    let has_refusals = trial.errors.total() > 0 || trial.shed > 0 || trial.skipped_backlog > 0;
    let has_p99 = trial.completed >= rules.p99_samples_min;
    let p99_limit = rules.overload_p99_ratio * low_load_p99_us as f64;
    has_refusals
        || (trial.completed as f64) < rules.overload_completed_share * trial.intended as f64
        || (has_p99 && trial.latency.own_p99_us() as f64 > p99_limit)
}

/// The first reason, other than latency, why a valid trial is not clean.
fn blemish(trial: &Trial, rules: &Rules) -> Option<Finding<NotClean>> {
    let counts = [
        (NotClean::MixUp, trial.integrity.mix_ups),
        (NotClean::Integrity, trial.integrity.failed),
        (NotClean::Errors, trial.errors.total()),
        (NotClean::Shed, trial.shed),
        (NotClean::Skipped, trial.skipped_backlog),
    ];
    if let Some(&(reason, count)) = counts.iter().find(|(_, count)| *count > 0) {
        return Some(counted(reason, count));
    }
    let completed = share(trial.completed, trial.intended);
    if trial.intended == 0 || completed < rules.completed_share_min {
        return Some(Finding::new(NotClean::Completed, completed, rules.completed_share_min));
    }
    None
}

fn slo_missed(trial: &Trial) -> Option<Finding<NotClean>> {
    let slo = trial.slo_p99_us?;
    let p99 = trial.latency.sojourn_p99_us;
    (p99 > slo).then_some(Finding::new(NotClean::Slo, p99 as f64, slo as f64))
}

fn counted(reason: NotClean, count: u64) -> Finding<NotClean> {
    Finding::new(reason, count as f64, 0.0)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Rates and windows that arithmetic can work with. CPU figures are checked where they are compared.
fn is_sane(trial: &Trial) -> bool {
    trial.offered.is_finite() && trial.offered >= 0.0 && trial.window_s.is_finite() && trial.window_s > 0.0
}

/// A rate at exactly the ceiling is allowed; it comes out of a multiplication.
const ROUNDING: f64 = 1e-9;
