//! Frames as bytes.

use weir_http2_codec::frame::{FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind};

/// The view of a frame.
pub(crate) fn parsed(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Result<Frame<'_>, FrameError> {
    let header = FrameHeader { length: payload.len() as u32, kind: FrameKind::of(kind), flags, stream_id };
    Frame::parse(header, payload)
}

/// The frames of a stream of bytes.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<(FrameHeader, Frame<'_>)> {
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::read(bytes, 1 << 14).expect("short") {
        let (frame, rest) = bytes.split_at(FRAME_HEADER_BYTES + header.length as usize);
        frames.push((header, Frame::parse(header, &frame[FRAME_HEADER_BYTES..]).expect("valid")));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}
