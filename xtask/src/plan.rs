//! Which lanes run, how much of each, and why: decided before anything is built.

use anyhow::{Result, bail};

use crate::change::Change;
use crate::lane::{Lane, When};
use crate::reach::{Graph, Reach, ReachedPackages};

/// How much of a lane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All of it.
    Full,
    /// The tests that its core names.
    Core,
    /// Nothing.
    Out,
}

impl Form {
    /// As the closing table has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Core => "core",
            Self::Out => "out",
        }
    }
}

/// The lanes to run.
pub struct Plan {
    /// The lanes, in their order.
    pub lanes: Vec<Planned>,
    /// The packages whose tests are built and run, and which clippy and rustdoc check.
    pub reached: ReachedPackages,
}

/// One lane in a plan.
pub struct Planned {
    /// The lane.
    pub lane: &'static Lane,
    /// How much of it.
    pub form: Form,
    /// It has its turn, whatever has changed.
    pub has_turn: bool,
    /// Why so much, in a few words.
    pub why: String,
}

/// The lanes that the command line selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneSelection<'a> {
    /// These lanes or families, in full.
    Named(Vec<&'a str>),
    /// Every lane in full.
    Everything,
    /// The lanes that the change can reach in full, and the core of the rest: of these lanes or families, or of all if empty.
    Change(Vec<&'a str>),
}

impl<'a> LaneSelection<'a> {
    /// Reads `--full`, `--since REVISION` with or without names, or names of lanes and families. With it: the revision.
    ///
    /// # Errors
    /// A word is none of these, or they do not go together.
    pub fn parse(lanes: &[Lane], words: &[&'a str]) -> Result<(Self, Option<&'a str>)> {
        match words {
            [] => Ok((Self::Change(Vec::new()), None)),
            ["--full"] => Ok((Self::Everything, None)),
            ["--since"] => bail!("--since needs a revision, e.g. `--since origin/main`"),
            ["--since", revision, names @ ..] => Ok((Self::Change(named(lanes, names)?), Some(revision))),
            names => Ok((Self::Named(named(lanes, names)?), None)),
        }
    }
}

/// The words, if each is the name of a lane or a family.
fn named<'a>(lanes: &[Lane], names: &[&'a str]) -> Result<Vec<&'a str>> {
    for name in names {
        if name.starts_with("--") {
            bail!("`{name}` does not go with the other words, or is no option; `cargo xtask help` shows them");
        }
        if !lanes.iter().any(|lane| lane.is_named(name)) {
            bail!("unknown lane `{name}`; `cargo xtask test --list` shows them");
        }
    }
    Ok(names.to_vec())
}

/// Which form of the tests that is, for the first and the last lines of a run.
pub fn describe(wanted: &LaneSelection<'_>, change: Option<&Change>) -> String {
    match (wanted, change) {
        (LaneSelection::Named(names), _) => format!("form: the lanes {}", names.join(", ")),
        (LaneSelection::Everything, _) => "form: full".to_owned(),
        (LaneSelection::Change(_), None) => "form: full, because there is no commit to compare with".to_owned(),
        (LaneSelection::Change(only), Some(change)) => {
            let lanes = if only.is_empty() { String::new() } else { format!("; only the lanes {}", only.join(", ")) };
            format!("form: change of {} files since {}{lanes}", change.files.len(), change.base)
        }
    }
}

/// A lane runs in full in one of so many commits on average, whatever has changed. The first turn is for all packages: the lanes
/// that check the reached packages check every package then.
const TURNS: usize = 10;

/// The plan for `lanes`. `change`: what differs, if anything says so.
pub fn make(lanes: &'static [Lane], wanted: &LaneSelection<'_>, change: Option<&Change>, graph: &Graph) -> Plan {
    let full = |lane, why: &str| Planned { lane, form: Form::Full, has_turn: false, why: why.to_owned() };
    let is_named = |lane: &Lane, names: &[&str]| names.iter().any(|name| lane.is_named(name));
    let all = |why| Plan { lanes: lanes.iter().map(|lane| full(lane, why)).collect(), reached: ReachedPackages::All };
    match (wanted, change) {
        (LaneSelection::Named(names), _) => {
            let lanes = lanes.iter().filter(|lane| is_named(lane, names)).map(|lane| full(lane, "named")).collect();
            Plan { lanes, reached: ReachedPackages::All }
        }
        (LaneSelection::Everything, _) => all("--full"),
        (LaneSelection::Change(_), None) => all("no commit to compare with"),
        (LaneSelection::Change(only), Some(change)) => {
            let reach = Reach::new(graph, change);
            let turn = turn_of(&change.head);
            let reached = if turn == 0 { ReachedPackages::All } else { reach.packages() };
            let mut place = 0;
            let mut lanes: Vec<Planned> = Vec::from_iter(lanes.iter().map(|lane| {
                let may_be_missed = matches!(lane.when, When::Reached(_));
                place += usize::from(may_be_missed);
                one(lane, may_be_missed && place % TURNS == turn, &reach, &reached)
            }));
            lanes.retain(|planned| only.is_empty() || is_named(planned.lane, only));
            Plan { lanes, reached }
        }
    }
}

fn one(lane: &'static Lane, has_turn: bool, reach: &Reach<'_>, reached: &ReachedPackages) -> Planned {
    let unreached = || "the change does not reach it".to_owned();
    let (form, why) = match lane.when {
        When::Always => (Form::Full, "always".to_owned()),
        When::Named => (Form::Out, "in work: runs by its name".to_owned()),
        _ if reach.is_documents() => (Form::Out, "only documents changed".to_owned()),
        When::Code => (Form::Full, reached.describe()),
        When::Reached(covers) => match reach.file_in(&covers) {
            Some(file) => (Form::Full, format!("{file} changed")),
            None if has_turn => (Form::Full, "its turn".to_owned()),
            None if lane.core.is_empty() => (Form::Out, unreached()),
            None => (Form::Core, unreached()),
        },
    };
    Planned { lane, form, has_turn: has_turn && form == Form::Full, why }
}

/// The turn of a commit, below [`TURNS`]. Its hash decides.
fn turn_of(head: &str) -> usize {
    let digits = head.get(..15).unwrap_or(head);
    usize::from_str_radix(digits, 16).unwrap_or(0) % TURNS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lane::{Report, Work};
    use crate::reach::Covers;
    use crate::workspace::Workspace;

    const LANE: Lane = Lane {
        name: "always",
        about: "",
        needs: &[],
        when: When::Always,
        core: &[],
        minutes: 1,
        work: Work::Tests,
        programs: false,
        body: |_| Ok(Report::default()),
    };
    const RESP: When = When::Reached(Covers { stacks: &["weir-resp"], packages: &[], paths: &["tests/resp/"] });
    const LANES: &[Lane] = &[
        LANE,
        Lane { name: "code", when: When::Code, ..LANE },
        Lane { name: "cored", when: RESP, core: &["one"], ..LANE },
        Lane { name: "family:member", when: RESP, ..LANE },
    ];

    /// Form and reason of each lane, for a change of these files at a commit with that hash.
    fn planned(head: &str, files: &[&str]) -> Vec<(Form, String)> {
        let files = files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>();
        let change = Change { base: "base".into(), files, head: head.into() };
        let graph = Graph::of(&Workspace::load().expect("cargo describes the workspace"));
        let plan = make(LANES, &LaneSelection::Change(Vec::new()), Some(&change), &graph);
        plan.lanes.into_iter().map(|one| (one.form, one.why)).collect()
    }

    #[test]
    fn a_change_runs_the_lanes_it_reaches_in_full_and_the_core_of_the_rest() {
        let forms = |files: &[&str]| planned("9", files).into_iter().map(|(form, _)| form).collect::<Vec<_>>();
        use Form::*;
        assert_eq!(forms(&["README.md"]), [Full, Out, Out, Out]);
        assert_eq!(forms(&["proxy/http/src/lib.rs"]), [Full, Full, Core, Out]);
        for reached in ["codec/resp/src/lib.rs", "tests/resp/a.txt", "Cargo.lock"] {
            assert_eq!(forms(&["proxy/http/src/lib.rs", reached]), [Full, Full, Full, Full], "{reached}");
        }
        assert_eq!(planned("9", &["codec/resp/src/lib.rs"])[2].1, "codec/resp/src/lib.rs changed");
    }

    #[test]
    fn each_lane_that_a_change_may_miss_has_its_turn() {
        let turns = |head: &str| {
            let plan = planned(head, &["proxy/http/src/lib.rs"]);
            plan.iter().position(|(_, why)| why == "its turn")
        };
        let turns: Vec<_> = (0..10).map(|digit| turns(&digit.to_string())).collect();
        assert_eq!(turns, [&[None, Some(2), Some(3)], &[None; 7][..]].concat());
        assert_eq!(planned("0", &["proxy/http/src/lib.rs"])[1].1, "all packages");
        assert!(planned("9", &["proxy/http/src/lib.rs"])[1].1.ends_with(" packages are reached"));
    }

    #[test]
    fn without_a_change_to_compare_with_everything_runs() {
        let graph = Graph::of(&Workspace::load().expect("cargo describes the workspace"));
        for (wanted, change) in [(LaneSelection::Change(Vec::new()), None), (LaneSelection::Everything, None)] {
            assert!(make(LANES, &wanted, change, &graph).lanes.iter().all(|one| one.form == Form::Full));
        }
    }

    #[test]
    fn words_are_read_and_unknown_ones_are_refused() {
        let parse = |words: &[&'static str]| LaneSelection::parse(LANES, words).map_err(|error| error.to_string());
        assert_eq!(parse(&[]), Ok((LaneSelection::Change(Vec::new()), None)));
        assert_eq!(parse(&["--full"]), Ok((LaneSelection::Everything, None)));
        assert_eq!(parse(&["--since", "HEAD~3"]), Ok((LaneSelection::Change(Vec::new()), Some("HEAD~3"))));
        assert_eq!(parse(&["--since", "HEAD~3", "code"]), Ok((LaneSelection::Change(vec!["code"]), Some("HEAD~3"))));
        assert_eq!(parse(&["code", "family"]), Ok((LaneSelection::Named(vec!["code", "family"]), None)));
        for refused in
            [&["--since"][..], &["--full", "code"], &["code", "--full"], &["none"], &["--since", "HEAD", "none"]]
        {
            assert!(parse(refused).is_err(), "{refused:?}");
        }
    }
}
