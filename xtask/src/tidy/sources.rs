//! Rules on the text of source files.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Lines of a source file, comments included. A longer file hides a second concept.
const FILE_LINES_MAX: usize = 600;

/// Endings of the files that the length rule reads.
const SOURCE_ENDINGS: &[&str] = &["rs", "py", "js", "mjs", "go", "java", "sh"];

/// The only crate that may hold `unsafe`.
const UNSAFE_CRATE: &str = "engine/";

/// Files that a command writes: a table of commands is long by nature.
const GENERATED_MARK: &str = "@generated";

/// Roots of crates that are no members of the workspace: the dependencies of Weir are not theirs.
const ROOTS_OUTSIDE: [&str; 1] = ["tests/clients/postgres/rust/src/main.rs"];

/// One source file.
pub struct SourceFile {
    /// From the workspace root, with `/`.
    pub name: String,
    /// On disk.
    pub path: PathBuf,
    /// Contents.
    pub text: String,
}

impl SourceFile {
    /// Written by `cargo xtask generate`, as its first lines say.
    pub fn is_generated(&self) -> bool {
        self.text.lines().take(5).any(|line| line.contains(GENERATED_MARK))
    }
}

/// All source files of the tree, build output and installed packages left out.
pub struct Sources {
    /// In path order.
    pub files: Vec<SourceFile>,
}

impl Sources {
    /// Reads the tree.
    pub fn read(workspace: &Workspace) -> Result<Self> {
        let mut paths = Vec::new();
        collect(&workspace.root, &workspace.target, SOURCE_ENDINGS, &mut paths)?;
        paths.sort();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("{} is not readable text", path.display()))?;
            files.push(SourceFile { name: workspace.relative(&path), path, text });
        }
        Ok(Self { files })
    }

    /// Every rule on single files.
    pub fn violations(&self, workspace: &Workspace) -> Vec<String> {
        let roots = crate_roots(workspace);
        let silent = folders_without_doc_tests(workspace);
        let mut found = Vec::new();
        for file in &self.files {
            found.extend(length(file));
            if silent.iter().any(|folder| file.name.starts_with(folder.as_str())) {
                found.extend(examples_that_nobody_runs(file));
            }
            if file.name.ends_with(".rs") {
                found.extend(unsafe_fence(file, &roots));
                found.extend(open_promises(file));
                found.extend(lab_uses_the_histogram_only(file));
            }
        }
        found
    }
}

/// Files below `folder` with one of `endings`, build output and installed packages left out.
pub fn collect(folder: &Path, target: &Path, endings: &[&str], paths: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            let is_output = path == target || name == "target" || name == "node_modules";
            if !is_output && !name.starts_with('.') && name != "__pycache__" {
                collect(&path, target, endings, paths)?;
            }
        } else if path.extension().is_some_and(|ending| endings.iter().any(|source| ending == *source)) {
            paths.push(path);
        }
    }
    Ok(())
}

/// `lib.rs`, `main.rs`, binaries, test and bench binaries: the files rustc is started on.
pub fn crate_roots(workspace: &Workspace) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ROOTS_OUTSIDE.iter().map(|root| workspace.root.join(root)).collect();
    for package in workspace.metadata.workspace_packages() {
        for target in &package.targets {
            roots.push(target.src_path.clone().into_std_path_buf());
        }
    }
    roots
}

fn length(file: &SourceFile) -> Option<String> {
    let lines = file.text.lines().count();
    if lines <= FILE_LINES_MAX || file.is_generated() {
        return None;
    }
    Some(format!("{}: {lines} lines; the most is {FILE_LINES_MAX}: split it at the second concept", file.name))
}

/// Libraries and programs forbid `unsafe` by attribute. Roots of tests, examples and fuzz targets are not shipped (and the
/// macro of libFuzzer expands to an exported symbol), so there it is enough that the word is absent.
fn unsafe_fence(file: &SourceFile, roots: &[PathBuf]) -> Option<String> {
    let is_build_script = file.name.ends_with("build.rs");
    if file.name.starts_with(UNSAFE_CRATE) || is_build_script || !roots.contains(&file.path) {
        return None;
    }
    let is_shipped = file.name.contains("/src/");
    if is_shipped && !file.text.contains("#![forbid(unsafe_code)]") {
        return Some(format!("{}: a crate root without #![forbid(unsafe_code)]", file.name));
    }
    let uses = [concat!("uns", "afe {"), concat!("uns", "afe fn"), concat!("uns", "afe impl")];
    if !is_shipped && uses.iter().any(|word| file.text.contains(word)) {
        return Some(format!("{}: unsafe code outside of engine", file.name));
    }
    None
}

/// Words that promise work instead of doing it. Built from halves, so that this file may name them.
fn open_promises(file: &SourceFile) -> Vec<String> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        let place = || format!("{}:{}", file.name, number + 1);
        if let Some(word) = words.iter().find(|word| line.contains(*word)) {
            found.push(format!("{}: `{word}` is an open promise: keep it or drop it", place()));
        }
        if line.trim() == concat!("#[ig", "nore]") {
            found.push(format!("{}: an ignored test says why: #[ignore = \"reason\"]", place()));
        }
    }
    found
}

/// The lab judges the gateway, so of telemetry it may use the histogram and nothing else.
fn lab_uses_the_histogram_only(file: &SourceFile) -> Vec<String> {
    if !file.name.starts_with("lab/") {
        return Vec::new();
    }
    let path = "weir_telemetry::";
    let mut found = Vec::new();
    for (number, line) in file.text.lines().enumerate() {
        for (at, _) in line.match_indices(path) {
            let used = line[at + path.len()..].to_ascii_lowercase();
            if !used.starts_with("histogram") {
                found.push(format!("{}:{}: the lab may use only the histogram of telemetry", file.name, number + 1));
            }
        }
    }
    found
}

/// Folders of the libraries whose manifest says `doctest = false`, with a `/` at the end.
fn folders_without_doc_tests(workspace: &Workspace) -> Vec<String> {
    let packages = workspace.metadata.workspace_packages();
    let libraries = packages.iter().flat_map(|package| &package.targets).filter(|target| target.is_lib());
    let silent = libraries.filter(|target| !target.doctest).filter_map(|target| target.src_path.parent());
    silent.map(|folder| workspace.relative(folder.as_std_path()) + "/").collect()
}

/// An example in the documentation of such a library looks like a test and is none.
fn examples_that_nobody_runs(file: &SourceFile) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_open = false;
    for (number, line) in file.text.lines().enumerate() {
        let line = line.trim_start();
        let Some(text) = line.strip_prefix("//!").or_else(|| line.strip_prefix("///")) else { continue };
        let Some(language) = text.trim_start().strip_prefix("```") else { continue };
        is_open = !is_open;
        if is_open && language != "text" && language != "sh" && language != "toml" {
            let place = format!("{}:{}", file.name, number + 1);
            found.push(format!("{place}: nothing runs this example: say ```text, or drop `doctest = false`"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> SourceFile {
        SourceFile { name: name.into(), path: PathBuf::from(name), text: text.into() }
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_generated() {
        let long = "line\n".repeat(FILE_LINES_MAX + 1);
        assert!(length(&file("a.rs", &long)).is_some());
        assert!(length(&file("a.rs", &format!("// @generated by cargo xtask\n{long}"))).is_none());
        assert!(length(&file("a.rs", &"line\n".repeat(FILE_LINES_MAX))).is_none());
    }

    #[test]
    fn a_root_without_the_fence_is_found() {
        let root = file("base/src/lib.rs", "//! x\n");
        assert!(unsafe_fence(&root, std::slice::from_ref(&root.path)).is_some());
        assert!(unsafe_fence(&root, &[]).is_none());
        let test = file("base/tests/x.rs", concat!("fn x() { uns", "afe { y() } }"));
        assert!(unsafe_fence(&test, std::slice::from_ref(&test.path)).is_some());
        let tame = file("base/tests/x.rs", "fn x() {}");
        assert!(unsafe_fence(&tame, std::slice::from_ref(&tame.path)).is_none());
        let engine = file("engine/src/lib.rs", "//! x\n");
        assert!(unsafe_fence(&engine, std::slice::from_ref(&engine.path)).is_none());
    }

    #[test]
    fn examples_are_found_where_doc_tests_are_off() {
        let text = "//! ```\n//! let one = 1;\n//! ```\n/// ```text\n/// ```\n/// ```no_run\n/// ```\n";
        assert_eq!(examples_that_nobody_runs(&file("a.rs", text)).len(), 2);
    }

    #[test]
    fn promises_bare_ignores_and_a_curious_lab_are_found() {
        let text = concat!("// TO", "DO later\n#[ig", "nore]\nfn x() {}\n");
        assert_eq!(open_promises(&file("a.rs", text)).len(), 2);
        let lab = file("lab/origin/src/x.rs", "use weir_telemetry::histogram::H;\nuse weir_telemetry::Catalog;\n");
        assert_eq!(lab_uses_the_histogram_only(&lab).len(), 1);
    }
}
