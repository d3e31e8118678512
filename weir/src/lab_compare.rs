//! `weir lab compare`: gateways side by side on this machine.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::Args;
use weir_knee::{Rules, ratio::BLOCKS_MIN};
use weir_load::{Scenario, protocols::Protocol};
use weir_parties::{
    Load, Peer,
    peer::{Change, DIRECT, Telemetry},
};
use weir_trials::{
    Budget, Comparison, UpstreamKind,
    compare::{ComparisonResult, Progress, Request, compare},
    comparison::{self, LoadProgram},
    result::seconds_since_epoch,
    side_by_side, table,
};

use crate::{
    lab_load,
    lab_page::{ResultArgs, both},
    lab_sweep,
};

/// Blocks and window of a quick look.
const QUICK_BLOCKS: u32 = 2;
const QUICK_WINDOW: Duration = Duration::from_secs(2);
/// A shorter warm-up than the scenario's, where the window is shorter too.
const WARMUP_SHORT: Duration = Duration::from_secs(1);

/// Run the same load on several gateways, interleaved on the same CPUs, and print ratios with confidence intervals.
///
/// The command starts the origin (the test server of the lab) and every gateway.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab compare examples/lab/redis-mixed.toml --peers envoy,haproxy,twemproxy,direct\n  \
                  weir lab compare examples/lab/http1.toml --peers nginx,haproxy,envoy,direct\n  \
                  weir lab compare examples/lab/tcp.toml --peers haproxy,envoy,direct\n  \
                  weir lab compare examples/lab/postgres-closed.toml --load pgbench --peers pgbouncer,direct\n  \
                  weir lab compare scenario.toml --peers envoy,./my-peer.toml --behind 127.0.0.1:6379 --json results/compared.json\n  \
                  weir lab compare scenario.toml --peers direct --quick\n  \
                  weir lab compare examples/lab/http1-closed.toml --load wrk --peers nginx,floor,direct\n  \
                  weir lab compare examples/lab/http1-closed.toml --load wrk --tls\n\n\
                  Each phase of the scenario is a row of the result, at the rate of the phase. An arm is a gateway, or `direct`. The \
                  command does phases x blocks x arms x 2 runs.\n\
                  If a peer is not installed, the output shows how to install it, and the comparison continues with the others.\n\
                  --show-peer prints the TOML file of a built-in peer, as a template for your own.\n\n\
                  Default peers, besides direct:\n  \
                  Redis                   envoy, haproxy, twemproxy\n  \
                  publish and subscribe   haproxy\n  \
                  HTTP, WebSocket         nginx, haproxy, envoy\n  \
                  PostgreSQL              pgbouncer, pgpool\n  \
                  MongoDB                 envoy, haproxy\n  \
                  TCP                     haproxy, envoy\n  \
                  language models         envoy, litellm, portkey\n  \
                  feature flags           unleash-edge\n\n\
                  Other peers:\n  \
                  direct                  no gateway\n  \
                  floor                   the least that a relay can cost (`weir lab relay`)\n  \
                  pgbouncer-session       pgbouncer with one server connection per client\n  \
                  weir-telemetry-off, weir-capture-all, weir-polling, weir-cache (Redis)   Weir with other settings\n\n\
                  Exit status: 0, compared; 1, nothing was compared, or this gateway failed; 2, wrong usage.")]
pub struct CompareArgs {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO.toml", required_unless_present = "show_peer")]
    scenario: Option<PathBuf>,

    /// Peers to compare with, separated by commas: a name from the list below, or the TOML file of a peer [default: direct and the
    /// default peers of the protocol].
    #[arg(long, value_name = "NAME|FILE.toml", value_delimiter = ',')]
    peers: Vec<String>,

    /// Load generator: wrk (HTTP/1.1), h2load (HTTP/2), redis-benchmark, pgbench, or the TOML file of a load program [default: the
    /// generator of the lab]. The scenario must have mode = "closed" and integrity = false.
    #[arg(long, value_name = "NAME|FILE.toml")]
    load: Option<String>,

    /// Use TLS between clients and gateways. Needs --load, because the generator of the lab has no TLS.
    #[arg(long, requires = "load")]
    tls: bool,

    /// Configure each HTTP/1.1 gateway with 100 routes, of which all requests match the last, and with an access log line for every
    /// request.
    #[arg(long)]
    routes: bool,

    /// CPUs of each gateway, with one worker per CPU, or a fraction of one CPU such as 0.5, enforced by a quota.
    #[arg(long, default_value = "1", value_parser = Budget::from_str)]
    budget: Budget,

    /// Servers behind the gateways: origin (the test server of the lab, the default), nginx (started by the lab, HTTP/1.1 only), or
    /// running servers. Several servers need peers with {each origin} in their TOML file.
    #[arg(long, value_name = "origin|nginx|HOST:PORT|unix:/path", value_delimiter = ',', value_parser = lab_sweep::behind)]
    behind: Vec<UpstreamKind>,

    /// Blocks per row. In a block, each arm (a gateway or `direct`) runs twice. A verdict of better or worse needs at least 8 blocks.
    #[arg(long, default_value_t = BLOCKS_MIN as u32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,

    /// Duration of each run in seconds [default: the duration of the phase].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,

    /// Run 2 blocks with runs of 2 s. This tests the setup, and is not a comparison.
    #[arg(long, conflicts_with_all = ["blocks", "seconds"])]
    quick: bool,

    #[command(flatten)]
    result: ResultArgs,

    /// Print the TOML file of a built-in peer and exit.
    #[arg(long, value_name = "NAME")]
    show_peer: Option<String>,
}

pub fn run(args: &CompareArgs) -> Result<(), String> {
    if let Some(name) = &args.show_peer {
        print!("{}", Peer::built_in_text(name).ok_or_else(|| no_peer(name))?);
        return Ok(());
    }
    let Some(path) = &args.scenario else { return Err("a scenario is needed".to_owned()) };
    let (mut scenario, source) = lab_load::read_with_source(path)?;
    let behind = UpstreamKind::together(args.behind.clone()).map_err(|error| error.to_string())?;
    scenario = behind.adapted(&scenario).map_err(|error| error.to_string())?;
    let (blocks, window) = match args.quick {
        true => (QUICK_BLOCKS, Some(QUICK_WINDOW)),
        false => (args.blocks, args.seconds.map(|seconds| Duration::from_secs(seconds.into()))),
    };
    if let Some(window) = window {
        shorten(&mut scenario, window);
    }
    let load = args.load.as_deref().map(Load::named).transpose().map_err(|error| format!("{error:#}"))?;
    let (peers, mut is_direct) = peers(&args.peers, scenario.protocol)?;
    // `direct` is one of the usual peers, and impossible with TLS.
    is_direct &= !(args.tls && args.peers.is_empty());
    args.result.check()?;
    let request = Request {
        weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
        behind,
        budget: args.budget,
        peers,
        changes: changes(args),
        load,
        is_direct,
        blocks,
        rules: rules(args.quick),
        scenario,
    };
    let compared = compare(&request, print_progress).map_err(|failure| failure.to_string())?;
    let result = result_of(&request, compared, source);
    // First what cannot fail: a full disk costs the file and not the figures.
    print!("{}", side_by_side::markdown(&result));
    let stored = args.result.store(&result);
    let failed = result.failed.iter().find(|failed| failed.arm == result.arms[0].name);
    let found = failed.map_or(Ok(()), |failed| Err(format!("this gateway failed at {}: {}", failed.at, failed.reason)));
    both(found, stored)
}

fn changes(args: &CompareArgs) -> Vec<Change> {
    let tls = args.tls.then_some(Change::Tls);
    tls.into_iter().chain(args.routes.then_some(Change::Routes)).collect()
}

/// Latencies are compared with each other and not with a target, so a late generator colours them whatever the target is.
/// One of the two or three seconds of a quick run may be lost.
fn rules(is_quick: bool) -> Rules {
    let rules = Rules { lag_p99_slo_share_max: 0.0, ..Rules::default() };
    let Rules { slices_stolen_share_max, steady_share, .. } = Rules::quick();
    if is_quick { Rules { slices_stolen_share_max, steady_share, ..rules } } else { rules }
}

/// All phases with that window, and a warm-up that goes with it. A warm-up longer than its window is that of responses which last longer
/// too, and stays: with a shorter one, the window would see none of them.
fn shorten(scenario: &mut Scenario, window: Duration) {
    for phase in &mut scenario.phases {
        if window < phase.duration && phase.warmup <= phase.duration {
            phase.warmup = phase.warmup.min(WARMUP_SHORT);
        }
        phase.duration = window;
    }
}

/// Those of the command line, or those that people know for `protocol`; and whether a load without a gateway is among them.
pub fn peers(words: &[String], protocol: &dyn Protocol) -> Result<(Vec<Peer>, bool), String> {
    let usual: Vec<String> =
        protocol.family().usual_peers.iter().chain([&DIRECT]).map(|name| (*name).to_owned()).collect();
    let words = if words.is_empty() { &usual[..] } else { words };
    let mut peers = Vec::new();
    for word in words.iter().filter(|word| *word != DIRECT) {
        peers.push(peer(word, protocol)?);
    }
    Ok((peers, words.iter().any(|word| word == DIRECT)))
}

/// A name that the lab knows for `protocol`, or a file.
pub fn peer(word: &str, protocol: &dyn Protocol) -> Result<Peer, String> {
    match word.ends_with(".toml") {
        true => Peer::read(word.as_ref()).map_err(|error| format!("{error:#}")),
        false => Peer::built_in_for(word, &protocol.to_string()).ok_or_else(|| no_peer(word)),
    }
}

fn no_peer(word: &str) -> String {
    let ours = Telemetry::On.peer_name();
    let mut known: Vec<String> = Vec::new();
    for peer in Peer::all_built_in() {
        // The gateway of this project has the same names for every family of protocols.
        if peer.name != ours && !known.contains(&peer.name) {
            known.push(peer.name);
        }
    }
    format!("no peer `{word}`; there are {}, {DIRECT}, or a file that ends in .toml", known.join(", "))
}

fn print_progress(progress: &Progress<'_>) {
    match progress {
        Progress::Started { placement, arms, missing } => {
            eprintln!("{placement}");
            for arm in *arms {
                eprintln!("{} {}", arm.name, arm.version);
                arm.config.lines().filter(|line| !line.is_empty()).for_each(|line| eprintln!("  {line}"));
            }
            missing.iter().for_each(|missing| eprintln!("not compared: {}: {}", missing.name, missing.reason));
        }
        Progress::Ceiling(rate) => eprintln!("without a gateway, closed loop: {}/s", weir_knee::cell::short(*rate)),
        Progress::Block { phase, block } => eprintln!("{}, block {block}", phase.name),
        Progress::Ended { arm, trial, verdict } => eprintln!("{}", table::ran(arm, trial, verdict)),
        Progress::Failed { arm, error } => eprintln!("{arm} failed: {error:#}"),
    }
}

fn result_of(request: &Request, compared: ComparisonResult, scenario: String) -> Comparison {
    let ComparisonResult { placement, arms, missing, failed, direct_ceiling, rows, last } = compared;
    Comparison {
        schema: comparison::SCHEMA.to_owned(),
        run_id: last.identity.run_id,
        ended: seconds_since_epoch(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        build: last.identity.build,
        scenario,
        name: request.scenario.name.clone(),
        behind: request.behind.to_string(),
        backend: request.behind.backend(),
        placement,
        host: last.host,
        arms,
        missing,
        failed,
        load: request.load.as_ref().map(|load| LoadProgram { name: load.name.clone(), version: load.version() }),
        changes: request.changes.iter().map(|change| change.name().to_owned()).collect(),
        direct_ceiling,
        rows,
        rules: request.rules.clone(),
        seed: request.scenario.seed,
        bootstrap_seed: weir_knee::ratio::SEED,
    }
}

#[cfg(test)]
mod tests {
    use weir_load::protocols;

    use super::*;

    #[test]
    fn a_quick_look_is_short_and_may_lose_a_second() {
        let source = "name = \"s\"\nprotocol = \"http1\"\nphase = [{ rate = 9, duration = \"10s\" }, { rate = 9, duration = \"1s\" }]\n";
        let mut scenario = weir_load::scenario::parse("s.toml", source).expect("right");
        shorten(&mut scenario, QUICK_WINDOW);
        let lengths: Vec<_> = scenario.phases.iter().map(|phase| (phase.warmup, phase.duration)).collect();
        // A warm-up is only made shorter with its window.
        assert_eq!(lengths, [(WARMUP_SHORT, QUICK_WINDOW), (Duration::from_secs(5), QUICK_WINDOW)]);
        let (quick, whole) = (rules(true), rules(false));
        assert!(quick.slices_stolen_share_max >= 0.5 && whole.slices_stolen_share_max < 0.5);
        assert_eq!((quick.lag_p99_slo_share_max, whole.lag_p99_slo_share_max), (0.0, 0.0));
    }

    #[test]
    fn a_warm_up_that_outlasts_a_long_response_stays() {
        let source = "name = \"s\"\nprotocol = \"http1\"\nphase = [{ rate = 9, warmup = \"6s\", duration = \"3s\" }]\n";
        let mut scenario = weir_load::scenario::parse("s.toml", source).expect("right");
        shorten(&mut scenario, QUICK_WINDOW);
        assert_eq!((scenario.phases[0].warmup, scenario.phases[0].duration), (Duration::from_secs(6), QUICK_WINDOW));
    }

    #[test]
    fn peers_are_names_or_files_and_direct_is_none_of_them() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let peers = |names: &[&str]| peers(&words(names), protocols::named("redis").expect("a row"));
        let (found, is_direct) = peers(&["envoy", "direct"]).expect("both are known");
        assert_eq!((found.len(), &*found[0].name, is_direct), (1, "envoy", true));
        let refusal = peers(&["gate"]).expect_err("it is not");
        let known = "no peer `gate`; there are weir-telemetry-off, weir-capture-all, weir-polling, weir-cache, envoy, ";
        assert!(refusal.starts_with(known), "{refusal}");
        assert!(refusal.ends_with(", unleash-edge, direct, or a file that ends in .toml"), "{refusal}");
        assert!(peers(&["/no/such.toml"]).is_err_and(|error| error.starts_with("/no/such.toml")));
        for protocol in protocols::ALL {
            let (usual, is_direct) = super::peers(&[], *protocol).expect("all are known");
            assert!(is_direct && !usual.is_empty() && usual.iter().all(|peer| peer.speaks(&protocol.to_string())));
        }
    }
}
