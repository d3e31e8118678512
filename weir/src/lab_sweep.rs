//! `weir lab ladder` and `weir lab cores`: a closed loop at one concurrency after the other, or with one CPU more at a time.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use weir_engine::settings::Address;
use weir_knee::Rules;
use weir_parties::peer::DIRECT;
use weir_trials::{
    Budget, Sweep, UpstreamKind,
    result::seconds_since_epoch,
    sweep::{Progress, Request, UNDER_WAY_MAX, Workload, sweep},
    swept::{self, Kind},
    table,
};

use crate::{
    lab_compare, lab_load,
    lab_page::{ResultArgs, both},
};

/// Measure what each protocol costs with 1, 8, 32, 64 and 128 requests in flight.
///
/// The result has rate, latency, CPU, memory and descriptors. The load is a closed loop: each connection sends its next request after the
/// reply. The command starts the origin (the test server of the lab) and the gateways on separate CPUs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab ladder examples/lab/http1.toml examples/lab/http2.toml examples/lab/websocket.toml --json \
                  results/ladder.json\n  \
                  weir lab ladder examples/lab/http1.toml --peers nginx,haproxy,envoy,direct\n  \
                  weir lab ladder examples/lab/http1.toml --at 64 --seconds 2\n\n\
                  The command ignores mode, connections and phases of the scenarios. At most `streams` (or `pipeline`) requests share \
                  a connection.\n\
                  The command does scenarios x rungs x arms runs. A rung is a number of --at, and an arm is a gateway or `direct`.\n\
                  `weir lab report` makes one page of several result files.\n\n\
                  Exit status: 0, measured; 1, nothing was measured, or this gateway failed; 2, wrong usage.")]
pub struct LadderArgs {
    /// TOML files of the scenarios. The result has a table for each.
    #[arg(value_name = "SCENARIO.toml", required = true)]
    scenarios: Vec<PathBuf>,

    /// Requests in flight: connections times streams (HTTP/2) or pipeline.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8,32,64,128", value_parser = under_way())]
    at: Vec<u32>,

    /// CPUs of each gateway, with one worker per CPU, or a fraction of one CPU such as 0.5, enforced by a quota.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    #[command(flatten)]
    common: CommonArgs,
}

/// Measure the rate of a gateway with 1, 2, 3, ... CPUs, and its share of the rate without a gateway.
///
/// The load is a closed loop: each connection sends its next request after the reply. The command starts the server (nginx by default)
/// and the gateways on separate CPUs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab cores examples/lab/http1.toml --json results/cores.json\n  \
                  weir lab cores examples/lab/http1.toml --cores 1,2,4 --users 64,256 --peers envoy,direct\n  \
                  weir lab cores examples/lab/http2.toml --behind origin\n\n\
                  The command ignores mode, connections and phases of the scenario. It skips numbers of CPUs that this machine does \
                  not have: one CPU for the gateway needs a machine with two.\n\
                  `weir lab report` makes one page of several result files.\n\n\
                  Exit status: 0, measured; 1, nothing was measured, or this gateway failed; 2, wrong usage.")]
pub struct CoresArgs {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Numbers of CPUs per gateway to measure, with one worker per CPU.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2,3,4,5,6",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: Vec<u32>,

    /// Requests in flight: connections times streams (HTTP/2) or pipeline.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64", value_parser = under_way())]
    users: Vec<u32>,

    #[command(flatten)]
    common: CommonArgs,
}

/// The common parts.
#[derive(Debug, Args)]
struct CommonArgs {
    /// Server behind the gateways: origin (the test server of the lab), nginx (started by the lab, HTTP/1.1 only), or a running server
    /// [default: origin for ladder, nginx for cores].
    #[arg(long, value_name = "origin|nginx|HOST:PORT|unix:/path", value_parser = behind)]
    behind: Option<UpstreamKind>,

    /// Peers besides this gateway: nginx, haproxy, envoy, twemproxy, direct (no gateway), or the TOML file of a peer.
    #[arg(long, value_name = "NAME|FILE.toml", value_delimiter = ',', default_value = DIRECT)]
    peers: Vec<String>,

    /// Duration of the load before each run.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::origin::duration)]
    warmup: Duration,

    /// Duration of each run in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    #[command(flatten)]
    result: ResultArgs,
}

fn under_way() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(UNDER_WAY_MAX))
}

/// Parses the value of `--behind`.
pub fn behind(text: &str) -> Result<UpstreamKind, String> {
    match text {
        "origin" => Ok(UpstreamKind::Origin),
        "nginx" => Ok(UpstreamKind::Nginx),
        address => Address::from_str(address)
            .map(|address| UpstreamKind::Servers(vec![address]))
            .map_err(|error| error.to_string()),
    }
}

pub fn ladder(args: &LadderArgs) -> Result<(), String> {
    let (budgets, scenarios) = (vec![args.budget], &args.scenarios);
    run(Kind::Ladder, scenarios, budgets, args.at.clone(), UpstreamKind::Origin, &args.common)
}

pub fn cores(args: &CoresArgs) -> Result<(), String> {
    let budgets = args.cores.iter().copied().map(Budget::Cpus).collect();
    let scenarios = std::slice::from_ref(&args.scenario);
    run(Kind::Cores, scenarios, budgets, args.users.clone(), UpstreamKind::Nginx, &args.common)
}

fn run(
    kind: Kind,
    scenarios: &[PathBuf],
    budgets: Vec<Budget>,
    under_way: Vec<u32>,
    usual: UpstreamKind,
    common: &CommonArgs,
) -> Result<(), String> {
    let workloads = scenarios.iter().map(|path| workload(path, &common.peers)).collect::<Result<Vec<_>, _>>()?;
    common.result.check()?;
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        workloads,
        behind: common.behind.clone().unwrap_or(usual),
        budgets,
        under_way,
        is_direct: common.peers.iter().any(|word| word == DIRECT),
        warmup: common.warmup,
        window: Duration::from_secs(common.seconds.into()),
        // One of a few seconds may be lost.
        rules: Rules { slices_stolen_share_max: Rules::quick().slices_stolen_share_max, ..Rules::default() },
    };
    let found = sweep(&request, print_progress).map_err(|failure| failure.to_string())?;
    let Some(last) = found.last else {
        let reasons: Vec<String> = found.groups.into_iter().filter_map(|group| group.not_run).collect();
        return Err(format!("nothing was measured: {}", reasons.join("; ")));
    };
    let result = Sweep {
        schema: swept::SCHEMA.to_owned(),
        run_id: last.identity.run_id,
        ended: seconds_since_epoch(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        build: last.identity.build,
        kind,
        behind: request.behind.to_string(),
        backend: request.behind.backend(),
        host: last.host,
        rules: request.rules,
        warmup_s: request.warmup.as_secs_f64(),
        window_s: request.window.as_secs_f64(),
        groups: found.groups,
    };
    // First what cannot fail: a full disk costs the file and not the figures.
    print!("{}", result.markdown());
    let stored = common.result.store(&result);
    both(result.groups.iter().try_for_each(ours_ran), stored)
}

/// Whether this gateway, the first arm, ran at every rung.
fn ours_ran(group: &swept::Group) -> Result<(), String> {
    let ours = group.arms.first().map(|arm| &arm.name);
    let failed = group.rungs.iter().find(|rung| rung.figures.is_none() && Some(&rung.arm) == ours);
    let why = failed.and_then(|rung| rung.failed.as_ref());
    why.map_or(Ok(()), |why| Err(format!("this gateway failed at {}: {why}", group.name)))
}

fn workload(path: &Path, peers: &[String]) -> Result<Workload, String> {
    let (scenario, source) = lab_load::read_with_source(path)?;
    let (peers, _) = lab_compare::peers(peers, scenario.protocol)?;
    Ok(Workload { scenario, source, peers })
}

fn print_progress(progress: &Progress<'_>) {
    match progress {
        Progress::Started { name, placement, arms, missing } => {
            eprintln!("{name}: {placement}");
            arms.iter().for_each(|arm| eprintln!("{} {}", arm.name, arm.version));
            missing.iter().for_each(|missing| eprintln!("not compared: {}: {}", missing.name, missing.reason));
        }
        Progress::NotRun(why) => eprintln!("{why}"),
        Progress::Rung(rung) => eprintln!("{}", table::rung(rung)),
    }
}
