//! Two binary upgrades in a row while clients of real drivers write: nothing acknowledged is lost, and clients fail with 57P01 alone.

use std::time::Duration;

use weir_tests::deadline::until;
use weir_tests::gateway::Gateway;
use weir_tests::postgres::{Load, LoadFailure, Major, Options, Postgres};

use super::gateway::before;

/// Clients of each of the two drivers.
const CLIENTS: u32 = 8;
/// Until all clients write again.
const HEALED_WITHIN: Duration = Duration::from_secs(40);

fn writes(load: &Load, server: &Postgres, what: &str) {
    let now = server.sql("select clock_timestamp()");
    until(what, HEALED_WITHIN, || load.has_written(server, &now, 3).then_some(()));
}

#[test]
fn two_upgrades_in_a_row_under_load_lose_nothing_and_end_sessions_with_57p01_alone() {
    let settings = vec!["synchronous_commit=on".to_owned()];
    let server = Postgres::start_with(Major::Fifteen, Options { settings, ..Options::default() });
    let folder = tempfile::tempdir().expect("a folder");
    let listener = "query_wait_timeout = \"30s\"";
    let mut gateway = Gateway::start(before(&server, folder.path(), listener, "pool_size = 4").workers(2));
    let load = Load::start(&server, gateway.address.tcp().port(), CLIENTS);
    writes(&load, &server, "the load has begun");
    for round in 1..=2 {
        let mut old = gateway.upgrade();
        writes(&load, &server, "all clients write to the new process");
        assert!(old.wait(Duration::from_secs(20)).success(), "upgrade {round}: {}", old.log());
    }
    let report = load.stop();
    let shown = format!("{report:#?}\n{}", gateway.log());
    assert_eq!(report.problems, Vec::<String>::new(), "{shown}");
    assert!(report.acknowledged > u64::from(4 * CLIENTS), "{shown}");
    for LoadFailure { phase, state, text, .. } in &report.failures {
        // Some drivers keep no code of the end, and none has the code of a failed login.
        let is_end = text.contains("terminating connection due to administrator command")
            || text.contains("InterfaceError: connection is closed");
        assert!(is_end || ["57P01", "closed"].contains(&state.as_str()), "{phase}: {state}; {shown}");
    }
    gateway.finish();
}
