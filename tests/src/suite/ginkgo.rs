//! go-redis's own specs, by the ginkgo of its module. Outcomes come from its JSON report.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::suite::Plan;
use crate::suite::bounded::{self, End};
use crate::suite::outcome::{TestOutcome, TestOutcomes};
use crate::suite::stand::{Stand, Via};

/// The test binary is large; cold, on two cores.
const BUILD_DEADLINE: Duration = Duration::from_secs(600);
const DEADLINE: Duration = Duration::from_secs(420);

/// The server's version, for the suite: specs for newer ones skip themselves.
const REDIS_VERSION: &str = "7.0";

/// Compiles the specs once for both sides; returns the program.
///
/// # Errors
/// If they do not compile.
pub fn build(source: &Path) -> Result<PathBuf, String> {
    let program = source.join("specs.test");
    let output = source.join("specs.build.log");
    let mut command = Command::new("go");
    // Vetting other people's tests is not our business.
    command.args(["test", "-c", "-vet=off", "-o"]).arg(&program).arg(".").current_dir(source);
    match bounded::run(&mut command, &output, BUILD_DEADLINE)? {
        End::Success => Ok(program),
        _ => Err(format!("the specs of go-redis do not build:\n{}", bounded::tail(&bounded::written(&output), 20))),
    }
}

/// Runs one side.
///
/// # Errors
/// If the suite cannot be started.
pub fn run(plan: &Plan<'_>, program: &Path, via: Via) -> Result<TestOutcomes, String> {
    check_files(plan)?;
    let stand = Stand::redis(via);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (output, report) = (folder.path().join("specs.log"), folder.path().join("report.json"));
    // The suite takes fixed ports unless these variables name a database elsewhere.
    let endpoints = folder.path().join("endpoints.json");
    let text = format!("{{\"db\": {{\"endpoints\": [\"redis://{}\"]}}}}", stand.address());
    std::fs::write(&endpoints, text).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["-test.run", "^TestGinkgoSuite$", "-test.timeout", "0"]);
    command.arg(format!("-ginkgo.json-report={}", report.display()));
    command.args(["-ginkgo.no-color", "-ginkgo.seed=1"]);
    for file in plan.list.parts_left_out() {
        command.arg(format!("-ginkgo.skip-file=^.*/{}$", literal(file)));
    }
    for file in plan.only {
        command.arg(format!("-ginkgo.focus-file=^.*/{}$", literal(file)));
    }
    for name in plan.list.tests_not_run(via) {
        command.arg(format!("-ginkgo.skip={}$", literal(name)));
    }
    command.current_dir(plan.source);
    command.env("RE_CLUSTER", "true").env("REDIS_ENDPOINTS_CONFIG_PATH", &endpoints);
    command.env("REDIS_VERSION", REDIS_VERSION);
    let end = bounded::run(&mut command, &output, DEADLINE)?;
    let mut outcomes = TestOutcomes::default();
    match serde_json::from_str::<Value>(&bounded::written(&report)) {
        Ok(report) if end != End::Deadline => read(plan, &report, via, &mut outcomes),
        _ => outcomes
            .problems
            .push(format!("the specs did not end well:\n{}", bounded::tail(&bounded::written(&output), 40))),
    }
    if let Err(problem) = stand.finish() {
        outcomes.problems.push(problem);
    }
    Ok(outcomes)
}

fn check_files(plan: &Plan<'_>) -> Result<(), String> {
    match plan.list.parts_left_out().find(|file| !plan.source.join(file).is_file()) {
        Some(file) => Err(format!("stale: the suite has no file `{file}`, which the list leaves out")),
        None => Ok(()),
    }
}

/// A text as a regular expression that means itself.
fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for letter in text.chars() {
        if "\\.+*?()|[]{}^$".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

/// Reads the report: a list of suites, each with its specs.
fn read(plan: &Plan<'_>, report: &Value, via: Via, outcomes: &mut TestOutcomes) {
    let not_run = plan.list.tests_not_run(via);
    let specs = report.as_array().into_iter().flatten().filter_map(|suite| suite["SpecReports"].as_array()).flatten();
    for spec in specs {
        let leaf = spec["LeafNodeType"].as_str().unwrap_or_default();
        let state = spec["State"].as_str().unwrap_or_default();
        let name = name(spec);
        let message = spec["Failure"]["Message"].as_str().unwrap_or_default().to_owned();
        if leaf != "It" {
            // Set-up and tear-down of the whole suite.
            if state != "passed" && state != "skipped" {
                outcomes.problems.push(format!("{leaf}: {state}: {message}"));
            }
            continue;
        }
        let file = spec["LeafNodeLocation"]["FileName"].as_str().unwrap_or_default();
        let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
        if plan.list.is_part_left_out(&file) || (!plan.only.is_empty() && !plan.only.iter().any(|only| *only == file)) {
            continue;
        }
        let outcome = match state {
            "passed" => TestOutcome::Passed,
            "skipped" if not_run.contains(&name.as_str()) => TestOutcome::LeftOut,
            "skipped" | "pending" => TestOutcome::Skipped(message),
            _ => TestOutcome::Failed(format!("{state}: {message}")),
        };
        outcomes.add(name, outcome);
    }
}

/// Containers and leaf, as ginkgo joins them.
fn name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let texts = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    texts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::list::List;
    use crate::suite::{Direct, Suite};

    #[test]
    fn a_report_becomes_outcomes() {
        let list = List::parse(
            "passed_min = 0\ntests = 0\nskipped = 0\n[[left_out]]\nreason = \"r\"\nparts = [\"ring_test.go\"]\ntests = [\"Commands hangs\"]\n",
        )
        .expect("a good list");
        let plan = Plan {
            suite: Suite::GoRedis,
            source: Path::new(""),
            python: Path::new(""),
            list: &list,
            only: &[],
            direct: Direct::Run,
        };
        let spec = |file: &str, leaf: &str, state: &str, message: &str| {
            serde_json::json!({
                "ContainerHierarchyTexts": ["Commands"], "LeafNodeText": leaf, "LeafNodeType": "It", "State": state,
                "LeafNodeLocation": {"FileName": format!("/x/{file}")}, "Failure": {"Message": message},
            })
        };
        let report = serde_json::json!([{"SpecReports": [
            {"LeafNodeType": "BeforeSuite", "State": "passed", "LeafNodeText": ""},
            spec("a_test.go", "gets", "passed", ""),
            spec("a_test.go", "tracks", "failed", "Expected\n nil"),
            spec("a_test.go", "newer", "skipped", "(redis version < 8)"),
            spec("a_test.go", "hangs", "skipped", ""),
            spec("ring_test.go", "rings", "skipped", ""),
            spec("a_test.go", "dies", "panicked", "Test Panicked"),
            {"LeafNodeType": "AfterSuite", "State": "failed", "Failure": {"Message": "left open"}},
        ]}]);
        let mut outcomes = TestOutcomes::default();
        read(&plan, &report, Via::Direct, &mut outcomes);
        let tests: Vec<(&str, &TestOutcome)> = outcomes.tests.iter().map(|(name, end)| (name.as_str(), end)).collect();
        assert_eq!(
            tests,
            [
                ("Commands dies", &TestOutcome::Failed("panicked: Test Panicked".into())),
                ("Commands gets", &TestOutcome::Passed),
                ("Commands hangs", &TestOutcome::LeftOut),
                ("Commands newer", &TestOutcome::Skipped("(redis version < 8)".into())),
                ("Commands tracks", &TestOutcome::Failed("failed: Expected\n nil".into())),
            ]
        );
        assert_eq!(outcomes.problems, ["AfterSuite: failed: left open"]);
    }

    #[test]
    fn a_name_is_matched_as_it_stands() {
        assert_eq!(literal("a.b (c|d)*"), "a\\.b \\(c\\|d\\)\\*");
    }
}
