//! Whole runs of PostgreSQL against the lab's origin, and against servers that do not do as they should.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use weir_base::secret::Secret;
use weir_engine::settings::Address;
use weir_load::{StepRecord, scenario};
use weir_origin::postgres::{Origin, PostgresOriginSettings, start};
use weir_postgres_codec::backend::{self, ErrorReport, TransactionStatus};

const FORMS: [&str; 3] = ["simple", "extended", "prepared"];

fn origin(settings: PostgresOriginSettings) -> (Origin, Address) {
    let origin = start(settings).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

fn scenario(head: &str, phase: &str) -> scenario::Scenario {
    let source = format!("name = \"test\"\nprotocol = \"postgres\"\n{head}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n");
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Runs to the end; every request that was intended has ended in exactly one way.
fn record(head: &str, phase: &str, target: &Address) -> StepRecord {
    crate::record::record(&scenario(head, phase), target).expect("a whole run")
}

#[test]
fn an_open_loop_completes_its_schedule_and_checks_every_row() {
    for form in FORMS {
        let (origin, target) = origin(PostgresOriginSettings { workers: 2, ..Default::default() });
        let head = format!(
            "connections = 4\nshards = 2\narrival = \"deterministic\"\npipeline = 4\npostgres.query = \"{form}\""
        );
        let record = record(&head, "rate = 400\nduration = \"1s\"", &target);
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (400, 400), "{form}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (400, 0), "{form}: {counts:?}");
        assert_eq!((record.load.pipeline, origin.stats().accepted), (4, 4), "{form}");
        assert!(origin.stats().requests >= 400, "{form}: {:?}", origin.stats());
    }
}

#[test]
fn a_delay_of_the_origin_is_the_latency_and_bounds_a_closed_loop() {
    let (_origin, target) = origin(PostgresOriginSettings { delay: Duration::from_millis(20), ..Default::default() });
    let record = record("mode = \"closed\"\nconnections = 2\npipeline = 4", "duration = \"1s\"", &target);
    // Eight under way, each for at least 20 ms: not more than 400 in a second.
    assert!((20..=420).contains(&record.counts.completed), "{:?}", record.counts);
    assert!(record.latency.service.min >= Some(19_900), "{:?}", record.latency.service.min);
    assert_eq!(record.counts.errors.total(), 0);
}

#[test]
fn a_password_is_proven_by_scram_or_the_run_ends_before_any_load() {
    let password = Some(Secret::from("secret"));
    let (_origin, target) = origin(PostgresOriginSettings { password, ..Default::default() });
    let run = |lines: &str| {
        let scenario = scenario(&format!("connections = 2\n{lines}"), "rate = 100\nduration = \"200ms\"");
        crate::record::record(&scenario, &target).map_err(|error| error.to_string())
    };
    let record = run("postgres = { password = \"secret\", query = \"prepared\" }").expect("a whole run");
    assert_eq!((record.counts.completed, record.counts.integrity.failed), (record.counts.intended, 0));
    let refusal = run("postgres.password = \"other\"").expect_err("a wrong password");
    assert!(refusal.contains("28P01") && refusal.contains("password authentication failed"), "{refusal}");
    let refusal = run("").expect_err("no password");
    assert!(refusal.contains("it wants a password; write postgres.password"), "{refusal}");
}

/// A server that lets everybody in, and answers each chunk with `reply`.
fn server(reply: Vec<u8>) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let reply = reply.clone();
            thread::spawn(move || {
                let mut welcome = Vec::new();
                backend::authentication_ok(&mut welcome);
                backend::ready_for_query(&mut welcome, TransactionStatus::Idle);
                let mut next = &welcome;
                let mut buffer = [0; 4_096];
                while let Ok(1..) = stream.read(&mut buffer) {
                    if stream.write_all(next).is_err() {
                        return;
                    }
                    next = &reply;
                }
            });
        }
    });
    Address::Socket(address)
}

#[test]
fn a_foreign_row_is_a_failure() {
    let mut reply = Vec::new();
    backend::data_row(&mut reply, [Some(&b"0"[..]), Some(b"0")]);
    backend::command_complete(&mut reply, b"SELECT 1");
    backend::ready_for_query(&mut reply, TransactionStatus::Idle);
    let counts = record("connections = 2", "rate = 100\nduration = \"500ms\"", &server(reply)).counts;
    assert_eq!((counts.errors.payload, counts.integrity.failed), (counts.intended, counts.intended), "{counts:?}");
    assert_eq!(counts.completed, 0);
}

#[test]
fn a_refusal_because_of_load_is_shed_and_another_error_an_error() {
    for (sqlstate, is_shed) in [("53300", true), ("42501", false)] {
        let mut reply = Vec::new();
        backend::error(&mut reply, &ErrorReport::error(sqlstate, "no"));
        backend::ready_for_query(&mut reply, TransactionStatus::Idle);
        let counts = record("connections = 2", "rate = 100\nduration = \"500ms\"", &server(reply)).counts;
        let ended = if is_shed { counts.shed_total() } else { counts.errors.total() };
        assert_eq!((ended, counts.completed), (counts.intended, 0), "{sqlstate}: {counts:?}");
    }
}

#[test]
fn a_transaction_is_one_request_of_seven_statements_in_every_form() {
    for form in FORMS {
        let (origin, target) = origin(PostgresOriginSettings::default());
        let head = format!(
            "connections = 4\nshards = 2\narrival = \"deterministic\"\npostgres = {{ script = \"tpcb-like\", query = \"{form}\" }}"
        );
        let record = record(&head, "rate = 200\nduration = \"1s\"", &target);
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (200, 200), "{form}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (200, 0), "{form}: {counts:?}");
        assert!(origin.stats().requests >= 7 * 200, "{form}: {:?}", origin.stats());
    }
}

#[test]
fn with_churn_each_request_has_a_connection_and_a_login_of_its_own() {
    let password = Some(Secret::from("secret"));
    let (origin, target) = origin(PostgresOriginSettings { password, ..Default::default() });
    let head =
        "connections = 20\nshards = 2\narrival = \"deterministic\"\nchurn = true\npostgres.password = \"secret\"";
    let record = record(head, "rate = 100\nduration = \"1s\"", &target);
    let counts = &record.counts;
    assert_eq!((counts.intended, counts.completed), (100, 100), "{counts:?}");
    assert_eq!((counts.integrity.checked, counts.integrity.failed), (100, 0), "{counts:?}");
    // Two shards have looked at the target first, and the warm-up is a tenth of a second.
    assert!(origin.stats().accepted >= 100 + 2, "{:?}", origin.stats());
    assert!(record.latency.service.min > Some(0), "{:?}", record.latency.service.min);
}

#[test]
fn with_churn_an_open_loop_sees_a_target_that_is_slower_than_its_schedule() {
    let (_origin, target) = origin(PostgresOriginSettings { delay: Duration::from_millis(100), ..Default::default() });
    // Two at a time, each with a login and a request of 100 ms at least: not more than 20 in a second.
    let record =
        record("connections = 2\nchurn = true\nlate_limit = \"200ms\"", "rate = 100\nduration = \"1s\"", &target);
    let counts = &record.counts;
    assert!(counts.completed > 0 && counts.completed <= 30, "{counts:?}");
    assert!(counts.skipped_backlog > 50, "{counts:?}");
    assert_eq!(counts.errors.total(), counts.errors.timeout, "{counts:?}");
}
