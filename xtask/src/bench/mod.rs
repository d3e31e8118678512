//! What is measured beside the lab: fan-out of messages, the reply cache, and the lab itself against redis-benchmark. Gateways side
//! by side are `weir lab compare`.

mod cache;
mod lab;
mod machine;
mod measure;
mod options;
pub(crate) mod peers;
pub(crate) mod place;
mod pubsub;
mod redis;
pub(crate) mod resp;
mod row;

use anyhow::{Result, bail};

/// `cargo xtask bench <what> ...`. Fails on an error of an arm, never on a missed target: machines are noisy.
pub fn run(words: &[&str]) -> Result<()> {
    if words.is_empty() || words.iter().any(|word| ["help", "--help", "-h"].contains(word)) {
        print!("{}", options::USAGE);
        return Ok(());
    }
    match words {
        ["lab", rest @ ..] => lab::run(rest),
        ["pubsub", rest @ ..] => pubsub::run(rest),
        ["cache", rest @ ..] => cache::run(rest),
        _ => bail!("unknown benchmark `{}`\n\n{}", words.join(" "), options::USAGE),
    }
}
