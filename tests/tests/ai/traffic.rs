//! The byte counters move while a stream of events is on its way, on both sides, and count each byte once.

use std::io::Read as _;

use weir_tests::ai::{AiOrigin, gateway};
use weir_tests::byte_counts::{ByteCounts, wait_since};
use weir_tests::deadline::WAIT;
use weir_tests::http::HttpClient;

use crate::through::chat;

/// Events with text of the stream, and those that the client gets between two scrapes.
const EVENTS: usize = 80;
const STEP: usize = 20;

/// Bytes of a head, and of the frame of a chunk with one event: the two connections may differ in these.
const HEAD_BYTES: usize = 2 << 10;
const FRAME_BYTES: usize = 16;

#[test]
fn a_stream_of_events_moves_the_counters_of_both_sides_while_it_runs() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    let start = ByteCounts::now(&gateway);
    let mut client = HttpClient::connect(&gateway.address);
    let request = chat(&format!("bytes=40000 events={EVENTS} gap=25ms"), ",\"stream\":true");
    client.send(&request);
    client.stream().set_read_timeout(WAIT).expect("a time limit can be set");
    let (mut received, mut scrapes, mut chunk) = (Vec::new(), vec![ByteCounts::default()], [0; 4096]);
    // The last chunk is empty.
    while !received.ends_with(b"\r\n0\r\n\r\n") {
        let count = client.stream().read(&mut chunk).expect("an event");
        assert!(count > 0, "the stream ends with its last chunk: {}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&chunk[..count]);
        let events = received.windows(6).filter(|window| window == b"data: ").count();
        if events < scrapes.len() * STEP || events >= EVENTS {
            continue;
        }
        let last = scrapes[scrapes.len() - 1];
        let so_far = ByteCounts {
            client_read: request.len(),
            client_written: received.len(),
            upstream_read: last.upstream_read + 1,
            upstream_written: last.upstream_written.max(1),
        };
        let moved = wait_since(&gateway, start, so_far);
        assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0, "the stream is under way");
        assert!(moved.client_written > last.client_written, "{moved:?} after {last:?}");
        scrapes.push(moved);
    }
    assert!(scrapes.len() > 3, "{scrapes:?}");
    let text = String::from_utf8_lossy(&received);
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("data: [DONE]"), "{text}");
    let whole = ByteCounts { client_read: request.len(), client_written: received.len(), ..ByteCounts::default() };
    let moved = wait_since(&gateway, start, whole);
    assert_eq!((moved.client_read, moved.client_written), (whole.client_read, whole.client_written));
    let differs = moved.upstream_read.abs_diff(received.len());
    assert!(differs < HEAD_BYTES + EVENTS * FRAME_BYTES, "{moved:?}");
    assert!(moved.upstream_written.abs_diff(request.len()) < HEAD_BYTES, "{moved:?}");
    drop(client);
    gateway.finish();
}
