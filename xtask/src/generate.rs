//! Files that a command writes. `--check` compares instead of writing, and names what is stale.
//!
//! * `redis-commands` asks running servers, so it has no `--check`: see `generate_commands`.
//! * `reference` is what the program says about itself: `docs/METRICS.md` and `docs/CONFIG.md`.
//! * `results` are the pages of `docs/results`, made of the results beside them.
//!
//! Tests of the crates that the last two describe compare them, and write them on request.

use anyhow::{Result, bail};

use crate::generate_commands;
use crate::programs::cargo;
use crate::workspace::Workspace;

/// Words of `cargo test`.
type Test = [&'static str; 4];

const REFERENCE: [Test; 2] = [
    ["--package", "weir-telemetry", "--lib", "the_committed_document_is_the_catalog"],
    ["--package", "weir-config", "--test=it", "reference::the_committed_reference_is_up_to_date"],
];

const RESULTS: [Test; 2] = [
    ["--package", "weir-trials", "--test=results", "the_published_pages_are_those_of_their_results"],
    ["--package", "weir-trials", "--test=results", "the_list_names_every_page_and_how_it_is_made"],
];

/// Runs one generator. `words` stand behind `generate`.
///
/// # Errors
/// Words that it does not know, or with `--check` a stale file.
pub fn run(words: &[&str]) -> Result<()> {
    match words {
        ["redis-commands", rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            generate_commands::run(&rest)
        }
        ["reference"] => documents(&REFERENCE, false),
        ["reference", "--check"] => documents(&REFERENCE, true),
        ["results"] => documents(&RESULTS, false),
        ["results", "--check"] => documents(&RESULTS, true),
        _ => bail!("unknown kind `{}`; kinds: redis-commands | reference | results", words.join(" ")),
    }
}

/// Writes or checks what `tests` compare.
fn documents(tests: &[Test], check: bool) -> Result<()> {
    let workspace = Workspace::load()?;
    for words in tests {
        let mut command = cargo(&workspace, &[&["test", "--quiet", "--locked"], &words[..]].concat());
        if !check {
            command.envs([("WEIR_BLESS", "1"), ("WEIR_WRITE_REFERENCE", "1")]);
        }
        crate::command::run(&mut command)?;
    }
    Ok(())
}
