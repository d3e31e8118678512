//! `weir lab load`: one load against one target, of a URL or of a scenario file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    sync::mpsc,
    thread,
};

use clap::Args;
use weir_engine::settings::Address;
use weir_load::{
    Event, Gate, Part, RunError, Scenario, StepRecord, Threshold,
    run::{Barrier, ClockBarrier, SingleProcess, instant, run_id},
    run_part, scenario,
    shard::SHARDS_MAX,
};
use weir_trials::together::conductor::{self, conduct};

use crate::lab_page;

use self::show::{JsonLines, line, show};
use self::source::{Planned, UrlArgs, planned};

pub mod show;
pub mod source;
mod summary;

/// A threshold is missed. The exit code of k6.
const MISSED: u8 = 99;
/// The figures do not count, so no threshold can be judged.
const INVALID: u8 = 98;

/// Send a load to a target, and report its throughput, errors and latency.
///
/// In an open loop, requests leave on schedule, and latency counts from the scheduled time. In a closed loop, each connection sends its
/// next request after the reply.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                  weir lab load http://127.0.0.1:8080/ --rate 2000 --for 30s\n  \
                  weir lab load redis://127.0.0.1:6379 --connections 20   # closed loop, as fast as the server replies\n  \
                  weir lab load http://127.0.0.1:8080/ --rate 2000 --threshold 'p99<5ms' --threshold 'errors<0.1%'\n  \
                  weir lab load http://127.0.0.1:8080/ --rate 2000 --write load.toml   # only write the scenario\n  \
                  weir lab load load.toml --target 127.0.0.1:8080 --quiet --json results/load.jsonl\n  \
                  weir lab load examples/lab/redis-pubsub.toml --target 127.0.0.1:6379   # subscribers and publishers\n  \
                  weir lab load scenario.toml --target 10.0.0.5:6379 --processes 4\n  \
                  weir lab load scenario.toml --target 10.0.0.5:6379 --part 1/2 --start-at 2026-01-02T03:04:05Z --json one.jsonl\n\n\
                  URLs:\n  \
                  http://         HTTP/1.1\n  \
                  h2c://          HTTP/2 in clear text\n  \
                  ws://, tcp://   messages that the server must send back\n  \
                  redis://        GET and SET; first writes 10,000 keys weir-load:N\n  \
                  postgres://     SELECT from the accounts of pgbench\n  \
                  mongodb://      find of one of 100,000 documents of lab.documents by _id\n\n\
                  Thresholds, with <, <=, >, >= or ==:\n  \
                  p50, p90, p95, p99, p99.9, p99.99, max, mean   latency, such as 5ms\n  \
                  errors   share of requests that failed, were refused, or were not sent because the target was slow, such as 0.1%\n  \
                  rate     completed requests per second\n\
                  The scenario's slo_p99 is an additional threshold for p99, and the latency target of the run. Without slo_p99, the \
                  lowest upper bound for p99 is the latency target. Each phase must meet all thresholds.\n\n\
                  Standard error has a line per second, standard output a summary per phase.\n\
                  --json results/load.jsonl also writes the page results/load.html. The last line of the output is the path of the \
                  page.\n\n\
                  Exit status:\n  \
                  0    the run is complete, and every threshold is met\n  \
                  1    the run did not finish, or was refused\n  \
                  2    wrong usage\n  \
                  98   the run cannot judge the thresholds: the generator was the limit, too few requests were intended, or every \
                  threshold was met but connections were lost\n  \
                  99   the target missed a threshold, or completed too few requests for its figure")]
pub struct LoadArgs {
    /// A URL (http://, h2c://, redis://, postgres://, mongodb://, ws://, tcp://), or the TOML file of a scenario.
    #[arg(value_name = "URL|SCENARIO.toml")]
    what: String,

    /// Target of a scenario: HOST:PORT or unix:/path.
    #[arg(long, value_name = "HOST:PORT|unix:/path", value_parser = Address::from_str)]
    target: Option<Address>,

    /// Threshold for the exit status, such as 'p99<5ms'; may be repeated.
    #[arg(long = "threshold", value_name = "FIGURE<BOUND", conflicts_with = "part")]
    thresholds: Vec<String>,

    /// Write one JSON line per phase, with all histograms, to this file, and an HTML page beside it. `-` writes the lines to standard
    /// output, without summary and page.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// Write the HTML page (tables and latencies) to this file, not beside the file of --json. The page needs no network.
    #[arg(long, value_name = "FILE", conflicts_with = "part")]
    html: Option<PathBuf>,

    /// Print no line per second.
    #[arg(long)]
    quiet: bool,

    /// Send the load from this many processes on this machine, and merge their results. The scenario needs at least this many `shards`.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "part",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    processes: u32,

    /// Send only this part of the load, such as 2/4 (the second of four), while other machines send the other parts. `weir lab merge`
    /// merges the results.
    #[arg(long, value_name = "PART", requires_all = ["start_at", "json"], value_parser = Part::from_str)]
    part: Option<Part>,

    /// Start time of the first phase, including its warm-up, for all parts: RFC 3339, or seconds since 1970. The clocks of the machines
    /// must agree. Before this time, the part connects and writes its keys.
    #[arg(long, value_name = "TIME", requires = "part", value_parser = instant)]
    start_at: Option<u64>,

    // Last: its heading is also that of whatever follows.
    #[command(flatten)]
    url: UrlArgs,
}

/// Runs the load. The code says whether its thresholds are met.
pub fn run(args: &LoadArgs) -> Result<ExitCode, String> {
    let Some(planned) = planned(args)? else { return Ok(ExitCode::SUCCESS) };
    // A part is no result: `weir lab merge` writes the page of the whole.
    let page = lab_page::place(args.json.as_deref(), args.html.as_deref()).filter(|_| args.part.is_none());
    page.as_deref().map_or(Ok(()), lab_page::check)?;
    let mut json = args.json.as_deref().map(JsonLines::create).transpose()?;
    // The figures of a part are not those of the run: `weir lab merge` has those.
    let gates = if args.part.is_some() { Vec::new() } else { planned.scenario.gates() };
    let (mut written, mut gate, mut lines) = (Ok(()), Gate::Met, Vec::new());
    let mut each = |phase: &str, mut record: StepRecord| {
        record.judge(&gates).map_err(|error| error.to_string())?;
        gate = gate.max(Gate::of(&record));
        lines.push(record.to_line().map_err(|error| error.to_string())?);
        show(phase, &record, json.as_mut())
    };
    let tell = |event| match event {
        Event::Preloading(keys) if !args.quiet => eprintln!("writing {keys} keys"),
        Event::Second(second) if !args.quiet => eprintln!("{}", line(&second)),
        Event::Step { phase, record, .. } => {
            let shown = each(&phase, *record);
            if written.is_ok() {
                written = shown;
            }
        }
        Event::Preloading(_) | Event::Second(_) | Event::Phase { .. } => {}
    };
    send(args, planned, tell)?;
    finish(written, gate, page.as_deref(), &lines, args.json.as_deref())
}

/// Writes the page, whose path is the last line, and returns the exit code of a run with this gate. A failed threshold takes
/// precedence over a page that could not be written.
pub fn finish(
    written: Result<(), String>,
    gate: Gate,
    page: Option<&Path>,
    lines: &[String],
    json: Option<&Path>,
) -> Result<ExitCode, String> {
    let paged = page.map_or(Ok(()), |path| lab_page::write(path, &lines.join("\n")));
    if let (Ok(()), Some(path)) = (&paged, page) {
        // Among lines of JSON a path is none of them.
        if json == Some(Path::new("-")) { eprintln!("{}", path.display()) } else { println!("{}", path.display()) }
    }
    match (lab_page::both(written, paged), gate) {
        (Err(error), Gate::Met) => Err(error),
        (Err(error), gate) => {
            eprintln!("{error}");
            Ok(code_of(gate))
        }
        (Ok(()), gate) => Ok(code_of(gate)),
    }
}

/// The exit code of a gate.
fn code_of(gate: Gate) -> ExitCode {
    match gate {
        Gate::Met => ExitCode::SUCCESS,
        Gate::Missed => ExitCode::from(MISSED),
        Gate::Invalid => ExitCode::from(INVALID),
    }
}

/// From this process, or from several that this one conducts.
fn send(args: &LoadArgs, planned: Planned, tell: impl FnMut(Event)) -> Result<(), String> {
    let Planned { scenario, source, more, target } = planned;
    if args.processes > 1 {
        let request = conductor::Request {
            weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
            scenario,
            source,
            thresholds: more,
            target,
            processes: args.processes,
        };
        return conduct(&request, tell).map_err(|error| format!("{error:#}"));
    }
    let (part, run_id, mut barrier): (Part, String, Box<dyn Barrier + Send>) = match args.part.zip(args.start_at) {
        None => (Part::WHOLE, run_id(), Box::new(SingleProcess)),
        Some((part, start)) => {
            part.check(&scenario).map_err(|error| error.to_string())?;
            // The same for all parts, whose processes cannot ask each other.
            let run_id = format!("{start:x}-{}", scenario.fingerprint());
            (part, run_id, Box::new(ClockBarrier::new(&scenario, start)?))
        }
    };
    // A scenario with many connections needs more than a shell's default.
    weir_engine::net::raise_descriptor_limit().map_err(|error| format!("the limit of open files: {error}"))?;
    let (events, told) = mpsc::channel();
    let run = thread::spawn(move || run_part(&scenario, &target, part, run_id, &mut *barrier, &events));
    told.into_iter().for_each(tell);
    let outcome = run.join().unwrap_or(Err(RunError::Panicked));
    outcome.map_err(|error| error.to_string())
}

/// Reads a scenario, or says all that is wrong with it.
pub fn read(path: &Path) -> Result<Scenario, String> {
    read_with_source(path).map(|(scenario, _)| scenario)
}

/// As [`read`], with the text of the file.
pub fn read_with_source(path: &Path) -> Result<(Scenario, String), String> {
    read_with(path, &[])
}

/// As [`read_with_source`], with further thresholds.
fn read_with(path: &Path, more: &[Threshold]) -> Result<(Scenario, String), String> {
    let shown = path.display();
    let length = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if length > scenario::FILE_BYTES_MAX as u64 {
        return Err(format!("{shown}: more than {} bytes; a scenario is a small file", scenario::FILE_BYTES_MAX));
    }
    let source = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let parsed = scenario::parse_with(&shown.to_string(), &source, more);
    let scenario = parsed.map_err(|mistakes| format!("the scenario is refused\n{mistakes}"))?;
    Ok((scenario, source))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use weir_origin::redis::{OriginSettings, start};

    use super::*;

    const SCENARIO: &str = r#"
name = "small"
protocol = "redis"
connections = 2
keys = { count = 100 }
command = [{ name = "GET" }]
phase = [{ name = "one", rate = 2000, warmup = "100ms", duration = "1s" }]
"#;

    fn args(directory: &Path, source: &str, target: Address) -> LoadArgs {
        let scenario = directory.join("scenario.toml");
        fs::write(&scenario, source).expect("written");
        let json = Some(directory.join("out.jsonl"));
        LoadArgs {
            what: scenario.display().to_string(),
            target: Some(target),
            url: UrlArgs::default(),
            thresholds: Vec::new(),
            json,
            html: None,
            quiet: true,
            processes: 1,
            part: None,
            start_at: None,
        }
    }

    #[test]
    fn a_run_ends_in_a_line_of_json_and_a_table() {
        let directory = tempfile::tempdir().expect("a directory");
        let origin = start(OriginSettings::default()).expect("an origin");
        let args = args(directory.path(), SCENARIO, origin.addresses()[0].into());
        run(&args).expect("a whole run");
        let lines = fs::read_to_string(args.json.expect("given")).expect("written");
        let record = StepRecord::from_line(lines.trim_end()).expect("one record");
        assert_eq!(record.counts.completed, record.counts.intended);
        let summary = summary::summary("one", &record, true).expect("whole histograms");
        for row in [
            "small / one: open loop, 1.0 s",
            "target        127.0.0.1:",
            ", 2 connections, offered 2000/s",
            "errors        0",
            "generator lag p99",
        ] {
            assert!(summary.contains(row), "{row} is not in\n{summary}");
        }
    }

    #[test]
    fn a_wrong_scenario_and_a_dead_target_are_refused_with_a_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let dead: Address = listener.local_addr().expect("bound").into();
        drop(listener);
        let begun = Instant::now();
        let refusal = run(&args(directory.path(), SCENARIO, dead.clone())).expect_err("nobody listens");
        assert!(refusal.contains("nothing was sent. Start the target"), "{refusal}");
        let wrong = SCENARIO.replace("rate = 2000", "rate = 0").replace("connections", "conections");
        let refusal = run(&args(directory.path(), &wrong, dead)).expect_err("two mistakes");
        assert!(refusal.contains("scenario.toml:4:1") && refusal.ends_with("2 errors; nothing was sent"), "{refusal}");
        assert!(begun.elapsed() < Duration::from_secs(5), "no load was made");
    }
}
