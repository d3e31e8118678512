//! The source trees of the suites that others wrote, each below `target/tools/suites`: Redis from its Debian source package,
//! redis-py, asyncpg and PyMongo from their source distributions, go-redis from its module. The versions are those of the server and of
//! the client lanes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::{clients, python, run_with_retries};
use crate::command;
use crate::workspace::Workspace;
use weir_parties::peer::find_program;

/// Upstream version of Debian 12's Redis. Debian's own revisions, which mend security, may differ.
const REDIS_VERSION: &str = "7.0.15";
const REQUIREMENTS: &str = "tests/suites/redis-py-requirements.txt";
const ASYNCPG_REQUIREMENTS: &str = "tests/suites/asyncpg-requirements.txt";
const PYMONGO_REQUIREMENTS: &str = "tests/suites/pymongo-requirements.txt";
const GO_REDIS: &str = "github.com/redis/go-redis/v9";

/// Where a suite's source tree is.
pub fn source(workspace: &Workspace, suite: &str) -> PathBuf {
    workspace.tools().join("suites").join(suite)
}

/// The environment that runs redis-py's tests.
pub fn redis_py_environment(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("suites/redis-py-environment")
}

/// The environment that runs asyncpg's tests.
pub fn asyncpg_environment(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("suites/asyncpg-environment")
}

/// The environment that runs PyMongo's tests.
pub fn pymongo_environment(workspace: &Workspace) -> PathBuf {
    workspace.tools().join("suites/pymongo-environment")
}

/// Redis's source package.
pub fn redis(workspace: &Workspace) -> Result<()> {
    let folder = source(workspace, "redis");
    if is_redis(&folder) {
        return Ok(());
    }
    let work = Scratch::new(workspace, "redis")?;
    // The system's own sources, with source packages enabled. The settings for this and the lists stay in the scratch folder.
    let settings = work.0.join("apt.conf");
    fs::write(&settings, apt_settings(&work.0)?)?;
    let settings = settings.to_string_lossy().into_owned();
    // The update may fail for one source of many that has no source packages; what counts is whether Redis comes.
    let line = "apt-get update -q; apt-get source -q --download-only redis";
    run_with_retries(&work.0, &["sh", "-c", line], &[("APT_CONFIG", &settings)])?;
    let description = entry_that_ends(&work.0, ".dsc")?;
    remove(&folder)?;
    let words = ["dpkg-source", "--no-copy", "--extract", &description, &folder.to_string_lossy()];
    command::run(&mut command::command(&work.0, &words))?;
    // The suite looks for the programs where they are built.
    for program in ["redis-cli", "redis-benchmark"] {
        let installed = find_program(program).with_context(|| format!("{program} is not on the PATH"))?;
        std::os::unix::fs::symlink(installed, folder.join("src").join(program))?;
    }
    ensure!(
        is_redis(&folder),
        "the source package is not Redis {REDIS_VERSION}: the lists in tests/suites are of that one"
    );
    Ok(())
}

fn is_redis(folder: &Path) -> bool {
    let version = fs::read_to_string(folder.join("src/version.h")).unwrap_or_default();
    version.contains(&format!("\"{REDIS_VERSION}\""))
}

/// Settings of apt that read `sources` in `folder` instead of the system's, and keep everything there.
fn apt_settings(folder: &Path) -> Result<String> {
    let sources = folder.join("sources");
    for made in ["sources", "lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(made))?;
    }
    let system = Path::new("/etc/apt");
    let mut files: Vec<PathBuf> = vec![system.join("sources.list")];
    if let Ok(entries) = fs::read_dir(system.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    for (number, file) in files.iter().enumerate() {
        let Ok(text) = fs::read_to_string(file) else { continue };
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("sources") => fs::write(sources.join(format!("{number}.sources")), source_types(&text))?,
            Some("list") => fs::write(sources.join(format!("{number}.list")), source_lines(&text))?,
            _ => {}
        }
    }
    let folder = folder.display();
    Ok(format!(
        "Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{folder}/sources\";\n\
         Dir::State::lists \"{folder}/lists\";\nDir::Cache \"{folder}/cache\";\n"
    ))
}

/// The newer form: a field in each paragraph.
fn source_types(text: &str) -> String {
    let lines = text.lines().map(|line| if line.starts_with("Types:") { "Types: deb-src" } else { line });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// The older form: the first word of a line.
fn source_lines(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        let line = line.trim();
        line.strip_prefix("deb ").map(|rest| format!("deb-src {rest}\n"))
    });
    lines.collect()
}

/// redis-py's source distribution, and an environment with pytest.
pub fn redis_py(workspace: &Workspace) -> Result<()> {
    let environment = redis_py_environment(workspace);
    python::ensure_in(workspace, &environment, &workspace.root.join(REQUIREMENTS))?;
    let wanted = pinned(&fs::read_to_string(workspace.root.join(python::REQUIREMENTS))?, "redis")?;
    source_distribution(workspace, &environment, "redis-py", &wanted, "tests/conftest.py")
}

/// asyncpg's source distribution without its library, and an environment with the built one and pytest.
pub fn asyncpg(workspace: &Workspace) -> Result<()> {
    let environment = asyncpg_environment(workspace);
    let requirements = workspace.root.join(ASYNCPG_REQUIREMENTS);
    python::ensure_in(workspace, &environment, &requirements)?;
    let wanted = pinned(&fs::read_to_string(requirements)?, "asyncpg")?;
    source_distribution(workspace, &environment, "asyncpg", &wanted, "tests/test_prepare.py")?;
    // Its sources would hide the library that is installed: they hold no compiled modules.
    remove(&source(workspace, "asyncpg").join("asyncpg"))
}

/// PyMongo's source distribution without its library, and an environment with the built one and pytest.
pub fn pymongo(workspace: &Workspace) -> Result<()> {
    let environment = pymongo_environment(workspace);
    let requirements = workspace.root.join(PYMONGO_REQUIREMENTS);
    python::ensure_in(workspace, &environment, &requirements)?;
    let wanted = pinned(&fs::read_to_string(requirements)?, "pymongo")?;
    source_distribution(workspace, &environment, "pymongo", &wanted, "test/test_collection.py")?;
    // Its sources would hide the library that is installed: they hold no compiled modules.
    for library in ["pymongo", "bson", "gridfs"] {
        remove(&source(workspace, "pymongo").join(library))?;
    }
    Ok(())
}

/// Unpacks a source distribution into the folder of its suite, unless it is there. `wanted` is its line in a requirements file,
/// and `test` a file that it must have.
fn source_distribution(workspace: &Workspace, environment: &Path, suite: &str, wanted: &str, test: &str) -> Result<()> {
    let folder = source(workspace, suite);
    if is_installed(&folder, wanted) {
        return Ok(());
    }
    let work = Scratch::new(workspace, suite)?;
    let python = environment.join("bin/python");
    let name = wanted.split("==").next().unwrap_or(wanted);
    let words = [
        &*python.to_string_lossy(),
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--no-binary",
        name,
        wanted,
    ];
    run_with_retries(&work.0, &words, &[])?;
    let archive = entry_that_ends(&work.0, ".tar.gz")?;
    remove(&folder)?;
    fs::create_dir_all(&folder)?;
    let words =
        ["tar", "--extract", "--strip-components=1", "--file", &archive, "--directory", &folder.to_string_lossy()];
    command::run(&mut command::command(&work.0, &words))?;
    ensure!(folder.join(test).is_file(), "the source distribution {wanted} has no tests");
    fs::write(folder.join(STAMP), wanted)?;
    Ok(())
}

/// The line of a requirements file that pins `name`.
fn pinned(requirements: &str, name: &str) -> Result<String> {
    let line = requirements.lines().find(|line| line.split("==").next() == Some(name) && line.contains("=="));
    line.map(str::to_owned).with_context(|| format!("no `{name}==` in {}", python::REQUIREMENTS))
}

/// A writable copy of go-redis's module with its tests, and the modules that these use.
pub fn go_redis(workspace: &Workspace) -> Result<()> {
    clients::go(workspace)?;
    let folder = source(workspace, "go-redis");
    let list = ["go", "list", "-m", "-f", "{{.Dir}}", GO_REDIS];
    let cached = command::output(&mut command::command(&clients::suite_folder(workspace, "go"), &list))?;
    let cached = cached.trim();
    if is_installed(&folder, cached) {
        return Ok(());
    }
    remove(&folder)?;
    let parent = folder.parent().context("below the tools")?;
    fs::create_dir_all(parent)?;
    // The module cache is read-only, and go writes no test binary there.
    let words = ["cp", "--recursive", "--no-preserve=mode", cached, &folder.to_string_lossy()];
    command::run(&mut command::command(parent, &words))?;
    run_with_retries(&folder, &["go", "mod", "download"], &[])?;
    fs::write(folder.join(STAMP), cached)?;
    Ok(())
}

/// Written last: the state, as requested.
const STAMP: &str = ".installed";

fn is_installed(folder: &Path, wanted: &str) -> bool {
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|installed| installed == wanted)
}

pub(super) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The one entry of a folder whose name ends so.
fn entry_that_ends(folder: &Path, ending: &str) -> Result<String> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(ending) {
            return Ok(name);
        }
    }
    bail!("nothing that ends in {ending} was fetched to {}", folder.display());
}

/// A folder for what is fetched, gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(workspace: &Workspace, name: &str) -> Result<Self> {
        let folder = workspace.tools().join("suites").join(format!("{name}.fetch"));
        remove(&folder)?;
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            eprintln!("setup: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_sources_become_sources_of_source_packages() {
        let newer = "Types: deb\nURIs: mirror\nSuites: bookworm\n\nTypes: deb deb-src\nURIs: other\n";
        let expected = "Types: deb-src\nURIs: mirror\nSuites: bookworm\n\nTypes: deb-src\nURIs: other\n";
        assert_eq!(source_types(newer), expected);
        let older = "# deb no\ndeb [signed-by=k] mirror bookworm main\ndeb-src mirror bookworm main\n";
        assert_eq!(source_lines(older), "deb-src [signed-by=k] mirror bookworm main\n");
    }

    #[test]
    fn the_pinned_version_is_found() {
        assert_eq!(pinned("# x\nredis-py-x==1\nredis==8.1.0\n", "redis").expect("pinned"), "redis==8.1.0");
        assert!(pinned("pytest==9\n", "redis").is_err());
    }
}
