//! The suites that others wrote. `suite` (a program of `weir-tests`) runs each directly and through Weir and holds what
//! differs against `tests/suites/*.toml`.

use anyhow::Result;

use super::{LANE_DEADLINE, cargo, gateway_environment};
use crate::command::run_counted;
use crate::lane::Report;
use crate::setup::suites::{redis_py_environment, source};
use crate::totals::Runner;
use crate::workspace::Workspace;

pub fn redis(workspace: &Workspace) -> Result<Report> {
    run(workspace, "redis", &[])
}

pub fn redis_py(workspace: &Workspace) -> Result<Report> {
    let python = redis_py_environment(workspace).join("bin/python");
    run(workspace, "redis-py", &["--python", &python.to_string_lossy()])
}

pub fn go_redis(workspace: &Workspace) -> Result<Report> {
    run(workspace, "go-redis", &[])
}

fn run(workspace: &Workspace, suite: &str, words: &[&str]) -> Result<Report> {
    let folder = source(workspace, suite).to_string_lossy().into_owned();
    let program = ["run", "--package", "weir-tests", "--locked", "--quiet", "--bin", "suite", "--", suite, &folder];
    let mut command = cargo(workspace, &program);
    command.args(words);
    command.envs(gateway_environment(workspace, "auto")?);
    let finished = run_counted(&mut command, Runner::Suite, LANE_DEADLINE)?;
    // What the suite leaves out stands in the list with its reason.
    let name = format!("suites:{suite}");
    Ok(Report::of_tests(&name, finished, true))
}
