//! The client suites. `stage` (a program of `weir-tests`) starts the servers and one gateway in
//! front of each, hands their addresses to the suite, and judges the gateways when it is done.

use anyhow::Result;

use super::LANE_DEADLINE;
use super::products::environment;
use crate::command::{command, run_counted};
use crate::lane::{Report, Run};
use crate::setup;
use crate::setup::clients::{java_build_folder, suite_folder};
use crate::totals::Runner;

/// The I/O driver that the suites run with.
const DRIVER: &str = "auto";

pub fn python(run: &Run<'_>) -> Result<Report> {
    let python = setup::python(run.workspace);
    let words = [&*python.to_string_lossy(), "-m", "pytest", "-q"];
    on_stage(run, "python", &words, Runner::Pytest)
}

pub fn node(run: &Run<'_>) -> Result<Report> {
    let words = ["node", "--test", "--test-reporter=tap", "--test-concurrency=1"];
    on_stage(run, "node", &words, Runner::Node)
}

pub fn go(run: &Run<'_>) -> Result<Report> {
    let words = ["go", "test", "-v", "-count=1", "./..."];
    on_stage(run, "go", &words, Runner::Go)
}

pub fn java(run: &Run<'_>) -> Result<Report> {
    let build = java_build_folder(run.workspace);
    let words = ["mvn", "-B", build.as_str(), "test"];
    on_stage(run, "java", &words, Runner::Maven)
}

fn on_stage(run: &Run<'_>, language: &str, suite: &[&str], runner: Runner) -> Result<Report> {
    let stage = run.programs()?.binary("stage")?.to_string_lossy();
    let folder = suite_folder(run.workspace, language);
    let folder = folder.to_string_lossy();
    let words: Vec<&str> = [&*stage, &*folder].into_iter().chain(suite.iter().copied()).collect();
    let mut command = command(&run.workspace.root, &words);
    command.envs(environment(run, DRIVER)?);
    let finished = run_counted(&mut command, runner, LANE_DEADLINE)?;
    let name = format!("clients:{language}");
    let success = finished.success;
    let mut report = Report::of_tests(&name, finished, false);
    if !success && report.totals.failed == 0 {
        report.problems.push(format!("{name}: the suite or the gateway's own checks failed"));
    }
    Ok(report)
}
