//! Short fuzz run. Targets are tests of `weir-fuzz` that need its feature `libfuzzer`; `fuzz/corpus/<target>` is committed and
//! every new run starts from it, so a once found crash stays a regression test.
//!
//! The compiler's coverage pass works on the stable toolchain through the flags of `fuzz/coverage.sh`; no sanitizer is
//! needed for crates that forbid `unsafe`.

use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{Finished, at_idle_priority, command, run_counted};
use crate::lane::{Report, Run};
use crate::programs::{Programs, TestProgram};
use crate::reach::ReachedPackages;
use crate::totals::{Runner, Totals};
use crate::workspace::Workspace;

/// The packages that the fuzz targets test.
pub const FUZZED: &[&str] = &[
    "weir-fuzz",
    "weir-engine",
    "weir-resp",
    "weir-http-codec",
    "weir-http2-codec",
    "weir-websocket-codec",
    "weir-postgres-codec",
    "weir-mongodb-codec",
    "weir-sasl",
    "weir-sse-codec",
    "weir-json-codec",
    "weir-ai-session",
    "weir-ai-translate",
    "weir-mcp-session",
    "weir-flags-codec",
    "weir-flags-session",
    "weir-postgres-session",
    "weir-postgres-simulation",
    "weir-mongodb-session",
    "weir-mongodb-simulation",
    "weir-redis-session",
    "weir-redis-simulation",
    "weir-http",
    "weir-analysis",
    "weir-spend",
];

/// Seconds per target unless `WEIR_FUZZ_SECONDS` says otherwise.
const SECONDS_DEFAULT: u64 = 10;
/// Resident memory of a target; past it libFuzzer reports a failure.
const MEMORY_MIB_MAX: u32 = 1024;
/// One input may take this long, at a priority below that of other programs.
const INPUT_SECONDS_MAX: u32 = 60;
/// Inputs that a run tries at least. Beside busy lanes its seconds may pass without them: the target runs again then.
const INPUTS_MIN: u64 = 2_000;
/// Runs of one target at most.
const RUNS_MAX: u32 = 10;
/// Longest input that is tried: every rule of the wire fits, and small inputs run faster.
const INPUT_BYTES_MAX: u32 = 4096;
/// Counters of coverage that a target has at least.
const COUNTERS_MIN: u32 = 100;
/// The feature that the targets need.
const FEATURE: &str = "libfuzzer";

/// Builds every target with coverage, then replays its corpus and fuzzes on.
pub fn run(run: &Run<'_>) -> Result<Report> {
    let workspace = run.workspace;
    let seconds = match std::env::var("WEIR_FUZZ_SECONDS") {
        Ok(text) => text.parse().with_context(|| format!("WEIR_FUZZ_SECONDS=`{text}` is not a number"))?,
        Err(_) => SECONDS_DEFAULT,
    };
    let targets = build(workspace, run.reached)?;
    let mut report = Report::default();
    for (target, finished) in fuzz_all(workspace, &targets, seconds) {
        let finished = finished?;
        let inputs = finished.totals.passed;
        let held = finished.success && inputs >= INPUTS_MIN;
        report.totals.add(Totals { passed: u64::from(held), failed: u64::from(!held), ignored: 0 });
        if !finished.success {
            report.problems.push(format!("fuzz: {target} found a failing input; it is in fuzz/artifacts/{target}"));
            report.evidence.extend(finished.evidence);
        } else if !held {
            report.problems.push(format!("fuzz: {target} tried {inputs} inputs; {INPUTS_MIN} are the least"));
        }
    }
    Ok(report)
}

/// The targets: tests of `weir-fuzz` that only its feature builds.
fn build(workspace: &Workspace, reached: &ReachedPackages) -> Result<Vec<TestProgram>> {
    let packages = workspace.metadata.workspace_packages();
    let fuzz = packages.into_iter().find(|package| package.name == "weir-fuzz").context("there is no weir-fuzz")?;
    let names = fuzz.targets.iter().filter(|target| target.required_features.iter().any(|one| one == FEATURE));
    let mut words = vec!["--features", "weir-fuzz/libfuzzer"];
    words.extend(names.flat_map(|target| ["--test", &target.name]));
    // Its flags are for the crates of this workspace: all others are those of the other tests, and built already.
    let wrapper = workspace.root.join("fuzz/coverage.sh");
    let targets = Programs::build(workspace, reached, &words, Some(&wrapper))?.tests;
    let files = std::fs::read_dir(workspace.root.join("fuzz/targets"))?.count();
    ensure!(targets.len() == files, "fuzz/targets has {files} files, and weir-fuzz {} targets", targets.len());
    targets.iter().try_for_each(check_coverage)?;
    Ok(targets)
}

/// A target without coverage only guesses, and libFuzzer does not call that a failure. It says how many counters it has.
fn check_coverage(target: &TestProgram) -> Result<()> {
    let output = Command::new(&target.path).arg("-runs=0").output().context("a target does not start")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let counters = text.split_once(" inline 8-bit counters").and_then(|(before, _)| before.rsplit_once('('));
    let count: u32 = counters.and_then(|(_, count)| count.parse().ok()).unwrap_or(0);
    ensure!(count >= COUNTERS_MIN, "{} has {count} counters of coverage", target.target);
    Ok(())
}

/// Each target keeps one CPU busy, so as many run at once as there are.
fn fuzz_all<'a>(workspace: &Workspace, targets: &'a [TestProgram], seconds: u64) -> Vec<(&'a str, Result<Finished>)> {
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    let together = |targets: &'a [TestProgram]| {
        thread::scope(|scope| {
            let run = |program: &'a TestProgram| scope.spawn(move || fuzz_target(workspace, program, seconds));
            let started: Vec<_> = targets.iter().map(|program| (&*program.target, run(program))).collect();
            let joined = |(target, handle): (_, thread::ScopedJoinHandle<'_, _>)| {
                (target, handle.join().expect("a target reports, it does not panic"))
            };
            started.into_iter().map(joined).collect::<Vec<_>>()
        })
    };
    targets.chunks(at_once).flat_map(together).collect()
}

fn fuzz_target(workspace: &Workspace, program: &TestProgram, seconds: u64) -> Result<Finished> {
    let target = &*program.target;
    let corpus = workspace.root.join("fuzz/corpus").join(target);
    let seeds = std::fs::read_dir(&corpus).map_or(0, Iterator::count);
    ensure!(seeds > 0, "{target} has no committed corpus");
    // New inputs go to the first folder, so the committed one stays as it is.
    let found = workspace.target.join("fuzz/found").join(target);
    let artifacts = workspace.root.join("fuzz/artifacts").join(target);
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder)?;
    }
    let mut words: Vec<String> = vec![
        program.path.to_string_lossy().into_owned(),
        found.to_string_lossy().into_owned(),
        corpus.to_string_lossy().into_owned(),
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_MIB_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        format!("-max_len={INPUT_BYTES_MAX}"),
        // Not a line for each new input: thousands of them hide what other lanes said.
        "-verbosity=0".into(),
        "-print_final_stats=1".into(),
    ];
    let protocol = target.split('_').next().unwrap_or(target);
    let dictionary = workspace.root.join(format!("fuzz/{protocol}.dict"));
    if dictionary.is_file() {
        words.push(format!("-dict={}", dictionary.display()));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut inputs = Totals::default();
    for _ in 0..RUNS_MAX {
        let mut run = at_idle_priority(&command(&workspace.root, &words));
        let finished = run_counted(&mut run, Runner::LibFuzzer, Duration::from_secs(seconds + 240))?;
        inputs.add(finished.totals);
        if !finished.success || inputs.passed >= INPUTS_MIN {
            return Ok(Finished { totals: inputs, ..finished });
        }
    }
    Ok(Finished { success: true, timed_out: false, totals: inputs, failed: Vec::new(), evidence: Vec::new() })
}
