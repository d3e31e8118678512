//! Reads the few families of `/metrics` that the view needs: classic histogram buckets and plain gauges.

use std::collections::BTreeMap;

use super::histogram::Histogram;

/// Histograms by (family, value of its one label), and single values by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Exposition {
    histograms: BTreeMap<(&'static str, String), Histogram>,
    values: BTreeMap<&'static str, f64>,
}

/// Families whose buckets are read, with the label that tells their series apart.
const HISTOGRAMS: [(&str, &str); 3] =
    [(REQUEST_TIME, "listener"), (OVERHEAD_TIME, "listener"), (ACQUIRE_WAIT, "upstream")];

/// Time of whole requests, by listener.
pub(super) const REQUEST_TIME: &str = "weir_request_duration_seconds";
/// The gateway's own share of it, by listener.
pub(super) const OVERHEAD_TIME: &str = "weir_request_overhead_duration_seconds";
/// Time that exchanges waited for a lane, by upstream.
pub(super) const ACQUIRE_WAIT: &str = "gateway_lane_pool_acquire_wait_seconds";

/// Families of one value.
const VALUES: [&str; 3] = [RESIDENT_BYTES, OPEN_FDS, MAX_FDS];

/// Resident memory of the process.
pub(super) const RESIDENT_BYTES: &str = "process_resident_memory_bytes";
/// Descriptors open.
pub(super) const OPEN_FDS: &str = "process_open_fds";
/// Descriptors that may be open.
pub(super) const MAX_FDS: &str = "process_max_fds";

impl Exposition {
    /// Reads a whole text. Lines that it does not know or understand are passed over.
    pub(super) fn parse(text: &str) -> Self {
        let mut read = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            read.take(line);
        }
        read
    }

    pub(super) fn histogram(&self, family: &'static str, key: &str) -> Option<&Histogram> {
        self.histograms.get(&(family, key.to_owned()))
    }

    pub(super) fn value(&self, name: &'static str) -> Option<f64> {
        self.values.get(name).copied()
    }

    fn take(&mut self, line: &str) {
        let name_end = line.find(['{', ' ']).unwrap_or(line.len());
        let (name, rest) = line.split_at(name_end);
        if let Some(known) = VALUES.into_iter().find(|known| *known == name) {
            if let Some(value) = first_number(rest) {
                self.values.insert(known, value);
            }
            return;
        }
        let Some(family) = name.strip_suffix("_bucket") else {
            return;
        };
        let Some((known, key_label)) = HISTOGRAMS.into_iter().find(|(known, ..)| *known == family) else {
            return;
        };
        let Some((labels, value)) = labels_and_value(rest) else {
            return;
        };
        let (Some(key), Some(bound)) = (labels.get(key_label), labels.get("le")) else {
            return;
        };
        let Ok(bound) = bound.parse::<f64>() else {
            return;
        };
        self.histograms.entry((known, key.clone())).or_default().push(bound, value);
    }
}

/// The value of a sample line, before an optional timestamp.
fn first_number(text: &str) -> Option<f64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Takes `{a="b",c="d"} 1 1700000000` apart.
fn labels_and_value(text: &str) -> Option<(BTreeMap<&str, String>, f64)> {
    let mut labels = BTreeMap::new();
    let mut rest = text.strip_prefix('{')?.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, first_number(after)?));
        }
        let (name, after) = rest.split_once('=')?;
        let (value, after) = quoted(after.trim_start())?;
        labels.insert(name.trim(), value);
        rest = after.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
}

/// A value in quotation marks with the escapes of the text format, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_read_by_series_in_seconds() {
        let read = Exposition::parse(
            "# HELP weir_request_duration_seconds x\n\
             weir_request_duration_seconds_bucket{listener=\"a\",le=\"0.001\"} 5\n\
             weir_request_duration_seconds_bucket{listener=\"a\",le=\"+Inf\"} 6\n\
             weir_request_duration_seconds_bucket{listener=\"b\",le=\"+Inf\"} 2\n\
             weir_request_duration_seconds_sum{listener=\"a\"} 1\n\
             gateway_lane_pool_acquire_wait_seconds_bucket{upstream=\"u\",le=\"0.00025\"} 4 1700000000\n\
             process_open_fds 12\n",
        );
        let a = read.histogram(REQUEST_TIME, "a").expect("series a");
        assert_eq!(a.count(), 6.0);
        assert_eq!(a.quantile(0.5), Some(0.0006));
        assert_eq!(read.histogram(REQUEST_TIME, "b").map(Histogram::count), Some(2.0));
        let wait = read.histogram(ACQUIRE_WAIT, "u").expect("series u");
        assert_eq!(wait.quantile(1.0), Some(0.00025));
        assert_eq!(read.value(OPEN_FDS), Some(12.0));
        assert_eq!(read.value(MAX_FDS), None);
    }

    #[test]
    fn escapes_in_labels_are_undone() {
        let read =
            Exposition::parse("weir_request_duration_seconds_bucket{ le = \"+Inf\" , listener=\"a\\\"}\\\\ b\", } 3\n");
        assert!(read.histogram(REQUEST_TIME, "a\"}\\ b").is_some());
    }

    #[test]
    fn broken_lines_are_passed_over() {
        for line in [
            "weir_request_duration_seconds_bucket",
            "weir_request_duration_seconds_bucket{",
            "weir_request_duration_seconds_bucket{listener=\"a",
            "weir_request_duration_seconds_bucket{listener=\"a\\",
            "weir_request_duration_seconds_bucket{listener=\"a\",le=\"x\"} 1",
            "weir_request_duration_seconds_bucket{listener=\"a\",le=\"1\"} x",
            "weir_request_duration_seconds_bucket{le=\"1\"} 1",
            "process_open_fds",
            "process_open_fds many",
            "",
        ] {
            assert_eq!(Exposition::parse(line), Exposition::default(), "{line}");
        }
    }
}
