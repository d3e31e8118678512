//! S2: many clients that read nothing, in front of few server connections.

use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::postgres::torture::wire::{Wire, query};
use weir_tests::postgres::{Major, Postgres};

use super::{LARGE, percentile, shown, waits};
use crate::gateway::before;
use crate::hostile::{login, running, value};

/// Below `output_high_water`, which is 256 KiB.
const SMALL: &str = "select repeat('x', 100000)";
/// Bytes that an unread result may hold in the gateway: its output, and one piece of the server.
const HELD_MAX: u64 = 1 << 20;

/// A result that fits into the output of its client is taken from the server at once, read or not.
#[test]
fn s2_small_results_that_are_not_read_hold_no_server() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = Gateway::start(before(&server, folder.path(), "", "pool_size = 2"));
    let mut unread: Vec<Wire> = (0..100).map(|_| login(&gateway)).collect();
    for client in &mut unread {
        client.send(&query(SMALL)).expect("sent");
    }
    until_true("each has its result", || gateway.metric("weir_postgres_transactions_total") >= 100.0);
    until_true("no server is held", || gateway.metric("weir_requests_in_flight") == 0.0);
    let mut victim = login(&gateway);
    let begun = Instant::now();
    assert_eq!(value(&mut victim, "select 7"), "7");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    // Each has its own when it reads at last.
    for client in &mut unread {
        let reply = client.reply().expect("a reply");
        assert_eq!(reply.rows[0][0].len(), 100_000);
    }
}

/// A larger one holds its server until its client reads or leaves: as many as the pool has, and no more memory for that.
#[test]
fn s2_large_results_that_are_not_read_hold_their_servers_and_nothing_else() {
    let server = Postgres::start(Major::Fifteen);
    let folder = tempfile::tempdir().expect("a folder");
    let wait = "query_wait_timeout = \"500ms\"";
    let mut gateway = Gateway::start(before(&server, folder.path(), wait, "pool_size = 4"));
    let mut victim = login(&gateway);
    let quiet = waits(&mut victim, Duration::from_secs(1));
    let resident = gateway.process().resident();
    let begin = || {
        let mut client = login(&gateway);
        client.send(&query(LARGE)).expect("sent");
        client
    };
    let mut unread: Vec<Wire> = (0..3).map(|_| begin()).collect();
    until_true("three run", || running(&server, "generate_series") == "3");
    let with = waits(&mut victim, Duration::from_secs(1));
    for part in [50, 99] {
        let (with, quiet) = (percentile(&with, part), percentile(&quiet, part));
        assert!(with <= (quiet * 5).max(Duration::from_millis(60)), "p{part}: {with:?}, quiet {quiet:?}");
    }
    unread.push(begin());
    until_true("four run", || running(&server, "generate_series") == "4");
    let refused = victim.query("select 7").expect("a reply");
    assert_eq!((refused.state(), victim.status), ("53300", b'I'), "the pool is theirs: {:?}", refused.errors);
    assert_eq!((shown(&gateway).len(), gateway.metric("weir_requests_in_flight")), (5, 4.0));
    let held = gateway.metric("weir_buffered_bytes");
    assert!(held < (4 * HELD_MAX) as f64, "{held} bytes are charged");
    let grown = gateway.process().resident().saturating_sub(resident);
    assert!(grown < 24 << 20, "{grown} bytes more");
    unread.pop().expect("one of them").leave(1);
    until_true("its server is free", || running(&server, "generate_series") == "3");
    until_true("the victim is served", || victim.query("select 7").is_ok_and(|reply| reply.rows == [["7"]]));
    unread.into_iter().for_each(|client| client.leave(0));
    until_true("all are free", || running(&server, "generate_series") == "0");
}
