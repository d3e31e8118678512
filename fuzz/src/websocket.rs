//! Any bytes as the frames of a peer.

use weir_base::time::Time;
use weir_websocket_codec::{HEADER_BYTES_MAX, Limits, Reserved, Sender, Watch, WireError};

/// Small enough for inputs of a few bytes to reach them.
const LIMITS: Limits = Limits { message_bytes: 4096, fragments: 4, pings: 3 };

/// The verdict on a stream does not depend on where it is cut, only judged bytes go on, and nothing but the beginning of one
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

/// What goes on of a stream that comes in pieces, and what it breaks.
fn passed(sender: Sender, reserved: Reserved, stream: &[u8], piece: usize) -> (Vec<u8>, Option<WireError>) {
    let mut watch = Watch::new(sender, reserved, LIMITS);
    let (mut passed, mut waiting) = (Vec::new(), Vec::new());
    for bytes in stream.chunks(piece) {
        waiting.extend_from_slice(bytes);
        let followed = watch.follow(&waiting, Time::from_nanos(1));
        assert!(followed.passes <= waiting.len());
        passed.extend(waiting.drain(..followed.passes));
        if followed.broken.is_some() {
            assert!(watch.is_between_frames(), "a frame of the gateway's own has its place here");
            return (passed, followed.broken);
        }
        assert!(watch.is_closed() || waiting.len() < HEADER_BYTES_MAX);
    }
    (passed, None)
}
