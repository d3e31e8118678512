//! `weir lab load`: one scenario against one target.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::mpsc,
    thread,
};

use clap::Args;
use weir_engine::settings::Address;
use weir_load::{
    Event, Part, RunError, Scenario,
    run::{Alone, Barrier, ByClock, instant, run_id},
    run_part, scenario,
    shard::SHARDS_MAX,
};
use weir_trials::together::conductor::{self, conduct};

use self::show::{JsonLines, line, show};

pub mod show;

/// Send a scenario's load to a target and report what became of it: latency from the intended time, open loop.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab load examples/lab/redis-mixed.toml --target 127.0.0.1:6379\n  weir lab load scenario.toml --target unix:/run/redis.sock --quiet --json results.jsonl\n  weir lab load examples/lab/redis-pubsub.toml --target 127.0.0.1:6379   # subscribers, and who publishes\n  weir lab load scenario.toml --target 10.0.0.5:6379 --processes 4\n  weir lab load scenario.toml --target 10.0.0.5:6379 --part 1/2 --start-at 2026-01-02T03:04:05Z --json one.jsonl\n\nStandard error has a line per second, standard output a table per phase. Exit: 0 the run is complete, 1 it is not, 2 the command line is wrong."
)]
pub struct LoadArgs {
    /// The scenario, a TOML file.
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Where to send it: HOST:PORT or unix:/path.
    #[arg(long, value_name = "HOST:PORT|unix:/path", value_parser = Address::from_str)]
    target: Address,

    /// Write one JSON line per phase, with whole histograms; - is standard output, without tables.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// No line per second.
    #[arg(long)]
    quiet: bool,

    /// Send it from so many processes of this machine, which begin together and end in one record. They share the shards of
    /// the scenario, at least one each.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "part",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    processes: u32,

    /// Send only this part of it, such as 2/4; other machines send the others. `weir lab merge` makes one record of them.
    #[arg(long, value_name = "PART", requires_all = ["start_at", "json"], value_parser = Part::from_str)]
    part: Option<Part>,

    /// When the first phase of all parts begins, with its warm-up: RFC 3339, or seconds since 1970. The clocks of the machines
    /// must agree. Until then this part connects and writes its keys.
    #[arg(long, value_name = "TIME", requires = "part", value_parser = instant)]
    start_at: Option<u64>,
}

pub fn run(args: &LoadArgs) -> Result<(), String> {
    let (scenario, source) = read_with_source(&args.scenario)?;
    let mut json = args.json.as_deref().map(JsonLines::create).transpose()?;
    let mut written = Ok(());
    let mut tell = |event| match event {
        Event::Preloading(keys) if !args.quiet => eprintln!("writing {keys} keys"),
        Event::Second(second) if !args.quiet => eprintln!("{}", line(&second)),
        Event::Step { phase, record, .. } => {
            let shown = show(&phase, &record, json.as_mut());
            if written.is_ok() {
                written = shown;
            }
        }
        Event::Preloading(_) | Event::Second(_) | Event::Phase { .. } => {}
    };
    if args.processes > 1 {
        let request = conductor::Request {
            weir: std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?,
            scenario,
            source,
            target: args.target.clone(),
            processes: args.processes,
        };
        conduct(&request, tell).map_err(|error| format!("{error:#}"))?;
        return written;
    }
    let (part, run_id, mut barrier): (Part, String, Box<dyn Barrier + Send>) = match args.part.zip(args.start_at) {
        None => (Part::WHOLE, run_id(), Box::new(Alone)),
        Some((part, start)) => {
            part.check(&scenario).map_err(|error| error.to_string())?;
            // The same for all parts, whose processes cannot ask each other.
            let run_id = format!("{start:x}-{}", scenario.fingerprint());
            (part, run_id, Box::new(ByClock::new(&scenario, start)?))
        }
    };
    // A scenario with many connections needs more than a shell's default.
    weir_engine::net::raise_descriptor_limit().map_err(|error| format!("the limit of open files: {error}"))?;
    let (events, told) = mpsc::channel();
    let target = args.target.clone();
    let run = thread::spawn(move || run_part(&scenario, &target, part, run_id, &mut *barrier, &events));
    told.into_iter().for_each(&mut tell);
    let outcome = run.join().unwrap_or(Err(RunError::Panicked));
    outcome.map_err(|error| error.to_string())?;
    written
}

/// Reads a scenario, or says all that is wrong with it.
pub fn read(path: &Path) -> Result<Scenario, String> {
    read_with_source(path).map(|(scenario, _)| scenario)
}

/// As [`read`], with the text of the file.
pub fn read_with_source(path: &Path) -> Result<(Scenario, String), String> {
    let shown = path.display();
    let length = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
    if length > scenario::FILE_BYTES_MAX as u64 {
        return Err(format!("{shown}: more than {} bytes; a scenario is a small file", scenario::FILE_BYTES_MAX));
    }
    let source = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let parsed = scenario::parse(&shown.to_string(), &source);
    let scenario = parsed.map_err(|mistakes| format!("the scenario is refused\n{mistakes}"))?;
    Ok((scenario, source))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use weir_load::StepRecord;
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
        LoadArgs { scenario, target, json, quiet: true, processes: 1, part: None, start_at: None }
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
        let table = show::table("one", &record).expect("whole histograms");
        for row in
            ["small / one: open loop, 1.0 s", "offered        2000/s", "0 connection, 0 protocol", "generator CPU"]
        {
            assert!(table.contains(row), "{row} is not in\n{table}");
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
