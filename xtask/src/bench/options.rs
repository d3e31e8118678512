//! The command line of `bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "\
cargo xtask bench lab [--repeats N] [--seconds N] [--quick] [--out FILE]
                                         the lab against redis-benchmark: rate, cost, and a server that stalls
cargo xtask bench pubsub [--subscribers N] [--channels N] [--rate N] [--repeats N] [--seconds N] [--quick] [--out FILE]
                                         fan-out through Weir and without: delivery, subscriptions, CPU per message
cargo xtask bench cache [--connections N] [--pipeline N] [--repeats N] [--seconds N] [--quick] [--out FILE]
                                         the reply cache on and off, keys drawn as Zipf: hit rate, rate, CPU per request

  --repeats N          blocks per row (default 8; claims need at least 8)
  --seconds N          aimed length of one measured run, e.g. 2.5 (default 3)
  --quick              2 blocks of 0.4 s: shows that everything works, not how fast
  --out FILE           also write the report to this file, from the workspace root

Gateways side by side: `weir lab compare`; where the time goes: `weir lab profile`.
";

/// What was asked of `bench lab`.
#[derive(Clone, Debug)]
pub(crate) struct LabOptions {
    /// Blocks per row.
    pub(crate) blocks: usize,
    /// Length of one measurement.
    pub(crate) window: Duration,
    out: Option<PathBuf>,
}

impl LabOptions {
    /// Reads the words behind the subcommand.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { blocks: 8, window: Duration::from_secs(3), out: None };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word {
                "--repeats" => options.blocks = value()?.parse().context("--repeats needs a number")?,
                "--seconds" => options.window = seconds(value()?)?,
                "--quick" => (options.blocks, options.window) = (2, Duration::from_millis(400)),
                "--out" => options.out = Some(value()?.into()),
                _ => bail!("unknown option `{word}`\n\n{USAGE}"),
            }
        }
        if options.blocks == 0 {
            bail!("--repeats needs at least 1");
        }
        Ok(options)
    }

    /// See [`publish`].
    pub(crate) fn publish(&self, workspace: &Workspace, text: &str) -> Result<()> {
        publish(workspace, self.out.as_deref(), text)
    }
}

/// Prints a report, and writes it to `out` if that is given.
pub(crate) fn publish(workspace: &Workspace, out: Option<&Path>, text: &str) -> Result<()> {
    println!("{text}");
    if let Some(out) = out {
        let path = workspace.root.join(out);
        std::fs::create_dir_all(path.parent().context("--out names no file")?)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("bench: written to {}", path.display());
    }
    Ok(())
}

fn seconds(word: &str) -> Result<Duration> {
    let seconds: f64 = word.parse().context("--seconds needs a number")?;
    if !(0.1..=600.0).contains(&seconds) {
        bail!("--seconds takes 0.1 to 600");
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options = LabOptions::parse(&["--repeats", "3", "--seconds", "0.5"]).unwrap();
        assert_eq!((options.blocks, options.window), (3, Duration::from_millis(500)));
        for (words, part) in [
            (&["--repeats"][..], "--repeats needs a value"),
            (&["--repeats", "0"], "at least 1"),
            (&["--seconds", "NaN"], "0.1 to 600"),
            (&["--fast"], "`--fast`"),
        ] {
            assert!(LabOptions::parse(words).unwrap_err().to_string().contains(part), "{words:?}");
        }
    }
}
