//! Whole runs of HTTP/1.1, HTTP/2 and WebSocket against the lab's origin, and against servers that do not do as they should.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use weir_engine::settings::Address;
use weir_load::scenario;

use crate::record::record;
use weir_origin::http::{HttpOriginSettings, Origin, start};

const PROTOCOLS: [&str; 3] = ["http1", "http2", "websocket"];

fn scenario(protocol: &str, head: &str, phase: &str) -> scenario::Scenario {
    let source =
        format!("name = \"test\"\nprotocol = \"{protocol}\"\n{head}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n");
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn origin(settings: HttpOriginSettings) -> (Origin, Address) {
    let origin = start(settings).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

/// The setting for several requests in flight on each connection.
fn depth(protocol: &str) -> &'static str {
    if protocol == "http2" { "streams = 4" } else { "pipeline = 4" }
}

#[test]
fn an_open_loop_completes_its_schedule_and_checks_it() {
    for protocol in PROTOCOLS {
        let (origin, target) = origin(HttpOriginSettings::default());
        let head = format!(
            "connections = 4\nshards = 2\narrival = \"deterministic\"\n{}\n\
             payload = [{{ size = 10, weight = 3 }}, {{ size = \"100KiB\" }}]",
            depth(protocol)
        );
        let scenario = scenario(protocol, &head, "rate = 1000\nduration = \"1s\"");
        let record = record(&scenario, &target).unwrap_or_else(|error| panic!("{protocol}: {error}"));
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (1_000, 1_000), "{protocol}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (1_000, 0), "{protocol}: {counts:?}");
        // A quarter of them has 100 KiB.
        assert!(record.wire.rx_bytes > 15 << 20, "{protocol}: {:?}", record.wire);
        // Those of the warm-up too.
        assert!(origin.stats().requests >= 1_100 && origin.stats().accepted == 4, "{protocol}: {:?}", origin.stats());
        let streams = (protocol == "http2").then_some(4);
        assert_eq!((record.load.mode.as_str(), record.load.streams), ("open", streams));
    }
}

#[test]
fn a_delay_of_the_origin_is_the_latency_and_bounds_a_closed_loop() {
    for protocol in PROTOCOLS {
        let (_origin, target) =
            origin(HttpOriginSettings { delay: Duration::from_millis(20), ..HttpOriginSettings::default() });
        let head = format!("mode = \"closed\"\nconnections = 2\n{}", depth(protocol));
        let record = record(&scenario(protocol, &head, "duration = \"1s\""), &target).expect("a whole run");
        // Eight under way, each for at least 20 ms: not more than 400 in a second.
        let completed = record.counts.completed;
        assert!((20..=420).contains(&completed), "{protocol}: {completed}");
        assert!(record.latency.service.min >= Some(19_900), "{protocol}: {:?}", record.latency.service.min);
        assert_eq!((record.load.mode.as_str(), record.counts.errors.total()), ("closed", 0), "{protocol}");
    }
}

#[test]
fn another_status_and_another_length_are_failures_of_their_own() {
    let (_origin, target) = origin(HttpOriginSettings::default());
    for protocol in ["http1", "http2"] {
        let failed = |head: &str| {
            let scenario = scenario(protocol, &format!("connections = 2\n{head}"), "rate = 200\nduration = \"500ms\"");
            record(&scenario, &target).expect("a whole run").counts
        };
        let counts = failed("request.path = \"/nothing\"");
        assert_eq!((counts.errors.status, counts.completed), (counts.intended, 0), "{protocol}: {counts:?}");
        let counts = failed("request.path = \"/99\"\npayload.size = 100");
        assert_eq!((counts.errors.payload, counts.integrity.failed), (counts.intended, counts.intended), "{protocol}");
        let counts = failed("request.path = \"/99\"\npayload.size = 99");
        assert_eq!(counts.completed, counts.intended, "{protocol}: {counts:?}");
    }
}

/// A server that reads something on each connection, says `response` and closes.
fn rude(response: &'static [u8]) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, response));
        }
    });
    Address::Socket(address)
}

fn serve(mut stream: TcpStream, response: &[u8]) {
    let mut buffer = [0; 4_096];
    if stream.read(&mut buffer).is_ok_and(|read| read > 0) {
        let _ = stream.write_all(response);
    }
}

#[test]
fn a_target_that_does_not_speak_the_protocol_is_named_before_any_load() {
    let (_redis, redis) = {
        let origin = weir_origin::redis::start(weir_origin::redis::OriginSettings::default()).expect("an origin");
        let address = Address::Socket(origin.addresses()[0]);
        (origin, address)
    };
    let told = |protocol: &str, head: &str, target: &Address| {
        let scenario = scenario(protocol, &format!("connections = 1\n{head}"), "rate = 10\nduration = \"1s\"");
        record(&scenario, target).expect_err("it cannot begin").to_string()
    };
    let http1 = rude(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert!(told("http2", "", &http1).contains("does not speak HTTP/2 in clear text"), "{}", told("http2", "", &http1));
    assert!(told("websocket", "", &http1).contains("responded with 400 to the WebSocket request"));
    assert!(told("websocket", "", &redis).contains("cannot begin websocket with"));
    let few = rude(b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x02");
    assert!(told("http2", "streams = 3", &few).contains("it allows 2 streams on a connection"));
    let forged = rude(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    assert!(told("websocket", "", &forged).contains("does not match the key"));
}

#[test]
fn a_server_that_closes_after_each_response_costs_the_run_its_validity_and_no_request_is_lost_twice() {
    let target = rude(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    // Enough connections that one always stands: each is away for 10 ms after its response, and longer on a busy machine.
    let head = "connections = 16\nrequest.path = \"/\"\npayload.size = 2\nlate_limit = \"1s\"";
    let record = record(&scenario("http1", head, "rate = 20\nduration = \"1s\""), &target).expect("a whole run");
    // Nothing was sent on a connection that was about to be closed.
    assert_eq!((record.counts.errors.total(), record.counts.completed), (0, record.counts.intended), "{record:?}");
    assert_eq!(record.verdict.invalid_reason.as_deref(), Some("connections"));
}

/// A server of HTTP/2 that says GOAWAY to the first request of each connection and works on none.
fn leaving() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut buffer = [0; 4_096];
                // The preface with its settings, then their acknowledgement, then a request.
                let mut is_asked = false;
                stream.write_all(b"\0\0\0\x04\0\0\0\0\0").expect("settings");
                while let (false, Ok(1..)) = (is_asked, stream.read(&mut buffer)) {
                    is_asked = buffer.windows(11).any(|bytes| bytes == b"lab.example");
                }
                let _ = stream.write_all(b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0");
                // A close with unread bytes would be a reset, which can overtake the GOAWAY.
                let _ = stream.shutdown(Shutdown::Write);
                while let Ok(1..) = stream.read(&mut buffer) {}
            });
        }
    });
    Address::Socket(address)
}

#[test]
fn unprocessed_requests_of_a_leaving_server_are_shed_and_the_connection_is_remade() {
    let scenario =
        scenario("http2", "connections = 2\nstreams = 8\nlate_limit = \"500ms\"", "rate = 100\nduration = \"1s\"");
    let record = record(&scenario, &leaving()).expect("a whole run");
    let counts = &record.counts;
    assert_eq!(counts.completed, 0, "{counts:?}");
    // On a busy machine a request can meet the remaking of its connection, and has no response in time then.
    assert!(counts.errors.timeout <= 3, "{counts:?}");
    assert!(counts.shed.get("goaway").is_some_and(|count| *count > 10), "{counts:?}");
    assert_eq!(record.verdict.invalid_reason.as_deref(), Some("connections"));
}
