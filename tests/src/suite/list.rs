//! The committed list of one suite: which tests differ through Weir, which fail anyway, what is not run; each with the
//! reason.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

use crate::suite::stand::Via;

/// Why a test that passes directly does not pass through Weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Kind {
    /// The gateway does this differently on purpose; the guide of the protocol says so.
    #[serde(rename = "by design")]
    ByDesign,
    /// The gateway cannot do this yet; "Known limits" in the guide of the protocol says so.
    #[serde(rename = "known limit")]
    KnownLimit,
    /// The test looks at the server's own side of its connection, which is the gateway's.
    #[serde(rename = "needs the server itself")]
    NeedsServer,
}

impl Kind {
    /// All, in the order of reports.
    pub const ALL: [Self; 3] = [Self::ByDesign, Self::KnownLimit, Self::NeedsServer];
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ByDesign => "by design",
            Self::KnownLimit => "known limit",
            Self::NeedsServer => "needs the server itself",
        })
    }
}

/// Tests that pass directly and not through Weir, for one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Kind of the reason.
    pub kind: Kind,
    /// The reason, found by looking.
    pub reason: String,
    /// Whether they run through Weir. A test whose failure breaks those after it (it leaves a script running, a client inside
    /// MULTI) does not, so the list does not show when it passes.
    #[serde(default = "yes")]
    pub runs: bool,
    /// Names.
    pub tests: Vec<String>,
}

fn yes() -> bool {
    true
}

/// Tests that fail without Weir too: they say nothing about it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailsDirectly {
    /// Why they do.
    pub reason: String,
    /// Names.
    pub tests: Vec<String>,
}

/// Tests that do not run, or are not judged.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LeftOut {
    /// Why. An empty one is refused.
    pub reason: String,
    /// Whole units of Redis's suite, files of the others.
    pub parts: Vec<String>,
    /// Single tests.
    pub tests: Vec<String>,
    /// Markers of pytest.
    pub markers: Vec<String>,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// At least so many tests pass on both sides. A suite that skips itself passes nothing.
    pub passed_min: usize,
    /// The number of tests in a report of the suite, however they end. A run through Weir alone that reports another number has
    /// lost tests, or the suite has new ones: both sides run then.
    pub tests: usize,
    /// The number of tests that the suite skips by itself. A gateway that hides a feature makes a suite skip more.
    pub skipped: usize,
    /// The differences.
    #[serde(default)]
    pub differs: Vec<Difference>,
    /// The tests that fail anyway.
    #[serde(default)]
    pub fails_directly: Vec<FailsDirectly>,
    /// Tests left out.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

impl List {
    /// Reads and checks the text of a list.
    ///
    /// # Errors
    /// If it is no such list, if a reason is missing, or if a name stands in it twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let list: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut seen = BTreeSet::new();
        for (reason, names) in list.groups() {
            if reason.trim().is_empty() {
                return Err(format!("no reason is given for {names:?}"));
            }
            for name in names {
                if !seen.insert(name.as_str()) {
                    return Err(format!("`{name}` is listed twice"));
                }
            }
        }
        Ok(list)
    }

    fn groups(&self) -> impl Iterator<Item = (&str, &[String])> {
        let differs = self.differs.iter().map(|group| (group.reason.as_str(), group.tests.as_slice()));
        let failing = self.fails_directly.iter().map(|group| (group.reason.as_str(), group.tests.as_slice()));
        let left_out = self.left_out.iter().flat_map(|group| {
            [&group.tests, &group.parts, &group.markers].map(|names| (group.reason.as_str(), names.as_slice()))
        });
        differs.chain(failing).chain(left_out)
    }

    /// Kind and reason of a test that differs.
    pub fn difference(&self, name: &str) -> Option<(Kind, &str)> {
        let group = self.differs.iter().find(|group| group.tests.iter().any(|test| test == name))?;
        Some((group.kind, &group.reason))
    }

    /// Whether a test is known to fail without Weir.
    pub fn is_failing_directly(&self, name: &str) -> bool {
        self.fails_directly.iter().any(|group| group.tests.iter().any(|test| test == name))
    }

    /// Whether a unit or file is left out as a whole.
    pub fn is_part_left_out(&self, part: &str) -> bool {
        self.left_out.iter().any(|group| group.parts.iter().any(|name| name == part))
    }

    /// Single tests that do not run on one side.
    pub fn tests_not_run(&self, via: Via) -> Vec<&str> {
        let differing = self.differs.iter().filter(|group| via == Via::Weir && !group.runs);
        self.tests_left_out().chain(differing.flat_map(|group| &group.tests).map(String::as_str)).collect()
    }

    /// Single tests that are left out on both sides.
    pub fn tests_left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().flat_map(|group| &group.tests).map(String::as_str)
    }

    /// Units or files that are left out.
    pub fn parts_left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().flat_map(|group| &group.parts).map(String::as_str)
    }

    /// Markers of pytest that are left out.
    pub fn markers_left_out(&self) -> impl Iterator<Item = &str> {
        self.left_out.iter().flat_map(|group| &group.markers).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "passed_min = 3\ntests = 0\nskipped = 0\n\
        [[differs]]\nkind = \"by design\"\nreason = \"its own\"\ntests = [\"a\", \"b\"]\n\
        [[fails_directly]]\nreason = \"root\"\ntests = [\"c\"]\n\
        [[left_out]]\nreason = \"slow\"\nparts = [\"unit/x\"]\ntests = [\"d\"]\n";

    #[test]
    fn a_list_is_read() {
        let list = List::parse(GOOD).expect("a good list");
        assert_eq!(list.difference("b"), Some((Kind::ByDesign, "its own")));
        assert_eq!(list.difference("c"), None);
        assert!(list.is_failing_directly("c"));
        assert!(list.is_part_left_out("unit/x"));
        assert_eq!(list.tests_not_run(Via::Weir), ["d"]);
    }

    #[test]
    fn a_difference_that_breaks_others_runs_directly_only() {
        let list =
            List::parse(&GOOD.replace("reason = \"its own\"", "reason = \"its own\"\nruns = false")).expect("good");
        assert_eq!(list.tests_not_run(Via::Direct), ["d"]);
        assert_eq!(list.tests_not_run(Via::Weir), ["d", "a", "b"]);
    }

    #[test]
    fn a_name_twice_a_missing_reason_and_an_unknown_kind_are_refused() {
        let twice = GOOD.replace("[\"c\"]", "[\"a\"]");
        assert!(List::parse(&twice).expect_err("twice").contains("listed twice"));
        let silent = GOOD.replace("\"root\"", "\" \"");
        assert!(List::parse(&silent).expect_err("silent").contains("no reason"));
        let odd = GOOD.replace("by design", "whatever");
        assert!(List::parse(&odd).is_err());
    }
}
