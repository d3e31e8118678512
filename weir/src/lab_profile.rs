//! `weir lab profile`: where a gateway's time goes under a load.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use weir_parties::Load;
use weir_trials::{
    Budget, UpstreamKind,
    profile::{Request, profile},
};

use crate::{lab_compare, lab_load, lab_sweep};

/// Sample where a gateway's time goes under the first phase of a scenario: by crate and part of the kernel, then by function. Takes
/// `perf`. Starts origin and gateway itself, on CPUs of their own.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab profile examples/lab/redis-matched.toml\n  weir lab profile examples/lab/http1-closed.toml --load wrk\n  weir lab profile examples/lab/http1-closed.toml --load wrk --peer nginx\n\nWithout a processor that counts its cycles perf samples a timer, and the result says so. A release build has fewer names and the right costs.\n\nExit: 0 a profile, 1 none, 2 the command line is wrong."
)]
pub struct ProfileArgs {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Generator of the load: wrk (HTTP/1.1), h2load (HTTP/2), redis-benchmark, pgbench, or a load program's TOML file. Without
    /// it: the lab's own generator.
    #[arg(long, value_name = "NAME|FILE.toml")]
    load: Option<String>,

    /// Another gateway than this one: a name that `weir lab compare --peers` knows, or a peer's TOML file.
    #[arg(long, value_name = "NAME|FILE.toml")]
    peer: Option<String>,

    /// CPUs of the gateway, one worker each, or a share of one such as 0.5, kept by a quota.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Servers behind the gateway: origin (the lab's own, without this), nginx (which the lab starts, HTTP/1.1 only), or
    /// servers that run already.
    #[arg(long, value_name = "origin|nginx|HOST:PORT|unix:/path", value_delimiter = ',', value_parser = lab_sweep::behind)]
    behind: Vec<UpstreamKind>,
}

pub fn run(args: &ProfileArgs) -> Result<(), String> {
    let behind = UpstreamKind::together(args.behind.clone()).map_err(|error| error.to_string())?;
    let scenario = behind.adapted(&lab_load::read(&args.scenario)?).map_err(|error| error.to_string())?;
    let load = args.load.as_deref().map(Load::named).transpose().map_err(|error| format!("{error:#}"))?;
    let peer = args.peer.as_ref().map(|word| lab_compare::peer(word, scenario.protocol)).transpose()?;
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        behind,
        budget: args.budget,
        peer,
        load,
        scenario,
    };
    print!("{}", profile(&request).map_err(|failure| failure.to_string())?.markdown());
    Ok(())
}
