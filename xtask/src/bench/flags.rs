//! `bench flags`: polls of backends and evaluations for frontends, with both data sets, beside Unleash Edge.

use std::env::{join_paths, split_paths, var_os};
use std::process::Command;

use anyhow::Result;

use super::{Bench, Kind, Part, Request};
use crate::command::run_within;
use crate::setup;
use crate::workspace::Workspace;

/// The bench.
pub const BENCH: Bench = Bench {
    name: "flags",
    parts: PARTS,
    about: include_str!("flags.md"),
    row: "| [flags](flags.md) | feature flags beside Unleash Edge 19.15.1: CPU per request of backends and frontends, with 5, 350 and \
5,000 flags, plain, as gzip and as 304; memory; latency, also with a tenth of a CPU | `cargo xtask bench flags` |",
};

const PEER: &[&str] = &["--peers", "unleash-edge"];
/// With the load alone: latency of each gateway stands beside that without one.
const AND_DIRECT: &[&str] = &["--peers", "unleash-edge,direct"];
/// A tenth of a CPU for each gateway, kept by a quota.
const TENTH: &[&str] = &["--peers", "unleash-edge", "--budget", "0.1"];

const fn compared(name: &'static str, scenario: &'static str) -> Part {
    Part { name, kind: Kind::Compare, scenario, words: PEER }
}

const fn matched(name: &'static str, scenario: &'static str) -> Part {
    Part { name, kind: Kind::Compare, scenario, words: AND_DIRECT }
}

const fn tenth(name: &'static str, scenario: &'static str) -> Part {
    Part { name, kind: Kind::Compare, scenario, words: TENTH }
}

const PARTS: &[Part] = &[
    compared("client-large", "flags-closed-client-large"),
    compared("client-small", "flags-closed-client-small"),
    compared("frontend-large", "flags-closed-frontend-large"),
    compared("frontend-small", "flags-closed-frontend-small"),
    compared("client-large-gzip", "flags-closed-client-large-gzip"),
    compared("client-small-gzip", "flags-closed-client-small-gzip"),
    compared("frontend-large-gzip", "flags-closed-frontend-large-gzip"),
    compared("frontend-small-gzip", "flags-closed-frontend-small-gzip"),
    compared("client-large-304", "flags-closed-client-large-304"),
    compared("client-small-304", "flags-closed-client-small-304"),
    compared("frontend-large-304", "flags-closed-frontend-large-304"),
    compared("frontend-small-304", "flags-closed-frontend-small-304"),
    compared("frontend-large-post", "flags-closed-frontend-large-post"),
    compared("client-huge", "flags-closed-client-huge"),
    matched("matched-client-large", "flags-client-large"),
    matched("matched-client-small", "flags-client-small"),
    matched("matched-frontend-large", "flags-frontend-large"),
    matched("matched-frontend-small", "flags-frontend-small"),
    tenth("tenth-client-large", "flags-closed-client-large"),
    tenth("tenth-client-small", "flags-closed-client-small"),
    tenth("tenth-frontend-large", "flags-closed-frontend-large"),
    tenth("tenth-frontend-small", "flags-closed-frontend-small"),
];

/// Builds the peer if it is not there, and measures the parts.
///
/// # Errors
/// The peer does not build, or a part fails. Those with a tenth of a CPU fail where this user may set no quota, and say so.
pub fn run(workspace: &Workspace, request: &Request) -> Result<()> {
    setup::run(workspace, &[setup::Part::FlagsPeer])?;
    let path = var_os("PATH").unwrap_or_default();
    let path = join_paths([setup::flags_peer(workspace)].into_iter().chain(split_paths(&path)))?;
    let measure = |mut command: Command| run_within(command.env("PATH", &path), super::PART_DEADLINE);
    super::measure(workspace, &BENCH, request, None, measure)?;
    if request.is_published() {
        super::introduce(workspace, &BENCH, &[])?;
    }
    Ok(())
}
