//! Frames to bytes, appended to a caller's buffer. A caller keeps the peer's SETTINGS_MAX_FRAME_SIZE where a function does not take it.

use super::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, STREAM_ID_MAX, flags};
use crate::{error_code::ErrorCode, settings::Setting};

/// The client's connection preface (RFC 9113 section 3.4), in front of its first SETTINGS.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Appends the header of a DATA frame without padding; `length` bytes of data go behind it.
#[inline]
pub fn data_header(into: &mut Vec<u8>, stream_id: u32, length: u32, ends_stream: bool) {
    let flags = if ends_stream { flags::END_STREAM } else { 0 };
    header(into, length, FrameKind::Data, flags, stream_id);
}

/// Appends one DATA frame without padding.
#[inline]
pub fn data(into: &mut Vec<u8>, stream_id: u32, data: &[u8], ends_stream: bool) {
    into.reserve(FRAME_HEADER_BYTES + data.len());
    data_header(into, stream_id, data.len() as u32, ends_stream);
    into.extend_from_slice(data);
}

/// Appends HEADERS, and CONTINUATION frames if the header block is longer than `frame_bytes_max`. `encode` appends the block and nothing
/// else to the buffer: see [`Encoder`](crate::hpack::Encoder).
#[inline]
pub fn headers(
    into: &mut Vec<u8>,
    stream_id: u32,
    ends_stream: bool,
    frame_bytes_max: u32,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let start = into.len();
    into.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    encode(into);
    let block = into.len() - start - FRAME_HEADER_BYTES;
    let end_stream = if ends_stream { flags::END_STREAM } else { 0 };
    if block > frame_bytes_max as usize {
        return split(into, start, stream_id, end_stream, frame_bytes_max as usize);
    }
    put_header(into, start, block, FrameKind::Headers, end_stream | flags::END_HEADERS, stream_id);
}

/// Makes frames of the block that begins at `start`, behind room for one header, which gets the flags `end_stream`.
#[cold]
fn split(into: &mut Vec<u8>, start: usize, stream_id: u32, end_stream: u8, frame_bytes_max: usize) {
    debug_assert!(frame_bytes_max > 0);
    let frame_bytes = FRAME_HEADER_BYTES + frame_bytes_max;
    let rest = into.split_off(start + frame_bytes);
    put_header(into, start, frame_bytes_max, FrameKind::Headers, end_stream, stream_id);
    let mut pieces = rest.chunks(frame_bytes_max).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { flags::END_HEADERS } else { 0 };
        header(into, piece.len() as u32, FrameKind::Continuation, flags, stream_id);
        into.extend_from_slice(piece);
    }
}

/// Appends SETTINGS with these parameters; see [`Settings::write`](crate::settings::Settings::write) for a whole set.
pub fn settings(into: &mut Vec<u8>, settings: &[Setting]) {
    header(into, (settings.len() * Setting::BYTES) as u32, FrameKind::Settings, 0, 0);
    for setting in settings {
        into.extend_from_slice(&setting.to_bytes());
    }
}

/// Appends the acknowledgement of the peer's SETTINGS.
pub fn settings_ack(into: &mut Vec<u8>) {
    header(into, 0, FrameKind::Settings, flags::ACK, 0);
}

/// Appends PING.
pub fn ping(into: &mut Vec<u8>, data: [u8; 8]) {
    header(into, 8, FrameKind::Ping, 0, 0);
    into.extend_from_slice(&data);
}

/// Appends the acknowledgement of a PING, with its data.
pub fn ping_ack(into: &mut Vec<u8>, data: [u8; 8]) {
    header(into, 8, FrameKind::Ping, flags::ACK, 0);
    into.extend_from_slice(&data);
}

/// Appends GOAWAY. `last_stream_id`: the last stream of the peer that was worked on; [`STREAM_ID_MAX`] in the first of two, for a shutdown
/// without loss (RFC 9113 section 6.8).
pub fn go_away(into: &mut Vec<u8>, last_stream_id: u32, code: ErrorCode, debug: &[u8]) {
    header(into, (8 + debug.len()) as u32, FrameKind::GoAway, 0, 0);
    into.extend_from_slice(&last_stream_id.to_be_bytes());
    into.extend_from_slice(&code.as_u32().to_be_bytes());
    into.extend_from_slice(debug);
}

/// Appends RST_STREAM.
pub fn rst_stream(into: &mut Vec<u8>, stream_id: u32, code: ErrorCode) {
    header(into, 4, FrameKind::RstStream, 0, stream_id);
    into.extend_from_slice(&code.as_u32().to_be_bytes());
}

/// Appends WINDOW_UPDATE for a stream, or for the connection (`stream_id` 0). `increment`: from 1 to 2^31-1.
#[inline]
pub fn window_update(into: &mut Vec<u8>, stream_id: u32, increment: u32) {
    debug_assert!((1..=STREAM_ID_MAX).contains(&increment));
    header(into, 4, FrameKind::WindowUpdate, 0, stream_id);
    into.extend_from_slice(&increment.to_be_bytes());
}

#[inline]
fn header(into: &mut Vec<u8>, length: u32, kind: FrameKind, flags: u8, stream_id: u32) {
    debug_assert!(length < 1 << 24 && stream_id <= STREAM_ID_MAX);
    into.extend_from_slice(&FrameHeader { length, kind, flags, stream_id }.to_bytes());
}

/// Puts a header in its room at `start`.
#[inline]
fn put_header(into: &mut [u8], start: usize, length: usize, kind: FrameKind, flags: u8, stream_id: u32) {
    debug_assert!(length < 1 << 24 && stream_id <= STREAM_ID_MAX);
    let header = FrameHeader { length: length as u32, kind, flags, stream_id };
    into[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header.to_bytes());
}
