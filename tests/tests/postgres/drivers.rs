//! Every driver, directly and through gateways. The outcomes are compared check by check, and what differs with a written list.

use std::sync::OnceLock;

use weir_tests::gateway::{Config, Gateway};
use weir_tests::postgres::drivers::{Driver, list_file, of_checks, run};
use weir_tests::postgres::{Major, PASSWORD, Pgbouncer, PoolMode, Postgres, USER};
use weir_tests::suite::bounded::tail;
use weir_tests::suite::list::List;
use weir_tests::suite::outcome::{TestOutcome, TestOutcomes};
use weir_tests::suite::verdict::judge;

/// Server connections of a pool in session mode. Some checks hold sixty connections at a time.
const SESSIONS: u32 = 80;

/// All checks against PostgreSQL 15 itself, which every gateway is compared with.
fn direct() -> &'static TestOutcomes {
    static DIRECT: OnceLock<TestOutcomes> = OnceLock::new();
    DIRECT.get_or_init(|| {
        let server = Postgres::start(Major::Fifteen);
        run(&Driver::ALL, &server, server.port())
    })
}

/// At least `least` checks ran, and all hold.
fn holds(outcomes: &TestOutcomes, least: usize) {
    assert!(outcomes.problems.is_empty(), "{}", outcomes.problems.join("\n"));
    let passed = |end: &TestOutcome| *end == TestOutcome::Passed;
    let failed: Vec<_> = outcomes.tests.iter().filter(|(_, end)| !passed(end)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(outcomes.tests.len() >= least, "only {} checks", outcomes.tests.len());
}

/// The outcomes of these drivers.
fn only(outcomes: &TestOutcomes, drivers: &[Driver]) -> TestOutcomes {
    let is_of = |name: &str| drivers.iter().any(|driver| name.starts_with(&format!("{}: ", driver.name())));
    let tests = outcomes.tests.iter().filter(|(name, _)| is_of(name));
    TestOutcomes { tests: tests.map(|(name, end)| (name.clone(), end.clone())).collect(), problems: Vec::new() }
}

/// Compares the checks of `drivers` through a gateway with its list; `through` runs the checks of some drivers. A difference
/// counts if a second run repeats it: some checks depend on the time that a loaded machine takes.
fn differs_as_listed(gateway: &str, drivers: &[Driver], through: impl Fn(&[Driver]) -> TestOutcomes) {
    let file = list_file(gateway);
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let list = List::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut verdict = judge(&list, &only(direct(), drivers), &through(drivers), false);
    let again = of_checks(verdict.tests());
    if !again.is_empty() {
        let once = verdict.confirm(judge(&list, &only(direct(), &again), &through(&again), true));
        for problem in once.first.iter().chain(&once.second) {
            eprintln!("{gateway}: only in one of two runs: {}", problem.text);
        }
    }
    verdict.check_count(&list);
    let problems: Vec<&str> = verdict.problems.iter().map(|problem| problem.text.as_str()).collect();
    assert!(problems.is_empty(), "{}:\n{}", file.display(), problems.join("\n"));
    assert_eq!((verdict.tests, verdict.skipped), (list.tests, list.skipped), "the counts of {}", file.display());
}

#[test]
fn every_check_holds_directly() {
    holds(direct(), 230);
}

/// It reports `search_path`, and knows a newer protocol.
#[test]
fn every_check_holds_with_the_newest_server() {
    let server = Postgres::start(Major::Eighteen);
    holds(&run(&Driver::ALL, &server, server.port()), 230);
}

/// Few server connections for all clients, on two workers: servers go from one to the other.
fn weir(server: &Postgres) -> Gateway {
    let secret = "{ env = \"WEIR_TEST_PASSWORD\" }";
    let listener = format!("[[listener.user]]\nname = \"{USER}\"\npassword = {secret}");
    let upstream = format!("[upstream.postgres]\nuser = \"{USER}\"\npassword = {secret}\npool_size = 20");
    let mut config = Config::to(&server.address).workers(2).listener(&listener).upstream(&upstream);
    config.environment.push(("WEIR_TEST_PASSWORD".into(), PASSWORD.into()));
    Gateway::start(Config { protocol: "postgres", ..config })
}

#[test]
fn weir_in_transaction_mode_differs_as_its_list_says() {
    let server = Postgres::start(Major::Fifteen);
    let gateway = weir(&server);
    let port = gateway.address.tcp().port();
    differs_as_listed("weir", &Driver::ALL, |drivers| run(drivers, &server, port));
    gateway.finish();
}

/// The drivers that differ most: all statements prepared, a pipeline, portals, pg_dump of the same major.
const BEFORE_THE_NEWEST: [Driver; 4] = [Driver::Asyncpg, Driver::Psycopg3, Driver::Jdbc, Driver::Programs];

#[test]
fn every_check_holds_with_weir_in_front_of_the_newest_server() {
    let server = Postgres::start(Major::Eighteen);
    let gateway = weir(&server);
    let port = gateway.address.tcp().port();
    holds(&run(&BEFORE_THE_NEWEST, &server, port), 80);
    gateway.finish();
}

/// The comparison itself is tested: PgBouncer 1.18 refuses what its list says, and in session mode nothing else. Each driver has
/// a PgBouncer of its own.
#[test]
fn pgbouncer_in_session_mode_differs_as_its_list_says() {
    let server = Postgres::start(Major::Fifteen);
    let drivers = [Driver::Psycopg3, Driver::Jdbc, Driver::Asyncpg, Driver::Node, Driver::Pgx];
    differs_as_listed("pgbouncer", &drivers, |drivers| {
        let mut all = TestOutcomes::default();
        for driver in drivers {
            let mut peer = Pgbouncer::before(&server, PoolMode::Session, SESSIONS, "");
            let outcomes = run(&[*driver], &server, peer.address.tcp().port());
            let log = peer.process().log();
            assert!(peer.process().try_wait().is_none(), "PgBouncer has ended: {}", tail(&log, 20));
            all.tests.extend(outcomes.tests);
            all.problems.extend(outcomes.problems);
        }
        all
    });
}

/// In transaction mode it lends a connection with the settings, temporary tables and locks of another client: the checks say so.
#[test]
fn the_checks_find_the_leaks_of_pgbouncer_in_transaction_mode() {
    let server = Postgres::start(Major::Fifteen);
    let peer = Pgbouncer::before(&server, PoolMode::Transaction, 20, "");
    let outcomes = run(&[Driver::Psycopg3, Driver::Jdbc], &server, peer.address.tcp().port());
    let leaks = [
        "psycopg 3: settings last over transactions and are ones own",
        "psycopg 3: temporary tables last as long as the connection",
        "psycopg 3: advisory locks exclude and end with the connection",
        "psycopg 3: notifications arrive from others and oneself",
        "JDBC: settings last over transactions",
        "JDBC: the schema of a connection",
    ];
    for name in leaks {
        let outcome = outcomes.tests.get(name);
        assert!(matches!(outcome, Some(TestOutcome::Failed(_))), "{name}: {outcome:?}; {:?}", outcomes.problems);
    }
}
