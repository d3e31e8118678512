//! Metrics of applications' own: values of several clients and times become one.

use std::collections::BTreeMap;

use weir_flags_codec::metrics::{ImpactKind, ImpactMetric, ImpactSample};

use crate::limits::{IMPACT_BUCKETS_MAX, IMPACT_SAMPLES_MAX};

/// The label that says who sent a value, as Unleash Edge sets it: dashboards look for it.
const ORIGIN: (&str, &str) = ("origin", "edge");

/// The metric with the label of an edge on each value.
pub(super) fn through_edge(mut metric: ImpactMetric) -> ImpactMetric {
    for sample in &mut metric.samples {
        sample.labels.get_or_insert_default().insert(ORIGIN.0.to_owned(), ORIGIN.1.to_owned());
    }
    metric
}

/// Both as one, with a value for each set of labels. `is_older`: the other one is of an earlier time. A metric that has changed its kind
/// begins again.
pub(super) fn merged(before: Option<ImpactMetric>, other: ImpactMetric, is_older: bool) -> ImpactMetric {
    let kind = other.kind;
    let (mut metric, samples) = match before {
        Some(before) if before.kind == kind => (before, other.samples),
        Some(before) if is_older => return before,
        _ => {
            let ImpactMetric { name, help, kind, samples } = other;
            (ImpactMetric { name, help, kind, samples: Vec::new() }, samples)
        }
    };
    let mut places: BTreeMap<Option<BTreeMap<String, String>>, usize> =
        metric.samples.iter().enumerate().map(|(at, sample)| (sample.labels.clone(), at)).collect();
    for mut sample in samples {
        match places.get(&sample.labels) {
            Some(at) => add(kind, &mut metric.samples[*at], sample, is_older),
            None if metric.samples.len() >= IMPACT_SAMPLES_MAX => {}
            None => {
                sample.buckets.iter_mut().for_each(|buckets| buckets.truncate(IMPACT_BUCKETS_MAX));
                places.insert(sample.labels.clone(), metric.samples.len());
                metric.samples.push(sample);
            }
        }
    }
    metric
}

fn add(kind: ImpactKind, sum: &mut ImpactSample, other: ImpactSample, is_older: bool) {
    match kind {
        ImpactKind::Gauge if is_older => {}
        ImpactKind::Gauge => sum.value = other.value.or(sum.value),
        ImpactKind::Counter => sum.value = total(sum.value, other.value),
        ImpactKind::Histogram => {
            sum.count = sum.count.into_iter().chain(other.count).reduce(u64::saturating_add);
            sum.sum = total(sum.sum, other.sum);
            let buckets = sum.buckets.get_or_insert_default();
            for bucket in other.buckets.into_iter().flatten() {
                let has_room = buckets.len() < IMPACT_BUCKETS_MAX;
                match buckets.iter_mut().find(|it| it.le == bucket.le) {
                    Some(same) => same.count = same.count.saturating_add(bucket.count),
                    None if has_room => buckets.push(bucket),
                    None => {}
                }
            }
            buckets.sort_by(|left, right| bound(&left.le).total_cmp(&bound(&right.le)));
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

/// Bytes that it occupies, about.
pub(super) fn bytes(metric: &ImpactMetric) -> usize {
    let texts = metric.name.len() + metric.help.len();
    let labels = metric.samples.iter().flat_map(|sample| sample.labels.iter().flatten());
    let labels: usize = labels.map(|(name, value)| name.len() + value.len() + 96).sum();
    let buckets: usize = metric.samples.iter().map(|sample| sample.buckets.as_ref().map_or(0, Vec::len)).sum();
    texts + labels + 128 * metric.samples.len() + 64 * buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(text: &str) -> ImpactMetric {
        serde_json::from_str(text).expect(text)
    }

    fn sum(first: &str, second: &str, is_older: bool) -> ImpactMetric {
        merged(Some(merged(None, metric(first), false)), metric(second), is_older)
    }

    #[test]
    fn counters_and_histograms_add_and_gauges_keep_the_newest() {
        let of =
            |kind: &str, sample: &str| format!(r#"{{"name":"n","help":"h","type":"{kind}","samples":[{sample}]}}"#);
        let both = r#"{"value":2.0,"labels":{"a":"b"}},{"value":3.0,"labels":{"a":"b"}}"#;
        let counters =
            sum(&of("counter", both), &of("counter", r#"{"value":1.0},{"value":4.0,"labels":{"a":"b"}}"#), false);
        assert_eq!(counters.samples.iter().map(|it| it.value).collect::<Vec<_>>(), [Some(9.0), Some(1.0)]);
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
    }
}
