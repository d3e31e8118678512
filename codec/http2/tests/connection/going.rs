//! The end of a connection: GOAWAY of either side (RFC 9113 section 6.8). H2.16, H2.17.

use std::time::Duration;

use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, OpenError, ProtocolError, RequestTarget, ResetCause,
    config::DRAIN_TIMEOUT,
    frame::{FrameKind, STREAM_ID_MAX, write},
    settings::Setting,
};

use crate::peer::{NOW, Peer, head, request_head, response};

const TARGET: RequestTarget<'static> = RequestTarget { scheme: b"https", authority: b"a.example", protocol: None };

#[test]
fn h2_16_a_drain_takes_streams_between_its_two_steps_and_refuses_those_behind() {
    let mut peer = Peer::of_server();
    let open = peer.request(1, "GET", true);
    peer.machine.shut_down();
    peer.machine.shut_down();
    let sent = peer.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[0].kind(), sent[0].last_stream(), sent[0].number()), (FrameKind::GoAway, STREAM_ID_MAX, 0));
    let between = peer.request(3, "GET", true);
    assert!(!peer.machine.is_over());
    let data = *sent[1].payload.first_chunk().expect("8 bytes");
    peer.write(|into| write::ping_ack(into, data));
    let goaway = peer.sent();
    assert_eq!((goaway[0].kind(), goaway[0].last_stream(), goaway[0].number()), (FrameKind::GoAway, 3, 0));
    peer.headers(5, &head("GET"), true);
    let refused = peer.sent();
    assert_eq!((refused[0].stream(), refused[0].number()), (5, ErrorCode::REFUSED_STREAM.as_u32()));
    assert!(peer.events().is_empty() && !peer.machine.is_over());
    for id in [open, between] {
        peer.machine.send_response(id, &response(200, &[]), None, true).expect("open");
        peer.machine.forget(id);
    }
    assert_eq!(peer.sent_of(FrameKind::Headers).len(), 2);
    assert!(peer.machine.is_over());
    // A failure behind it does not name a higher stream.
    peer.headers(4, &head("GET"), true);
    let last = peer.sent_of(FrameKind::GoAway);
    assert_eq!(last[0].last_stream(), 3);
}

#[test]
fn h2_16_a_drain_without_streams_is_over_with_its_second_step() {
    let mut peer = Peer::of_server();
    peer.machine.shut_down();
    assert!(!peer.machine.is_over());
    let data = *peer.sent()[1].payload.first_chunk().expect("8 bytes");
    peer.write(|into| write::ping_ack(into, data));
    assert!(peer.machine.is_over() && peer.machine.has_output());
}

#[test]
fn an_abort_ends_all_streams_at_once() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    peer.data(1, b"abc", false);
    peer.machine.abort(ErrorCode::INTERNAL_ERROR);
    peer.machine.abort(ErrorCode::NO_ERROR);
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].last_stream(), sent[0].number()), (1, FrameKind::GoAway, 1, 2));
    assert!(peer.machine.is_over());
    assert_eq!(peer.machine.received(id).reset, Some(ResetCause::Closed));
    assert!(peer.machine.send_response(id, &response(200, &[]), None, true).is_err());
    peer.machine.forget(id);
    assert!(peer.sent().is_empty() && peer.machine.open_streams() == 0);
}

#[test]
fn h2_17_streams_above_the_last_one_of_goaway_are_unprocessed_and_no_other() {
    let mut peer = Peer::of_client();
    let ids: Vec<_> = (0..3)
        .map(|_| peer.machine.send_request(&request_head("GET", &[], true), TARGET, true).expect("room"))
        .collect();
    peer.sent();
    peer.write(|into| write::go_away(into, 3, ErrorCode::NO_ERROR, b"bye"));
    let events = peer.events();
    assert!(matches!(events[0], Event::GoAway { last: 3, code: ErrorCode::NO_ERROR }));
    assert!(matches!(events[1], Event::Reset(id, ResetCause::Unprocessed) if id == ids[2]) && events.len() == 2);
    assert_eq!((peer.machine.can_open(), peer.machine.streams_max()), (false, 0));
    let refused = peer.machine.send_request(&request_head("GET", &[], true), TARGET, true);
    assert_eq!(refused, Err(OpenError::Closing));
    peer.headers(1, &[(":status", "200")], true);
    peer.headers(3, &[(":status", "200")], true);
    assert_eq!(peer.events().len(), 2);
    assert!(!peer.machine.is_over());
    ids.into_iter().for_each(|id| peer.machine.forget(id));
    assert!(peer.machine.is_over() && peer.sent().is_empty());
    peer.write(|into| write::go_away(into, 1, ErrorCode::NO_ERROR, b""));
    peer.is_alive();
    peer.write(|into| write::go_away(into, 3, ErrorCode::NO_ERROR, b""));
    peer.fails(ProtocolError::GoAwayGrows);
}

#[test]
fn h2_17_a_server_may_lower_its_limit_of_streams_at_any_time() {
    let mut peer = Peer::before_settings(Connection::client(ConnectionConfig::default()));
    assert_eq!((peer.machine.can_open(), peer.machine.streams_max()), (true, 100));
    let request = request_head("GET", &[], true);
    let open: Vec<_> = (0..100).map(|_| peer.machine.send_request(&request, TARGET, true).expect("room")).collect();
    assert_eq!(peer.machine.send_request(&request, TARGET, true), Err(OpenError::Full));
    peer.write(|into| write::settings(into, &[Setting::MaxConcurrentStreams(2)]));
    assert!(matches!(peer.events()[..], [Event::Settings]));
    assert_eq!((peer.machine.can_open(), peer.machine.streams_max()), (false, 2));
    for id in open {
        peer.machine.forget(id);
    }
    assert!(peer.machine.can_open());
    peer.write(|into| write::settings(into, &[Setting::MaxConcurrentStreams(0)]));
    assert_eq!(peer.machine.send_request(&request, TARGET, true), Err(OpenError::Full));
    assert_eq!((peer.machine.can_open(), peer.machine.streams_max()), (false, 1), "not over");
}

#[test]
fn a_failed_connection_ends_its_streams_with_the_reason() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.headers(3, &head("GET"), true);
    peer.raw(6, 0, 1, &[0; 8]);
    let events = peer.events();
    assert!(matches!(events[..], [Event::Failed(_)]), "a request that nobody has seen is none: {events:?}");
    assert!(matches!(peer.machine.received(id).reset, Some(ResetCause::Connection(_))));
    assert_eq!(peer.machine.open_streams(), 1);
    peer.machine.forget(id);
    assert_eq!(peer.machine.open_streams(), 0);
}

#[test]
fn a_client_that_goes_says_so_once_and_is_over_with_its_last_stream() {
    let mut peer = Peer::of_client();
    let id = peer.machine.send_request(&request_head("GET", &[], true), TARGET, true).expect("room");
    peer.sent();
    peer.machine.shut_down();
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].last_stream(), sent[0].number()), (1, FrameKind::GoAway, 0, 0));
    assert_eq!((peer.machine.is_over(), peer.machine.can_open(), peer.machine.streams_max()), (false, false, 0));
    peer.headers(1, &[(":status", "200")], true);
    assert_eq!(peer.events().len(), 1);
    peer.machine.forget(id);
    assert!(peer.machine.is_over());
}

#[test]
fn h2_16_a_drain_that_the_peer_does_not_confirm_goes_on_by_itself() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.machine.shut_down();
    assert_eq!(peer.sent().len(), 2);
    peer.machine.expire(NOW);
    let due = NOW.saturating_add(DRAIN_TIMEOUT);
    assert_eq!(peer.machine.next_deadline(), Some(due));
    peer.machine.expire(NOW.saturating_add(DRAIN_TIMEOUT - Duration::from_millis(1)));
    assert!(peer.sent().is_empty());
    peer.machine.expire(due);
    let goaway = peer.sent();
    assert_eq!((goaway.len(), goaway[0].kind(), goaway[0].last_stream()), (1, FrameKind::GoAway, 1));
    assert_eq!((peer.machine.next_deadline(), peer.machine.is_over()), (None, false));
    peer.machine.send_response(id, &response(200, &[]), None, true).expect("open");
    peer.machine.forget(id);
    assert!(peer.machine.is_over());
    // A late confirmation is none any more.
    peer.write(|into| write::ping_ack(into, *b"weirlast"));
    assert!(peer.sent_of(FrameKind::GoAway).is_empty());
}

#[test]
fn h2_16_streams_behind_the_last_one_are_refused_and_counted_generously() {
    let mut peer = Peer::of_server();
    peer.request(1, "GET", true);
    peer.machine.shut_down();
    peer.write(|into| write::ping_ack(into, *b"weirlast"));
    peer.sent();
    for number in 1..=200 {
        peer.headers(2 * number + 1, &head("GET"), true);
    }
    assert_eq!(peer.sent_of(FrameKind::RstStream).len(), 200);
    peer.headers(403, &head("GET"), true);
    peer.fails(ProtocolError::StreamFlood);
}
