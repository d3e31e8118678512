//! Lanes of the compiler's tools, which run no test.

use std::process::Command;

use anyhow::Result;

use super::LANE_DEADLINE;
use crate::command::run_counted;
use crate::lane::{Report, Run};
use crate::programs::cargo;
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
    Ok(Report::default())
}

/// The packages that the change reaches, as words of cargo: what no change reaches has no new warning. None: nothing to look at.
fn reached<'a>(run: &Run<'a>) -> Option<Vec<&'a str>> {
    match run.reached {
        None => Some(vec!["--workspace"]),
        Some(packages) if packages.is_empty() => None,
        Some(packages) => Some(packages.iter().flat_map(|package| ["--package", package]).collect()),
    }
}

pub fn clippy(run: &Run<'_>) -> Result<Report> {
    let Some(packages) = reached(run) else { return Ok(Report::default()) };
    let words = [&["clippy"], &*packages, &["--all-targets", "--locked", "--", "-D", "warnings"]].concat();
    plain("clippy", &mut cargo(run.workspace, &words))
}

pub fn tidy(run: &Run<'_>) -> Result<Report> {
    let findings = rules::run(run.workspace)?;
    println!("tidy: {} files read, {} violations", findings.files_read, findings.violations.len());
    Ok(Report {
        problems: findings.violations.into_iter().map(|violation| format!("tidy: {violation}")).collect(),
        ..Report::default()
    })
}

pub fn docs(run: &Run<'_>) -> Result<Report> {
    let Some(packages) = reached(run) else { return Ok(Report::default()) };
    let words = [&["doc"], &*packages, &["--no-deps", "--locked", "--quiet"]].concat();
    let mut command = cargo(run.workspace, &words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    let mut report = plain("docs", &mut command)?;
    // The whole workspace, so that its crates have the features that they were built with.
    let mut examples = cargo(run.workspace, &["test", "--workspace", "--doc", "--locked", "--no-fail-fast"]);
    let finished = run_counted(&mut examples, Runner::Cargo, LANE_DEADLINE)?;
    report.join(Report::of_tests("docs", finished, true));
    Ok(report)
}
