//! Whole runs of language models against the lab's origin: what it says is checked, streams are timed event by event, and the ledger
//! agrees.

use std::sync::Arc;

use weir_engine::settings::Address;
use weir_load::{StepRecord, scenario};
use weir_origin::ai::{AiOriginSettings, Ledger, Origin, start_with};

use crate::record::record;

fn origin() -> (Origin, Arc<Ledger>, Address) {
    let ledger = Arc::<Ledger>::default();
    let origin = start_with(AiOriginSettings::default(), ledger.clone()).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, ledger, address)
}

fn scenario(head: &str, ai: &str, phase: &str) -> scenario::Scenario {
    let source = format!(
        "name = \"test\"\nprotocol = \"ai\"\n{head}\n[ai]\nprompt_bytes = 100\n{ai}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n"
    );
    scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn run(head: &str, ai: &str, phase: &str) -> (StepRecord, Arc<Ledger>) {
    let (_origin, ledger, target) = origin();
    let record = record(&scenario(head, ai, phase), &target).unwrap_or_else(|error| panic!("{ai}: {error}"));
    (record, ledger)
}

#[test]
fn every_workload_completes_and_every_byte_is_checked() {
    let head = "connections = 8\nshards = 2\narrival = \"deterministic\"";
    for (payload, ai, text_bytes) in [
        ("payload.size = 1000", "workload = \"llm\"", 1_000),
        ("payload.size = \"64KiB\"", "workload = \"llm\"", 64 << 10),
        ("payload.size = \"64KiB\"", "workload = \"stream\"\nevents = 16", 64 << 10),
        ("payload.size = 400", "workload = \"paced\"\nevents = 5\nfirst = \"5ms\"\ngap = \"2ms\"", 400),
        ("", "workload = \"agent\"\ntools = 8", 0),
    ] {
        let (record, ledger) = run(&format!("{head}\n{payload}"), ai, "rate = 200\nduration = \"1s\"");
        let counts = &record.counts;
        assert_eq!((counts.intended, counts.completed), (200, 200), "{ai}: {counts:?}");
        assert_eq!((counts.integrity.checked, counts.integrity.failed), (200, 0), "{ai}: {counts:?}");
        let totals = ledger.totals();
        assert_eq!((totals.completed, totals.disconnected), (totals.requests, 0), "{ai}: {totals:?}");
        assert_eq!(totals.prompt, 25 * totals.requests, "{ai}");
        if text_bytes > 0 {
            assert_eq!(totals.completion, totals.requests * text_bytes / 4, "{ai}");
        }
        let is_stream = ai.contains("stream") || ai.contains("paced");
        assert_eq!(record.latency.first_event.as_ref().map(|one| one.n), is_stream.then_some(200), "{ai}");
    }
}

#[test]
fn the_first_event_and_the_gaps_are_those_of_the_origin() {
    let ai = "workload = \"paced\"\nevents = 6\nfirst = \"60ms\"\ngap = \"20ms\"";
    for churn in ["", "\nchurn = true"] {
        let head = format!("mode = \"closed\"\nconnections = 4\npayload.size = 600{churn}");
        let (record, _) = run(&head, ai, "duration = \"2s\"");
        let (first, between) =
            (record.latency.first_event.expect("events"), record.latency.between_events.expect("events"));
        assert!(first.min >= Some(60_000) && first.p50 < Some(200_000), "{first:?}");
        assert_eq!(between.n, 5 * first.n, "one less than events");
        // Two events may be read at once when the machine is busy, so the median decides.
        assert!(between.p50 >= Some(15_000) && between.p50 < Some(90_000), "{between:?}");
        assert!(record.latency.service.min >= Some(160_000), "{:?}", record.latency.service.min);
        assert_eq!(record.counts.errors.total(), 0, "{:?}", record.counts.errors);
    }
}

/// The same requests with `find` in their prompt read as `instead`.
struct Spoiled {
    from: &'static str,
    to: &'static str,
}

impl Spoiled {
    /// A relay that changes what the client sends; of equal length, so that the framing stays.
    fn before(self, origin: &Address) -> Address {
        use std::io::{Read as _, Write as _};
        assert_eq!(self.from.len(), self.to.len());
        let Address::Socket(behind) = *origin else { panic!("a port") };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = std::net::TcpStream::connect(behind).expect("the origin");
                let (mut back, mut front) =
                    (server.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut back, &mut front);
                    let _ = front.shutdown(std::net::Shutdown::Both);
                });
                let (mut client, mut server) = (client, server);
                let (from, to) = (self.from, self.to);
                std::thread::spawn(move || {
                    let mut chunk = [0; 64 * 1024];
                    while let Ok(count @ 1..) = client.read(&mut chunk) {
                        let text = String::from_utf8_lossy(&chunk[..count]).replace(from, to);
                        if server.write_all(text.as_bytes()).is_err() {
                            break;
                        }
                    }
                    let _ = server.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Address::Socket(address)
    }
}

#[test]
fn replies_that_are_not_right_are_counted_by_what_is_wrong() {
    let (_origin, _, target) = origin();
    let phase = "rate = 100\nduration = \"500ms\"";
    let head = "connections = 4\npayload.size = 400";
    let counts = |from, to| {
        let scenario = scenario(head, "workload = \"stream\"\nevents = 4", phase);
        record(&scenario, &Spoiled { from, to }.before(&target)).expect("a whole run").counts
    };
    // A text of a tenth of the size, another usage, and lines that no event ends in.
    for (from, to) in [
        ("[weir prompt=25 bytes=400 ", "[weir prompt=25 bytes=040 "),
        ("[weir prompt=25 bytes=400 events=4", "[weir prompt=26 bytes=400 events=4"),
        ("bytes=400 events=4 word=", "bytes=400 lines=cr word="),
    ] {
        let counts = counts(from, to);
        assert_eq!((counts.errors.payload, counts.completed), (counts.intended, 0), "{to}: {counts:?}");
    }
    let refused = counts("bytes=400 events=4", "status=429 calls=0");
    assert_eq!((refused.shed.get("status_429"), refused.completed), (Some(&refused.intended), 0), "{refused:?}");
    let failed = counts("bytes=400 events=4", "status=500 calls=0");
    assert_eq!((failed.errors.status, failed.completed), (failed.intended, 0), "{failed:?}");
    let cut = counts("bytes=400 events=4", "fault=closed at=01");
    assert_eq!((cut.errors.transport, cut.completed), (cut.intended, 0), "{cut:?}");
}
