//! A threshold: a bound that the figures of each phase have to keep, in the notation of k6: `p99<5ms`, `errors<0.1%`,
//! `rate>1990`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::record::StepRecord;
use crate::recorder::{HistogramError, Recorder, Tail};

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
    /// Share of the intended requests that did not complete: failed, refused, or never sent.
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
    pub fn of_slo(slo_p99: std::time::Duration) -> Self {
        Self {
            metric: Metric::Percentile(Tail::P99),
            comparison: Comparison::AtMost,
            bound: slo_p99.as_micros() as f64,
            text: format!("p99<={slo_p99:?}").replace('µ', "u"),
        }
    }

    /// Whether it bounds the p99 from above, as a latency target does: then the bound in microseconds.
    pub(crate) fn p99_micros_max(&self) -> Option<f64> {
        let is_target = self.metric == Metric::Percentile(Tail::P99)
            && matches!(self.comparison, Comparison::Below | Comparison::AtMost);
        is_target.then_some(self.bound)
    }

    /// Compares the figure of `record` with the bound.
    ///
    /// # Errors
    /// The histogram of the record cannot be read.
    pub fn judge(&self, record: &StepRecord) -> Result<Judged, HistogramError> {
        let value = self.metric.of(record)?;
        let is_kept = |value: f64| match self.comparison {
            Comparison::Below => value < self.bound,
            Comparison::AtMost => value <= self.bound,
            Comparison::Above => value > self.bound,
            Comparison::AtLeast => value >= self.bound,
            Comparison::Equal => value == self.bound,
        };
        let is_proof = self.metric == Metric::Errors;
        Ok(Judged { threshold: self.text.clone(), value, is_met: value.map(is_kept), is_proof })
    }
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
            Self::Percentile(_) | Self::Max | Self::Mean => (micros(text), "a time such as 500us, 5ms or 1.5s"),
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
            Self::Errors => (counts.intended > 0)
                .then(|| counts.intended.saturating_sub(counts.completed) as f64 / counts.intended as f64),
            Self::Rate => (record.load.window_s > 0.0).then(|| counts.completed as f64 / record.load.window_s),
        })
    }
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
        Some(number(digits)? * micros)
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
    /// A miss counts in an invalid run as well: a late generator raises latencies, and makes no errors.
    pub is_proof: bool,
}

/// What a run is worth to a caller that gates on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Every threshold is met, or there is none.
    Met,
    /// The figures do not count: the generator was the limit, or there are too few samples.
    Invalid,
    /// A threshold is missed.
    Missed,
}

impl Gate {
    /// Of a phase whose thresholds were judged. A run is worth what the worst of its phases is: see the order.
    #[must_use]
    pub fn of(record: &StepRecord) -> Self {
        let judged = &record.thresholds;
        let is_valid = record.verdict.valid;
        let is_missed = |one: &Judged| one.is_met == Some(false) && (is_valid || one.is_proof);
        if judged.iter().any(is_missed) {
            Self::Missed
        } else if !judged.is_empty() && (!is_valid || judged.iter().any(|one| one.is_met.is_none())) {
            Self::Invalid
        } else {
            Self::Met
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_read_with_its_unit_and_written_as_it_was() {
        for (text, metric, comparison, bound) in [
            ("p99<5ms", Metric::Percentile(Tail::P99), Comparison::Below, 5_000.0),
            ("p99.9 <= 1.5s", Metric::Percentile(Tail::P999), Comparison::AtMost, 1_500_000.0),
            ("p95<500us", Metric::Percentile(Tail::P95), Comparison::Below, 500.0),
            ("errors<0.1%", Metric::Errors, Comparison::Below, 0.001),
            ("errors==0", Metric::Errors, Comparison::Equal, 0.0),
            ("rate>1990", Metric::Rate, Comparison::Above, 1_990.0),
            ("rate>=2.5k/s", Metric::Rate, Comparison::AtLeast, 2_500.0),
            ("avg<1ms", Metric::Mean, Comparison::Below, 1_000.0),
        ] {
            let read: Threshold = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((read.metric, read.comparison), (metric, comparison), "{text}");
            assert!((read.bound - bound).abs() < 1e-9, "{text}: {}", read.bound);
            assert_eq!(read.to_string(), text.replace(' ', ""));
        }
        assert_eq!(Threshold::of_slo(std::time::Duration::from_micros(500)).to_string(), "p99<=500us");
    }

    #[test]
    fn a_wrong_threshold_names_its_mistake() {
        for (text, why) in [
            ("p99", "has no comparison"),
            ("p98<5ms", "no figure \"p98\"; write one of p50, p90"),
            ("p99<5", "the bound \"5\" is not a time"),
            ("p99=5ms", "the comparison is one of"),
            ("errors<0.1ms", "is not a share"),
            ("errors<200%", "is not a share"),
            ("rate>-1", "is not requests per second"),
            ("rate>inf", "is not requests per second"),
            ("rate>", "is not requests per second"),
        ] {
            let error = text.parse::<Threshold>().expect_err(text).to_string();
            assert!(error.contains(why) && error.starts_with(&format!("threshold \"{text}\"")), "{error}");
        }
    }
}
