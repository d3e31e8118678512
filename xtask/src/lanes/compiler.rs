//! Lanes of the compiler's tools, which run no test.

use std::process::Command;

use anyhow::Result;

use super::{LANE_DEADLINE, products};
use crate::command::{at_idle_priority, run_counted};
use crate::lane::{Report, Run};
use crate::programs::{ALWAYS, cargo};
use crate::reach::ReachedPackages;
use crate::tidy as rules;
use crate::totals::Runner;

/// A command whose success is the whole result.
fn plain(name: &str, command: &mut Command) -> Result<Report> {
    let finished = run_counted(command, Runner::None, LANE_DEADLINE)?;
    let mut report = Report::default();
    if !finished.success {
        report.problems.push(format!("{name}: ended with a failure"));
        report.evidence = finished.evidence;
    }
    Ok(report)
}

pub fn fmt(run: &Run<'_>) -> Result<Report> {
    plain("fmt", &mut cargo(run.workspace, &["fmt", "--all", "--check"]))
}

pub fn build(run: &Run<'_>) -> Result<Report> {
    let programs = run.programs()?;
    println!("build: {} test programs", programs.tests.len());
    let forgotten = products::without_a_lane(programs);
    let problems = forgotten.map(|one| format!("build: no lane runs {} of {}", one.target, one.package)).collect();
    Ok(Report { problems, ..Report::default() })
}

/// Checks the packages that the change reaches. No other package can have a new warning.
pub fn clippy(run: &Run<'_>) -> Result<Report> {
    if run.reached.is_empty() {
        return Ok(Report::default());
    }
    let words = [
        &["clippy"],
        &*run.reached.selection(&[]),
        &["--all-targets", "--keep-going", "--locked", "--", "-D", "warnings"],
    ]
    .concat();
    plain("clippy", &mut at_idle_priority(&cargo(run.workspace, &words)))
}

pub fn tidy(run: &Run<'_>) -> Result<Report> {
    let findings = rules::run(run.workspace)?;
    println!("tidy: {} files read, {} violations", findings.files_read, findings.violations.len());
    Ok(Report {
        problems: findings.violations.into_iter().map(|violation| format!("tidy: {violation}")).collect(),
        ..Report::default()
    })
}

/// Documents the packages that the change reaches, and runs the examples in their documentation.
pub fn docs(run: &Run<'_>) -> Result<Report> {
    if run.reached.is_empty() {
        return Ok(Report::default());
    }
    let words =
        [&["doc"], &*run.reached.selection(&[]), &["--no-deps", "--keep-going", "--locked", "--quiet"]].concat();
    let mut command = cargo(run.workspace, &words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    let mut report = plain("docs", &mut at_idle_priority(&command))?;
    // The packages of the build, so that their crates have the features that they were built with.
    let words = [&["test", "--doc", "--locked", "--no-fail-fast"], &*run.reached.selection(&ALWAYS)].concat();
    let finished = run_counted(&mut at_idle_priority(&cargo(run.workspace, &words)), Runner::Cargo, LANE_DEADLINE)?;
    report.join(Report::of_program("docs", finished, true));
    if *run.reached == ReachedPackages::All {
        report.expect_tests("docs");
    }
    Ok(report)
}
