//! `bench mongodb`: finds and inserts in front of the lab's own origin, beside Envoy, HAProxy and a relay.

use std::process::Command;

use anyhow::Result;

use super::{Bench, Kind, Part, Request};
use crate::command::run_within;
use crate::workspace::Workspace;

/// The bench.
pub const BENCH: Bench = Bench {
    name: "mongodb",
    parts: PARTS,
    about: include_str!("mongodb.md"),
    row: "| [mongodb](mongodb.md) | MongoDB beside Envoy, HAProxy, a relay and no gateway: CPU per find and per insert, with documents of \
1 KiB, 16 KiB and 1 MiB; latency; memory of clients; the clean knee | `cargo xtask bench mongodb` |",
};

const PEERS: &[&str] = &["--peers", "envoy,haproxy,floor,direct"];

const fn compared(name: &'static str, scenario: &'static str) -> Part {
    Part { name, kind: Kind::Compare, scenario, words: PEERS }
}

const PARTS: &[Part] = &[
    compared("find", "mongodb-closed"),
    compared("find-16k", "mongodb-closed-16k"),
    compared("find-1m", "mongodb-closed-1m"),
    compared("insert", "mongodb-closed-insert"),
    compared("mixed", "mongodb-closed-mixed"),
    compared("matched", "mongodb-matched"),
    Part {
        name: "telemetry",
        kind: Kind::Compare,
        scenario: "mongodb-closed",
        words: &["--peers", "weir-telemetry-off,weir-capture-all"],
    },
    Part { name: "idle", kind: Kind::Compare, scenario: "mongodb-idle", words: &["--peers", "envoy,haproxy"] },
    Part { name: "knee-find", kind: Kind::Knee, scenario: "mongodb-find", words: &[] },
];

/// Measures the parts.
///
/// # Errors
/// A part fails.
pub fn run(workspace: &Workspace, request: &Request) -> Result<()> {
    let measure = |mut command: Command| run_within(&mut command, super::PART_DEADLINE);
    super::measure(workspace, &BENCH, request, None, measure)?;
    if request.is_published() {
        super::introduce(workspace, &BENCH, &[])?;
    }
    Ok(())
}
