//! Frames that are sent, one by one.

use weir_http2_codec::{ErrorCode, Event, frame::FrameKind};

use crate::peer::{CANCEL, Peer, fields, response};

#[test]
fn a_small_response_is_two_frames_in_one_piece() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.machine.send_response(id, &response(200, &[]), Some(5), false).expect("open");
    peer.machine.send_data(id, b"he").expect("open");
    peer.machine.send_data(id, b"llo").expect("open");
    peer.machine.send_end(id, None).expect("open");
    peer.machine.forget(id);
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[1].kind()), (2, FrameKind::Headers, FrameKind::Data));
    assert_eq!((&sent[1].payload[..], sent[1].ends_stream()), (&b"hello"[..], true));
    assert_eq!(peer.machine.open_streams(), 0);
}

#[test]
fn interim_heads_go_before_the_final_one_which_goes_once() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    assert!(peer.machine.send_data(id, b"x").is_err() && peer.machine.send_end(id, None).is_err(), "no head yet");
    peer.machine.send_response(id, &response(100, &[]), None, true).expect("open");
    peer.machine.send_response(id, &response(103, &[("link", "x")]), None, false).expect("open");
    peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
    assert!(peer.machine.send_response(id, &response(200, &[]), None, false).is_err());
    let sent = peer.sent();
    assert!(sent.len() == 3 && sent.iter().all(|frame| !frame.ends_stream()));
}

#[test]
fn trailers_go_behind_queued_data() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
    peer.machine.send_data(id, &[7; 70_000]).expect("open");
    peer.machine.send_end(id, Some(&fields(&[("x-sum", "7")]))).expect("open");
    let sent = peer.sent();
    assert_eq!(sent.last().map(|frame| frame.kind()), Some(FrameKind::Data), "4,465 bytes wait");
    peer.write(|into| weir_http2_codec::frame::write::window_update(into, 0, 10_000));
    peer.write(|into| weir_http2_codec::frame::write::window_update(into, 1, 10_000));
    let sent = peer.sent();
    assert_eq!((sent[0].payload.len(), sent[0].ends_stream()), (4_465, false));
    assert_eq!((sent[1].kind(), sent[1].ends_stream(), sent.len()), (FrameKind::Headers, true, 2));
    assert!(matches!(peer.events()[..], [Event::Writable(writable)] if writable == id));
}

#[test]
fn a_response_before_the_end_of_its_request_is_followed_by_a_reset_without_an_error() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    peer.data(1, b"abc", false);
    peer.machine.send_response(id, &response(413, &[]), Some(0), true).expect("open");
    assert_eq!(peer.sent().len(), 1, "the shell may still read the request");
    assert_eq!(peer.machine.received(id).reset, None);
    peer.machine.forget(id);
    let sent = peer.sent();
    assert_eq!((sent[0].kind(), sent[0].number()), (FrameKind::RstStream, ErrorCode::NO_ERROR.as_u32()));
    peer.data(1, b"in flight", true);
    peer.is_alive();
}

#[test]
fn a_response_that_breaks_off_is_reset_and_what_is_queued_is_dropped() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
    peer.machine.send_data(id, &[7; 200_000]).expect("open");
    peer.sent();
    peer.machine.reset(id, ErrorCode::INTERNAL_ERROR);
    peer.machine.reset(id, CANCEL);
    assert_eq!(peer.machine.queued(id), 0);
    peer.machine.forget(id);
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].number()), (1, ErrorCode::INTERNAL_ERROR.as_u32()));
    let other = peer.request(3, "GET", true);
    peer.machine.forget(other);
    assert_eq!(peer.sent()[0].number(), CANCEL.as_u32());
}

#[test]
fn a_head_longer_than_a_frame_goes_on_in_continuation() {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    let long = "\u{7f}".replace('\u{7f}', "%&").repeat(20_000);
    peer.machine.send_response(id, &response(200, &[("x-long", &long)]), None, true).expect("open");
    let sent = peer.sent();
    assert!(sent.len() >= 3 && sent[0].ends_stream() && !sent[0].header.ends_headers());
    assert!(sent[1..].iter().all(|frame| frame.kind() == FrameKind::Continuation));
    let block: Vec<u8> = sent.iter().flat_map(|frame| frame.payload.clone()).collect();
    assert!(peer.fields(&block)[1].1 == long);
}
