//! Errors of the wire format. Each kind has one stable label, one text and one close code.

use std::fmt;

use weir_base::{error::Culprit, violation::Violation};

use crate::close::CloseCode;

/// A peer broke a rule of RFC 6455, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireError {
    /// A client's frame without a mask, or a server's with one (section 5.1).
    Mask,
    /// A reserved bit that no extension of this connection has given a meaning (section 5.2).
    ReservedBits,
    /// An opcode that the protocol does not know.
    Opcode,
    /// A control frame in fragments, or with more than 125 bytes (section 5.5).
    ControlFrame,
    /// A continuation of nothing, or a new message within another (section 5.4).
    Fragmentation,
    /// A message larger than the limit, or a length beyond 63 bits.
    MessageTooBig,
    /// A message of more frames than the limit.
    FragmentsTooMany,
    /// More pings than the limit.
    PingsTooMany,
}

impl WireError {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::Mask,
        Self::ReservedBits,
        Self::Opcode,
        Self::ControlFrame,
        Self::Fragmentation,
        Self::MessageTooBig,
        Self::FragmentsTooMany,
        Self::PingsTooMany,
    ];

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Mask => "websocket_mask",
            Self::ReservedBits => "websocket_reserved_bits",
            Self::Opcode => "websocket_opcode",
            Self::ControlFrame => "websocket_control_frame",
            Self::Fragmentation => "websocket_fragmentation",
            Self::MessageTooBig => "websocket_message_too_big",
            Self::FragmentsTooMany => "websocket_fragments",
            Self::PingsTooMany => "websocket_pings",
        }
    }

    /// The close code for the peer (section 7.4.1).
    pub const fn close_code(self) -> CloseCode {
        match self {
            Self::MessageTooBig | Self::FragmentsTooMany => CloseCode::MESSAGE_TOO_BIG,
            Self::PingsTooMany => CloseCode::POLICY_VIOLATION,
            _ => CloseCode::PROTOCOL_ERROR,
        }
    }

    /// The rule, never the bytes that broke it; short enough for a close frame.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Mask => "wrong masking",
            Self::ReservedBits => "reserved bits without an extension",
            Self::Opcode => "unknown opcode",
            Self::ControlFrame => "fragmented or long control frame",
            Self::Fragmentation => "misplaced fragment",
            Self::MessageTooBig => "message too big",
            Self::FragmentsTooMany => "too many fragments",
            Self::PingsTooMany => "too many pings",
        }
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.reason(), culprit, self.text())
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for WireError {}
