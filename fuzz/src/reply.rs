//! An upstream's bytes through the reply framer.

use weir_resp::limits::REPLY_DEPTH_MAX;
use weir_resp::{ProtocolError, ReplyFramer, Value, ValueLimits};

/// Frames of a connection, each with its type byte, the bytes of an unfinished one, and why it failed, if it did.
pub(crate) type Frames = (Vec<(Vec<u8>, u8)>, Vec<u8>, Option<ProtocolError>);

/// Runs one connection, piece by piece.
pub(crate) fn frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Frames {
    let mut framer = ReplyFramer::default();
    let (mut frames, mut frame) = (Vec::new(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let scan = match framer.advance(piece) {
                Ok(scan) => scan,
                // How much of the last piece was looked at is no part of the outcome.
                Err(error) => return (frames, Vec::new(), Some(error)),
            };
            assert!(scan.taken > 0 && scan.taken <= piece.len(), "each call makes progress");
            assert!(framer.heap_bytes() <= 2 * 8 * REPLY_DEPTH_MAX as usize, "memory follows depth only");
            frame.extend_from_slice(&piece[..scan.taken]);
            piece = &piece[scan.taken..];
            match scan.end {
                Some(kind) => {
                    assert!(framer.is_idle());
                    frames.push((std::mem::take(&mut frame), kind.type_byte()));
                }
                None => assert!(piece.is_empty() && !framer.is_idle()),
            }
        }
    }
    (frames, frame, None)
}

/// Any upstream: no panic, progress, bounded memory, and the decoder sees the same frames.
pub fn redis_reply_framer(data: &[u8]) {
    let (frames, unfinished, failed) = frames(std::iter::once(data));
    let limits = ValueLimits { depth_max: REPLY_DEPTH_MAX, ..ValueLimits::default() };
    let mut at = 0;
    for (frame, kind) in frames {
        assert_eq!(frame, data[at..at + frame.len()]);
        at += frame.len();
        assert!(kind == frame[0] || frame[0] == b'|');
        match Value::decode(&frame, &limits) {
            Ok(Some((_, len))) => assert_eq!(len, frame.len()),
            // The framer does not judge the text of scalars, and relays what is too large to decode.
            Err(ProtocolError::ReplyScalar | ProtocolError::ReplyTooBig) => {}
            other => panic!("framed, but decoded as {other:?}"),
        }
    }
    if failed.is_none() {
        assert_eq!(at + unfinished.len(), data.len());
        let rest = Value::decode(&unfinished, &limits);
        assert!(!matches!(rest, Ok(Some(_))), "decoded before its end was found");
    }
}
