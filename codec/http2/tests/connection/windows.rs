//! Windows in both directions (RFC 9113 sections 5.2 and 6.9). H2.7 to H2.9.

use weir_http2_codec::{
    ConnectionConfig, ErrorCode, Event, ProtocolError, ResetCause, StreamId,
    frame::{FrameKind, flags, write},
    settings::{Setting, WINDOW_BYTES_MAX},
};

use crate::peer::{Peer, Sent, response};

const PIECE: [u8; 16_384] = [7; 16_384];

fn small(stream_window: u32) -> Peer {
    Peer::of_server_with(ConnectionConfig { stream_window, connection_window: 65_535, ..ConnectionConfig::default() })
}

fn updates(peer: &mut Peer) -> Vec<(u32, u32)> {
    peer.sent_of(FrameKind::WindowUpdate).iter().map(|frame| (frame.stream(), frame.number())).collect()
}

/// A server with a response under way on each of these streams.
fn responding(streams: &[u32]) -> (Peer, Vec<StreamId>) {
    let mut peer = Peer::of_server();
    let mut ids = Vec::new();
    for stream in streams {
        let id = peer.request(*stream, "GET", true);
        peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
        ids.push(id);
    }
    peer.sent();
    (peer, ids)
}

fn data(sent: &[Sent]) -> Vec<(u32, usize, bool)> {
    let frames = sent.iter().filter(|frame| frame.kind() == FrameKind::Data);
    frames.map(|frame| (frame.stream(), frame.payload.len(), frame.ends_stream())).collect()
}

#[test]
fn data_is_taken_in_pieces_and_a_pause_swaps_no_buffer() {
    let mut peer = small(40_000);
    let id = peer.request(1, "POST", false);
    let body: Vec<u8> = (0..30_000_u32).map(|number| (number / 100) as u8).collect();
    let (first, second) = body.split_at(16_000);
    peer.data(1, first, false);
    let mut taken = Vec::new();
    for left in [11_000, 6_000, 1_000] {
        assert_eq!(peer.machine.take_data(id, &mut taken, 5_000), 5_000);
        assert_eq!(peer.machine.received(id).bytes, left);
    }
    peer.data(1, second, false);
    while peer.machine.take_data(id, &mut taken, 5_000) > 0 {}
    assert_eq!((taken == body, peer.machine.received(id).bytes, peer.machine.held()), (true, 0, 30_000));
    let mut empty = Vec::with_capacity(100);
    assert_eq!((peer.machine.take_data(id, &mut empty, usize::MAX), empty.capacity()), (0, 100));
}

#[test]
fn windows_are_renewed_when_half_of_them_was_released_and_not_before() {
    let mut peer = small(40_000);
    let id = peer.request(1, "POST", false);
    peer.data(1, &PIECE, false);
    peer.data(1, &PIECE, false);
    assert_eq!((peer.machine.held(), peer.machine.held_by(id)), (32_768, 32_768));
    let mut taken = Vec::new();
    assert_eq!(peer.machine.take_data(id, &mut taken, usize::MAX), 32_768);
    assert_eq!(peer.machine.held(), 32_768, "taken is not released");
    assert!(updates(&mut peer).is_empty());
    peer.machine.release(id, 5_000);
    assert_eq!(updates(&mut peer), [], "of the 12,232 bytes that it may have, the stream has 7,232");
    peer.machine.release(id, 10_000);
    assert_eq!(updates(&mut peer), [(1, 15_000)]);
    peer.machine.release(id, 17_768);
    // Half of the window of the connection is used up only now.
    assert_eq!(updates(&mut peer), [(0, 32_768)]);
    assert_eq!((peer.machine.held(), peer.machine.held_by(id)), (0, 0));
    peer.machine.release(id, usize::MAX);
    assert!(updates(&mut peer).is_empty(), "more than was received");
}

#[test]
fn more_than_the_window_of_a_stream_resets_it_and_more_than_that_of_the_connection_ends_it() {
    let mut peer = small(20_000);
    let id = peer.request(1, "POST", false);
    peer.data(1, &PIECE, false);
    peer.data(1, &PIECE, false);
    peer.resets(1, ProtocolError::WindowExceeded);
    assert_eq!(peer.machine.held(), 16_384, "what was taken before");
    peer.machine.forget(id);
    assert_eq!((peer.machine.held(), updates(&mut peer)), (0, vec![(0, 32_768)]), "the rest counts as released");
    let mut peer = small(WINDOW_BYTES_MAX);
    peer.request(1, "POST", false);
    (0..3).for_each(|_| peer.data(1, &PIECE, false));
    peer.data(1, &PIECE[..16_383], false);
    peer.is_alive();
    peer.data(1, b"x", false);
    peer.fails(ProtocolError::WindowExceeded);
}

#[test]
fn the_first_window_of_a_stream_is_that_of_the_protocol_until_the_peer_has_the_setting() {
    let config = ConnectionConfig { stream_window: 10, ..ConnectionConfig::default() };
    let mut peer = Peer::before_settings(weir_http2_codec::Connection::server(config));
    let mut begin = write::PREFACE.to_vec();
    write::settings(&mut begin, &[]);
    peer.send(&begin);
    peer.events();
    let id = peer.request(1, "POST", false);
    peer.data(1, &PIECE, false);
    assert_eq!(peer.machine.received(id).bytes, 16_384);
    assert!(!peer.machine.set_initial_stream_window(20), "the first one is under way");
    peer.write(write::settings_ack);
    assert!(matches!(peer.events()[..], [Event::Readable(_), Event::SettingsAcked]));
    peer.data(1, b"x", false);
    peer.resets(1, ProtocolError::WindowExceeded);
}

#[test]
fn another_window_of_streams_is_that_of_open_ones_once_it_is_acknowledged() {
    let mut peer = small(20_000);
    let id = peer.request(1, "POST", false);
    peer.data(1, &PIECE, false);
    assert!(peer.machine.set_initial_stream_window(40_000) && !peer.machine.set_initial_stream_window(50_000));
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].kind()), (1, FrameKind::Settings));
    assert_eq!(sent[0].payload, Setting::InitialWindowSize(40_000).to_bytes());
    peer.write(write::settings_ack);
    assert!(updates(&mut peer).is_empty(), "the peer has added the difference by itself");
    peer.data(1, &PIECE, false);
    assert_eq!(peer.machine.received(id).bytes, 32_768);
    assert!(peer.machine.set_initial_stream_window(1_000));
    peer.write(write::settings_ack);
    peer.sent();
    peer.machine.release(id, 32_000);
    assert_eq!(updates(&mut peer).first(), Some(&(1, 32_000)), "1,000 wanted, 768 held, 31,768 below 0");
    peer.data(1, b"x", true);
    assert!(peer.machine.received(id).is_end);
}

#[test]
fn the_window_of_the_connection_can_be_set_and_is_not_taken_back() {
    let mut peer = small(100_000);
    let id = peer.request(1, "POST", false);
    peer.machine.set_connection_window(1 << 20);
    assert_eq!(updates(&mut peer), [(0, (1 << 20) - 65_535)]);
    (0..4).for_each(|_| peer.data(1, &PIECE, false));
    peer.machine.set_connection_window(65_536);
    assert!(updates(&mut peer).is_empty());
    peer.machine.release(id, 65_536);
    assert_eq!(updates(&mut peer), [(1, 65_536)], "the connection has more than it should");
    peer.data(1, &PIECE, false);
    peer.is_alive();
}

#[test]
fn h2_7_padding_is_given_back_at_once_and_empty_frames_are_counted() {
    let mut peer = small(40_000);
    let id = peer.request(1, "POST", false);
    let mut padded = vec![255];
    padded.resize(256, 0);
    let mut given = [0; 2];
    for _ in 0..90 {
        peer.raw(0, flags::PADDED, 1, &padded);
        for (stream, increment) in updates(&mut peer) {
            given[usize::from(stream == 0)] += increment;
        }
    }
    assert_eq!((peer.machine.held(), peer.machine.received(id).bytes), (0, 0));
    assert_eq!(given, [20_224, 0], "half of the stream's window");
    peer.events();
    (0..11).for_each(|_| peer.raw(0, flags::PADDED, 1, &padded));
    peer.fails(ProtocolError::EmptyDataFlood);
}

#[test]
fn h2_8_window_updates_add_up_to_the_limit_and_not_beyond() {
    let (mut peer, _) = responding(&[1]);
    peer.write(|into| write::window_update(into, 0, WINDOW_BYTES_MAX - 65_535));
    peer.write(|into| write::window_update(into, 1, WINDOW_BYTES_MAX - 65_535));
    peer.is_alive();
    peer.write(|into| write::window_update(into, 1, 1));
    peer.resets(1, ProtocolError::WindowOverflow);
    peer.write(|into| write::window_update(into, 0, 1));
    peer.fails(ProtocolError::WindowOverflow);
}

#[test]
fn a_setting_that_makes_a_window_too_large_ends_the_connection() {
    let (mut peer, _) = responding(&[1]);
    peer.write(|into| write::window_update(into, 1, 1));
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(WINDOW_BYTES_MAX)]));
    peer.fails(ProtocolError::WindowOverflow);
}

#[test]
fn a_setting_overflows_no_window_of_a_stream_that_is_over() {
    let (mut peer, ids) = responding(&[1]);
    peer.write(|into| write::window_update(into, 1, 1));
    peer.machine.send_end(ids[0], None).expect("open");
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(WINDOW_BYTES_MAX)]));
    peer.is_alive();
}

#[test]
fn h2_7_a_million_bytes_one_by_one_are_one_event_and_hold_what_they_are() {
    let mut peer = Peer::of_server_with(ConnectionConfig { stream_window: 1 << 20, ..ConnectionConfig::default() });
    let id = peer.request(1, "POST", false);
    let mut frames = Vec::new();
    (0..1_000).for_each(|_| write::data(&mut frames, 1, b"x", false));
    (0..1_000).for_each(|_| peer.send(&frames));
    assert!(matches!(peer.events()[..], [Event::Readable(readable)] if readable == id));
    assert_eq!((peer.machine.held(), peer.machine.received(id).bytes), (1_000_000, 1_000_000));
    let mut data = Vec::new();
    peer.machine.take_data(id, &mut data, usize::MAX);
    assert!(data.len() == 1_000_000 && data.capacity() <= 1 << 20, "{}", data.capacity());
    assert_eq!(updates(&mut peer), []);
}

#[test]
fn h2_9_data_waits_for_the_window_of_its_stream_which_may_be_negative() {
    let (mut peer, ids) = responding(&[1]);
    let id = ids[0];
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(1)]));
    peer.machine.send_data(id, b"abc").expect("open");
    peer.machine.send_end(id, None).expect("open");
    assert!(peer.machine.send_data(id, b"d").is_err(), "behind the end");
    assert_eq!(data(&peer.sent()), [(1, 1, false)]);
    assert_eq!((peer.machine.queued(id), peer.machine.send_capacity(id)), (2, 0));
    // One byte was sent: the window is now below 0.
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(0)]));
    peer.write(|into| write::window_update(into, 1, 1));
    assert_eq!(data(&peer.sent()), []);
    peer.write(|into| write::window_update(into, 1, 1));
    assert_eq!(data(&peer.sent()), [(1, 1, false)]);
    assert!(matches!(peer.events()[..], [Event::Settings, Event::Settings, Event::Writable(_)]));
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(1)]));
    assert_eq!(data(&peer.sent()), [(1, 1, true)]);
    peer.machine.forget(id);
    assert_eq!(peer.machine.open_streams(), 0);
}

#[test]
fn streams_that_wait_for_the_connection_have_turns_of_one_frame() {
    let (mut peer, ids) = responding(&[1, 3, 5]);
    for id in &ids {
        for _ in 0..3 {
            peer.machine.send_data(*id, &PIECE).expect("open");
        }
        peer.machine.send_end(*id, None).expect("open");
    }
    let first = data(&peer.sent());
    assert_eq!(first, [(1, 16_384, false), (1, 16_384, false), (1, 16_384, true), (3, 16_383, false)]);
    peer.write(|into| write::window_update(into, 0, 1 << 20));
    let order = data(&peer.sent());
    assert_eq!(order.iter().map(|frame| frame.1).sum::<usize>(), 9 * 16_384 - 65_535);
    let streams: Vec<_> = order.iter().map(|frame| frame.0).collect();
    assert_eq!(streams, [3, 5, 3, 5, 3, 5], "each has one frame, before one has another");
    assert_eq!(order.iter().filter(|frame| frame.2).count(), 2);
}

#[test]
fn an_output_that_is_not_taken_leaves_data_in_the_queues() {
    let (mut peer, ids) = responding(&[1]);
    let id = ids[0];
    peer.write(|into| write::window_update(into, 0, 1 << 24));
    peer.write(|into| write::window_update(into, 1, 1 << 24));
    let body: Vec<u8> = (0..1_000_000_u32).map(|at| (at % 251) as u8).collect();
    body.chunks(10_000).for_each(|piece| peer.machine.send_data(id, piece).expect("open"));
    let queued = peer.machine.queued(id);
    assert!((900_000..1_000_000).contains(&queued), "{queued}");
    let (mut received, mut calls) = (Vec::new(), 0);
    loop {
        let mut out = Vec::new();
        if !peer.machine.take_output(&mut out) {
            break;
        }
        assert!(out.len() <= 64 * 1024 + 17_000, "{}", out.len());
        calls += 1;
        crate::peer::frames(&out).iter().for_each(|frame| received.extend_from_slice(&frame.payload));
    }
    assert!(received == body && calls > 10);
    assert_eq!((peer.machine.queued(id), peer.machine.send_capacity(id)), (0, 64 * 1024));
}

#[test]
fn a_forgotten_stream_with_an_end_goes_on_sending_and_gives_its_bytes_back() {
    let mut peer = small(65_535);
    let id = peer.request(1, "POST", false);
    (0..3).for_each(|_| peer.data(1, &PIECE, false));
    peer.machine.send_response(id, &response(200, &[]), None, false).expect("open");
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(0)]));
    peer.machine.send_data(id, b"abc").expect("open");
    peer.machine.send_end(id, None).expect("open");
    peer.sent();
    peer.machine.forget(id);
    assert_eq!((peer.machine.held(), peer.machine.open_streams()), (0, 1));
    // It is not of the shell any more.
    peer.machine.reset(id, ErrorCode::CANCEL);
    assert_eq!((peer.machine.queued(id), peer.machine.open_streams()), (0, 1));
    assert_eq!(updates(&mut peer), [(0, 49_152)]);
    peer.data(1, b"dropped", false);
    peer.write(|into| write::window_update(into, 1, 3));
    let sent = peer.sent();
    assert_eq!(data(&sent), [(1, 3, true)]);
    let reset = sent.last().expect("a reset");
    assert_eq!((reset.kind(), reset.number()), (FrameKind::RstStream, ErrorCode::NO_ERROR.as_u32()));
    assert_eq!(peer.machine.open_streams(), 0);
    peer.events()
        .iter()
        .for_each(|event| assert!(!matches!(event, Event::Reset(..) | Event::Writable(_)), "{event:?}"));
    let cause = peer.machine.received(id).reset;
    assert_eq!(cause, Some(ResetCause::Closed), "not of the shell any more");
}

#[test]
fn output_that_no_window_lets_through_is_none() {
    let (mut peer, ids) = responding(&[1]);
    peer.write(|into| write::window_update(into, 1, 1_000));
    peer.machine.send_data(ids[0], &[7; 70_000]).expect("open");
    peer.sent();
    assert!(peer.machine.queued(ids[0]) > 0 && !peer.machine.has_output());
    // Its own window shrinks below 0, then the connection's grows.
    peer.write(|into| write::settings(into, &[Setting::InitialWindowSize(0)]));
    peer.write(|into| write::window_update(into, 0, 10_000));
    assert_eq!((data(&peer.sent()), peer.machine.has_output()), (vec![], false));
}
