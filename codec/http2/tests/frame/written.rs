//! The readers read the frames of the writers.

use proptest::prelude::*;
use weir_http2_codec::{
    ErrorCode,
    frame::{Frame, FrameHeader, FrameKind, flags, write},
};

use crate::support::{frames, parsed};

#[test]
fn frames_are_read_as_they_were_written() {
    let mut bytes = Vec::new();
    write::data(&mut bytes, 1, b"hello", false);
    write::data(&mut bytes, 1, b"", true);
    write::settings(&mut bytes, &[]);
    write::settings_ack(&mut bytes);
    write::ping(&mut bytes, *b"01234567");
    write::ping_ack(&mut bytes, *b"76543210");
    write::go_away(&mut bytes, 7, ErrorCode::ENHANCE_YOUR_CALM, b"why");
    write::rst_stream(&mut bytes, 3, ErrorCode::CANCEL);
    write::window_update(&mut bytes, 0, u32::MAX >> 1);
    let read = frames(&bytes);
    assert_eq!((read[0].1, read[0].0.ends_stream(), read[0].0.stream_id), (Frame::Data(b"hello"), false, 1));
    assert_eq!((read[1].1, read[1].0.ends_stream()), (Frame::Data(b""), true));
    assert!(matches!(read[2].1, Frame::Settings(settings) if settings.is_empty()));
    assert_eq!(read[3].1, Frame::SettingsAck);
    assert_eq!(read[4].1, Frame::Ping(*b"01234567"));
    assert_eq!(read[5].1, Frame::PingAck(*b"76543210"));
    let code = ErrorCode::ENHANCE_YOUR_CALM;
    assert_eq!(read[6].1, Frame::GoAway { last_stream_id: 7, code, debug: b"why" });
    assert_eq!((read[7].1, read[7].0.stream_id), (Frame::RstStream(ErrorCode::CANCEL), 3));
    assert_eq!(read[8].1, Frame::WindowUpdate(u32::MAX >> 1));
    assert_eq!(read.len(), 9);
}

#[test]
fn a_long_header_block_goes_on_in_continuations() {
    let block: Vec<u8> = (0..=255).collect();
    for frame_bytes_max in [1, 2, 85, 100, 127, 128, 255, 256, 257, 16_384] {
        for ends_stream in [false, true] {
            let mut bytes = b"before".to_vec();
            write::headers(&mut bytes, 9, ends_stream, frame_bytes_max, |into| into.extend_from_slice(&block));
            let read = frames(&bytes[6..]);
            let mut joined = Vec::new();
            for (at, (header, frame)) in read.iter().enumerate() {
                let fragment = match frame {
                    Frame::Headers(headers) if at == 0 => headers.fragment,
                    Frame::Continuation(fragment) if at > 0 => fragment,
                    other => panic!("{other:?}"),
                };
                assert_eq!(header.ends_headers(), at + 1 == read.len());
                assert_eq!(header.has(flags::END_STREAM), ends_stream && at == 0);
                assert!(header.length <= frame_bytes_max && header.stream_id == 9);
                joined.extend_from_slice(fragment);
            }
            assert_eq!(joined, block);
            assert_eq!(read.len(), 256_usize.div_ceil(frame_bytes_max as usize));
        }
    }
}

proptest! {
    #[test]
    fn no_payload_makes_a_view_panic(
        kind in prop_oneof![0..=16_u8, any::<u8>()],
        flags in any::<u8>(),
        stream_id in 0..3_u32,
        payload in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        match parsed(kind, flags, stream_id, &payload) {
            Ok(Frame::Data(data)) => prop_assert!(data.len() <= payload.len()),
            Ok(Frame::Settings(settings)) => prop_assert_eq!(settings.iter().count(), settings.len()),
            _ => {}
        }
    }

    #[test]
    fn every_header_is_read_as_it_was_written(
        length in 0..1_u32 << 24,
        kind in any::<u8>(),
        flags in any::<u8>(),
        stream_id in 0..1_u32 << 31,
    ) {
        let header = FrameHeader { length, kind: FrameKind::of(kind), flags, stream_id };
        prop_assert_eq!(FrameHeader::read(&header.to_bytes(), u32::MAX), Ok(Some(header)));
    }
}
