//! `suite <redis|redis-py|go-redis|asyncpg|pymongo> <source> [--python PROGRAM] [--details] [--weir-only] [--only PART ...]`: runs a test suite
//! that others wrote, directly and through Weir, and holds what differs against `tests/suites/<suite>.toml`.
//!
//! `source` is the suite's source tree. With `--weir-only` the suite runs through Weir first, and directly only if something is
//! not as the list says.
//! `--only` runs single units (redis) or files, and then says nothing about listed tests elsewhere. `--details` prints the
//! message of each test that differs, listed or not. The last line is for `cargo xtask test`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_tests::suite::list::{Kind, List};
use weir_tests::suite::outcome::{TestOutcome, TestOutcomes};
use weir_tests::suite::verdict::{Verdict, judge};
use weir_tests::suite::{Direct, Plan, Suite, run_both};

const USAGE: &str = "usage: suite <redis|redis-py|go-redis|asyncpg|pymongo> <source> [--python PROGRAM] [--details] [--weir-only] [--only PART ...]";

struct Options {
    suite: Suite,
    source: PathBuf,
    python: PathBuf,
    details: bool,
    direct: Direct,
    only: Vec<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(options) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(verdict) => {
            print(options.suite, &verdict);
            if verdict.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("suite {}: {error}", options.suite.name());
            ExitCode::from(1)
        }
    }
}

fn parse(words: &[String]) -> Option<Options> {
    let [name, source, rest @ ..] = words else { return None };
    let suite = Suite::ALL.into_iter().find(|suite| suite.name() == name)?;
    let mut options = Options {
        suite,
        source: source.into(),
        python: "python3".into(),
        details: false,
        direct: Direct::Run,
        only: Vec::new(),
    };
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--python" => options.python = rest.next()?.into(),
            "--details" => options.details = true,
            "--weir-only" => options.direct = Direct::Listed,
            "--only" => options.only = rest.by_ref().cloned().collect(),
            _ => return None,
        }
    }
    Some(options)
}

fn run(options: &Options) -> Result<Verdict, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites").join(format!("{}.toml", options.suite.name()));
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let list = List::parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let source = std::fs::canonicalize(&options.source)
        .map_err(|error| format!("no source tree at {}: {error}", options.source.display()))?;
    let run = |only: &[String], direct: Direct| {
        let plan = Plan { suite: options.suite, source: &source, python: &options.python, list: &list, only, direct };
        let (direct, weir) = run_both(&plan)?;
        if options.details {
            print_details(&list, &direct, &weir);
        }
        Ok::<Verdict, String>(judge(&list, &direct, &weir, !only.is_empty()))
    };
    let mut verdict = run(&options.only, options.direct)?;
    if options.direct == Direct::Listed && options.only.is_empty() && !verdict.has_counts_of(&list) {
        let (name, tests, skipped) = (options.suite.name(), verdict.tests, verdict.skipped);
        println!(
            "suite {name}: {tests} tests, {skipped} skipped by the suite; the list has {} and {}",
            list.tests, list.skipped
        );
        verdict = run(&options.only, Direct::Run)?;
    }
    let parts: BTreeSet<String> = verdict.tests().map(|test| options.suite.part_of(test).to_owned()).collect();
    if !parts.is_empty() {
        for problem in &verdict.problems {
            println!("suite {}: first run: {}", options.suite.name(), problem.text);
        }
        // Where a name does not tell its part, all that ran runs again.
        let parts: Vec<String> = if parts.contains("") { options.only.clone() } else { parts.into_iter().collect() };
        let once = verdict.confirm(run(&parts, Direct::Run)?);
        for (what, problems) in [("not repeated by a second run", once.first), ("only in the second run", once.second)]
        {
            for problem in problems {
                println!("suite {}: {what}: {}", options.suite.name(), problem.text);
            }
        }
    }
    if options.only.is_empty() {
        verdict.check_count(&list);
    }
    Ok(verdict)
}

/// Every test that differs, with all that the suite said.
fn print_details(list: &List, direct: &TestOutcomes, weir: &TestOutcomes) {
    for (name, outcome) in &direct.tests {
        let through = weir.tests.get(name);
        if *outcome == TestOutcome::Passed && through == Some(&TestOutcome::Passed) {
            continue;
        }
        let listed = list.difference(name).map_or(String::new(), |(kind, reason)| format!(" [{kind}: {reason}]"));
        println!("--- {name}{listed}\n  direct: {outcome:?}\n  weir: {through:?}");
    }
}

fn print(suite: Suite, verdict: &Verdict) {
    let name = suite.name();
    for problem in &verdict.problems {
        println!("suite {name}: {}", problem.text);
    }
    for problem in &verdict.problems {
        println!("suite failed: {}", problem.test.as_ref().unwrap_or(&problem.text));
    }
    for kind in Kind::ALL {
        println!("suite {name}: {:>5} differ, {kind}", verdict.listed.get(&kind).unwrap_or(&0));
    }
    println!("suite {name}: {:>5} fail without Weir too", verdict.failing_directly);
    println!("suite {name}: {:>5} left out by name", verdict.left_out);
    println!("suite {name}: {:>5} left out by the suite itself", verdict.skipped);
    let listed: usize = verdict.listed.values().sum();
    let ignored = listed + verdict.failing_directly + verdict.left_out;
    println!("suite result: {} passed; {} failed; {ignored} listed", verdict.passed.len(), verdict.problems.len());
}
