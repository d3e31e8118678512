//! The load: one run of wrk, and what it printed.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use weir_parties::process::{Launch, Process};

use super::row::HttpRow;
use crate::bench::measure::Outcome;
use crate::bench::peers::Goal;
use crate::bench::place::Place;

/// After which wrk counts a reply as missing, which is an error of the run.
const REPLY_LIMIT: &str = "5s";
/// Beyond the length of a run.
const PATIENCE: Duration = Duration::from_secs(20);
/// wrk rounds the sum of what it read to two digits behind the point of the unit: at worst 0.5 %.
const ROUNDED: f64 = 0.99;

/// Asks for `seconds` over and over. Any failed connection, late reply or status that is no success fails the run.
pub(crate) fn run(row: &HttpRow, goal: &Goal, seconds: u64, place: &Place) -> Result<Outcome> {
    let scheme = if goal.tls_ca.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://127.0.0.1:{}/{}", goal.port, row.bytes);
    let (connections, length) = (row.connections.to_string(), format!("{seconds}s"));
    let words = ["wrk", "-t", "1", "-c", &connections, "-d", &length, "--timeout", REPLY_LIMIT, "--latency", &url];
    let mut process = Process::start(Launch::new("wrk", Some(&place.load_cpu), words), place.path())?;
    let limit = Duration::from_secs(seconds) + PATIENCE;
    let status = process.wait(limit).map_err(|error| anyhow!("{error:#}; {}", process.tail()))?;
    ensure!(status.success(), "wrk ended with {status}; {}", process.tail());
    let (outcome, read) = parse(&process.output()).with_context(|| process.tail())?;
    let bodies = outcome.completed as f64 * row.bytes as f64;
    ensure!(read >= bodies * ROUNDED, "wrk read {read} bytes, and the bodies alone have {bodies}");
    Ok(outcome)
}

/// The outcome, and the bytes that were read. What wrk counts as an error is one.
fn parse(output: &str) -> Result<(Outcome, f64)> {
    let lines: Vec<&str> = output.lines().map(str::trim).collect();
    for error in ["Socket errors:", "Non-2xx or 3xx responses:"] {
        if let Some(line) = lines.iter().find(|line| line.starts_with(error)) {
            bail!("wrk: {line}");
        }
    }
    let (completed, rest) =
        lines.iter().find_map(|line| line.split_once(" requests in ")).context("no line `requests in`")?;
    let read = rest.split_once(", ").and_then(|(_, read)| bytes(read.strip_suffix(" read")?));
    let rate = lines.iter().find_map(|line| line.strip_prefix("Requests/sec:")).context("no line `Requests/sec`")?;
    let completed = completed.parse()?;
    ensure!(completed > 0, "wrk completed no request");
    let outcome = Outcome {
        completed,
        rate: rate.trim().parse()?,
        p50: percentile(&lines, "50%")?,
        p99: percentile(&lines, "99%")?,
        p999: None,
    };
    Ok((outcome, read.context("no sum of bytes")?))
}

/// Milliseconds, from the block `Latency Distribution`.
fn percentile(lines: &[&str], name: &str) -> Result<f64> {
    let block = lines.iter().skip_while(|line| **line != "Latency Distribution").skip(1);
    let value = block.filter_map(|line| line.split_once(' ')).find(|(percent, _)| *percent == name);
    value.and_then(|(_, value)| milliseconds(value.trim())).with_context(|| format!("no latency at {name}"))
}

fn milliseconds(text: &str) -> Option<f64> {
    let (number, unit) = with_unit(text)?;
    match unit {
        "us" => Some(number / 1e3),
        "ms" => Some(number),
        "s" => Some(number * 1e3),
        "m" => Some(number * 6e4),
        _ => None,
    }
}

fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = with_unit(text)?;
    let power = ["B", "KB", "MB", "GB", "TB"].iter().position(|known| *known == unit)?;
    Some(number * 1024_f64.powi(i32::try_from(power).ok()?))
}

fn with_unit(text: &str) -> Option<(f64, &str)> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    Some((number.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by wrk 4.1.0.
    const OUTPUT: &str = "\
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

    #[test]
    fn the_figures_are_read_with_their_units() {
        let (outcome, read) = parse(OUTPUT).unwrap();
        assert_eq!((outcome.completed, outcome.rate), (27_088, 26_896.31));
        assert_eq!((outcome.p50, outcome.p99, outcome.p999), (0.95, 1_020.0, None));
        assert!((read - 7.52 * 1_048_576.0).abs() < 1.0, "{read}");
        assert_eq!(bytes("512B"), Some(512.0));
        assert_eq!(bytes("1.50GB"), Some(1.5 * 1_073_741_824.0));
        assert_eq!(milliseconds("1.5m"), Some(90_000.0));
        assert_eq!((bytes("5 apples"), milliseconds("12")), (None, None));
    }

    #[test]
    fn what_wrk_counts_as_an_error_fails_the_run() {
        for line in ["  Socket errors: connect 0, read 3, write 0, timeout 0", "  Non-2xx or 3xx responses: 12"] {
            let text = OUTPUT.replace("Requests/sec:", &format!("{line}\nRequests/sec:"));
            assert_eq!(parse(&text).unwrap_err().to_string(), format!("wrk: {}", line.trim()));
        }
    }

    #[test]
    fn an_output_that_was_cut_or_tells_of_nothing_is_an_error() {
        for end in ["99%", "27088", ", 7.52MB", "Requests/sec"] {
            let cut = &OUTPUT[..OUTPUT.find(end).unwrap()];
            assert!(parse(cut).is_err(), "{end}");
        }
        assert!(parse(&OUTPUT.replace("27088 requests", "0 requests")).is_err());
    }
}
