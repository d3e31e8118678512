//! A threshold: a bound that the figures of each phase have to keep, after those of k6 and with percentiles and rates in
//! words of the lab: `p99<5ms`, `errors<0.1%`, `rate>1990`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::outcome::Counts;
use crate::record::StepRecord;
use crate::recorder::{HistogramError, Recorder, Tail};
use crate::scenario::LATENCY_MAX;

/// Thresholds of one scenario. Default 32: a summary shows one line for each.
pub const THRESHOLDS_MAX: usize = 32;

/// A figure of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// A percentile of the sojourn, microseconds.
    Percentile(Tail),
    /// The longest sojourn, microseconds.
    Max,
    /// The mean sojourn, microseconds.
    Mean,
    /// Share of the requests meant for the target that it did not complete: failed, refused, or not sent because it was
    /// behind. Those that the generator was too late for are no errors.
    Errors,
    /// Completed requests per second.
    Rate,
}

/// The words of [`Metric`]. `avg` is the word of k6.
const METRICS: [(&str, Metric); 11] = [
    ("p50", Metric::Percentile(Tail::P50)),
    ("p90", Metric::Percentile(Tail::P90)),
    ("p95", Metric::Percentile(Tail::P95)),
    ("p99", Metric::Percentile(Tail::P99)),
    ("p99.9", Metric::Percentile(Tail::P999)),
    ("p99.99", Metric::Percentile(Tail::P9999)),
    ("max", Metric::Max),
    ("mean", Metric::Mean),
    ("avg", Metric::Mean),
    ("errors", Metric::Errors),
    ("rate", Metric::Rate),
];

/// How a figure is compared with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Below,
    AtMost,
    Above,
    AtLeast,
    Equal,
}

/// The signs of [`Comparison`]; those of two characters come first.
const COMPARISONS: [(&str, Comparison); 5] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

/// One bound on one figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    metric: Metric,
    comparison: Comparison,
    /// Microseconds, a share from 0 to 1, or requests per second.
    bound: f64,
    text: String,
}

impl Threshold {
    /// `p99<=` the latency target of a scenario.
    #[must_use]
    pub fn of_slo(slo_p99: Duration) -> Self {
        Self {
            metric: Metric::Percentile(Tail::P99),
            comparison: Comparison::AtMost,
            bound: slo_p99.as_micros() as f64,
            text: format!("p99<={slo_p99:?}").replace('µ', "u"),
        }
    }

    /// The bound of one that bounds the p99 from above, as a latency target does.
    pub(crate) fn p99_max(&self) -> Option<Duration> {
        let is_target = self.metric == Metric::Percentile(Tail::P99)
            && matches!(self.comparison, Comparison::Below | Comparison::AtMost);
        is_target.then(|| Duration::from_micros(self.bound as u64))
    }

    /// Compares the figure of `record` with the bound.
    ///
    /// # Errors
    /// The histogram of the record cannot be read.
    pub fn judge(&self, record: &StepRecord) -> Result<Judged, HistogramError> {
        let value = self.metric.of(record)?;
        let is_met = value.map(|value| self.is_kept(value));
        let is_of_target = record.verdict.is_of_target();
        let is_missed = match is_met {
            Some(true) => false,
            Some(false) => is_of_target || self.is_broken_by_proof(&record.counts),
            None => is_of_target && self.is_starved(record),
        };
        Ok(Judged { threshold: self.text.clone(), value, is_met, is_missed })
    }

    fn is_kept(&self, value: f64) -> bool {
        match self.comparison {
            Comparison::Below => value < self.bound,
            Comparison::AtMost => value <= self.bound,
            Comparison::Above => value > self.bound,
            Comparison::AtLeast => value >= self.bound,
            Comparison::Equal => value == self.bound,
        }
    }

    /// Whether errors that no generator can cause break the bound by themselves.
    fn is_broken_by_proof(&self, counts: &Counts) -> bool {
        let is_upper = !matches!(self.comparison, Comparison::Above | Comparison::AtLeast);
        let proven = share_of_target(counts, counts.proven_by_target()).filter(|share| *share >= self.bound);
        self.metric == Metric::Errors && is_upper && proven.is_some_and(|share| !self.is_kept(share))
    }

    /// Whether the figure is missing because the target completed too little, and not because too little was intended. In a
    /// closed loop the target decides about both.
    fn is_starved(&self, record: &StepRecord) -> bool {
        let needed = if let Metric::Percentile(tail) = self.metric { tail.samples_min() } else { 1 };
        let counts = &record.counts;
        let has_failed = counts.failed_by_target() > 0;
        match record.load.offered {
            Some(_) => has_failed && counts.meant_for_target() >= needed,
            // A target that hangs since the warm-up lets no request begin within the window.
            None => has_failed || counts.completed == 0,
        }
    }
}

/// `thresholds`, and the latency target as one more where none of them has the same bound.
#[must_use]
pub fn with_target(thresholds: &[Threshold], slo_p99: Option<Duration>) -> Vec<Threshold> {
    let has_bound = |slo: &Duration| thresholds.iter().any(|one| one.p99_max() == Some(*slo));
    let target = slo_p99.filter(|slo| !has_bound(slo)).map(Threshold::of_slo);
    thresholds.iter().cloned().chain(target).collect()
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is no threshold, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError(String);

impl fmt::Display for ThresholdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ThresholdError {}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Self, ThresholdError> {
        let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let wrong = |why: String| ThresholdError(format!("threshold \"{text}\": {why}"));
        let place = compact.find(['<', '>', '=']).ok_or_else(|| {
            wrong("has no comparison; write a figure, one of < <= > >= ==, and a bound, as in p99<5ms".to_owned())
        })?;
        let (word, rest) = compact.split_at(place);
        let metric = METRICS.iter().find(|(name, _)| *name == word).map(|(_, metric)| *metric);
        let metric = metric.ok_or_else(|| {
            let words: Vec<&str> = METRICS.iter().map(|(name, _)| *name).collect();
            wrong(format!("there is no figure \"{word}\"; write one of {}", words.join(", ")))
        })?;
        let found = COMPARISONS.iter().find_map(|(sign, one)| Some((*one, rest.strip_prefix(sign)?)));
        let (comparison, bound) = found.ok_or_else(|| wrong("the comparison is one of < <= > >= ==".to_owned()))?;
        let bound = metric.bound(bound).map_err(wrong)?;
        Ok(Self { metric, comparison, bound, text: compact })
    }
}

impl Metric {
    /// The bound that a text means, in the unit of the figure.
    fn bound(self, text: &str) -> Result<f64, String> {
        let (bound, must) = match self {
            Self::Errors => (share(text), "a share such as 0.1% or 0.001"),
            Self::Rate => (rate(text.strip_suffix("/s").unwrap_or(text)), "requests per second such as 1990 or 2k"),
            Self::Percentile(_) | Self::Max | Self::Mean => {
                (micros(text), "a time such as 500us, 5ms or 1.5s, at most 60s: no longer latency is recorded")
            }
        };
        bound.ok_or_else(|| format!("the bound \"{text}\" is not {must}"))
    }

    /// The figure; `None` where there are too few samples.
    fn of(self, record: &StepRecord) -> Result<Option<f64>, HistogramError> {
        let counts = &record.counts;
        let sojourn = &record.latency.sojourn;
        Ok(match self {
            Self::Percentile(tail) => {
                Recorder::from_summary(sojourn)?.percentile(tail).micros().map(|micros| micros as f64)
            }
            Self::Max => sojourn.max.map(|micros| micros as f64),
            Self::Mean => sojourn.mean.map(|micros| micros as f64),
            Self::Errors => share_of_target(counts, counts.failed_by_target()),
            Self::Rate => (record.load.window_s > 0.0).then(|| counts.completed as f64 / record.load.window_s),
        })
    }
}

/// `part` as a share of the requests meant for the target; `None` if there were none.
fn share_of_target(counts: &Counts, part: u64) -> Option<f64> {
    let whole = counts.meant_for_target();
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A number that is not negative, and nothing else.
fn number(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'_');
    let number: f64 = text.replace('_', "").parse().ok()?;
    (is_plain && number.is_finite()).then_some(number)
}

/// Requests per second: `1990`, `2k`, `1.5M`. `None` for anything else.
#[must_use]
pub fn rate(text: &str) -> Option<f64> {
    let (digits, unit) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |digits| (digits, 1e6)),
    };
    number(digits).map(|number| number * unit)
}

fn share(text: &str) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(digits) => number(digits)? / 100.0,
        None => number(text)?,
    };
    (share <= 1.0).then_some(share)
}

fn micros(text: &str) -> Option<f64> {
    [("us", 1.0), ("ms", 1e3), ("s", 1e6)].iter().find_map(|(unit, micros)| {
        let digits = text.strip_suffix(unit)?;
        number(digits).map(|number| number * micros).filter(|micros| *micros <= LATENCY_MAX.as_micros() as f64)
    })
}

/// A threshold and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// As it was written.
    pub threshold: String,
    /// The figure: microseconds, a share, or requests per second. `None`: too few samples.
    pub value: Option<f64>,
    /// Whether the figure keeps the bound; `None`: there is no figure.
    pub is_met: Option<bool>,
    /// Whether the target missed it: the figure breaks the bound in a run that judges the target, errors alone break it
    /// whatever the generator did, or the target completed too little for a figure.
    #[serde(default)]
    pub is_missed: bool,
}

impl Judged {
    /// `met`, `MISSED`, or `unknown`: this run cannot tell.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match (self.is_missed, self.is_met) {
            (true, _) => "MISSED",
            (false, Some(true)) => "met",
            (false, Some(false) | None) => "unknown",
        }
    }
}

/// Result of a run for a caller that gates on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Every threshold is met, or there is none.
    Met,
    /// The figures do not count: the generator was the limit, too few requests were intended for a figure, or the target
    /// dropped connections and kept every threshold all the same.
    Invalid,
    /// A threshold is missed.
    Missed,
}

impl Gate {
    /// Result of a phase whose thresholds were judged. The result of a run is that of its worst phase: see the order.
    #[must_use]
    pub fn of(record: &StepRecord) -> Self {
        let judged = &record.thresholds;
        if judged.iter().any(|one| one.is_missed) {
            Self::Missed
        } else if judged.iter().any(|one| !record.verdict.valid || one.is_met.is_none()) {
            Self::Invalid
        } else {
            Self::Met
        }
    }
}

#[cfg(test)]
mod tests;
