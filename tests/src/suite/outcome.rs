//! What a suite says of its tests, by name.

use std::collections::BTreeMap;

use crate::suite::list::List;

/// How one test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The suite left it out by itself; its reason.
    Skipped(String),
    /// It was left out because the list says so.
    LeftOut,
    /// It held.
    Passed,
    /// It did not; what the suite said.
    Failed(String),
}

impl Outcome {
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
pub struct Outcomes {
    /// By name. Tests with the same name (loops) count as one, by the worst of them.
    pub tests: BTreeMap<String, Outcome>,
    /// What went wrong beside the tests: a gateway with a permit too few at its end, a panic in its log.
    pub problems: Vec<String>,
}

impl Outcomes {
    /// The direct side of a run through Weir, as the list has it: a test passes there, unless the list says that it fails or is
    /// left out, or the suite skips it.
    pub fn listed(list: &List, weir: &Self) -> Self {
        let mut direct = Self::default();
        for (name, through) in &weir.tests {
            let outcome = match through {
                Outcome::Skipped(reason) => Outcome::Skipped(reason.clone()),
                Outcome::LeftOut if list.difference(name).is_none() => Outcome::LeftOut,
                Outcome::LeftOut | Outcome::Passed | Outcome::Failed(_) => Outcome::Passed,
            };
            direct.tests.insert(name.clone(), outcome);
        }
        for name in list.differs.iter().flat_map(|group| &group.tests) {
            direct.tests.entry(name.clone()).or_insert(Outcome::Passed);
        }
        for name in list.fails_directly.iter().flat_map(|group| &group.tests) {
            direct.tests.insert(name.clone(), Outcome::Failed("the list says so".into()));
        }
        direct
    }

    /// Adds a test.
    pub fn add(&mut self, name: String, outcome: Outcome) {
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
        let mut outcomes = Outcomes::default();
        for outcome in [Outcome::Passed, Outcome::Failed("no".into()), Outcome::Skipped("why".into()), Outcome::Passed]
        {
            outcomes.add("loop".into(), outcome);
        }
        assert_eq!(outcomes.tests["loop"], Outcome::Failed("no".into()));
        outcomes.add("once".into(), Outcome::Skipped("why".into()));
        outcomes.add("once".into(), Outcome::Passed);
        assert_eq!(outcomes.tests["once"], Outcome::Passed);
    }

    #[test]
    fn the_direct_side_is_what_the_list_says_of_it() {
        let list = List::parse(
            "passed_min = 0\ntests = 0\nskipped = 0\n\
             [[differs]]\nkind = \"by design\"\nreason = \"r\"\ntests = [\"differs\", \"does not run\"]\n\
             [[fails_directly]]\nreason = \"r\"\ntests = [\"fails\"]\n\
             [[left_out]]\nreason = \"r\"\ntests = [\"hangs\"]\n",
        )
        .expect("a good list");
        let mut weir = Outcomes::default();
        let no = || Outcome::Failed("no".into());
        let skipped = Outcome::Skipped("newer".into());
        for (name, outcome) in [
            ("holds", Outcome::Passed),
            ("new", no()),
            ("differs", no()),
            ("fails", no()),
            ("hangs", Outcome::LeftOut),
            ("skipped", skipped.clone()),
        ] {
            weir.add(name.into(), outcome);
        }
        let direct = Outcomes::listed(&list, &weir);
        for passing in ["holds", "new", "differs", "does not run"] {
            assert_eq!(direct.tests[passing], Outcome::Passed, "{passing}");
        }
        assert!(matches!(direct.tests["fails"], Outcome::Failed(_)));
        assert_eq!((&direct.tests["hangs"], &direct.tests["skipped"]), (&Outcome::LeftOut, &skipped));
    }
}
