//! Dead files: a `.rs` file that no crate root reaches through `mod` is not compiled, not tested and
//! not true. The walk follows `mod name;` and `#[path = "..."]` as rustc does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::tidy::sources::{SourceFile, Sources, crate_roots};
use crate::workspace::Workspace;

/// Source files that no crate reaches, and empty ones.
pub fn violations(workspace: &Workspace, sources: &Sources) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(PathBuf, bool)> = crate_roots(workspace).into_iter().map(|root| (root, true)).collect();
    while let Some((path, is_root)) = open.pop() {
        if !reached.insert(path.clone()) {
            continue;
        }
        let Some(file) = sources.files.iter().find(|file| file.path == path) else {
            continue;
        };
        open.extend(children(file, is_root).into_iter().map(|child| (child, false)));
    }
    let mut found = Vec::new();
    for file in sources.files.iter().filter(|file| file.name.ends_with(".rs")) {
        if !reached.contains(&file.path) {
            found.push(format!("{}: no crate reaches this file; add its `mod` or delete it", file.name));
        } else if file.text.trim().is_empty() {
            found.push(format!("{}: an empty file", file.name));
        }
    }
    found
}

/// Files that this one names as modules and that exist.
fn children(file: &SourceFile, is_root: bool) -> Vec<PathBuf> {
    let folder = file.path.parent().unwrap_or(Path::new(""));
    let stem = file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let own_folder = if is_root || stem == "mod" { folder.to_path_buf() } else { folder.join(&stem) };
    let mut found = Vec::new();
    let mut path_attribute: Option<String> = None;
    for line in file.text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            path_attribute = Some(value.to_owned());
            continue;
        }
        if let Some(included) = included_file(line) {
            found.push(folder.join(included));
        }
        let Some(name) = module_name(line) else {
            if !line.starts_with("#[") && !line.starts_with("//") {
                path_attribute = None;
            }
            continue;
        };
        match path_attribute.take() {
            Some(path) => found.push(folder.join(path)),
            None => {
                found.push(own_folder.join(format!("{name}.rs")));
                found.push(own_folder.join(name).join("mod.rs"));
            }
        }
    }
    found
}

/// `mod name;` with any visibility.
fn module_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = line.strip_prefix("mod ")?.split(';').next()?;
    let is_declaration = line.contains(';') && !line.contains('{');
    is_declaration.then_some(name.trim())
}

/// The argument of `include!("...")`.
fn included_file(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("include!(\"")?;
    rest.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_as_rustc_finds_them() {
        let file = SourceFile {
            name: "a/src/lib.rs".into(),
            path: "a/src/lib.rs".into(),
            text: "mod one;\npub(crate) mod two;\n#[path = \"odd/three.rs\"]\nmod three;\nmod inline {\n}\n".into(),
        };
        let names: Vec<String> = children(&file, true).iter().map(|path| path.to_string_lossy().into_owned()).collect();
        assert_eq!(
            names,
            ["a/src/one.rs", "a/src/one/mod.rs", "a/src/two.rs", "a/src/two/mod.rs", "a/src/odd/three.rs"]
        );
    }

    #[test]
    fn a_plain_file_holds_its_children_in_a_folder_of_its_name() {
        let file = SourceFile { name: "a/src/one.rs".into(), path: "a/src/one.rs".into(), text: "mod deep;\n".into() };
        assert_eq!(children(&file, false)[0], Path::new("a/src/one/deep.rs"));
    }
}
