//! The rules of the tree, each a function from the workspace to a list of violations.
//!
//! | rule | says |
//! |---|---|
//! | [`arrows`] | which crate may depend on which (the table of rooms in ARCHITECTURE.md) |
//! | [`tree`] | no `ring`, `openssl-sys`, `native-tls`; no git dependency; one `rustls` |
//! | [`sources`] | file length, `#![forbid(unsafe_code)]`, open promises, bare `#[ignore]`, examples that nothing runs |
//! | [`functions`] | function length outside of test code |
//! | [`links`] | every link of a document leads to a file and a heading |
//! | [`prose`] | documents have short sentences; documents, comments and messages have words that a reader knows at first sight |
//! | [`protocols`] | a protocol of `proxy/` has its life cycle, fuzz target, lab, tests, example, guide and README row |
//! | [`pure`] | crates without I/O name no clock, socket, file, thread or process |
//! | [`modules`] | every source file is reached from a crate root; none is dead |

pub mod arrows;
pub mod functions;
pub mod links;
mod messages;
pub mod modules;
pub mod prose;
pub mod protocols;
pub mod pure;
pub mod sources;
pub mod tree;

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::Workspace;

/// The findings of all rules together.
pub struct Findings {
    /// One line each: place, what, remedy.
    pub violations: Vec<String>,
    /// Files that were read.
    pub files_read: usize,
}

impl Findings {
    /// Prints the findings; the exit status of `cargo xtask tidy`.
    pub fn print(&self) -> ExitCode {
        for violation in &self.violations {
            println!("{violation}");
        }
        println!("tidy: {} files read, {} violations", self.files_read, self.violations.len());
        if self.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}

/// Applies every rule.
pub fn run(workspace: &Workspace) -> Result<Findings> {
    let files = sources::Sources::read(workspace)?;
    let mut violations = arrows::violations(workspace);
    violations.extend(tree::violations(workspace)?);
    violations.extend(files.violations(workspace));
    violations.extend(pure::violations(workspace, &files));
    violations.extend(functions::violations(&files.files));
    violations.extend(modules::violations(workspace, &files));
    violations.extend(protocols::violations(workspace)?);
    violations.extend(links::violations(workspace)?);
    violations.extend(prose::violations(workspace, &files.files)?);
    Ok(Findings { violations, files_read: files.files.len() })
}
