//! The client suites. `stage` (a program of `weir-tests`) starts the servers and one gateway in
//! front of each, hands their addresses to the suite, and judges the gateways when it is done.

use std::path::Path;

use anyhow::Result;

use super::{LANE_DEADLINE, cargo, gateway_environment};
use crate::command::run_counted;
use crate::lane::Report;
use crate::setup;
use crate::setup::clients::{java_build_folder, suite_folder};
use crate::totals::Runner;
use crate::workspace::Workspace;

/// Drivers that the suites run with; end-to-end tests cover both, a suite needs one.
const DRIVER: &str = "auto";

pub fn python(workspace: &Workspace) -> Result<Report> {
    let python = setup::python(workspace);
    let words = [&*python.to_string_lossy(), "-m", "pytest", "-q"];
    on_stage(workspace, "python", &words, Runner::Pytest)
}

pub fn node(workspace: &Workspace) -> Result<Report> {
    let words = ["node", "--test", "--test-reporter=tap", "--test-concurrency=1"];
    on_stage(workspace, "node", &words, Runner::Node)
}

pub fn go(workspace: &Workspace) -> Result<Report> {
    let words = ["go", "test", "-v", "-count=1", "./..."];
    on_stage(workspace, "go", &words, Runner::Go)
}

pub fn java(workspace: &Workspace) -> Result<Report> {
    let build = java_build_folder(workspace);
    let words = ["mvn", "-B", build.as_str(), "test"];
    on_stage(workspace, "java", &words, Runner::Maven)
}

fn on_stage(workspace: &Workspace, language: &str, suite: &[&str], runner: Runner) -> Result<Report> {
    let folder = suite_folder(workspace, language);
    let mut command = cargo(workspace, &stage_words(&folder));
    command.args(suite);
    command.envs(gateway_environment(workspace, DRIVER)?);
    let finished = run_counted(&mut command, runner, LANE_DEADLINE)?;
    let name = format!("clients:{language}");
    let success = finished.success;
    let mut report = Report::of_tests(&name, finished, false);
    if !success && report.totals.failed == 0 {
        report.problems.push(format!("{name}: the suite or the gateway's own checks failed"));
    }
    Ok(report)
}

fn stage_words(folder: &Path) -> Vec<&str> {
    let folder = folder.to_str().unwrap_or(".");
    vec!["run", "--quiet", "--locked", "--package", "weir-tests", "--bin", "stage", "--", folder]
}
