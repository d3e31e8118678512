//! Lanes of test programs: those of single crates, and those that start the gateway as a process.

use anyhow::Result;

use super::{LANE_DEADLINE, drivers};
use crate::command::{command, output, run_counted};
use crate::lane::{Report, Run};
use crate::plan::Form;
use crate::programs::{Programs, TestProgram};
use crate::setup;
use crate::totals::Runner;

/// Seed of the randomised tests in a lane.
const LANE_SEED: &str = "1";

/// Tests that run at a time where most of them wait.
const THREADS: u32 = 4;

/// The package of the tests that start the gateway.
pub const PRODUCT_TESTS: &str = "weir-tests";

/// Its programs that do not: they need no gateway.
const OF_THE_HARNESS: [&str; 2] = ["weir_tests", "law"];

/// Programs that no lane runs. Each program of the product has a lane of its own name.
pub fn without_a_lane(programs: &Programs) -> impl Iterator<Item = &TestProgram> {
    let of_product = programs.tests.iter().filter(|one| one.package == PRODUCT_TESTS);
    of_product.filter(|one| {
        !OF_THE_HARNESS.contains(&&*one.target) && super::LANES.iter().all(|lane| lane.name != one.target)
    })
}

/// Everything that does not need the gateway as a process, of the packages that the change reaches.
pub fn unit(run: &Run<'_>) -> Result<Report> {
    let is_unit = |one: &TestProgram| one.package != PRODUCT_TESTS || OF_THE_HARNESS.contains(&&*one.target);
    let mut report = Report::default();
    for program in run.programs()?.tests.iter().filter(|one| is_unit(one) && run.reached.has(&one.package)) {
        report.join(tests(program, &[], &[])?);
    }
    if !run.reached.is_empty() {
        report.expect_tests("unit");
    }
    Ok(report)
}

/// One program of the product, many tests at a time.
pub fn all(run: &Run<'_>, program: &str) -> Result<Report> {
    alone(run, program, THREADS)
}

/// One program of the product, so many tests at a time: measurements want no neighbours.
pub fn alone(run: &Run<'_>, program: &str, threads: u32) -> Result<Report> {
    let mut words = vec![format!("--test-threads={threads}")];
    let program = run.programs()?.test(PRODUCT_TESTS, program)?;
    if run.form == Form::Core {
        words.push("--exact".into());
        words.extend(run.core.iter().map(|name| (*name).to_owned()));
    }
    let mut report = tests(program, &words, &environment(run, "auto")?)?;
    report.expect_tests(&program.target);
    let ran = report.totals.passed + report.totals.failed;
    if run.form == Form::Core && ran < run.core.len() as u64 {
        report.problems.push(format!("{}: {ran} tests of {} in its core ran", program.target, run.core.len()));
    }
    // The full form checks the names too, so that the commit that renames a test fails and not a later one.
    let names = names(program)?;
    let gone = run.core.iter().filter(|core| !names.iter().any(|name| name == *core));
    report.problems.extend(gone.map(|core| format!("{}: no test is called {core}, of its core", program.target)));
    report.problems.extend(drivers::stale(&program.target, &names));
    Ok(report)
}

/// The names of a program's tests.
pub fn names(program: &TestProgram) -> Result<Vec<String>> {
    let listed = output(&mut command(&program.folder, &[&*program.path.to_string_lossy(), "--list"]))?;
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The tests of one program whose names contain one of `filters`.
pub fn some(run: &Run<'_>, program: &str, filters: &[&str], driver: &str) -> Result<Report> {
    let program = run.programs()?.test(PRODUCT_TESTS, program)?;
    let words = filters.iter().map(|filter| (*filter).to_owned());
    let words: Vec<String> = std::iter::once(format!("--test-threads={THREADS}")).chain(words).collect();
    tests(program, &words, &environment(run, driver)?)
}

/// Where the programs of the product find what they start, and with which I/O driver.
pub fn environment(run: &Run<'_>, driver: &str) -> Result<Vec<(String, String)>> {
    let workspace = run.workspace;
    let gateway = run.programs()?.binary("weir")?;
    let valkey = setup::valkey_server(workspace)?;
    // New findings of random tests are for those who run them by hand: a lane must not fail by chance.
    let seed = std::env::var("WEIR_TEST_SEED").unwrap_or_else(|_| LANE_SEED.to_owned());
    Ok(vec![
        ("WEIR_TEST_SEED".into(), seed),
        ("WEIR_BIN".into(), gateway.to_string_lossy().into_owned()),
        ("WEIR_TEST_DRIVER".into(), driver.into()),
        ("WEIR_TEST_VALKEY_SERVER".into(), valkey.to_string_lossy().into_owned()),
        ("WEIR_TEST_PYTHON".into(), setup::python(workspace).to_string_lossy().into_owned()),
        // Where the lab looks for Envoy.
        ("VIRTUAL_ENV".into(), setup::environment(workspace).to_string_lossy().into_owned()),
    ])
}

/// Runs a test program in the folder of its package, as cargo does.
fn tests(program: &TestProgram, words: &[String], environment: &[(String, String)]) -> Result<Report> {
    let path = program.path.to_string_lossy();
    let words: Vec<&str> = std::iter::once(&*path).chain(words.iter().map(String::as_str)).collect();
    let mut command = command(&program.folder, &words);
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    let finished = run_counted(&mut command, Runner::Cargo, LANE_DEADLINE)?;
    // A bare `#[ignore]` is refused by tidy: each ignored test says why.
    Ok(Report::of_program(&format!("{} of {}", program.target, program.package), finished, true))
}
