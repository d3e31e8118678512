//! Unleash Edge, beside which `bench flags` measures: built from its source, for its releases have no program of this version to download.
//! No test needs it, and it compiles for long, so `setup` without words leaves it out.
//!
//! One of its dependencies, `utoipa-swagger-ui`, downloads the archive of a web page while it is built. `SWAGGER_UI_DOWNLOAD_URL` names
//! a file in its place. The file is made of the npm package `swagger-ui-dist`, with the folder `dist` where that archive has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::clients;
use crate::command::{command, run, run_within};
use crate::workspace::Workspace;

/// The last version of the open-source line whose option for the number of threads has an effect.
const VERSION: &str = "19.15.1";
/// Files with the pinned version of the web page.
const PINNED: &str = "xtask/peers/flags";
/// The folder of the page in the archive.
const PAGE: &str = "swagger-ui/dist";
/// It links with link-time optimisation of all crates: a quarter of an hour with two CPUs.
const BUILD_DEADLINE: Duration = Duration::from_secs(2 * 3_600);

/// Builds it into the folder of tools, if it is not there.
pub fn ensure(workspace: &Workspace) -> Result<()> {
    if folder(workspace).join("unleash-edge").is_file() {
        return Ok(());
    }
    clients::need(&["node", "npm", "python3"], "Node.js 20 or later with npm, and Python 3")?;
    let root = root(workspace);
    fs::create_dir_all(&root)?;
    let url = format!("file://{}", archive(workspace, &root)?.display());
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (into, build) = (text(&root), root.join("build"));
    let mut install = command(
        &root,
        &[
            "cargo",
            "install",
            "unleash-edge",
            "--version",
            VERSION,
            "--locked",
            "--root",
            &into,
            "--target-dir",
            &text(&build),
        ],
    );
    run_within(install.env("SWAGGER_UI_DOWNLOAD_URL", url), BUILD_DEADLINE)?;
    // Some gigabytes that nothing needs any more.
    fs::remove_dir_all(&build).with_context(|| build.display().to_string())
}

/// The folder of the program.
pub fn folder(workspace: &Workspace) -> PathBuf {
    root(workspace).join("bin")
}

fn root(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("unleash-edge")
}

/// The archive of the web page.
fn archive(workspace: &Workspace, root: &Path) -> Result<PathBuf> {
    let pinned = workspace.root.join(PINNED);
    clients::npm(&pinned)?;
    let page = root.join(PAGE);
    fs::create_dir_all(&page)?;
    let package = pinned.join("node_modules/swagger-ui-dist");
    for entry in fs::read_dir(&package).with_context(|| package.display().to_string())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), page.join(entry.file_name()))?;
        }
    }
    run(&mut command(root, &["python3", "-m", "zipfile", "-c", "swagger-ui.zip", "swagger-ui"]))?;
    Ok(root.join("swagger-ui.zip"))
}
