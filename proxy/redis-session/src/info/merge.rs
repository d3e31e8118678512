//! INFO of several shards, as if they were one server.
//!
//! Counts are added up (clients, memory, statistics, CPU, calls and errors, keys). For other values the worst one is shown
//! (ratios, percentiles of latency, flags and states of persistence). Values that make sense for one server only are those of
//! the first shard: version, ports, replication. The order of lines is that of the first shard.

use std::{collections::HashMap, fmt::Write};

/// A section, and of each of its fields the values of the shards that have it.
struct Section<'a> {
    name: &'a str,
    fields: Vec<(&'a str, Vec<&'a str>)>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Section<'a> {
    fn new(name: &'a str) -> Self {
        Self { name, fields: Vec::new(), places: HashMap::new() }
    }

    fn add(&mut self, field: &'a str, value: &'a str) {
        let place = *self.places.entry(field).or_insert_with(|| {
            self.fields.push((field, Vec::new()));
            self.fields.len() - 1
        });
        self.fields[place].1.push(value);
    }

    fn values(&self, field: &str) -> &[&'a str] {
        self.places.get(field).map_or(&[], |&place| &self.fields[place].1)
    }
}

/// The change of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    First,
    Sum,
    Max,
    /// The first that is not `ok`.
    Worst,
    /// The sum of the field without `_human`, for people.
    Human,
    /// `name=value,…`, each by its own rule.
    Parts,
}

fn rule(section: &str, field: &str) -> Rule {
    let is_any = |names: &[&str]| names.iter().any(|name| field.contains(name));
    match section {
        "Clients" | "Memory" | "Stats" | "CPU" if field.ends_with("_human") => Rule::Human,
        "Clients" | "Memory" | "Stats" | "CPU" => {
            // Not amounts, but how bad it is or how long it takes.
            match is_any(&["_ratio", "_perc", "_max_", "latest_fork", "_duration_usec", "exceeded_time", "paused_"]) {
                true => Rule::Max,
                false => Rule::Sum,
            }
        }
        "Commandstats" | "Errorstats" | "Latencystats" | "Keyspace" => Rule::Parts,
        "Persistence" if field.ends_with("_status") => Rule::Worst,
        "Persistence" if is_any(&["changes_since", "keys_", "_saves", "_rewrites"]) => Rule::Sum,
        "Persistence" => Rule::Max,
        _ => Rule::First,
    }
}

/// `texts` as one. Not empty.
pub(crate) fn merged(texts: &[&str]) -> String {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for text in texts {
        let mut at = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# ") {
                at = Some(*places.entry(name).or_insert_with(|| {
                    sections.push(Section::new(name));
                    sections.len() - 1
                }));
            } else if let (Some(at), Some((field, value))) = (at, line.split_once(':')) {
                sections[at].add(field, value);
            }
        }
    }
    let mut out = String::new();
    for section in &sections {
        let blank = if out.is_empty() { "" } else { "\r\n" };
        let _ = write!(out, "{blank}# {}\r\n", section.name);
        for (field, values) in &section.fields {
            let _ = write!(out, "{field}:{}\r\n", value(section, field, values));
        }
    }
    out
}

fn value(section: &Section<'_>, field: &str, values: &[&str]) -> String {
    let first = || values.first().copied().unwrap_or_default().to_owned();
    match rule(section.name, field) {
        Rule::First => first(),
        Rule::Sum => sum(values).unwrap_or_else(first),
        Rule::Max => max(values).unwrap_or_default().to_owned(),
        Rule::Worst => values.iter().find(|value| **value != "ok").map_or_else(first, |&value| value.to_owned()),
        Rule::Human => {
            let bytes = sum(section.values(field.trim_end_matches("_human")));
            bytes.and_then(|bytes| bytes.parse().ok()).map_or_else(first, human)
        }
        Rule::Parts => parts(values),
    }
}

/// A number in front of what may be its unit.
fn number(text: &str) -> Option<f64> {
    text.trim_end_matches('%').parse().ok()
}

/// More are not shown of a sum; a server has six.
const DECIMALS_MAX: usize = 17;

/// With as many decimals as the first; `None` if one is no number.
fn sum(values: &[&str]) -> Option<String> {
    let whole: Option<Vec<i128>> = values.iter().map(|value| value.parse().ok()).collect();
    if let Some(whole) = whole.filter(|whole| !whole.is_empty()) {
        return whole.into_iter().try_fold(0_i128, i128::checked_add).map(|sum| sum.to_string());
    }
    let decimals = values.first()?.split_once('.').map_or(0, |(_, decimals)| decimals.len().min(DECIMALS_MAX));
    let all: Option<Vec<f64>> = values.iter().map(|value| value.parse().ok()).collect();
    Some(format!("{:.decimals$}", all?.iter().sum::<f64>()))
}

fn max<'a>(values: &[&'a str]) -> Option<&'a str> {
    let amount = |value: &&str| number(value).unwrap_or(f64::NEG_INFINITY);
    // The first of those that are alike.
    values.iter().rev().copied().max_by(|one, other| amount(one).total_cmp(&amount(other)))
}

/// Redis's own form (`bytesToHuman` of `util.c`).
fn human(bytes: u64) -> String {
    let units = [("B", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40), ("P", 50)];
    let unit = units.iter().rev().find(|(_, shift)| bytes >> shift > 0).unwrap_or(&units[0]);
    match unit {
        (name, 0) => format!("{bytes}{name}"),
        (name, shift) => format!("{:.2}{name}", bytes as f64 / (1_u64 << shift) as f64),
    }
}

/// Merges `calls=1,usec=2,…` of each shard.
fn parts(values: &[&str]) -> String {
    let mut all = Section::new("");
    let parts = values.iter().flat_map(|value| value.split(',')).filter_map(|part| part.split_once('='));
    parts.for_each(|(name, value)| all.add(name, value));
    let total = |name: &str| all.values(name).iter().filter_map(|value| number(value)).sum::<f64>();
    let part = |(name, values): &(&str, Vec<&str>)| {
        let value = match *name {
            "usec_per_call" => format!("{:.2}", total("usec") / total("calls").max(1.0)),
            "avg_ttl" => {
                // Weighted by the keys that have a time to live.
                let weighted = values.iter().zip(all.values("expires"));
                let ttl: f64 = weighted.filter_map(|(ttl, count)| Some(number(ttl)? * number(count)?)).sum();
                format!("{:.0}", ttl / total("expires").max(1.0))
            }
            name if name.starts_with('p') => max(values).unwrap_or_default().to_owned(),
            _ => sum(values).unwrap_or_else(|| values[0].to_owned()),
        };
        format!("{name}={value}")
    };
    all.fields.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_added_and_the_worst_is_shown() {
        let one = "# Server\r\nredis_version:7.0.15\r\ntcp_port:1\r\n\r\n# Memory\r\nused_memory:1048576\r\n\
                   used_memory_human:1.00M\r\nmaxmemory_policy:noeviction\r\nmem_fragmentation_ratio:1.20\r\n\
                   used_memory_peak_perc:97.10%\r\n\r\n# Persistence\r\nloading:0\r\nrdb_last_bgsave_status:ok\r\n\
                   rdb_changes_since_last_save:3\r\n\r\n# CPU\r\nused_cpu_sys:1.250000\r\n\r\n\
                   # Keyspace\r\ndb0:keys=3,expires=1,avg_ttl=100\r\n";
        let other = "# Server\r\nredis_version:7.0.15\r\ntcp_port:2\r\n\r\n# Memory\r\nused_memory:2097152\r\n\
                     used_memory_human:2.00M\r\nmaxmemory_policy:noeviction\r\nmem_fragmentation_ratio:3.40\r\n\
                     used_memory_peak_perc:9.90%\r\n\r\n# Persistence\r\nloading:1\r\nrdb_last_bgsave_status:err\r\n\
                     rdb_changes_since_last_save:4\r\n\r\n# CPU\r\nused_cpu_sys:0.500001\r\n\r\n\
                     # Keyspace\r\ndb0:keys=7,expires=3,avg_ttl=200\r\ndb4:keys=1,expires=0,avg_ttl=0\r\n";
        let wanted = "# Server\r\nredis_version:7.0.15\r\ntcp_port:1\r\n\r\n# Memory\r\nused_memory:3145728\r\n\
                      used_memory_human:3.00M\r\nmaxmemory_policy:noeviction\r\nmem_fragmentation_ratio:3.40\r\n\
                      used_memory_peak_perc:97.10%\r\n\r\n# Persistence\r\nloading:1\r\nrdb_last_bgsave_status:err\r\n\
                      rdb_changes_since_last_save:7\r\n\r\n# CPU\r\nused_cpu_sys:1.750001\r\n\r\n\
                      # Keyspace\r\ndb0:keys=10,expires=4,avg_ttl=175\r\ndb4:keys=1,expires=0,avg_ttl=0\r\n";
        assert_eq!(merged(&[one, other]), wanted);
    }

    #[test]
    fn calls_errors_and_latencies_are_those_of_all() {
        let one = "# Commandstats\r\ncmdstat_get:calls=1,usec=10,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n\
                   # Errorstats\r\nerrorstat_ERR:count=1\r\n# Latencystats\r\nlatency_percentiles_usec_get:p50=1.5,p99=9.2\r\n";
        let other = "# Commandstats\r\ncmdstat_get:calls=3,usec=2,usec_per_call=0.67,rejected_calls=1,failed_calls=0\r\n\
                     cmdstat_set:calls=1,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n\
                     # Errorstats\r\nerrorstat_OOM:count=2\r\n# Latencystats\r\nlatency_percentiles_usec_get:p50=2.5,p99=3.1\r\n";
        let wanted = "# Commandstats\r\ncmdstat_get:calls=4,usec=12,usec_per_call=3.00,rejected_calls=1,failed_calls=0\r\n\
                      cmdstat_set:calls=1,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n\r\n\
                      # Errorstats\r\nerrorstat_ERR:count=1\r\nerrorstat_OOM:count=2\r\n\r\n\
                      # Latencystats\r\nlatency_percentiles_usec_get:p50=2.5,p99=9.2\r\n";
        assert_eq!(merged(&[one, other]), wanted);
    }

    #[test]
    fn bytes_are_formatted_as_in_redis() {
        let cases = [(0, "0B"), (200, "200B"), (1024, "1.00K"), (940_976, "918.92K"), (25_276_510_208, "23.54G")];
        cases.iter().for_each(|&(bytes, text)| assert_eq!(human(bytes), text));
    }

    #[test]
    fn impossible_info_does_no_harm() {
        let huge = format!("# Stats\r\na:{}\r\n", i128::MAX);
        assert_eq!(merged(&[&huge, &huge]), huge);
        let exact = format!("# CPU\r\na:1.{}\r\n", "0".repeat(70_000));
        assert_eq!(merged(&[&exact, "# CPU\r\na:1\r\n"]), format!("# CPU\r\na:2.{}\r\n", "0".repeat(17)));
    }

    #[test]
    fn invalid_fields_are_left_out_and_nothing_panics() {
        assert_eq!(merged(&["", "x\r\n"]), "");
        assert_eq!(merged(&["# Stats\r\na:x\r\n", "# Stats\r\na:1\r\nnonsense\r\n"]), "# Stats\r\na:x\r\n");
        assert_eq!(merged(&["# Keyspace\r\ndb0:\r\n", "# Keyspace\r\ndb0:keys=1\r\n"]), "# Keyspace\r\ndb0:keys=1\r\n");
    }
}
