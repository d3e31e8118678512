//! `weir demo`: a gateway and its origin in one process, a few seconds of traffic, a table of what happened, and a short
//! search for how much this machine carries.

mod traffic;

use std::{path::Path, sync::Arc, sync::atomic::Ordering, time::Duration};

use clap::Args;
use weir_admin::Gateway as _;
use weir_config::surroundings::Machine;
use weir_engine::settings::Address;
use weir_origin::redis::{Mode, OriginSettings};

use self::traffic::Traffic;
use crate::{gateway::Gateway, lab_knee, run};

const GATEWAY: &str = "127.0.0.1:7380";
const ORIGIN: &str = "127.0.0.1:7379";
const ADMIN: &str = "127.0.0.1:7390";

/// Try Weir without anything else: gateway and in-process origin on fixed ports, a few seconds of checked traffic, a table,
/// a short knee search beside it, then keep serving until Ctrl-C.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir demo\n  weir demo --once\n  weir demo --no-knee\n  redis-cli -p 7380 set hello world   # while it serves"
)]
pub struct DemoArgs {
    /// Exit after the tables.
    #[arg(long)]
    once: bool,

    /// Leave out the knee search, which takes about two minutes.
    #[arg(long)]
    no_knee: bool,

    /// Seconds of traffic, 1 to 60.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
}

pub fn run(args: &DemoArgs) -> Result<(), String> {
    let origin = start_origin()?;
    let snapshot = weir_config::check(&config(), "demo", Path::new(""), &Machine::new(&|_| None))
        .map_err(|diagnostics| diagnostics.to_string())?;
    let admin = snapshot.admin.clone();
    let gateway = Gateway::start(snapshot, None).map_err(|error| error.to_string())?;
    let server = run::start_admin(&gateway, &admin)?;
    println!("gateway  redis://{GATEWAY}   (driver {}, {} workers)", gateway.driver().name(), gateway.workers().len());
    println!("origin   redis://{ORIGIN}   (in this process)");
    println!("admin    http://{ADMIN}    /readyz /metrics /api/v1/listeners; or: weir top --admin http://{ADMIN}\n");
    let traffic = Traffic::run(GATEWAY, Duration::from_secs(args.seconds))?;
    print_table(&gateway, &traffic);
    if !args.no_knee {
        println!();
        // A thread of its own: the search binds the one that calls it to the generator's CPUs.
        let search = std::thread::spawn(lab_knee::show_quick).join();
        search.map_err(|_| "the knee search failed; its message stands above".to_owned())??;
    }
    let outcome = if args.once {
        Ok(())
    } else {
        println!("\nserving until Ctrl-C; try: redis-cli -p 7380 set hello world");
        run::control_runtime().map(|runtime| runtime.block_on(run::until_interrupted()))
    };
    gateway.stop();
    server.stop();
    origin.stop().map_err(|error| error.to_string())?;
    outcome?;
    match traffic.failures() {
        0 => Ok(()),
        failures => Err(format!("{failures} of the demo's requests failed")),
    }
}

fn start_origin() -> Result<weir_origin::redis::Origin, String> {
    let bind: Address = ORIGIN.parse().map_err(|error| format!("{ORIGIN}: {error}"))?;
    let settings = OriginSettings { bind, mode: Mode::Memory, ..OriginSettings::default() };
    weir_origin::redis::start(settings)
        .map_err(|error| format!("cannot start the origin on {ORIGIN}: {error}; is another demo running?"))
}

fn config() -> String {
    format!(
        r#"
[runtime]
pin = false

[admin]
bind = "{ADMIN}"

[[listener]]
name = "cache"
protocol = "redis"
bind = "{GATEWAY}"
upstream = "origin"

[[upstream]]
name = "origin"
endpoints = ["{ORIGIN}"]
"#
    )
}

fn print_table(gateway: &Arc<Gateway>, traffic: &Traffic) {
    let cells = gateway.registry().read();
    let micros = |family: &str, q: f64| {
        let histogram = cells.histogram(family, &[]);
        let nanos = histogram.and_then(|histogram| histogram.quantile(q));
        nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{} us", nanos / 1_000))
    };
    let seconds = traffic.took.as_secs_f64();
    let requests = traffic.requests.load(Ordering::Relaxed);
    let cpu: f64 = gateway.workers().iter().map(|worker| worker.cpu_seconds).sum();
    let lanes = |kind| cells.gauge("weir_lanes_open", &[("kind", kind)]).unwrap_or(0);
    let rows = [
        ("requests", requests.to_string()),
        ("requests per second", format!("{:.0}", requests as f64 / seconds)),
        ("client connections", traffic.connections.to_string()),
        ("upstream connections", format!("{} shared, {} pinned", lanes("shared"), lanes("pinned"))),
        ("error replies", traffic.errors.load(Ordering::Relaxed).to_string()),
        ("wrong or missing replies", traffic.wrong.load(Ordering::Relaxed).to_string()),
        ("gateway CPU per request", format!("{:.2} us", cpu * 1e6 / requests.max(1) as f64)),
        ("request p50 / p99 / p99.9", three(|q| micros("weir_request_duration_seconds", q))),
        ("  of it upstream", three(|q| micros("weir_request_upstream_duration_seconds", q))),
        ("  of it gateway", three(|q| micros("weir_request_overhead_duration_seconds", q))),
    ];
    println!(
        "redis, {} s of SET and GET at pipeline depth {}, every value checked",
        traffic.took.as_secs(),
        traffic::DEPTH
    );
    for (name, value) in rows {
        println!("  {name:<26} {value}");
    }
}

fn three(quantile: impl Fn(f64) -> String) -> String {
    [0.5, 0.99, 0.999].map(quantile).join(" / ")
}
