//! `weir import`, as a user runs it, and the comparison of a program with Weir behind its imported configuration.

use std::process::Command;

use crate::gateway::program;

mod pair;

pub use pair::{Pair, origin, shares};

/// The output of an import.
pub struct Imported {
    /// The `weir.toml`.
    pub toml: String,
    /// A line for each note.
    pub notes: String,
}

/// Imports a configuration of `format`: `nginx`, `haproxy`, `envoy`, `twemproxy` or `pgbouncer`.
///
/// # Panics
/// If it has a mistake.
pub fn import(format: &str, text: &str) -> Imported {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("input"), folder.path().join("weir.toml"));
    std::fs::write(&input, text).expect("written");
    let mut weir = Command::new(program());
    weir.args(["import", format]).arg(&input).arg("--output").arg(&output);
    let done = weir.output().expect("weir runs");
    let notes = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{notes}");
    Imported { toml: std::fs::read_to_string(&output).expect("the result"), notes }
}
