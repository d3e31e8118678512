//! Two runs of a suite against its list: what is new, what is stale, and the counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::suite::list::{Kind, List};
use crate::suite::outcome::{TestOutcome, TestOutcomes};

/// Why a list does not hold.
#[derive(Debug)]
pub struct Problem {
    /// The test that did not end as the list says; `None`: nothing that one test decides.
    pub test: Option<String>,
    /// A test without a word in the list passes directly and not through Weir.
    pub is_difference: bool,
    /// One line for people.
    pub text: String,
}

/// Problems that only one of two runs had, and that therefore do not count.
#[derive(Debug, Default)]
pub struct Unconfirmed {
    /// Problems of the first run.
    pub first: Vec<Problem>,
    /// Problems of the second run.
    pub second: Vec<Problem>,
}

/// The judgement.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Tests that the run through Weir reported.
    pub tests: usize,
    /// Tests that pass on both sides.
    pub passed: BTreeSet<String>,
    /// Tests that differ and are listed, by kind.
    pub listed: BTreeMap<Kind, usize>,
    /// Tests that fail directly and are listed.
    pub failing_directly: usize,
    /// Tests that the list leaves out by name.
    pub left_out: usize,
    /// Tests that the suite skips by itself on both sides.
    pub skipped: usize,
    /// Why the list does not hold. Empty: it holds.
    pub problems: Vec<Problem>,
}

impl Verdict {
    /// The tests that did not end as the list says.
    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.problems.iter().filter_map(|problem| problem.test.as_deref())
    }

    /// Holds this verdict against a second run of the parts with problems: what a test did only once is returned and no
    /// longer a problem. Those suites have tests of their own that depend on timing; one that fails twice in a row does not,
    /// and neither do two runs that each have a difference, if of another test: Weir may fail a little everywhere.
    pub fn confirm(&mut self, again: Self) -> Unconfirmed {
        let is_of = |tests: &[String], problem: &Problem| problem.test.as_ref().is_none_or(|test| tests.contains(test));
        let [before, after] = [&*self, &again].map(|verdict| verdict.tests().map(str::to_owned).collect::<Vec<_>>());
        let (mut kept, first): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.problems).into_iter().partition(|problem| is_of(&after, problem));
        let (mut known, second): (Vec<_>, Vec<_>) =
            again.problems.into_iter().partition(|problem| is_of(&before, problem));
        // The second run saw both sides: it says which of them a test fails on.
        kept.retain(|problem| problem.test.is_none());
        self.problems = known.extract_if(.., |problem| problem.test.is_some()).collect();
        self.problems.extend(kept.into_iter().chain(known));
        let has_difference = |problems: &[Problem]| problems.iter().any(|problem| problem.is_difference);
        if has_difference(&first) && has_difference(&second) {
            let (differences, rest): (Vec<_>, Vec<_>) = second.into_iter().partition(|problem| problem.is_difference);
            let (others, first) = first.into_iter().partition(|problem| problem.is_difference);
            self.problems.extend::<Vec<_>>(others);
            self.problems.extend(differences);
            return Unconfirmed { first, second: rest };
        }
        let once = first.iter().filter_map(|problem| problem.test.as_ref());
        self.passed.extend(once.filter(|test| again.passed.contains(*test)).cloned());
        Unconfirmed { first, second }
    }

    /// Whether a run through Weir alone had as many tests, and skipped as many, as the list says. Otherwise only a run of both
    /// sides tells which tests are missing.
    pub fn has_counts_of(&self, list: &List) -> bool {
        (self.tests, self.skipped) == (list.tests, list.skipped)
    }

    /// A problem if fewer tests pass on both sides than when the list was made: a suite that runs half of itself finds nothing.
    pub fn check_count(&mut self, list: &List) {
        if self.passed.len() < list.passed_min {
            let (passed, min) = (self.passed.len(), list.passed_min);
            let text = format!("only {passed} tests pass on both sides; at least {min} did when the list was made");
            self.problem(None, text);
        }
    }

    fn problem(&mut self, test: Option<&str>, text: String) {
        self.problems.push(Problem { test: test.map(str::to_owned), is_difference: false, text });
    }

    fn difference(&mut self, test: &str, text: String) {
        self.problems.push(Problem { test: Some(test.to_owned()), is_difference: true, text });
    }
}

/// Judges. A part of a suite (`is_partial`) says nothing about the listed tests that are not in it.
pub fn judge(list: &List, direct: &TestOutcomes, weir: &TestOutcomes, is_partial: bool) -> Verdict {
    let mut verdict = Verdict { tests: weir.tests.len(), ..Verdict::default() };
    for (name, outcome) in &direct.tests {
        judge_test(list, name, outcome, weir.tests.get(name), &mut verdict);
    }
    for (name, outcome) in &weir.tests {
        if direct.tests.contains_key(name) {
            continue;
        }
        if let TestOutcome::Failed(message) = outcome {
            match list.difference(name) {
                Some((kind, _)) => *verdict.listed.entry(kind).or_default() += 1,
                None => {
                    let text = format!("new: `{name}` exists only through Weir, and fails: {}", first_line(message));
                    verdict.difference(name, text);
                }
            }
        }
    }
    for (side, outcomes) in [("direct", direct), ("through Weir", weir)] {
        for problem in &outcomes.problems {
            verdict.problem(None, format!("{side}: {problem}"));
        }
    }
    if !is_partial {
        judge_list(list, direct, weir, &mut verdict);
    }
    verdict
}

fn judge_test(list: &List, name: &str, direct: &TestOutcome, weir: Option<&TestOutcome>, verdict: &mut Verdict) {
    let listed = list.difference(name);
    match (direct, weir) {
        (TestOutcome::LeftOut, _) => verdict.left_out += 1,
        (TestOutcome::Failed(message), _) => {
            if list.is_failing_directly(name) {
                verdict.failing_directly += 1;
            } else {
                verdict.problem(
                    Some(name),
                    format!("`{name}` fails without Weir too, and is not listed so: {}", first_line(message)),
                );
            }
        }
        _ if list.is_failing_directly(name) => {
            verdict.problem(Some(name), format!("stale: `{name}` does not fail directly"))
        }
        (TestOutcome::Passed, Some(TestOutcome::Passed)) => match listed {
            Some(_) => {
                verdict.problem(Some(name), format!("stale: `{name}` passes through Weir; take it off the list"))
            }
            None => {
                verdict.passed.insert(name.to_owned());
            }
        },
        (TestOutcome::Skipped(_), Some(TestOutcome::Skipped(_) | TestOutcome::Passed)) => match listed {
            Some(_) => verdict.problem(Some(name), format!("stale: `{name}` is skipped by the suite itself")),
            None => verdict.skipped += 1,
        },
        (_, weir) => match listed {
            Some((kind, _)) => *verdict.listed.entry(kind).or_default() += 1,
            None => verdict.difference(name, format!("new: `{name}` {}", event_text(weir))),
        },
    }
}

/// The output of a test that failed through Weir.
pub fn event_text(weir: Option<&TestOutcome>) -> String {
    match weir {
        None => "passes directly and does not run through Weir".to_owned(),
        Some(TestOutcome::Failed(message)) => format!("fails through Weir: {}", first_line(message)),
        Some(TestOutcome::Skipped(reason)) => format!("is skipped through Weir only: {}", first_line(reason)),
        Some(TestOutcome::LeftOut | TestOutcome::Passed) => "ends differently through Weir".to_owned(),
    }
}

/// Reports entries of the list that the suite no longer has.
fn judge_list(list: &List, direct: &TestOutcomes, weir: &TestOutcomes, verdict: &mut Verdict) {
    let named = list.differs.iter().flat_map(|group| &group.tests);
    let failing = list.fails_directly.iter().flat_map(|group| &group.tests);
    for name in named.chain(failing).map(String::as_str).chain(list.tests_left_out()) {
        if !direct.tests.contains_key(name) && !weir.tests.contains_key(name) {
            verdict.problem(None, format!("stale: the suite has no test `{name}`"));
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> List {
        List::parse(text).expect("a good list")
    }

    fn outcomes(tests: &[(&str, TestOutcome)]) -> TestOutcomes {
        let mut outcomes = TestOutcomes::default();
        for (name, outcome) in tests {
            outcomes.add((*name).to_owned(), outcome.clone());
        }
        outcomes
    }

    fn failed() -> TestOutcome {
        TestOutcome::Failed("\nExpected 1\nmore".into())
    }

    fn skipped() -> TestOutcome {
        TestOutcome::Skipped("server too old".into())
    }

    fn texts(verdict: &Verdict) -> Vec<&str> {
        verdict.problems.iter().map(|problem| problem.text.as_str()).collect()
    }

    const ONE_LISTED: &str = "passed_min = 0\ntests = 0\nskipped = 0\n[[differs]]\nkind = \"known limit\"\nreason = \"r\"\ntests = [\"a\"]\n";

    #[test]
    fn an_unlisted_failure_a_skip_and_an_absence_through_weir_are_new() {
        let direct = outcomes(&[("a", TestOutcome::Passed), ("b", TestOutcome::Passed), ("c", TestOutcome::Passed)]);
        let weir = outcomes(&[("a", failed()), ("b", skipped())]);
        let verdict = judge(&list("passed_min = 0\ntests = 0\nskipped = 0\n"), &direct, &weir, false);
        assert_eq!(
            texts(&verdict),
            [
                "new: `a` fails through Weir: Expected 1",
                "new: `b` is skipped through Weir only: server too old",
                "new: `c` passes directly and does not run through Weir",
            ]
        );
        assert!(verdict.passed.is_empty());
    }

    #[test]
    fn a_listed_failure_is_counted_and_a_listed_success_is_stale() {
        let direct = outcomes(&[("a", TestOutcome::Passed)]);
        let held = judge(&list(ONE_LISTED), &direct, &outcomes(&[("a", failed())]), false);
        assert!(held.problems.is_empty(), "{:?}", held.problems);
        assert_eq!(held.listed[&Kind::KnownLimit], 1);
        let stale = judge(&list(ONE_LISTED), &direct, &outcomes(&[("a", TestOutcome::Passed)]), false);
        assert_eq!(texts(&stale), ["stale: `a` passes through Weir; take it off the list"]);
    }

    #[test]
    fn a_listed_test_that_is_gone_or_skipped_is_stale_except_in_a_part_of_the_suite() {
        let none = outcomes(&[]);
        assert_eq!(texts(&judge(&list(ONE_LISTED), &none, &none, false)), ["stale: the suite has no test `a`"]);
        assert!(judge(&list(ONE_LISTED), &none, &none, true).problems.is_empty());
        let both_skip = outcomes(&[("a", skipped())]);
        let verdict = judge(&list(ONE_LISTED), &both_skip, &both_skip, false);
        assert_eq!(texts(&verdict), ["stale: `a` is skipped by the suite itself"]);
    }

    #[test]
    fn a_direct_failure_must_be_listed_as_such_and_go_when_it_passes() {
        let bare = list("passed_min = 0\ntests = 0\nskipped = 0\n");
        let known =
            list("passed_min = 0\ntests = 0\nskipped = 0\n[[fails_directly]]\nreason = \"r\"\ntests = [\"a\"]\n");
        let broken = outcomes(&[("a", failed())]);
        let good = outcomes(&[("a", TestOutcome::Passed)]);
        assert_eq!(judge(&bare, &broken, &broken, false).problems.len(), 1);
        let verdict = judge(&known, &broken, &broken, false);
        assert!(verdict.problems.is_empty());
        assert_eq!(verdict.failing_directly, 1);
        assert_eq!(texts(&judge(&known, &good, &good, false)), ["stale: `a` does not fail directly"]);
    }

    #[test]
    fn a_suite_in_which_hardly_anything_runs_does_not_pass() {
        let all_skipped = outcomes(&[("a", skipped()), ("b", skipped())]);
        let list = list("passed_min = 1\ntests = 2\nskipped = 2\n");
        let mut verdict = judge(&list, &all_skipped, &all_skipped, false);
        verdict.check_count(&list);
        assert!(verdict.has_counts_of(&list));
        assert!(!judge(&list, &all_skipped, &outcomes(&[("a", skipped())]), true).has_counts_of(&list));
        assert_eq!(verdict.problems.len(), 1);
    }

    #[test]
    fn a_failure_that_exists_only_through_weir_is_new_unless_it_is_listed() {
        let weir = outcomes(&[("a", failed())]);
        assert_eq!(
            judge(&list("passed_min = 0\ntests = 0\nskipped = 0\n"), &outcomes(&[]), &weir, false).problems.len(),
            1
        );
        let known = judge(&list(ONE_LISTED), &outcomes(&[]), &weir, false);
        assert!(known.problems.is_empty(), "{:?}", known.problems);
        assert_eq!(known.listed[&Kind::KnownLimit], 1);
    }

    #[test]
    fn problems_of_the_gateway_itself_count() {
        let mut weir = outcomes(&[("a", TestOutcome::Passed)]);
        weir.problems.push("unit/x: a permit is held".into());
        let verdict = judge(
            &list("passed_min = 0\ntests = 0\nskipped = 0\n"),
            &outcomes(&[("a", TestOutcome::Passed)]),
            &weir,
            false,
        );
        assert_eq!(texts(&verdict), ["through Weir: unit/x: a permit is held"]);
    }

    #[test]
    fn a_difference_that_a_second_run_does_not_repeat_is_reported_and_is_no_problem() {
        let list = list("passed_min = 0\ntests = 0\nskipped = 0\n");
        let direct = outcomes(&[("a", TestOutcome::Passed), ("b", TestOutcome::Passed)]);
        let mut weir = outcomes(&[("a", failed()), ("b", failed())]);
        weir.problems.push("a permit is held".into());
        let mut verdict = judge(&list, &direct, &weir, false);
        assert_eq!(verdict.tests().collect::<Vec<_>>(), ["a", "b"]);
        let mut again = outcomes(&[("a", TestOutcome::Passed), ("b", failed())]);
        again.problems.push("a panic".into());
        let once = verdict.confirm(judge(&list, &direct, &again, true));
        assert_eq!((once.first.len(), once.second.len()), (1, 0));
        assert_eq!(once.first[0].test.as_deref(), Some("a"));
        assert_eq!(verdict.passed, BTreeSet::from(["a".to_owned()]), "as the second run had it");
        assert_eq!(
            texts(&verdict),
            ["new: `b` fails through Weir: Expected 1", "through Weir: a permit is held", "through Weir: a panic"]
        );
    }

    #[test]
    fn two_runs_with_a_difference_each_fail_though_of_other_tests() {
        let list = list("passed_min = 0\ntests = 0\nskipped = 0\n");
        let all = ["a", "b"].map(|name| (name, TestOutcome::Passed));
        let run = |broken: &str| {
            let through = all.clone().map(|(name, outcome)| (name, if name == broken { failed() } else { outcome }));
            judge(&list, &outcomes(&all), &outcomes(&through), true)
        };
        let mut verdict = run("a");
        let once = verdict.confirm(run("b"));
        assert_eq!((once.first.len(), once.second.len()), (0, 0));
        assert_eq!(
            texts(&verdict),
            ["new: `a` fails through Weir: Expected 1", "new: `b` fails through Weir: Expected 1"]
        );
    }

    /// A run through Weir alone cannot know that a test fails directly too.
    #[test]
    fn the_second_run_says_which_side_a_test_fails_on() {
        let list = list("passed_min = 0\ntests = 0\nskipped = 0\n");
        let weir = outcomes(&[("a", failed())]);
        let mut verdict = judge(&list, &TestOutcomes::listed(&list, &weir), &weir, true);
        assert_eq!(texts(&verdict), ["new: `a` fails through Weir: Expected 1"]);
        let once = verdict.confirm(judge(&list, &weir, &weir, true));
        assert_eq!((once.first.len(), once.second.len()), (0, 0));
        assert_eq!(texts(&verdict), ["`a` fails without Weir too, and is not listed so: Expected 1"]);
    }

    /// A test that fails without Weir proves nothing about Weir, in either run. It is reported.
    #[test]
    fn differences_of_the_second_run_only_are_reported() {
        let list = list("passed_min = 0\ntests = 0\nskipped = 0\n");
        let good = outcomes(&[("a", TestOutcome::Passed), ("b", TestOutcome::Passed)]);
        let mut verdict = judge(&list, &good, &outcomes(&[("a", failed()), ("b", TestOutcome::Passed)]), true);
        let direct = outcomes(&[("a", TestOutcome::Passed), ("b", failed())]);
        let once = verdict.confirm(judge(&list, &direct, &good, true));
        assert!(verdict.problems.is_empty(), "{:?}", verdict.problems);
        assert_eq!((once.first.len(), once.second.len()), (1, 1));
        // A server that dies once takes all tests of its unit with it.
        let mut verdict = judge(&list, &direct, &good, true);
        assert_eq!(verdict.passed.len(), 1);
        let _ = verdict.confirm(judge(&list, &good, &good, true));
        assert_eq!(verdict.passed.len(), 2, "as the second run had it");
    }
}
