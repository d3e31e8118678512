//! Any bytes as the frames of a peer.

use weir_base::time::Time;
use weir_websocket_codec::{FrameHeader, FrameValidator, HEADER_BYTES_MAX, Limits, Reserved, Sender, WireError};

/// Small enough for inputs of a few bytes to reach them.
const LIMITS: Limits = Limits { message_bytes: 4096, fragments: 4, pings: 3 };

/// The verdict on a stream does not depend on where it is cut, only checked bytes go on, and nothing except the beginning of one
/// header is held back.
pub fn websocket(data: &[u8]) {
    let [choice, stream @ ..] = data else { return };
    let sender = if choice & 1 == 0 { Sender::Client } else { Sender::Server };
    let reserved = [Reserved::None, Reserved::Compressed, Reserved::Any][usize::from(choice >> 1) % 3];
    let whole = passed(sender, reserved, stream, stream.len().max(1));
    for piece in [1, 2, 7, 1 + usize::from(choice >> 3)] {
        assert_eq!(passed(sender, reserved, stream, piece), whole, "pieces of {piece}");
    }
    assert!(stream.starts_with(&whole.0));
}

/// The bytes that go on of a stream in pieces, and its error.
fn passed(sender: Sender, reserved: Reserved, stream: &[u8], piece: usize) -> (Vec<u8>, Option<WireError>) {
    let mut validator = FrameValidator::new(sender, reserved, LIMITS);
    let (mut passed, mut waiting) = (Vec::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        waiting.extend_from_slice(bytes);
        let validated = validator.validate(&waiting, Time::from_nanos(1));
        assert!(validated.bytes <= waiting.len());
        passed.extend(waiting.drain(..validated.bytes));
        if validated.error.is_some() {
            assert!(validator.is_between_frames(), "a frame of the gateway's own has its place here");
            return (passed, validated.error);
        }
        assert!(validator.is_closed() || waiting.len() < HEADER_BYTES_MAX);
    }
    (passed, None)
}

/// A header is found as soon as its last byte is there and not before, and what follows it changes nothing.
pub fn websocket_header(data: &[u8]) {
    match FrameHeader::read(data) {
        Ok(None) => assert!(data.len() < HEADER_BYTES_MAX),
        // A header that breaks a rule breaks it also with more bytes behind it.
        Err(error) => {
            let mut longer = data.to_vec();
            longer.extend_from_slice(&[0; HEADER_BYTES_MAX]);
            assert_eq!(FrameHeader::read(&longer), Err(error));
        }
        Ok(Some(header)) => {
            assert!((2..=HEADER_BYTES_MAX).contains(&header.bytes) && header.bytes <= data.len());
            assert!(header.payload >> 63 == 0 && header.reserved < 8);
            assert_eq!(FrameHeader::read(&data[..header.bytes]), Ok(Some(header)));
            for cut in 0..header.bytes {
                assert_eq!(FrameHeader::read(&data[..cut]), Ok(None), "cut at {cut}");
            }
        }
    }
}
