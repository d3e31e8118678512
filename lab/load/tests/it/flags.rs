//! Whole runs of feature flags against the lab's origin: every response is checked, and wrong ones are counted by their mistake.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use weir_engine::settings::Address;
use weir_load::{RunError, StepRecord, scenario};
use weir_origin::flags::{DataSet, FlagsOriginSettings, Origin, start};

use crate::record::record;

fn origin(data: DataSet) -> (Origin, SocketAddr) {
    let origin = start(FlagsOriginSettings { data, workers: 2, ..Default::default() }).expect("an origin");
    let address = origin.addresses()[0];
    (origin, address)
}

fn scenario(head: &str, flags: &str, phase: &str) -> scenario::Scenario {
    let source = format!(
        "name = \"test\"\nprotocol = \"flags\"\n{head}\n[flags]\n{flags}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n"
    );
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// A run of half a second with 100 requests.
fn run(address: SocketAddr, flags: &str) -> Result<StepRecord, RunError> {
    let head = "connections = 4\nshards = 2\narrival = \"deterministic\"";
    record(&scenario(head, flags, "rate = 200\nduration = \"500ms\""), &Address::Socket(address))
}

/// Sends a request to a path of the origin for tests.
fn control(address: SocketAddr, line: &str, body: &str) {
    let mut stream = TcpStream::connect(address).expect("connect");
    let length = body.len();
    let text = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("send");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
}

#[test]
fn every_kind_of_request_completes_and_every_response_is_checked() {
    for data in [DataSet::Small, DataSet::Large] {
        let (_origin, address) = origin(data);
        for flags in [
            "",
            "conditional = true",
            "gzip = true",
            "endpoint = \"frontend\"\ngzip = true",
            "endpoint = \"frontend\"",
            "endpoint = \"frontend\"\nmethod = \"post\"",
            "endpoint = \"frontend\"\ncontext = \"none\"",
            "endpoint = \"frontend\"\nconditional = true",
        ] {
            let flags = format!("data = \"{}\"\n{flags}", data.word());
            let counts = run(address, &flags).unwrap_or_else(|error| panic!("{flags}: {error}")).counts;
            assert_eq!((counts.intended, counts.completed), (100, 100), "{flags}: {counts:?}");
            assert_eq!((counts.integrity.checked, counts.integrity.failed), (100, 0), "{flags}: {counts:?}");
        }
    }
}

#[test]
fn a_closed_loop_and_one_with_a_connection_for_each_request_complete() {
    let (_origin, address) = origin(DataSet::Small);
    for head in ["mode = \"closed\"\nconnections = 4", "mode = \"closed\"\nconnections = 4\nchurn = true"] {
        let scenario = scenario(head, "data = \"small\"", "duration = \"500ms\"");
        let counts = record(&scenario, &Address::Socket(address)).expect("a whole run").counts;
        assert!(counts.completed > 20 && counts.errors.total() == 0, "{head}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (counts.completed, 0), "{head}: {counts:?}");
    }
}

#[test]
fn responses_that_are_not_right_are_counted_by_what_is_wrong() {
    let (_origin, address) = origin(DataSet::Small);
    let counts = |flags: &str| run(address, flags).expect("a whole run").counts;
    // The load expects 350 flags, and the origin has five.
    let other = counts("");
    assert_eq!((other.errors.payload, other.completed), (other.intended, 0), "{other:?}");
    // A flag that was edited is none of the set.
    control(address, "POST /lab/edit", "");
    let changed = counts("data = \"small\"");
    assert_eq!((changed.errors.payload, changed.completed), (changed.intended, 0), "{changed:?}");
    let failing = "{\"faults\":[{\"endpoint\":\"features\",\"status\":500}]}";
    control(address, "PUT /lab/faults", failing);
    let error = run(address, "data = \"small\"").expect_err("it has no flags").to_string();
    assert!(error.contains("status 500"), "{error}");
}

#[test]
fn a_target_that_has_no_flags_yet_gets_the_first_request_again() {
    let (_origin, address) = origin(DataSet::Small);
    let early = "{\"faults\":[{\"endpoint\":\"features\",\"times\":8,\"status\":503}]}";
    control(address, "PUT /lab/faults", early);
    let counts = run(address, "data = \"small\"").expect("a whole run").counts;
    assert_eq!((counts.completed, counts.errors.total()), (100, 0), "{counts:?}");
}

#[test]
fn a_document_that_changes_under_way_is_seen_by_conditional_requests() {
    let (_origin, address) = origin(DataSet::Small);
    let head = "connections = 2\narrival = \"deterministic\"";
    let phases = "rate = 100\nduration = \"300ms\"\n[[phase]]\nrate = 100\nwarmup = \"0s\"\nduration = \"1s\"";
    let scenario = scenario(head, "data = \"small\"\nconditional = true", phases);
    let changing = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(700));
        control(address, "POST /lab/edit", "");
    });
    let (events, received) = std::sync::mpsc::channel();
    weir_load::run(&scenario, &Address::Socket(address), &events).expect("a whole run");
    drop(events);
    changing.join().expect("changed");
    let counts: Vec<_> = received
        .into_iter()
        .filter_map(|event| if let weir_load::Event::Step { record, .. } = event { Some(record.counts) } else { None })
        .collect();
    assert!(counts[1].errors.status > 0, "whole responses came: {counts:?}");
}
