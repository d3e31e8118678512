//! `weir lab knee`: how much a gateway of this build carries cleanly on this machine.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};
use weir_engine::settings::Address;
use weir_knee::{Knee, Rules};
use weir_parties::peer::Telemetry;
use weir_trials::{
    Budget, KneeResult, Progress, Request, UpstreamKind,
    knee::FoundKnee,
    result::{self, Conditions},
    table,
};

use crate::{
    lab_load,
    lab_page::{ResultArgs, both},
};

/// [`Telemetry`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TelemetryName {
    /// Gauges only.
    Off,
    /// The default level of the gateway.
    On,
    /// Time every stage, and format an access log line for every request (without writing it).
    CaptureAll,
}

impl TelemetryName {
    fn level(self) -> Telemetry {
        match self {
            Self::Off => Telemetry::Off,
            Self::On => Telemetry::On,
            Self::CaptureAll => Telemetry::CaptureAll,
        }
    }
}

/// Find the clean knee: the highest load that this build carries without an error, a refusal or a lost request.
///
/// The command verifies the knee by repeats, and shows what limits the load there. It starts the gateway and the origin (the test server
/// of the lab) on separate CPUs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab knee examples/lab/redis-mixed.toml\n  \
                  weir lab knee examples/lab/redis-mixed.toml --behind 127.0.0.1:6379 --json results/redis-real.json\n  \
                  weir lab knee examples/lab/redis-mixed.toml --quick\n\n\
                  A full search takes 15 to 30 minutes, a search with --quick about two. `weir plan` sizes a deployment from full \
                  searches.\n\
                  The search ignores the phases of the scenario.\n\n\
                  Exit status: 0, a knee was found; 1, no knee was found; 2, wrong usage.")]
pub struct KneeArgs {
    /// TOML file of the scenario, which must be an open loop.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// CPUs of the gateway, with one worker per CPU, or a fraction of one CPU such as 0.5, enforced by a quota.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Level of telemetry in the gateway. Reports show each level in a separate row.
    #[arg(long, value_enum, default_value = "on")]
    telemetry: TelemetryName,

    /// Address of a running server behind the gateway [default: the lab starts its origin].
    #[arg(long, value_name = "HOST:PORT|unix:/path", value_parser = Address::from_str)]
    behind: Option<Address>,

    /// Offer no more than this many requests per second.
    #[arg(long, value_name = "RATE")]
    rate_max: Option<f64>,

    /// Use short trials and 10 % precision, for a first impression. Do not use the result for sizing.
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    result: ResultArgs,
}

pub fn run(args: &KneeArgs) -> Result<(), String> {
    let (scenario, source) = lab_load::read_with_source(&args.scenario)?;
    args.result.check()?;
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        behind: args.behind.clone().map_or(UpstreamKind::Origin, |address| UpstreamKind::Servers(vec![address])),
        budget: args.budget,
        telemetry: args.telemetry.level(),
        rate_max: args.rate_max,
        rules: if args.quick { Rules::quick() } else { Rules::default() },
        scenario,
    };
    let found = weir_trials::knee(&request, print_progress).map_err(|failure| failure.to_string())?;
    if args.quick {
        println!("Quick run: short trials, 10 % precision. Do not use it for sizing.");
    }
    match &args.behind {
        None => println!("{}", found.placement),
        Some(address) => println!("{}; behind it {address}, on whatever CPU it has", found.placement.without_origin()),
    }
    print!("{}", table::result(&request.scenario.name, &found.knee));
    // After what cannot fail: a full disk costs the file and not the figures.
    let result = result_of(args.quick, &request, &found, source);
    let stored = args.result.store(&result);
    both(found.knee.capacity().map(|_| ()).ok_or_else(|| no_knee(&found.knee)), stored)
}

/// Why there is no knee, and where it lies.
pub fn no_knee(knee: &Knee) -> String {
    let bracket = knee.bracket().map_or(String::new(), |bracket| format!("; {bracket}; not verified"));
    format!("no knee was found: {}{bracket}", knee.clean_cell("req/s"))
}

/// Progress on standard error.
pub fn print_progress(progress: &Progress<'_>) {
    match progress {
        Progress::Started { placement, config } => {
            eprintln!("{}", placement.without_origin());
            config.lines().filter(|line| !line.is_empty()).for_each(|line| eprintln!("  {line}"));
        }
        Progress::Begins(run) => eprintln!("{}", table::begins(run)),
        Progress::Ended { run, trial, verdict, .. } => eprintln!("{}", table::ended(run, trial, verdict)),
    }
}

/// The file of a search.
pub fn result_of(is_quick: bool, request: &Request, found: &FoundKnee, scenario: String) -> KneeResult {
    let Request { budget, telemetry, .. } = *request;
    let conditions = Conditions { budget, backend: request.behind.backend(), telemetry, is_quick };
    KneeResult {
        schema: result::SCHEMA.to_owned(),
        run_id: found.run_id.clone(),
        ended: result::seconds_since_epoch(),
        shape: result::shape_of(&request.scenario, &conditions),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        build: found.build.clone(),
        behind: request.behind.to_string(),
        scenario,
        gateway_config: found.config.clone(),
        placement: found.placement.clone(),
        host: found.host.clone(),
        knee: found.knee.clone(),
        courses: found.courses.clone(),
        size: None,
    }
}
