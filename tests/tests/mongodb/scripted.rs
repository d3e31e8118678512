//! Drivers in front of the scripted server of the lab, directly and through the gateway: transactions, streams of replies, change streams,
//! compression, load-balanced mode, retries. No real server of these tests has them.

use weir_tests::gateway::Gateway;
use weir_tests::mongodb::drivers::{Checks, Driver, each, run};
use weir_tests::mongodb::wire::Reply;
use weir_tests::mongodb::{Scripted, url};
use weir_tests::suite::outcome::TestOutcomes;

use crate::drivers::{holds, same_checks};
use crate::gateway::before;

/// Fail points are for tests, and so is this rule.
const FAULTS: &str =
    "[[listener.mongodb.rule]]\nname = \"faults\"\naction = \"allow\"\ncommands = [\"configureFailPoint\"]";

/// Counts of the server that say what has happened there.
const EFFECTS: &[&[&str]] = &[
    &["inserted"],
    &["transactions", "started"],
    &["transactions", "committed"],
    &["transactions", "aborted"],
    &["commands", "insert"],
    &["commands", "update"],
    &["commands", "delete"],
    &["commands", "findAndModify"],
    &["commands", "commitTransaction"],
    &["commands", "abortTransaction"],
];

/// One comparison.
struct Form {
    drivers: &'static [Driver],
    checks: Checks,
    /// Checks of all drivers, at least.
    least: usize,
    /// Options in the URL.
    options: &'static str,
    /// Lines of the listener and of the upstream.
    listener: &'static str,
    upstream: &'static str,
    /// The server without a gateway, and that behind it.
    servers: [fn() -> Scripted; 2],
    /// The effects at both are equal to the last count.
    is_exact: bool,
}

/// The checks of one driver, and the counts of its server and its gateway behind them.
struct Done {
    outcomes: TestOutcomes,
    counts: Reply,
    inflated: f64,
}

impl Form {
    const ALL: Self = Self {
        drivers: &Driver::ALL,
        checks: Checks::Scripted,
        least: 40,
        options: "",
        listener: "",
        upstream: "",
        servers: [Scripted::mongos, Scripted::mongos],
        is_exact: false,
    };
    const TWO: Self = Self { drivers: &Driver::TWO, least: 24, ..Self::ALL };

    /// Each driver has a server of its own: a fail point is the server's.
    fn run(&self, is_direct: bool) -> Vec<(Driver, Done)> {
        each(self.drivers, |driver| {
            let server = self.servers[usize::from(!is_direct)]();
            let gateway = (!is_direct).then(|| {
                let listener = format!("{}\n{FAULTS}", self.listener);
                let upstream = format!("pool_size = 20\n{}", self.upstream);
                Gateway::start(before(&server.address, &listener, &upstream).workers(2))
            });
            let address = gateway.as_ref().map_or(&server.address, |gateway| &gateway.address);
            let outcomes = run(&[driver], &format!("{}{}", url(address), self.options), self.checks);
            let inflated = gateway.as_ref().map(|gateway| gateway.metric("weir_mongodb_inflated_bytes_total"));
            let counts = server.counts();
            if let Some(gateway) = gateway {
                gateway.finish();
            }
            Done { outcomes, counts, inflated: inflated.unwrap_or_default() }
        })
    }

    /// Every check holds on both ways, and the servers have had the same.
    fn holds_on_both_ways(&self) {
        let [direct, through] = [true, false].map(|is_direct| self.run(is_direct));
        let [directly, via] = [&direct, &through].map(|done| joined(done));
        holds("directly", &directly, self.least);
        holds("through Weir", &via, self.least);
        same_checks(&directly, &via);
        for (driver, via) in &through {
            let known = direct.iter().find(|(other, _)| other == driver);
            let (_, directly) = known.expect("the driver ran directly as well");
            self.compare(driver.name(), directly, via);
        }
    }

    fn compare(&self, driver: &str, directly: &Done, via: &Done) {
        let both = |path: &[&str]| (via.counts.number(path), directly.counts.number(path));
        // A connection that a fail point has closed leaves some behind.
        for kind in ["cursors", "transactions"] {
            let (left, left_directly) = both(&[kind, "open"]);
            assert!(left <= left_directly, "{driver} leaves {left:?} {kind} behind, directly {left_directly:?}");
        }
        let effects = EFFECTS.iter().filter(|_| self.is_exact);
        let differ: Vec<_> =
            effects.map(|path| (path, both(path))).filter(|(_, (via, directly))| via != directly).collect();
        assert!(differ.is_empty(), "{driver}, through Weir and directly: {differ:?}");
        if self.options.contains("compressors") {
            let (compressed, compressed_directly) = both(&["compressedRequests"]);
            assert!(compressed_directly > Some(0), "{driver} compresses nothing with {}", self.options);
            assert_eq!(compressed > Some(0), !self.upstream.is_empty(), "{driver}: {compressed:?} behind the gateway");
            assert!(via.inflated > 0.0, "{driver} compresses nothing at the gateway");
        }
    }
}

fn joined(done: &[(Driver, Done)]) -> TestOutcomes {
    let mut all = TestOutcomes::default();
    for (_, one) in done {
        all.tests.extend(one.outcomes.tests.clone());
        all.problems.extend(one.outcomes.problems.clone());
    }
    all
}

#[test]
fn every_check_holds_as_behind_a_mongos() {
    Form::ALL.holds_on_both_ways();
}

/// Directly the server is a mongos behind a load balancer; behind the gateway it is a plain one.
#[test]
fn every_check_holds_in_load_balanced_mode() {
    let servers: [fn() -> Scripted; 2] = [Scripted::load_balanced, Scripted::mongos];
    Form { options: "?loadBalanced=true", servers, ..Form::TWO }.holds_on_both_ways();
}

/// Documents are invisible before the commit and gone with the abort; a write that is repeated happens once.
#[test]
fn every_effect_is_that_of_a_direct_connection() {
    let servers: [fn() -> Scripted; 2] = [Scripted::storing_mongos, Scripted::storing_mongos];
    Form { checks: Checks::Stored, least: 18, servers, is_exact: true, ..Form::ALL }.holds_on_both_ways();
}

#[test]
fn every_effect_is_that_of_a_direct_connection_in_load_balanced_mode() {
    let servers: [fn() -> Scripted; 2] = [Scripted::storing_load_balanced, Scripted::storing_mongos];
    let options = "?loadBalanced=true";
    Form { checks: Checks::Stored, least: 9, options, servers, ..Form::TWO }.holds_on_both_ways();
}

/// The server has the compressor too: requests and replies pass as they came.
#[test]
fn every_check_holds_with_a_compressor_at_both_ends() {
    for (options, keys) in [
        ("?compressors=snappy", "compressors = [\"snappy\"]"),
        ("?compressors=zlib", "compressors = [\"zlib\"]"),
        ("?compressors=zstd", "compressors = [\"zstd\"]"),
    ] {
        Form { options, listener: keys, upstream: keys, ..Form::TWO }.holds_on_both_ways();
    }
}

/// The gateway inflates the requests, and the server's replies are plain.
#[test]
fn every_check_holds_with_a_compressor_at_the_gateway_alone() {
    let listener = "compressors = [\"snappy\"]";
    Form { options: "?compressors=snappy", listener, ..Form::TWO }.holds_on_both_ways();
}
