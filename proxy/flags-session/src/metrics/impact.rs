//! Metrics of applications' own: values of several clients and times become one.

use std::collections::BTreeMap;

use weir_flags_codec::metrics::{ImpactKind, ImpactMetric, ImpactSample};

use crate::limits::{IMPACT_BUCKETS_MAX, IMPACT_SAMPLES_MAX};

/// The label that says who sent a value, as Unleash Edge sets it: dashboards look for it.
const ORIGIN: (&str, &str) = ("origin", "edge");

/// Bytes of a value with its place in a map, without its labels and buckets.
const SAMPLE_BYTES: usize = 128;

/// Bytes of a label with its place, without its texts.
const LABEL_BYTES: usize = 96;

/// Bytes of a bucket.
const BUCKET_BYTES: usize = 64;

/// The labels of a value, which are its place.
type Labels = Option<BTreeMap<String, String>>;

/// The metric with the label of an edge on each value.
pub(super) fn through_edge(mut metric: ImpactMetric) -> ImpactMetric {
    for sample in &mut metric.samples {
        sample.labels.get_or_insert_default().insert(ORIGIN.0.to_owned(), ORIGIN.1.to_owned());
    }
    metric
}

/// A metric that waits, with one value for each set of labels. Its name is its place.
#[derive(Debug)]
pub(super) struct ImpactSum {
    help: String,
    kind: ImpactKind,
    /// Without their labels, which are the keys.
    samples: BTreeMap<Labels, ImpactSample>,
    bytes: usize,
}

impl ImpactSum {
    /// Without values.
    pub(super) fn new(help: &str, kind: ImpactKind) -> Self {
        Self { help: help.to_owned(), kind, samples: BTreeMap::new(), bytes: Self::bytes_of(help) }
    }

    /// Bytes that a metric occupies before it has values, about.
    pub(super) const fn bytes_of(help: &str) -> usize {
        size_of::<Self>() + help.len()
    }

    /// Bytes that it occupies, about.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds values that need no more than `room` further bytes. `is_older`: they are of an earlier time. A metric that has changed its kind begins
    /// again if it has room, and otherwise stays as it was. Returns the number of values that are left out, at least one for a metric.
    pub(super) fn add(&mut self, metric: ImpactMetric, is_older: bool, room: usize) -> u64 {
        let bytes_max = self.bytes + room;
        if self.kind != metric.kind {
            if is_older {
                return 0;
            }
            if Self::bytes_of(&metric.help) > bytes_max {
                return metric.samples.len().max(1) as u64;
            }
            *self = Self::new(&metric.help, metric.kind);
        }
        let mut left_out = 0;
        for sample in metric.samples {
            let room = bytes_max.saturating_sub(self.bytes);
            match self.add_sample(sample, is_older, room) {
                Some(bytes) => self.bytes += bytes,
                None => left_out += 1,
            }
        }
        left_out
    }

    /// Adds a value. Returns the bytes by which the metric grows. `None`: the value is left out.
    fn add_sample(&mut self, mut sample: ImpactSample, is_older: bool, room: usize) -> Option<usize> {
        if let Some(sum) = self.samples.get_mut(&sample.labels) {
            return Some(merge(self.kind, sum, sample, is_older, room));
        }
        sample.buckets.iter_mut().for_each(|buckets| buckets.truncate(IMPACT_BUCKETS_MAX));
        let labels: usize =
            sample.labels.iter().flatten().map(|(name, value)| name.len() + value.len() + LABEL_BYTES).sum();
        let bytes = SAMPLE_BYTES + labels + BUCKET_BYTES * sample.buckets.as_ref().map_or(0, Vec::len);
        if self.samples.len() >= IMPACT_SAMPLES_MAX || bytes > room {
            return None;
        }
        self.samples.insert(sample.labels.take(), sample);
        Some(bytes)
    }

    /// The metric as an upstream takes it.
    pub(super) fn to_metric(&self, name: &str) -> ImpactMetric {
        let samples =
            self.samples.iter().map(|(labels, sample)| ImpactSample { labels: labels.clone(), ..sample.clone() });
        ImpactMetric { name: name.to_owned(), help: self.help.clone(), kind: self.kind, samples: samples.collect() }
    }
}

/// Adds a value to the one of the same labels. Returns the bytes by which it grows.
fn merge(kind: ImpactKind, sum: &mut ImpactSample, other: ImpactSample, is_older: bool, room: usize) -> usize {
    match kind {
        ImpactKind::Gauge if is_older => 0,
        ImpactKind::Gauge => {
            sum.value = other.value.or(sum.value);
            0
        }
        ImpactKind::Counter => {
            sum.value = total(sum.value, other.value);
            0
        }
        ImpactKind::Histogram => {
            sum.count = sum.count.into_iter().chain(other.count).reduce(u64::saturating_add);
            sum.sum = total(sum.sum, other.sum);
            let buckets = sum.buckets.get_or_insert_default();
            let before = buckets.len();
            let most = IMPACT_BUCKETS_MAX.min(before + room / BUCKET_BYTES);
            for bucket in other.buckets.into_iter().flatten() {
                let has_room = buckets.len() < most;
                match buckets.iter_mut().find(|it| it.le == bucket.le) {
                    Some(same) => same.count = same.count.saturating_add(bucket.count),
                    None if has_room => buckets.push(bucket),
                    None => {}
                }
            }
            buckets.sort_by(|left, right| bound(&left.le).total_cmp(&bound(&right.le)));
            BUCKET_BYTES * (buckets.len() - before)
        }
    }
}

fn total(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    left.into_iter().chain(right).reduce(|left, right| left + right)
}

/// The bound of a bucket: the last one has no number.
fn bound(le: &serde_json::Value) -> f64 {
    le.as_f64().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 20;

    fn metric(text: &str) -> ImpactMetric {
        serde_json::from_str(text).expect(text)
    }

    fn begun(text: &str) -> ImpactSum {
        let first = metric(text);
        let mut sum = ImpactSum::new(&first.help, first.kind);
        assert_eq!(sum.add(first, false, ROOM), 0);
        sum
    }

    fn sum(first: &str, second: &str, is_older: bool) -> ImpactMetric {
        let mut sum = begun(first);
        assert_eq!(sum.add(metric(second), is_older, ROOM), 0);
        sum.to_metric("n")
    }

    fn of(kind: &str, sample: &str) -> String {
        format!(r#"{{"name":"n","help":"h","type":"{kind}","samples":[{sample}]}}"#)
    }

    #[test]
    fn counters_and_histograms_add_and_gauges_keep_the_newest() {
        let both = r#"{"value":2.0,"labels":{"a":"b"}},{"value":3.0,"labels":{"a":"b"}}"#;
        let counters =
            sum(&of("counter", both), &of("counter", r#"{"value":1.0},{"value":4.0,"labels":{"a":"b"}}"#), false);
        let values: Vec<_> = counters.samples.iter().map(|it| (it.labels.is_some(), it.value)).collect();
        assert_eq!(values, [(false, Some(1.0)), (true, Some(9.0))]);
        let gauge = |is_older| {
            sum(&of("gauge", r#"{"value":2.0}"#), &of("gauge", r#"{"value":3.0}"#), is_older).samples[0].value
        };
        assert_eq!((gauge(false), gauge(true)), (Some(3.0), Some(2.0)));
        let first = of("histogram", r#"{"count":3,"sum":2.5,"buckets":[{"le":"+Inf","count":3},{"le":1,"count":1}]}"#);
        let second = of("histogram", r#"{"count":2,"sum":0.5,"buckets":[{"le":5,"count":1},{"le":1,"count":1}]}"#);
        let sample = sum(&first, &second, false).samples.remove(0);
        assert_eq!((sample.count, sample.sum), (Some(5), Some(3.0)));
        let buckets: Vec<(f64, u64)> =
            sample.buckets.into_iter().flatten().map(|bucket| (bound(&bucket.le), bucket.count)).collect();
        assert_eq!(buckets, [(1.0, 2), (5.0, 1), (f64::INFINITY, 3)]);
        let changed = sum(&of("gauge", r#"{"value":2.0}"#), &of("counter", r#"{"value":3.0}"#), false);
        assert_eq!((changed.kind, changed.samples[0].value), (ImpactKind::Counter, Some(3.0)));
        let older = sum(&of("gauge", r#"{"value":2.0}"#), &of("counter", r#"{"value":3.0}"#), true);
        assert_eq!((older.kind, older.samples[0].value), (ImpactKind::Gauge, Some(2.0)));
    }

    #[test]
    fn f6_a_metric_without_room_keeps_its_values_and_takes_no_new_ones() {
        let mut full = begun(&of("counter", r#"{"value":2.0,"labels":{"a":"b"}}"#));
        let bytes = full.bytes();
        let two = of("counter", r#"{"value":1.0,"labels":{"a":"c"}},{"value":3.0,"labels":{"a":"b"}}"#);
        assert_eq!(full.add(metric(&two), false, SAMPLE_BYTES), 1, "the labels need more");
        let values: Vec<_> = full.to_metric("n").samples.iter().map(|it| it.value).collect();
        assert_eq!((values, full.bytes()), (vec![Some(5.0)], bytes));
        let mut buckets = begun(&of("histogram", r#"{"count":1,"sum":1,"buckets":[{"le":1,"count":1}]}"#));
        let more = of(
            "histogram",
            r#"{"count":1,"sum":1,"buckets":[{"le":1,"count":1},{"le":2,"count":1},{"le":3,"count":1}]}"#,
        );
        buckets.add(metric(&more), false, BUCKET_BYTES);
        let kept = buckets.to_metric("n").samples.remove(0).buckets.map(|buckets| buckets.len());
        assert_eq!(kept, Some(2));
    }
}
