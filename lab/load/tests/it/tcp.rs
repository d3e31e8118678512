//! Whole runs of TCP against the lab's origin, and against servers that do not do as they should.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use weir_engine::settings::Address;
use weir_load::{StepRecord, scenario};
use weir_origin::tcp::{Origin, TcpOriginSettings, start};

fn origin(delay: Duration) -> (Origin, Address) {
    let origin = start(TcpOriginSettings { delay, ..TcpOriginSettings::default() }).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

/// Runs to the end; every request that was intended has ended in exactly one way.
fn record(head: &str, phase: &str, target: &Address) -> StepRecord {
    let source = format!("name = \"test\"\nprotocol = \"tcp\"\n{head}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n");
    let scenario = scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    crate::record::record(&scenario, target).expect("a whole run")
}

#[test]
fn an_open_loop_completes_its_schedule_and_checks_it() {
    for size in ["10B", "100KiB"] {
        let (origin, target) = origin(Duration::ZERO);
        let head = format!(
            "connections = 4\nshards = 2\narrival = \"deterministic\"\npipeline = 4\npayload.size = \"{size}\""
        );
        let record = record(&head, "rate = 400\nduration = \"1s\"", &target);
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (400, 400), "{size}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (400, 0), "{size}: {counts:?}");
        assert_eq!((record.load.pipeline, record.load.streams, origin.stats().accepted), (4, None, 4));
    }
}

#[test]
fn a_delay_of_the_origin_is_the_latency_and_bounds_a_closed_loop() {
    let (_origin, target) = origin(Duration::from_millis(20));
    let record = record("mode = \"closed\"\nconnections = 2\npipeline = 4", "duration = \"1s\"", &target);
    // Eight under way, each for at least 20 ms: not more than 400 in a second.
    let completed = record.counts.completed;
    assert!((20..=420).contains(&completed), "{completed}");
    assert!(record.latency.service.min >= Some(19_900), "{:?}", record.latency.service.min);
    assert_eq!(record.counts.errors.total(), 0);
}

/// A server that replies with as many bytes as it reads, each one higher.
fn forger() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4_096];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    buffer[..count].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                    if stream.write_all(&buffer[..count]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Address::Socket(address)
}

#[test]
fn other_bytes_than_those_that_were_sent_are_failures() {
    let counts = record("connections = 2", "rate = 200\nduration = \"500ms\"", &forger()).counts;
    assert_eq!((counts.errors.payload, counts.integrity.failed), (counts.intended, counts.intended), "{counts:?}");
    assert_eq!(counts.completed, 0);
}
