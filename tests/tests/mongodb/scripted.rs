//! Drivers in front of the scripted server of the lab, directly and through the gateway: transactions, streams of replies, change streams,
//! compression, load-balanced mode, retries. No real server of these tests has them.

use std::collections::BTreeMap;

use weir_tests::gateway::Gateway;
use weir_tests::mongodb::drivers::{Checks, Driver, run};
use weir_tests::mongodb::{Scripted, url};
use weir_tests::suite::outcome::TestOutcomes;

use crate::drivers::{holds, same_checks};
use crate::gateway::before;

const CHECKS_MIN: usize = 40;

/// Fail points are for tests, and so is this rule.
const FAULTS: &str =
    "[[listener.mongodb.rule]]\nname = \"faults\"\naction = \"allow\"\ncommands = [\"configureFailPoint\"]";

/// Cursors and transactions that the drivers have left open at their servers. A connection that a fail point has closed leaves some behind.
type Left = BTreeMap<&'static str, [i64; 2]>;

/// Runs the checks of each driver in front of a server of its own: a fail point is the server's. `before` starts what stands in front.
fn run_each(
    options: &str,
    server: fn() -> Scripted,
    before: impl Fn(&Scripted) -> Option<Gateway>,
) -> (TestOutcomes, Left) {
    let (mut all, mut left) = (TestOutcomes::default(), Left::new());
    for driver in Driver::ALL {
        let server = server();
        let gateway = before(&server);
        let address = gateway.as_ref().map_or(&server.address, |gateway| &gateway.address);
        let outcomes = run(&[driver], &format!("{}{options}", url(address)), Checks::Scripted);
        all.tests.extend(outcomes.tests);
        all.problems.extend(outcomes.problems);
        let counts = server.counts();
        let open = |kind| counts.number(&[kind, "open"]).expect("a count");
        left.insert(driver.name(), [open("cursors"), open("transactions")]);
        if let Some(gateway) = gateway {
            gateway.finish();
        }
    }
    (all, left)
}

/// Every check holds on both ways, and through the gateway no more is left behind than directly.
fn holds_on_both_ways(options: &str, listener: &str, server: [fn() -> Scripted; 2]) {
    let (direct, left_directly) = run_each(options, server[0], |_| None);
    holds("directly", &direct, CHECKS_MIN);
    let listener = format!("{listener}\n{FAULTS}");
    let gateway =
        |server: &Scripted| Some(Gateway::start(before(&server.address, &listener, "pool_size = 20").workers(2)));
    let (through, left) = run_each(options, server[1], gateway);
    holds("through Weir", &through, CHECKS_MIN);
    same_checks(&direct, &through);
    let is_more = |(driver, [cursors, transactions]): &(&&str, &[i64; 2])| {
        let [cursors_directly, transactions_directly] = left_directly[**driver];
        *cursors > cursors_directly || *transactions > transactions_directly
    };
    let more: Vec<_> = left.iter().filter(is_more).collect();
    assert!(more.is_empty(), "left behind: {more:?}, directly {left_directly:?}");
}

#[test]
fn every_check_holds_as_behind_a_mongos() {
    holds_on_both_ways("", "", [Scripted::mongos, Scripted::mongos]);
}

/// Directly the server is a mongos behind a load balancer; behind the gateway it is a plain one.
#[test]
fn every_check_holds_in_load_balanced_mode() {
    holds_on_both_ways("?loadBalanced=true", "", [Scripted::load_balanced, Scripted::mongos]);
}

#[test]
fn every_check_holds_with_a_compressor() {
    let listener = "compressors = [\"snappy\"]";
    holds_on_both_ways("?compressors=snappy", listener, [Scripted::mongos, Scripted::mongos]);
}
