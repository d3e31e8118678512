//! `weir lab profile`: where a gateway's time goes under a load.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use weir_parties::Load;
use weir_trials::{
    Budget, UpstreamKind,
    profile::{Request, profile},
};

use crate::{lab_compare, lab_load, lab_sweep};

/// Show where a gateway spends its time under load: by crate and part of the kernel, then by function.
///
/// The load is the first phase of the scenario. The command samples with `perf`, which must be installed. It starts the gateway and the
/// origin (the test server of the lab) on separate CPUs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab profile examples/lab/redis-matched.toml\n  \
                  weir lab profile examples/lab/http1-closed.toml --load wrk\n  \
                  weir lab profile examples/lab/http1-closed.toml --load wrk --peer nginx\n\n\
                  If the processor has no cycle counters, perf samples by a timer, and the result says so.\n\
                  A release build shows the true costs, but fewer function names.\n\n\
                  Exit status: 0, profile printed; 1, no profile; 2, wrong usage.")]
pub struct ProfileArgs {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Load generator: wrk (HTTP/1.1), h2load (HTTP/2), redis-benchmark, pgbench, or the TOML file of a load program [default: the
    /// generator of the lab].
    #[arg(long, value_name = "NAME|FILE.toml")]
    load: Option<String>,

    /// Gateway to profile instead of Weir: a name from `weir lab compare --help`, or the TOML file of a peer.
    #[arg(long, value_name = "NAME|FILE.toml")]
    peer: Option<String>,

    /// CPUs of the gateway, with one worker per CPU, or a fraction of one CPU such as 0.5, enforced by a quota.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Servers behind the gateway: origin (the test server of the lab, the default), nginx (started by the lab, HTTP/1.1 only), or
    /// running servers.
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
