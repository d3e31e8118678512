//! Redis's own suite, which is Tcl, in external-server mode: one process, one server and one gateway for each unit, so that
//! nothing of one unit (settings, scripts, a stuck client) reaches the next.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::suite::Plan;
use crate::suite::bounded::{self, End};
use crate::suite::outcome::{TestOutcome, TestOutcomes};
use crate::suite::stand::{Stand, Via};

/// Without a sign of life for so long, the suite's own watch ends the unit and names the test, seconds.
const SILENCE_SECONDS: &str = "60";

/// For a whole unit.
const UNIT_DEADLINE: Duration = Duration::from_secs(240);

/// Units at a time on each side: most of their time they wait.
const AT_ONCE: usize = 2;

/// Units that take longer are reported.
const LONG: Duration = Duration::from_secs(8);

const HELPER: &str = "tests/test_helper.tcl";

/// Tests tagged so take minutes with random data structures, and Redis's own CI runs without them before an external server.
const TAGS: &str = "-slow";

/// Runs one side.
///
/// # Errors
/// If the suite cannot be started.
pub fn run(plan: &Plan<'_>, via: Via) -> Result<TestOutcomes, String> {
    let waiting = Mutex::new(plan.parts(units(plan)?).into_iter());
    let outcomes = Mutex::new(TestOutcomes::default());
    let run = || -> Result<(), String> {
        let ports = Ports::take()?;
        loop {
            let unit = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(unit) = unit else { return Ok(()) };
            let (text, problem) = on_stand(plan, via, &unit, &ports)?;
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            read(&unit, &text, &mut outcomes);
            outcomes.problems.extend(problem.map(|problem| format!("{unit}: {problem}")));
        }
    };
    thread::scope(|scope| {
        let started: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run)).collect();
        started.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a unit panicked; see above".to_owned())?)
    })?;
    Ok(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// One unit on servers of its own: what it prints, and what does not hold at their end.
fn on_stand(plan: &Plan<'_>, via: Via, unit: &str, ports: &Ports) -> Result<(String, Option<String>), String> {
    let prefix = format!("{unit}: ");
    let not_run = plan.list.tests_not_run(via);
    let not_run: Vec<&str> = not_run.into_iter().filter_map(|name| name.strip_prefix(&prefix)).collect();
    let stand = Stand::redis(via);
    let started = Instant::now();
    let text = run_unit(plan.source, unit, ports, &stand, &not_run)?;
    if started.elapsed() > LONG {
        println!("suite redis: {unit} took {} s, {via:?}", started.elapsed().as_secs());
    }
    Ok((text, stand.finish().err()))
}

/// All units, as the suite lists them; that they and those left out are the same set is part of the check.
fn units(plan: &Plan<'_>) -> Result<Vec<String>, String> {
    let printed = Command::new("tclsh")
        .args([HELPER, "--list-tests"])
        .current_dir(plan.source)
        .output()
        .map_err(|error| format!("cannot start tclsh: {error}"))?;
    let units: Vec<String> = String::from_utf8_lossy(&printed.stdout).lines().map(str::to_owned).collect();
    if units.is_empty() {
        return Err(format!("{} lists no units", plan.source.join(HELPER).display()));
    }
    match plan.list.parts_left_out().find(|part| !units.iter().any(|unit| unit == part)) {
        Some(part) => Err(format!("stale: the suite has no unit `{part}`, which the list leaves out")),
        None => Ok(units),
    }
}

fn run_unit(source: &Path, unit: &str, ports: &Ports, stand: &Stand, not_run: &[&str]) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = folder.path().join("unit.log");
    let mut command = Command::new("tclsh");
    // `--durable`: an error reply that a test does not expect fails that test and not the whole run.
    command.args([HELPER, "--durable", "--timeout", SILENCE_SECONDS, "--tags", TAGS]);
    command.args(["--host", "127.0.0.1", "--port", &stand.address().port().to_string()]);
    command.args(ports.words()?);
    for name in not_run {
        command.args(["--skiptest", name]);
    }
    command.args(["--single", unit]);
    command.current_dir(source).env("TERM", "dumb");
    let end = bounded::run(&mut command, &output, UNIT_DEADLINE)?;
    let mut text = bounded::written(&output);
    if end == End::Deadline {
        text.push_str("\n[TIMEOUT]: the whole unit\n");
    }
    Ok(text)
}

/// Ports for the suite's own two processes and for servers that it plays. It looks for free ones from a first one on and may
/// take what another run has just chosen, so each run has a range of its own: the run that listens on its first port owns it.
struct Ports(TcpListener);

impl Ports {
    const FIRST: u16 = 10_500;
    const EACH: u16 = 750;
    const RANGES: u16 = 12;
    /// The suite's first process takes the 32nd port below the configured one.
    const BELOW: u16 = 50;

    fn take() -> Result<Self, String> {
        let first = (0..Self::RANGES).map(|range| Self::FIRST + range * Self::EACH);
        let mut free = first.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        free.next().map(Self).ok_or_else(|| "no range of ports is free for the suite".to_owned())
    }

    fn words(&self) -> Result<[String; 4], String> {
        let own = self.0.local_addr().map_err(|error| error.to_string())?.port();
        let count = Self::EACH - Self::BELOW - 1;
        Ok(["--baseport".into(), (own + Self::BELOW).to_string(), "--portcount".into(), count.to_string()])
    }
}

/// Name of the end of a unit in these lists: a unit that breaks off leaves tests out.
fn end_of(unit: &str) -> String {
    format!("{unit}: (runs to its end)")
}

/// Reads what the suite prints.
fn read(unit: &str, text: &str, outcomes: &mut TestOutcomes) {
    let mut end = TestOutcome::Failed(bounded::tail(text, 12));
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((status, rest)) = status_line(line) else {
            // A client that made no progress: `sock1 => (IN PROGRESS) name`.
            if let Some((_, name)) = line.split_once(" => (IN PROGRESS) ") {
                outcomes.add(
                    format!("{unit}: {name}"),
                    TestOutcome::Failed(format!("no progress for {SILENCE_SECONDS} s")),
                );
            }
            if line.trim() == "The End" {
                break;
            }
            continue;
        };
        match status {
            "ok" => outcomes.add(format!("{unit}: {}", without_time(rest)), TestOutcome::Passed),
            "skip" => outcomes.add(format!("{unit}: {rest}"), TestOutcome::LeftOut),
            "ignore" => {
                let (name, reason) = rest.rsplit_once(": ").unwrap_or(("(a block of tests)", rest));
                // `name: Tag: slow denied`
                let name = name.strip_suffix(": Tag").unwrap_or(name);
                let name = if name == "Tag" { "(a block of tests)" } else { name };
                outcomes.add(format!("{unit}: {name}"), TestOutcome::Skipped(reason.to_owned()));
            }
            "err" => {
                let place = format!(" in tests/{unit}.tcl");
                let name = rest.strip_suffix(&place).unwrap_or("(outside of the tests)");
                let mut message = if name == "(outside of the tests)" { rest.to_owned() } else { String::new() };
                while let Some(more) = lines.next_if(|line| status_line(line).is_none() && line.trim() != "The End") {
                    message.push_str(more);
                    message.push('\n');
                }
                outcomes.add(format!("{unit}: {name}"), TestOutcome::Failed(message));
            }
            _ if status.ends_with(" done") => end = TestOutcome::Passed,
            _ => {}
        }
    }
    outcomes.add(end_of(unit), end);
}

/// `[status]: rest` with a status of the suite; tests print other things in brackets.
fn status_line(line: &str) -> Option<(&str, &str)> {
    let (status, rest) = line.strip_prefix('[')?.split_once("]: ")?;
    let is_known = matches!(status, "ok" | "err" | "skip" | "ignore" | "ready" | "exception" | "TIMEOUT");
    (is_known || status.ends_with(" done")).then_some((status, rest))
}

/// `name (12 ms)` without the time.
fn without_time(text: &str) -> &str {
    let Some((name, time)) = text.rsplit_once(" (") else { return text };
    let is_time = time.strip_suffix(" ms)").is_some_and(|digits| digits.parse::<u64>().is_ok());
    if is_time { name } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> TestOutcomes {
        let mut outcomes = TestOutcomes::default();
        read("unit/x", text, &mut outcomes);
        outcomes
    }

    #[test]
    fn each_status_is_read_and_the_summary_is_not_read_again() {
        let text = "Starting test server at port 21079\n[ready]: 4711\nTesting unit/x\n\
            [ok]: SET (and) GET (3 ms)\n[skip]: hangs\n[ignore]: big: Tag: slow denied\n\
            [ignore]: Not supported on external server\n[ignore]: Tag: slow denied\n\
            [err]: PAUSE in tests/unit/x.tcl\nExpected 'a' to be equal to 'b'\n[info] of the test\n\
            [ok]: SET (and) GET (1 ms)\n[1/1 done]: unit/x (0 seconds)\n\n                   The End\n\n\
            *** [err]: PAUSE in tests/unit/x.tcl\n";
        let outcomes = read_text(text);
        let tests: Vec<(&str, &TestOutcome)> = outcomes.tests.iter().map(|(name, end)| (name.as_str(), end)).collect();
        let failed = TestOutcome::Failed("Expected 'a' to be equal to 'b'\n[info] of the test\n".into());
        let slow = TestOutcome::Skipped("slow denied".into());
        let external = TestOutcome::Skipped("Not supported on external server".into());
        assert_eq!(
            tests,
            [
                ("unit/x: (a block of tests)", &external),
                ("unit/x: (runs to its end)", &TestOutcome::Passed),
                ("unit/x: PAUSE", &failed),
                ("unit/x: SET (and) GET", &TestOutcome::Passed),
                ("unit/x: big", &slow),
                ("unit/x: hangs", &TestOutcome::LeftOut),
            ]
        );
    }

    #[test]
    fn a_test_that_hangs_is_named_and_the_unit_does_not_end() {
        let text = "[ok]: one (1 ms)\n[TIMEOUT]: clients state report follows.\n\
            sock55d => (IN PROGRESS) waits for ever\n\n                   The End\n";
        let outcomes = read_text(text);
        assert!(
            matches!(&outcomes.tests["unit/x: waits for ever"], TestOutcome::Failed(text) if text.contains("60 s"))
        );
        assert!(matches!(outcomes.tests["unit/x: (runs to its end)"], TestOutcome::Failed(_)));
        assert_eq!(outcomes.tests["unit/x: one"], TestOutcome::Passed);
    }

    #[test]
    fn an_error_outside_of_the_tests_keeps_its_message() {
        let outcomes = read_text("[err]: ERR unknown command\n    while executing\n[1/1 done]: unit/x (0 seconds)\n");
        let text = "ERR unknown command    while executing\n".to_owned();
        assert_eq!(outcomes.tests["unit/x: (outside of the tests)"], TestOutcome::Failed(text));
    }
}
