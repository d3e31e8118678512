//! `weir lab load`: one scenario against one target.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    str::FromStr,
    sync::mpsc,
    thread,
};

use clap::Args;
use weir_engine::settings::Address;
use weir_load::{
    Event, Recorder, RunError, Scenario, Second, Stage, StepRecord,
    recorder::{HistogramError, Summary, Tail},
    scenario,
};

/// Send a scenario's load to a target and report what became of it: latency from the intended time, open loop.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir lab load examples/lab/redis-mixed.toml --target 127.0.0.1:6379\n  weir lab load scenario.toml --target unix:/run/redis.sock --quiet --json results.jsonl\n\nStandard error has a line per second, standard output a table per phase. Exit: 0 the run is complete, 1 it is not, 2 the command line is wrong."
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
}

pub fn run(args: &LoadArgs) -> Result<(), String> {
    let scenario = read(&args.scenario)?;
    let mut json = args.json.as_deref().map(JsonLines::create).transpose()?;
    // A scenario with many connections needs more than a shell's default.
    weir_engine::net::raise_descriptor_limit().map_err(|error| format!("the limit of open files: {error}"))?;
    let (events, told) = mpsc::channel();
    let target = args.target.clone();
    let run = thread::spawn(move || weir_load::run(&scenario, &target, &events));
    let mut written = Ok(());
    for event in told {
        match event {
            Event::Preloading(keys) if !args.quiet => eprintln!("writing {keys} keys"),
            Event::Second(second) if !args.quiet => eprintln!("{}", line(&second)),
            Event::Step { phase, record, .. } => written = written.and(show(&phase, &record, json.as_mut())),
            Event::Preloading(_) | Event::Second(_) | Event::Phase { .. } => {}
        }
    }
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

/// Where records go.
struct JsonLines {
    out: Box<dyn Write>,
    is_stdout: bool,
}

impl JsonLines {
    /// Before any load, so that no result is lost for want of a place.
    fn create(path: &Path) -> Result<Self, String> {
        if path == Path::new("-") {
            return Ok(Self { out: Box::new(io::stdout()), is_stdout: true });
        }
        let file = File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self { out: Box::new(file), is_stdout: false })
    }

    fn write(&mut self, record: &StepRecord) -> Result<(), String> {
        let line = record.to_line().map_err(|error| error.to_string())?;
        writeln!(self.out, "{line}").and_then(|()| self.out.flush()).map_err(|error| format!("--json: {error}"))
    }
}

fn show(phase: &str, record: &StepRecord, json: Option<&mut JsonLines>) -> Result<(), String> {
    let mut has_table = true;
    if let Some(json) = json {
        json.write(record)?;
        has_table = !json.is_stdout;
    }
    if has_table {
        let table = table(phase, record).map_err(|error| error.to_string())?;
        // A closed pipe is how `head` says that it has seen enough.
        let _ = io::stdout().write_all(table.as_bytes());
    }
    Ok(())
}

/// One second, for people.
fn line(second: &Second) -> String {
    let Second { phase, stage, completed, failed, p50, p99, lag_p99, left } = second;
    let stage = match stage {
        Stage::Warmup => "warm-up, ",
        Stage::Window => "",
        Stage::Drain => "draining, ",
    };
    let left = left.as_secs();
    format!("{phase}: {stage}{left} s left  {completed}/s  p50 {p50}  p99 {p99}  lag p99 {lag_p99}  failed {failed}")
}

/// The result of a phase, for people.
fn table(phase: &str, record: &StepRecord) -> Result<String, HistogramError> {
    let StepRecord { counts, load, latency, resources, verdict, .. } = record;
    let percentile =
        |summary: &Summary, tail| Recorder::from_summary(summary).map(|all| all.percentile(tail).to_string());
    let per_second = |count: u64| format!("{:.0}/s", count as f64 / load.window_s);
    let errors = &counts.errors;
    let shed = match counts.shed.is_empty() {
        true => "0".to_owned(),
        false => {
            let reasons: Vec<String> = counts.shed.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
            format!("{} ({})", counts.shed_total(), reasons.join(", "))
        }
    };
    let generator = resources.parties.get("generator");
    let cpu = generator.and_then(|party| party.cpu_us_per_req);
    let worth = match (&verdict.invalid_reason, &verdict.not_clean_reason) {
        (Some(reason), _) => format!("INVALID: {reason}"),
        (None, Some(reason)) => format!("not clean: {reason}"),
        (None, None) => "clean".to_owned(),
    };
    let rows = [
        ("verdict", worth),
        ("offered", load.offered.map_or("as fast as it answers".to_owned(), |rate| format!("{rate}/s"))),
        ("sent", format!("{} ({})", counts.sent, per_second(counts.sent))),
        ("completed", format!("{} ({})", counts.completed, per_second(counts.completed))),
        ("late", counts.late.to_string()),
        ("skipped", format!("{} backlog, {} generator", counts.skipped_backlog, counts.skipped_generator)),
        ("shed", shed),
        (
            "errors",
            format!(
                "{} connection, {} protocol, {} status, {} timeout, {} integrity",
                errors.transport, errors.protocol, errors.status, errors.timeout, errors.payload
            ),
        ),
        ("checked", format!("{} ({} race-suspect)", counts.integrity.checked, counts.integrity.race_suspect)),
        ("sojourn p50", percentile(&latency.sojourn, Tail::P50)?),
        ("sojourn p99", percentile(&latency.sojourn, Tail::P99)?),
        ("sojourn p99.9", percentile(&latency.sojourn, Tail::P999)?),
        ("service p99", percentile(&latency.service, Tail::P99)?),
        ("lag p99", percentile(&latency.generator_lag, Tail::P99)?),
        ("generator CPU", cpu.map_or("n/a".to_owned(), |micros| format!("{micros:.2} us per request"))),
    ];
    let mut text = format!("{} / {phase}: {} loop, {:.1} s\n", record.identity.row, load.mode, load.window_s);
    for (name, value) in rows {
        text.push_str(&format!("  {name:<14} {value}\n"));
    }
    Ok(text)
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
        LoadArgs { scenario, target, json: Some(directory.join("out.jsonl")), quiet: true }
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
        let table = table("one", &record).expect("whole histograms");
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

    #[test]
    fn a_second_names_its_stage_and_the_time_left() {
        use weir_load::recorder::Percentile;
        let second = Second {
            phase: "low".to_owned(),
            stage: Stage::Warmup,
            completed: 2_000,
            failed: 3,
            p50: Percentile::Micros(70),
            p99: Percentile::Micros(2_100),
            lag_p99: Percentile::TooFew { n: 5 },
            left: Duration::from_secs(7),
        };
        let expected = "low: warm-up, 7 s left  2000/s  p50 70 us  p99 2.10 ms  lag p99 n/a (n = 5)  failed 3";
        assert_eq!(line(&second), expected);
    }
}
