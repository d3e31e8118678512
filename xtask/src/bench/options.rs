//! The command line of `bench`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::http::front::Front;
use super::http::origin::OriginKind;
use super::http::row::HttpRow;
use super::peers::backend::Behind;
use super::redis::row::RedisRow;
use super::row::{Row, named};
use crate::workspace::Workspace;

pub(crate) const USAGE: &str = "\
cargo xtask bench redis [option ...]     gateways side by side in front of one Redis server
cargo xtask bench http [option ...]      the same in front of one HTTP/1.1 origin
cargo xtask bench profile [http] [option ...]
                                         where Weir's time goes in the row get-64-c50-p1, or h1-128-c64

  --rows WORDS         rows whose id holds one of these words, divided by commas (default: all)
  --arms WORDS         only these arms: weir envoy twemproxy haproxy-tcp floor direct
                       weir-polling weir-tls weir-telemetry-off; of `bench http`: weir nginx haproxy envoy floor
                       direct weir-polling weir-telemetry-off (default: all)
  --behind WHAT        what stands behind the gateways: one (default), shards (3 servers, keys placed by Maglev; by
                       twemproxy with ketama) or cluster (a Redis Cluster of 3 nodes)
  --origin WHAT        of `bench http`: lab (`weir lab origin http`, default) or nginx
  --front WHAT         of `bench http`, what clients speak: plain (HTTP/1.1, default), routes (with 100 routes and a line
                       of the access log for every request), tls, http2 (in clear text) or websocket
  --repeats N          blocks per row (default 8; claims need at least 8)
  --seconds N          aimed length of one measured run, e.g. 2.5 (default 3); wrk knows whole seconds only
  --quick              2 blocks of 0.4 s: shows that everything works, not how fast
  --out FILE           also write the report to this file, from the workspace root
  --envoy PATH         the envoy program, if it is neither on the PATH nor of `cargo xtask setup peers`
  --weir-command LINE  how Weir is started, words divided by blanks, with {config} {port} {origin}
                       (default: a fresh release build, `weir run --config {config}`)
  --show-config        print the configuration of every arm and end

Example: cargo xtask bench redis --rows get-64 --arms weir,envoy --out docs/results/redis.md
";

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options<R> {
    /// Rows in the order of the table.
    pub(crate) rows: Vec<R>,
    /// Arms in the order of a block.
    pub(crate) arms: Vec<&'static str>,
    /// Blocks per row.
    pub(crate) blocks: usize,
    /// Aimed length of one run.
    pub(crate) run_length: Duration,
    /// Where the report is written to.
    pub(crate) out: Option<PathBuf>,
    /// The envoy program.
    pub(crate) envoy: Option<PathBuf>,
    /// How Weir is started.
    pub(crate) weir_command: Option<String>,
    /// Print configurations only.
    pub(crate) show_config: bool,
}

/// The words as they were given: what they choose from depends on the protocol.
struct Given<'a> {
    rows: Option<&'a str>,
    arms: Option<&'a str>,
    /// What only one protocol has: words, and their values.
    own: Vec<(&'a str, &'a str)>,
    rest: Options<()>,
}

impl<'a> Given<'a> {
    /// The value of an option that only one protocol has.
    fn own(&self, word: &str) -> Option<&'a str> {
        self.own.iter().rev().find(|(known, _)| *known == word).map(|(_, value)| *value)
    }

    /// Reads the words behind the subcommand; `own` are the options that only this protocol has.
    fn read(words: &[&'a str], own: &[&str]) -> Result<Self> {
        let rest = Options {
            rows: Vec::new(),
            arms: Vec::new(),
            blocks: 8,
            run_length: Duration::from_secs(3),
            out: None,
            envoy: None,
            weir_command: None,
            show_config: false,
        };
        let mut given = Self { rows: None, arms: None, own: Vec::new(), rest };
        let options = &mut given.rest;
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word {
                "--rows" => given.rows = Some(value()?),
                "--arms" => given.arms = Some(value()?),
                "--repeats" => options.blocks = value()?.parse().context("--repeats needs a number")?,
                "--seconds" => options.run_length = seconds(value()?)?,
                "--quick" => (options.blocks, options.run_length) = (2, Duration::from_millis(400)),
                "--out" => options.out = Some(value()?.into()),
                "--envoy" => options.envoy = Some(value()?.into()),
                "--weir-command" => options.weir_command = Some(value()?.to_owned()),
                "--show-config" => options.show_config = true,
                _ if own.contains(&word) => {
                    let value = value()?;
                    given.own.push((word, value));
                }
                _ => bail!("unknown option `{word}`\n\n{USAGE}"),
            }
        }
        if options.blocks == 0 {
            bail!("--repeats needs at least 1");
        }
        Ok(given)
    }

    /// Chooses from what there is.
    fn choose<R: Row>(self, all_rows: &[R], all_arms: &[&'static str]) -> Result<Options<R>> {
        let rows = self.rows.map_or_else(|| Ok(all_rows.to_vec()), |words| named(words, all_rows))?;
        let arms = self.arms.map_or_else(|| Ok(all_arms.to_vec()), |words| arms(words, all_arms))?;
        let Options { blocks, run_length, out, envoy, weir_command, show_config, .. } = self.rest;
        Ok(Options { rows, arms, blocks, run_length, out, envoy, weir_command, show_config })
    }
}

impl Options<RedisRow> {
    /// Of `bench redis`, with what stands behind the gateways.
    pub(crate) fn of_redis(words: &[&str]) -> Result<(Self, Behind)> {
        let given = Given::read(words, &["--behind"])?;
        let behind = given.own("--behind").map_or(Ok(Behind::One), Behind::named)?;
        Ok((given.choose(&behind.rows(), behind.arms())?, behind))
    }
}

impl Options<HttpRow> {
    /// Of `bench http`, with the program that is the origin.
    pub(crate) fn of_http(words: &[&str]) -> Result<(Self, Front, OriginKind)> {
        let given = Given::read(words, &["--origin", "--front"])?;
        let origin = given.own("--origin").map_or(Ok(OriginKind::Lab), OriginKind::named)?;
        let front = given.own("--front").map_or(Ok(Front::Plain), Front::named)?;
        Ok((given.choose(&HttpRow::all(front), front.arms())?, front, origin))
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

fn arms(words: &str, all: &[&'static str]) -> Result<Vec<&'static str>> {
    let words: Vec<&str> = words.split(',').map(str::trim).collect();
    if let Some(unknown) = words.iter().find(|word| !all.contains(word)) {
        bail!("no arm `{unknown}`; arms: {}", all.join(" "));
    }
    Ok(all.iter().copied().filter(|arm| words.contains(arm)).collect())
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
    use crate::bench::peers::name;

    #[test]
    fn options_are_read_and_arms_keep_the_order_of_a_block() {
        let options = Options::of_redis(&["--arms", "direct,weir", "--repeats", "3", "--seconds", "0.5"]).unwrap().0;
        assert_eq!(options.arms, [name::WEIR, name::DIRECT]);
        assert_eq!((options.blocks, options.run_length), (3, Duration::from_millis(500)));
    }

    #[test]
    fn mistakes_are_named() {
        for (words, part) in [
            (&["--rows"][..], "--rows needs a value"),
            (&["--arms", "nginx"], "`nginx`"),
            (&["--repeats", "0"], "at least 1"),
            (&["--seconds", "NaN"], "0.1 to 600"),
            (&["--fast"], "`--fast`"),
            (&["--behind", "two"], "`two`"),
            (&["--behind", "cluster", "--arms", "twemproxy"], "`twemproxy`"),
        ] {
            assert!(Options::of_redis(words).unwrap_err().to_string().contains(part), "{words:?}");
        }
    }
}
