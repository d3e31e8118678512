//! One lane: a name, what it needs installed, and how it runs.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::command::Finished;
use crate::setup::Part;
use crate::totals::Totals;
use crate::workspace::Workspace;

/// What a lane's body reports.
#[derive(Debug, Default)]
pub struct Report {
    /// Counted tests; zero for lanes that are not made of tests.
    pub totals: Totals,
    /// Why the lane failed, one line each. Empty: it held.
    pub problems: Vec<String>,
    /// What the lane's programs said of a failure.
    pub evidence: Vec<String>,
}

impl Report {
    /// A lane that runs tests fails when none ran, when one failed, or when one was left out
    /// although leaving out is not allowed there.
    pub fn of_tests(name: &str, finished: Finished, may_ignore: bool) -> Self {
        let Finished { success, timed_out, totals, evidence } = finished;
        let mut problems = Vec::new();
        if timed_out {
            problems.push(format!("{name}: passed its deadline and was stopped"));
        } else if !success {
            problems.push(format!("{name}: ended with a failure"));
        }
        if totals.failed > 0 {
            problems.push(format!("{name}: {} failed", totals.failed));
        }
        if totals.passed + totals.failed == 0 {
            problems.push(format!("{name}: no test ran"));
        }
        if totals.ignored > 0 && !may_ignore {
            problems.push(format!("{name}: {} tests were skipped; nothing may be skipped here", totals.ignored));
        }
        Self { totals, problems, evidence }
    }

    /// Joins another report of the same lane.
    pub fn join(&mut self, other: Self) {
        self.totals.add(other.totals);
        self.problems.extend(other.problems);
        self.evidence.extend(other.evidence);
    }
}

/// A lane of `cargo xtask test`.
pub struct Lane {
    /// `family` or `family:member`, e.g. `e2e:polling`.
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// What must be installed first.
    pub needs: &'static [Part],
    /// The body.
    pub body: fn(&Workspace) -> Result<Report>,
    /// It runs beside the others of its family: it waits more than it computes.
    pub beside: bool,
}

/// How a lane ended.
#[derive(Debug)]
pub struct Outcome {
    /// The lane's name.
    pub name: &'static str,
    /// What it reported.
    pub report: Report,
    /// Wall time of the body, set-up excluded.
    pub elapsed: Duration,
}

impl Outcome {
    /// No problem was reported.
    pub fn held(&self) -> bool {
        self.report.problems.is_empty()
    }

    /// Failures of this lane for the closing line: those counted, and at least one if it failed.
    pub fn failures(&self) -> u64 {
        if self.held() { 0 } else { self.report.totals.failed.max(1) }
    }
}

impl Lane {
    /// Whether `word` of the command line names this lane or its family.
    pub fn is_named(&self, word: &str) -> bool {
        self.name == word || self.family() == word
    }

    /// The name without the member.
    pub fn family(&self) -> &str {
        self.name.split(':').next().unwrap_or(self.name)
    }

    /// Runs the body; an error of the body is a problem of the lane, not of the whole run.
    pub fn run(&self, workspace: &Workspace) -> Outcome {
        println!("\n━━ {} ━━ {}", self.name, self.about);
        let started = Instant::now();
        let report = (self.body)(workspace).unwrap_or_else(|error| Report {
            problems: vec![format!("{}: {error:#}", self.name)],
            ..Report::default()
        });
        Outcome { name: self.name, report, elapsed: started.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_lane_without_tests_or_with_skipped_tests_fails() {
        let finished = |totals| Finished { success: true, timed_out: false, totals, evidence: Vec::new() };
        let none = Report::of_tests("e2e", finished(Totals::default()), true);
        assert_eq!(none.problems, ["e2e: no test ran"]);
        let skipped = Totals { passed: 3, failed: 0, ignored: 1 };
        assert!(Report::of_tests("unit", finished(skipped), true).problems.is_empty());
        assert_eq!(Report::of_tests("e2e", finished(skipped), false).problems.len(), 1);
    }

    #[test]
    fn a_failed_lane_counts_at_least_one_failure() {
        let outcome = Outcome {
            name: "fmt",
            report: Report { problems: vec!["fmt: differs".into()], ..Report::default() },
            elapsed: Duration::ZERO,
        };
        assert_eq!(outcome.failures(), 1);
    }
}
