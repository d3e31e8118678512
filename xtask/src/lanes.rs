//! The lanes of `cargo xtask test`, in the order they run: the cheap ones first.

use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::command::{self, run_counted};
use crate::lane::{Lane, Outcome, Report};
use crate::setup::{self, Part};
use crate::totals::Runner;
use crate::workspace::Workspace;
use crate::{summary, tidy};

mod clients;
mod fuzz;
mod suites;

/// A cold build of everything on two cores takes some minutes; nothing takes longer than this.
const LANE_DEADLINE: Duration = Duration::from_secs(25 * 60);

/// Seed of the randomised tests in a lane.
const LANE_SEED: &str = "1";

/// What the HTTP tests talk to and with.
const HTTP_PARTS: &[Part] =
    &[Part::Servers, Part::Peers, Part::Http2, Part::Browser, Part::Oha, Part::Node, Part::Python];

const LANES: &[Lane] = &[
    Lane { name: "fmt", about: "cargo fmt --check", needs: &[], body: fmt, beside: false },
    Lane {
        name: "tidy",
        about: "rules of the tree: arrows, file length, unsafe, dead files",
        needs: &[],
        body: tidy_lane,
        beside: false,
    },
    Lane { name: "clippy", about: "clippy over all targets, warnings denied", needs: &[], body: clippy, beside: false },
    Lane { name: "docs", about: "rustdoc without warnings", needs: &[], body: docs, beside: false },
    Lane {
        name: "unit",
        about: "unit, property and simulation tests of every crate, generated references up to date",
        // The synthetic server is compared with the real one.
        needs: &[Part::Servers],
        body: unit,
        beside: false,
    },
    Lane {
        name: "e2e:io_uring",
        about: "end to end against real servers, io_uring driver",
        needs: &[Part::Servers],
        body: |workspace| end_to_end(workspace, "e2e", "io_uring"),
        beside: true,
    },
    Lane {
        name: "e2e:polling",
        about: "end to end against real servers, polling driver",
        needs: &[Part::Servers],
        body: |workspace| end_to_end(workspace, "e2e", "polling"),
        beside: true,
    },
    Lane {
        name: "hostile:io_uring",
        about: "hostile clients and upstreams, io_uring driver",
        needs: &[Part::Servers],
        body: |workspace| end_to_end(workspace, "hostile", "io_uring"),
        beside: true,
    },
    Lane {
        name: "hostile:polling",
        about: "hostile clients and upstreams, polling driver",
        needs: &[Part::Servers],
        body: |workspace| end_to_end(workspace, "hostile", "polling"),
        beside: true,
    },
    Lane {
        name: "http:io_uring",
        about: "HTTP against scripted and real origins, io_uring driver",
        needs: HTTP_PARTS,
        body: |workspace| end_to_end(workspace, "http", "io_uring"),
        beside: true,
    },
    Lane {
        name: "http:polling",
        about: "HTTP against scripted and real origins, polling driver",
        needs: HTTP_PARTS,
        body: |workspace| end_to_end(workspace, "http", "polling"),
        beside: true,
    },
    Lane {
        name: "isolation",
        about: "what one client may cost another, S1 to S12 with every protocol; one driver",
        needs: &[Part::Servers, Part::Peers],
        body: |workspace| end_to_end(workspace, "isolation", "auto"),
        beside: false,
    },
    Lane {
        name: "lab",
        about: "the lab against real servers, one test at a time: it measures",
        needs: &[Part::Servers, Part::Peers],
        body: lab,
        beside: false,
    },
    Lane {
        name: "clients:python",
        about: "redis-py: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Python],
        body: clients::python,
        beside: true,
    },
    Lane {
        name: "clients:node",
        about: "ioredis: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Node],
        body: clients::node,
        beside: true,
    },
    Lane {
        name: "clients:go",
        about: "go-redis: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Go],
        body: clients::go,
        beside: true,
    },
    Lane {
        name: "clients:java",
        about: "Jedis and Lettuce: direct, and through Weir to Redis and Valkey",
        needs: &[Part::Servers, Part::Java],
        body: clients::java,
        beside: true,
    },
    Lane {
        name: "suites:redis",
        about: "Redis's own test suite: direct and through Weir, differences as listed",
        needs: &[Part::Servers, Part::RedisSuite],
        body: suites::redis,
        beside: true,
    },
    Lane {
        name: "suites:redis-py",
        about: "redis-py's own tests: direct and through Weir, differences as listed",
        needs: &[Part::Servers, Part::RedisPySuite],
        body: suites::redis_py,
        beside: true,
    },
    Lane {
        name: "suites:go-redis",
        about: "go-redis's own specs: direct and through Weir, differences as listed",
        needs: &[Part::Servers, Part::GoRedisSuite],
        body: suites::go_redis,
        beside: true,
    },
    Lane {
        name: "fuzz",
        about: "committed corpus replayed, then a short fuzz run of each target",
        needs: &[],
        body: fuzz::run,
        beside: false,
    },
];

/// `--list`.
pub fn print_list() {
    for lane in LANES {
        println!("{:<18} {}", lane.name, lane.about);
    }
}

/// Runs the named lanes (none named: all) and prints the summary.
pub fn run(workspace: &Workspace, names: &[&str]) -> Result<ExitCode> {
    for name in names {
        if !LANES.iter().any(|lane| lane.is_named(name)) {
            bail!("unknown lane `{name}`; `cargo xtask test --list` shows them");
        }
    }
    let chosen: Vec<&Lane> =
        LANES.iter().filter(|lane| names.is_empty() || names.iter().any(|name| lane.is_named(name))).collect();
    let started = Instant::now();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for lanes in chosen.chunk_by(|one, next| one.beside && next.beside && one.family() == next.family()) {
        // Set-up installs packages, which cannot be done twice at a time.
        let ready: Vec<Result<()>> = lanes.iter().map(|lane| setup::run(workspace, lane.needs)).collect();
        outcomes.extend(thread::scope(|scope| {
            let started: Vec<_> = lanes
                .iter()
                .zip(ready)
                .map(|(lane, ready)| {
                    scope.spawn(move || match ready {
                        Ok(()) => lane.run(workspace),
                        Err(error) => Outcome {
                            name: lane.name,
                            report: Report {
                                problems: vec![format!("{}: set-up failed: {error:#}", lane.name)],
                                ..Report::default()
                            },
                            elapsed: Duration::ZERO,
                        },
                    })
                })
                .collect();
            started.into_iter().map(|lane| lane.join().expect("a lane reports, it does not panic")).collect::<Vec<_>>()
        }));
    }
    let held = summary::print(&outcomes, started.elapsed());
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// `cargo` as the one that started this program.
fn cargo(workspace: &Workspace, words: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(program);
    command.args(words).current_dir(&workspace.root);
    command
}

/// A command whose success is the whole result.
fn plain(name: &str, command: &mut Command) -> Result<Report> {
    let finished = run_counted(command, Runner::None, LANE_DEADLINE)?;
    let mut report = Report::default();
    if !finished.success {
        report.problems.push(format!("{name}: ended with a failure"));
        report.evidence = finished.evidence;
    }
    Ok(report)
}

fn fmt(workspace: &Workspace) -> Result<Report> {
    plain("fmt", &mut cargo(workspace, &["fmt", "--all", "--check"]))
}

fn clippy(workspace: &Workspace) -> Result<Report> {
    let words = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    plain("clippy", &mut cargo(workspace, &words))
}

fn tidy_lane(workspace: &Workspace) -> Result<Report> {
    let findings = tidy::run(workspace)?;
    println!("tidy: {} files read, {} violations", findings.files_read, findings.violations.len());
    Ok(Report {
        problems: findings.violations.into_iter().map(|violation| format!("tidy: {violation}")).collect(),
        ..Report::default()
    })
}

fn docs(workspace: &Workspace) -> Result<Report> {
    let words = ["doc", "--workspace", "--no-deps", "--locked", "--quiet"];
    let mut command = cargo(workspace, &words);
    command.env("RUSTDOCFLAGS", "-D warnings");
    plain("docs", &mut command)
}

/// Everything that needs neither a real server nor the gateway as a process.
fn unit(workspace: &Workspace) -> Result<Report> {
    let crates = ["test", "--workspace", "--exclude", "weir-tests", "--locked", "--no-fail-fast"];
    let mut report = cargo_test(workspace, "unit", &crates, &[])?;
    let harness = ["test", "--package", "weir-tests", "--locked", "--no-fail-fast", "--lib", "--test", "law"];
    report.join(cargo_test(workspace, "unit", &harness, &[])?);
    Ok(report)
}

/// One test binary of `weir-tests` with one I/O driver of the gateway.
fn end_to_end(workspace: &Workspace, binary: &str, driver: &str) -> Result<Report> {
    let environment = gateway_environment(workspace, driver)?;
    let words =
        ["test", "--package", "weir-tests", "--locked", "--no-fail-fast", "--test", binary, "--", "--test-threads=2"];
    let name = format!("{binary}:{driver}");
    cargo_test(workspace, &name, &words, &environment)
}

/// The tests that measure, without neighbours.
fn lab(workspace: &Workspace) -> Result<Report> {
    let mut environment = gateway_environment(workspace, "auto")?;
    // Where the lab looks for Envoy.
    environment.push(("VIRTUAL_ENV".into(), setup::environment(workspace).to_string_lossy().into_owned()));
    let words =
        ["test", "--package", "weir-tests", "--locked", "--no-fail-fast", "--test", "lab", "--", "--test-threads=1"];
    cargo_test(workspace, "lab", &words, &environment)
}

/// Builds the gateway; the environment that tells the harness where everything is.
fn gateway_environment(workspace: &Workspace, driver: &str) -> Result<Vec<(String, String)>> {
    command::run(&mut cargo(workspace, &["build", "--package", "weir", "--locked"]))?;
    let gateway = workspace.target.join("debug/weir");
    let valkey = setup::valkey_server(workspace)?;
    // What random tests find anew is for those who run them by hand: a lane must not fail by chance.
    let seed = std::env::var("WEIR_TEST_SEED").unwrap_or_else(|_| LANE_SEED.to_owned());
    Ok(vec![
        ("WEIR_TEST_SEED".into(), seed),
        ("WEIR_BIN".into(), gateway.to_string_lossy().into_owned()),
        ("WEIR_TEST_DRIVER".into(), driver.into()),
        ("WEIR_TEST_VALKEY_SERVER".into(), valkey.to_string_lossy().into_owned()),
        ("WEIR_TEST_PYTHON".into(), setup::python(workspace).to_string_lossy().into_owned()),
    ])
}

fn cargo_test(workspace: &Workspace, name: &str, words: &[&str], environment: &[(String, String)]) -> Result<Report> {
    let mut command = cargo(workspace, words);
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    let finished = run_counted(&mut command, Runner::Cargo, LANE_DEADLINE)?;
    // A bare `#[ignore]` is refused by tidy: each ignored test says why.
    Ok(Report::of_tests(name, finished, true))
}
