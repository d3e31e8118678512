//! Gateways of language models that `bench ai` compares: LiteLLM and Portkey, in the versions that `xtask/peers` pins.

use std::path::PathBuf;

use anyhow::Result;

use super::{clients, python};
use crate::workspace::Workspace;

/// Files with the pinned versions.
const PINNED: &str = "xtask/peers";

/// Installs both.
pub fn ensure(workspace: &Workspace) -> Result<()> {
    let pinned = workspace.root.join(PINNED);
    python::ensure_in(workspace, &litellm(workspace), &pinned.join("litellm.txt"))?;
    clients::need(&["node", "npm"], "Node.js 20 or later with npm")?;
    clients::npm(&pinned)
}

/// The folders of their programs.
pub fn folders(workspace: &Workspace) -> [PathBuf; 2] {
    [litellm(workspace).join("bin"), workspace.root.join(PINNED).join("node_modules/.bin")]
}

fn litellm(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("litellm")
}
