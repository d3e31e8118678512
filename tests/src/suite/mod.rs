//! Test suites that others wrote: Redis's own, redis-py's, go-redis's, asyncpg's, PyMongo's. Each runs directly against a server and through Weir at
//! the same time, and what differs is held against a committed list (`tests/suites/*.toml`) with a reason for each test. A change
//! of the gateway cannot reach the direct side: the list may stand for it. TESTING.md says what the lists hold and how a line
//! gets in and out.

use std::path::{Path, PathBuf};
use std::thread;

use crate::suite::list::List;
use crate::suite::outcome::TestOutcomes;
use crate::suite::stand::Via;

pub mod bounded;
pub mod checks;
pub mod ginkgo;
pub mod list;
pub mod outcome;
pub mod pytest;
pub mod stand;
pub mod tcl;
pub mod verdict;

/// Which suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// The Tcl suite in Redis's source package, in external-server mode.
    Redis,
    /// The tests in redis-py's source distribution.
    RedisPy,
    /// The specs in go-redis's module.
    GoRedis,
    /// The tests in asyncpg's source distribution, for an existing server.
    Asyncpg,
    /// The tests in PyMongo's source distribution.
    Pymongo,
}

impl Suite {
    /// All.
    pub const ALL: [Self; 5] = [Self::Redis, Self::RedisPy, Self::GoRedis, Self::Asyncpg, Self::Pymongo];

    /// As the lanes, the lists and the command line call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisPy => "redis-py",
            Self::GoRedis => "go-redis",
            Self::Asyncpg => "asyncpg",
            Self::Pymongo => "pymongo",
        }
    }

    /// The part (unit, file) that a test stands in, by its name; empty if the name does not say it.
    pub fn part_of(self, test: &str) -> &str {
        let end = match self {
            Self::Redis => ": ",
            Self::RedisPy | Self::Asyncpg | Self::Pymongo => "::",
            Self::GoRedis => return "",
        };
        test.split_once(end).map_or("", |(part, _)| part)
    }
}

/// Selection of tests.
pub struct Plan<'a> {
    /// Which suite.
    pub suite: Suite,
    /// Its source tree.
    pub source: &'a Path,
    /// Interpreter of the environment that has pytest; those of Python need it.
    pub python: &'a Path,
    /// Tests to leave out, and known differences.
    pub list: &'a List,
    /// Units or files to run; empty: all.
    pub only: &'a [String],
    /// The source of the outcomes of the direct side.
    pub direct: Direct,
}

/// The source of the outcomes of the direct side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
    /// The suite runs directly.
    Run,
    /// The list says how each test ends.
    Listed,
}

impl Plan<'_> {
    /// The parts of the suite (units, files) that run: all that it has, without those left out.
    pub fn parts(&self, all: Vec<String>) -> Vec<String> {
        all.into_iter()
            .filter(|part| !self.list.is_part_left_out(part))
            .filter(|part| self.only.is_empty() || self.only.contains(part))
            .collect()
    }
}

/// Runs the suite on both sides at the same time, or through Weir alone; the first outcomes are those of the direct side.
///
/// # Errors
/// If the suite cannot be prepared.
///
/// # Panics
/// If a server or a gateway cannot be started: that is a failure of the set-up and of no single test.
pub fn run_both(plan: &Plan<'_>) -> Result<(TestOutcomes, TestOutcomes), String> {
    let built: Option<PathBuf> = match plan.suite {
        Suite::GoRedis => Some(ginkgo::build(plan.source)?),
        Suite::Redis | Suite::RedisPy | Suite::Asyncpg | Suite::Pymongo => None,
    };
    let side = |via: Via| match plan.suite {
        Suite::Redis => tcl::run(plan, via),
        Suite::RedisPy | Suite::Asyncpg | Suite::Pymongo => pytest::run(plan, via),
        Suite::GoRedis => ginkgo::run(plan, built.as_deref().unwrap_or(Path::new("")), via),
    };
    if plan.direct == Direct::Listed {
        let weir = side(Via::Weir)?;
        return Ok((TestOutcomes::listed(plan.list, &weir), weir));
    }
    thread::scope(|scope| {
        let direct = scope.spawn(|| side(Via::Direct));
        let weir = side(Via::Weir);
        let direct = direct.join().map_err(|_| "the direct side panicked; see above".to_owned())?;
        Ok((direct?, weir?))
    })
}
