//! Metrics as read by the control thread at one moment: typed queries for the admin API and `weir top`.
//!
//! Numbers are in cell units (nanoseconds for durations, millionths for ratios); [`Snapshot::number`] gives the exposed
//! unit. A query names the labels it cares about, in any order; all series that fit are merged as the family says.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalog::{Family, Kind, Merge};
use crate::histogram::HistogramSnapshot;

/// Label values of one series, in the order of the family's label names.
pub type Labels = Box<[Arc<str>]>;

/// The value of one series over all cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A count.
    Counter(u64),
    /// A present value.
    Gauge(i64),
    /// A distribution.
    Histogram(HistogramSnapshot),
}

impl Value {
    pub(crate) fn empty(kind: Kind) -> Value {
        match kind {
            Kind::Counter => Value::Counter(0),
            Kind::Gauge => Value::Gauge(0),
            Kind::Histogram => Value::Histogram(HistogramSnapshot::default()),
        }
    }

    /// Both as one. Values of different kinds do not meet within a family; the first then stays as it is.
    pub(crate) fn merged(self, other: Value, merge: Merge) -> Value {
        match (self, other) {
            (Value::Counter(a), Value::Counter(b)) => Value::Counter(a.wrapping_add(b)),
            (Value::Gauge(a), Value::Gauge(b)) => Value::Gauge(match merge {
                Merge::Sum => a.wrapping_add(b),
                Merge::Min => a.min(b),
                Merge::Max => a.max(b),
            }),
            (Value::Histogram(mut a), Value::Histogram(b)) => {
                a.merge(&b);
                Value::Histogram(a)
            }
            (first, _) => first,
        }
    }
}

/// One series.
#[derive(Clone, Debug)]
pub struct SeriesSnapshot {
    /// Label values.
    pub labels: Labels,
    /// The value.
    pub value: Value,
}

/// One family with its series, sorted by label values.
#[derive(Clone, Debug)]
pub struct FamilySnapshot {
    /// The family itself.
    pub family: &'static Family,
    /// Its series.
    pub series: Vec<SeriesSnapshot>,
}

impl FamilySnapshot {
    /// The value of label `name` in `series`.
    #[must_use]
    pub fn label<'a>(&self, series: &'a SeriesSnapshot, name: &str) -> Option<&'a str> {
        let position = self.family.labels.iter().position(|label| *label == name)?;
        series.labels.get(position).map(AsRef::as_ref)
    }

    fn fits(&self, series: &SeriesSnapshot, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|(name, value)| self.label(series, name) == Some(value))
    }
}

/// Every series of the process at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    families: Vec<FamilySnapshot>,
}

impl Snapshot {
    pub(crate) fn new(families: Vec<FamilySnapshot>) -> Snapshot {
        Snapshot { families }
    }

    /// All families, in catalog order; some have no series.
    #[must_use]
    pub fn families(&self) -> &[FamilySnapshot] {
        &self.families
    }

    /// The family of that Prometheus name.
    #[must_use]
    pub fn family(&self, name: &str) -> Option<&FamilySnapshot> {
        self.families.iter().find(|entry| entry.family.name == name)
    }

    /// The sum of the counters that fit; `None` if there is none.
    #[must_use]
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Option<u64> {
        match self.merged(name, labels)? {
            Value::Counter(count) => Some(count),
            _ => None,
        }
    }

    /// The gauges that fit, merged as the family says; `None` if there is none.
    #[must_use]
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Option<i64> {
        match self.merged(name, labels)? {
            Value::Gauge(value) => Some(value),
            _ => None,
        }
    }

    /// The merged histograms that fit; `None` if there is none.
    #[must_use]
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Option<HistogramSnapshot> {
        match self.merged(name, labels)? {
            Value::Histogram(histogram) => Some(histogram),
            _ => None,
        }
    }

    /// A counter or gauge in its exposed unit (seconds, bytes, ratio).
    #[must_use]
    pub fn number(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = self.family(name)?.family;
        match self.merged(name, labels)? {
            Value::Counter(count) => Some(family.scale(count as f64)),
            Value::Gauge(value) => Some(family.scale(value as f64)),
            Value::Histogram(_) => None,
        }
    }

    /// The series that fit, merged per value of label `by`: sheds by reason, calls by command, busy ratio by worker.
    #[must_use]
    pub fn by(&self, name: &str, by: &str, labels: &[(&str, &str)]) -> BTreeMap<Arc<str>, Value> {
        let mut groups: BTreeMap<Arc<str>, Value> = BTreeMap::new();
        let Some(entry) = self.family(name) else {
            return groups;
        };
        let Some(position) = entry.family.labels.iter().position(|label| *label == by) else {
            return groups;
        };
        for series in entry.series.iter().filter(|series| entry.fits(series, labels)) {
            let key = series.labels[position].clone();
            let value = match groups.remove(&key) {
                Some(value) => value.merged(series.value.clone(), entry.family.merge),
                None => series.value.clone(),
            };
            groups.insert(key, value);
        }
        groups
    }

    fn merged(&self, name: &str, labels: &[(&str, &str)]) -> Option<Value> {
        let entry = self.family(name)?;
        let fitting = entry.series.iter().filter(|series| entry.fits(series, labels));
        fitting.map(|series| series.value.clone()).reduce(|a, b| a.merged(b, entry.family.merge))
    }
}
