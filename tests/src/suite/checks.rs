//! The outcomes of a program that runs a list of checks and prints a line for each: `ok NAME` or `failed NAME: REASON`, at its end
//! `end N checks`.

use crate::suite::bounded::{self, End};
use crate::suite::outcome::{TestOutcome, TestOutcomes};

/// Reads the lines of a program. It must say how many checks it has: one that dies half-way has no problem otherwise.
#[must_use]
pub fn read(driver: &str, text: &str, end: &Result<End, String>) -> TestOutcomes {
    let mut outcomes = TestOutcomes::default();
    let mut count = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ok ") {
            outcomes.add(format!("{driver}: {name}"), TestOutcome::Passed);
        } else if let Some((name, reason)) = line.strip_prefix("failed ").and_then(|rest| rest.split_once(": ")) {
            outcomes.add(format!("{driver}: {name}"), TestOutcome::Failed(reason.to_owned()));
        } else if let Some(number) = line.strip_prefix("end ").and_then(|rest| rest.strip_suffix(" checks")) {
            count = number.parse().ok();
        }
    }
    if count != Some(outcomes.tests.len()) || matches!(end, Ok(End::Deadline) | Err(_)) {
        let shown = bounded::tail(text, 12);
        let (ran, expected) = (outcomes.tests.len(), count.unwrap_or(0));
        outcomes.problems.push(format!("{driver}: {ran} checks of {expected} ran, {end:?}; its last lines:\n{shown}"));
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_outcomes_and_a_program_that_dies_is_a_problem() {
        let whole = read("x", "noise\nok one\nfailed two: E: no\nend 2 checks\n", &Ok(End::Failure));
        assert_eq!(whole.tests["x: one"], TestOutcome::Passed);
        assert_eq!(whole.tests["x: two"], TestOutcome::Failed("E: no".into()));
        assert!(whole.problems.is_empty(), "{:?}", whole.problems);
        assert_eq!(read("x", "ok one\n", &Ok(End::Failure)).problems.len(), 1);
        assert_eq!(read("x", "ok one\nend 2 checks\n", &Ok(End::Success)).problems.len(), 1);
        assert_eq!(read("x", "ok one\nend 1 checks\n", &Ok(End::Deadline)).problems.len(), 1);
    }
}
