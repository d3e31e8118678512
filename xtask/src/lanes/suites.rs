//! The suites that others wrote. `suite` (a program of `weir-tests`) runs each directly and through Weir and holds what
//! differs against `tests/suites/*.toml`. The direct side runs if the change reaches the tests themselves, and in the lane's
//! turn: a change of the gateway alone makes no difference there.

use anyhow::Result;

use super::LANE_DEADLINE;
use super::products::{PRODUCT_TESTS, environment};
use crate::command::{command, run_counted};
use crate::lane::{Report, Run};
use crate::setup::suites::{asyncpg_environment, pymongo_environment, redis_py_environment, source};
use crate::totals::Runner;

pub fn redis(run: &Run<'_>) -> Result<Report> {
    on_suite(run, "redis", &[])
}

pub fn redis_py(run: &Run<'_>) -> Result<Report> {
    let python = redis_py_environment(run.workspace).join("bin/python");
    on_suite(run, "redis-py", &["--python", &python.to_string_lossy()])
}

pub fn asyncpg(run: &Run<'_>) -> Result<Report> {
    let python = asyncpg_environment(run.workspace).join("bin/python");
    on_suite(run, "asyncpg", &["--python", &python.to_string_lossy()])
}

pub fn pymongo(run: &Run<'_>) -> Result<Report> {
    let python = pymongo_environment(run.workspace).join("bin/python");
    on_suite(run, "pymongo", &["--python", &python.to_string_lossy()])
}

pub fn go_redis(run: &Run<'_>) -> Result<Report> {
    on_suite(run, "go-redis", &[])
}

fn on_suite(run: &Run<'_>, suite: &str, words: &[&str]) -> Result<Report> {
    let program = run.programs()?.binary("suite")?.to_string_lossy();
    let folder = source(run.workspace, suite);
    let folder = folder.to_string_lossy();
    let runs_direct = run.has_turn || run.reached.has(PRODUCT_TESTS);
    let sides: &[&str] = if runs_direct { &[] } else { &["--weir-only"] };
    let words = [&[&*program, suite, &*folder], words, sides].concat();
    let mut command = command(&run.workspace.root, &words);
    command.envs(environment(run, "auto")?);
    let finished = run_counted(&mut command, Runner::Suite, LANE_DEADLINE)?;
    // The list has a reason for each test that the suite leaves out.
    let name = format!("suites:{suite}");
    let note = if runs_direct { "directly and through Weir" } else { "through Weir, the direct side as listed" };
    Ok(Report { note, ..Report::of_tests(&name, finished, true) })
}
