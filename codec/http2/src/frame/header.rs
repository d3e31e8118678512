//! The header of a frame (RFC 9113 section 4.1).

use super::FrameError;

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 9;

/// The largest stream identifier, of 31 bits.
pub const STREAM_ID_MAX: u32 = (1 << 31) - 1;

/// Flags of frames. The same bit has another meaning in another kind of frame.
pub mod flags {
    /// DATA, HEADERS: the sender's last frame of the stream, besides CONTINUATION.
    pub const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING: the acknowledgement.
    pub const ACK: u8 = 0x1;
    /// HEADERS, PUSH_PROMISE, CONTINUATION: the header block ends with this frame.
    pub const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS, PUSH_PROMISE: padded.
    pub const PADDED: u8 = 0x8;
    /// HEADERS: with the fields of a PRIORITY frame.
    pub const PRIORITY: u8 = 0x20;
}

/// Kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Bytes of a body.
    Data,
    /// The beginning of a header block.
    Headers,
    /// Priority of a stream in the deprecated scheme of RFC 7540.
    Priority,
    /// End of a stream, with an error code.
    RstStream,
    /// Parameters of the sender, or an acknowledgement of the receiver's.
    Settings,
    /// Announces a request of the server's own.
    PushPromise,
    /// Requires an acknowledgement, or is one.
    Ping,
    /// The sender takes no more streams.
    GoAway,
    /// Room for more bytes.
    WindowUpdate,
    /// More of a header block.
    Continuation,
    /// Priority of a stream in the scheme of RFC 9218.
    PriorityUpdate,
    /// Any other kind, which a receiver ignores.
    Unknown(u8),
}

impl FrameKind {
    /// From a frame's fourth byte.
    #[inline]
    pub const fn of(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            _ => Self::Unknown(byte),
        }
    }

    /// The byte on the wire.
    #[inline]
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::Data => 0x0,
            Self::Headers => 0x1,
            Self::Priority => 0x2,
            Self::RstStream => 0x3,
            Self::Settings => 0x4,
            Self::PushPromise => 0x5,
            Self::Ping => 0x6,
            Self::GoAway => 0x7,
            Self::WindowUpdate => 0x8,
            Self::Continuation => 0x9,
            Self::PriorityUpdate => 0x10,
            Self::Unknown(byte) => byte,
        }
    }
}

/// The header of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of payload behind the header, below 2^24.
    pub length: u32,
    /// The kind.
    pub kind: FrameKind,
    /// See [`flags`]. Undefined bits are ignored.
    pub flags: u8,
    /// 0 for the connection itself. The reserved bit is left out.
    pub stream_id: u32,
}

impl FrameHeader {
    /// The header that `input` begins with; `None`: it is not whole yet. `frame_bytes_max`: our SETTINGS_MAX_FRAME_SIZE.
    ///
    /// # Errors
    /// [`FrameError::TooLong`]. It ends the connection: a receiver that skips the payload could be held for 16 MiB.
    #[inline]
    pub fn read(input: &[u8], frame_bytes_max: u32) -> Result<Option<Self>, FrameError> {
        let Some(&[high, middle, low, kind, flags, a, b, c, d]) = input.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]);
        if length > frame_bytes_max {
            return Err(FrameError::TooLong);
        }
        let stream_id = u32::from_be_bytes([a, b, c, d]) & STREAM_ID_MAX;
        Ok(Some(Self { length, kind: FrameKind::of(kind), flags, stream_id }))
    }

    /// The header as on the wire.
    #[inline]
    pub const fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let [_, high, middle, low] = self.length.to_be_bytes();
        let [a, b, c, d] = self.stream_id.to_be_bytes();
        [high, middle, low, self.kind.as_u8(), self.flags, a, b, c, d]
    }

    /// True if all bits of `flag` are set.
    #[inline]
    pub const fn has(self, flag: u8) -> bool {
        self.flags & flag == flag
    }

    /// The sender's last frame of the stream; only for DATA and HEADERS.
    #[inline]
    pub const fn ends_stream(self) -> bool {
        self.has(flags::END_STREAM)
    }

    /// The header block ends with the frame; only for HEADERS, PUSH_PROMISE and CONTINUATION.
    #[inline]
    pub const fn ends_headers(self) -> bool {
        self.has(flags::END_HEADERS)
    }

    /// An acknowledgement; only for SETTINGS and PING.
    #[inline]
    pub const fn is_ack(self) -> bool {
        self.has(flags::ACK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_with_its_last_byte_and_written_as_it_was() {
        for kind in 0..=u8::MAX {
            let header =
                FrameHeader { length: 0x01_02_03, kind: FrameKind::of(kind), flags: 0x25, stream_id: 0x7f00_0001 };
            let mut bytes = header.to_bytes();
            assert_eq!(bytes, [1, 2, 3, kind, 0x25, 0x7f, 0, 0, 1]);
            // The reserved bit is ignored.
            bytes[5] |= 0x80;
            assert_eq!(FrameHeader::read(&bytes, 0x01_02_03), Ok(Some(header)));
            for cut in 0..FRAME_HEADER_BYTES {
                assert_eq!(FrameHeader::read(&bytes[..cut], 0), Ok(None));
            }
            assert_eq!(FrameHeader::read(&bytes, 0x01_02_02), Err(FrameError::TooLong));
        }
    }
}
