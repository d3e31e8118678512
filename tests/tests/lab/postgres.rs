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

use super::{Bench, Origin, number, word};

fn scenario(query: &str) -> String {
    format!(
        "name = \"postgres-small\"\nprotocol = \"postgres\"\narrival = \"deterministic\"\nshards = 2\nconnections = 8\n\
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
    let setting = Setting { origins, workers: 1, connections: 16, path: "/", cpus: None, share: None, program: None };
    peer.start(&setting, folder).unwrap_or_else(|error| panic!("{error:#}"))
}
