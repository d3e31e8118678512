//! The byte counters move while a stream of events is on its way, on both sides, and count each byte once.

use std::io::Read as _;

use weir_tests::ai::{AiOrigin, gateway};
use weir_tests::byte_counts::{ByteCounts, assert_moved_on_the_way, read_slowly, wait_since};
use weir_tests::deadline::WAIT;
use weir_tests::http::HttpClient;
use weir_tests::stream::Stream;

use crate::through::chat;

/// Bytes of text of the stream: together with the rest of its events far more than all buffers between the origin and the client
/// hold. It cannot end before the client has read the greater part of it.
const TEXT_BYTES: usize = 16_000_000;

/// Events of the stream.
const EVENTS: usize = 40_000;

/// The counters must show each part before the client reads the next one.
const PART_BYTES: usize = 2_000_000;

/// Bytes of a head, and of the frame of a chunk with one event: the two connections may differ in these.
const HEAD_BYTES: usize = 2 << 10;
const FRAME_BYTES: usize = 16;

/// The last chunk, which is empty, behind the end of another one.
const END: &[u8] = b"\r\n0\r\n\r\n";

#[test]
fn a_stream_of_events_moves_the_counters_of_both_sides_while_it_runs() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway(&origin, "openai", state.path(), "");
    let mut client = HttpClient::connect(&gateway.address);
    if let Stream::Tcp(stream) = client.stream() {
        read_slowly(stream);
    }
    let request = chat(&format!("bytes={TEXT_BYTES} events={EVENTS}"), ",\"stream\":true");
    client.send(&request);
    client.stream().set_read_timeout(WAIT).expect("a time limit can be set");
    let (mut received, mut scrapes, mut chunk) = (Vec::new(), Vec::<ByteCounts>::new(), vec![0; 64 << 10]);
    while !received.ends_with(END) {
        let count = client.stream().read(&mut chunk).expect("an event");
        assert!(count > 0, "the stream ends with its last chunk, behind {} bytes", received.len());
        received.extend_from_slice(&chunk[..count]);
        if received.len() < (scrapes.len() + 1) * PART_BYTES || received.ends_with(END) {
            continue;
        }
        let so_far = ByteCounts { client_read: request.len(), client_written: received.len(), ..ByteCounts::default() };
        scrapes.push(wait_since(&gateway, ByteCounts::default(), so_far));
        if received.len() < TEXT_BYTES / 2 {
            assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0, "the stream is under way");
        }
    }
    assert_moved_on_the_way(&scrapes, received.len());
    let begin = String::from_utf8_lossy(&received[..HEAD_BYTES]);
    assert!(begin.starts_with("HTTP/1.1 200 "), "{begin}");
    let end = String::from_utf8_lossy(&received[received.len() - HEAD_BYTES..]);
    assert!(end.contains("data: [DONE]"), "{end}");
    let whole = ByteCounts { client_read: request.len(), client_written: received.len(), ..ByteCounts::default() };
    let moved = wait_since(&gateway, ByteCounts::default(), whole);
    assert_eq!((moved.client_read, moved.client_written), (whole.client_read, whole.client_written));
    let differs = moved.upstream_read.abs_diff(received.len());
    assert!(differs < HEAD_BYTES + EVENTS * FRAME_BYTES, "{moved:?}");
    assert!(moved.upstream_written.abs_diff(request.len()) < HEAD_BYTES, "{moved:?}");
    drop(client);
    gateway.finish();
}
