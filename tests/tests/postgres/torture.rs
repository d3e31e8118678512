//! Hundreds of clients that set state, fail, cancel and vanish. Directly nothing is found, and PgBouncer shows that leaks are.

use std::time::Duration;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::torture::{Kind, Torture, TortureReport, hba, prepare};
use weir_tests::postgres::{Major, Options, Pgbouncer, PoolMode, Postgres};
use weir_tests::{seed, soak};

/// Clients at a time.
const CLIENTS: u32 = 120;

fn server() -> Postgres {
    let server = Postgres::start_with(Major::Fifteen, Options { hba: hba(), ..Options::default() });
    prepare(&server);
    server
}

fn torture(port: u16, clients: u32, duration: Duration) -> TortureReport {
    let report = Torture { port, clients, duration, seed: seed::seeded().next_u64() }.run();
    eprintln!("{report}");
    report
}

/// The judge itself: a finding here is a mistake of the torture.
#[test]
fn the_server_itself_mixes_nothing_up() {
    let server = server();
    let report = torture(server.port(), CLIENTS, soak::requested_duration().unwrap_or(Duration::from_secs(10)));
    assert!(report.counts.is_empty(), "{report}");
    assert!(report.acts.len() >= 25 && report.acts.values().sum::<u64>() > 1000, "{report}");
}

/// In transaction mode PgBouncer keeps no state of its clients: the torture finds rows of others, and state of others. A round in
/// which the first leaks end nearly every life early may lack a kind, so up to five rounds count together, each with new
/// connections to the server.
#[test]
fn a_pool_that_leaks_is_found_out() {
    let server = server();
    let mut missing = vec![Kind::ForeignState, Kind::ForeignRow, Kind::LostState];
    for _ in 0..5 {
        let peer = Pgbouncer::trusting(&server, PoolMode::Transaction, 5);
        let report = torture(peer.address.tcp().port(), 30, Duration::from_secs(6));
        missing.retain(|kind| report.count(*kind) == 0);
        if missing.is_empty() {
            return;
        }
    }
    panic!("not found in five rounds: {missing:?}");
}

/// Weir with few connections for many clients, on two workers.
#[test]
fn weir_in_transaction_mode_mixes_nothing_up() {
    let server = server();
    let config = Config::to(&server.address).workers(2).listener("[listener.postgres]\nauth = \"trust\"");
    // Logins of a busy machine are slow, and nothing that is looked for here.
    let config = config.upstream("connect_timeout = \"10s\"\n[upstream.postgres]\npool_size = 10");
    let gateway = Gateway::start(Config { protocol: "postgres", ..config });
    let duration = soak::requested_duration().unwrap_or(Duration::from_secs(10));
    let report = torture(gateway.address.tcp().port(), 60, duration);
    assert!(report.findings.is_empty(), "{report}");
    gateway.finish();
}

/// A pool that lends a connection for a whole session, and resets it, keeps all sessions apart. It loses the application's name at
/// `RESET ALL`: that is not foreign.
#[test]
fn a_pool_in_session_mode_mixes_nothing_up() {
    let server = server();
    let peer = Pgbouncer::trusting(&server, PoolMode::Session, 60);
    let report = torture(peer.address.tcp().port(), 30, Duration::from_secs(6));
    for kind in [Kind::ForeignState, Kind::ForeignRow, Kind::WrongUser, Kind::WrongStatus, Kind::WrongCount] {
        assert_eq!(report.count(kind), 0, "{kind:?}: {report}");
    }
}
