//! `bench postgres`: pgbench's tables in a PostgreSQL that this command starts, beside PgBouncer.

use std::process::Command;

use anyhow::{Result, ensure};
use weir_parties::place::allowed_cpus;

use super::server::Server;
use super::{Bench, Kind, Part, Request};
use crate::command::{output, run_within};
use crate::programs::cargo;
use crate::workspace::Workspace;

/// The bench.
pub const BENCH: Bench = Bench {
    name: "postgres",
    parts: PARTS,
    about: include_str!("postgres.md"),
    row: "| [postgres](postgres.md) | PostgreSQL beside PgBouncer, a relay and no gateway: CPU per transaction, latency, logins, \
TLS, memory of clients and of server connections | `cargo xtask bench postgres` |",
};

const PARTS: &[Part] = &[
    Part {
        name: "simple",
        kind: Kind::Compare,
        scenario: "postgres-closed",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "extended",
        kind: Kind::Compare,
        scenario: "postgres-closed-extended",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "prepared",
        kind: Kind::Compare,
        scenario: "postgres-closed-prepared",
        words: &["--peers", "pgbouncer,pgbouncer-session,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "tpcb",
        kind: Kind::Compare,
        scenario: "postgres-closed-tpcb",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "matched",
        kind: Kind::Compare,
        scenario: "postgres-matched",
        words: &["--peers", "pgbouncer,floor,direct"],
    },
    Part {
        name: "logins",
        kind: Kind::Compare,
        scenario: "postgres-closed-logins",
        words: &["--peers", "pgbouncer,floor,direct", "--load", "pgbench"],
    },
    Part {
        name: "storm",
        kind: Kind::Compare,
        scenario: "postgres-logins",
        words: &["--peers", "pgbouncer,floor,direct"],
    },
    Part {
        name: "tls",
        kind: Kind::Compare,
        scenario: "postgres-closed",
        words: &["--peers", "pgbouncer", "--load", "pgbench", "--tls"],
    },
    Part {
        name: "telemetry",
        kind: Kind::Compare,
        scenario: "postgres-closed",
        words: &["--peers", "weir-telemetry-off,weir-capture-all", "--load", "pgbench"],
    },
    Part {
        name: "pgpool",
        kind: Kind::Compare,
        scenario: "postgres-closed",
        words: &["--peers", "pgpool", "--load", "pgbench"],
    },
    Part { name: "idle", kind: Kind::Compare, scenario: "postgres-idle", words: &["--peers", "pgbouncer"] },
    Part {
        name: "servers",
        kind: Kind::Compare,
        scenario: "postgres-servers",
        words: &[
            "--peers",
            "examples/lab/peers/weir-pool-220.toml,pgbouncer,examples/lab/peers/pgbouncer-pool-220.toml",
            "--load",
            "pgbench",
        ],
    },
    Part { name: "knee-select", kind: Kind::KneeOfOrigin, scenario: "postgres-select", words: &[] },
    Part { name: "knee-tpcb", kind: Kind::Knee, scenario: "postgres-tpcb", words: &[] },
];

/// Measures the parts in front of one server.
///
/// # Errors
/// A program is missing or does not build, the server does not start, a part fails, or TPC-B has left balances that disagree.
pub fn run(workspace: &Workspace, request: &Request) -> Result<()> {
    // The lab gives the gateways the first CPU, and the load those behind it.
    let cpus: Vec<String> = allowed_cpus()?.iter().skip(1).map(u32::to_string).collect();
    ensure!(!cpus.is_empty(), "gateway and server need a CPU each, and this process may use one");
    let server = Server::start(&cpus.join(","))?;
    let behind = format!("127.0.0.1:{}", server.port());
    let measure = |mut command: Command| run_within(&mut command, super::PART_DEADLINE).and_then(|()| server.audit());
    super::measure(workspace, &BENCH, request, Some(&behind), measure)?;
    if request.is_published() {
        super::introduce(workspace, &BENCH, &[("{analysis}", analysis(workspace)?)])?;
    }
    Ok(())
}

/// The cost of the analysis of statements, measured now, as an indented block.
fn analysis(workspace: &Workspace) -> Result<String> {
    let words = ["run", "--quiet", "--release", "--package", "weir-analysis", "--example", "postgres_cost"];
    let cost = output(&mut cargo(workspace, &words))?;
    Ok(cost.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n"))
}
