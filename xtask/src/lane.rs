//! One lane: a name, what it needs installed, and how it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::command::Finished;
use crate::plan::Form;
use crate::programs::{Build, Programs};
use crate::reach::{Covers, ReachedPackages};
use crate::setup::Part;
use crate::totals::Totals;
use crate::workspace::Workspace;

/// The report of a lane's body.
#[derive(Debug, Default)]
pub struct Report {
    /// Counted tests; zero for lanes that are not made of tests.
    pub totals: Totals,
    /// Why the lane failed, one line each. Empty: it held.
    pub problems: Vec<String>,
    /// Output of the lane's programs about a failure.
    pub evidence: Vec<String>,
    /// Addition to the reason in the closing table, if there is one.
    pub note: &'static str,
}

impl Report {
    /// A lane that runs tests fails when none ran, when one failed, or when one was left out
    /// although leaving out is not allowed there.
    pub fn of_tests(name: &str, finished: Finished, may_ignore: bool) -> Self {
        let mut report = Self::of_program(name, finished, may_ignore);
        report.expect_tests(name);
        report
    }

    /// As [`Report::of_tests`], of one program among several, which may have no test.
    pub fn of_program(name: &str, finished: Finished, may_ignore: bool) -> Self {
        let Finished { success, timed_out, totals, failed, evidence } = finished;
        let mut problems = Vec::new();
        if timed_out {
            problems.push(format!("{name}: passed its deadline and was stopped"));
        } else if !success {
            problems.push(format!("{name}: ended with a failure"));
        }
        if totals.failed > 0 {
            let names = if failed.is_empty() { String::new() } else { format!(": {}", failed.join(", ")) };
            problems.push(format!("{name}: {} failed{names}", totals.failed));
        }
        if totals.ignored > 0 && !may_ignore {
            problems.push(format!("{name}: {} tests were skipped; nothing may be skipped here", totals.ignored));
        }
        Self { totals, problems, evidence, note: "" }
    }

    /// No test ran: a problem.
    pub fn expect_tests(&mut self, name: &str) {
        if self.totals.passed + self.totals.failed == 0 {
            self.problems.push(format!("{name}: no test ran"));
        }
    }

    /// A lane that could not run.
    pub fn of_error(name: &str, error: &anyhow::Error) -> Self {
        Self { problems: vec![format!("{name}: {error:#}")], ..Self::default() }
    }

    /// Joins another report of the same lane.
    pub fn join(&mut self, other: Self) {
        self.totals.add(other.totals);
        self.problems.extend(other.problems);
        self.evidence.extend(other.evidence);
    }
}

/// The longest time of a core, in minutes: twice the 90 seconds that a core may take on two cores.
const CORE_MINUTES: u64 = 3;

/// Environment variables that prolong a lane. No budget applies to a run that sets one of them.
const PROLONGING: [&str; 5] =
    ["WEIR_FUZZ_SECONDS", "WEIR_SOAK_SECONDS", "WEIR_HOSTILITY_ROUNDS", "WEIR_ISOLATION_SECONDS", "WEIR_SPEND_ROUNDS"];

/// When a lane runs, and how much of it.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// In full, whatever has changed.
    Always,
    /// For the packages that the change reaches. A change of documents alone leaves the lane out.
    Code,
    /// In full when the change reaches what the lane covers, else its core.
    Reached(Covers),
    /// In full when it is named, or with `--full`. A change leaves it out: it is in work, and has tests that fail.
    Named,
}

/// The load of a lane on the machine. It decides which lanes run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The lane computes and waits in turn. The next lane starts when it has ended.
    Tests,
    /// The lane mostly waits. The members of its family run beside each other.
    Waits,
    /// The lane keeps every CPU busy. Its programs run at idle priority beside the lanes that follow.
    Compiles,
    /// The lane measures, or judges times. Nothing runs beside it.
    Measures,
}

/// A lane of `cargo xtask test`.
pub struct Lane {
    /// `family` or `family:member`, e.g. `clients:go`.
    pub name: &'static str,
    /// One line for `--list`.
    pub about: &'static str,
    /// Parts that must be installed first.
    pub needs: &'static [Part],
    /// When it runs in full.
    pub when: When,
    /// Names of the tests that run when the change does not reach the lane. If the list is empty, the lane does not run then.
    pub core: &'static [&'static str],
    /// The longest time of the full lane on two cores, in minutes. The lane fails after twice that time, and its core after
    /// [`CORE_MINUTES`].
    pub minutes: u64,
    /// Its load on the machine.
    pub work: Work,
    /// The lane runs programs of the build. Its time starts when the build has finished.
    pub programs: bool,
    /// The body.
    pub body: fn(&Run<'_>) -> Result<Report>,
}

/// Input of a lane's body.
pub struct Run<'a> {
    /// The workspace.
    pub workspace: &'a Workspace,
    /// How much of the lane runs: [`Form::Full`] or [`Form::Core`].
    pub form: Form,
    /// The lane has its turn, whatever has changed.
    pub has_turn: bool,
    /// The lane's core.
    pub core: &'static [&'static str],
    /// Packages that the change reaches.
    pub reached: &'a ReachedPackages,
    /// The built programs.
    pub build: &'a Build,
}

impl<'a> Run<'a> {
    /// The built programs. The first call builds them.
    ///
    /// # Errors
    /// They do not build.
    pub fn programs(&self) -> Result<&'a Programs> {
        self.build.programs(self.workspace, self.reached)
    }
}

/// How a lane ended.
#[derive(Debug)]
pub struct LaneResult {
    /// The lane's name.
    pub name: &'static str,
    /// How much of it ran.
    pub form: Form,
    /// Why so much.
    pub why: String,
    /// Report of the body.
    pub report: Report,
    /// Wall time of the body, set-up excluded.
    pub elapsed: Duration,
}

impl LaneResult {
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

    /// How long it may take.
    fn limit(&self, form: Form) -> Duration {
        let minutes = if form == Form::Core { CORE_MINUTES } else { 2 * self.minutes };
        Duration::from_secs(60 * minutes)
    }

    /// Runs the body; an error of the body is a problem of the lane, not of the whole run.
    pub fn run(&self, run: &Run<'_>) -> (Report, Duration) {
        println!("\n━━ {} ━━ {}", self.name, self.about);
        if self.programs
            && let Err(error) = run.programs()
        {
            return (Report::of_error(self.name, &error), Duration::ZERO);
        }
        let started = Instant::now();
        let body = AssertUnwindSafe(|| (self.body)(run));
        // A panic must not cost the results of the other lanes.
        let ended = catch_unwind(body).unwrap_or_else(|_| Err(anyhow!("the lane panicked; its output says where")));
        let mut report = ended.unwrap_or_else(|error| Report::of_error(self.name, &error));
        let elapsed = started.elapsed();
        let is_prolonged = PROLONGING.iter().any(|variable| std::env::var_os(variable).is_some());
        let limit = self.limit(run.form);
        if elapsed > limit && !is_prolonged {
            let (took, limit) = (elapsed.as_secs().div_ceil(60), limit.as_secs() / 60);
            report.problems.push(format!("{}: took {took} minutes; {limit} are the most", self.name));
        }
        (report, elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_lane_without_tests_or_with_skipped_tests_fails() {
        let finished = |totals| Finished {
            success: true,
            timed_out: false,
            totals,
            failed: vec!["a::b".into()],
            evidence: Vec::new(),
        };
        let none = Report::of_tests("e2e", finished(Totals::default()), true);
        assert_eq!(none.problems, ["e2e: no test ran"]);
        let skipped = Totals { passed: 3, failed: 0, ignored: 1 };
        assert!(Report::of_tests("unit", finished(skipped), true).problems.is_empty());
        assert_eq!(Report::of_tests("e2e", finished(skipped), false).problems.len(), 1);
        let broken = Totals { passed: 3, failed: 1, ignored: 0 };
        assert_eq!(Report::of_tests("e2e", finished(broken), false).problems, ["e2e: 1 failed: a::b"]);
    }

    #[test]
    fn a_failed_lane_counts_at_least_one_failure() {
        let outcome = LaneResult {
            name: "fmt",
            form: Form::Full,
            why: "always".into(),
            report: Report { problems: vec!["fmt: differs".into()], ..Report::default() },
            elapsed: Duration::ZERO,
        };
        assert_eq!(outcome.failures(), 1);
    }
}
