//! Drivers in front of the scripted server of the lab, directly and through the gateway: transactions, streams of replies, change streams,
//! compression, load-balanced mode, retries. No real server of these tests has them.

use weir_tests::gateway::Gateway;
use weir_tests::mongodb::drivers::{Checks, Driver, run};
use weir_tests::mongodb::{Scripted, url};
use weir_tests::suite::outcome::TestOutcomes;

use crate::drivers::{holds, same_checks};
use crate::gateway::before;

const CHECKS_MIN: usize = 35;

/// A fail point is the server's, so each driver has a server of its own.
fn run_each(
    drivers: &[Driver],
    url_of: impl Fn(&Scripted) -> (Option<Gateway>, String),
    server: fn() -> Scripted,
) -> TestOutcomes {
    let mut all = TestOutcomes::default();
    for driver in drivers {
        let server = server();
        let (gateway, url) = url_of(&server);
        let outcomes = run(&[*driver], &url, Checks::Scripted);
        all.tests.extend(outcomes.tests);
        all.problems.extend(outcomes.problems);
        let counts = server.counts();
        let open = [counts.number(&["cursors", "open"]), counts.number(&["transactions", "open"])];
        assert_eq!(open, [Some(0), Some(0)], "{}: left at the server: {counts:?}", driver.name());
        if let Some(gateway) = gateway {
            gateway.finish();
        }
    }
    all
}

fn directly(options: &str, server: fn() -> Scripted) -> TestOutcomes {
    run_each(&Driver::ALL, |server| (None, format!("{}{options}", url(&server.address))), server)
}

fn through(options: &str, listener: &str, server: fn() -> Scripted) -> TestOutcomes {
    let way = |server: &Scripted| {
        let gateway = Gateway::start(before(&server.address, listener, "pool_size = 20").workers(2));
        let url = format!("{}{options}", url(&gateway.address));
        (Some(gateway), url)
    };
    run_each(&Driver::ALL, way, server)
}

#[test]
fn every_check_holds_as_behind_a_mongos() {
    let direct = directly("", Scripted::mongos);
    holds("directly", &direct, CHECKS_MIN);
    let through = through("", "", Scripted::mongos);
    holds("through Weir", &through, CHECKS_MIN);
    same_checks(&direct, &through);
}

#[test]
fn every_check_holds_in_load_balanced_mode() {
    let direct = directly("?loadBalanced=true", Scripted::load_balanced);
    holds("directly", &direct, CHECKS_MIN);
    let through = through("?loadBalanced=true", "", Scripted::mongos);
    holds("through Weir", &through, CHECKS_MIN);
    same_checks(&direct, &through);
}

#[test]
fn every_check_holds_with_a_compressor() {
    let direct = directly("?compressors=snappy", Scripted::mongos);
    holds("directly", &direct, CHECKS_MIN);
    let through = through("?compressors=snappy", "compressors = [\"snappy\"]", Scripted::mongos);
    holds("through Weir", &through, CHECKS_MIN);
    same_checks(&direct, &through);
}
