//! The byte counters move while a stream of changes is open, on both sides, and count each byte once.

use std::io::{Read as _, Write as _};

use weir_tests::byte_counts::{ByteCounts, wait_since};
use weir_tests::deadline::{WAIT, until_true};
use weir_tests::flags::{BACKEND, FlagOrigin, before, get};
use weir_tests::stream::Stream;

/// Changes, each of which the counters must show before the next one.
const CHANGES: usize = 5;

/// Reads until an event of this name is whole, and returns the number of bytes.
fn event(stream: &mut Stream, name: &str) -> usize {
    let (mut received, mut chunk) = (Vec::new(), [0; 64 * 1024]);
    loop {
        let count = stream.read(&mut chunk).expect("an event");
        received.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&received);
        assert!(count > 0, "the stream stays open: {text}");
        if text.contains(&format!("event: {name}\n")) && text.ends_with("\n\n\r\n") {
            return received.len();
        }
    }
}

#[test]
fn a_stream_of_changes_moves_the_counters_of_both_sides_while_it_is_open() {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "");
    until_true("flags", || get(&gateway.address, "/api/client/features", BACKEND).status == 200);
    // All bytes of a connection that has ended are counted.
    gateway.wait_at_rest();
    let start = ByteCounts::now(&gateway);
    let path = "/api/client/streaming";
    let request = format!("GET {path} HTTP/1.1\r\nHost: flags.example\r\nAuthorization: {BACKEND}\r\n\r\n");
    let mut stream = Stream::connect(&gateway.address).expect("the gateway accepts");
    stream.set_read_timeout(WAIT).expect("a time limit can be set");
    stream.write_all(request.as_bytes()).expect("the gateway takes the request");
    let mut received = event(&mut stream, "unleash-connected");
    let first = ByteCounts { client_read: request.len(), client_written: received, ..ByteCounts::default() };
    let mut last = wait_since(&gateway, start, first);
    for _ in 0..CHANGES {
        origin.control("POST", "/lab/edit?environment=development", "");
        received += event(&mut stream, "unleash-updated");
        let so_far = ByteCounts {
            client_read: request.len(),
            client_written: received,
            upstream_read: last.upstream_read + 1,
            upstream_written: last.upstream_written + 1,
        };
        last = wait_since(&gateway, start, so_far);
        assert_eq!((last.client_read, last.client_written), (request.len(), received), "each byte counts once");
    }
    drop(stream);
    gateway.finish();
}
