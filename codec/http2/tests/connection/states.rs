//! States of streams, and frames where they do not belong (RFC 9113 sections 3.4, 5.1, 6). H2.8 and H2.10.

use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, ProtocolError, ResetCause,
    frame::{FrameError, FrameKind, flags, write},
};

use crate::peer::{CANCEL, Peer, head, response};

#[test]
fn a_server_waits_for_the_preface_however_it_is_cut_and_takes_nothing_else() {
    for cut in 0..write::PREFACE.len() {
        let mut peer = Peer::before_settings(Connection::server(ConnectionConfig::default()));
        peer.send(&write::PREFACE[..cut]);
        peer.send(&write::PREFACE[cut..]);
        peer.write(|into| write::settings(into, &[]));
        peer.is_alive();
        let mut peer = Peer::before_settings(Connection::server(ConnectionConfig::default()));
        peer.send(&write::PREFACE[..cut]);
        peer.send(b"\x01");
        peer.fails(ProtocolError::Preface);
    }
}

#[test]
fn the_first_frame_is_settings_and_no_acknowledgement_of_them() {
    for client in [false, true] {
        for (kind, flags, payload) in [(6, 0, &[0; 8][..]), (4, flags::ACK, &[]), (0, 0, b"x"), (0x42, 0, b"")] {
            let (config, stream) = (ConnectionConfig::default(), u32::from(kind == 0));
            let mut peer =
                Peer::before_settings(if client { Connection::client(config) } else { Connection::server(config) });
            let mut preface = Vec::new();
            if client {
                while peer.machine.take_output(&mut preface) {}
            } else {
                peer.send(write::PREFACE);
            }
            peer.raw(kind, flags, stream, payload);
            peer.fails(ProtocolError::Preface);
        }
    }
}

#[test]
fn h2_10_numbers_of_streams_are_odd_and_grow() {
    let mut peer = Peer::of_server();
    peer.headers(2, &head("GET"), true);
    peer.fails(ProtocolError::StreamNumber);
    let mut peer = Peer::of_server();
    peer.request(5, "GET", true);
    peer.headers(3, &head("GET"), true);
    peer.fails(ProtocolError::StreamNumber);
}

#[test]
fn h2_10_frames_on_idle_streams_end_the_connection() {
    let idle: [(u8, u8, &[u8]); 4] =
        [(0, 0, b"data"), (3, 0, &[0, 0, 0, 8]), (8, 0, &[0, 0, 0, 100]), (8, 0, &[0, 0, 0, 0])];
    for (kind, flags, payload) in idle {
        for stream in [3, 4] {
            let mut peer = Peer::of_server();
            peer.request(1, "GET", true);
            peer.raw(kind, flags, stream, payload);
            let is_zero = kind == 8 && payload == [0; 4];
            peer.fails(if is_zero { FrameError::StreamIncrement.into() } else { ProtocolError::IdleStream });
        }
    }
    // PRIORITY is no frame that needs an open stream.
    let mut peer = Peer::of_server();
    peer.raw(2, 0, 7, &[0, 0, 0, 0, 1]);
    peer.is_alive();
    let mut peer = Peer::of_client();
    peer.headers(1, &[(":status", "200")], true);
    peer.fails(ProtocolError::IdleStream);
    let mut peer = Peer::of_client();
    peer.headers(2, &[(":status", "200")], true);
    peer.fails(ProtocolError::IdleStream);
}

#[test]
fn frames_on_a_half_closed_stream_are_errors_of_the_stream() {
    for kind in [0_u8, 1] {
        let mut peer = Peer::of_server();
        let id = peer.request(1, "POST", true);
        match kind {
            0 => peer.data(1, b"x", true),
            _ => peer.headers(1, &head("GET"), true),
        }
        peer.resets(1, ProtocolError::StreamClosed);
        let cause = ResetCause::Breach(ProtocolError::StreamClosed);
        assert_eq!(peer.machine.received(id).reset, Some(cause));
        assert!(peer.machine.send_response(id, &response(200, &[]), None, true).is_err());
        // Nothing of it can be in flight.
        peer.data(1, b"x", true);
        peer.fails(ProtocolError::StreamClosed);
    }
    // Window updates, PRIORITY and RST_STREAM are in order.
    let mut peer = Peer::of_server();
    peer.request(1, "GET", true);
    peer.write(|into| write::window_update(into, 1, 1));
    peer.raw(2, 0, 1, &[0, 0, 0, 0, 1]);
    peer.is_alive();
    peer.write(|into| write::rst_stream(into, 1, CANCEL));
    assert!(matches!(peer.events()[..], [Event::Reset(_, ResetCause::Peer(CANCEL))]));
}

/// A server whose stream 1 is complete; `is_forgotten`: the shell has given it up.
fn complete(is_forgotten: bool) -> Peer {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "GET", true);
    peer.machine.send_response(id, &response(200, &[]), None, true).expect("open");
    if is_forgotten {
        peer.machine.forget(id);
    }
    assert_eq!(peer.sent().len(), 1);
    peer
}

#[test]
fn frames_on_a_complete_stream_end_the_connection() {
    for is_forgotten in [false, true] {
        let mut peer = complete(is_forgotten);
        peer.data(1, b"x", true);
        peer.fails(ProtocolError::StreamClosed);
        let mut peer = complete(is_forgotten);
        peer.headers(1, &head("GET"), true);
        peer.fails(ProtocolError::StreamClosed);
        let mut peer = complete(is_forgotten);
        peer.write(|into| write::window_update(into, 1, 1));
        peer.write(|into| write::rst_stream(into, 1, CANCEL));
        peer.raw(2, 0, 1, &[0, 0, 0, 0, 1]);
        assert!(peer.events().is_empty());
        peer.is_alive();
    }
}

#[test]
fn frames_behind_a_reset_of_the_peer_are_errors_of_the_stream() {
    for is_forgotten in [false, true] {
        let mut peer = Peer::of_server();
        let id = peer.request(1, "POST", false);
        peer.write(|into| write::rst_stream(into, 1, CANCEL));
        assert!(matches!(peer.events()[..], [Event::Reset(reset, ResetCause::Peer(CANCEL))] if reset == id));
        if is_forgotten {
            peer.machine.forget(id);
        }
        peer.data(1, b"x", false);
        peer.resets(1, ProtocolError::StreamClosed);
        peer.headers(1, &head("GET"), true);
        // The stream is one that this side has reset too.
        let is_ignored = peer.sent_of(FrameKind::RstStream).is_empty();
        assert_eq!(is_ignored, is_forgotten);
    }
}

#[test]
fn frames_in_flight_of_a_stream_that_was_reset_here_are_ignored() {
    for is_forgotten in [false, true] {
        let mut peer = Peer::of_server();
        let id = peer.request(1, "POST", false);
        peer.data(1, &[7; 1_000], false);
        peer.events();
        peer.machine.reset(id, ErrorCode::INTERNAL_ERROR);
        if is_forgotten {
            peer.machine.forget(id);
        }
        assert_eq!(peer.sent_of(FrameKind::RstStream)[0].number(), 2);
        peer.data(1, &[7; 1_000], false);
        peer.headers(1, &[("x", "y")], true);
        assert!(peer.events().is_empty() && peer.sent().is_empty());
        assert_eq!(peer.machine.held(), if is_forgotten { 0 } else { 1_000 });
        peer.is_alive();
        peer.request(3, "GET", true);
    }
}

#[test]
fn a_header_block_is_not_interrupted_and_not_begun_by_continuation() {
    let others: [(u8, u32, &[u8]); 6] =
        [(0, 1, b"x"), (1, 1, b""), (2, 1, &[0; 5]), (4, 0, b""), (6, 0, &[0; 8]), (0x42, 1, b"x")];
    for (kind, stream, payload) in others {
        let mut peer = Peer::of_server();
        let block = peer.block(&head("GET"));
        peer.raw(1, flags::END_STREAM, 1, &block[..2]);
        peer.raw(kind, 0, stream, payload);
        peer.fails(ProtocolError::Continuation);
    }
    let mut peer = Peer::of_server();
    let block = peer.block(&head("GET"));
    peer.raw(1, flags::END_STREAM, 1, &block[..2]);
    peer.raw(9, flags::END_HEADERS, 3, &block[2..]);
    peer.fails(ProtocolError::Continuation);
    let mut peer = Peer::of_server();
    peer.request(1, "POST", false);
    peer.raw(9, flags::END_HEADERS, 1, b"");
    peer.fails(ProtocolError::Continuation);
    let mut peer = Peer::of_server();
    peer.raw(9, flags::END_HEADERS, 0, b"");
    peer.fails(FrameError::StreamMissing.into());
}

#[test]
fn a_stream_that_depends_on_itself_is_reset_also_if_its_head_goes_on() {
    let mut peer = Peer::of_server();
    peer.raw(2, 0, 1, &[0, 0, 0, 1, 7]);
    peer.fails(FrameError::SelfDependency.into());
    for is_cut in [false, true] {
        let mut peer = Peer::of_server();
        let block = peer.block(&head("GET"));
        let cut = if is_cut { 3 } else { block.len() };
        let payload = [&[0, 0, 0, 1, 7][..], &block[..cut]].concat();
        let ends = if is_cut { 0 } else { flags::END_HEADERS };
        peer.raw(1, flags::END_STREAM | flags::PRIORITY | ends, 1, &payload);
        if is_cut {
            peer.raw(9, flags::END_HEADERS, 1, &block[cut..]);
        }
        peer.resets(1, FrameError::SelfDependency.into());
        // The table is in step.
        peer.request(3, "GET", true);
    }
    let mut peer = Peer::of_server();
    peer.request(1, "GET", true);
    peer.raw(2, 0, 1, &[0, 0, 0, 1, 7]);
    peer.resets(1, FrameError::SelfDependency.into());
}

#[test]
fn frames_of_a_wrong_length_or_place_end_the_connection() {
    let cases: [(u8, u32, &[u8], FrameError); 9] = [
        (0, 0, b"x", FrameError::StreamMissing),
        (1, 0, b"", FrameError::StreamMissing),
        (3, 0, &[0; 4], FrameError::StreamMissing),
        (3, 1, &[0; 3], FrameError::Length),
        (4, 0, &[0; 5], FrameError::Length),
        (4, 1, b"", FrameError::StreamUnexpected),
        (6, 0, &[0; 7], FrameError::Length),
        (7, 1, &[0; 8], FrameError::StreamUnexpected),
        (8, 0, &[0; 3], FrameError::Length),
    ];
    for (kind, stream, payload, error) in cases {
        let mut peer = Peer::of_server();
        peer.request(1, "POST", false);
        peer.raw(kind, 0, stream, payload);
        peer.fails(error.into());
    }
    let mut peer = Peer::of_server();
    // The length alone is enough.
    peer.send(&[0, 0x40, 1, 0, 0, 0, 0, 0, 1]);
    peer.fails(FrameError::TooLong.into());
    let mut peer = Peer::of_server();
    peer.request(1, "POST", false);
    peer.raw(0, flags::PADDED, 1, &[4, 1, 2, 3]);
    peer.fails(FrameError::Padding.into());
    let mut peer = Peer::of_server();
    peer.request(1, "GET", true);
    peer.raw(2, 0, 1, &[0; 4]);
    peer.resets(1, FrameError::PriorityLength.into());
}

#[test]
fn a_malformed_frame_behind_the_end_of_its_stream_has_the_error_of_a_stream() {
    let cases: [(u8, &[u8], FrameError); 3] = [
        (2, &[0; 4], FrameError::PriorityLength),
        (2, &[0, 0, 0, 1, 7], FrameError::SelfDependency),
        (8, &[0; 4], FrameError::StreamIncrement),
    ];
    for (kind, payload, error) in cases {
        let mut peer = Peer::of_server();
        let id = peer.request(1, "GET", true);
        peer.machine.send_response(id, &response(204, &[]), None, true).expect("open");
        peer.machine.forget(id);
        peer.sent();
        peer.raw(kind, 0, 1, payload);
        peer.resets(1, error.into());
        // A stream that this side has reset gets no second reset.
        let id = peer.request(3, "GET", true);
        let payload: Vec<u8> = payload.iter().map(|byte| if *byte == 1 { 3 } else { *byte }).collect();
        peer.raw(kind, 0, 3, &payload);
        peer.resets(3, error.into());
        peer.machine.forget(id);
        peer.raw(kind, 0, 3, &payload);
        assert!(peer.sent_of(FrameKind::RstStream).is_empty(), "{error:?}");
    }
}

#[test]
fn pushed_streams_are_refused_by_both_sides() {
    for mut peer in [Peer::of_server(), Peer::of_client()] {
        peer.raw(5, flags::END_HEADERS, 1, &[0, 0, 0, 2]);
        peer.fails(ProtocolError::PushPromise);
    }
}

#[test]
fn unknown_frames_flags_and_the_reserved_bit_are_ignored() {
    let mut peer = Peer::of_server();
    peer.raw(0x42, 0xff, 77, b"anything");
    peer.raw(6, 0xfe, 0, &[0; 8]);
    let mut ping = vec![0, 0, 8, 6, 0, 0x80, 0, 0, 0];
    ping.extend_from_slice(&[1; 8]);
    peer.send(&ping);
    assert_eq!(peer.sent_of(FrameKind::Ping).len(), 2);
    peer.is_alive();
}

#[test]
fn more_streams_than_allowed_are_refused_and_their_heads_decoded() {
    let mut peer = Peer::of_server_with(ConnectionConfig { streams_max: 2, ..ConnectionConfig::default() });
    let first = peer.request(1, "GET", true);
    peer.request(3, "GET", true);
    peer.headers(5, &[&head("GET")[..], &[("x-new", "entry of the table")]].concat(), true);
    assert!(peer.events().is_empty());
    let refused = peer.sent();
    assert_eq!((refused[0].stream(), refused[0].number()), (5, ErrorCode::REFUSED_STREAM.as_u32()));
    peer.data(5, b"in flight", true);
    peer.machine.send_response(first, &response(204, &[]), None, true).expect("open");
    peer.machine.forget(first);
    peer.headers(7, &[&head("GET")[..], &[("x-new", "entry of the table")]].concat(), true);
    let (_, request) = crate::peer::only_request(peer.events());
    let head = request.expect("taken").head;
    assert_eq!(head.fields.all_named(b"x-new").next(), Some(&b"entry of the table"[..]));
}

#[test]
fn a_priority_of_a_request_comes_only_from_clients() {
    let mut peer = Peer::of_client();
    peer.raw(0x10, 0, 0, b"\0\0\0\x01u=1");
    peer.fails(ProtocolError::PriorityUpdate);
}
