//! Streams that are silent for long, over the real program: their memory, their bounds, and the service of others meanwhile.

use serde_json::Value;
use weir_tests::ai::{AiOrigin, gateway, gateway_with_one_worker};
use weir_tests::deadline::until_true;
use weir_tests::gateway::Gateway;
use weir_tests::http::HttpClient;

use crate::through::chat;

/// Streams at once. As many descriptors as a test may have by default leave room for them.
const STREAMS: usize = 400;

/// Bytes of resident memory for each of them, at most, with both of its connections. A debug build keeps more than a release build.
const BYTES_EACH: u64 = 96 << 10;

/// A stream that is silent behind its first event.
fn idle(gateway: &Gateway) -> HttpClient {
    let mut client = HttpClient::connect(&gateway.address);
    client.send(chat("bytes=8 events=2 gap=50s", ",\"stream\":true"));
    client
}

/// So many of them, behind their first event.
fn all_idle(gateway: &Gateway, count: usize) -> Vec<HttpClient> {
    let mut clients: Vec<HttpClient> = (0..count).map(|_| idle(gateway)).collect();
    clients.iter_mut().for_each(|client| until_true("the first event", || client.has_response()));
    clients
}

#[test]
fn idle_streams_keep_little_memory_and_others_are_served() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let mut gateway = gateway(&origin, "openai", state.path(), "");
    // Some memory grows with the first streams and stays for the others.
    drop(all_idle(&gateway, STREAMS / 8));
    gateway.wait_at_rest();
    let before = gateway.process().resident();
    let streams = all_idle(&gateway, STREAMS);
    let grown = gateway.process().resident().saturating_sub(before);
    let metrics = gateway.metrics();
    let (in_flight, connections) = (metrics.sum("weir_requests_in_flight"), metrics.sum("weir_connections_open"));
    assert_eq!((in_flight, connections), (STREAMS as f64, STREAMS as f64), "each is a request and a connection");
    assert!(grown < STREAMS as u64 * BYTES_EACH, "{} bytes for each stream", grown / STREAMS as u64);
    let mut other = HttpClient::connect(&gateway.address);
    other.send(chat("bytes=2", ""));
    assert_eq!(other.response().status, 200);
    drop((streams, other));
    gateway.wait_at_rest();
}

#[test]
fn a_stream_beyond_the_limit_of_a_worker_is_refused_until_another_one_ends() {
    let (origin, state) = (AiOrigin::start(), tempfile::tempdir().expect("a folder"));
    let gateway = gateway_with_one_worker(&origin, state.path(), "", "[limits]\nin_flight_per_core = 8\n");
    let mut streams = all_idle(&gateway, 8);
    let mut client = idle(&gateway);
    let refused = client.response();
    let body: Value = serde_json::from_str(&refused.content()).expect("JSON");
    assert_eq!((refused.status, &body["error"]["code"]), (503, &"overloaded".into()), "{}", refused.text());
    assert!(refused.field("retry-after").is_some(), "{}", refused.text());
    drop(streams.pop());
    until_true("its place to be free", || gateway.metric("weir_requests_in_flight") == 7.0);
    assert_eq!(all_idle(&gateway, 1).len(), 1);
}
