//! `weir lab size`: how many instances a demand needs in front of a server, from a search that runs now.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use weir_engine::settings::Address;
use weir_knee::{
    Knee, Rules,
    cell::short,
    plan::{Demand, Dimension, FAILOVER_DEFAULT, HEADROOM_DEFAULT},
};
use weir_load::{
    Scenario, Threshold, scenario,
    url::{CONNECTIONS, DURATION, Url, UrlLoad, WARMUP},
};
use weir_parties::peer::Telemetry;
use weir_trials::{Behind, Budget, KneeResult, Request, file, result, table};

use crate::{lab_knee, lab_load, lab_page, plan};

/// Find the clean knee of this build in front of a server, and size a deployment from it: knee, headroom, instances, and what
/// stopped it. `weir lab knee` and `weir plan` in one.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab size --behind redis://127.0.0.1:6379 --demand 250k\n  weir lab size --behind http://127.0.0.1:3000/ --demand 20k --slo-p99 20ms --html size.html\n  weir lab size --behind 127.0.0.1:6379 --demand 250k --scenario examples/lab/redis-mixed.toml --json results/size.json\n  weir lab size --behind redis://127.0.0.1:6379 --demand 250k --quick\n\nIt starts the gateway itself, on CPUs of its own, and takes 15 to 30 minutes; --quick takes about two and is not for sizing. Where no knee can be verified, it names the bracket.\nExit: 0 a size, 1 none, 2 the command line is wrong."
)]
pub struct SizeArgs {
    /// The server that stands behind the gateway: a URL (redis://, http://, h2c://, ws://, tcp://), which also says the load, or
    /// HOST:PORT or unix:/path with --scenario.
    #[arg(long, value_name = "URL|HOST:PORT|unix:/path")]
    behind: String,

    /// Requests per second in the peak second, such as 250k.
    #[arg(long, value_name = "RATE", value_parser = lab_load::source::rate)]
    demand: f64,

    /// The load, a TOML file; an open loop. Without it the load of `weir lab load URL`.
    #[arg(long, value_name = "SCENARIO.toml")]
    scenario: Option<PathBuf>,

    /// The p99 that a clean trial keeps, for a load without a scenario.
    #[arg(long, value_name = "TIME", conflicts_with = "scenario")]
    slo_p99: Option<String>,

    /// Connections of a load without a scenario [default: 50].
    #[arg(long, value_name = "N", conflicts_with = "scenario")]
    connections: Option<u32>,

    /// Share of the knee that stays free.
    #[arg(long, default_value_t = HEADROOM_DEFAULT)]
    headroom: f64,

    /// Instances that may be down at the peak.
    #[arg(long, default_value_t = FAILOVER_DEFAULT)]
    failover: u32,

    /// CPUs of one instance: a whole number, or a share of one such as 0.5.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Offer no more than this many requests per second.
    #[arg(long, value_name = "RATE", value_parser = lab_load::source::rate)]
    rate_max: Option<f64>,

    /// Short trials and 10 % precision: a look. Do not use it for sizing.
    #[arg(long)]
    quick: bool,

    /// Write the result of the search with all its trials to this file; `weir plan` reads it.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write the page of the search to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub fn run(args: &SizeArgs) -> Result<(), String> {
    let (scenario, source, server) = workload(args)?;
    if let Some(path) = &args.json {
        file::try_write(path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        behind: Behind::Servers(vec![server]),
        budget: args.budget,
        telemetry: Telemetry::On,
        rate_max: args.rate_max,
        rules: if args.quick { Rules::quick() } else { Rules::default() },
        scenario,
    };
    let found = weir_trials::knee(&request, lab_knee::tell).map_err(|failure| failure.to_string())?;
    let result = lab_knee::result_of(args.quick, &request, &found, source);
    print!("{}", table::result(&request.scenario.name, &found.knee));
    let size = size_of(args, &result);
    if let Ok(text) = &size {
        print!("{text}");
    }
    if let Some(path) = &args.json {
        file::write(path, &result).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    lab_page::of(args.html.as_deref(), &result)?;
    size.map(|_| ())
}

/// The load, its text, and the server.
fn workload(args: &SizeArgs) -> Result<(Scenario, String, Address), String> {
    if let Some(path) = &args.scenario {
        let server = if Url::is_one(&args.behind) {
            args.behind.parse::<Url>().map_err(|error| error.to_string())?.target().clone()
        } else {
            args.behind.parse::<Address>().map_err(|error| format!("--behind {}: {error}", args.behind))?
        };
        let (scenario, source) = lab_load::read_with_source(path)?;
        return Ok((scenario, source, server));
    }
    if !Url::is_one(&args.behind) {
        return Err(format!(
            "--behind {0} does not say the protocol: write redis://{0} or http://{0}/, or name a load with --scenario",
            args.behind
        ));
    }
    let url = args.behind.parse::<Url>().map_err(|error| error.to_string())?;
    let target = args.slo_p99.as_ref().map(|time| format!("p99<={time}").parse::<Threshold>()).transpose();
    let load = UrlLoad {
        url,
        // Of a search, which does not use the phases: any rate makes the loop an open one.
        rate: Some(args.demand),
        connections: args.connections.unwrap_or(CONNECTIONS),
        pipeline: 1,
        shards: 1,
        warmup: WARMUP.to_owned(),
        duration: DURATION.to_owned(),
        payload: None,
        thresholds: target.map_err(|error| format!("--slo-p99: {error}"))?.into_iter().collect(),
    };
    let source = load.scenario();
    let scenario =
        scenario::parse(&args.behind, &source).map_err(|mistakes| format!("the load is refused\n{mistakes}"))?;
    Ok((scenario, source, load.url.target().clone()))
}

/// The plan for the demand, or why there is none.
fn size_of(args: &SizeArgs, result: &KneeResult) -> Result<String, String> {
    if result.knee.capacity().is_none() {
        return Err(no_size(&result.knee, args));
    }
    let demand = Demand {
        command: result.command.clone(),
        shape: result.shape.clone(),
        peak: vec![(Dimension::Requests, args.demand)],
        headroom: args.headroom,
        failover: args.failover,
    };
    let plan = weir_knee::plan(&demand, &[result.measured(result::seconds_since_epoch())]);
    let plan = plan.map_err(|refusal| format!("no size: {refusal}"))?;
    let caveat = if args.quick { "Quick run: do not use it for sizing.\n" } else { "" };
    Ok(format!("{caveat}{}", plan::text_of(&plan, &demand)))
}

/// No number, and what is known all the same.
fn no_size(knee: &Knee, args: &SizeArgs) -> String {
    let demand = short(args.demand);
    format!(
        "no size for {demand} requests/s: {}. Try again on a quiet machine{}",
        lab_knee::no_knee(knee),
        if args.quick { ", without --quick" } else { ", or with a higher --slo-p99" }
    )
}
