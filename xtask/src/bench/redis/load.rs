//! The load: one run of redis-benchmark, and what it printed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::row::{RedisRow, Verb};
use crate::bench::measure::Outcome;
use crate::bench::peers::Goal;
use crate::bench::resp::{Connection, Reply};
use weir_parties::process::{Launch, Process};

/// A tail is only told from at least this many samples: ten lie above p99.9.
const P999_REQUESTS_MIN: u64 = 10_000;

/// For one reply while keys are stored.
const PRELOAD_LIMIT: Duration = Duration::from_secs(10);

/// Runs `requests` requests of a row. Any error reply ends redis-benchmark with an error, and so this.
pub(crate) fn run(row: &RedisRow, goal: &Goal, requests: u64, cpu: &str, folder: &Path) -> Result<Outcome> {
    let mut words: Vec<String> = vec!["redis-benchmark".into(), "-h".into(), "127.0.0.1".into()];
    words.extend(["-p".into(), goal.port.to_string(), "-t".into(), row.verb.word().into()]);
    words.extend(["-d".into(), row.bytes.to_string(), "-c".into(), row.connections.to_string()]);
    words.extend(["-P".into(), row.pipeline.to_string(), "-n".into(), requests.to_string()]);
    words.extend(["--precision".into(), "3".into()]);
    if row.keys > 1 {
        words.extend(["-r".into(), row.keys.to_string()]);
    }
    if let Some(ca) = &goal.tls_ca {
        words.extend(["--tls".into(), "--cacert".into(), ca.to_string_lossy().into_owned()]);
    }
    let mut process = Process::start(Launch::new("redis-benchmark", Some(cpu), words), folder)?;
    let status = process.wait(time_limit(requests, row)).map_err(|error| anyhow!("{error:#}; {}", process.tail()))?;
    let output = process.output();
    // The error stands behind the progress line, which has no line end of its own.
    if let Some(at) = output.find("Error from server") {
        bail!("redis-benchmark: {}", output[at..].lines().next().unwrap_or_default().trim());
    }
    if !status.success() {
        bail!("redis-benchmark ended with {status}; {}", process.tail());
    }
    let outcome =
        parse(&output).with_context(|| format!("cannot read redis-benchmark's output; {}", process.tail()))?;
    if outcome.completed < requests {
        bail!("redis-benchmark completed {} of {requests} requests", outcome.completed);
    }
    Ok(outcome)
}

/// Stores the values that GET rows read, under the very keys that redis-benchmark asks for.
pub(crate) fn preload(row: &RedisRow, goal: &Goal, cpu: &str, folder: &Path) -> Result<()> {
    if row.keys > 1 {
        return preload_all(row, goal).context("cannot store the values that are read");
    }
    let writing = RedisRow { verb: Verb::Set, connections: 1, pipeline: 1, ..*row };
    run(&writing, goal, 1, cpu, folder).context("cannot store the value that is read")?;
    Ok(())
}

/// Each of the keys that `-r` makes.
fn preload_all(row: &RedisRow, goal: &Goal) -> Result<()> {
    let mut connection = Connection::open(goal.port, PRELOAD_LIMIT)?;
    let value = vec![b'x'; row.bytes];
    for key in 0..row.keys {
        let reply = connection.ask(&[b"SET", format!("key:{key:012}").as_bytes(), &value])?;
        if reply != Reply::Simple("OK".into()) {
            bail!("SET of key {key}: {reply:?}");
        }
    }
    Ok(())
}

/// Far beyond what a slow, busy machine takes: 2,000 requests (100 large ones) a second.
fn time_limit(requests: u64, row: &RedisRow) -> Duration {
    let slowest = if row.bytes > 4_096 { 100 } else { 2_000 };
    Duration::from_secs(20 + requests / slowest)
}

/// Reads the plain output (not `--csv`, which has no p99.9).
fn parse(output: &str) -> Result<Outcome> {
    // The progress line ends with a carriage return.
    let lines: Vec<&str> = output.split(['\n', '\r']).map(str::trim).collect();
    let completed = lines
        .iter()
        .find_map(|line| line.split_once(" requests completed in ")?.0.parse::<u64>().ok())
        .context("no line `requests completed`")?;
    let rate = lines
        .iter()
        .find_map(|line| line.strip_prefix("throughput summary: ")?.split(' ').next()?.parse::<f64>().ok())
        .context("no line `throughput summary`")?;
    let heads = lines.iter().position(|line| line.starts_with("avg") && line.ends_with("max"));
    let heads = heads.context("no latency summary")?;
    let names = lines[heads].split_whitespace();
    let values = lines.get(heads + 1).context("an empty latency summary")?.split_whitespace();
    let summary: Vec<(&str, &str)> = names.zip(values).collect();
    let field = |name: &str| -> Result<f64> {
        let value = summary.iter().find(|(head, _)| *head == name).with_context(|| format!("no {name}"))?.1;
        Ok(value.parse()?)
    };
    let points: Vec<(f64, f64)> = distribution(&lines);
    let p999 = (completed >= P999_REQUESTS_MIN).then(|| interpolate(&points, 99.9)).flatten();
    Ok(Outcome { completed, rate, p50: field("p50")?, p99: field("p99")?, p999 })
}

/// Points (percent, milliseconds) of the block `Latency by percentile distribution`.
fn distribution(lines: &[&str]) -> Vec<(f64, f64)> {
    let block = lines.iter().skip_while(|line| !line.starts_with("Latency by percentile")).skip(1);
    let point = |line: &&str| {
        let (percent, rest) = line.split_once("% <= ")?;
        Some((percent.parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    block.take_while(|line| !line.is_empty()).filter_map(point).collect()
}

/// Between the two points around `percent`, in a straight line.
fn interpolate(points: &[(f64, f64)], percent: f64) -> Option<f64> {
    let above = points.iter().position(|(at, _)| *at >= percent)?;
    let (high_at, high) = points[above];
    let Some((low_at, low)) = above.checked_sub(1).map(|below| points[below]) else { return Some(high) };
    Some(low + (high - low) * (percent - low_at) / (high_at - low_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by redis-benchmark 7.0.15, shortened.
    const OUTPUT: &str = "\
GET: rps=0.0 (overall: 0.0) avg_msec=-nan (overall: -nan)\rGET: rps=59236.0 (overall: 59000.0)\r====== GET ======
  20000 requests completed in 0.45 seconds
  50 parallel clients

Latency by percentile distribution:
0.000% <= 0.095 milliseconds (cumulative count 1)
50.000% <= 0.479 milliseconds (cumulative count 10028)
99.805% <= 9.519 milliseconds (cumulative count 19961)
99.902% <= 14.791 milliseconds (cumulative count 19981)
100.000% <= 14.831 milliseconds (cumulative count 20000)

Cumulative distribution of latencies:
100.000% <= 15.103 milliseconds (cumulative count 20000)

Summary:
  throughput summary: 44345.90 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.748     0.088     0.479     3.639     4.759    14.831
";

    #[test]
    fn the_plain_output_is_read() {
        let outcome = parse(OUTPUT).unwrap();
        assert_eq!((outcome.completed, outcome.rate), (20_000, 44_345.9));
        assert_eq!((outcome.p50, outcome.p99), (0.479, 4.759));
        let p999 = outcome.p999.unwrap();
        assert!(p999 > 14.6 && p999 < 14.791, "{p999}");
    }

    #[test]
    fn a_tail_without_samples_is_not_told() {
        let short = OUTPUT.replace("20000 requests completed", "9999 requests completed");
        assert_eq!(parse(&short).unwrap().p999, None);
    }

    #[test]
    fn an_output_that_was_cut_is_an_error() {
        for end in ["Summary", "throughput", "99.805%"] {
            let cut = &OUTPUT[..OUTPUT.find(end).unwrap()];
            assert!(parse(cut).is_err(), "{end}");
        }
    }
}
