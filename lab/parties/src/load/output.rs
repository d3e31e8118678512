//! How the output of a load program is read: patterns of words.
//!
//! The output is a row of words that blanks and line ends divide, and so is a pattern. `{value}` in a pattern is the number that
//! is looked for, perhaps with a unit behind it and other letters around it; `_` is any one word; all else stands for itself. The
//! first place that fits counts.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

const VALUE: &str = "{value}";
const ANY: &str = "_";

/// Where its figures stand.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Requests that got a reply without an error.
    pub completed: String,
    /// Requests per second.
    pub rate: String,
    /// Median latency; absent: it does not tell.
    pub p50: Option<String>,
    /// 99th percentile.
    pub p99: Option<String>,
    /// Unit of latencies that have none: `us`, `ms` or `s`.
    pub unit: Option<String>,
    /// Bytes that were read, as a proof that bodies came.
    pub read: Option<String>,
    /// Patterns whose presence is an error; with `{value}`, only if that is above 0.
    pub errors: Vec<String>,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadFigures {
    /// Requests that got a reply without an error, at least one.
    pub completed: u64,
    /// Requests per second.
    pub rate: f64,
    /// Median latency, microseconds; `None`: the program does not tell.
    pub p50_us: Option<u64>,
    /// 99th percentile; the same.
    pub p99_us: Option<u64>,
    /// Bytes that were read, rounded as the program rounds; the same.
    pub read: Option<f64>,
}

impl Output {
    /// Whether it can be read at all.
    pub(super) fn check(&self, file: &str) -> Result<()> {
        let needed = [("completed", Some(&self.completed)), ("rate", Some(&self.rate))];
        let optional = [("p50", self.p50.as_ref()), ("p99", self.p99.as_ref()), ("read", self.read.as_ref())];
        for (key, pattern) in needed.into_iter().chain(optional) {
            let is_one = pattern.is_none_or(|pattern| pattern.matches(VALUE).count() == 1);
            ensure!(is_one, "{file}: `output.{key}` has {VALUE} once, where its number stands");
        }
        let is_unit = self.unit.as_ref().is_none_or(|unit| micros(1.0, unit).is_some());
        ensure!(is_unit, "{file}: `output.unit` is us, ms, s or m");
        ensure!(
            self.errors.iter().all(|error| !error.trim().is_empty()),
            "{file}: an entry of `output.errors` is empty"
        );
        Ok(())
    }

    /// The line with the first thing that is an error.
    pub(super) fn error(&self, output: &str) -> Option<String> {
        self.errors.iter().find_map(|pattern| {
            let found = find(output, pattern)?;
            let is_none = found.value.is_some_and(|value| split(value).is_some_and(|(number, _)| number == 0.0));
            let line = output[found.at..].lines().next().unwrap_or_default().trim();
            (!is_none).then(|| line.to_owned())
        })
    }

    /// Its figures.
    pub(super) fn read(&self, output: &str) -> Result<LoadFigures> {
        let number = |pattern: &str| {
            let value = find(output, pattern).and_then(|found| found.value);
            value.and_then(split).with_context(|| format!("there is no `{pattern}`"))
        };
        let latency = |pattern: &Option<String>| {
            let Some(pattern) = pattern else { return Ok(None) };
            let (number, unit) = number(pattern)?;
            let unit = if unit.is_empty() { self.unit.as_deref().unwrap_or_default() } else { unit };
            let micros = micros(number, unit).with_context(|| format!("`{pattern}` has the unit `{unit}`"))?;
            Ok::<_, anyhow::Error>(Some(micros.round() as u64))
        };
        let completed = number(&self.completed)?.0 as u64;
        ensure!(completed > 0, "no request was completed");
        let read = match &self.read {
            None => None,
            Some(pattern) => {
                let (number, unit) = number(pattern)?;
                Some(bytes(number, unit).with_context(|| format!("`{pattern}` has the unit `{unit}`"))?)
            }
        };
        let (p50_us, p99_us) = (latency(&self.p50)?, latency(&self.p99)?);
        Ok(LoadFigures { completed, rate: number(&self.rate)?.0, p50_us, p99_us, read })
    }
}

/// Where a pattern was found.
struct PatternMatch<'o> {
    /// Bytes in front of it.
    at: usize,
    /// Text at `{value}`; `None` in a pattern without one.
    value: Option<&'o str>,
}

/// The first place that fits.
fn find<'o>(output: &'o str, pattern: &str) -> Option<PatternMatch<'o>> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let pattern: Vec<&str> = pattern.split_whitespace().collect();
    words.windows(pattern.len()).find_map(|window| {
        let mut value = None;
        for (word, wanted) in window.iter().zip(&pattern) {
            match wanted.split_once(VALUE) {
                Some((before, behind)) => {
                    let inner = word.strip_prefix(before)?.strip_suffix(behind)?;
                    split(inner)?;
                    value = Some(inner);
                }
                None if *wanted == ANY || word == wanted => {}
                None => return None,
            }
        }
        // A word is a part of the output: how far it is from the begin of it is where it stands.
        let at = window[0].as_ptr() as usize - output.as_ptr() as usize;
        Some(PatternMatch { at, value })
    })
}

/// A number and the letters behind it, without what divides it from the next words.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = text[end..].trim_end_matches([',', ';', ')']);
    Some((text[..end].parse().ok()?, unit))
}

fn micros(number: f64, unit: &str) -> Option<f64> {
    Some(match unit {
        "us" => number,
        "ms" => number * 1e3,
        "s" => number * 1e6,
        "m" => number * 6e7,
        _ => return None,
    })
}

fn bytes(number: f64, unit: &str) -> Option<f64> {
    if unit.is_empty() {
        return Some(number);
    }
    let power = ["B", "KB", "MB", "GB", "TB"].iter().position(|known| *known == unit)?;
    Some(number * 1024_f64.powi(i32::try_from(power).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;

    /// Printed by wrk 4.1.0.
    const WRK: &str = "\
Running 1s test @ http://127.0.0.1:20000/128
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.45ms    1.98ms  20.15ms   72.30%
    Req/Sec    27.11k     2.25k   30.35k    70.00%
  Latency Distribution
     50%  950.00us
     75%    2.45ms
     90%    5.00ms
     99%    1.02s 
  27088 requests in 1.01s, 7.52MB read
Requests/sec:  26896.31
Transfer/sec:      7.46MB
";

    /// Printed by redis-benchmark 7.0.15, shortened.
    const REDIS_BENCHMARK: &str = "\
GET: rps=0.0 (overall: 0.0) avg_msec=-nan (overall: -nan)\rGET: rps=59236.0 (overall: 59000.0)\r====== GET ======
  20000 requests completed in 0.45 seconds
  50 parallel clients

Latency by percentile distribution:
0.000% <= 0.095 milliseconds (cumulative count 1)
50.000% <= 0.479 milliseconds (cumulative count 10028)

Summary:
  throughput summary: 44345.90 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.748     0.088     0.479     3.639     4.759    14.831
";

    /// Printed by h2load of nghttp2 1.52.0, shortened.
    const H2LOAD: &str = "\
starting benchmark...
spawning thread #0: 2 total client(s). 200 total requests
Application protocol: h2c
progress: 100% done

finished in 10.55ms, 18960.94 req/s, 1.51MB/s
requests: 200 total, 200 started, 200 done, 200 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 200 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 16.31KB (16698) total, 9.57KB (9800) headers (space savings 50.51%), 3.13KB (3200) data
                     min         max         mean         sd        +/- sd
time for request:       69us       313us        99us        38us    96.00%
time for connect:      234us      5.20ms      2.72ms      3.51ms   100.00%
";

    fn output(name: &str) -> Output {
        Load::named(name).expect("it is there").output
    }

    #[test]
    fn wrk_is_read_with_its_units() {
        let figures = output("wrk").read(WRK).expect("whole");
        assert_eq!((figures.completed, figures.rate), (27_088, 26_896.31));
        assert_eq!((figures.p50_us, figures.p99_us), (Some(950), Some(1_020_000)));
        assert!((figures.read.expect("told") - 7.52 * 1_048_576.0).abs() < 1.0, "{figures:?}");
        assert_eq!(output("wrk").error(WRK), None);
    }

    #[test]
    fn redis_benchmark_is_read_behind_its_progress() {
        let figures = output("redis-benchmark").read(REDIS_BENCHMARK).expect("whole");
        let wanted =
            LoadFigures { completed: 20_000, rate: 44_345.9, p50_us: Some(479), p99_us: Some(4_759), read: None };
        assert_eq!(figures, wanted);
        assert_eq!(output("redis-benchmark").error(REDIS_BENCHMARK), None);
    }

    #[test]
    fn h2load_tells_no_percentiles() {
        let figures = output("h2load").read(H2LOAD).expect("whole");
        let wanted = LoadFigures { completed: 200, rate: 18_960.94, p50_us: None, p99_us: None, read: Some(3_200.0) };
        assert_eq!((figures, output("h2load").error(H2LOAD)), (wanted, None));
    }

    #[test]
    fn errors_counted_by_a_program_fail_the_run() {
        for line in ["Socket errors: connect 0, read 3, write 0, timeout 0", "Non-2xx or 3xx responses: 12"] {
            let text = WRK.replace("Requests/sec:", &format!("  {line}\nRequests/sec:"));
            assert_eq!(output("wrk").error(&text).as_deref(), Some(line));
        }
        for (right, wrong) in [("0 failed,", "20 failed,"), ("0 4xx,", "7 4xx,"), ("0 timeout", "1 timeout")] {
            let line = output("h2load").error(&H2LOAD.replace(right, wrong)).expect("an error");
            assert!(line.starts_with(wrong), "{line}");
        }
        let text = "SET: rps=0.0 (overall: 0.0)\rError from server: ERR no\n";
        assert_eq!(output("redis-benchmark").error(text).as_deref(), Some("Error from server: ERR no"));
    }

    #[test]
    fn an_output_that_was_cut_or_tells_of_nothing_is_an_error() {
        for end in ["99%", "27088", ", 7.52MB", "Requests/sec"] {
            let cut = &WRK[..WRK.find(end).expect("in it")];
            assert!(output("wrk").read(cut).is_err(), "{end}");
        }
        for end in ["Summary", "throughput", "  4.759"] {
            let cut = &REDIS_BENCHMARK[..REDIS_BENCHMARK.find(end).expect("in it")];
            assert!(output("redis-benchmark").read(cut).is_err(), "{end}");
        }
        assert!(output("wrk").read(&WRK.replace("27088 requests", "0 requests")).is_err());
    }

    /// Printed by pgbench 15.18, shortened.
    const PGBENCH: &str = "\
pgbench (15.18 (Debian 15.18-0+deb12u1))
transaction type: <builtin: select only>
scaling factor: 1
query mode: simple
number of clients: 8
number of transactions actually processed: 60211
number of failed transactions: 0 (0.000%)
latency average = 0.398 ms
initial connection time = 8.311 ms
tps = 20091.862517 (without initial connection time)
";

    #[test]
    fn pgbench_tells_no_percentiles_and_its_failures_fail_the_run() {
        let output = output("pgbench");
        let figures = output.read(PGBENCH).expect("whole");
        let wanted = LoadFigures { completed: 60_211, rate: 20_091.862517, p50_us: None, p99_us: None, read: None };
        assert_eq!((figures, output.error(PGBENCH)), (wanted, None));
        let failed = output.error(&PGBENCH.replace(": 0 (", ": 3 ("));
        assert_eq!(failed.as_deref(), Some("failed transactions: 3 (0.000%)"));
        let refused = output.error("pgbench: error: client 0 aborted in command 1: no\n");
        assert_eq!(refused.as_deref(), Some("pgbench: error: client 0 aborted in command 1: no"));
    }

    #[test]
    fn units_are_those_of_the_programs() {
        assert_eq!(
            (split("1.50GB"), split("20000,"), split("apples")),
            (Some((1.5, "GB")), Some((20_000.0, "")), None)
        );
        assert_eq!((bytes(1.5, "GB"), bytes(5.0, "apples")), (Some(1.5 * 1_073_741_824.0), None));
        assert_eq!((micros(1.5, "m"), micros(1.0, "h")), (Some(9e7), None));
    }
}
