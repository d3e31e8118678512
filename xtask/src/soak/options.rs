//! The command line of `soak`.

use std::time::Duration;

use anyhow::{Context, Result, bail};

pub(crate) const USAGE: &str = "\
cargo xtask soak redis [option ...]      what clients see while servers die, settings change and gateways leave

  --phases WORDS       only these, divided by commas: upstream-kill idle reload drain (default: all)
  --clients N          connections of the load (default 32)
  --idle N             idle connections (default 10000)
  --quick              shorter: 1 cycle instead of 3, 5 s of reloads instead of 60, 2000 idle connections
  --weir-command LINE  how Weir is started, as in `bench`

Exit status 1 if a reply was lost, wrong or cut, if a reload or drain gave a client an error, or if descriptors stayed
open. Memory and times are printed with their goals and never fail the run.

Example: cargo xtask soak redis --phases drain --quick
";

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// `kill -9` of the server, and its return.
    UpstreamKill,
    /// Memory at rest and with idle connections.
    Idle,
    /// A reload every second.
    Reload,
    /// SIGTERM while another instance takes over.
    Drain,
}

impl Phase {
    const ALL: [Self; 4] = [Self::Idle, Self::UpstreamKill, Self::Reload, Self::Drain];

    /// Its word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::UpstreamKill => "upstream-kill",
            Self::Idle => "idle",
            Self::Reload => "reload",
            Self::Drain => "drain",
        }
    }

    /// Whether a stand-in that reads no `weir.toml` cannot take it.
    pub(crate) fn needs_configuration(self) -> bool {
        matches!(self, Self::Reload | Self::Drain)
    }
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// In order.
    pub(crate) phases: Vec<Phase>,
    /// Connections of the load.
    pub(crate) clients: usize,
    /// Idle connections.
    pub(crate) idle_connections: usize,
    /// How often the server is killed, and a gateway replaced.
    pub(crate) cycles: usize,
    /// How long the load runs before and after an event.
    pub(crate) calm: Duration,
    /// How long reloads go on.
    pub(crate) reloads: Duration,
    /// How Weir is started.
    pub(crate) weir_command: Option<String>,
}

impl Options {
    /// Reads the words behind the subcommand.
    pub(crate) fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self {
            phases: Phase::ALL.to_vec(),
            clients: 32,
            idle_connections: 10_000,
            cycles: 3,
            calm: Duration::from_secs(2),
            reloads: Duration::from_secs(60),
            weir_command: None,
        };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
            match word {
                "--phases" => options.phases = value()?.split(',').map(phase).collect::<Result<_>>()?,
                "--clients" => options.clients = value()?.parse().context("--clients needs a number")?,
                "--idle" => options.idle_connections = value()?.parse().context("--idle needs a number")?,
                "--quick" => {
                    options.cycles = 1;
                    options.calm = Duration::from_millis(700);
                    options.reloads = Duration::from_secs(5);
                    options.idle_connections = 2_000;
                }
                "--weir-command" => options.weir_command = Some(value()?.to_owned()),
                _ => bail!("unknown option `{word}`\n\n{USAGE}"),
            }
        }
        if options.clients == 0 || options.idle_connections == 0 {
            bail!("--clients and --idle need at least 1");
        }
        Ok(options)
    }
}

fn phase(word: &str) -> Result<Phase> {
    let found = Phase::ALL.into_iter().find(|phase| phase.name() == word.trim());
    found.with_context(|| format!("no phase `{word}`; phases: {}", Phase::ALL.map(Phase::name).join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_mistakes_named() {
        let options = Options::parse(&["--phases", "drain,idle", "--idle", "50"]).unwrap();
        assert_eq!((options.phases, options.idle_connections), (vec![Phase::Drain, Phase::Idle], 50));
        assert!(Options::parse(&["--phases", "nap"]).unwrap_err().to_string().contains("`nap`"));
        assert!(Options::parse(&["--clients", "0"]).is_err());
    }
}
