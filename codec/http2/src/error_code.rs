//! Error codes of RST_STREAM and GOAWAY (RFC 9113 section 7).

use std::fmt;

/// An error code, known or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(u32);

macro_rules! codes {
    ($($value:literal $constant:ident $name:literal $about:literal;)+) => {
        impl ErrorCode {
            $(#[doc = $about]
            pub const $constant: Self = Self($value);)+

            /// Every code that RFC 9113 defines, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$constant,)+];

            /// The name in the registry of IANA; `UNKNOWN` for a code that RFC 9113 does not define.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$constant => $name,)+
                    _ => "UNKNOWN",
                }
            }
        }
    };
}

codes! {
    0x0 NO_ERROR "NO_ERROR" "A shutdown without an error.";
    0x1 PROTOCOL_ERROR "PROTOCOL_ERROR" "A broken rule without a code of its own.";
    0x2 INTERNAL_ERROR "INTERNAL_ERROR" "A fault of the sender.";
    0x3 FLOW_CONTROL_ERROR "FLOW_CONTROL_ERROR" "More data than the window had room for, or a window beyond 2^31-1.";
    0x4 SETTINGS_TIMEOUT "SETTINGS_TIMEOUT" "Settings without an acknowledgement in time.";
    0x5 STREAM_CLOSED "STREAM_CLOSED" "A frame for a stream that its sender has ended.";
    0x6 FRAME_SIZE_ERROR "FRAME_SIZE_ERROR" "A frame of a wrong size.";
    0x7 REFUSED_STREAM "REFUSED_STREAM" "A stream that was refused before any work for it: its request can be sent again.";
    0x8 CANCEL "CANCEL" "A stream that its receiver no longer wants.";
    0x9 COMPRESSION_ERROR "COMPRESSION_ERROR" "A header block that cannot be decoded.";
    0xa CONNECT_ERROR "CONNECT_ERROR" "The connection of a CONNECT request was reset.";
    0xb ENHANCE_YOUR_CALM "ENHANCE_YOUR_CALM" "Excessive load by the peer.";
    0xc INADEQUATE_SECURITY "INADEQUATE_SECURITY" "A transport below the minimum of security.";
    0xd HTTP_1_1_REQUIRED "HTTP_1_1_REQUIRED" "A request that only HTTP/1.1 can carry.";
}

impl ErrorCode {
    /// The code with this number. Every number is one: a receiver treats unknown codes as [`ErrorCode::INTERNAL_ERROR`].
    pub const fn from_u32(number: u32) -> Self {
        Self(number)
    }

    /// Its number on the wire.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "UNKNOWN" => write!(f, "UNKNOWN(0x{:x})", self.0),
            name => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_numbers_of_their_order_and_unknown_ones_keep_theirs() {
        for (number, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!((code.as_u32(), ErrorCode::from_u32(number as u32)), (number as u32, *code));
        }
        assert_eq!(ErrorCode::CANCEL.to_string(), "CANCEL");
        assert_eq!(ErrorCode::from_u32(0xe).to_string(), "UNKNOWN(0xe)");
    }
}
