//! The programs that the tests run, built by one call of cargo: one set of features, one profile. The lanes that test run them
//! and build nothing, so that no crate is compiled twice for two lanes.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Error, Result, ensure};
use cargo_metadata::{Message, PackageId};

use crate::command::at_idle_priority;
use crate::reach::ReachedPackages;
use crate::workspace::Workspace;

/// Targets that the lanes run.
const ALL: [&str; 2] = ["--bins", "--tests"];

/// Packages that are built whatever a change reaches: the gateway, the tests that start it, and the fuzz targets, for they have
/// features that the others must have too.
pub const ALWAYS: [&str; 3] = ["weir", "weir-tests", "weir-fuzz"];

/// One test program of libtest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestProgram {
    /// Its package, e.g. `weir-tests`.
    pub package: String,
    /// Its target, e.g. `e2e`; of unit tests the name of the library or the binary.
    pub target: String,
    /// The executable.
    pub path: PathBuf,
    /// Folder of its package: cargo runs it there, and so do the lanes.
    pub folder: PathBuf,
}

/// Programs of a build.
#[derive(Debug, Default)]
pub struct Programs {
    /// In the order of package and target.
    pub tests: Vec<TestProgram>,
    binaries: BTreeMap<String, PathBuf>,
}

impl Programs {
    /// Builds the targets that `words` select of the packages that a change reaches. All calls of a run name the same packages:
    /// they share a dependency only if its features are the same. With a `wrapper` (cargo's `RUSTC_WORKSPACE_WRAPPER`) the
    /// build runs at idle priority.
    ///
    /// # Errors
    /// Something does not compile; cargo has printed what.
    pub fn build(
        workspace: &Workspace,
        reached: &ReachedPackages,
        words: &[&str],
        wrapper: Option<&Path>,
    ) -> Result<Self> {
        let words = [&["build", "--locked"], &*reached.selection(&ALWAYS), words].concat();
        println!("$ cargo {}", words.join(" "));
        let mut command = cargo(workspace, &words);
        command.arg("--message-format=json-render-diagnostics");
        if let Some(program) = wrapper {
            command = at_idle_priority(command.env("RUSTC_WORKSPACE_WRAPPER", program));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cargo does not start")?;
        let messages = BufReader::new(child.stdout.take().context("the output was piped")?);
        let packages: BTreeMap<&PackageId, (&str, &Path)> = workspace
            .metadata
            .workspace_packages()
            .into_iter()
            .map(|package| {
                let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
                (&package.id, (package.name.as_str(), folder.as_std_path()))
            })
            .collect();
        let mut programs = Self::default();
        for message in Message::parse_stream(messages) {
            let Message::CompilerArtifact(artifact) = message.context("the messages of cargo")? else {
                continue;
            };
            let Some((path, (package, folder))) = artifact.executable.zip(packages.get(&artifact.package_id)) else {
                continue;
            };
            let (path, target) = (path.into_std_path_buf(), artifact.target.name);
            if artifact.profile.test {
                programs.tests.push(TestProgram {
                    package: (*package).to_owned(),
                    target,
                    path,
                    folder: folder.to_path_buf(),
                });
            } else {
                programs.binaries.insert(target, path);
            }
        }
        ensure!(child.wait()?.success(), "they do not build");
        programs.tests.sort_by(|one, other| (&one.package, &one.target).cmp(&(&other.package, &other.target)));
        Ok(programs)
    }

    /// The binary of that name, e.g. `weir` or `stage`.
    ///
    /// # Errors
    /// No package has such a binary.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        self.binaries.get(name).map(PathBuf::as_path).with_context(|| format!("no binary `{name}` was built"))
    }

    /// The test program of that package and target.
    ///
    /// # Errors
    /// There is no such target.
    pub fn test(&self, package: &str, target: &str) -> Result<&TestProgram> {
        let mut tests = self.tests.iter();
        let found = tests.find(|program| (program.package.as_str(), program.target.as_str()) == (package, target));
        found.with_context(|| format!("no test program `{target}` of {package} was built"))
    }
}

/// The one build of a run.
#[derive(Debug, Default)]
pub struct Build(OnceLock<Result<Programs, String>>);

impl Build {
    /// The built programs. The first call builds; the others wait for it.
    ///
    /// # Errors
    /// Something does not compile.
    pub fn programs(&self, workspace: &Workspace, reached: &ReachedPackages) -> Result<&Programs> {
        let build = || Programs::build(workspace, reached, &ALL, None).map_err(|error| format!("{error:#}"));
        let built = self.0.get_or_init(build);
        built.as_ref().map_err(|error| Error::msg(error.clone()))
    }
}

/// `cargo` as the one that started this program, at the root of the workspace.
pub fn cargo(workspace: &Workspace, words: &[&str]) -> Command {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(program);
    command.args(words).current_dir(&workspace.root);
    command
}
