//! The programs that check PostgreSQL's drivers, one folder of `tests/clients/postgres` a language. Builds are
//! below `target/tools/postgres`; Python runs from its sources. Besides, an exporter of PgBouncer's figures.

use anyhow::{Context, Result};

use super::{clients, python, run_with_retries};
use crate::workspace::Workspace;

/// Fetches every driver and builds the programs around them.
pub fn drivers(workspace: &Workspace) -> Result<()> {
    python::ensure(workspace)?;
    let (sources, built) = (workspace.root.join("tests/clients/postgres"), workspace.tools().join("postgres"));
    std::fs::create_dir_all(&built)?;
    let exporter = workspace.tools().join("pgbouncer-exporter");
    python::ensure_with(workspace, &exporter, &sources.join("exporter/requirements.txt"), &["--no-deps"])?;
    let (go, maven, cargo) = (built.join("go"), built.join("java"), built.join("rust"));
    clients::need(&["go"], "Go 1.24 or later")?;
    // Each of the compilers itself detects whether anything has changed.
    run_with_retries(&sources.join("go"), &["go", "install", "."], &[("GOBIN", &*go.to_string_lossy())])?;
    clients::need(&["java", "mvn"], "a JDK 17 or later with Maven")?;
    let folder = format!("-Dbuild.folder={}", maven.display());
    run_with_retries(&sources.join("java"), &["mvn", "-B", "-q", &folder, "package"], &[])?;
    let target = cargo.to_string_lossy().into_owned();
    let words = ["cargo", "build", "--quiet", "--locked", "--target-dir", &target];
    run_with_retries(&sources.join("rust"), &words, &[])?;
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&sources.join("node")).context("the drivers of Node")
}
