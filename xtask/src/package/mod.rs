//! `cargo xtask package`: the Debian package, made by `dpkg-deb` from a staged tree.
//!
//! Not cargo-deb: it would be built from source on each machine first, and what it saves is the file [`tree`]; dpkg-deb is
//! part of every Debian.
//!
//! | file | concept |
//! |---|---|
//! | [`tree`] | the place of each file in the package |
//! | [`control`] | the description of the package, and its dependencies |
//! | [`licences`] | the libraries that are linked into the program |

pub mod control;
pub mod licences;
pub mod tree;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{command, output, run};
use crate::programs::cargo;
use crate::workspace::Workspace;

/// The profile of cargo that packages and published figures are made with.
pub const PROFILE: &str = "dist";

/// The package to build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// A built program; absent: it is built with [`PROFILE`].
    pub binary: Option<PathBuf>,
    /// The version of the package; absent: that of the workspace.
    pub version: Option<String>,
    /// Where the package goes; absent: the folder of build output.
    pub folder: Option<PathBuf>,
    /// Leave the package uncompressed: for tests, which install it once.
    pub is_quick: bool,
}

impl Request {
    /// Reads the words behind `package`.
    ///
    /// # Errors
    /// A word is no option, or lacks its value.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let mut request = Self { binary: None, version: None, folder: None, is_quick: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--binary" => request.binary = Some(value()?.into()),
                "--version" => request.version = Some((*value()?).to_owned()),
                "--folder" => request.folder = Some(value()?.into()),
                "--quick" => request.is_quick = true,
                _ => bail!("`{word}` is no option of `package`; `cargo xtask help` shows them"),
            }
        }
        Ok(request)
    }
}

/// Makes the package and returns its path.
///
/// # Errors
/// The program does not build, a file of the package is missing, or a tool of Debian (`dpkg-deb`, `strip`) is or fails.
pub fn make(workspace: &Workspace, request: &Request) -> Result<PathBuf> {
    let binary = match &request.binary {
        Some(binary) => binary.clone(),
        None => build(workspace)?,
    };
    let stage = tempfile::tempdir().context("a folder for the staged tree")?;
    let version = control::version(workspace, request.version.as_deref())?;
    tree::stage(workspace, &binary, stage.path())?;
    control::write(stage.path(), &version)?;
    let folder = request.folder.as_deref().unwrap_or(&workspace.target);
    std::fs::create_dir_all(folder)?;
    let package = folder.join(format!("weir_{version}_{}.deb", control::architecture()?));
    pack(workspace, stage.path(), &package, request.is_quick)?;
    Ok(package)
}

fn build(workspace: &Workspace) -> Result<PathBuf> {
    run(&mut cargo(workspace, &["build", "--locked", "--profile", PROFILE, "--package", "weir"]))?;
    Ok(workspace.target.join(PROFILE).join("weir"))
}

/// Files have the time of the commit, so that the same tree makes the same package.
fn pack(workspace: &Workspace, stage: &Path, package: &Path, is_quick: bool) -> Result<()> {
    let compression = if is_quick { "-Znone" } else { "-Zxz" };
    let (stage, package) = (stage.to_string_lossy(), package.to_string_lossy());
    let words = ["dpkg-deb", "--root-owner-group", compression, "--build", &stage, &package];
    let mut pack = command(&workspace.root, &words);
    let time = output(&mut command(&workspace.root, &["git", "log", "-1", "--format=%ct"]));
    if std::env::var_os("SOURCE_DATE_EPOCH").is_none()
        && let Ok(time) = time
    {
        pack.env("SOURCE_DATE_EPOCH", time.trim());
    }
    run(&mut pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_unknown_ones_are_refused() {
        let all =
            Request::parse(&["--binary", "a/weir", "--version", "1.2", "--folder", "b", "--quick"]).expect("good");
        let binary = Some(PathBuf::from("a/weir"));
        let expected = Request { binary, version: Some("1.2".into()), folder: Some("b".into()), is_quick: true };
        assert_eq!(all, expected);
        assert!(Request::parse(&["--version"]).is_err());
        assert!(Request::parse(&["--fast"]).is_err());
    }
}
