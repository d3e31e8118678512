//! The header in front of a payload (RFC 6455 section 5.2).

use crate::error::WireError;

/// Bytes of the longest header: two, eight of length, four of mask.
pub const HEADER_BYTES_MAX: usize = 14;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// The next fragment of a message.
    Continuation,
    /// A message of text, or its first fragment.
    Text,
    /// A message of bytes, or its first fragment.
    Binary,
    /// The sender's last frame.
    Close,
    /// Requires a pong.
    Ping,
    /// Confirms a ping, or comes unrequested.
    Pong,
}

impl Opcode {
    /// From the lower half of a frame's first byte.
    const fn of(bits: u8) -> Result<Self, WireError> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return Err(WireError::Opcode),
        })
    }

    /// May stand between the fragments of a message, and is never one itself.
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The last frame of its message.
    pub is_final: bool,
    /// The three reserved bits, RSV1 as 4.
    pub reserved: u8,
    /// The kind of the frame.
    pub opcode: Opcode,
    /// The mask of its payload.
    pub mask: Option<[u8; 4]>,
    /// Bytes of payload, below 2^63.
    pub payload: u64,
    /// Bytes of this header.
    pub bytes: usize,
}

impl FrameHeader {
    /// The header that `input` begins with; `None`: it is not whole yet. An error in its first two bytes is found without the rest. A
    /// length that would fit in fewer bytes is accepted: both ends read it alike.
    ///
    /// # Errors
    /// An unknown opcode, or a length beyond 63 bits.
    pub fn read(input: &[u8]) -> Result<Option<Self>, WireError> {
        let [first, second, rest @ ..] = input else {
            return match input {
                [first] => Opcode::of(first & 15).map(|_| None),
                _ => Ok(None),
            };
        };
        let opcode = Opcode::of(first & 15)?;
        let (payload, rest) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from(u16::from_be_bytes(*length)), rest),
                None => return Ok(None),
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest),
                // The top bit is in the first byte of the length.
                None if rest.first().is_some_and(|byte| byte >> 7 == 1) => return Err(WireError::MessageTooBig),
                None => return Ok(None),
            },
            length => (u64::from(length), rest),
        };
        if payload >> 63 == 1 {
            return Err(WireError::MessageTooBig);
        }
        let (mask, rest) = match (second >> 7, rest.split_first_chunk()) {
            (0, _) => (None, rest),
            (_, Some((mask, rest))) => (Some(*mask), rest),
            (_, None) => return Ok(None),
        };
        Ok(Some(Self {
            is_final: first >> 7 == 1,
            reserved: (first >> 4) & 7,
            opcode,
            mask,
            payload,
            bytes: input.len() - rest.len(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_all_three_sizes_are_read_with_and_without_a_mask() {
        let cases: [(&[u8], u64, usize); 6] = [
            (&[0x82, 5], 5, 2),
            (&[0x82, 126, 1, 0], 256, 4),
            (&[0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0], 1 << 32, 10),
            (&[0x82, 0x85, 1, 2, 3, 4], 5, 6),
            (&[0x82, 0xfe, 1, 0, 1, 2, 3, 4], 256, 8),
            (&[0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255, 1, 2, 3, 4], (1 << 63) - 1, HEADER_BYTES_MAX),
        ];
        for (bytes, payload, length) in cases {
            for cut in 0..length {
                assert_eq!(FrameHeader::read(&bytes[..cut]), Ok(None), "{bytes:x?} cut at {cut}");
            }
            let mut longer = bytes.to_vec();
            longer.extend_from_slice(b"payload");
            for input in [bytes, &longer] {
                let header = FrameHeader::read(input).expect("valid").expect("whole");
                assert_eq!((header.payload, header.bytes, header.is_final), (payload, length, true));
                assert_eq!(header.mask, (bytes[1] & 0x80 != 0).then_some([1, 2, 3, 4]));
            }
        }
    }

    #[test]
    fn w2_a_length_with_its_top_bit_is_refused_as_soon_as_it_shows() {
        for bytes in [&[0x82, 127, 0x80][..], &[0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(FrameHeader::read(bytes), Err(WireError::MessageTooBig));
        }
    }

    #[test]
    fn w1_unknown_opcodes_are_refused_by_their_first_byte() {
        for bits in [3_u8, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
            assert_eq!(FrameHeader::read(&[0x80 | bits]), Err(WireError::Opcode));
        }
    }
}
