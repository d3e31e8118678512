//! Laws that hold between rooms: who may depend on whom, and names that two rooms must agree on.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use weir_tests::gateway::GAUGES_AT_REST;
use xtask::tidy::arrows;
use xtask::workspace::Workspace;

#[test]
fn every_dependency_is_an_arrow_of_the_table() {
    let workspace = Workspace::load().expect("cargo metadata answers");
    let members = workspace.metadata.workspace_packages().len();
    assert!(members >= 10, "only {members} crates found");
    let violations = arrows::violations(&workspace);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// A test that waits for a metric which is no longer written would wait for ever, or compare zero with zero.
#[test]
fn every_metric_that_a_test_names_is_in_the_catalog() {
    let catalog = weir_telemetry::catalog::markdown();
    let is_known = |name: &str| {
        let family = ["_count", "_sum", "_bucket"].iter().find_map(|suffix| name.strip_suffix(suffix));
        catalog.contains(&format!("`{name}`")) || family.is_some_and(|name| catalog.contains(&format!("`{name}`")))
    };
    let mut named: Vec<String> = GAUGES_AT_REST.map(str::to_owned).to_vec();
    // Every suite, and what they have in common.
    let mut paths: Vec<PathBuf> =
        ["tests", "src"].map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).into();
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("the folder of a suite");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable text");
        // A metric stands alone between quotes; `weir_tests` and the like do not.
        let words = text.split('"').filter(|word| word.starts_with("weir_") || word.starts_with("gateway_"));
        let plain = words.filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        // A word that ends in `_` is a prefix of names.
        let plain = plain.filter(|word| !word.ends_with('_'));
        named.extend(plain.map(str::to_owned));
    }
    named.sort();
    named.dedup();
    assert!(named.len() > 20, "only {named:?} found");
    let unknown: Vec<&String> = named.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "not metrics of Weir: {unknown:?}");
}
