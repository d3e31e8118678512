//! What a suite says of its tests, by name.

use std::collections::BTreeMap;

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
}
