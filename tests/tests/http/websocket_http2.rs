//! WebSocket over HTTP/2 (RFC 8441): a stream of a shared connection is the tunnel. Case W9, and those of HTTP/1.1 that could
//! differ.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http2::{Frame, Http2Peer, block, code, flag, frame, get, kind};
use weir_tests::stream::Address;
use weir_tests::websocket::{WebSocketOrigin, masked, next_frame, unmasked};

const ON: &str = "[listener.http]\nupgrades = [\"websocket\"]";
/// As a client may have it: 2^20.
const WINDOW: [u8; 6] = [0, 4, 0, 0x10, 0, 0];

fn gateway(origin: &Address) -> Gateway {
    Gateway::start(Config::http(origin).listener(ON))
}

/// A connection, and the identifiers and values of the settings that it received.
fn connect(gateway: &Gateway) -> (Http2Peer, Vec<(u16, u32)>) {
    let mut client = Http2Peer::connect(&gateway.address);
    client.send(frame(kind::SETTINGS, 0, 0, &WINDOW));
    let told = client.next_of(kind::SETTINGS);
    let pair =
        |six: &[u8]| (u16::from_be_bytes([six[0], six[1]]), u32::from_be_bytes([six[2], six[3], six[4], six[5]]));
    client.send(frame(kind::SETTINGS, flag::ACK, 0, b""));
    (client, told.payload.chunks(6).map(pair).collect())
}

/// Asks for a tunnel with one of these paths and fields.
fn ask(client: &mut Http2Peer, stream: u32, protocol: &str, fields: &[(&str, &str)]) {
    let own = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":authority", "test.example"),
        (":path", "/chat?a=b"),
        ("sec-websocket-version", "13"),
    ];
    let all: Vec<_> = own.iter().chain(fields).copied().collect();
    client.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&all)));
}

/// A tunnel that stands.
fn open(gateway: &Gateway) -> Http2Peer {
    let (mut client, _) = connect(gateway);
    ask(&mut client, 1, "websocket", &[]);
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    client
}

fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(16_000).flat_map(|piece| frame(kind::DATA, 0, stream, piece)).collect()
}

/// Gives windows back and puts the payload of a stream together.
struct Tunnel<'a> {
    client: &'a mut Http2Peer,
    stream: u32,
    bytes: Vec<u8>,
    is_over: bool,
}

impl<'a> Tunnel<'a> {
    fn new(client: &'a mut Http2Peer, stream: u32) -> Self {
        Self { client, stream, bytes: Vec::new(), is_over: false }
    }

    fn more(&mut self) -> Option<()> {
        let Frame { kind: of, flags, stream, payload } = self.client.next_frame()?;
        if of == kind::DATA && stream == self.stream {
            if !payload.is_empty() {
                let count = (payload.len() as u32).to_be_bytes();
                self.client.send(frame(kind::WINDOW_UPDATE, 0, 0, &count));
                self.client.send(frame(kind::WINDOW_UPDATE, 0, stream, &count));
            }
            self.bytes.extend_from_slice(&payload);
            self.is_over = flags & flag::END_STREAM != 0;
        }
        Some(())
    }

    /// The next WebSocket frame: first byte and payload.
    fn received(&mut self) -> Option<(u8, Vec<u8>)> {
        let (first, is_masked, payload) = next_frame(|count| {
            while self.bytes.len() < count && !self.is_over {
                self.more()?;
            }
            (self.bytes.len() >= count).then(|| self.bytes.drain(..count).collect())
        })?;
        assert!(!is_masked, "a server masks nothing");
        Some((first, payload))
    }

    fn is_ended(&mut self) -> bool {
        while !self.is_over {
            if self.more().is_none() {
                return false;
            }
        }
        self.bytes.is_empty()
    }
}

#[test]
fn a_stream_is_a_websocket_and_the_origin_sees_one_of_http_1() {
    let origin = WebSocketOrigin::with("Sec-WebSocket-Protocol: chat.2\r\n", |stream, first, payload| {
        stream.write_all(&unmasked(first, payload)).is_ok() && first != 0x88
    });
    let gateway = gateway(&origin.address);
    let (mut client, settings) = connect(&gateway);
    assert!(settings.contains(&(8, 1)), "SETTINGS_ENABLE_CONNECT_PROTOCOL is told: {settings:?}");
    ask(
        &mut client,
        1,
        "websocket",
        &[("sec-websocket-protocol", "chat.1, chat.2"), ("origin", "http://page.example")],
    );
    // Not waiting for the response is allowed.
    client.send(data(1, &masked(0x81, b"early")));
    let response = client.next_of(kind::HEADERS);
    assert_eq!((response.status(), response.flags & flag::END_STREAM), (Some(200), 0));
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let frames: [(u8, &[u8]); 6] = [
        (0x82, b""),
        (0x02, b"one"),
        (0x89, b"ping"),
        (0x80, b"two"),
        (0x82, &large[..40_000]),
        (0x82, &large[..50_000]),
    ];
    // In pieces that end anywhere, also within a header.
    let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect();
    let (start, rest) = bytes.split_at(40);
    start.iter().for_each(|byte| assert!(client.send(data(1, &[*byte]))));
    let mut tunnel = Tunnel::new(&mut client, 1);
    assert_eq!(tunnel.received(), Some((0x81, b"early".to_vec())));
    let (half, other) = rest.split_at(45_000);
    tunnel.client.send(data(1, half));
    for (first, payload) in &frames[..5] {
        assert!(tunnel.received() == Some((*first, payload.to_vec())), "{first:x} of {} bytes", payload.len());
    }
    tunnel.client.send(data(1, other));
    assert!(tunnel.received() == Some((0x82, large[..50_000].to_vec())));
    assert_eq!(gateway.metric("weir_http_tunnels_open"), 1.0);
    tunnel.client.send(data(1, &masked(0x88, b"\x03\xe8done")));
    assert_eq!(tunnel.received(), Some((0x88, b"\x03\xe8done".to_vec())));
    assert!(tunnel.is_ended(), "the end of the tunnel is the end of the stream");
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "websocket_closed")], 1.0);
    // The connection goes on.
    ask(&mut client, 3, "websocket", &[]);
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    drop(client);
    let seen = &origin.seen()[0].head;
    assert!(seen.starts_with("GET /chat?a=b HTTP/1.1\r\nHost: test.example\r\n"), "{seen}");
    for line in
        ["Connection: Upgrade", "Upgrade: websocket", "sec-websocket-version: 13", "origin: http://page.example"]
    {
        assert_eq!(seen.matches(&format!("{line}\r\n")).count(), 1, "{line}: {seen}");
    }
    assert_eq!(seen.to_lowercase().matches("sec-websocket-key: ").count(), 1, "{seen}");
    until_true("the origin to tell of the second", || origin.seen().len() == 2);
    let keys: Vec<String> = origin.seen().iter().map(|seen| seen.head.to_lowercase()).collect();
    let key = |head: &str| head.lines().find(|line| line.starts_with("sec-websocket-key")).map(str::to_owned);
    assert_ne!(key(&keys[0]), key(&keys[1]), "each has a key of its own");
    gateway.finish();
}

#[test]
fn where_no_websocket_is_allowed_it_is_not_offered_and_a_connect_is_an_error() {
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let gateway = Gateway::start(Config::http(&origin.address));
    let (mut client, settings) = connect(&gateway);
    assert!(!settings.iter().any(|(id, _)| *id == 8), "{settings:?}");
    ask(&mut client, 1, "websocket", &[]);
    assert_eq!(client.refusal().map(|refused| refused.code()), Some(code::PROTOCOL_ERROR));
    assert!(origin.seen().is_empty());
    drop(client);
    gateway.finish();
}

#[test]
fn requests_that_are_no_websocket_get_a_fitting_response() {
    let origin = Faulty::http(|request| {
        let status = if request[0].starts_with(b"GET /no") { "403 Forbidden" } else { "200 OK" };
        Act::Reply(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno").into_bytes())
    });
    let route = "[[route]]\nname = \"plain\"\npath_prefix = \"/plain\"\nupgrades = []\nupstream = \"server\"\n\
                 [[route]]\nname = \"own\"\npath_prefix = \"/own\"\nresponse = { status = 200 }\n";
    let gateway = Gateway::start(Config::http(&origin.address).listener(ON).tables(route));
    let (mut client, _) = connect(&gateway);
    let fields = |path| {
        [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "test.example"),
            (":path", path),
            ("sec-websocket-version", "13"),
        ]
    };
    let mut other = fields("/");
    other[1].1 = "connect-udp";
    let mut old = fields("/");
    old[5].1 = "8";
    // An origin with an unexpected response is healthy: no client is kept from it.
    let mut asked =
        vec![(fields("/plain"), "501"), (other, "501"), (old, "501"), (fields("/own"), "501"), (fields("/no"), "403")];
    asked.extend((0..8).map(|_| (fields("/"), "502")));
    for (number, (fields, _)) in asked.iter().enumerate() {
        let stream = 2 * number as u32 + 1;
        client.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(fields)));
        assert_eq!(client.next_of(kind::HEADERS).stream, stream);
    }
    for (status, count) in [("501", 4.0), ("403", 1.0), ("502", 8.0)] {
        gateway.wait_metric("weir_http_responses_total", &[("code", status)], count);
    }
    assert_eq!(origin.seen().len(), 9, "what has no route as a WebSocket goes nowhere");
    client.request(101, &get("/plain"));
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200), "the connection goes on");
    drop(client);
    gateway.finish();
}

#[test]
fn w9_a_stream_that_is_reset_in_a_frame_ends_the_origins_side_and_an_origin_that_goes_ends_the_stream() {
    let origin = WebSocketOrigin::echo();
    let gateway = gateway(&origin.address);
    let mut client = open(&gateway);
    let whole = masked(0x82, &[7; 1_000]);
    client.send(data(1, &whole[..500]));
    client.send(frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes()));
    until_true("the origin is told", || origin.seen().first().is_some_and(|seen| seen.is_ended));
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "client_closed")], 1.0);
    assert!(origin.seen()[0].frames.is_empty(), "half a frame is none");
    drop(client);
    let gone = WebSocketOrigin::with("", |_, _, _| false);
    let gateway_of_gone = self::gateway(&gone.address);
    let mut client = open(&gateway_of_gone);
    client.send(data(1, &masked(0x81, b"bye")));
    assert!(Tunnel::new(&mut client, 1).is_ended());
    gateway_of_gone.wait_metric("weir_http_tunnels_closed_total", &[("reason", "origin_closed")], 1.0);
    drop(client);
    gateway_of_gone.finish();
    gateway.finish();
}

#[test]
fn broken_framing_is_answered_on_its_stream_and_others_go_on() {
    let origin = WebSocketOrigin::echo();
    let gateway = gateway(&origin.address);
    let mut client = open(&gateway);
    ask(&mut client, 3, "websocket", &[]);
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    client.send(data(1, &unmasked(0x81, b"no mask")));
    let mut tunnel = Tunnel::new(&mut client, 1);
    let (first, payload) = tunnel.received().expect("a close frame");
    assert_eq!((first, &payload[..2]), (0x88, &1_002_u16.to_be_bytes()[..]));
    assert!(tunnel.is_ended());
    client.send(data(3, &masked(0x81, b"well")));
    assert_eq!(Tunnel::new(&mut client, 3).received(), Some((0x81, b"well".to_vec())));
    drop(client);
    gateway.finish();
}

#[test]
fn w7_a_peer_that_reads_nothing_stops_the_sender_in_both_directions() {
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    let origin = WebSocketOrigin::with("", move |stream, first, _| {
        // One message starts a flood; the flood is never read from either.
        if first != 0x81 {
            return true;
        }
        loop {
            if stream.write_all(&unmasked(0x82, &[1; 60_000])).is_err() {
                return false;
            }
            counted.fetch_add(60_000, Ordering::Relaxed);
        }
    });
    let gateway = gateway(&origin.address);
    let mut client = open(&gateway);
    client.send(data(1, &masked(0x81, b"go")));
    let mut last = u64::MAX;
    until_true("the origin is held back", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut last, now) == now
    });
    let held = sent.load(Ordering::Relaxed);
    assert!(held < 16 << 20, "{held} bytes were taken for a client that takes 1 MiB");
    // The origin reads nothing meanwhile: what the client may send ends too. Windows are given back for what is passed on.
    let (mut windows, mut given) = (65_535_i64, 0_i64);
    let piece = masked(0x82, &[2; 15_000]);
    let mut queue: Vec<u8> = Vec::new();
    let begun = std::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if queue.is_empty() {
            queue = piece.clone();
        }
        let room = (windows.max(0) as usize).min(queue.len()).min(16_000);
        if room > 0 {
            let part: Vec<u8> = queue.drain(..room).collect();
            client.send(frame(kind::DATA, 0, 1, &part));
            windows -= room as i64;
            given += room as i64;
            continue;
        }
        let Some(told) = client.next_within(Duration::from_millis(500)) else { break };
        if told.kind == kind::WINDOW_UPDATE && told.stream == 1 {
            windows += i64::from(told.code());
        }
    }
    assert!(given < 16 << 20, "{given} bytes were taken for an origin that reads nothing");
    drop(client);
    gateway.finish();
}

#[test]
fn w10_a_drain_tells_each_stream_1001() {
    let origin = WebSocketOrigin::echo();
    let mut gateway = gateway(&origin.address);
    let mut client = open(&gateway);
    ask(&mut client, 3, "websocket", &[]);
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    gateway.process().signal("TERM");
    let (mut told, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < 2 {
        let received = client.next_frame().expect("both are told before the connection ends");
        if received.kind == kind::DATA {
            if !received.payload.is_empty() {
                assert_eq!(&received.payload[..4], [0x88, received.payload[1], 0x03, 0xe9]);
                told.push(received.stream);
            }
            if received.flags & flag::END_STREAM != 0 {
                ended.push(received.stream);
            }
        }
    }
    told.sort_unstable();
    assert_eq!(told, [1, 3]);
    drop(client);
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn a_client_that_resets_its_stream_while_the_origin_reads_nothing_is_noticed() {
    let (stop, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (reads, over) = (stop.clone(), ended.clone());
    let origin = WebSocketOrigin::with("", move |stream, _, _| {
        while !reads.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        // All that was on its way, and then the end of it.
        std::io::copy(stream, &mut std::io::sink()).ok();
        over.store(true, Ordering::SeqCst);
        false
    });
    let gateway = gateway(&origin.address);
    let mut client = open(&gateway);
    let message = masked(0x82, &[7; 15_000]);
    let (mut credit, mut sent) = (65_535_i64, 0);
    while sent < 64 << 20 {
        while credit >= 16_384 && client.send(data(1, &message)) {
            (credit, sent) = (credit - message.len() as i64, sent + message.len());
        }
        match client.next_within(Duration::from_millis(500)) {
            Some(received) if received.kind == kind::WINDOW_UPDATE && received.stream == 1 => {
                credit += i64::from(received.code());
            }
            Some(_) => {}
            None => break,
        }
    }
    assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0);
    client.send(frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes()));
    let since = std::time::Instant::now();
    until_true("the tunnel to end", || gateway.metric("weir_requests_in_flight") == 0.0);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    stop.store(true, Ordering::SeqCst);
    until_true("the origin's end of it", || ended.load(Ordering::SeqCst));
    drop(client);
    gateway.finish();
}
