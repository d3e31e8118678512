//! Whole runs of publish and subscribe against the lab's origin, and against servers that lose or damage messages.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use weir_engine::settings::Address;
use weir_load::{StepRecord, scenario};
use weir_origin::redis::{Origin, OriginSettings, start};

fn origin() -> (Origin, Address) {
    let origin = start(OriginSettings::default()).expect("an origin");
    let address = Address::Socket(origin.addresses()[0]);
    (origin, address)
}

/// Runs to the end; every message that a subscriber should hear has ended in exactly one way.
fn record(head: &str, phase: &str, target: &Address) -> StepRecord {
    let source =
        format!("name = \"test\"\nprotocol = \"redis-pubsub\"\n{head}\n[[phase]]\nwarmup = \"100ms\"\n{phase}\n");
    let scenario = scenario::parse("test.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    crate::record::record(&scenario, target).expect("a whole run")
}

#[test]
fn every_subscriber_gets_every_message_and_the_rate_counts_deliveries() {
    let (origin, target) = origin();
    let head = "connections = 40\nchannels = 8\nshards = 2\narrival = \"deterministic\"\npipeline = 4";
    let record = record(head, "rate = 4000\nduration = \"1s\"", &target);
    let counts = &record.counts;
    assert_eq!((counts.intended, counts.sent, counts.completed), (4_000, 4_000, 4_000), "{counts:?}");
    assert_eq!((counts.integrity.checked, counts.integrity.failed), (4_000, 0), "{counts:?}");
    assert_eq!(record.verdict.invalid_reason.as_deref().filter(|reason| *reason == "connections"), None);
    // Forty subscribers and the publishers of two shards; one message in five of what is heard was published.
    let stats = origin.stats();
    assert_eq!((stats.accepted, record.load.connections), (42, 40));
    assert!((40 + 800..40 + 1_000).contains(&stats.requests), "{stats:?}");
}

#[test]
fn a_closed_loop_publishes_when_all_have_received() {
    let (_origin, target) = origin();
    let record =
        record("mode = \"closed\"\nconnections = 20\nchannels = 2\npipeline = 2", "duration = \"1s\"", &target);
    let counts = &record.counts;
    assert!(counts.completed > 1_000 && counts.errors.total() == 0, "{counts:?}");
    assert_eq!(counts.completed % 10, 0, "whole audiences: {counts:?}");
}

/// A server of SUBSCRIBE and PUBLISH. `edit` says what subscriber `at` (in the order in which they came) gets of message
/// `number`; if it says nothing the message is refused.
fn server(edit: impl Fn(usize, usize, Vec<u8>) -> Option<Vec<u8>> + Send + Sync + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Socket(listener.local_addr().expect("bound"));
    let subscribers: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let (edit, numbers) = (Arc::new(edit), Arc::new(AtomicUsize::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (subscribers, edit, numbers) = (subscribers.clone(), edit.clone(), numbers.clone());
            thread::spawn(move || serve(stream, &subscribers, &numbers, &*edit));
        }
    });
    address
}

type Edit = dyn Fn(usize, usize, Vec<u8>) -> Option<Vec<u8>> + Send + Sync;

/// Until the client is gone.
fn serve(mut stream: TcpStream, subscribers: &Mutex<Vec<TcpStream>>, numbers: &AtomicUsize, edit: &Edit) {
    let mut input = BufReader::new(stream.try_clone().expect("a second handle"));
    while let Some(words) = command(&mut input) {
        let channel = String::from_utf8_lossy(&words[1]).into_owned();
        let mut subscribers = subscribers.lock().expect("no panic");
        if words[0] == b"SUBSCRIBE" {
            let reply = format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len());
            // A client may be gone; that is no failure here.
            let _ = stream.write_all(reply.as_bytes());
            subscribers.push(stream.try_clone().expect("a second handle"));
            continue;
        }
        let head = format!("*3\r\n$7\r\nmessage\r\n${}\r\n{channel}\r\n${}\r\n", channel.len(), words[2].len());
        let frame = [head.as_bytes(), &words[2], b"\r\n"].concat();
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let edited: Option<Vec<_>> = (0..subscribers.len()).map(|at| edit(at, number, frame.clone())).collect();
        let Some(edited) = edited else {
            let _ = stream.write_all(b"-ERR weir: too many requests in flight\r\n");
            continue;
        };
        for (subscriber, frame) in subscribers.iter_mut().zip(edited) {
            let _ = subscriber.write_all(&frame);
        }
        let _ = stream.write_all(b":2\r\n");
    }
}

fn command(input: &mut impl BufRead) -> Option<Vec<Vec<u8>>> {
    let mut length = || -> Option<(usize, Vec<u8>)> {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let length = line.trim_end()[1..].parse().expect("a length");
        let mut bytes = vec![0; if line.starts_with('$') { length + 2 } else { 0 }];
        input.read_exact(&mut bytes).ok()?;
        bytes.truncate(length);
        Some((length, bytes))
    };
    let (count, _) = length()?;
    (0..count).map(|_| length().map(|(_, word)| word)).collect()
}

const TWO: &str = "connections = 2\nchannels = 1\narrival = \"deterministic\"\npipeline = 4\nlate_limit = \"300ms\"";

#[test]
fn a_message_that_one_subscriber_never_gets_is_lost_and_later_ones_are_right() {
    let target = server(|at, number, frame| Some(if (at, number % 50) == (1, 40) { Vec::new() } else { frame }));
    let record = record(TWO, "rate = 400\nduration = \"1s\"", &target);
    let counts = &record.counts;
    // 200 messages, and every fiftieth is missing; a window that begins elsewhere meets as many.
    assert_eq!((counts.intended, counts.completed, counts.errors.transport), (400, 396, 4), "{counts:?}");
    assert_eq!((counts.errors.total(), counts.integrity.failed), (4, 0), "{counts:?}");
}

#[test]
fn a_message_that_comes_twice_or_damaged_ends_the_connection_and_the_subscriber_comes_back() {
    let twice = |at, number, frame: Vec<u8>| Some(if (at, number) == (0, 60) { frame.repeat(2) } else { frame });
    let damaged = |at, number, mut frame: Vec<u8>| {
        let last = frame.len() - 3;
        frame[last] ^= u8::from((at, number) == (0, 60));
        Some(frame)
    };
    for (target, failed_min) in [(server(twice), 0), (server(damaged), 1)] {
        let record = record(TWO, "rate = 400\nduration = \"1s\"", &target);
        let counts = &record.counts;
        assert_eq!(record.verdict.invalid_reason.as_deref(), Some("connections"), "{counts:?}");
        assert!(
            counts.integrity.failed >= failed_min && counts.errors.payload == counts.integrity.failed,
            "{counts:?}"
        );
        assert!(counts.completed > 300 && counts.completed < 400, "it came back and heard the rest: {counts:?}");
    }
}

#[test]
fn nobody_waits_for_a_message_that_was_refused() {
    let target = server(|_, number, frame| (number % 50 != 40).then_some(frame));
    let record = record(TWO, "rate = 400\nduration = \"1s\"", &target);
    let counts = &record.counts;
    assert_eq!((counts.intended, counts.completed, counts.errors.total()), (400, 392, 0), "{counts:?}");
    assert_eq!(counts.shed.get("in_flight"), Some(&8), "{counts:?}");
}

#[test]
fn a_target_that_takes_no_subscription_is_named_before_any_load() {
    let origin = start(OriginSettings { memory_bytes_max: 1, ..OriginSettings::default() }).expect("an origin");
    let target = Address::Socket(origin.addresses()[0]);
    let source = "name = \"test\"\nprotocol = \"redis-pubsub\"\nconnections = 2\nchannels = 1\n\
                  phase = [{ rate = 10, duration = \"1s\" }]\n";
    let scenario = scenario::parse("test.toml", source).expect("right");
    let (events, _told) = mpsc::channel();
    let error = weir_load::run(&scenario, &target, &events).expect_err("no room for a subscription");
    assert!(error.to_string().contains("to SUBSCRIBE"), "{error}");
}
