//! PostgreSQL: a load is sent and checked, by one process or several, and other gateways carry it.

use std::fs;
use std::path::Path;
use std::sync::mpsc;

use serde_json::Value;
use weir_engine::settings::Address;
use weir_load::{Event, StepRecord, scenario};
use weir_origin::postgres::{PostgresOriginSettings, start};
use weir_parties::Peer;
use weir_parties::peer::Setting;

use weir_tests::postgres::{Major, Postgres, prepare};

use super::{Bench, Origin, number, word};

fn scenario(query: &str) -> String {
    format!(
        "name = \"postgres-small\"\nprotocol = \"postgres\"\narrival = \"deterministic\"\nlate_limit = \"20s\"\n\
         shards = 2\nconnections = 8\n\
         postgres.query = \"{query}\"\n[[phase]]\nrate = 500\nwarmup = \"200ms\"\nduration = \"1s\"\n"
    )
}

#[test]
fn every_row_is_checked_by_one_process_or_two() {
    for (query, processes) in [("simple", "1"), ("prepared", "2")] {
        let bench = Bench::new(&scenario(query));
        let origin = Origin::of("postgres", &["--workers", "2"]);
        let load = ["lab", "load", "scenario.toml", "--target", &origin.address, "--processes", processes];
        let output = bench.weir(&[], &[&load[..], &["--json", "load.jsonl"]].concat());
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
        let text = fs::read_to_string(bench.path("load.jsonl")).expect("a result");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        for path in ["/counts/intended", "/counts/completed", "/counts/integrity/checked"] {
            assert_eq!(number(&record, path), 500.0, "{processes} processes: {path} in\n{told}");
        }
        assert_eq!(number(&record, "/counts/integrity/failed"), 0.0, "{told}");
        assert_eq!(word(&record, "/load/payload"), "one row");
    }
}

/// The first phase of a scenario, sent by this process.
fn sent(source: &str, target: &Address) -> StepRecord {
    let scenario = scenario::parse("scenario.toml", source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let (events, told) = mpsc::channel();
    weir_load::run(&scenario, target, &events).unwrap_or_else(|error| panic!("{error}"));
    drop(events);
    let record = |event| if let Event::Step { record, .. } = event { Some(*record) } else { None };
    told.into_iter().find_map(record).expect("a record")
}

#[test]
fn pgbouncer_and_pgpool_carry_postgresql_without_a_wrong_row() {
    let origin = start(PostgresOriginSettings::default()).expect("an origin");
    let origins = [origin.addresses()[0].to_string()];
    for (name, queries) in [("pgbouncer", &["simple", "extended"][..]), ("pgpool", &["simple", "extended", "prepared"])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let gateway = started(name, &origins, folder.path());
        for query in queries {
            let before = origin.stats().requests;
            let target = Address::Socket(([127, 0, 0, 1], gateway.port).into());
            let counts = sent(&scenario(query), &target).counts;
            assert_eq!((counts.intended, counts.completed), (500, 500), "{name} {query}: {counts:?}");
            assert_eq!((counts.integrity.checked, counts.integrity.failed), (500, 0), "{name} {query}: {counts:?}");
            assert!(origin.stats().requests - before >= 500, "{name} {query}: the origin has answered");
        }
    }
}

/// A gateway that the lab knows, in front of the origin.
fn started(name: &str, origins: &[String], folder: &Path) -> weir_parties::peer::Running {
    let peer = Peer::built_in(name).expect("the lab knows it");
    let setting = Setting {
        origins,
        workers: 1,
        connections: 16,
        path: "/",
        cpus: None,
        share: None,
        program: None,
        login: None,
    };
    peer.start(&setting, folder).unwrap_or_else(|error| panic!("{error:#}"))
}

/// A closed loop that pgbench can send.
fn closed(more: &str) -> String {
    format!(
        "name = \"postgres-closed\"\nprotocol = \"postgres\"\nmode = \"closed\"\nintegrity = false\nconnections = 4\n{more}\n\
         [[phase]]\nname = \"closed\"\nwarmup = \"0s\"\nduration = \"1s\"\n"
    )
}

/// One short block: its page and its result. Whether the machine was fit decides on no test.
fn compared(bench: &Bench, words: &[&str]) -> (String, Value) {
    let output = bench.compare(&[words, &["--blocks", "1", "--seconds", "1", "--json", "found.json"]].concat());
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("found.json")).expect("a result");
    (told, serde_json::from_str(&text).expect("JSON"))
}

/// Each arm has completed requests in both runs, and a gateway has its cost.
fn assert_completed(told: &str, result: &Value, arms: &[&str]) {
    for arm in arms {
        for run in 0..2 {
            let at = |path: &str| format!("/rows/0/blocks/0/runs/{arm}/{run}/trial/{path}");
            assert!(number(result, &at("completed")) > 10.0, "{arm}\n{told}");
            let cost = result.pointer(&at("parties/gateway_cpu_us_per_req")).and_then(Value::as_f64);
            assert_eq!(cost.is_some_and(|micros| micros > 0.1), *arm != "direct", "{arm}: {cost:?}\n{told}");
        }
    }
}

#[test]
fn pgbench_loads_the_gateways_in_clear_text_and_in_tls_and_names_what_it_cannot() {
    let bench = Bench::new(&closed("postgres.script = \"tpcb-like\""));
    let (told, result) = compared(&bench, &["--load", "pgbench", "--peers", "pgbouncer,floor,direct"]);
    assert_completed(&told, &result, &["weir", "pgbouncer", "floor-http", "direct"]);
    assert!(word(&result, "/rows/0/load").contains("-b tpcb-like -M simple"), "{told}");
    assert_eq!(word(&result, "/load/name"), "pgbench");
    fs::write(bench.path("scenario.toml"), closed("")).expect("written");
    let (told, result) = compared(&bench, &["--load", "pgbench", "--tls", "--peers", "pgbouncer"]);
    assert_completed(&told, &result, &["weir", "pgbouncer"]);
    assert!(told.contains("clients speak TLS") && word(&result, "/rows/0/load").contains("sslmode=require"), "{told}");
    // PgBouncer 1.18 forgets prepared statements: it is named with its reason, and the others are compared.
    fs::write(bench.path("scenario.toml"), closed("postgres.query = \"prepared\"")).expect("written");
    let (told, result) = compared(&bench, &["--load", "pgbench", "--peers", "pgbouncer,pgbouncer-session"]);
    assert_completed(&told, &result, &["weir", "pgbouncer-session"]);
    let reason = word(&result, "/failed/0/reason");
    assert!(word(&result, "/failed/0/arm") == "pgbouncer" && reason.contains("prepared statement"), "{told}");
}

#[test]
fn a_storm_of_logins_is_checked_by_each_gateway() {
    let storm = "name = \"storm\"\nprotocol = \"postgres\"\narrival = \"deterministic\"\nconnections = 20\nchurn = true\n\
                 postgres.password = \"a password\"\n\
                 [[phase]]\nname = \"storm\"\nrate = 40\nwarmup = \"0s\"\nduration = \"1s\"\n";
    let bench = Bench::new(storm);
    let (told, result) = compared(&bench, &["--peers", "pgbouncer,pgpool"]);
    for arm in ["weir", "pgbouncer"] {
        let at = |path: &str| format!("/rows/0/blocks/0/runs/{arm}/0/trial/{path}");
        assert_eq!(number(&result, &at("completed")), 40.0, "{arm}\n{told}");
    }
    assert!(told.contains("auth = \"scram-sha-256\"") && told.contains("auth_type = scram-sha-256"), "{told}");
    let reason = word(&result, "/missing/0/reason");
    assert!(word(&result, "/missing/0/name") == "pgpool" && reason.contains("`config.scram`"), "{told}");
}

#[test]
fn transactions_of_a_real_server_leave_balances_that_agree_or_the_run_fails() {
    let server = Postgres::start(Major::Fifteen);
    prepare(&server, "app", 1);
    let tpcb = "name = \"tpcb\"\nprotocol = \"postgres\"\nconnections = 4\npostgres = { script = \"tpcb-like\", query = \
                \"extended\", user = \"app\", password = \"test-password\" }\n\
                [[phase]]\nrate = 50\nwarmup = \"0s\"\nduration = \"1s\"\n";
    let bench = Bench::new(tpcb);
    let target = server.address.tcp().to_string();
    let load = || bench.weir(&[], &["lab", "load", "scenario.toml", "--target", &target, "--json", "load.jsonl"]);
    let output = load();
    let told = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&told));
    let written = server.sql_in("app", "select count(*) from pgbench_history");
    let text = fs::read_to_string(bench.path("load.jsonl")).expect("a result");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(number(&record, "/counts/completed").to_string(), written, "each request is one transaction");
    server.sql_in("app", "update pgbench_tellers set tbalance = tbalance + 1 where tid = 7");
    let output = load();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("the balances do not agree"), "{told}");
}
