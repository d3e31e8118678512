//! The needs of the tests of feature flags: a real Unleash server, and the SDKs, one folder of `tests/clients/flags` a language. Builds are
//! below `target/tools/flags`; Node and Python run from their sources.

use anyhow::{Context, Result};

use super::{clients, python, run_with_retries};
use crate::workspace::Workspace;

/// Installs the server.
pub fn server(workspace: &Workspace) -> Result<()> {
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&clients::suite_folder(workspace, "flags/server")).context("the Unleash server")
}

/// Fetches every SDK and builds the programs around them.
pub fn sdks(workspace: &Workspace) -> Result<()> {
    let sources = clients::suite_folder(workspace, "flags");
    let built = workspace.tools().join("flags");
    std::fs::create_dir_all(&built)?;
    python::ensure_in(workspace, &workspace.tools().join("flag-sdks"), &sources.join("python/requirements.txt"))?;
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&sources.join("node")).context("the SDKs of Node")?;
    // Each of the compilers itself detects whether anything has changed.
    clients::need(&["go"], "Go 1.24 or later")?;
    let go = built.join("go").to_string_lossy().into_owned();
    run_with_retries(&sources.join("go"), &["go", "install", "."], &[("GOBIN", &go)])?;
    clients::need(&["java", "mvn"], "a JDK 17 or later with Maven")?;
    let folder = format!("-Dbuild.folder={}", built.join("java").display());
    run_with_retries(&sources.join("java"), &["mvn", "-B", "-q", &folder, "package"], &[])
}
