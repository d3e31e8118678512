//! WebSocket: cases W1 to W3, W6 to W8 and W10, and what goes through untouched.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::stream::Address;
use weir_tests::websocket::{KEY, WebSocketOrigin, close_code, handshake, masked, open, received, unmasked};

const ON: &str = "[listener.http]\nupgrades = [\"websocket\"]";

fn gateway(origin: &Address) -> Gateway {
    Gateway::start(Config::http(origin).listener(ON))
}

fn limited(origin: &Address, limits: &str) -> Gateway {
    Gateway::start(Config::http(origin).listener(&format!("{ON}\n[listener.http.websocket]\n{limits}")))
}

#[test]
fn frames_of_all_sizes_go_both_ways_as_they_are() {
    let origin = WebSocketOrigin::with(
        "Sec-WebSocket-Protocol: chat.2\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n",
        |stream, first, payload| stream.write_all(&unmasked(first, payload)).is_ok() && first != 0x88,
    );
    let gateway = gateway(&origin.address);
    let fields = "Sec-WebSocket-Protocol: chat.1, chat.2\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\
                  Origin: http://page.example\r\n";
    let (mut client, response) = open(&gateway.address, fields);
    assert_eq!(response.field("upgrade").as_deref(), Some("websocket"));
    assert_eq!(response.field("connection").as_deref(), Some("Upgrade"));
    assert_eq!(response.field("sec-websocket-accept").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(response.field("sec-websocket-protocol").as_deref(), Some("chat.2"));
    let extensions = response.field("sec-websocket-extensions");
    assert_eq!(extensions.as_deref(), Some("permessage-deflate; server_no_context_takeover"));
    // Text, empty, RSV1 for a compressed message, a fragmented one with a ping in it, 16-bit and 64-bit lengths.
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let frames: [(u8, &[u8]); 9] = [
        (0x81, b"hi"),
        (0x82, b""),
        (0xc1, b"\xcaH\x05\x00"),
        (0x02, b"one"),
        (0x89, b"ping"),
        (0x00, b"two"),
        (0x80, b"three"),
        (0x82, &large[..40_000]),
        (0x82, &large),
    ];
    // In pieces that end anywhere.
    let bytes: Vec<u8> = frames.iter().flat_map(|(first, payload)| masked(*first, payload)).collect();
    let (start, rest) = bytes.split_at(60);
    start.iter().for_each(|byte| client.send([*byte]));
    client.send(rest);
    for (first, payload) in frames {
        let (got, back) = received(&mut client);
        assert!((got, &*back) == (first, payload), "{first:x} of {} bytes", payload.len());
    }
    assert_eq!(gateway.metric("weir_http_tunnels_open"), 1.0);
    assert_eq!(gateway.metric("weir_requests_in_flight"), 1.0);
    client.send(masked(0x88, b"\x03\xe8done"));
    assert_eq!(received(&mut client), (0x88, b"\x03\xe8done".to_vec()));
    assert!(client.rest().is_empty());
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "websocket_closed")], 1.0);
    let metrics = gateway.metrics();
    assert_eq!(metrics.sum_where("weir_websocket_frames_total", &[("sender", "client")]), 10.0);
    assert_eq!(metrics.sum_where("weir_websocket_frames_total", &[("sender", "origin")]), 10.0);
    let seen = &origin.seen()[0];
    for line in [
        &*format!("Sec-WebSocket-Key: {KEY}"),
        "Sec-WebSocket-Protocol: chat.1, chat.2",
        "Connection: Upgrade",
        "Upgrade: websocket",
    ] {
        assert_eq!(seen.head.matches(&format!("{line}\r\n")).count(), 1, "{line}: {}", seen.head);
    }
    drop(client);
    gateway.finish();
}

#[test]
fn a_handshake_that_is_none_is_426_and_the_connection_goes_on() {
    let origin = WebSocketOrigin::echo();
    let gateway = gateway(&origin.address);
    let mut client = HttpClient::connect(&gateway.address);
    let good = handshake("/", "");
    for bad in [
        good.replace("Version: 13", "Version: 8"),
        good.replace("Sec-WebSocket-Version: 13\r\n", ""),
        good.replace(KEY, "dG9vIHNob3J0"),
        good.replace("Sec-WebSocket-Key", "X-Key"),
        good.replace("GET", "POST").replace("Upgrade: websocket", "Upgrade: websocket\r\nContent-Length: 0"),
    ] {
        client.send(&bad);
        let response = client.response();
        assert_eq!(response.status, 426, "{bad}");
        assert_eq!(response.field("sec-websocket-version").as_deref(), Some("13"));
        assert_eq!(response.field("upgrade").as_deref(), Some("websocket"));
    }
    assert!(origin.seen().is_empty(), "the origin sees nothing of it");
    drop(client);
    gateway.finish();
}

#[test]
fn w8_nothing_goes_to_the_origin_before_its_101_and_another_response_is_plain_http() {
    for (head_and_body, status) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200),
        ("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 502),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n",
            502,
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\
             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            502,
        ),
    ] {
        let origin = Faulty::http(move |_| {
            std::thread::sleep(Duration::from_millis(200));
            Act::Reply(head_and_body.as_bytes().to_vec())
        });
        let gateway = gateway(&origin.address);
        let mut client = HttpClient::connect(&gateway.address);
        // Bytes behind the handshake are a request if there is no tunnel; in a tunnel they would never be seen as one.
        client.send(handshake("/", "") + "GET /second HTTP/1.1\r\nHost: a\r\n\r\n");
        let response = client.response();
        assert_eq!(response.status, status, "{head_and_body}");
        assert_eq!(response.field("upgrade"), None);
        let second = client.response();
        let seen = origin.seen();
        assert_eq!(seen.len(), 2);
        assert!(seen[0][1].is_empty(), "bytes behind the head went with it");
        let head = String::from_utf8_lossy(&seen[1][0]).into_owned();
        assert!(head.starts_with("GET /second ") && head.contains("x-forwarded-for"), "{head}");
        assert!(second.status == status || second.status == 502);
        drop(client);
        gateway.finish();
    }
}

#[test]
fn without_upgrades_a_wish_is_plain_http_and_a_route_decides_for_itself() {
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()));
    let tunnel = WebSocketOrigin::echo();
    let tables = format!(
        "[[upstream]]\nname = \"chat\"\nendpoints = [\"{}\"]\n\
         [[route]]\nname = \"chat\"\npath = \"/chat\"\nupstream = \"chat\"\nupgrades = [\"websocket\"]",
        tunnel.address.text()
    );
    let gateway = Gateway::start(Config::http(&origin.address).tables(&tables));
    let mut client = HttpClient::connect(&gateway.address);
    client.send(handshake("/", ""));
    assert_eq!(client.response().status, 200);
    let head = String::from_utf8_lossy(&origin.seen()[0][0]).to_lowercase();
    assert!(!head.contains("upgrade: ") && !head.contains("connection: "), "{head}");
    client.send(handshake("/chat", ""));
    assert_eq!(client.response().status, 101);
    client.send(masked(0x81, b"hi"));
    assert_eq!(received(&mut client), (0x81, b"hi".to_vec()));
    drop(client);
    gateway.finish();
}

#[test]
fn w1_w2_w3_frames_against_the_rules_end_both_sides_in_the_words_of_the_protocol() {
    let origin = WebSocketOrigin::echo();
    let gateway = limited(&origin.address, "message_max = \"1KiB\"\nfragments_max = 10");
    let pieces: Vec<u8> = (0..10).flat_map(|_| masked(0x00, b"a")).collect();
    let huge = [&[0x82, 0xff, 0x7f][..], &[0xff; 7], &[0; 4]].concat();
    let cases: [(&str, Vec<u8>, u16); 11] = [
        ("websocket_mask", unmasked(0x81, b"hi"), 1002),
        ("websocket_reserved_bits", masked(0xc1, b"hi"), 1002),
        ("websocket_opcode", masked(0x83, b"hi"), 1002),
        ("websocket_control_frame", masked(0x09, b"hi"), 1002),
        ("websocket_control_frame", masked(0x89, &[0; 126]), 1002),
        ("websocket_fragmentation", masked(0x80, b"hi"), 1002),
        ("websocket_fragmentation", [masked(0x01, b"hi"), masked(0x81, b"hi")].concat(), 1002),
        ("websocket_message_too_big", masked(0x82, &[0; 1025]), 1009),
        ("websocket_message_too_big", vec![0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1009),
        ("websocket_message_too_big", huge, 1009),
        ("websocket_fragments", [masked(0x01, b"a"), pieces].concat(), 1009),
    ];
    for (number, (reason, bytes, code)) in cases.into_iter().enumerate() {
        let before = gateway.metrics().sum_where("weir_http_tunnels_closed_total", &[("reason", reason)]);
        let (mut client, _) = open(&gateway.address, "");
        client.send(masked(0x81, b"first"));
        assert_eq!(received(&mut client).1, b"first");
        client.send(&bytes);
        let told = loop {
            // Fragments that were in order are echoed.
            let (first, payload) = received(&mut client);
            if first == 0x88 {
                break u16::from_be_bytes([payload[0], payload[1]]);
            }
        };
        assert_eq!(told, code, "{reason}");
        assert!(client.rest().is_empty());
        gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", reason)], before + 1.0);
        let culprit =
            gateway.metrics().sum_where("weir_violations_total", &[("reason", reason), ("culprit", "client")]);
        assert!(culprit >= 1.0, "{reason}");
        until_true("the origin's connection ends", || origin.seen()[number].is_ended);
        let frames = origin.seen()[number].frames.clone();
        assert_eq!(frames.last(), Some(&(0x88, b"\x03\xe9the other end broke off".to_vec())), "{reason}");
    }
    gateway.finish();
}

#[test]
fn an_origin_that_breaks_the_rules_gets_a_close_code_and_the_client_sees_none_of_it() {
    let origin = WebSocketOrigin::with("", |stream, _, _| {
        stream.write_all(&unmasked(0x81, b"good")).is_ok() && stream.write_all(&masked(0x81, b"bad")).is_ok()
    });
    let gateway = gateway(&origin.address);
    let (mut client, _) = open(&gateway.address, "");
    client.send(masked(0x81, b"hi"));
    assert_eq!(received(&mut client), (0x81, b"good".to_vec()));
    assert_eq!(close_code(&mut client), 1001);
    assert!(client.rest().is_empty());
    let labels = [("reason", "websocket_mask"), ("culprit", "upstream")];
    gateway.wait_metric("weir_violations_total", &labels, 1.0);
    drop(client);
    gateway.finish();
}

#[test]
fn w6_a_flood_of_pings_is_1008() {
    let origin = WebSocketOrigin::echo();
    let gateway = gateway(&origin.address);
    let (mut client, _) = open(&gateway.address, "");
    for _ in 0..50 {
        client.send(masked(0x89, b""));
    }
    for _ in 0..50 {
        assert_eq!(received(&mut client), (0x8a, Vec::new()));
    }
    client.send(masked(0x89, b""));
    assert_eq!(close_code(&mut client), 1008);
    drop(client);
    gateway.finish();
}

#[test]
fn w6_silence_and_frames_without_an_end_have_their_time() {
    let origin = WebSocketOrigin::echo();
    let gateway = limited(&origin.address, "idle_timeout = \"1500ms\"");
    let (mut client, _) = open(&gateway.address, "");
    let begun = Instant::now();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        client.send(masked(0x8a, b""));
    }
    assert_eq!(close_code(&mut client), 1001);
    assert!(begun.elapsed() >= Duration::from_millis(3_800), "a pong is life");
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "websocket_idle")], 1.0);
    drop(client);
    gateway.finish();
    let gateway = limited(&origin.address, "frame_timeout = \"500ms\"");
    let (mut client, _) = open(&gateway.address, "");
    let begun = Instant::now();
    client.send(&masked(0x82, &[0; 100])[..20]);
    // A drip does not help.
    std::thread::sleep(Duration::from_millis(300));
    client.send([0]);
    assert_eq!(close_code(&mut client), 1008);
    let took = begun.elapsed();
    assert!((Duration::from_millis(450)..Duration::from_millis(2_000)).contains(&took), "{took:?}");
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "websocket_frame_timeout")], 1.0);
    drop(client);
    gateway.finish();
}

#[test]
fn w7_a_slow_reader_pauses_the_origin_and_gets_everything() {
    const FRAME: usize = 256 * 1024;
    const COUNT: usize = 256;
    let written = Arc::new(AtomicU64::new(0));
    let counter = written.clone();
    let origin = WebSocketOrigin::with("", move |stream, _, _| {
        let frame = unmasked(0x82, &vec![7; FRAME]);
        (0..COUNT).all(|_| {
            counter.fetch_add(FRAME as u64, Ordering::Relaxed);
            stream.write_all(&frame).is_ok()
        })
    });
    let gateway = gateway(&origin.address);
    let (mut client, _) = open(&gateway.address, "");
    client.send(masked(0x81, b"go"));
    // Until it stands still: what has left the origin is in the buffers of three sockets and of the gateway.
    let mut before = u64::MAX;
    until_true("the origin is paused", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = written.load(Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    let total = (FRAME * COUNT) as u64;
    assert!(before < total / 2, "{before} of {total} bytes left the origin and nobody reads");
    assert!(gateway.metric("weir_buffered_bytes") < 2e6);
    for _ in 0..COUNT {
        let (first, payload) = received(&mut client);
        assert!(first == 0x82 && payload.len() == FRAME && payload.iter().all(|&byte| byte == 7));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn w10_a_drain_tells_both_ends_1001() {
    let origin = WebSocketOrigin::echo();
    let mut gateway = Gateway::start(Config::http(&origin.address).listener(ON));
    let mut clients: Vec<HttpClient> = (0..8).map(|_| open(&gateway.address, "").0).collect();
    gateway.process().signal("TERM");
    for client in &mut clients {
        assert_eq!(close_code(client), 1001);
        assert!(client.rest().is_empty());
    }
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    for seen in origin.seen() {
        assert_eq!(seen.frames, [(0x88, b"\x03\xe9going down".to_vec())]);
    }
    gateway.ended();
}

#[test]
fn an_end_without_a_close_frame_ends_the_other_side_too() {
    let origin = WebSocketOrigin::with("", |stream, _, _| {
        let _ = stream.write_all(&unmasked(0x81, b"last words"));
        false
    });
    let gateway = gateway(&origin.address);
    let (mut client, _) = open(&gateway.address, "");
    client.send(masked(0x81, b"hi"));
    assert_eq!(received(&mut client), (0x81, b"last words".to_vec()));
    assert!(client.rest().is_empty());
    let (client, _) = open(&gateway.address, "");
    drop(client);
    until_true("the origin's connection ends", || origin.seen().len() == 2 && origin.seen()[1].is_ended);
    gateway.wait_metric("weir_http_tunnels_closed_total", &[("reason", "client_closed")], 1.0);
    gateway.finish();
}
