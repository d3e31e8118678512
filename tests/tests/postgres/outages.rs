//! Servers that restart, die and are exchanged, under load by real drivers: only transactions in flight on a lost server fail.

use std::thread;
use std::time::Duration;

use weir_tests::deadline::{until, until_true};
use weir_tests::gateway::Gateway;
use weir_tests::isolation::Link;
use weir_tests::postgres::torture::wire::{Wire, query};
use weir_tests::postgres::{Load, LoadFailure, LoadReport, Major, Options, Postgres, USER};
use weir_tests::stream::Address;

use crate::gateway::{before_address, psql, text};
use crate::hostile::{login, running, value};

/// Clients of each of the two drivers.
const CLIENTS: u32 = 12;
/// Server connections of the pool: the most transactions that are in flight at a time.
const POOL_SIZE: usize = 4;
/// Logins beyond those of a full pool: some find a server that is not there yet.
const SPARE_LOGINS: usize = 4;
/// Until all clients write again.
const HEALED_WITHIN: Duration = Duration::from_secs(40);

/// It keeps what it has acknowledged, and writes a line for each login.
fn server() -> Postgres {
    let settings = ["synchronous_commit=on", "log_connections=on"].map(str::to_owned).to_vec();
    Postgres::start_with(Major::Fifteen, Options { settings, ..Options::default() })
}

fn gateway(server: &Address, folder: &std::path::Path) -> Gateway {
    let upstream = format!("pool_size = {POOL_SIZE}");
    Gateway::start(before_address(server, folder, "query_wait_timeout = \"30s\"", &upstream).workers(2))
}

/// The sessions of the test user that a server has let in since its start.
fn logins(server: &Postgres) -> usize {
    server.log().lines().filter(|line| line.contains("connection authorized: user=app ")).count()
}

/// Waits until each client has written thrice from now on.
fn writes(load: &Load, server: &Postgres, what: &str) {
    let now = until("the server", HEALED_WITHIN, || server.try_sql("postgres", "select clock_timestamp()").ok());
    until(what, HEALED_WITHIN, || load.has_written(server, &now, 3).then_some(()));
}

/// Nothing is lost or foreign, and at most one transaction of each server connection has failed, with a code that says why.
fn judge(report: &LoadReport, states: &[&str], gateway: &Gateway) {
    let shown = format!("{report:#?}\n{}", gateway.log());
    assert_eq!(report.problems, Vec::<String>::new(), "{shown}");
    assert!(report.failures.len() <= POOL_SIZE, "{} failures; {shown}", report.failures.len());
    for LoadFailure { phase, state, .. } in &report.failures {
        // A session ends within a block alone. Some drivers keep no code of the end.
        let is_end = state == "closed" && matches!(phase.as_str(), "begin" | "block" | "commit");
        assert!(is_end || states.contains(&state.as_str()), "{phase}: {state}; {shown}");
        assert!(!matches!(phase.as_str(), "connect" | "setting"), "{phase}: {state}; {shown}");
    }
    // The commit of a single statement may still be due when its reply is there, and its session then ends like a block.
    let is_within =
        |failure: &&LoadFailure| failure.phase != "statement" || (failure.is_over && failure.state != "closed");
    let within = report.failures.iter().filter(is_within).count();
    assert!(report.lives <= u64::from(2 * CLIENTS) + within as u64, "sessions end within transactions alone: {shown}");
    assert!(report.acknowledged > u64::from(4 * CLIENTS), "{shown}");
}

/// Load while `event` takes the server away for a while and brings it back.
fn survives(states: &[&str], event: impl Fn(&mut Postgres)) {
    let mut server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&server.address, folder.path());
    let load = Load::start(&server, gateway.address.tcp().port(), CLIENTS);
    writes(&load, &server, "the load has begun");
    event(&mut server);
    writes(&load, &server, "all clients write again");
    // The log is that of the new server.
    let logins = logins(&server);
    assert!(logins <= POOL_SIZE + SPARE_LOGINS, "{logins} logins\n{}", server.log());
    judge(&load.stop(), states, &gateway);
    gateway.finish();
}

/// In flight: the server says that it ends, or its end is all there is.
const ENDED: &[&str] = &["57P01", "08006"];

#[test]
fn a_fast_restart_fails_transactions_in_flight_alone() {
    survives(ENDED, |server| {
        server.stop();
        server.start_again();
    });
}

#[test]
fn an_immediate_restart_fails_transactions_in_flight_alone() {
    survives(ENDED, |server| {
        server.stop_at_once();
        thread::sleep(Duration::from_secs(1));
        server.start_again();
    });
}

#[test]
fn a_killed_server_fails_transactions_in_flight_alone() {
    survives(&["08006"], |server| {
        server.crash();
        thread::sleep(Duration::from_secs(1));
        server.start_again();
    });
}

/// The wire has the code that some drivers lose: it comes before the end, within a block and within a statement.
#[test]
fn the_end_of_a_session_whose_server_is_lost_has_a_code() {
    let mut server = server();
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&server.address, folder.path());
    for way in [Postgres::stop, Postgres::crash] {
        let mut clients: Vec<Wire> = (0..3).map(|_| login(&gateway)).collect();
        value(&mut clients[0], "begin");
        for wire in &mut clients[1..] {
            wire.send(&query("select pg_sleep(60)")).expect("sent");
        }
        until_true("both run", || running(&server, "pg_sleep(60)") == "2");
        way(&mut server);
        for (number, wire) in clients.iter_mut().enumerate() {
            let first = wire.reply();
            let is_fatal = first.is_err();
            let error = first.map_or_else(|error| error, |reply| reply.state().to_owned());
            assert!(ENDED.iter().any(|state| error.contains(state)), "client {number}: {error}");
            // The words of the server are fatal; only a block ends its session with them.
            if is_fatal {
                assert_eq!(wire.reply().is_err(), number == 0, "client {number}: {error}");
            }
        }
        server.start_again();
        // A statement without a block cost its session nothing.
        for wire in &mut clients[1..] {
            assert_eq!(value(wire, "select 7"), "7");
        }
    }
    gateway.finish();
}

/// The documented way to exchange a server: PAUSE, the standby takes over, RESUME.
#[test]
fn an_exchange_of_servers_behind_a_pause_fails_nothing() {
    let mut primary = server();
    let folder = tempfile::tempdir().expect("a folder");
    let link = Link::before(&primary.address, Duration::ZERO);
    let gateway = gateway(&link.address, folder.path());
    let load = Load::start(&primary, gateway.address.tcp().port(), CLIENTS);
    let standby = primary.standby();
    writes(&load, &primary, "the load has begun");
    let console = |command: &str| text(&psql(&gateway, "boss", "pgbouncer", command).output().expect("psql"));
    // It returns once no transaction runs.
    assert_eq!(console("pause"), (String::new(), String::new()));
    let servers = format!("select count(*) from pg_stat_activity where usename = '{USER}'");
    assert_eq!(primary.sql(&servers), "0", "a paused pool has no server");
    standby.catch_up(&primary);
    primary.stop();
    standby.promote();
    link.lead_to(&standby.address);
    assert_eq!(console("resume"), (String::new(), String::new()));
    writes(&load, &standby, "all clients write to the other server");
    until_true("the log of logins", || logins(&standby) > 0);
    assert!(logins(&standby) <= POOL_SIZE + SPARE_LOGINS, "{}", standby.log());
    let report = load.stop();
    assert!(report.failures.is_empty(), "{report:#?}");
    judge(&report, &[], &gateway);
    gateway.finish();
}
