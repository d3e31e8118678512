//! Close frames of the gateway's own.

use crate::{limits::CONTROL_BYTES_MAX, validator::Sender};

/// The reason of a connection's end (RFC 6455 section 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// An endpoint goes away: a server that shuts down, or one that received nothing for too long.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer broke a rule that no other code names.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message larger than its receiver takes.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// The server has no room just now (IANA's registry of close codes).
    pub const TRY_AGAIN_LATER: Self = Self(1013);
}

/// Appends a close frame of `sender`. A longer `reason` is cut to the room of the frame.
///
/// A client's frame has to be masked (section 5.3). Its mask is zero: masks protect caches from payloads that a page's script chooses,
/// and the gateway chose these bytes.
pub fn close_frame(sender: Sender, code: CloseCode, reason: &str, into: &mut Vec<u8>) {
    let room = CONTROL_BYTES_MAX as usize - 2;
    let mut end = reason.len().min(room);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let length = 2 + end as u8;
    into.push(0x88);
    match sender {
        Sender::Server => into.push(length),
        Sender::Client => into.extend_from_slice(&[0x80 | length, 0, 0, 0, 0]),
    }
    into.extend_from_slice(&code.0.to_be_bytes());
    into.extend_from_slice(&reason.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FrameHeader, Opcode};

    #[test]
    fn a_close_frame_is_one_that_its_receiver_takes() {
        for (sender, mask) in [(Sender::Server, None), (Sender::Client, Some([0; 4]))] {
            let mut bytes = Vec::new();
            close_frame(sender, CloseCode::GOING_AWAY, "drain", &mut bytes);
            let header = FrameHeader::read(&bytes).expect("valid").expect("whole");
            assert_eq!((header.opcode, header.is_final, header.mask), (Opcode::Close, true, mask));
            assert_eq!(&bytes[header.bytes..], b"\x03\xe9drain");
            assert_eq!(header.payload, 7);
        }
    }

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let mut bytes = Vec::new();
        close_frame(Sender::Server, CloseCode::PROTOCOL_ERROR, &"é".repeat(100), &mut bytes);
        assert_eq!(bytes[1], 124, "123 bytes have room for 61 of two bytes");
        assert!(std::str::from_utf8(&bytes[4..]).is_ok());
    }
}
