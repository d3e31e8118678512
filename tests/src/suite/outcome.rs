//! The results of a suite's tests, by name.

use std::collections::BTreeMap;

use crate::suite::list::List;

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestOutcome {
    /// The suite left it out by itself; its reason.
    Skipped(String),
    /// It was left out because the list says so.
    LeftOut,
    /// It held.
    Passed,
    /// It did not; what the suite said.
    Failed(String),
}

impl TestOutcome {
    fn weight(&self) -> u8 {
        match self {
            Self::Skipped(_) => 0,
            Self::LeftOut => 1,
            Self::Passed => 2,
            Self::Failed(_) => 3,
        }
    }
}

/// One run of a suite.
#[derive(Debug, Default)]
pub struct TestOutcomes {
    /// By name. Tests with the same name (loops) count as one, by the worst of them.
    pub tests: BTreeMap<String, TestOutcome>,
    /// Faults besides failed tests: a gateway with a permit too few at its end, a panic in its log.
    pub problems: Vec<String>,
}

impl TestOutcomes {
    /// The direct side of a run through Weir, as the list has it: a test passes there, unless the list says that it fails or is
    /// left out, or the suite skips it.
    pub fn listed(list: &List, weir: &Self) -> Self {
        let mut direct = Self::default();
        for (name, through) in &weir.tests {
            let outcome = match through {
                TestOutcome::Skipped(reason) => TestOutcome::Skipped(reason.clone()),
                TestOutcome::LeftOut if list.difference(name).is_none() => TestOutcome::LeftOut,
                TestOutcome::LeftOut | TestOutcome::Passed | TestOutcome::Failed(_) => TestOutcome::Passed,
            };
            direct.tests.insert(name.clone(), outcome);
        }
        for name in list.differs.iter().flat_map(|group| &group.tests) {
            direct.tests.entry(name.clone()).or_insert(TestOutcome::Passed);
        }
        for name in list.fails_directly.iter().flat_map(|group| &group.tests) {
            direct.tests.insert(name.clone(), TestOutcome::Failed("the list says so".into()));
        }
        direct
    }

    /// Adds a test.
    pub fn add(&mut self, name: String, outcome: TestOutcome) {
        match self.tests.get(&name) {
            Some(known) if known.weight() >= outcome.weight() => {}
            _ => {
                self.tests.insert(name, outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_tests_with_one_name_the_worst_counts() {
        let mut outcomes = TestOutcomes::default();
        for outcome in [
            TestOutcome::Passed,
            TestOutcome::Failed("no".into()),
            TestOutcome::Skipped("why".into()),
            TestOutcome::Passed,
        ] {
            outcomes.add("loop".into(), outcome);
        }
        assert_eq!(outcomes.tests["loop"], TestOutcome::Failed("no".into()));
        outcomes.add("once".into(), TestOutcome::Skipped("why".into()));
        outcomes.add("once".into(), TestOutcome::Passed);
        assert_eq!(outcomes.tests["once"], TestOutcome::Passed);
    }

    #[test]
    fn the_direct_side_matches_the_list() {
        let list = List::parse(
            "passed_min = 0\ntests = 0\nskipped = 0\n\
             [[differs]]\nkind = \"by design\"\nreason = \"r\"\ntests = [\"differs\", \"does not run\"]\n\
             [[fails_directly]]\nreason = \"r\"\ntests = [\"fails\"]\n\
             [[left_out]]\nreason = \"r\"\ntests = [\"hangs\"]\n",
        )
        .expect("a good list");
        let mut weir = TestOutcomes::default();
        let no = || TestOutcome::Failed("no".into());
        let skipped = TestOutcome::Skipped("newer".into());
        for (name, outcome) in [
            ("holds", TestOutcome::Passed),
            ("new", no()),
            ("differs", no()),
            ("fails", no()),
            ("hangs", TestOutcome::LeftOut),
            ("skipped", skipped.clone()),
        ] {
            weir.add(name.into(), outcome);
        }
        let direct = TestOutcomes::listed(&list, &weir);
        for passing in ["holds", "new", "differs", "does not run"] {
            assert_eq!(direct.tests[passing], TestOutcome::Passed, "{passing}");
        }
        assert!(matches!(direct.tests["fails"], TestOutcome::Failed(_)));
        assert_eq!((&direct.tests["hangs"], &direct.tests["skipped"]), (&TestOutcome::LeftOut, &skipped));
    }
}
