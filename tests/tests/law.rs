//! Laws that hold between rooms: who may depend on whom, and names that two rooms must agree on.
#![forbid(unsafe_code)]

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

#[test]
fn the_gauges_that_every_test_ends_with_are_in_the_catalog() {
    let catalog = weir_telemetry::catalog::markdown();
    for gauge in GAUGES_AT_REST {
        assert!(catalog.contains(&format!("`{gauge}`")), "{gauge} is not a metric of Weir");
    }
}
