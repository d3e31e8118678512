//! Feature flags: a load is sent and checked, by one process or several, directly and through the gateway, and a comparison shows the cost
//! of the gateway.

use std::fs;
use std::path::Path;

use serde_json::Value;
use weir_parties::Peer;
use weir_parties::peer::{Running, Setting, Telemetry};
use weir_tests::gateway::program;

use super::{Bench, Origin, number, word};

/// An open loop of 200 requests in a second.
fn scenario(flags: &str) -> String {
    format!(
        "name = \"flags-small\"\nprotocol = \"flags\"\narrival = \"deterministic\"\nlate_limit = \"20s\"\nshards = 2\nconnections = 8\n\
         [flags]\n{flags}\n[[phase]]\nrate = 200\nwarmup = \"200ms\"\nduration = \"1s\"\n"
    )
}

/// The record of a load that ends well.
fn loaded(bench: &Bench, target: &str, processes: &str) -> Value {
    let load = ["lab", "load", "scenario.toml", "--target", target, "--processes", processes, "--json", "load.jsonl"];
    // Lines are added to a file that is there.
    let _ = fs::remove_file(bench.path("load.jsonl"));
    let output = bench.weir(&[], &load);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("load.jsonl")).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

fn assert_whole(record: &Value, case: &str) {
    for path in ["/counts/intended", "/counts/completed", "/counts/integrity/checked"] {
        assert_eq!(number(record, path), 200.0, "{case}: {path} in {record}");
    }
    assert_eq!(number(record, "/counts/integrity/failed"), 0.0, "{case}: {record}");
}

#[test]
fn every_response_of_the_origin_is_checked_by_one_process_or_two() {
    for (flags, processes, payload) in [
        ("data = \"large\"", "1", "350 flags"),
        ("data = \"small\"\nendpoint = \"frontend\"", "2", "5 flags"),
        ("data = \"small\"\nconditional = true", "2", "5 flags"),
    ] {
        let bench = Bench::new(&scenario(flags));
        let data = if payload == "5 flags" { "small" } else { "large" };
        let origin = Origin::of("flags", &["--workers", "2", "--data", data]);
        let record = loaded(&bench, &origin.address, processes);
        assert_whole(&record, flags);
        assert_eq!(word(&record, "/load/payload"), payload);
    }
}

#[test]
fn a_load_that_expects_other_flags_than_the_origin_has_fails() {
    let gated = scenario("data = \"large\"").replacen("shards = 2", "shards = 2\nthreshold = [\"errors<1%\"]", 1);
    let bench = Bench::new(&gated);
    let origin = Origin::of("flags", &["--data", "small"]);
    let words = ["lab", "load", "scenario.toml", "--target", &origin.address, "--json", "load.jsonl"];
    let output = bench.weir(&[], &words);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let text = fs::read_to_string(bench.path("load.jsonl")).expect("a result");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(number(&record, "/counts/completed"), 0.0, "{record}");
    assert_eq!(number(&record, "/counts/errors/payload"), 200.0, "{record}");
}

/// This gateway as comparisons configure it, in front of an origin.
fn gateway(origin: &Origin, folder: &Path) -> Running {
    let peer = Peer::weir(Telemetry::On, "flags").expect("it speaks the protocol");
    let setting = Setting {
        origins: std::slice::from_ref(&origin.address),
        workers: 1,
        connections: 64,
        path: "/",
        cpus: None,
        share: None,
        program: Some(program()),
        login: None,
    };
    peer.start(&setting, folder).unwrap_or_else(|error| panic!("{error:#}"))
}

#[test]
fn the_gateway_gives_every_client_the_flags_of_the_set() {
    let origin = Origin::of("flags", &[]);
    let folder = tempfile::tempdir().expect("a folder");
    let gateway = gateway(&origin, folder.path());
    let target = format!("127.0.0.1:{}", gateway.port);
    for flags in [
        "",
        "gzip = true",
        "conditional = true",
        "endpoint = \"frontend\"",
        "endpoint = \"frontend\"\nmethod = \"post\"",
        "endpoint = \"frontend\"\ngzip = true",
        "endpoint = \"frontend\"\nconditional = true",
        "endpoint = \"frontend\"\ncontext = \"none\"",
    ] {
        let bench = Bench::new(&scenario(flags));
        assert_whole(&loaded(&bench, &target, "1"), flags);
    }
    // It has responded by itself: the origin got polls and a check of the tokens.
    let ledger = ledger(&origin.address);
    let polls = ledger["requests"]["features"].as_object().expect("polls");
    let polls: f64 = polls.values().filter_map(Value::as_f64).sum();
    assert!((1.0..20.0).contains(&polls), "{ledger}");
    assert!(number(&ledger, "/validate/tokens") >= 1.0, "{ledger}");
}

fn ledger(address: &str) -> Value {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).expect("connect");
    stream.write_all(b"GET /lab/ledger HTTP/1.0\r\n\r\n").expect("send");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("a response");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).expect("JSON")
}

#[test]
fn a_comparison_shows_the_cost_of_requests_that_the_gateway_serves_itself() {
    let closed = "name = \"flags-closed\"\nprotocol = \"flags\"\nmode = \"closed\"\nconnections = 4\n[flags]\nendpoint = \"frontend\"\n\
                  data = \"small\"\n[[phase]]\nname = \"closed\"\nwarmup = \"200ms\"\nduration = \"1s\"\n";
    let bench = Bench::new(closed);
    let words = ["--peers", "unleash-edge,direct", "--blocks", "1", "--seconds", "1", "--json", "found.json"];
    // Whether the peer is on this machine changes nothing about the others.
    let output = bench.compare(&words);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(bench.path("found.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    for arm in ["weir", "direct"] {
        for run in 0..2 {
            let at = |path: &str| format!("/rows/0/blocks/0/runs/{arm}/{run}/trial/{path}");
            let completed = number(&result, &at("completed"));
            assert!(completed > 100.0, "{arm}\n{shown}");
            assert_eq!(number(&result, &at("integrity/checked")), completed, "{arm}\n{shown}");
            let cost = result.pointer(&at("parties/gateway_cpu_us_per_req")).and_then(Value::as_f64);
            assert_eq!(cost.is_some_and(|micros| micros > 1.0), arm == "weir", "{arm}: {cost:?}\n{shown}");
        }
    }
    assert!(number(&result, "/direct_ceiling") > 100.0, "{shown}");
    assert!(shown.contains("protocol = \"flags\""), "the configuration of the gateway stands on the page\n{shown}");
}
