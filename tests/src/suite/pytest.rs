//! redis-py's, asyncpg's and PyMongo's own tests, by pytest. Outcomes come from its report log, which is one JSON object a line.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::suite::bounded::{self, End};
use crate::suite::outcome::{TestOutcome, TestOutcomes};
use crate::suite::stand::{Stand, Via};
use crate::suite::{Plan, Suite};

const DEADLINE: Duration = Duration::from_secs(420);

/// For one test. redis-py's own setting is 30 s; asyncpg has tests that wait for timeouts.
const TEST_SECONDS: [(Suite, &str); 3] = [(Suite::RedisPy, "30"), (Suite::Asyncpg, "60"), (Suite::Pymongo, "60")];

/// Runs one side.
///
/// # Errors
/// If the suite cannot be started.
pub fn run(plan: &Plan<'_>, via: Via) -> Result<TestOutcomes, String> {
    let stand = match plan.suite {
        Suite::Asyncpg => Stand::postgres(via),
        Suite::Pymongo => Stand::mongodb(via),
        _ => Stand::redis(via),
    };
    let seconds = TEST_SECONDS.into_iter().find(|(suite, _)| *suite == plan.suite).map_or("30", |(_, seconds)| seconds);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (output, report) = (folder.path().join("pytest.log"), folder.path().join("report.jsonl"));
    let mut command = Command::new(plan.python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--timeout", seconds]);
    command.arg("--report-log").arg(&report);
    match plan.suite {
        // As its own settings: pytest fails while it prints a deep recursion in its own form.
        Suite::Asyncpg => {
            command.args(["--import-mode=importlib", "--tb=native"]).envs(stand.libpq_environment());
        }
        Suite::Pymongo => {
            let address = stand.address();
            command.args(["-p", "ferretdb", "-o", "asyncio_mode=auto", "--tb=short"]);
            command.env("DB_IP", address.ip().to_string()).env("DB_PORT", address.port().to_string());
        }
        _ => {
            command.args(["--redis-url", &format!("redis://{}/0", stand.address())]);
        }
    }
    let tests = plan.list.tests_not_run(via);
    let markers: Vec<&str> = plan.list.markers_left_out().collect();
    command.args(["-p", PLUGIN]).env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("suites"));
    command.env("WEIR_LEFT_OUT", serde_json::json!({"tests": tests, "markers": markers}).to_string());
    command.args(plan.parts(files(plan)?));
    command.current_dir(plan.source).env("PYTHONDONTWRITEBYTECODE", "1");
    let end = bounded::run(&mut command, &output, DEADLINE)?;
    let mut outcomes = TestOutcomes::default();
    for line in bounded::written(&report).lines() {
        read(line, &mut outcomes);
    }
    if end == End::Deadline || outcomes.tests.is_empty() {
        outcomes.problems.push(format!("pytest did not end well:\n{}", bounded::tail(&bounded::written(&output), 30)));
    }
    if let Err(problem) = stand.finish() {
        outcomes.problems.push(problem);
    }
    Ok(outcomes)
}

/// `tests/suites/left_out.py`, and what it gives as its reason.
const PLUGIN: &str = "left_out";
const PLUGIN_REASON: &str = "left out by the list";

/// Every file with tests, as paths in the source tree.
fn files(plan: &Plan<'_>) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let folder = if plan.suite == Suite::Pymongo { "test" } else { "tests" };
    collect(plan.source, Path::new(folder), &mut found).map_err(|error| format!("the tests of the suite: {error}"))?;
    found.sort();
    match plan.list.parts_left_out().find(|part| !found.iter().any(|file| file == part)) {
        Some(part) => Err(format!("stale: the suite has no file `{part}`, which the list leaves out")),
        None => Ok(found),
    }
}

fn collect(source: &Path, folder: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(source.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            collect(source, &path, found)?;
        } else if name.starts_with("test_") && name.ends_with(".py") {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

/// Reads a line of the report log.
fn read(line: &str, outcomes: &mut TestOutcomes) {
    let Ok(report) = serde_json::from_str::<Value>(line) else { return };
    let text = |key: &str| report[key].as_str().unwrap_or_default();
    let name = text("nodeid").to_owned();
    match (text("$report_type"), text("outcome")) {
        ("CollectReport", "failed") => {
            outcomes.add(format!("{name} (collection)"), TestOutcome::Failed(message(&report)))
        }
        ("TestReport", "failed") => outcomes.add(name, TestOutcome::Failed(message(&report))),
        ("TestReport", "skipped") => {
            let reason = message(&report);
            let is_ours = reason.ends_with(PLUGIN_REASON);
            outcomes.add(name, if is_ours { TestOutcome::LeftOut } else { TestOutcome::Skipped(reason) });
        }
        ("TestReport", "passed") if text("when") == "call" => outcomes.add(name, TestOutcome::Passed),
        _ => {}
    }
}

/// The shortest text that says what went wrong.
fn message(report: &Value) -> String {
    let long = &report["longrepr"];
    if let Some(crash) = long["reprcrash"]["message"].as_str() {
        return crash.to_owned();
    }
    // A skip: file, line, reason.
    if let Some(reason) = long[2].as_str() {
        return reason.to_owned();
    }
    long.as_str().map_or_else(|| long.to_string(), |text| bounded::tail(text, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_become_outcomes() {
        let mut outcomes = TestOutcomes::default();
        let lines = [
            r#"{"$report_type":"SessionStart"}"#,
            r#"{"$report_type":"CollectReport","nodeid":"t.py","outcome":"passed","result":null}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::left","when":"setup","outcome":"skipped","longrepr":["t.py",3,"Skipped: left out by the list"]}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::a","when":"setup","outcome":"passed"}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::a","when":"call","outcome":"passed"}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::b","when":"call","outcome":"failed","longrepr":{"reprcrash":{"message":"assert 1 == 2"}}}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::b","when":"teardown","outcome":"passed"}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::c","when":"setup","outcome":"skipped","longrepr":["t.py",3,"Skipped: too old"]}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::d","when":"call","outcome":"passed"}"#,
            r#"{"$report_type":"TestReport","nodeid":"t.py::d","when":"teardown","outcome":"failed","longrepr":"x\nlost"}"#,
            r#"{"$report_type":"CollectReport","nodeid":"u.py","outcome":"failed","longrepr":"x\nno module"}"#,
        ];
        for line in lines {
            read(line, &mut outcomes);
        }
        let tests: Vec<(&str, &TestOutcome)> = outcomes.tests.iter().map(|(name, end)| (name.as_str(), end)).collect();
        assert_eq!(
            tests,
            [
                ("t.py::a", &TestOutcome::Passed),
                ("t.py::b", &TestOutcome::Failed("assert 1 == 2".into())),
                ("t.py::c", &TestOutcome::Skipped("Skipped: too old".into())),
                ("t.py::d", &TestOutcome::Failed("lost".into())),
                ("t.py::left", &TestOutcome::LeftOut),
                ("u.py (collection)", &TestOutcome::Failed("no module".into())),
            ]
        );
    }
}
