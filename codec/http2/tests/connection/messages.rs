//! Heads, trailers and bodies of requests (RFC 9113 section 8). H2.4, H2.11 to H2.13.

use weir_http_codec::{BodyLength, HeadLimits, Known, WireError};
use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, ProtocolError, Received,
    frame::{FrameKind, flags, write},
    hpack::HpackError,
};

use crate::peer::{Pairs, Peer, fields, head, only_request, response};

/// A request with further fields.
fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    [&head("GET")[..], more].concat()
}

/// A request whose pseudo-field has another value.
fn swapped(name: &str, value: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut fields = head("GET");
    fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value);
    fields
}

fn without(name: &str) -> Vec<(&'static str, &'static str)> {
    head("GET").into_iter().filter(|field| field.0 != name).collect()
}

#[test]
fn h2_11_malformed_heads_are_errors_of_their_stream() {
    use ProtocolError as Rule;
    let late = [&[("x", "y")][..], &head("GET")].concat();
    let cases = [
        (with(&[(":path", "/b")]), Rule::PseudoFieldRepeated),
        (with(&[(":method", "GET")]), Rule::PseudoFieldRepeated),
        (late, Rule::PseudoFieldLate),
        (with(&[("cookie", "a"), (":authority", "b")]), Rule::PseudoFieldLate),
        (with(&[(":x", "y")]), Rule::PseudoFieldUnknown),
        (with(&[(":status", "200")]), Rule::PseudoFieldUnknown),
        (without(":method"), Rule::PseudoFieldMissing),
        (without(":scheme"), Rule::PseudoFieldMissing),
        (without(":path"), Rule::PseudoFieldMissing),
        (swapped(":path", ""), Rule::PseudoFieldMissing),
        (with(&[("X-Upper", "1")]), Rule::FieldName),
        (with(&[("", "1")]), Rule::FieldName),
        (with(&[("a b", "1")]), Rule::FieldName),
        (with(&[("a:", "1")]), Rule::FieldName),
        (with(&[("connection", "close")]), Rule::ConnectionField),
        (with(&[("keep-alive", "1")]), Rule::ConnectionField),
        (with(&[("proxy-connection", "1")]), Rule::ConnectionField),
        (with(&[("transfer-encoding", "chunked")]), Rule::ConnectionField),
        (with(&[("upgrade", "h2c")]), Rule::ConnectionField),
        (with(&[("te", "gzip")]), Rule::Te),
        (with(&[("te", "trailers, gzip")]), Rule::Te),
        (with(&[("x", "a\r\nb: c")]), Rule::FieldValue),
        (with(&[("x", "a\0")]), Rule::FieldValue),
        (with(&[("x", " a")]), Rule::FieldValue),
        (with(&[("x", "a\t")]), Rule::FieldValue),
        (swapped(":scheme", "a\nb"), Rule::Scheme),
        (swapped(":scheme", "http://b/?"), Rule::Scheme),
        (swapped(":scheme", "1a"), Rule::Scheme),
        (swapped(":scheme", ""), Rule::PseudoFieldMissing),
        (swapped(":method", "CONNECT"), Rule::Connect),
        (with(&[("content-length", "5")]), Rule::ContentLength),
    ];
    for (fields, rule) in cases {
        let mut peer = Peer::of_server();
        peer.headers(1, &fields, true);
        peer.resets(1, rule);
        assert_eq!(peer.machine.open_streams(), 0, "{rule:?}");
        // The decoder is in step, and the stream is over.
        peer.data(1, b"in flight", true);
        peer.request(3, "GET", true);
    }
}

#[test]
fn h2_12_requests_that_http_itself_refuses_are_answered() {
    let long = "/".to_owned() + &"x".repeat(9_000);
    let long: &'static str = long.leak();
    let cases = [
        (swapped(":path", "/a b"), WireError::Target),
        (swapped(":path", "/a#b"), WireError::Target),
        (swapped(":path", "/a\nb"), WireError::Target),
        (swapped(":authority", "a\r\nx: y"), WireError::Host),
        (swapped(":method", "G\0"), WireError::Method),
        (swapped(":path", "a"), WireError::Target),
        (swapped(":path", "*"), WireError::Target),
        (swapped(":path", long), WireError::TargetTooLong),
        (swapped(":authority", "u@a"), WireError::Host),
        (swapped(":authority", ""), WireError::Host),
        (without(":authority"), WireError::Host),
        (with(&[("host", "b")]), WireError::HostMismatch),
        (with(&[("host", "a.example"), ("host", "a.example")]), WireError::Host),
        (with(&[("content-length", "x")]), WireError::ContentLength),
        (with(&[("content-length", "0"), ("content-length", "0")]), WireError::ContentLength),
        (with(&[("expect", "x")]), WireError::Expectation),
        (swapped(":method", "TRACE"), WireError::MethodRefused),
        (swapped(":method", "G T"), WireError::Method),
        (swapped(":method", "PRI"), WireError::Method),
        (vec![(":method", "CONNECT"), (":authority", "a:1")], WireError::MethodRefused),
    ];
    for (fields, expected) in cases {
        let mut peer = Peer::of_server();
        peer.headers(1, &fields, true);
        let (id, request) = only_request(peer.events());
        assert_eq!(request.map(drop), Err(expected));
        peer.machine.send_response(id, &response(expected.status(), &[]), Some(0), true).expect("open");
        peer.machine.forget(id);
        let sent = peer.sent();
        assert_eq!((sent.len(), sent[0].kind(), sent[0].ends_stream()), (1, FrameKind::Headers, true));
        assert_eq!(peer.fields(&sent[0].payload)[0], (":status".into(), expected.status().to_string()));
    }
}

#[test]
fn a_head_becomes_that_of_a_request_with_its_cookies_in_one_field() {
    let mut peer = Peer::of_server();
    let more = [
        ("cookie", "a=1"),
        ("x-a", "1"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("content-length", "12"),
        ("x-a", "2"),
    ];
    peer.headers(1, &with(&more), false);
    let (_, request) = only_request(peer.events());
    let request = request.expect("legal");
    assert_eq!((request.is_end, &request.protocol), (false, &None));
    let head = request.head;
    assert_eq!((head.method(), head.target(), head.authority()), (&b"GET"[..], &b"/a?b"[..], &b"a.example"[..]));
    assert_eq!(head.body(), BodyLength::Exact(12));
    let names: Vec<_> = head.fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    assert_eq!(names, ["x-a", "te", "content-length", "x-a", "cookie"]);
    assert_eq!(head.fields.get(Known::Cookie), Some(&b"a=1; b=2"[..]));
    // Without a length there may be any; without a body there is none.
    let id = peer.request(3, "POST", false);
    assert_eq!(peer.machine.received(id), Received::default());
    peer.headers(5, &[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "h")], true);
    let (_, request) = only_request(peer.events());
    let head = request.expect("legal").head;
    assert_eq!((head.authority(), head.body()), (&b"h"[..], BodyLength::Exact(0)));
}

#[test]
fn h2_4_heads_above_the_limits_are_answered_with_431_and_the_table_stays_in_step() {
    let limits = HeadLimits { bytes: 4_096, fields: 20, ..HeadLimits::default() };
    let mut peer = Peer::of_server_with(ConnectionConfig { head_limits: limits, ..ConnectionConfig::default() });
    let large: &'static str = "x".repeat(3_000).leak();
    peer.headers(1, &with(&[("x-small", "1"), ("x-large", large), ("x-behind", large)]), true);
    let (_, request) = only_request(peer.events());
    assert_eq!(request.map(drop), Err(WireError::HeadTooLong));
    peer.headers(3, &with(&[("x", "1"); 21]), true);
    let (_, request) = only_request(peer.events());
    assert_eq!(request.map(drop), Err(WireError::FieldsTooMany));
    peer.headers(5, &with(&[("x-small", "1")]), true);
    let (id, request) = only_request(peer.events());
    assert!(request.expect("legal").head.fields.len() == 1);
    peer.machine.forget(id);
    let id = peer.request(7, "POST", false);
    peer.headers(7, &[("x-large", large), ("x-behind", large)], true);
    peer.sent_of(FrameKind::RstStream);
    assert!(peer.machine.received(id).reset.is_some(), "trailers too");
}

#[test]
fn a_header_block_that_hpack_cannot_decode_ends_the_connection() {
    let mut peer = Peer::of_server();
    peer.raw(1, flags::END_HEADERS | flags::END_STREAM, 1, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let events = peer.events();
    let Some(Event::Failed(error)) = events.last() else { panic!("{events:?}") };
    assert_eq!((error.code(), error.class()), (ErrorCode::COMPRESSION_ERROR, "http2_compression"));
    // Also on a stream that is over.
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    peer.machine.reset(id, ErrorCode::CANCEL);
    peer.raw(1, flags::END_HEADERS | flags::END_STREAM, 1, &[0x80]);
    assert!(matches!(peer.events()[..], [Event::Failed(ProtocolError::HeaderBlock(_))]));
}

#[test]
fn h2_4_a_block_of_repeated_names_ends_the_connection_wherever_it_belongs() {
    for is_gone in [false, true] {
        let mut peer = Peer::of_server();
        let id = peer.request(1, "POST", false);
        // A name of 4,064 bytes, and then 2 bytes for each field that has it.
        let mut block = vec![0x40, 0x7f, 0xe1, 0x1e];
        block.extend([b'x'; 4_064]);
        block.push(0);
        block.extend([0x7e, 0].repeat(6_000));
        if is_gone {
            peer.machine.reset(id, ErrorCode::CANCEL);
        }
        peer.raw(1, flags::END_HEADERS | flags::END_STREAM, 1, &block);
        peer.fails(HpackError::ListTooLong.into());
    }
}

#[test]
fn trailers_end_their_stream_and_have_no_pseudo_fields_and_none_of_the_framing() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    peer.data(1, b"abc", false);
    peer.headers(1, &[("x-sum", "7"), ("content-length", "9"), ("host", "h")], true);
    assert!(matches!(peer.events()[..], [Event::Readable(readable)] if readable == id));
    assert_eq!(peer.machine.received(id), Received { bytes: 3, is_end: true, reset: None });
    let trailers = peer.machine.take_trailers(id).expect("trailers");
    let names: Vec<_> = trailers.iter().map(|field| field.name.to_vec()).collect();
    assert_eq!(names, [b"x-sum"]);
    let cases: [(Pairs<'_>, bool, ProtocolError); 4] = [
        (&[(":path", "/")], true, ProtocolError::PseudoFieldInTrailers),
        (&[("X", "y")], true, ProtocolError::FieldName),
        (&[("connection", "y")], true, ProtocolError::ConnectionField),
        (&[("x", "y")], false, ProtocolError::TrailersOpen),
    ];
    for (fields, is_end, rule) in cases {
        let mut peer = Peer::of_server();
        peer.request(1, "POST", false);
        peer.headers(1, fields, is_end);
        peer.resets(1, rule);
        peer.request(3, "GET", true);
    }
}

#[test]
fn h2_13_a_body_is_as_long_as_declared() {
    let declared = [&head("POST")[..], &[("content-length", "5")]].concat();
    type Pieces<'a> = &'a [(&'a [u8], bool)];
    let bodies: [(Pieces<'_>, bool); 6] = [
        (&[(b"abc", false), (b"de", true)], true),
        (&[(b"abcde", false), (b"", true)], true),
        (&[(b"abc", true)], false),
        (&[(b"abcdef", false)], false),
        (&[(b"abc", false), (b"def", true)], false),
        (&[(b"", true)], false),
    ];
    for (pieces, is_legal) in bodies {
        let mut peer = Peer::of_server();
        peer.headers(1, &declared, false);
        let (id, _) = only_request(peer.events());
        pieces.iter().for_each(|(data, is_end)| peer.data(1, data, *is_end));
        match is_legal {
            true => assert_eq!(peer.machine.received(id), Received { bytes: 5, is_end: true, reset: None }),
            false => {
                peer.resets(1, ProtocolError::ContentLength);
                assert_eq!(peer.machine.held(), peer.machine.held_by(id) as u64, "the frame in error counts nowhere");
            }
        }
        // Trailers end a body too.
        let mut peer = Peer::of_server();
        peer.headers(1, &declared, false);
        peer.events();
        peer.data(1, b"abc", false);
        peer.headers(1, &[("x", "y")], true);
        peer.resets(1, ProtocolError::ContentLength);
    }
}

#[test]
fn an_extended_connect_is_taken_where_it_is_offered_and_its_data_is_that_of_a_tunnel() {
    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a.example"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
    ];
    let mut peer = Peer::of_server();
    peer.headers(1, &connect, false);
    peer.resets(1, ProtocolError::Connect);
    let offers = ConnectionConfig { connect_protocol: true, ..ConnectionConfig::default() };
    for left_out in [2, 3, 4] {
        let mut peer = Peer::of_server_with(offers);
        let mut fields = connect.to_vec();
        fields.remove(left_out);
        peer.headers(1, &fields, false);
        let rule = if left_out == 3 { ProtocolError::Connect } else { ProtocolError::PseudoFieldMissing };
        peer.resets(1, rule);
    }
    let mut peer = Peer::of_server_with(offers);
    peer.headers(1, &[&head("GET")[..], &[(":protocol", "websocket")]].concat(), false);
    peer.resets(1, ProtocolError::Connect);
    peer.headers(3, &connect, false);
    let (id, request) = only_request(peer.events());
    let request = request.expect("legal");
    assert_eq!((request.head.method(), request.head.target()), (&b"GET"[..], &b"/chat"[..]));
    assert_eq!((request.protocol.as_deref(), request.is_end), (Some(&b"websocket"[..]), false));
    peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
    peer.data(3, b"frame", false);
    peer.machine.send_data(id, b"emarf").expect("open");
    assert_eq!(peer.sent_of(FrameKind::Data)[0].payload, b"emarf");
    assert_eq!(peer.machine.received(id).bytes, 5);
}

#[test]
fn frames_are_the_same_however_they_are_cut() {
    let mut bytes = write::PREFACE.to_vec();
    write::settings(&mut bytes, &[]);
    let mut source = Peer::of_server();
    let block = source.block(&with(&[("x-long", "some value that makes the block longer")]));
    write::headers(&mut bytes, 1, false, 16, |into| into.extend_from_slice(&block));
    write::data(&mut bytes, 1, b"the first", false);
    bytes.extend_from_slice(&[0, 0, 8, 0, flags::PADDED, 0, 0, 0, 1, 3]);
    bytes.extend_from_slice(b"pads\0\0\0");
    write::ping(&mut bytes, [3; 8]);
    let block = source.block(&[("x-sum", "7")]);
    write::headers(&mut bytes, 1, true, 16, |into| into.extend_from_slice(&block));
    let outcome = |pieces: &[&[u8]]| {
        let mut peer = Peer::before_settings(Connection::server(ConnectionConfig::default()));
        pieces.iter().for_each(|piece| peer.send(piece));
        let events = peer.events();
        let id = events.iter().find_map(|event| if let Event::Request(id, Ok(_)) = event { Some(*id) } else { None });
        let id = id.expect("a request");
        let mut data = Vec::new();
        let received = peer.machine.received(id);
        peer.machine.take_data(id, &mut data, usize::MAX);
        let trailers = peer.machine.take_trailers(id).map(|trailers| trailers.len());
        (received, data, trailers, peer.machine.held(), peer.sent())
    };
    let whole = outcome(&[&bytes]);
    assert_eq!((&whole.1[..], whole.2), (&b"the firstpads"[..], Some(1)));
    for cut in 0..bytes.len() {
        assert_eq!(outcome(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    }
    for size in 1..20 {
        assert_eq!(outcome(&bytes.chunks(size).collect::<Vec<_>>()), whole, "in pieces of {size}");
    }
}

#[test]
fn fields_are_sent_in_lower_case_and_without_those_of_a_connection() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    let mut head = response(200, &[]);
    head.fields = fields(&[
        ("X-Upper", "1"),
        ("Set-Cookie", "a"),
        ("set-cookie", "b"),
        ("Connection", "close"),
        ("Content-Length", "3"),
        ("TE", "gzip"),
    ]);
    peer.machine.send_response(id, &head, Some(5), false).expect("open");
    peer.machine.send_end(id, Some(&fields(&[("X-Sum", "7")]))).expect("open");
    let sent = peer.sent();
    let text = |fields: Vec<(String, String)>| {
        fields.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    let head = peer.fields(&sent[0].payload);
    assert_eq!(text(head), ":status=200 x-upper=1 set-cookie=a set-cookie=b content-length=5");
    assert!(!sent[0].ends_stream() && sent[1].ends_stream());
    let trailers = peer.fields(&sent[1].payload);
    assert_eq!(text(trailers), "x-sum=7");
}
