//! The lanes of `cargo xtask test`, in the order they start: the cheap ones first, those that measure last.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::change;
use crate::lane::{Lane, LaneResult, Report, Run, When, Work};
use crate::plan::{self, Form, LaneSelection, Planned};
use crate::programs::Build;
use crate::reach::{Covers, Graph, ReachedPackages};
use crate::setup::{Installation, Part};
use crate::summary;
use crate::workspace::Workspace;

mod clients;
mod compiler;
mod container;
mod cores;
mod drivers;
mod fuzz;
mod package;
mod products;
mod suites;

/// Nothing runs longer than this without an end.
const LANE_DEADLINE: Duration = Duration::from_secs(25 * 60);

/// Servers, clients and tools of the HTTP tests.
const HTTP_PARTS: &[Part] =
    &[Part::Servers, Part::Peers, Part::Http2, Part::Browser, Part::Prometheus, Part::Node, Part::Python];

/// Packages that join all protocols: every test of the product depends on them.
const PRODUCT: &[&str] = &["weir", "weir-config", "weir-admin"];

/// The packages that decide the meaning of Redis commands. The foreign suites test this meaning and take minutes. The other lanes
/// test the layers below.
const REDIS: &[&str] = &[
    "weir-redis",
    "weir-redis-session",
    "weir-resp",
    "weir-analysis",
    "weir-placement",
    "weir-policy",
    "weir-upstream",
];

/// The packages that decide the meaning of PostgreSQL sessions.
const POSTGRES: &[&str] =
    &["weir-postgres", "weir-postgres-session", "weir-postgres-codec", "weir-analysis", "weir-upstream"];

/// The packages of the lab. Its lane takes sixteen minutes; the other lanes test the layers below.
const LAB: &[&str] = &["weir-trials", "weir-load", "weir-knee", "weir-parties", "weir-origin"];

const E2E_PATHS: &[&str] = &[
    "tests/src/",
    "tests/tests/redis/",
    "docs/tutorial/redis.md",
    "tests/parity/",
    "tests/Cargo.toml",
    "lab/trials/src/testdata/knee.json",
];
const HOSTILE_PATHS: &[&str] = &["tests/src/", "tests/tests/hostile/", "tests/Cargo.toml"];
const HTTP_PATHS: &[&str] = &[
    "tests/src/",
    "tests/tests/http/",
    "docs/guide/operations.md",
    "docs/tutorial/http.md",
    "tests/clients/",
    "tests/Cargo.toml",
    "examples/prometheus/",
];
const POSTGRES_PATHS: &[&str] = &["tests/src/", "tests/tests/postgres/", "tests/clients/postgres/", "tests/Cargo.toml"];
const MONGODB_PATHS: &[&str] = &[
    "tests/src/",
    "tests/tests/mongodb/",
    "tests/clients/mongodb/",
    "tests/clients/postgres/python/checks.py",
    "tests/Cargo.toml",
    "weir/src/origin",
];
const AI_PATHS: &[&str] = &[
    "tests/src/",
    "tests/tests/ai/",
    "tests/clients/ai/",
    "tests/clients/postgres/python/checks.py",
    "tests/Cargo.toml",
    "weir/src/origin",
    "weir/src/lab_load",
];
const FLAGS_PATHS: &[&str] = &[
    "tests/src/",
    "tests/tests/flags/",
    "tests/parity/flags",
    "tests/clients/flags/",
    "tests/clients/node/chromium.js",
    "tests/Cargo.toml",
    "weir/src/origin",
];
const LAB_PATHS: &[&str] = &[
    // It compares imports of Envoy and twemproxy with these programs.
    "control/import/",
    "weir/src/lab",
    "weir/src/plan",
    "weir/src/origin",
    "weir/src/demo",
    "docs/tutorial/capacity.md",
    "tests/tests/lab",
    "tests/Cargo.toml",
    // The pages of results, in a browser.
    "tests/clients/node/chromium.js",
    "tests/clients/node/inspect.js",
    "tests/clients/node/pages.js",
];

/// Paths of the packages' content and of their builder.
const PACKAGE_PATHS: &[&str] = &["packaging/", "tests/package/", "xtask/src/package/", ".dockerignore"];

const fn covers(
    stacks: &'static [&'static str],
    packages: &'static [&'static str],
    paths: &'static [&'static str],
) -> When {
    When::Reached(Covers { stacks, packages, paths })
}

/// A lane without needs that runs in full whenever code has changed.
const CODE: Lane = Lane {
    name: "",
    about: "",
    needs: &[],
    when: When::Code,
    core: &[],
    minutes: 1,
    work: Work::Tests,
    programs: false,
    body: |_| unreachable!("each lane has its own"),
};

const LANES: &[Lane] = &[
    Lane { name: "fmt", about: "cargo fmt --check", when: When::Always, body: compiler::fmt, ..CODE },
    Lane {
        name: "tidy",
        about: "rules of the tree: arrows, file length, unsafe, dead files, links",
        when: When::Always,
        body: compiler::tidy,
        ..CODE
    },
    Lane {
        name: "build",
        about: "the programs of the tests, in one call of cargo",
        minutes: 12,
        body: compiler::build,
        ..CODE
    },
    Lane {
        name: "unit",
        about: "unit, property and simulation tests, generated references up to date, the corpus of the fuzzer",
        // The synthetic servers are compared with the real ones.
        needs: &[Part::Servers, Part::Postgres],
        minutes: 6,
        programs: true,
        body: products::unit,
        ..CODE
    },
    Lane {
        name: "e2e",
        about: "Redis end to end against real servers",
        needs: &[Part::Servers],
        when: covers(&["weir-redis"], PRODUCT, E2E_PATHS),
        core: cores::E2E,
        minutes: 7,
        programs: true,
        body: |run| products::all(run, "e2e"),
        ..CODE
    },
    Lane {
        name: "hostile",
        about: "hostile clients and servers of Redis",
        needs: &[Part::Servers],
        when: covers(&["weir-redis"], PRODUCT, HOSTILE_PATHS),
        core: cores::HOSTILE,
        minutes: 3,
        programs: true,
        body: |run| products::all(run, "hostile"),
        ..CODE
    },
    Lane {
        name: "http",
        about: "HTTP and TCP against scripted and real origins",
        needs: HTTP_PARTS,
        when: covers(&["weir-http", "weir-tcp", "weir-origin", "weir-import"], PRODUCT, HTTP_PATHS),
        core: cores::HTTP,
        minutes: 6,
        programs: true,
        body: |run| products::all(run, "http"),
        ..CODE
    },
    Lane {
        name: "postgres",
        about: "PostgreSQL with real servers, drivers and programs",
        needs: &[Part::Servers, Part::Postgres, Part::PostgresDrivers],
        when: covers(&["weir-postgres"], PRODUCT, POSTGRES_PATHS),
        core: cores::POSTGRES,
        minutes: 8,
        programs: true,
        body: |run| products::all(run, "postgres"),
        ..CODE
    },
    Lane {
        name: "mongodb",
        about: "MongoDB with real servers, the lab's scripted server, and drivers",
        needs: &[Part::Servers, Part::Mongodb, Part::MongodbDrivers],
        when: covers(&["weir-mongodb", "weir-origin"], PRODUCT, MONGODB_PATHS),
        core: cores::MONGODB,
        minutes: 8,
        programs: true,
        body: |run| products::all(run, "mongodb"),
        ..CODE
    },
    Lane {
        name: "ai",
        about: "the AI gateway: the SDKs of OpenAI, Anthropic, MCP and A2A directly and through it, its ledger, and the load of the lab",
        needs: &[Part::AiSdks],
        when: covers(&["weir-ai", "weir-origin", "weir-load"], PRODUCT, AI_PATHS),
        minutes: 3,
        programs: true,
        body: |run| products::all(run, "ai"),
        ..CODE
    },
    Lane {
        name: "flags",
        about: "feature flags: a real Unleash server and its SDKs through the gateway, the shared specification, outages, hostile clients",
        needs: &[Part::Unleash, Part::FlagSdks, Part::Postgres, Part::Browser, Part::Servers, Part::S3],
        when: covers(&["weir-flags", "weir-origin"], PRODUCT, FLAGS_PATHS),
        core: cores::FLAGS,
        minutes: 4,
        programs: true,
        body: |run| products::all(run, "flags"),
        ..CODE
    },
    Lane {
        name: "package",
        about: "the Debian package installed, run by systemd, upgraded and removed on a throw-away machine; the container file",
        needs: &[Part::Servers, Part::Packaging],
        when: covers(&[], &["weir"], PACKAGE_PATHS),
        minutes: 5,
        programs: true,
        body: package::run,
        ..CODE
    },
    Lane {
        name: "polling:e2e",
        about: "the tests of e2e that the other I/O driver can make a difference to",
        needs: &[Part::Servers],
        when: covers(&["weir-redis"], &["weir"], E2E_PATHS),
        minutes: 4,
        programs: true,
        body: |run| drivers::polling(run, "e2e"),
        ..CODE
    },
    Lane {
        name: "polling:hostile",
        about: "the tests of hostile that the other I/O driver can make a difference to",
        needs: &[Part::Servers],
        when: covers(&["weir-redis"], &["weir"], HOSTILE_PATHS),
        minutes: 2,
        programs: true,
        body: |run| drivers::polling(run, "hostile"),
        ..CODE
    },
    Lane {
        name: "polling:http",
        about: "the tests of http that the other I/O driver can make a difference to",
        needs: HTTP_PARTS,
        when: covers(&["weir-http", "weir-tcp"], &["weir"], HTTP_PATHS),
        minutes: 3,
        programs: true,
        body: |run| drivers::polling(run, "http"),
        ..CODE
    },
    // The clients and the suites wait more than all others, and judge no times: those that compile run beside these.
    Lane {
        name: "clippy",
        about: "clippy over all targets, warnings denied",
        minutes: 12,
        work: Work::Compiles,
        body: compiler::clippy,
        ..CODE
    },
    Lane {
        name: "docs",
        about: "rustdoc without warnings",
        minutes: 6,
        work: Work::Compiles,
        body: compiler::docs,
        ..CODE
    },
    Lane {
        name: "fuzz",
        about: "a short fuzz run of each target, from its committed corpus",
        needs: &[Part::Compiler],
        when: covers(&[], fuzz::FUZZED, &[]),
        minutes: 12,
        work: Work::Compiles,
        body: fuzz::run,
        ..CODE
    },
    Lane {
        name: "clients:python",
        about: "redis-py: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Python],
        when: covers(&["weir-redis"], PRODUCT, &["tests/clients/python/", "tests/src/"]),
        minutes: 3,
        work: Work::Waits,
        programs: true,
        body: clients::python,
        ..CODE
    },
    Lane {
        name: "clients:node",
        about: "ioredis: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Node],
        when: covers(&["weir-redis"], PRODUCT, &["tests/clients/node/", "tests/src/"]),
        minutes: 3,
        work: Work::Waits,
        programs: true,
        body: clients::node,
        ..CODE
    },
    Lane {
        name: "clients:go",
        about: "go-redis: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Go],
        when: covers(&["weir-redis"], PRODUCT, &["tests/clients/go/", "tests/src/"]),
        minutes: 3,
        work: Work::Waits,
        programs: true,
        body: clients::go,
        ..CODE
    },
    Lane {
        name: "clients:java",
        about: "Jedis and Lettuce: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Java],
        when: covers(&["weir-redis"], PRODUCT, &["tests/clients/java/", "tests/src/"]),
        minutes: 3,
        work: Work::Waits,
        programs: true,
        body: clients::java,
        ..CODE
    },
    Lane {
        name: "suites:redis",
        about: "Redis's own test suite through Weir: it differs from a direct connection as listed",
        needs: &[Part::Servers, Part::RedisSuite],
        when: covers(&[], REDIS, &["tests/suites/", "tests/src/"]),
        minutes: 7,
        work: Work::Waits,
        programs: true,
        body: suites::redis,
        ..CODE
    },
    Lane {
        name: "suites:redis-py",
        about: "redis-py's own tests through Weir: they differ from a direct connection as listed",
        needs: &[Part::Servers, Part::RedisPySuite],
        when: covers(&[], REDIS, &["tests/suites/", "tests/src/"]),
        minutes: 7,
        work: Work::Waits,
        programs: true,
        body: suites::redis_py,
        ..CODE
    },
    Lane {
        name: "suites:go-redis",
        about: "go-redis's own specs through Weir: they differ from a direct connection as listed",
        needs: &[Part::Servers, Part::GoRedisSuite],
        when: covers(&[], REDIS, &["tests/suites/", "tests/src/", "tests/clients/go/"]),
        minutes: 7,
        work: Work::Waits,
        programs: true,
        body: suites::go_redis,
        ..CODE
    },
    Lane {
        name: "suites:asyncpg",
        about: "asyncpg's own tests through Weir: they differ from a direct connection as listed",
        needs: &[Part::Servers, Part::Postgres, Part::AsyncpgSuite],
        when: covers(&[], POSTGRES, &["tests/suites/", "tests/src/"]),
        minutes: 7,
        work: Work::Waits,
        programs: true,
        body: suites::asyncpg,
        ..CODE
    },
    Lane {
        name: "suites:pymongo",
        about: "PyMongo's own tests through Weir: they differ from a direct connection as listed",
        needs: &[Part::Servers, Part::Mongodb, Part::PymongoSuite],
        when: When::Named,
        minutes: 7,
        work: Work::Waits,
        programs: true,
        body: suites::pymongo,
        ..CODE
    },
    Lane {
        name: "isolation",
        about: "the cost of one client to another, S1 to S12 with every protocol",
        needs: &[Part::Servers, Part::Peers],
        when: covers(
            &["weir-redis", "weir-http", "weir-tcp"],
            PRODUCT,
            &["tests/src/", "tests/tests/isolation/", "tests/Cargo.toml"],
        ),
        core: cores::ISOLATION,
        minutes: 3,
        work: Work::Measures,
        programs: true,
        body: |run| products::alone(run, "isolation", 2),
    },
    Lane {
        name: "lab",
        about: "the lab against real servers, one test at a time: it measures",
        needs: &[Part::Servers, Part::Peers, Part::Postgres, Part::Browser, Part::Node],
        when: covers(&[], LAB, LAB_PATHS),
        core: cores::LAB,
        minutes: 20,
        work: Work::Measures,
        programs: true,
        body: |run| products::alone(run, "lab", 1),
    },
];

/// `--list`.
pub fn print_list() {
    for lane in LANES {
        println!("{:<18} {}", lane.name, lane.about);
    }
}

/// Runs what `words` of the command line want and prints the summary. With `--plan` before them it only says what that is.
///
/// # Errors
/// A word is none of the command's, or the change cannot be read.
pub fn run(workspace: &Workspace, words: &[&str]) -> Result<ExitCode> {
    let started = Instant::now();
    let (only_plan, words) = words.strip_prefix(&["--plan"]).map_or((false, words), |rest| (true, rest));
    let (wanted, since) = LaneSelection::parse(LANES, words)?;
    let change = if matches!(wanted, LaneSelection::Change(_)) { change::read(&workspace.root, since)? } else { None };
    let graph = Graph::of(workspace);
    let plan::Plan { lanes, reached } = plan::make(LANES, &wanted, change.as_ref(), &graph);
    let form = plan::describe(&wanted, change.as_ref());
    println!("{form}");
    if only_plan {
        lanes.iter().for_each(|one| println!("{:<20} {:<5} {}", one.lane.name, one.form.word(), one.why));
        return Ok(ExitCode::SUCCESS);
    }
    let runner = Runner { workspace, build: Build::default(), reached, installation: Installation::default() };
    let outcomes = runner.all(&lanes);
    let held = summary::print(&outcomes, &form, started.elapsed());
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs lanes.
struct Runner<'a> {
    workspace: &'a Workspace,
    build: Build,
    reached: ReachedPackages,
    installation: Installation,
}

impl Runner<'_> {
    /// Runs them in order, while what they need is being installed. Lanes that compile run beside lanes that test.
    fn all(&self, plan: &[Planned]) -> Vec<LaneResult> {
        let needs: Vec<Part> =
            plan.iter().filter(|one| one.form != Form::Out).flat_map(|one| one.lane.needs).copied().collect();
        let mut outcomes = thread::scope(|scope| {
            let installing = scope.spawn(move || self.installation.run(self.workspace, &needs));
            let mut outcomes = Vec::new();
            let mut compiling = Vec::new();
            for group in plan.chunk_by(|one, next| are_together(one.lane, next.lane)) {
                match group[0].lane.work {
                    Work::Compiles => {
                        compiling.push(scope.spawn(|| group.iter().map(|one| self.one(one)).collect::<Vec<_>>()));
                        continue;
                    }
                    Work::Measures => outcomes.extend(compiling.drain(..).flat_map(joined)),
                    Work::Tests | Work::Waits => {}
                }
                outcomes.extend(self.beside_each_other(group));
            }
            outcomes.extend(compiling.into_iter().flat_map(joined));
            // A panic of the installation is already a problem of each lane that waited for it.
            let _ = installing.join();
            outcomes
        });
        outcomes.sort_by_key(|outcome| plan.iter().position(|one| one.lane.name == outcome.name));
        outcomes
    }

    fn beside_each_other(&self, group: &[Planned]) -> Vec<LaneResult> {
        thread::scope(|scope| {
            let started: Vec<_> = group.iter().map(|planned| scope.spawn(|| self.one(planned))).collect();
            started.into_iter().map(joined).collect()
        })
    }

    fn one(&self, planned: &Planned) -> LaneResult {
        let Planned { lane, form, has_turn, why } = planned;
        let run = Run {
            workspace: self.workspace,
            form: *form,
            has_turn: *has_turn,
            core: lane.core,
            reached: &self.reached,
            build: &self.build,
        };
        let (report, elapsed) = match form {
            Form::Out => (Report::default(), Duration::ZERO),
            Form::Full | Form::Core => match self.installation.wait(lane.needs) {
                Ok(()) => lane.run(&run),
                Err(error) => (Report::of_error(lane.name, &error.context("set-up failed")), Duration::ZERO),
            },
        };
        LaneResult { name: lane.name, form: *form, why: why.clone(), report, elapsed }
    }
}

/// Tells whether both lanes belong to one group, which starts as a whole.
fn are_together(one: &Lane, next: &Lane) -> bool {
    let is_family = one.family() == next.family();
    one.work == next.work && (one.work == Work::Compiles || (one.work == Work::Waits && is_family))
}

fn joined<T>(lanes: thread::ScopedJoinHandle<'_, T>) -> T {
    lanes.join().expect("a lane reports, it does not panic")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::{READ, ROOTS};

    /// A name with a mistake, or a renamed crate, would leave a lane out in silence.
    #[test]
    fn covered_paths_exist_and_every_package_is_covered() {
        let workspace = Workspace::load().expect("cargo describes the workspace");
        let graph = Graph::of(&workspace);
        let is_there = |path: &str| {
            let (folder, beginning) = path.rsplit_once('/').unwrap_or(("", path));
            let mut entries = std::fs::read_dir(workspace.root.join(folder)).into_iter().flatten().flatten();
            entries.any(|entry| entry.file_name().to_string_lossy().starts_with(beginning))
        };
        let mut covered = std::collections::BTreeSet::from(["xtask".to_owned()]);
        for lane in LANES {
            let When::Reached(covers) = lane.when else { continue };
            for package in covers.stacks.iter().chain(covers.packages) {
                assert!(graph.has(package), "{}: no package {package}", lane.name);
            }
            for path in covers.paths {
                assert!(is_there(path), "{}: nothing begins with {path}", lane.name);
            }
            covered.extend(graph.covered(&covers));
        }
        for path in READ.iter().map(|(path, _)| *path).chain(ROOTS.into_iter().filter(|path| *path != "rust-toolchain"))
        {
            assert!(is_there(path), "nothing begins with {path}");
        }
        let forgotten: Vec<&str> = graph.packages().filter(|package| !covered.contains(*package)).collect();
        assert!(forgotten.is_empty(), "no lane covers {forgotten:?}");
    }

    /// Only then does the direct side run again whatever has changed.
    #[test]
    fn every_suite_has_its_turn() {
        let graph = Graph::of(&Workspace::load().expect("cargo describes the workspace"));
        let mut with_turn = std::collections::BTreeSet::new();
        for digit in 0..10 {
            let files = ["proxy/redis/src/lib.rs".to_owned()].into();
            let change = change::Change { base: "base".into(), files, head: digit.to_string() };
            let plan = plan::make(LANES, &LaneSelection::Change(Vec::new()), Some(&change), &graph);
            with_turn.extend(plan.lanes.iter().filter(|one| one.has_turn).map(|one| one.lane.name));
        }
        let reachable = LANES.iter().filter(|lane| matches!(lane.when, When::Reached(_)));
        assert_eq!(with_turn, reachable.map(|lane| lane.name).collect());
    }
}
