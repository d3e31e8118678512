//! SETTINGS and PING (RFC 9113 sections 6.5 and 6.7).

use std::time::Duration;

use weir_http2_codec::{
    Connection, ConnectionConfig, Event, ProtocolError,
    config::{HEADER_BLOCK_TIMEOUT, SETTINGS_UPDATE_TIMEOUT},
    frame::{Frame, FrameError, FrameKind, flags, write},
    settings::Setting,
};

use crate::peer::{NOW, Peer, frames};

fn first(machine: &mut Connection) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(machine.take_output(&mut out) && !machine.take_output(&mut out));
    out
}

#[test]
fn each_side_says_its_settings_and_windows_first() {
    let config = ConnectionConfig { connect_protocol: true, ..ConnectionConfig::default() };
    let out = first(&mut Connection::server(config));
    let sent = frames(&out);
    assert_eq!((sent[0].kind(), sent[1].kind(), sent.len()), (FrameKind::Settings, FrameKind::WindowUpdate, 2));
    let Ok(Frame::Settings(settings)) = Frame::parse(sent[0].header, &sent[0].payload) else { panic!("no settings") };
    let settings: Vec<_> = settings.iter().map(|setting| setting.expect("legal")).collect();
    let expected = [
        Setting::MaxConcurrentStreams(100),
        Setting::InitialWindowSize(256 * 1024),
        Setting::MaxHeaderListSize(64 * 1024),
        Setting::EnableConnectProtocol(true),
    ];
    assert!(expected.iter().all(|setting| settings.contains(setting)) && settings.len() == 4, "{settings:?}");
    assert_eq!(sent[1].number(), (1 << 20) - 65_535);
    let out = first(&mut Connection::client(config));
    let sent = frames(out.strip_prefix(write::PREFACE).expect("the preface"));
    let Ok(Frame::Settings(settings)) = Frame::parse(sent[0].header, &sent[0].payload) else { panic!("no settings") };
    let settings: Vec<_> = settings.iter().map(|setting| setting.expect("legal")).collect();
    assert!(settings.contains(&Setting::EnablePush(false)) && settings.len() == 3, "{settings:?}");
}

#[test]
fn settings_are_acknowledged_one_by_one_and_values_out_of_range_end_the_connection() {
    let mut peer = Peer::of_server();
    peer.write(|into| {
        write::settings(into, &[Setting::MaxFrameSize(1 << 20)]);
        write::settings(into, &[Setting::Unknown { id: 0x99, value: 7 }]);
    });
    let acknowledged = peer.sent_of(FrameKind::Settings);
    assert!(acknowledged.len() == 2 && acknowledged.iter().all(|frame| frame.header.flags == flags::ACK));
    assert!(matches!(peer.events()[..], [Event::Settings, Event::Settings]));
    let values = [
        (2_u16, 2_u32, FrameError::SettingValue),
        (4, 1 << 31, FrameError::SettingWindow),
        (5, 16_383, FrameError::SettingValue),
        (5, 1 << 24, FrameError::SettingValue),
        (8, 2, FrameError::SettingValue),
    ];
    for (id, value, error) in values {
        let mut peer = Peer::of_server();
        peer.raw(4, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
        peer.fails(error.into());
    }
    let mut peer = Peer::of_client();
    peer.write(|into| write::settings(into, &[Setting::EnablePush(true)]));
    peer.fails(FrameError::SettingValue.into());
}

#[test]
fn an_acknowledgement_of_nothing_ends_the_connection() {
    let mut peer = Peer::of_server();
    peer.write(write::settings_ack);
    peer.fails(ProtocolError::SettingsAck);
    let mut peer = Peer::of_server();
    peer.raw(4, flags::ACK, 0, &[0; 6]);
    peer.fails(FrameError::Length.into());
}

#[test]
fn a_ping_is_answered_and_one_of_ours_is_an_event() {
    let mut peer = Peer::of_server();
    peer.is_alive();
    assert!(peer.machine.ping() && !peer.machine.ping());
    let sent = peer.sent();
    assert_eq!((sent.len(), sent[0].kind(), sent[0].header.flags), (1, FrameKind::Ping, 0));
    peer.write(|into| write::ping_ack(into, [9; 8]));
    assert!(peer.events().is_empty(), "the acknowledgement of another one");
    let data = *sent[0].payload.first_chunk().expect("8 bytes");
    peer.write(|into| write::ping_ack(into, data));
    peer.write(|into| write::ping_ack(into, data));
    assert!(matches!(peer.events()[..], [Event::Pong]));
    assert!(peer.machine.ping());
}

#[test]
fn the_table_of_the_peer_is_not_used_beyond_its_size() {
    let mut peer = Peer::of_server();
    peer.write(|into| write::settings(into, &[Setting::HeaderTableSize(0)]));
    peer.events();
    for number in 0..3 {
        let id = peer.request(2 * number + 1, "GET", true);
        let head = crate::peer::response(200, &[("x-field", "some value")]);
        peer.machine.send_response(id, &head, None, true).expect("open");
        peer.machine.forget(id);
        let block = peer.sent_of(FrameKind::Headers)[0].payload.clone();
        let expected = [(":status".to_owned(), "200".to_owned()), ("x-field".into(), "some value".into())];
        assert_eq!(peer.fields(&block), expected);
    }
}

#[test]
fn another_window_of_streams_is_acknowledged_in_time_too() {
    let mut peer = Peer::of_server();
    let later = |seconds| NOW.saturating_add(Duration::from_secs(seconds));
    assert!(peer.machine.set_initial_stream_window(1_000));
    assert!(peer.machine.next_deadline().is_some());
    peer.machine.expire(NOW);
    assert_eq!(peer.machine.next_deadline(), Some(NOW.saturating_add(SETTINGS_UPDATE_TIMEOUT)));
    peer.sent();
    peer.now = later(59);
    peer.is_alive();
    peer.write(write::settings_ack);
    assert_eq!(peer.machine.next_deadline(), None);
    assert!(peer.machine.set_initial_stream_window(2_000));
    // The time runs from the next look at it.
    peer.now = later(100);
    peer.is_alive();
    peer.machine.expire(later(159));
    peer.is_alive();
    peer.machine.expire(later(160));
    peer.fails(ProtocolError::SettingsTimeout);
}

#[test]
fn a_header_block_that_has_begun_goes_on_in_time() {
    let mut peer = Peer::of_server();
    let block = peer.block(&crate::peer::head("GET"));
    peer.raw(1, flags::END_STREAM, 1, &block[..2]);
    assert_eq!(peer.machine.next_deadline(), Some(NOW.saturating_add(HEADER_BLOCK_TIMEOUT)));
    peer.now = NOW.saturating_add(HEADER_BLOCK_TIMEOUT - Duration::from_millis(1));
    peer.raw(9, 0, 1, &block[2..3]);
    assert_eq!(peer.machine.next_deadline(), Some(NOW.saturating_add(HEADER_BLOCK_TIMEOUT)));
    peer.raw(9, flags::END_HEADERS, 1, &block[3..]);
    assert!(matches!(peer.events()[..], [Event::Request(_, Ok(_))]));
    assert_eq!(peer.machine.next_deadline(), None);
    peer.raw(1, flags::END_STREAM, 3, &block[..2]);
    peer.machine.expire(peer.now.saturating_add(HEADER_BLOCK_TIMEOUT));
    peer.fails(ProtocolError::HeaderBlockTimeout);
}

#[test]
fn each_size_of_the_table_in_one_frame_counts() {
    let mut peer = Peer::of_server();
    let respond = |peer: &mut Peer, stream: u32| {
        let id = peer.request(stream, "GET", true);
        // "server" goes into the table at once.
        let head = crate::peer::response(200, &[("server", "some name")]);
        peer.machine.send_response(id, &head, None, true).expect("open");
        peer.machine.forget(id);
        peer.sent_of(FrameKind::Headers)[0].payload.clone()
    };
    respond(&mut peer, 1);
    peer.write(|into| write::settings(into, &[Setting::HeaderTableSize(0), Setting::HeaderTableSize(4_096)]));
    peer.events();
    peer.sent();
    let block = respond(&mut peer, 3);
    assert_eq!(block[..4], [0x20, 0x3f, 0xe1, 0x1f], "the table was empty in between (RFC 7541 section 4.2)");
}
