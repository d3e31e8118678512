//! Whole runs of MongoDB against the lab's origin, and against servers that do not do as they should.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use weir_base::secret::Secret;
use weir_engine::settings::Address;
use weir_load::{StepRecord, scenario};
use weir_mongodb_codec::Header;
use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::message::{self, Flags, Ids};
use weir_origin::mongodb::{Face, MongodbOriginSettings, Origin, start};

fn origin(settings: MongodbOriginSettings) -> (Origin, Address) {
    let origin = start(settings).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

fn scenario(head: &str, phase: &str) -> scenario::Scenario {
    let source = format!("name = \"test\"\nprotocol = \"mongodb\"\n{head}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n");
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Runs to the end; every request that was intended has ended in exactly one way.
fn record(head: &str, phase: &str, target: &Address) -> StepRecord {
    crate::record::record(&scenario(head, phase), target).expect("a whole run")
}

#[test]
fn an_open_loop_completes_its_schedule_and_checks_every_reply() {
    for mongodb in [
        "",
        "mongodb.operation = \"insert\"",
        "mongodb.operation = \"mixed\"",
        "mongodb.compressor = \"snappy\"",
        "mongodb = { compressor = \"zlib\", operation = \"mixed\" }",
        "mongodb.compressor = \"zstd\"",
        "payload.size = \"64KiB\"",
    ] {
        let (origin, target) = origin(MongodbOriginSettings { workers: 2, ..Default::default() });
        let head = format!("connections = 4\nshards = 2\narrival = \"deterministic\"\npipeline = 4\n{mongodb}");
        let record = record(&head, "rate = 400\nduration = \"1s\"", &target);
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (400, 400), "{mongodb}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (400, 0), "{mongodb}: {counts:?}");
        assert_eq!((record.load.pipeline, origin.stats().accepted), (4, 4), "{mongodb}");
        assert!(origin.stats().requests >= 400, "{mongodb}: {:?}", origin.stats());
    }
}

#[test]
fn a_delay_of_the_origin_is_the_latency_and_bounds_a_closed_loop() {
    let (_origin, target) = origin(MongodbOriginSettings { delay: Duration::from_millis(20), ..Default::default() });
    let record = record("mode = \"closed\"\nconnections = 2\npipeline = 4", "duration = \"1s\"", &target);
    // Eight under way, each for at least 20 ms: not more than 400 in a second.
    assert!((20..=420).contains(&record.counts.completed), "{:?}", record.counts);
    assert!(record.latency.service.min >= Some(19_900), "{:?}", record.latency.service.min);
    assert_eq!(record.counts.errors.total(), 0);
}

#[test]
fn a_password_is_proven_by_scram_or_the_run_ends_before_any_load() {
    let password = Some(Secret::from("secret"));
    let (_origin, target) = origin(MongodbOriginSettings { password, ..Default::default() });
    let run = |lines: &str| {
        let scenario = scenario(&format!("connections = 2\n{lines}"), "rate = 100\nduration = \"200ms\"");
        crate::record::record(&scenario, &target).map_err(|error| error.to_string())
    };
    for mechanism in ["scram-sha-256", "scram-sha-1"] {
        let record = run(&format!("mongodb = {{ password = \"secret\", mechanism = \"{mechanism}\" }}"));
        let record = record.expect("a whole run");
        assert_eq!((record.counts.completed, record.counts.integrity.failed), (record.counts.intended, 0));
    }
    let refusal = run("mongodb.password = \"other\"").expect_err("a wrong password");
    assert!(refusal.contains("18 AuthenticationFailed: Authentication failed."), "{refusal}");
}

#[test]
fn a_server_of_another_kind_than_the_scenario_needs_ends_the_run() {
    let compressors = Vec::new();
    let (_origin, target) = origin(MongodbOriginSettings { compressors, ..Default::default() });
    let run = |lines: &str| {
        let scenario = scenario(&format!("connections = 2\n{lines}"), "rate = 100\nduration = \"200ms\"");
        crate::record::record(&scenario, &target).expect_err(lines).to_string()
    };
    let refusal = run("mongodb.compressor = \"zstd\"");
    assert!(refusal.contains("it does not offer the compressor zstd"), "{refusal}");
    let refusal = run("mongodb.load_balanced = true");
    assert!(refusal.contains("its hello has no serviceId"), "{refusal}");
    let (_origin, target) = origin(MongodbOriginSettings { face: Face::LoadBalancer, ..Default::default() });
    let counts = record("mongodb.load_balanced = true", "rate = 100\nduration = \"500ms\"", &target).counts;
    assert_eq!((counts.completed, counts.integrity.failed), (counts.intended, 0), "{counts:?}");
}

/// A server that says hello, and answers each request with the fields that `write` writes. The reply names the message that `names` gives.
fn server(names: fn(i32) -> i32, write: fn(&mut Writer<'_>)) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut received, mut buffer) = (Vec::new(), [0; 4_096]);
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..count]);
                    let mut out = Vec::new();
                    while let Ok(Some(header)) = Header::read(&received)
                        && received.len() >= header.bytes
                    {
                        received.drain(..header.bytes);
                        let is_hello = header.request < 0;
                        let response_to = if is_hello { header.request } else { names(header.request) };
                        message::write(&mut out, Ids { request: 1, response_to }, Flags::empty(), |body| {
                            if is_hello {
                                body.double("ok", 1.0);
                            } else {
                                write(body);
                            }
                        });
                    }
                    if stream.write_all(&out).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Address::Socket(address)
}

fn documents(body: &mut Writer<'_>, id: i64) {
    body.document("cursor", |body| {
        body.array("firstBatch", [id], |array, name, id| array.document(name, |document| document.int64("_id", id)));
        body.int64("id", 0);
        body.string("ns", "lab.documents");
    });
    body.double("ok", 1.0);
}

#[test]
fn a_foreign_document_and_a_foreign_reply_are_failures() {
    let one = "connections = 2\nmongodb.documents = 1";
    let counts = record(one, "rate = 100\nduration = \"500ms\"", &server(|id| id, |body| documents(body, 1))).counts;
    assert_eq!((counts.completed, counts.integrity.failed), (counts.intended, 0), "{counts:?}");
    for target in [server(|id| id, |body| documents(body, 2)), server(|id| id + 1, |body| documents(body, 1))] {
        let counts = record(one, "rate = 100\nduration = \"500ms\"", &target).counts;
        assert_eq!((counts.errors.payload, counts.integrity.failed), (counts.intended, counts.intended), "{counts:?}");
        assert_eq!(counts.completed, 0);
    }
}

#[test]
fn a_refusal_because_of_load_is_shed_and_another_error_an_error() {
    fn refuse(body: &mut Writer<'_>, code: i32) {
        body.double("ok", 0.0);
        body.string("errmsg", "no");
        body.int32("code", code);
    }
    for (target, is_shed) in
        [(server(|id| id, |body| refuse(body, 462)), true), (server(|id| id, |body| refuse(body, 13)), false)]
    {
        let counts = record("connections = 2", "rate = 100\nduration = \"500ms\"", &target).counts;
        let ended = if is_shed { counts.shed_total() } else { counts.errors.total() };
        assert_eq!((ended, counts.completed), (counts.intended, 0), "{is_shed}: {counts:?}");
    }
}

#[test]
fn with_churn_each_request_has_a_connection_and_a_login_of_its_own() {
    let password = Some(Secret::from("secret"));
    let (origin, target) = origin(MongodbOriginSettings { password, ..Default::default() });
    let head = "connections = 20\nshards = 2\narrival = \"deterministic\"\nchurn = true\nmongodb.password = \"secret\"";
    let record = record(head, "rate = 100\nduration = \"1s\"", &target);
    let counts = &record.counts;
    assert_eq!((counts.intended, counts.completed), (100, 100), "{counts:?}");
    assert_eq!((counts.integrity.checked, counts.integrity.failed), (100, 0), "{counts:?}");
    // Two shards have looked at the target first, and the warm-up is a tenth of a second.
    assert!(origin.stats().accepted >= 100 + 2, "{:?}", origin.stats());
}
