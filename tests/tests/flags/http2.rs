//! The API over HTTP/2: requests and streams of changes share a connection.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weir_tests::deadline::{WAIT, until_true};
use weir_tests::flags::{BACKEND, FRONTEND, FlagOrigin, before, get, post};
use weir_tests::gateway::Gateway;
use weir_tests::http2::{Frame, Http2Peer, block, code, flag, frame, kind};

const FEATURES: &str = "/api/client/features";

fn ready() -> (FlagOrigin, Gateway) {
    let origin = FlagOrigin::start();
    let gateway = before(&origin.address, "");
    until_true("flags", || get(&gateway.address, FEATURES, BACKEND).status == 200);
    until_true("the frontend token", || get(&gateway.address, "/api/frontend", FRONTEND).status == 200);
    (origin, gateway)
}

/// A connection whose responses are gathered by stream.
struct Client {
    peer: Http2Peer,
    heads: HashMap<u32, Frame>,
    bodies: HashMap<u32, String>,
    ended: Vec<u32>,
}

impl Client {
    fn connect(gateway: &Gateway) -> Self {
        let peer = Http2Peer::connect(&gateway.address);
        Self { peer, heads: HashMap::new(), bodies: HashMap::new(), ended: Vec::new() }
    }

    fn send(&mut self, stream: u32, method: &str, path: &str, token: &str, more: &[(&str, &str)]) {
        let head = [(":method", method), (":scheme", "http"), (":authority", "flags.example"), (":path", path)];
        let fields = [&head[..], &[("authorization", token)], more].concat();
        let end = if method == "POST" { 0 } else { flag::END_STREAM };
        assert!(self.peer.send(frame(kind::HEADERS, end | flag::END_HEADERS, stream, &block(&fields))));
    }

    /// Takes frames until something holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < WAIT, "waited for {what}: {:?}", self.bodies);
            let Some(frame) = self.peer.next_within(Duration::from_secs(1)) else { continue };
            match frame.kind {
                kind::HEADERS => drop(self.heads.insert(frame.stream, frame.clone())),
                kind::DATA => *self.bodies.entry(frame.stream).or_default() += &String::from_utf8_lossy(&frame.payload),
                _ => continue,
            }
            if frame.flags & flag::END_STREAM != 0 {
                self.ended.push(frame.stream);
            }
        }
    }

    /// The status and the body of a stream, once it has ended.
    fn response(&mut self, stream: u32) -> (Option<u16>, String) {
        self.until("a response", |client| client.ended.contains(&stream));
        (self.heads[&stream].status(), self.bodies.remove(&stream).unwrap_or_default())
    }

    fn body(&self, stream: u32) -> &str {
        self.bodies.get(&stream).map_or("", String::as_str)
    }
}

#[test]
fn responses_are_those_of_http_1() {
    let (_origin, gateway) = ready();
    let whole = get(&gateway.address, FEATURES, BACKEND);
    let tag = whole.field("etag").expect("a tag");
    let mut client = Client::connect(&gateway);
    client.send(1, "GET", FEATURES, BACKEND, &[]);
    client.send(3, "GET", FEATURES, BACKEND, &[("if-none-match", &tag)]);
    client.send(5, "GET", "/api/frontend?userId=7", FRONTEND, &[]);
    client.send(7, "GET", "/api/client/features/no-such-flag", BACKEND, &[]);
    client.send(9, "POST", "/api/frontend", FRONTEND, &[("content-type", "application/json")]);
    client.peer.send(frame(kind::DATA, flag::END_STREAM, 9, br#"{"userId":"7"}"#));
    assert_eq!(client.response(1), (Some(200), whole.body));
    assert_eq!(client.response(3), (Some(304), String::new()));
    let evaluated = post(&gateway.address, "/api/frontend", FRONTEND, r#"{"userId":"7"}"#).body;
    assert_eq!(client.response(5), (Some(200), evaluated.clone()));
    assert_eq!(client.response(7), (Some(404), String::new()));
    assert_eq!(client.response(9), (Some(200), evaluated));
    drop(client);
    gateway.finish();
}

#[test]
fn streams_of_changes_share_a_connection_and_end_one_by_one() {
    let (origin, gateway) = ready();
    let mut client = Client::connect(&gateway);
    for stream in [1, 3, 5] {
        client.send(stream, "GET", "/api/client/streaming", BACKEND, &[]);
    }
    client.until("three streams", |client| {
        [1, 3, 5].iter().all(|stream| client.body(*stream).contains("unleash-connected"))
    });
    gateway.wait_metric("weir_flags_streams", &[], 3.0);
    client.send(7, "GET", FEATURES, BACKEND, &[]);
    assert_eq!(client.response(7).0, Some(200), "a request beside open streams");
    client.peer.send(frame(kind::RST_STREAM, 0, 3, &code::CANCEL.to_be_bytes()));
    until_true("the end of one stream", || gateway.metric("weir_flags_streams") == 2.0);
    origin.control("POST", "/lab/edit", "");
    client.until("the change", |client| [1, 5].iter().all(|stream| client.body(*stream).contains("unleash-updated")));
    assert!(!client.body(3).contains("unleash-updated"), "that stream has ended");
    drop(client);
    until_true("the end of all streams", || gateway.metric("weir_flags_streams") == 0.0);
    gateway.finish();
}
