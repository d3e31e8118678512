//! Files that a command writes. `--check` compares instead of writing, and names what is stale.
//!
//! * `redis-commands` asks running servers, so it has no `--check`: see `generate_commands`.
//! * `reference` is what the program says about itself: `docs/METRICS.md` and `docs/CONFIG.md`.

use anyhow::{Result, bail};

use crate::generate_commands;
use crate::programs::cargo;
use crate::workspace::Workspace;

/// Runs one generator. `words` stand behind `generate`.
pub fn run(words: &[&str]) -> Result<()> {
    match words {
        ["redis-commands", rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            generate_commands::run(&rest)
        }
        ["reference", rest @ ..] => reference(&Workspace::load()?, rest.contains(&"--check")),
        _ => bail!("unknown kind `{}`; kinds: redis-commands | reference", words.join(" ")),
    }
}

/// Writes or checks `docs/METRICS.md` and `docs/CONFIG.md`: tests of the crates they describe compare them, and write
/// them when asked to.
pub fn reference(workspace: &Workspace, check: bool) -> Result<()> {
    for words in [
        ["--package", "weir-telemetry", "--lib", "the_committed_document_is_the_catalog"],
        ["--package", "weir-config", "--test=it", "reference::the_committed_reference_is_up_to_date"],
    ] {
        let mut command = cargo(workspace, &[&["test", "--quiet", "--locked"], &words[..]].concat());
        if !check {
            command.envs([("WEIR_BLESS", "1"), ("WEIR_WRITE_REFERENCE", "1")]);
        }
        crate::command::run(&mut command)?;
    }
    Ok(())
}
