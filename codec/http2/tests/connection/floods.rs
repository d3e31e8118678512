//! Floods (RFC 9113 section 10.5). H2.1 to H2.3, H2.5, H2.6, H2.15.

use std::time::Duration;

use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, ProtocolError,
    config::{
        EARLY_RESETS_MAX, OUTBOUND_CONTROL_BYTES_MAX, OUTPUT_CONGESTED_BYTES, OUTPUT_WAITING_BYTES_MAX,
        REFUSED_STREAMS_MAX, SETTINGS_TIMEOUT,
    },
    frame::{FrameKind, flags, write},
    settings::Setting,
};

use crate::peer::{CANCEL, NOW, Peer, head};

/// Numbers of frames, counted from 1, until the connection fails.
fn failed_at(peer: &mut Peer, mut send: impl FnMut(&mut Peer, u32)) -> (u32, ProtocolError) {
    for number in 1..20_000 {
        send(peer, number);
        for event in peer.events() {
            match event {
                Event::Failed(error) => return (number, error),
                // The shell sees the request, and has it no more.
                Event::Reset(id, _) => peer.machine.forget(id),
                _ => {}
            }
        }
        peer.sent();
    }
    panic!("it bears everything");
}

#[test]
fn h2_5_h2_6_frames_that_cost_nothing_are_counted_by_kind() {
    // Kind, stream, payload, the first frame that is too many.
    let frames: [(u8, u32, &[u8], u32, ProtocolError); 8] = [
        (6, 0, &[0; 8], 101, ProtocolError::PingFlood),
        (4, 0, b"", 50, ProtocolError::SettingsFlood),
        (0, 1, b"", 101, ProtocolError::EmptyDataFlood),
        (8, 0, &[0, 0, 0, 1], 1_001, ProtocolError::WindowUpdateFlood),
        (8, 1, &[0, 0, 3, 0], 1_001, ProtocolError::WindowUpdateFlood),
        (2, 7, &[0; 5], 201, ProtocolError::PriorityFlood),
        (0x10, 0, &[0, 0, 0, 1], 201, ProtocolError::PriorityFlood),
        (0x42, 0, b"x", 201, ProtocolError::PriorityFlood),
    ];
    for (kind, stream, payload, at, error) in frames {
        let mut peer = Peer::of_server();
        peer.request(1, "POST", false);
        assert_eq!(failed_at(&mut peer, |peer, _| peer.raw(kind, 0, stream, payload)), (at, error));
        // At half the pace they are borne.
        let mut peer = Peer::of_server();
        peer.request(1, "POST", false);
        for _ in 0..3 * at {
            peer.now = peer.now.saturating_add(Duration::from_secs_f64(2.0 / f64::from(at)));
            peer.raw(kind, 0, stream, payload);
            peer.sent();
        }
        peer.events().iter().for_each(|event| assert!(!matches!(event, Event::Failed(_)), "{event:?}"));
    }
}

#[test]
fn h2_1_streams_that_are_reset_at_once_are_counted_and_those_before_the_shell_has_them_more_strictly() {
    let open_and_reset = |peer: &mut Peer, number: u32| {
        peer.headers(2 * number - 1, &head("GET"), true);
        peer.write(|into| write::rst_stream(into, 2 * number - 1, CANCEL));
    };
    let mut peer = Peer::of_server();
    let mut requests = 0;
    let failed = failed_at(&mut peer, |peer, number| {
        peer.headers(2 * number - 1, &head("GET"), true);
        let events = peer.events();
        for event in &events {
            if let Event::Request(id, _) = event {
                requests += 1;
                peer.machine.forget(*id);
            }
        }
        peer.write(|into| write::rst_stream(into, 2 * number - 1, CANCEL));
    });
    assert_eq!((failed, requests), ((101, ProtocolError::ResetFlood), 101));
    let mut peer = Peer::of_server();
    (1..=EARLY_RESETS_MAX).for_each(|number| open_and_reset(&mut peer, number));
    assert!(peer.events().is_empty(), "no request is seen of a stream that is over");
    (1..=EARLY_RESETS_MAX).for_each(|number| open_and_reset(&mut peer, EARLY_RESETS_MAX + number));
    open_and_reset(&mut peer, 2 * EARLY_RESETS_MAX + 1);
    peer.fails(ProtocolError::StreamFlood);
    assert_eq!(peer.machine.open_streams(), 0);
}

#[test]
fn h2_2_streams_that_the_gateway_is_made_to_reset_are_counted_for_life() {
    type Breach = fn(&mut Peer, u32);
    let breaches: [Breach; 3] = [
        |peer, stream| peer.headers(stream, &[&head("GET")[..], &[("Upper", "x")]].concat(), true),
        |peer, stream| {
            peer.headers(stream, &head("POST"), false);
            peer.write(|into| write::window_update(into, stream, (1 << 31) - 1));
        },
        |peer, stream| {
            peer.headers(stream, &head("POST"), true);
            peer.data(stream, b"x", true);
        },
    ];
    for breach in breaches {
        let mut peer = Peer::of_server();
        let failed = failed_at(&mut peer, |peer, number| {
            peer.now = peer.now.saturating_add(Duration::from_secs(1));
            breach(peer, 2 * number - 1);
        });
        assert_eq!(failed, (REFUSED_STREAMS_MAX + 1, ProtocolError::StreamFlood));
    }
}

#[test]
fn h2_2_streams_that_a_client_opens_before_it_knows_the_limit_are_not_counted() {
    let config = ConnectionConfig { streams_max: 1, ..ConnectionConfig::default() };
    let mut peer = Peer::before_settings(Connection::server(config));
    peer.send(write::PREFACE);
    peer.write(|into| write::settings(into, &[]));
    for number in 0..=REFUSED_STREAMS_MAX + 1 {
        peer.headers(2 * number + 1, &head("GET"), true);
        peer.sent();
    }
    peer.write(write::settings_ack);
    assert!(!peer.events().iter().any(|event| matches!(event, Event::Failed(_))));
}

#[test]
fn h2_2_streams_beyond_the_limit_are_refused_and_counted_too() {
    let mut peer = Peer::of_server_with(ConnectionConfig { streams_max: 1, ..ConnectionConfig::default() });
    peer.request(1, "GET", true);
    let failed = failed_at(&mut peer, |peer, number| peer.headers(2 * number + 1, &head("GET"), true));
    assert_eq!(failed, (REFUSED_STREAMS_MAX + 1, ProtocolError::StreamFlood));
}

#[test]
fn honest_cancels_count_for_nothing_over_time() {
    let mut peer = Peer::of_server();
    for number in 0..2_000 {
        // 100 resets of the client a second, and as many of the gateway.
        peer.now = peer.now.saturating_add(Duration::from_millis(5));
        let id = peer.request(2 * number + 1, "GET", true);
        match number % 2 {
            0 => peer.write(|into| write::rst_stream(into, 2 * number + 1, CANCEL)),
            _ => peer.machine.reset(id, CANCEL),
        }
        peer.machine.forget(id);
        assert!(peer.events().iter().all(|event| !matches!(event, Event::Failed(_))));
        peer.sent();
    }
    peer.is_alive();
}

#[test]
fn h2_3_a_header_block_ends_after_20_continuations() {
    let mut peer = Peer::of_server();
    let block = peer.block(&head("GET"));
    peer.raw(1, flags::END_STREAM, 1, b"");
    (0..19).for_each(|_| peer.raw(9, 0, 1, b""));
    peer.raw(9, flags::END_HEADERS, 1, &block);
    assert!(matches!(peer.events()[..], [Event::Request(_, Ok(_))]));
    peer.raw(1, flags::END_STREAM, 3, b"");
    (0..21).for_each(|_| peer.raw(9, 0, 3, b""));
    peer.fails(ProtocolError::ContinuationFlood);
    let mut peer = Peer::of_server();
    peer.raw(1, flags::END_STREAM, 1, b"");
    (0..20).for_each(|_| peer.raw(9, 0, 1, &[0x20; 16_384]));
    peer.fails(ProtocolError::HeaderBlockTooLong);
}

#[test]
fn h2_5_thousands_of_settings_in_one_frame_are_one_change() {
    let mut peer = Peer::of_server();
    for stream in 0..100 {
        peer.request(2 * stream + 1, "GET", true);
    }
    let settings: Vec<_> = (0..2_730).map(|at| Setting::InitialWindowSize(at * 100)).collect();
    peer.write(|into| write::settings(into, &settings));
    assert_eq!(peer.sent_of(FrameKind::Settings).len(), 1);
    peer.is_alive();
}

#[test]
fn h2_5_settings_are_acknowledged_in_time() {
    let mut peer = Peer::before_settings(weir_http2_codec::Connection::server(ConnectionConfig::default()));
    peer.machine.expire(NOW);
    assert_eq!(peer.machine.next_deadline(), Some(NOW.saturating_add(SETTINGS_TIMEOUT)));
    let mut begin = write::PREFACE.to_vec();
    write::settings(&mut begin, &[]);
    peer.send(&begin);
    peer.machine.expire(NOW.saturating_add(SETTINGS_TIMEOUT - Duration::from_millis(1)));
    peer.is_alive();
    peer.machine.expire(NOW.saturating_add(SETTINGS_TIMEOUT));
    peer.fails(ProtocolError::SettingsTimeout);
    let mut peer = Peer::of_server();
    assert_eq!(peer.machine.next_deadline(), None);
    peer.machine.expire(NOW.saturating_add(2 * SETTINGS_TIMEOUT));
    peer.is_alive();
}

#[test]
fn h2_9_control_frames_do_not_pile_up_for_a_peer_that_reads_nothing() {
    let mut peer = Peer::of_server();
    let mut frames = 0;
    while peer.events().iter().all(|event| !matches!(event, Event::Failed(_))) {
        peer.now = peer.now.saturating_add(Duration::from_millis(50));
        peer.write(|into| write::ping(into, [0; 8]));
        frames += 1;
        assert!(frames < 10_000, "it bears everything");
    }
    let sent: usize = peer.sent().iter().map(|frame| frame.payload.len() + 9).sum();
    assert!((OUTBOUND_CONTROL_BYTES_MAX..OUTBOUND_CONTROL_BYTES_MAX + 100).contains(&sent), "{sent}");
}

#[test]
fn h2_9_heads_do_not_pile_up_for_a_client_that_reads_nothing() {
    let head = crate::peer::response(304, &[("etag", "0123456789abcdef"), ("server", "weir")]);
    let respond = |peer: &mut Peer, number: u32| {
        peer.headers(2 * number + 1, &crate::peer::head("HEAD"), true);
        for event in peer.events() {
            match event {
                Event::Request(id, _) => {
                    peer.machine.send_response(id, &head, None, true).expect("open");
                    peer.machine.forget(id);
                }
                event => panic!("{event:?}"),
            }
        }
    };
    let mut peer = Peer::of_server();
    let congested = (0..100_000).find(|number| {
        respond(&mut peer, *number);
        peer.machine.is_congested()
    });
    let congested = congested.expect("it bears everything");
    assert!(congested as usize > OUTPUT_CONGESTED_BYTES / 60, "{congested}");
    // A driver that obeys: once the output has moved, the connection goes on.
    assert!(peer.sent().len() > congested as usize && !peer.machine.is_congested());
    respond(&mut peer, congested + 1);
    peer.is_alive();
    // One that does not.
    let mut number = congested + 2;
    let failed = loop {
        peer.headers(2 * number + 1, &crate::peer::head("HEAD"), true);
        match peer.events()[..] {
            [Event::Request(id, _)] => {
                peer.machine.send_response(id, &head, None, true).expect("open");
                peer.machine.forget(id);
            }
            [Event::Failed(error)] => break error,
            ref events => panic!("{events:?}"),
        }
        number += 1;
        assert!(number < 100_000, "it bears everything");
    };
    assert_eq!(failed, ProtocolError::OutputFlood);
    let sent: usize = peer.sent().iter().map(|frame| frame.payload.len() + 9).sum();
    assert!((OUTPUT_WAITING_BYTES_MAX..OUTPUT_WAITING_BYTES_MAX + 200).contains(&sent), "{sent}");
}

#[test]
fn h2_9_requests_do_not_pile_up_for_an_origin_that_reads_nothing() {
    let mut peer = Peer::of_client();
    let request = crate::peer::request_head("GET", &[("x-long", "some value of a field")], true);
    let mut attempts = 0;
    while peer.machine.can_open() {
        let id = peer.machine.send_request(&request, crate::pair::TARGET, true).expect("room");
        peer.machine.forget(id);
        attempts += 1;
        assert!(attempts < 100_000, "it bears everything");
    }
    assert!(peer.machine.is_congested());
    let full = peer.machine.send_request(&request, crate::pair::TARGET, true);
    assert_eq!(full, Err(weir_http2_codec::OpenError::Full));
    peer.is_alive();
    assert!(peer.machine.can_open());
}

#[test]
fn h2_15_many_streams_are_reset_in_one_piece() {
    let mut peer = Peer::of_server_with(ConnectionConfig { streams_max: 20_000, ..ConnectionConfig::default() });
    let mut ids = Vec::new();
    for number in 0..20_000 {
        let id = peer.request(2 * number + 1, "GET", true);
        peer.machine.send_response(id, &crate::peer::response(200, &[]), None, false).expect("open");
        peer.machine.send_data(id, &[7; 100]).expect("open");
        ids.push(id);
    }
    peer.sent();
    peer.machine.close();
    assert!(peer.machine.is_over());
    ids.into_iter().for_each(|id| peer.machine.forget(id));
    assert_eq!((peer.machine.open_streams(), peer.machine.held()), (0, 0));
}

#[test]
fn frames_of_a_server_are_not_counted_by_a_client_but_acknowledgements_are() {
    let mut peer = Peer::of_client();
    let settings = |into: &mut Vec<u8>| write::settings(into, &[]);
    for _ in 0..2_000 {
        peer.write(|into| write::ping(into, [0; 8]));
        peer.write(settings);
        peer.raw(2, 0, 1, &[0, 0, 0, 0, 1]);
        peer.write(|into| write::window_update(into, 0, 1));
        peer.sent();
    }
    peer.is_alive();
    peer.events();
    let acknowledgements = (0..20_000).find(|_| {
        peer.write(|into| write::ping(into, [0; 8]));
        peer.machine.is_over()
    });
    assert_eq!(acknowledgements, Some((OUTBOUND_CONTROL_BYTES_MAX / 17) as u32), "each is 17 bytes");
    peer.fails(ProtocolError::OutboundControlFlood);
}

/// A server with one stream that it has reset, and that the peer has not ended.
fn reset_here(is_forgotten: bool) -> Peer {
    let mut peer = Peer::of_server();
    let id = peer.request(1, "POST", false);
    peer.machine.reset(id, CANCEL);
    if is_forgotten {
        peer.machine.forget(id);
    }
    peer.sent();
    peer
}

#[test]
fn frames_of_streams_that_were_reset_here_are_counted_unless_they_are_data() {
    for is_forgotten in [false, true] {
        let mut peer = reset_here(is_forgotten);
        let failed = failed_at(&mut peer, |peer, _| peer.headers(1, &[("x", "y")], false));
        assert_eq!(failed, (201, ProtocolError::StreamFlood));
        let mut peer = reset_here(is_forgotten);
        let failed = failed_at(&mut peer, |peer, _| peer.data(1, b"", false));
        assert_eq!(failed, (101, ProtocolError::EmptyDataFlood));
        // An upload in flight is none of the peer's fault.
        let mut peer = reset_here(is_forgotten);
        (0..5_000).for_each(|_| peer.data(1, b"in flight", false));
        peer.data(1, b"", true);
        peer.is_alive();
    }
    // An end for each of many is not either, and the peer has said it once for all.
    let mut peer = Peer::of_server_with(ConnectionConfig { streams_max: 500, ..ConnectionConfig::default() });
    for number in 0..500 {
        let id = peer.request(2 * number + 1, "POST", false);
        peer.machine.forget(id);
    }
    peer.sent();
    (0..500).for_each(|number| peer.data(2 * number + 1, b"", true));
    peer.is_alive();
}

#[test]
fn a_stream_that_was_reset_here_ends_once() {
    for is_forgotten in [false, true] {
        for is_data in [false, true] {
            let mut peer = reset_here(is_forgotten);
            let end = |peer: &mut Peer| match is_data {
                true => peer.data(1, b"", true),
                false => peer.headers(1, &[("x", "y")], true),
            };
            end(&mut peer);
            peer.is_alive();
            end(&mut peer);
            let events = peer.events();
            assert!(matches!(events[..], [Event::Failed(_)]), "{events:?}");
        }
    }
}

#[test]
fn h2_1_a_client_with_many_streams_may_cancel_all_of_them_at_once() {
    for streams_max in [100, 400] {
        let mut peer = Peer::of_server_with(ConnectionConfig { streams_max, ..ConnectionConfig::default() });
        let ids: Vec<_> = (0..streams_max).map(|number| peer.request(2 * number + 1, "GET", true)).collect();
        for id in &ids {
            peer.write(|into| write::rst_stream(into, id.number(), CANCEL));
            peer.machine.forget(*id);
        }
        peer.sent();
        peer.is_alive();
        peer.write(|into| write::rst_stream(into, 1, CANCEL));
        peer.fails(ProtocolError::ResetFlood);
    }
}

#[test]
fn goaways_of_a_client_are_one_event_unless_they_go_lower() {
    let mut peer = Peer::of_server();
    (0..10_000).for_each(|_| peer.write(|into| write::go_away(into, 7, ErrorCode::NO_ERROR, b"")));
    peer.write(|into| write::go_away(into, 5, ErrorCode::NO_ERROR, b""));
    let events = peer.events();
    assert!(matches!(events[..], [Event::GoAway { last: 7, .. }, Event::GoAway { last: 5, .. }]), "{}", events.len());
    peer.is_alive();
}
