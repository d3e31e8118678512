//! Where the scenario of a load comes from: a file, or a URL with options, which mean a file.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use weir_engine::settings::Address;
use weir_load::{
    Scenario, Threshold, scenario,
    url::{CONNECTIONS, DURATION, Url, UrlLoad, WARMUP},
};

use super::{LoadArgs, read_with};

/// Options of a load without a scenario file. A file says all of this itself.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Options of a URL")]
pub struct UrlArgs {
    /// Requests per second, such as 2000 or 2k, in an open loop [default: closed loop].
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<f64>,

    /// Duration of the measurement, such as 30s or 5m [default: 10s].
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    pub duration: Option<String>,

    /// Duration of the load before the measurement [default: 2s].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub warmup: Option<String>,

    /// Connections [default: 50].
    #[arg(long, value_name = "N")]
    pub connections: Option<u32>,

    /// Requests in flight per connection; for h2c://, streams per connection [default: 1].
    #[arg(long, value_name = "N")]
    pub pipeline: Option<u32>,

    /// Size of a value (redis://) or a message (tcp://, ws://), such as 64B or 1KiB [default: 64B]. For http:// and h2c://, the length
    /// that every response body must have.
    #[arg(long, value_name = "SIZE")]
    pub payload: Option<String>,

    /// Write the equivalent scenario to this file, and send nothing; `-` prints it.
    #[arg(long, value_name = "FILE|-")]
    pub write: Option<PathBuf>,
}

/// A scenario with its target.
pub struct Planned {
    pub scenario: Scenario,
    /// Its text.
    pub source: String,
    /// Thresholds that the text does not have.
    pub more: Vec<String>,
    pub target: Address,
}

/// The load that the command line means. `None`: its scenario was written, and nothing is to be sent.
pub fn planned(args: &LoadArgs) -> Result<Option<Planned>, String> {
    if !Url::is_one(&args.what) {
        return of_file(args).map(Some);
    }
    if args.target.is_some() {
        return Err("--target is for a scenario file; a URL names its target itself".to_owned());
    }
    let thresholds = thresholds(&args.thresholds)?;
    let url = args.what.parse::<Url>().map_err(|error| error.to_string())?;
    let load = url_load(args, url, thresholds);
    let source = load.scenario();
    let scenario =
        scenario::parse(&args.what, &source).map_err(|mistakes| format!("the load is refused\n{mistakes}"))?;
    if let Some(path) = &args.url.write {
        write(path, &source).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(None);
    }
    Ok(Some(Planned { scenario, source, more: Vec::new(), target: load.url.target().clone() }))
}

fn of_file(args: &LoadArgs) -> Result<Planned, String> {
    let UrlArgs { rate, duration, warmup, connections, pipeline, payload, write } = &args.url;
    let given = [
        ("--rate", rate.is_some()),
        ("--for", duration.is_some()),
        ("--warmup", warmup.is_some()),
        ("--connections", connections.is_some()),
        ("--pipeline", pipeline.is_some()),
        ("--payload", payload.is_some()),
        ("--write", write.is_some()),
    ];
    if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
        return Err(format!(
            "{option} is for a URL; the scenario file {} sets it itself. For a load without a file write \
             http://HOST:PORT/, redis://HOST:PORT, ...",
            args.what
        ));
    }
    let more = thresholds(&args.thresholds)?;
    let target = args.target.clone().ok_or("--target is missing: where does the load go? Write --target HOST:PORT")?;
    let (scenario, source) = read_with(Path::new(&args.what), &more)?;
    Ok(Planned { scenario, source, more: args.thresholds.clone(), target })
}

/// Parses the values of `--threshold`.
pub fn thresholds(texts: &[String]) -> Result<Vec<Threshold>, String> {
    let parsed = texts.iter().map(|text| text.parse::<Threshold>());
    parsed.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn url_load(args: &LoadArgs, url: Url, thresholds: Vec<Threshold>) -> UrlLoad {
    let own = &args.url;
    UrlLoad {
        url,
        rate: own.rate,
        connections: own.connections.unwrap_or(CONNECTIONS),
        pipeline: own.pipeline.unwrap_or(1),
        // Each process needs one.
        shards: args.processes,
        warmup: own.warmup.clone().unwrap_or_else(|| WARMUP.to_owned()),
        duration: own.duration.clone().unwrap_or_else(|| DURATION.to_owned()),
        payload: own.payload.clone(),
        slo_p99: None,
        thresholds,
    }
}

fn write(path: &Path, source: &str) -> io::Result<()> {
    if path == Path::new("-") {
        return io::stdout().write_all(source.as_bytes());
    }
    fs::write(path, source)
}

/// A rate for clap.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate = weir_load::threshold::rate(text).filter(|rate| *rate > 0.0);
    rate.ok_or_else(|| "write requests per second, such as 2000, 250k or 1.5M".to_owned())
}

/// A time for clap, as scenarios write it.
fn time(text: &str) -> Result<String, String> {
    let example = "write a whole number and a unit: 500ms, 30s, 5m";
    scenario::parse_duration(text).map(|_| text.to_owned()).ok_or_else(|| example.to_owned())
}
