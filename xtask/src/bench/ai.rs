//! `bench ai`: requests for language models at the lab's own origin, beside Envoy, LiteLLM and Portkey.

use std::env::{join_paths, split_paths, var_os};
use std::process::Command;

use anyhow::Result;

use super::{Bench, Kind, Part, Request};
use crate::command::run_within;
use crate::setup;
use crate::workspace::Workspace;

/// The bench.
pub const BENCH: Bench = Bench {
    name: "ai",
    parts: PARTS,
    about: include_str!("ai.md"),
    row: "| [ai](ai.md) | language models beside Envoy, LiteLLM, Portkey, a relay and no gateway: CPU per request and per event, \
time to the first token, memory of streams | `cargo xtask bench ai` |",
};

/// All peers; a closed loop shows what a request costs also those that carry few.
const ALL: &[&str] = &["--peers", "envoy,litellm,portkey,floor,direct"];
/// The peers that carry the rates of the scenarios.
const FAST: &[&str] = &["--peers", "envoy,floor,direct"];

const PARTS: &[Part] = &[
    Part { name: "chat", kind: Kind::Compare, scenario: "ai-closed", words: ALL },
    Part { name: "chat-64k", kind: Kind::Compare, scenario: "ai-closed-64k", words: ALL },
    Part { name: "chat-stream", kind: Kind::Compare, scenario: "ai-closed-stream", words: ALL },
    Part { name: "chat-agent", kind: Kind::Compare, scenario: "ai-closed-agent", words: ALL },
    Part { name: "matched", kind: Kind::Compare, scenario: "ai-llm", words: FAST },
    Part { name: "stream", kind: Kind::Compare, scenario: "ai-stream", words: FAST },
    Part { name: "agent", kind: Kind::Compare, scenario: "ai-agent", words: FAST },
    Part { name: "paced", kind: Kind::Compare, scenario: "ai-paced", words: FAST },
    Part { name: "knee", kind: Kind::KneeOfOrigin, scenario: "ai-llm", words: &[] },
];

/// Installs the peers and measures the parts.
///
/// # Errors
/// A program is missing or does not build, or a part fails.
pub fn run(workspace: &Workspace, request: &Request) -> Result<()> {
    setup::run(workspace, &[setup::Part::Peers, setup::Part::AiPeers])?;
    let path = var_os("PATH").unwrap_or_default();
    let path = join_paths(setup::ai_peers(workspace).into_iter().chain(split_paths(&path)))?;
    let measure = |mut command: Command| {
        // Where the lab looks for Envoy.
        command.env("PATH", &path).env("VIRTUAL_ENV", setup::environment(workspace));
        run_within(&mut command, super::PART_DEADLINE)
    };
    super::measure(workspace, &BENCH, request, None, measure)?;
    if request.is_published() {
        super::introduce(workspace, &BENCH, &[])?;
    }
    Ok(())
}
