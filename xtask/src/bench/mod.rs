//! Benchmarks side by side: several gateways in one run on one machine, each with one thread, in front of the same
//! server, the arms interleaved. What is compared is CPU time per request; the load itself is a closed loop.
//!
//! The order of a run, in [`contest`]: [`options`] → [`place`] (folder, ports, CPUs) → [`peers`] started as a [`fleet`] →
//! per [`row`] and block one [`measure`]d load per arm → [`results`] → ratios and [`target`] → [`report`]. What a protocol
//! brings to it, rows, load and targets, is a [`contest::Contest`]: [`redis`],
//! [`http`].

mod contest;
mod fleet;
mod http;
mod machine;
mod measure;
mod options;
pub(crate) mod peers;
pub(crate) mod place;
mod profile;
mod redis;
pub mod relay;
mod report;
pub(crate) mod resp;
mod results;
mod row;
mod target;

use anyhow::{Result, bail};

/// `cargo xtask bench <what> ...`. Fails on an error of an arm, never on a missed target: machines are noisy.
pub fn run(words: &[&str]) -> Result<()> {
    if words.is_empty() || words.iter().any(|word| ["help", "--help", "-h"].contains(word)) {
        print!("{}", options::USAGE);
        return Ok(());
    }
    match words {
        ["redis", rest @ ..] => redis::run(rest),
        ["http", rest @ ..] => http::run(rest),
        ["profile", "http", rest @ ..] => profile::run_http(rest),
        ["profile", rest @ ..] => profile::run(rest),
        _ => bail!("unknown benchmark `{}`\n\n{}", words.join(" "), options::USAGE),
    }
}
