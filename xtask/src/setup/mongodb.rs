//! Servers that speak MongoDB's protocol, and the programs that check its drivers, in the folders of `tests/clients/mongodb`. Builds are
//! below `target/tools/mongodb`; Node and Python run from their sources.
//!
//! FerretDB comes from its module in two forms. A small program embeds it, which has no logins. Its own program has them, and panics at its
//! start unless its module has a file with its version, which only its releases have: so it is built from a copy with this file.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::suites::remove;
use super::{clients, python, run_with_retries};
use crate::command;
use crate::workspace::Workspace;

const FERRETDB: &str = "github.com/FerretDB/FerretDB";
/// The file of the version, in the module.
const VERSION_FILE: &str = "build/version/version.txt";

/// FerretDB in both forms, and mongo-java-server.
pub fn servers(workspace: &Workspace) -> Result<()> {
    let (sources, built) = (clients::suite_folder(workspace, "mongodb"), workspace.tools().join("mongodb"));
    fs::create_dir_all(&built)?;
    clients::need(&["go"], "Go 1.26 or later")?;
    let embedded = sources.join("ferretdb");
    let go = built.join("ferretdb").to_string_lossy().into_owned();
    run_with_retries(&embedded, &["go", "install", "."], &[("GOBIN", &go)])?;
    with_logins(&embedded, &built).context("FerretDB with logins")?;
    clients::need(&["java", "mvn"], "a JDK 17 or later with Maven")?;
    let folder = format!("-Dbuild.folder={}", built.join("java-server").display());
    run_with_retries(&sources.join("java-server"), &["mvn", "-B", "-q", &folder, "package"], &[])
}

/// Builds FerretDB's own program, unless it is there in the version that `embedded` pins.
fn with_logins(embedded: &Path, built: &Path) -> Result<()> {
    let list = ["go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", FERRETDB];
    let listed = command::output(&mut command::command(embedded, &list))?;
    let (version, cached) = listed.trim().split_once(' ').context("the module is not in the cache")?;
    let (folder, program) = (built.join("ferretdb-source"), built.join("ferretdb/with-logins"));
    let stamp = folder.join(VERSION_FILE);
    if program.is_file() && fs::read_to_string(&stamp).is_ok_and(|installed| installed == version) {
        return Ok(());
    }
    remove(&folder)?;
    // The module cache is read-only.
    let words = ["cp", "--recursive", "--no-preserve=mode", cached, &folder.to_string_lossy()];
    command::run(&mut command::command(built, &words))?;
    fs::write(&stamp, version)?;
    let program = program.to_string_lossy();
    run_with_retries(&folder, &["go", "build", "-o", &program, "./cmd/ferretdb"], &[])
}

/// Fetches every driver and builds the programs around them.
pub fn drivers(workspace: &Workspace) -> Result<()> {
    let (sources, built) = (clients::suite_folder(workspace, "mongodb"), workspace.tools().join("mongodb"));
    fs::create_dir_all(&built)?;
    for (environment, requirements) in [("pymongo", "requirements.txt"), ("pymongo-older", "older.txt")] {
        python::ensure_in(workspace, &built.join(environment), &sources.join("python").join(requirements))?;
    }
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&sources.join("node")).context("the driver of Node, and Mongoose")?;
    // Each of the compilers itself detects whether anything has changed.
    clients::need(&["go"], "Go 1.26 or later")?;
    let go = built.join("go").to_string_lossy().into_owned();
    run_with_retries(&sources.join("go"), &["go", "install", "."], &[("GOBIN", &go)])?;
    clients::need(&["java", "mvn"], "a JDK 17 or later with Maven")?;
    let folder = format!("-Dbuild.folder={}", built.join("java").display());
    run_with_retries(&sources.join("java"), &["mvn", "-B", "-q", &folder, "package"], &[])
}
