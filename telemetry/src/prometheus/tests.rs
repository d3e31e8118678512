use super::*;
use crate::catalog::{self, Kind};
use crate::cells::Registry;
use std::collections::{BTreeMap, BTreeSet};

/// A parsed sample line: name, label pairs, value.
type Sample = (String, Vec<(String, String)>, f64);

/// A strict reader of the format: HELP then TYPE then the samples of one family, each family once, each series once.
fn parse(text: &str) -> BTreeMap<String, (String, Vec<Sample>)> {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut families: BTreeMap<String, (String, Vec<Sample>)> = BTreeMap::new();
    let (mut helped, mut current, mut seen) = (None, String::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("HELP has a text");
            assert!(!help.is_empty());
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("TYPE has a kind");
            assert_eq!(helped.take().as_deref(), Some(name), "HELP stands right before TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&kind));
            assert!(families.insert(name.to_owned(), (kind.to_owned(), Vec::new())).is_none(), "{name} twice");
            current = name.to_owned();
        } else {
            let sample = parse_sample(line);
            assert!(seen.insert((sample.0.clone(), sample.1.clone())), "series twice: {line}");
            let (kind, samples) = families.get_mut(&current).expect("a sample follows its TYPE");
            let suffix = sample.0.strip_prefix(&current).expect("a sample of the current family");
            let allowed: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(allowed.contains(&suffix), "{line}");
            samples.push(sample);
        }
    }
    families
}

fn parse_sample(line: &str) -> Sample {
    let name_end = line.find(['{', ' ']).expect("a sample has a value");
    let name = &line[..name_end];
    assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':'), "{line}");
    let (mut pairs, mut rest) = (Vec::new(), &line[name_end..]);
    if let Some(mut inner) = rest.strip_prefix('{') {
        while !inner.starts_with('}') {
            let (label, after) = inner.split_once("=\"").expect("a label has a quoted value");
            assert!(label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{line}");
            let (value, after) = parse_quoted(after);
            pairs.push((label.to_owned(), value));
            inner = after.strip_prefix(',').unwrap_or(after);
        }
        rest = &inner[1..];
    }
    let value = rest.strip_prefix(' ').expect("one blank before the value");
    (name.to_owned(), pairs, value.parse().expect("a number"))
}

/// Undoes the escaping up to the closing quote.
fn parse_quoted(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &text[at + 1..]),
            '\n' => panic!("raw line feed in a label"),
            '\\' => match chars.next().expect("an escaped character").1 {
                'n' => value.push('\n'),
                escaped @ ('\\' | '"') => value.push(escaped),
                other => panic!("unknown escape \\{other}"),
            },
            plain => value.push(plain),
        }
    }
    panic!("no closing quote: {text}");
}

/// Every family of the catalog with one series on two cores.
fn full_registry() -> Registry {
    let registry = Registry::new();
    for number in 0..2 {
        let core = registry.core(number);
        for family in catalog::ALL {
            let values = vec!["x"; family.labels.len()];
            match family.kind {
                Kind::Counter => core.counter(family, &values).add(1_500_000_000),
                Kind::Gauge => core.gauge(family, &values).set(-3),
                Kind::Histogram => {
                    let histogram = core.histogram(family, &values);
                    for nanos in [40, 900, 1_000_000, 1_000_000_000, 90_000_000_000_000] {
                        histogram.record(nanos);
                    }
                }
            }
        }
    }
    registry
}

#[test]
fn the_whole_catalog_is_well_formed() {
    let families = parse(&render(&full_registry().read()));
    assert_eq!(families.len(), catalog::ALL.len());
    for family in catalog::ALL {
        let (kind, samples) = &families[family.name];
        assert_eq!(kind, family.kind.as_str());
        if family.kind == Kind::Histogram {
            check_histogram(family.name, samples);
        } else {
            assert_eq!(samples.len(), 1, "{}", family.name);
            let labels: Vec<&str> = samples[0].1.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(labels, family.labels);
        }
    }
    assert_eq!(families["weir_worker_cpu_seconds_total"].1[0].2, 3.0, "nanoseconds are exposed as seconds");
    assert_eq!(families["weir_connections_open"].1[0].2, -6.0);
}

/// Boundaries ascend, counts are cumulative, and `+Inf` equals `_count`.
fn check_histogram(name: &str, samples: &[Sample]) {
    let buckets: Vec<(f64, f64)> = samples
        .iter()
        .filter(|(sample, ..)| sample.ends_with("_bucket"))
        .map(|(_, labels, value)| {
            let (label, bound) = labels.last().expect("a bucket has a boundary");
            assert_eq!(label, "le");
            (bound.parse().expect("a boundary is a number"), *value)
        })
        .collect();
    assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{name}");
    let (bound, infinite) = *buckets.last().unwrap();
    assert!(bound.is_infinite() && infinite == 10.0, "{name}");
    let single = |suffix: &str| samples.iter().find(|(sample, ..)| sample.ends_with(suffix)).unwrap().2;
    assert_eq!(single("_count"), infinite, "{name}");
    assert!(single("_sum") > 180_002.0, "{name}");
}

#[test]
fn boundaries_are_those_of_native_histograms() {
    let bounds: Vec<f64> = boundaries(&catalog::REQUEST_DURATION).map(|(bound, _)| bound).collect();
    assert_eq!(bounds.len(), 53);
    assert_eq!((bounds[0], bounds[40], bounds[52]), (2f64.powi(-20), 1.0, 64.0));
    assert!(bounds.windows(2).all(|pair| (pair[1] / pair[0] - SQRT_2).abs() < 1e-12));
    let stages: Vec<f64> = boundaries(&catalog::REQUEST_STAGE_DURATION).map(|(bound, _)| bound).collect();
    assert!(stages.windows(2).all(|pair| pair[1] / pair[0] == 2.0));
    let lives: Vec<(f64, usize)> = boundaries(&catalog::CONNECTION_DURATION).collect();
    assert_eq!((lives[0].0, lives.last().unwrap().0), (2f64.powi(-10), 65_536.0));
}

/// Every boundary counts exactly the durations that are not above it, whatever the family's range and unit.
#[test]
fn counts_at_boundaries_are_exact() {
    let histograms = catalog::ALL.iter().copied().filter(|family| family.kind == Kind::Histogram);
    for family in histograms {
        let registry = Registry::new();
        let values = vec!["x"; family.labels.len()];
        let histogram = registry.core(0).histogram(family, &values);
        let mut rng = weir_base::Rng::new(2);
        let spread = 2f64.powi(10 * i32::from(family.buckets.shift > 0));
        let nanos: Vec<u64> = (0..4_000).map(|_| (500.0 * spread * 1e8f64.powf(rng.unit())) as u64).collect();
        nanos.iter().for_each(|&value| histogram.record(value));
        let text = render(&registry.read());
        for (_, labels, count) in &parse(&text)[family.name].1 {
            let Some((_, bound)) = labels.iter().find(|(name, _)| name == "le") else {
                continue;
            };
            let bound: f64 = bound.parse().unwrap();
            let exact = nanos.iter().filter(|&&value| family.scale(value as f64) <= bound).count();
            // The lowest octave of a shifted range loses the last ten bits; one value in 4,000 may sit on an edge.
            assert!((*count - exact as f64).abs() <= 1.0, "{} le {bound}: {count} for {exact}", family.name);
        }
    }
}

#[test]
fn label_values_survive_escaping() {
    let registry = Registry::new();
    let nasty = "a\"b\\c\nd{},=é";
    registry.core(0).counter(&catalog::SHED, &[nasty, "full"]).inc();
    let text = render(&registry.read());
    assert!(text.contains(r#"weir_shed_total{listener="a\"b\\c\nd{},=é",reason="full"} 1"#), "{text}");
    let families = parse(&text);
    assert_eq!(families["weir_shed_total"].1[0].1[0].1, nasty);
    assert_eq!(escaped_help("a\\b\nc"), r"a\\b\nc");
}

#[test]
fn an_empty_registry_renders_nothing_and_large_counters_stay_whole() {
    assert_eq!(render(&Registry::new().read()), "");
    let registry = Registry::new();
    registry.core(0).counter(&catalog::SHED, &["cache", "full"]).add(u64::MAX - 1);
    assert!(render(&registry.read()).contains(" 18446744073709551614\n"));
}
