//! Prometheus text exposition, format version 0.0.4.
//!
//! A histogram becomes cumulative `_bucket` lines whose `le` boundaries are those of native histograms: powers of two
//! seconds (schema 0) or of the square root of two (schema 1), the same set at every scrape. They coincide with edges
//! of the internal buckets, so every count is exact. `le` is inclusive. `_count` always equals the `+Inf` bucket.

use std::borrow::Cow;
use std::f64::consts::SQRT_2;
use std::fmt::Write as _;

use crate::catalog::Family;
use crate::histogram::{HistogramSnapshot, exp2};
use crate::snapshot::{FamilySnapshot, SeriesSnapshot, Snapshot, Value};

/// The `Content-Type` of what [`render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The exponent of the lowest edge of unshifted cells, 2^-24 s.
const FIRST_EXPONENT: i32 = -24;

/// The snapshot as text. Families without series are left out.
#[must_use]
pub fn render(snapshot: &Snapshot) -> String {
    let mut out = String::with_capacity(64 * 1024);
    for entry in snapshot.families() {
        if !entry.series.is_empty() {
            render_family(&mut out, entry);
        }
    }
    out
}

fn render_family(out: &mut String, entry: &FamilySnapshot) {
    let family = entry.family;
    let (name, kind) = (family.name, family.kind.as_str());
    let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", escaped_help(family.help));
    for series in &entry.series {
        let labels = labels(family, series);
        match &series.value {
            Value::Counter(count) if family.unit.divisor() == 1 => line(out, name, "", &labels, count),
            Value::Counter(count) => line(out, name, "", &labels, family.scale(*count as f64)),
            Value::Gauge(value) if family.unit.divisor() == 1 => line(out, name, "", &labels, value),
            Value::Gauge(value) => line(out, name, "", &labels, family.scale(*value as f64)),
            Value::Histogram(histogram) => render_histogram(out, family, &labels, histogram),
        }
    }
}

fn render_histogram(out: &mut String, family: &Family, labels: &str, histogram: &HistogramSnapshot) {
    let name = family.name;
    let open = if labels.is_empty() { String::new() } else { format!("{labels},") };
    let mut not_above = histogram.cumulative();
    for (bound, edge) in boundaries(family) {
        let _ = writeln!(out, "{name}_bucket{{{open}le=\"{bound}\"}} {}", not_above(edge));
    }
    let count = histogram.count();
    let _ = writeln!(out, "{name}_bucket{{{open}le=\"+Inf\"}} {count}");
    line(out, name, "_sum", labels, family.scale(histogram.sum() as f64));
    line(out, name, "_count", labels, count);
}

/// The `le` boundaries of a family in seconds, each with its distance in half octaves from the lowest edge.
fn boundaries(family: &Family) -> impl Iterator<Item = (f64, usize)> {
    let buckets = family.buckets;
    let step = if buckets.per_octave == 2 { 1 } else { 2 };
    let lowest = 2 * (FIRST_EXPONENT + buckets.shift.cast_signed());
    (2 * buckets.first..=2 * buckets.last).step_by(step).map(move |half_octave| {
        // Multiplying by a power of two is exact, so the text of a boundary is the same on every machine.
        let root = if half_octave.rem_euclid(2) == 1 { SQRT_2 } else { 1.0 };
        let bound = root * exp2(half_octave.div_euclid(2));
        let edge = usize::try_from(half_octave - lowest).unwrap_or(0);
        (bound, edge)
    })
}

fn line(out: &mut String, name: &str, suffix: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = match labels.is_empty() {
        true => writeln!(out, "{name}{suffix} {value}"),
        false => writeln!(out, "{name}{suffix}{{{labels}}} {value}"),
    };
}

/// `name="value"` pairs, without braces.
fn labels(family: &Family, series: &SeriesSnapshot) -> String {
    let mut out = String::new();
    for (name, value) in family.labels.iter().zip(&series.labels) {
        let comma = if out.is_empty() { "" } else { "," };
        let _ = write!(out, "{comma}{name}=\"{}\"", escaped_value(value));
    }
    out
}

/// Label values escape backslash, double quote and line feed.
fn escaped_value(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '"', '\n']) {
        return text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into();
    }
    text.into()
}

/// HELP texts escape backslash and line feed.
fn escaped_help(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '\n']) {
        return text.replace('\\', "\\\\").replace('\n', "\\n").into();
    }
    text.into()
}

#[cfg(test)]
mod tests;
