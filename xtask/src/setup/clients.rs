//! Client libraries of Node, Go and Java, in the versions that their own lock files name.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::run_with_retries;
use crate::workspace::Workspace;
use weir_parties::exists;

/// Folder of one language's suite.
pub fn suite_folder(workspace: &Workspace, language: &str) -> PathBuf {
    workspace.root.join("tests/clients").join(language)
}

/// The modules of the Redis and HTTP clients.
pub fn node(workspace: &Workspace) -> Result<()> {
    need(&["node", "npm"], "Node.js 20 or later with npm")?;
    npm(&suite_folder(workspace, "node"))
}

/// `npm ci` in a folder, when its lock file is newer than what is installed.
pub fn npm(folder: &Path) -> Result<()> {
    let lock = std::fs::read_to_string(folder.join("package-lock.json"))?;
    let stamp = folder.join("node_modules/.installed-lock.json");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    run_with_retries(folder, &["npm", "ci", "--no-audit", "--no-fund"], &[])?;
    std::fs::write(&stamp, lock)?;
    Ok(())
}

/// Fetches the modules that `go.sum` names.
pub fn go(workspace: &Workspace) -> Result<()> {
    need(&["go"], "Go 1.24 or later")?;
    let folder = suite_folder(workspace, "go");
    run_with_retries(&folder, &["go", "mod", "download"], &[])
}

/// Compiles the suite, which fetches everything that running it takes.
pub fn java(workspace: &Workspace) -> Result<()> {
    need(&["java", "mvn"], "a JDK 17 or later with Maven")?;
    let folder = suite_folder(workspace, "java");
    let build = java_build_folder(workspace);
    let words = ["mvn", "-B", "-q", &build, "test-compile"];
    run_with_retries(&folder, &words, &[])
}

/// The Maven setting that keeps class files out of the source tree.
pub fn java_build_folder(workspace: &Workspace) -> String {
    format!("-Dbuild.folder={}", workspace.tools().join("java").display())
}

/// Fails unless all of them can be run.
pub fn need(programs: &[&str], what: &str) -> Result<()> {
    for program in programs {
        if !exists(program) {
            bail!("`{program}` is not on the PATH: this suite needs {what}");
        }
    }
    Ok(())
}
