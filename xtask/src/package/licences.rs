//! The libraries that are linked into the program, with the texts of their licences: most ask that each copy carries them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Package, PackageId};

use crate::workspace::Workspace;

/// Beginnings of the names of files that hold a licence or a notice.
const NAMES: [&str; 4] = ["license", "licence", "copying", "notice"];

/// One text for all of them.
///
/// # Errors
/// cargo resolved no dependencies, or a file of a library cannot be read.
pub fn text(workspace: &Workspace) -> Result<String> {
    let mut text = String::from("Libraries that are linked into Weir, each with its licence.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in linked(workspace)? {
        let licence = package.license.as_deref().unwrap_or("see its text below");
        text += &format!("{} {}: {licence}\n", package.name, package.version);
        for file in files(package)? {
            texts.entry(file).or_default().push(format!("{} {}", package.name, package.version));
        }
    }
    for (licence, packages) in texts {
        text += &format!("\n{}\n{}\n\n{}\n", "=".repeat(80), packages.join(", "), licence.trim());
    }
    Ok(text)
}

/// Dependencies of the program at run time, without tests and build scripts, and without packages of this workspace.
fn linked(workspace: &Workspace) -> Result<Vec<&Package>> {
    let resolved = workspace.metadata.resolve.as_ref().context("cargo resolves the dependencies")?;
    let nodes: BTreeMap<&PackageId, _> = resolved.nodes.iter().map(|node| (&node.id, node)).collect();
    let packages = workspace.metadata.packages.iter();
    let packages: BTreeMap<&PackageId, &Package> = packages.map(|package| (&package.id, package)).collect();
    let root = packages.values().find(|package| package.name == "weir").context("the package weir")?;
    let (mut found, mut open) = (BTreeSet::from([&root.id]), vec![&root.id]);
    while let Some(id) = open.pop() {
        for used in nodes.get(id).map(|node| &node.deps).into_iter().flatten() {
            let is_linked = used.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if is_linked && found.insert(&used.pkg) {
                open.push(&used.pkg);
            }
        }
    }
    let mut linked: Vec<&Package> = found.iter().filter_map(|id| packages.get(id).copied()).collect();
    linked.retain(|package| package.source.is_some());
    linked.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(linked)
}

/// The texts in the folder of a library.
fn files(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().map_or(Path::new("/"), |folder| folder.as_std_path());
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|beginning| name.starts_with(beginning)) {
            texts.push(String::from_utf8_lossy(&fs::read(&path)?).into_owned());
        }
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_named_with_their_licence_and_others_are_left_out() {
        let workspace = Workspace::load().expect("cargo describes the workspace");
        let text = text(&workspace).expect("the texts");
        let has = |name: &str| text.lines().any(|line| line.starts_with(&format!("{name} ")) && line.contains(": "));
        assert!(has("rustls") && has("clap") && has("aws-lc-sys"), "libraries of the program");
        assert!(!has("proptest") && !has("weir-base") && !has("libfuzzer-sys"), "tests, and crates of this tree");
        assert!(text.contains("Permission is hereby granted, free of charge"), "the text of a licence");
    }
}
