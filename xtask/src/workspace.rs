//! Where things are: the workspace root, the target directory, and what `cargo metadata` says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand};

/// The checkout this command runs in.
pub struct Workspace {
    /// Folder that holds the root `Cargo.toml`.
    pub root: PathBuf,
    /// Build output; `CARGO_TARGET_DIR` is honoured.
    pub target: PathBuf,
    /// Packages, features and the resolved graph of this host's platform.
    pub metadata: Metadata,
}

impl Workspace {
    /// Asks cargo. Fails when the manifest does not parse or a dependency cannot be resolved.
    pub fn load() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
        let metadata = MetadataCommand::new()
            .manifest_path(manifest)
            .other_options(vec!["--filter-platform".into(), host_platform()?])
            .exec()
            .context("cargo metadata")?;
        Ok(Self {
            root: metadata.workspace_root.clone().into_std_path_buf(),
            target: metadata.target_directory.clone().into_std_path_buf(),
            metadata,
        })
    }

    /// Where `setup` puts what is not a system package: the Python environment, caches.
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// A path of the root as text with `/`, for messages.
    pub fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy().into_owned()
    }
}

/// The platform triple of the compiler, e.g. `x86_64-unknown-linux-gnu`.
pub fn host_platform() -> Result<String> {
    let output = std::process::Command::new("rustc").arg("-vV").output().context("rustc -vV")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host platform")
}
