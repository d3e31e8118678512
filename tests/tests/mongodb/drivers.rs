//! Every driver in front of real servers, directly and through the gateway: each check holds on both ways.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use weir_tests::gateway::Gateway;
use weir_tests::mongodb::drivers::{Checks, Driver, run};
use weir_tests::mongodb::{FerretDb, JavaServer, url};
use weir_tests::suite::outcome::{TestOutcome, TestOutcomes};

use crate::gateway::before;

/// Checks of a list, at least: a driver that runs none finds nothing.
const SERVER_CHECKS_MIN: usize = 70;
/// The same of two drivers.
const TWO_CHECKS_MIN: usize = 30;

/// At least `least` checks ran, and all hold.
pub(crate) fn holds(what: &str, outcomes: &TestOutcomes, least: usize) {
    assert!(outcomes.problems.is_empty(), "{what}: {}", outcomes.problems.join("\n"));
    let failed: Vec<_> = outcomes.tests.iter().filter(|(_, end)| **end != TestOutcome::Passed).collect();
    assert!(failed.is_empty(), "{what}: {failed:#?}");
    assert!(outcomes.tests.len() >= least, "{what}: only {} checks", outcomes.tests.len());
}

/// Both ways ran the same checks.
pub(crate) fn same_checks(direct: &TestOutcomes, through: &TestOutcomes) {
    let names = |outcomes: &TestOutcomes| outcomes.tests.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(direct), names(through));
}

/// All checks against FerretDB itself.
fn direct() -> &'static TestOutcomes {
    static DIRECT: OnceLock<TestOutcomes> = OnceLock::new();
    DIRECT.get_or_init(|| {
        let server = FerretDb::start();
        run(&Driver::ALL, &url(&server.address), Checks::Server)
    })
}

#[test]
fn every_check_holds_directly() {
    holds("directly", direct(), SERVER_CHECKS_MIN);
}

/// Few server connections for all clients, on two workers.
#[test]
fn every_check_holds_through_weir() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 8").workers(2));
    let through = run(&Driver::ALL, &url(&gateway.address), Checks::Server);
    holds("through Weir", &through, SERVER_CHECKS_MIN);
    same_checks(direct(), &through);
    gateway.finish();
}

/// The core of the lane.
#[test]
fn every_check_of_pymongo_holds_through_weir() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 4"));
    holds("PyMongo", &run(&[Driver::Pymongo], &url(&gateway.address), Checks::Server), 20);
    gateway.finish();
}

/// Drivers may take the gateway for a mongos: then they send the numbers of retryable writes.
#[test]
fn every_check_holds_with_the_face_of_a_mongos() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "face = \"mongos\"", "pool_size = 8").workers(2));
    holds("as a mongos", &run(&Driver::ALL, &url(&gateway.address), Checks::Server), SERVER_CHECKS_MIN);
    gateway.finish();
}

/// The server knows nothing of it: cursors stay on their connections, and the gateway says so.
#[test]
fn every_check_holds_in_load_balanced_mode_in_front_of_a_plain_server() {
    let server = FerretDb::start();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 8").workers(2));
    let balanced = format!("{}?loadBalanced=true", url(&gateway.address));
    holds("load-balanced", &run(&Driver::TWO, &balanced, Checks::Server), TWO_CHECKS_MIN);
    gateway.finish();
}

/// FerretDB refuses compressed messages; the gateway inflates them.
#[test]
fn every_check_holds_with_each_compressor_at_the_gateway() {
    let server = FerretDb::start();
    let listener = "compressors = [\"snappy\", \"zlib\", \"zstd\"]";
    let gateway = Gateway::start(before(&server.address, listener, "pool_size = 8").workers(2));
    for compressor in ["snappy", "zlib", "zstd"] {
        let compressed = format!("{}?compressors={compressor}", url(&gateway.address));
        holds(compressor, &run(&Driver::TWO, &compressed, Checks::Server), TWO_CHECKS_MIN);
        // Drivers leave a compressor out that hello does not offer, without a word.
        let inflated = gateway.metrics().sum_where("weir_mongodb_inflated_bytes_total", &[("compressor", compressor)]);
        assert!(inflated > 1e6, "{inflated} bytes came by {compressor}");
    }
    gateway.finish();
}

/// mongo-java-server takes no order of bulk writes, knows no sessions, ignores unknown modifiers, and reads a binary value of a subtype of
/// users as one of subtype 0.
const FAILS_WITH_JAVA_SERVER: [&str; 4] = [
    "errors have their codes and the connection goes on",
    "explicit sessions",
    "ordered and unordered bulk writes",
    "values of every type come back",
];

/// A second implementation, whose wire version is 8. It knows isMaster alone. Each check ends in the same way on both ways.
#[test]
fn every_check_of_an_older_pymongo_ends_the_same_way_with_another_server() {
    let server = JavaServer::start();
    let gateway = Gateway::start(before(&server.address, "", "pool_size = 8").workers(2));
    for (way, address) in [("directly", &server.address), ("through Weir", &gateway.address)] {
        let outcomes = run(&[Driver::PymongoOlder], &url(address), Checks::Server);
        assert!(outcomes.problems.is_empty(), "{way}: {}", outcomes.problems.join("\n"));
        let is_failed = |(_, end): &(&String, &TestOutcome)| **end != TestOutcome::Passed;
        let failed: Vec<_> = outcomes.tests.iter().filter(is_failed).collect();
        let names: Vec<_> = failed.iter().filter_map(|(name, _)| name.split_once(": ")).map(|(_, name)| name).collect();
        assert_eq!(names, FAILS_WITH_JAVA_SERVER, "{way}: {failed:#?}");
        assert!(outcomes.tests.len() >= 20, "{way}: {} checks", outcomes.tests.len());
    }
    gateway.finish();
}
