//! RFC 9113 section 6, kind by kind.

use weir_http2_codec::{
    ErrorCode,
    frame::{DataLayout, ErrorScope, Frame, FrameError, FrameHeader, FrameKind, Priority, flags},
};

use crate::support::parsed;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const PRIORITY_UPDATE: u8 = 16;

#[test]
fn frames_of_a_stream_need_one_and_others_must_not_have_one() {
    let of_stream: [(u8, &[u8]); 7] = [
        (DATA, b""),
        (HEADERS, b""),
        (PRIORITY, &[0, 0, 0, 3, 0]),
        (RST_STREAM, &[0; 4]),
        (PUSH_PROMISE, &[0, 0, 0, 2]),
        (CONTINUATION, b""),
        (WINDOW_UPDATE, &[0, 0, 0, 1]),
    ];
    for (kind, payload) in of_stream {
        assert!(parsed(kind, 0, 1, payload).is_ok(), "{kind}");
        let on_connection = parsed(kind, 0, 0, payload);
        assert_eq!(on_connection.is_ok(), kind == WINDOW_UPDATE, "{kind}");
        assert!(on_connection.is_ok() || on_connection == Err(FrameError::StreamMissing), "{kind}");
    }
    let of_connection: [(u8, &[u8]); 4] =
        [(SETTINGS, b""), (PING, &[0; 8]), (GOAWAY, &[0; 8]), (PRIORITY_UPDATE, &[0, 0, 0, 1])];
    for (kind, payload) in of_connection {
        assert!(parsed(kind, 0, 0, payload).is_ok(), "{kind}");
        assert_eq!(parsed(kind, 0, 1, payload), Err(FrameError::StreamUnexpected), "{kind}");
    }
}

#[test]
fn lengths_are_exact_where_a_kind_has_one() {
    for bytes in 0..=9 {
        let payload = &[1; 9][..bytes];
        let check = |kind, stream_id, is_right: bool| {
            let expected = if kind == PRIORITY { FrameError::PriorityLength } else { FrameError::Length };
            let error = parsed(kind, 0, stream_id, payload).err();
            assert_eq!(error, (!is_right).then_some(expected), "{kind} with {bytes}");
        };
        check(PRIORITY, 1, bytes == 5);
        check(RST_STREAM, 1, bytes == 4);
        check(PUSH_PROMISE, 1, bytes >= 4);
        check(PING, 0, bytes == 8);
        check(GOAWAY, 0, bytes >= 8);
        check(WINDOW_UPDATE, 0, bytes == 4);
        check(PRIORITY_UPDATE, 0, bytes >= 4);
        if bytes % 6 != 0 {
            check(SETTINGS, 0, false);
        }
        assert_eq!(parsed(SETTINGS, flags::ACK, 0, payload).is_ok(), bytes == 0);
    }
    assert_eq!(FrameError::PriorityLength.scope(), ErrorScope::Stream);
    assert_eq!(FrameError::Length.scope(), ErrorScope::Connection);
    assert_eq!(FrameError::Length.code(), ErrorCode::FRAME_SIZE_ERROR);
}

#[test]
fn padding_ends_before_its_frame_does() {
    for kind in [DATA, HEADERS] {
        let data = |payload| match parsed(kind, flags::PADDED, 1, payload) {
            Ok(Frame::Data(data)) => Ok(data.to_vec()),
            Ok(Frame::Headers(headers)) => Ok(headers.fragment.to_vec()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error),
        };
        assert_eq!(data(&[0, 1, 2]), Ok(vec![1, 2]));
        assert_eq!(data(&[2, 1, 0, 0]), Ok(vec![1]));
        assert_eq!(data(&[3, 0, 0, 0]), Ok(vec![]));
        assert_eq!(data(&[4, 0, 0, 0]), Err(FrameError::Padding));
        assert_eq!(data(&[255]), Err(FrameError::Padding));
        assert_eq!(data(&[]), Err(FrameError::Length));
    }
    assert_eq!(parsed(PUSH_PROMISE, flags::PADDED, 1, &[1, 0, 0, 0, 2]), Err(FrameError::Padding));
    assert_eq!(parsed(PUSH_PROMISE, flags::PADDED, 1, &[0, 0, 0, 0]), Err(FrameError::Length));
}

#[test]
fn headers_with_priority_and_padding_keep_their_fragment() {
    let both = flags::PADDED | flags::PRIORITY;
    let Ok(Frame::Headers(headers)) = parsed(HEADERS, both, 5, &[2, 0x80, 0, 0, 3, 15, b'h', b'p', 0, 0]) else {
        panic!("valid")
    };
    assert_eq!(headers.fragment, b"hp");
    assert_eq!(headers.priority, Some(Priority { dependency: 3, is_exclusive: true, weight: 15 }));
    assert_eq!(parsed(HEADERS, both, 5, &[0, 0, 0, 0, 3]), Err(FrameError::Length));
    assert_eq!(parsed(HEADERS, both, 5, &[1, 0, 0, 0, 3, 15]), Err(FrameError::Padding));
    assert_eq!(parsed(HEADERS, flags::PRIORITY, 5, &[0, 0, 0, 3]), Err(FrameError::Length));
}

#[test]
fn a_stream_that_depends_on_itself_is_an_error_of_the_stream() {
    assert_eq!(parsed(PRIORITY, 0, 3, &[0x80, 0, 0, 3, 0]), Err(FrameError::SelfDependency));
    assert_eq!(FrameError::SelfDependency.scope(), ErrorScope::Stream);
    // The header block has to be decoded all the same, so the view of HEADERS is there.
    let Ok(Frame::Headers(headers)) = parsed(HEADERS, flags::PRIORITY, 3, &[0, 0, 0, 3, 0, b'h']) else { panic!() };
    assert!(headers.priority.is_some_and(|priority| priority.is_of_itself(3)));
    assert_eq!(headers.fragment, b"h");
}

#[test]
fn a_window_update_of_nothing_is_an_error_of_what_it_is_for() {
    assert_eq!(parsed(WINDOW_UPDATE, 0, 1, &[0x80, 0, 0, 0]), Err(FrameError::StreamIncrement));
    assert_eq!(parsed(WINDOW_UPDATE, 0, 0, &[0; 4]), Err(FrameError::ConnectionIncrement));
    assert_eq!(FrameError::StreamIncrement.scope(), ErrorScope::Stream);
    assert_eq!(FrameError::ConnectionIncrement.scope(), ErrorScope::Connection);
    assert_eq!(parsed(WINDOW_UPDATE, 0, 0, &[0xff; 4]), Ok(Frame::WindowUpdate(u32::MAX >> 1)));
}

#[test]
fn an_update_of_priority_names_a_stream() {
    assert_eq!(parsed(PRIORITY_UPDATE, 0, 0, &[0x80, 0, 0, 0]), Err(FrameError::StreamMissing));
    let Ok(Frame::PriorityUpdate { stream_id, value }) = parsed(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x05u=1") else {
        panic!("valid")
    };
    assert_eq!((stream_id, value), (5, &b"u=1"[..]));
}

#[test]
fn unknown_kinds_are_whatever_they_are() {
    for kind in (10..16).chain(17..=u8::MAX) {
        assert_eq!(parsed(kind, 0xff, 0, b"anything"), Ok(Frame::Unknown));
        assert_eq!(FrameKind::of(kind).as_u8(), kind);
    }
}

#[test]
fn the_layout_of_data_in_pieces_is_that_of_the_whole_frame() {
    let header = |length, flags, stream_id| FrameHeader { length, kind: FrameKind::Data, flags, stream_id };
    let layout = |prefix, data, padding| Ok(Some(DataLayout { prefix, data, padding }));
    assert_eq!(DataLayout::read(header(9, 0, 1), b""), layout(0, 9, 0));
    assert_eq!(DataLayout::read(header(9, flags::PADDED, 1), b""), Ok(None));
    for padding in 0..=u8::MAX {
        let expected = match padding {
            ..9 => layout(1, 8 - u32::from(padding), u32::from(padding)),
            _ => Err(FrameError::Padding),
        };
        assert_eq!(DataLayout::read(header(9, flags::PADDED, 1), &[padding]), expected);
    }
    assert_eq!(DataLayout::read(header(0, flags::PADDED, 1), b""), Err(FrameError::Length));
    assert_eq!(DataLayout::read(header(9, 0, 0), b""), Err(FrameError::StreamMissing));
}
