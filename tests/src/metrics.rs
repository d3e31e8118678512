//! Prometheus text as numbers.

use std::collections::{BTreeMap, BTreeSet};

/// One scrape.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Metrics {
    /// Parses the text format.
    ///
    /// # Panics
    /// On a line that is neither comment nor sample: a scraper would refuse it.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim);
        let samples = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| parse_sample(line).unwrap_or_else(|| panic!("no metric line: {line}")))
            .collect();
        Self { samples }
    }

    /// Sum over all label sets of a name; 0 if there is none.
    pub fn sum(&self, name: &str) -> f64 {
        self.sum_where(name, &[])
    }

    /// Sum over the label sets that carry all of `labels`.
    pub fn sum_where(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.samples
            .iter()
            .filter(|sample| sample.name == name)
            .filter(|sample| labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|it| it == value)))
            .map(|sample| sample.value)
            .sum()
    }

    /// Whether any label set of the name is there.
    pub fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.name == name)
    }

    /// Value by one label, for messages: `reason` → count.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut found = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.name == name) {
            let key = sample.labels.get(label).cloned().unwrap_or_default();
            *found.entry(key).or_insert(0.0) += sample.value;
        }
        found
    }

    /// The names of all samples.
    pub fn names(&self) -> BTreeSet<&str> {
        self.samples.iter().map(|sample| sample.name.as_str()).collect()
    }

    /// Number of label sets in all families together.
    pub fn series(&self) -> usize {
        self.samples.len()
    }

    /// Every label value of every sample.
    pub fn label_values(&self) -> impl Iterator<Item = &str> {
        self.samples.iter().flat_map(|sample| sample.labels.values().map(String::as_str))
    }
}

fn parse_sample(line: &str) -> Option<Sample> {
    let name_end = line.find(['{', ' '])?;
    let name = line[..name_end].to_owned();
    let mut labels = BTreeMap::new();
    let mut rest = &line[name_end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = parse_labels(inner, &mut labels)?;
    }
    // An exemplar may follow behind `#`.
    let value = rest.split_whitespace().next()?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        digits => digits.parse().ok()?,
    };
    Some(Sample { name, labels, value })
}

/// Reads `key="value",...}`; returns what stands behind the brace.
fn parse_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some(behind);
        }
        let (key, behind) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = behind.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.to_owned(), value);
        rest = &behind[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_with_and_without_labels_are_read() {
        let text = "# HELP a b\n# TYPE a counter\na_total{reason=\"x, \\\"y\\\"\",core=\"0\"} 3\n\
                    a_total{reason=\"z\"} 4 1700000000\nb 1e3\nc_bucket{le=\"+Inf\"} 7\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.sum("a_total"), 7.0);
        assert_eq!(metrics.sum_where("a_total", &[("reason", "x, \"y\"")]), 3.0);
        assert_eq!(metrics.sum("b"), 1000.0);
        assert_eq!(metrics.sum("absent"), 0.0);
        assert!(metrics.has("c_bucket") && !metrics.has("c"));
        assert_eq!(metrics.by("a_total", "reason").len(), 2);
        assert_eq!(metrics.series(), 4);
    }
}
