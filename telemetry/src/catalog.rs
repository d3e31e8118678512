//! Every metric of Weir, declared once.
//!
//! The table is in `catalog/table.rs`; adding a line there is all it takes: `/metrics` prints its HELP and TYPE, and
//! `docs/METRICS.md` is generated from it ([`markdown`]; a test compares the two).
//!
//! Names follow Prometheus: snake case, base unit as suffix, `_total` on counters. The OpenTelemetry spelling is derived
//! by one rule: the first underscore becomes a dot and `_total` is dropped ([`Family::otel_name`]).

use std::fmt::Write as _;

use weir_base::limits::METRIC_LABEL_SETS_MAX;

mod table;

pub use table::*;

/// Kind of a metric, which decides how its cells behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the process ends.
    Counter,
    /// A present value.
    Gauge,
    /// A distribution of durations.
    Histogram,
}

impl Kind {
    /// The word of the Prometheus `# TYPE` line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// The unit a metric is exposed in, and the integer it is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    One,
    /// Bytes.
    Bytes,
    /// Seconds; cells count nanoseconds.
    Seconds,
    /// A share, usually between 0 and 1; cells count millionths.
    Ratio,
}

impl Unit {
    /// Cell units per exposed unit.
    #[must_use]
    pub const fn divisor(self) -> u64 {
        match self {
            Unit::One | Unit::Bytes => 1,
            Unit::Seconds => 1_000_000_000,
            Unit::Ratio => 1_000_000,
        }
    }

    /// The word used in the documentation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Unit::One => "1",
            Unit::Bytes => "bytes",
            Unit::Seconds => "seconds",
            Unit::Ratio => "ratio",
        }
    }

    /// The unit a name ends with.
    const fn of_name(name: &str) -> Unit {
        let name = without_suffix(name, "_total");
        if without_suffix(name, "_bytes").len() < name.len() {
            Unit::Bytes
        } else if without_suffix(name, "_seconds").len() < name.len() {
            Unit::Seconds
        } else if without_suffix(name, "_ratio").len() < name.len() {
            Unit::Ratio
        } else {
            Unit::One
        }
    }
}

/// How the values of one series on several cores become one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Added up; counters and histograms always.
    Sum,
    /// The smallest: "up" only if every core says so.
    Min,
    /// The largest: the worst state any core is in.
    Max,
}

/// Which part of the range of a histogram is exposed, and how fine. See [`crate::prometheus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Cells count in units 2^`shift` times coarser; moves the whole range up.
    pub shift: u32,
    /// Boundaries per octave: 1 is Prometheus native schema 0, 2 is schema 1.
    pub per_octave: u32,
    /// The first `le` is 2^`first` seconds.
    pub first: i32,
    /// The last finite `le` is 2^`last` seconds.
    pub last: i32,
}

impl Buckets {
    /// Whole requests and what they wait for: 0.95 us to 64 s by factors of the square root of two.
    pub const REQUEST: Buckets = Buckets { shift: 0, per_octave: 2, first: -20, last: 6 };
    /// Parts of a request, of which there are many series: 60 ns to 64 s by factors of two.
    pub const STAGE: Buckets = Buckets { shift: 0, per_octave: 1, first: -24, last: 6 };
    /// Lives of connections: 1 ms to 18 h by factors of two.
    pub const LIFETIME: Buckets = Buckets { shift: 10, per_octave: 1, first: -10, last: 16 };
}

/// One metric: what Prometheus calls a family. Declared only in the table.
#[derive(Debug)]
pub struct Family {
    /// Position in [`ALL`].
    pub(crate) index: usize,
    /// The heading it is documented under.
    pub section: &'static str,
    /// Full Prometheus name.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// Unit, from the end of the name.
    pub unit: Unit,
    /// Label names, in the order in which handles give their values.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
    /// How cores are merged.
    pub merge: Merge,
    /// Exposed buckets, for histograms.
    pub buckets: Buckets,
    /// Label sets that it holds at most; later ones are counted under `other`.
    pub label_sets_max: usize,
}

impl Family {
    const fn new(
        place: (usize, &'static str),
        kind: Kind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family {
        let (index, section) = place;
        let (unit, merge, buckets) = (Unit::of_name(name), Merge::Sum, Buckets::STAGE);
        let label_sets_max = METRIC_LABEL_SETS_MAX;
        Family { index, section, name, kind, unit, labels, help, merge, buckets, label_sets_max }
    }

    const fn counter(
        place: (usize, &'static str),
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family {
        Family::new(place, Kind::Counter, name, labels, help)
    }

    const fn gauge(
        place: (usize, &'static str),
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family {
        Family::new(place, Kind::Gauge, name, labels, help)
    }

    const fn histogram(
        place: (usize, &'static str),
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Family {
        Family::new(place, Kind::Histogram, name, labels, help)
    }

    const fn merged(mut self, merge: Merge) -> Family {
        self.merge = merge;
        self
    }

    const fn buckets(mut self, buckets: Buckets) -> Family {
        self.buckets = buckets;
        self
    }

    /// Has so many series for each of the names that the other labels have.
    const fn series_each(mut self, count: usize) -> Family {
        self.label_sets_max = METRIC_LABEL_SETS_MAX * count;
        self
    }

    /// The OpenTelemetry spelling: `gateway_lane_pool_waiters` is `gateway.lane_pool_waiters`.
    #[must_use]
    pub fn otel_name(&self) -> String {
        without_suffix(self.name, "_total").replacen('_', ".", 1)
    }

    /// A cell value in the exposed unit.
    #[must_use]
    pub fn scale(&self, cell: f64) -> f64 {
        cell / self.unit.divisor() as f64
    }
}

/// The family of that Prometheus name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Family> {
    ALL.iter().copied().find(|family| family.name == name)
}

/// `text` without `suffix`, or all of it.
const fn without_suffix<'a>(text: &'a str, suffix: &str) -> &'a str {
    let (bytes, end) = (text.as_bytes(), suffix.as_bytes());
    if bytes.len() < end.len() {
        return text;
    }
    let start = bytes.len() - end.len();
    let mut i = 0;
    while i < end.len() {
        if bytes[start + i] != end[i] {
            return text;
        }
        i += 1;
    }
    text.split_at(start).0
}

/// The text of `docs/METRICS.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    let mut section = "";
    for family in ALL {
        if family.section != section {
            section = family.section;
            let _ =
                writeln!(out, "\n## {section}\n\n| metric | kind | unit | labels | meaning |\n|---|---|---|---|---|");
        }
        let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(" ");
        let (name, kind, unit, help) = (family.name, family.kind.as_str(), family.unit.as_str(), family.help);
        let _ = writeln!(out, "| `{name}`<br>`{}` | {kind} | {unit} | {labels} | {help} |", family.otel_name());
    }
    out.push_str("\n## Labels\n\n| label | values |\n|---|---|\n");
    for (label, values) in LABELS {
        let _ = writeln!(out, "| `{label}` | {values} |");
    }
    out
}

const INTRODUCTION: &str = "\
# Metrics

Generated from the catalog in `telemetry/src/catalog/table.rs` (`cargo xtask generate`); do not edit by hand.

Served at `/metrics` on the admin address as Prometheus text 0.0.4. The second name of each row is the OpenTelemetry
spelling. Every label has a bounded set of values. A metric has at most 1,024 label sets, or with a class of HTTP responses
1,024 sets of the other labels; all further ones are counted under `other`. No label has a value that a client sent.

Values are summed over the workers, unless the metric has a `worker` label or the meaning says otherwise. If a reload
removes a listener or upstream, its series disappear after it has drained.

## Histograms

Histograms are log-linear: 16 buckets per octave, relative error of a reported quantile at most 2.7 %, from 60 ns to 64 s
(connection lifetimes: 61 us to 18 h). Longer durations are counted in `+Inf`, and `_sum` stays exact.

The exposed `le` boundaries are those of Prometheus native histograms, so classic and native queries agree: request
durations use powers of the square root of two (schema 1), stages and lifetimes powers of two (schema 0), in seconds,
with zero threshold 0. The native bucket with index i of schema 1 ends at `le` = 2^(i/2). The boundaries of a metric
never change at run time. They are boundaries of the internal buckets, too, so no count is interpolated.

For each request, `request = overhead + upstream`. The overhead is the sum of the stages `parse`, `policy`, `lane_wait`,
`encode` and `write`. Only a share of the requests has its stages timed (`telemetry.stage_sample`, by default 1 of 16),
so the series of the stages do not add up to that of the overhead.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        for (position, family) in ALL.iter().enumerate() {
            let name = family.name;
            assert_eq!(family.index, position);
            assert!(["weir_", "gateway_", "process_"].iter().any(|prefix| name.starts_with(prefix)), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}: `_total` marks a counter");
            if family.kind == Kind::Histogram {
                assert_eq!(family.unit, Unit::Seconds, "{name}: histograms hold durations");
            }
            assert!(family.help.ends_with('.') && !family.help.contains(['\n', '|']), "{name}: {}", family.help);
        }
    }

    /// The rules of `promtool check metrics` (its linter is promlint of client_golang): no units but the base ones,
    /// no kinds or suffixes of series in names, no names without a help text.
    #[test]
    fn promtool_has_nothing_to_say_about_names() {
        // As promlint has them: abbreviations of units, and units that are no base units.
        let units = [
            "s",
            "ms",
            "us",
            "ns",
            "sec",
            "b",
            "kb",
            "mb",
            "gb",
            "tb",
            "pb",
            "m",
            "h",
            "d",
            "milliseconds",
            "microseconds",
            "nanoseconds",
            "minutes",
            "hours",
            "days",
            "weeks",
            "kilobytes",
            "megabytes",
            "gigabytes",
            "terabytes",
            "bits",
            "kilobits",
            "kelvin",
            "percent",
            "percents",
            "kilobyte",
            "kibibytes",
            "mebibytes",
            "gibibytes",
            "millis",
        ];
        let kinds = ["counter", "gauge", "histogram", "summary"];
        for family in ALL {
            let name = family.name;
            for word in name.split('_') {
                assert!(!units.contains(&word), "{name}: {word} is no base unit");
                assert!(!kinds.contains(&word), "{name}: {word} is a kind");
            }
            let is_histogram = family.kind == Kind::Histogram;
            let has_suffix = ["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix));
            assert!(is_histogram || !has_suffix, "{name}: that is a series of a histogram");
            assert!(!family.labels.contains(&"le") && !family.labels.contains(&"quantile"), "{name}");
            assert!(!family.help.trim().is_empty(), "{name} has no help");
        }
    }

    #[test]
    fn names_are_unique_and_found() {
        for family in ALL {
            assert!(std::ptr::eq(find(family.name).unwrap(), family), "{} is declared twice", family.name);
        }
        assert!(find("weir_nothing").is_none());
    }

    #[test]
    fn every_label_is_explained_and_none_is_idle() {
        for family in ALL {
            for label in family.labels {
                assert!(LABELS.iter().any(|(name, _)| name == label), "{}: label {label}", family.name);
            }
        }
        for (label, _) in LABELS {
            assert!(ALL.iter().any(|family| family.labels.contains(label)), "label {label} is not used");
        }
    }

    #[test]
    fn the_opentelemetry_name_follows_one_rule() {
        assert_eq!(LANE_POOL_WAITERS.otel_name(), "gateway.lane_pool_waiters");
        assert_eq!(LANE_POOL_ACQUIRE_WAIT.otel_name(), "gateway.lane_pool_acquire_wait_seconds");
        assert_eq!(CONNECTIONS_TOTAL.otel_name(), "weir.connections");
        assert_eq!(LANE_POOL_ACQUIRE_WAIT.unit, Unit::Seconds);
        assert_eq!(WORKER_CPU_SECONDS.unit, Unit::Seconds);
        assert_eq!(CLIENT_READ_BYTES.unit, Unit::Bytes);
    }

    #[test]
    fn exposed_buckets_lie_within_the_cells() {
        for family in ALL.iter().filter(|family| family.kind == Kind::Histogram) {
            let Buckets { shift, per_octave, first, last } = family.buckets;
            assert!(matches!(per_octave, 1 | 2));
            let shift = i32::try_from(shift).unwrap();
            assert!(first >= -24 + shift && last <= 6 + shift && first < last, "{}", family.name);
        }
    }

    /// Set `WEIR_BLESS=1` to write the file instead of comparing it.
    #[test]
    fn the_committed_document_is_the_catalog() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == markdown(), "docs/METRICS.md is stale: run `cargo xtask generate`");
    }
}
