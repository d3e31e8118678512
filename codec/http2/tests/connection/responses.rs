//! Responses as a client receives them (RFC 9113 section 8).

use weir_http_codec::{BodyLength, ResponseHead};
use weir_http2_codec::{
    Connection, ErrorCode, Event, OpenError, ProtocolError, Received, RequestTarget, ResetCause, StreamId,
    config::{INTERIM_HEADS_MAX, RESET_STREAMS_KEPT},
    frame::{FrameKind, write},
    settings::Setting,
};

use crate::peer::{CANCEL, Pairs, Peer, request_head};

const TARGET: RequestTarget<'static> = RequestTarget { scheme: b"https", authority: b"a.example", protocol: None };

fn open(machine: &mut Connection, method: &str) -> StreamId {
    machine.send_request(&request_head(method, &[], true), TARGET, true).expect("room")
}

/// A client with one request.
fn requested(method: &str) -> (Peer, StreamId) {
    let mut peer = Peer::of_client();
    let id = open(&mut peer.machine, method);
    peer.sent();
    (peer, id)
}

#[track_caller]
fn only_response(peer: &mut Peer) -> (ResponseHead, bool) {
    let mut events = peer.events();
    match (events.pop(), events.is_empty()) {
        (Some(Event::Response { head, is_end, .. }), true) => (head, is_end),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_sent_with_its_length_and_without_host() {
    let mut peer = Peer::of_client();
    let head = request_head("POST", &[("host", "a.example"), ("content-length", "3"), ("te", "trailers")], false);
    let id = peer.machine.send_request(&head, TARGET, false).expect("room");
    peer.machine.send_data(id, b"abc").expect("open");
    peer.machine.send_end(id, None).expect("open");
    let sent = peer.sent();
    let text: Vec<_> = peer.fields(&sent[0].payload).iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected = ":method=POST :scheme=https :authority=a.example :path=/a?b te=trailers content-length=3";
    assert_eq!(text.join(" "), expected);
    assert_eq!((sent[1].kind(), &sent[1].payload[..], sent[1].ends_stream()), (FrameKind::Data, &b"abc"[..], true));
}

#[test]
fn interim_heads_come_before_the_final_one_and_are_limited() {
    let (mut peer, id) = requested("GET");
    for _ in 0..INTERIM_HEADS_MAX {
        peer.headers(1, &[(":status", "103"), ("link", "x")], false);
        assert_eq!(only_response(&mut peer).0.status(), 103);
    }
    peer.headers(1, &[(":status", "200"), ("content-length", "3")], false);
    let (head, is_end) = only_response(&mut peer);
    assert_eq!((head.status(), head.announced(), is_end), (200, BodyLength::Exact(3), false));
    peer.data(1, b"abc", false);
    peer.headers(1, &[("x-sum", "7")], true);
    assert_eq!(peer.machine.received(id), Received { bytes: 3, is_end: true, reset: None });
    assert_eq!(peer.machine.take_trailers(id).map(|trailers| trailers.len()), Some(1));
    let (mut peer, _) = requested("GET");
    (0..INTERIM_HEADS_MAX).for_each(|_| peer.headers(1, &[(":status", "100")], false));
    peer.headers(1, &[(":status", "100")], false);
    peer.resets(1, ProtocolError::InterimFlood);
}

#[test]
fn malformed_responses_are_errors_of_their_stream() {
    use ProtocolError as Rule;
    let cases: [(Pairs<'_>, bool, ProtocolError); 11] = [
        (&[("x", "y")], true, Rule::PseudoFieldMissing),
        (&[(":status", "20")], true, Rule::Status),
        (&[(":status", "600")], true, Rule::Status),
        (&[(":status", "2x0")], true, Rule::Status),
        (&[(":status", "101")], false, Rule::Status),
        (&[(":status", "103")], true, Rule::InterimEnd),
        (&[(":status", "200"), (":path", "/")], true, Rule::PseudoFieldUnknown),
        (&[(":status", "200"), ("connection", "close")], true, Rule::ConnectionField),
        (&[(":status", "200"), ("content-length", "5")], true, Rule::ContentLength),
        (&[(":status", "200"), ("content-length", "x")], false, Rule::Head),
        (&[(":status", "200"), ("Server", "x")], true, Rule::FieldName),
    ];
    for (fields, is_end, rule) in cases {
        let (mut peer, id) = requested("GET");
        peer.headers(1, fields, is_end);
        peer.resets(1, rule);
        assert_eq!(peer.machine.received(id).reset, Some(ResetCause::Breach(rule)));
    }
    let (mut peer, _) = requested("GET");
    peer.data(1, b"x", true);
    peer.resets(1, ProtocolError::HeadMissing);
}

#[test]
fn responses_without_a_body_may_declare_one_and_have_none() {
    for (method, status, is_legal) in [("HEAD", "200", true), ("GET", "304", true), ("GET", "204", false)] {
        let (mut peer, _) = requested(method);
        peer.headers(1, &[(":status", status), ("content-length", "5")], true);
        match is_legal {
            true => assert!(only_response(&mut peer).1),
            false => peer.resets(1, ProtocolError::ContentLength),
        }
        let (mut peer, id) = requested(method);
        peer.headers(1, &[(":status", status)], false);
        peer.events();
        peer.data(1, b"", true);
        assert!(peer.machine.received(id).is_end);
        let (mut peer, _) = requested(method);
        peer.headers(1, &[(":status", status)], false);
        peer.events();
        peer.data(1, b"x", true);
        peer.resets(1, ProtocolError::BodyUnexpected);
    }
    // Trailers behind a body of no bytes.
    let (mut peer, _) = requested("GET");
    peer.headers(1, &[(":status", "200"), ("content-length", "0")], false);
    assert_eq!(only_response(&mut peer).0.announced(), BodyLength::Chunked);
}

#[test]
fn a_refused_request_says_so_and_a_complete_response_survives_a_reset() {
    let (mut peer, id) = requested("GET");
    peer.write(|into| write::rst_stream(into, 1, ErrorCode::REFUSED_STREAM));
    assert!(
        matches!(peer.events()[..], [Event::Reset(reset, ResetCause::Peer(ErrorCode::REFUSED_STREAM))] if reset == id)
    );
    // The server has what it needs, and does not read the rest of the request.
    let mut peer = Peer::of_client();
    let head = request_head("POST", &[], false);
    let id = peer.machine.send_request(&head, TARGET, false).expect("room");
    peer.sent();
    peer.headers(1, &[(":status", "413")], false);
    peer.data(1, b"too long", true);
    peer.write(|into| write::rst_stream(into, 1, ErrorCode::NO_ERROR));
    let received = peer.machine.received(id);
    assert_eq!((received.bytes, received.is_end), (8, true));
    assert_eq!(received.reset, Some(ResetCause::Peer(ErrorCode::NO_ERROR)));
    assert!(peer.machine.send_data(id, b"x").is_err() && peer.machine.send_end(id, None).is_err());
    let mut data = Vec::new();
    assert_eq!((peer.machine.take_data(id, &mut data, usize::MAX), &data[..]), (8, &b"too long"[..]));
    peer.machine.forget(id);
    assert!(peer.sent().is_empty());
}

#[test]
fn a_request_that_is_given_up_is_cancelled_and_its_response_ignored() {
    let (mut peer, id) = requested("GET");
    peer.headers(1, &[(":status", "200")], false);
    peer.data(1, b"abc", false);
    peer.machine.forget(id);
    assert!(peer.events().is_empty(), "nothing of a forgotten stream");
    let sent = peer.sent();
    assert_eq!((sent[0].kind(), sent[0].number()), (FrameKind::RstStream, CANCEL.as_u32()));
    peer.data(1, b"def", false);
    peer.headers(1, &[("x", "y")], true);
    peer.is_alive();
    assert_eq!((peer.machine.held(), peer.machine.open_streams()), (0, 0));
}

#[test]
fn an_extended_connect_needs_the_offer_of_the_server() {
    let mut peer = Peer::of_client();
    let target = RequestTarget { protocol: Some(b"websocket"), ..TARGET };
    let head = request_head("GET", &[], true);
    assert_eq!(peer.machine.send_request(&head, target, false), Err(OpenError::NoConnectProtocol));
    peer.write(|into| write::settings(into, &[Setting::EnableConnectProtocol(true)]));
    peer.machine.send_request(&head, target, false).expect("offered");
    let sent = peer.sent_of(FrameKind::Headers);
    let fields = peer.fields(&sent[0].payload);
    assert!(fields.contains(&(":method".into(), "CONNECT".into())));
    assert!(fields.contains(&(":protocol".into(), "websocket".into())) && !sent[0].ends_stream());
}

#[test]
fn a_request_that_is_given_up_while_its_last_data_waits_is_cancelled_at_once() {
    let mut peer = Peer::of_client();
    // The origin reads no body.
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(0), Setting::MaxConcurrentStreams(3)]));
    for round in 0..3 {
        let id = peer.machine.send_request(&request_head("POST", &[], false), TARGET, false).expect("room");
        peer.machine.send_data(id, b"abc").expect("open");
        peer.machine.send_end(id, None).expect("open");
        peer.machine.forget(id);
        let resets = peer.sent_of(FrameKind::RstStream);
        assert_eq!((resets.len(), resets[0].stream(), resets[0].number()), (1, 2 * round + 1, CANCEL.as_u32()));
    }
    assert!(peer.machine.can_open() && peer.machine.open_streams() == 0);
    peer.machine.shut_down();
    assert!(peer.machine.is_over());
}

#[test]
fn late_frames_of_any_request_that_was_given_up_are_ignored_however_many_those_are() {
    let mut peer = Peer::of_client();
    for _ in 0..2 * RESET_STREAMS_KEPT {
        let id = open(&mut peer.machine, "GET");
        peer.machine.forget(id);
        peer.sent();
    }
    peer.headers(1, &[(":status", "200"), ("x-new", "entry of the table")], false);
    peer.data(1, b"late", false);
    peer.headers(3, &[(":status", "200"), ("x-new", "entry of the table")], true);
    peer.is_alive();
    let id = open(&mut peer.machine, "GET");
    peer.headers(id.number(), &[(":status", "200"), ("x-new", "entry of the table")], true);
    assert_eq!(only_response(&mut peer).0.fields.len(), 1, "the table is in step");
}

#[test]
fn a_response_of_no_bytes_has_none_also_if_trailers_follow() {
    for (body, is_legal) in [(&b""[..], true), (b"x", false)] {
        let (mut peer, id) = requested("GET");
        peer.headers(1, &[(":status", "200"), ("content-length", "0")], false);
        let (head, is_end) = only_response(&mut peer);
        assert_eq!((head.announced(), head.fields.len(), is_end), (BodyLength::Chunked, 0, false));
        peer.data(1, body, false);
        match is_legal {
            false => peer.resets(1, ProtocolError::ContentLength),
            true => {
                peer.headers(1, &[("x-sum", "7")], true);
                assert_eq!(peer.machine.received(id), Received { bytes: 0, is_end: true, reset: None });
            }
        }
    }
}

#[test]
fn heads_and_trailers_of_an_origin_have_as_many_fields_as_those_of_a_client() {
    let fields = [&[(":status", "200")][..], &[("x", "y"); 101]].concat();
    let (mut peer, _) = requested("GET");
    peer.headers(1, &fields, true);
    peer.resets(1, ProtocolError::HeadTooLong);
    let (mut peer, _) = requested("GET");
    peer.headers(1, &fields[..101], false);
    assert_eq!(only_response(&mut peer).0.fields.len(), 100);
    peer.headers(1, &fields[1..], true);
    peer.resets(1, ProtocolError::TrailersTooLong);
}
