//! Rules that a peer can break.

use std::fmt;

use weir_base::{error::Culprit, violation::Violation};

use crate::{error_code::ErrorCode, frame::FrameError, hpack::HpackError};

macro_rules! protocol_errors {
    ($($(#[doc = $doc:literal])+ $variant:ident = $reason:literal, $code:ident, $text:literal;)+) => {
        /// A rule or a limit of HTTP/2 that a peer broke. Whether it ends the stream or the connection is in the event that carries it:
        /// the same rule may do either (DATA on a closed stream).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProtocolError {
            /// One frame breaks a rule by itself.
            Frame(FrameError),
            /// A header block that HPACK cannot decode.
            HeaderBlock(HpackError),
            $($(#[doc = $doc])+ $variant,)+
        }

        impl ProtocolError {
            /// Every rule but those of single frames and of header blocks.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Stable snake_case label for counters, logs and close reasons.
            pub const fn reason(self) -> &'static str {
                match self {
                    Self::Frame(error) => error.reason(),
                    Self::HeaderBlock(error) => error.reason(),
                    $(Self::$variant => $reason,)+
                }
            }

            /// The code that the peer gets in GOAWAY or RST_STREAM.
            pub const fn code(self) -> ErrorCode {
                match self {
                    Self::Frame(error) => error.code(),
                    Self::HeaderBlock(error) => error.code(),
                    $(Self::$variant => ErrorCode::$code,)+
                }
            }

            /// The rule, never the bytes that broke it.
            pub const fn text(self) -> &'static str {
                match self {
                    Self::Frame(error) => error.text(),
                    Self::HeaderBlock(error) => error.text(),
                    $(Self::$variant => $text,)+
                }
            }
        }
    };
}

protocol_errors! {
    /// The connection does not begin with the preface, or SETTINGS is not its first frame (section 3.4).
    Preface = "http2_preface", PROTOCOL_ERROR, "the connection preface is malformed";
    /// A frame on a stream that was never opened (section 5.1).
    IdleStream = "http2_idle_stream", PROTOCOL_ERROR, "a frame has the number of a stream that was not opened";
    /// The number of a new stream belongs to the other side, or is not above the last one (section 5.1.1).
    StreamNumber = "http2_stream_number", PROTOCOL_ERROR, "the number of a new stream is not allowed";
    /// DATA or HEADERS on a stream that the peer has ended (section 5.1).
    StreamClosed = "http2_stream_closed", STREAM_CLOSED, "a frame belongs to a stream that has ended";
    /// Another frame within a header block, or CONTINUATION outside one (section 6.10).
    Continuation = "http2_continuation", PROTOCOL_ERROR, "a header block is interrupted or was not begun";
    /// A server was sent PUSH_PROMISE, or a client that does not allow it (section 8.4).
    PushPromise = "http2_push_promise", PROTOCOL_ERROR, "a stream was pushed";
    /// An acknowledgement of SETTINGS that were not sent.
    SettingsAck = "http2_settings_ack", PROTOCOL_ERROR, "settings were acknowledged that were not sent";
    /// SETTINGS were not acknowledged in time (section 6.5.3).
    SettingsTimeout = "http2_settings_timeout", SETTINGS_TIMEOUT, "settings were not acknowledged in time";
    /// A window of more than 2^31-1 bytes (section 6.9.1).
    WindowOverflow = "http2_window_overflow", FLOW_CONTROL_ERROR, "a window is larger than allowed";
    /// More DATA than the window of the connection or of the stream allows (section 6.9).
    WindowExceeded = "http2_window_exceeded", FLOW_CONTROL_ERROR, "more bytes were sent than the window allows";
    /// GOAWAY names a higher last stream than an earlier one (section 6.8).
    GoAwayGrows = "http2_goaway_grows", PROTOCOL_ERROR, "a GOAWAY names a higher stream than the one before";
    /// A header block that does not end in time.
    HeaderBlockTimeout = "http2_header_block_timeout", ENHANCE_YOUR_CALM, "a header block did not end in time";
    /// A server sent PRIORITY_UPDATE (RFC 9218 section 7.1).
    PriorityUpdate = "http2_priority_update", PROTOCOL_ERROR, "a server sent the priority of a request";
    /// An encoded header block above its limit: its state cannot be kept, so the connection ends.
    HeaderBlockTooLong = "http2_header_block_too_long", ENHANCE_YOUR_CALM, "a header block is longer than allowed";

    /// A name with a byte that no name in lower case has (section 8.2.1).
    FieldName = "http2_field_name", PROTOCOL_ERROR, "a field name is malformed or not in lower case";
    /// A value with CR, LF, NUL or another control character, or a blank at one of its ends (section 8.2.1).
    FieldValue = "http2_field_value", PROTOCOL_ERROR, "a field value is malformed";
    /// `connection`, `transfer-encoding` and the like (section 8.2.2).
    ConnectionField = "http2_connection_field", PROTOCOL_ERROR, "a field belongs to a connection of HTTP/1.1";
    /// `te` with another value than `trailers` (section 8.2.2).
    Te = "http2_te", PROTOCOL_ERROR, "the field te has another value than trailers";
    /// A pseudo-field behind a field (section 8.3).
    PseudoFieldLate = "http2_pseudo_field_late", PROTOCOL_ERROR, "a pseudo-field stands behind a field";
    /// A pseudo-field twice.
    PseudoFieldRepeated = "http2_pseudo_field_repeated", PROTOCOL_ERROR, "a pseudo-field is repeated";
    /// A pseudo-field that is not known, or not one of such a message.
    PseudoFieldUnknown = "http2_pseudo_field_unknown", PROTOCOL_ERROR, "a pseudo-field is unknown here";
    /// A pseudo-field that the message needs is missing, or empty.
    PseudoFieldMissing = "http2_pseudo_field_missing", PROTOCOL_ERROR, "a pseudo-field is missing";
    /// A pseudo-field in trailers (section 8.1).
    PseudoFieldInTrailers = "http2_pseudo_field_in_trailers", PROTOCOL_ERROR, "a pseudo-field stands in trailers";
    /// CONNECT with `:path` or `:scheme`, or without `:authority` (section 8.5), or `:protocol` where it was not offered (RFC 8441).
    Connect = "http2_connect", PROTOCOL_ERROR, "a CONNECT request is malformed";
    /// The body is not as long as content-length says (section 8.1.1).
    ContentLength = "http2_content_length", PROTOCOL_ERROR, "the body has another length than declared";
    /// HEADERS behind the head that are no trailers: without END_STREAM (section 8.1).
    TrailersOpen = "http2_trailers_open", PROTOCOL_ERROR, "trailers do not end their stream";
    /// Trailers above the limits of a head.
    TrailersTooLong = "http2_trailers_too_long", ENHANCE_YOUR_CALM, "trailers are longer than allowed";
    /// The head of a response above its limits.
    HeadTooLong = "http2_head_too_long", ENHANCE_YOUR_CALM, "a head is longer than allowed";
    /// A scheme that is none (RFC 3986 section 3.1).
    Scheme = "http2_scheme", PROTOCOL_ERROR, "the scheme of a request is malformed";
    /// A status that is no number from 100 to 599, or 101.
    Status = "http2_status", PROTOCOL_ERROR, "the status of a response is malformed";
    /// An interim response that ends its stream (section 8.1).
    InterimEnd = "http2_interim_end", PROTOCOL_ERROR, "an interim response ends its stream";
    /// More interim responses than the limit.
    InterimFlood = "http2_interim_flood", ENHANCE_YOUR_CALM, "too many interim responses";
    /// DATA before the head of the response, or none at all.
    HeadMissing = "http2_head_missing", PROTOCOL_ERROR, "a response has no head";
    /// A body where a response has none: to HEAD, 204, 304.
    BodyUnexpected = "http2_body_unexpected", PROTOCOL_ERROR, "a response has a body where none may be";
    /// A head that is refused by the rules of HTTP itself: see [`weir_http_codec::WireError`]. Only for responses.
    Head = "http2_head", PROTOCOL_ERROR, "the head of a response is malformed";

    /// RST_STREAM: streams that are opened and reset at once cost the gateway and its origins, and the client nothing (CVE-2023-44487).
    ResetFlood = "http2_reset_flood", ENHANCE_YOUR_CALM, "too many streams were reset";
    /// PING that requires an acknowledgement (CVE-2019-9512).
    PingFlood = "http2_ping_flood", ENHANCE_YOUR_CALM, "too many pings";
    /// SETTINGS, each of which requires an acknowledgement (CVE-2019-9515).
    SettingsFlood = "http2_settings_flood", ENHANCE_YOUR_CALM, "too many settings";
    /// DATA without a byte or an end (CVE-2019-9518).
    EmptyDataFlood = "http2_empty_data_flood", ENHANCE_YOUR_CALM, "too many empty frames";
    /// Window updates of a few bytes.
    WindowUpdateFlood = "http2_window_update_flood", ENHANCE_YOUR_CALM, "too many small window updates";
    /// PRIORITY, PRIORITY_UPDATE and unknown frames (CVE-2019-9513).
    PriorityFlood = "http2_priority_flood", ENHANCE_YOUR_CALM, "too many frames without an effect";
    /// A header block that does not end (CVE-2024-27316).
    ContinuationFlood = "http2_continuation_flood", ENHANCE_YOUR_CALM, "too many continuations of a header block";
    /// Streams reset before their request was taken, and streams that the gateway reset for what the peer did wrong (CVE-2025-8671).
    StreamFlood = "http2_flood", ENHANCE_YOUR_CALM, "more streams or frames than are bearable";
    /// The peer sends frames that require control frames in reply, and does not read these.
    OutboundControlFlood = "http2_outbound_control_flood", ENHANCE_YOUR_CALM, "control frames pile up that the peer does not read";
    /// The peer goes on with requests or responses, and reads nothing.
    OutputFlood = "http2_output_flood", ENHANCE_YOUR_CALM, "output piles up that the peer does not read";
}

impl ProtocolError {
    /// The label of a close for the rule: floods have their own, the others one of four that follow from the code.
    pub const fn class(self) -> &'static str {
        match self.code() {
            ErrorCode::ENHANCE_YOUR_CALM => self.reason(),
            ErrorCode::COMPRESSION_ERROR => "http2_compression",
            ErrorCode::FLOW_CONTROL_ERROR => "http2_flow_control",
            ErrorCode::FRAME_SIZE_ERROR => "http2_frame_size",
            _ => "http2_protocol",
        }
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.reason(), culprit, self.text())
    }
}

impl From<FrameError> for ProtocolError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<HpackError> for ProtocolError {
    fn from(error: HpackError) -> Self {
        Self::HeaderBlock(error)
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ProtocolError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_distinct_labels() {
        let frames = FrameError::ALL.iter().map(|error| ProtocolError::from(*error));
        let blocks = HpackError::ALL.iter().map(|error| ProtocolError::from(*error));
        let all: Vec<_> = ProtocolError::ALL.iter().copied().chain(frames).chain(blocks).collect();
        for (at, error) in all.iter().enumerate() {
            assert!(error.reason().starts_with("http2_") && error.class().starts_with("http2_"), "{error}");
            assert!(all[at + 1..].iter().all(|other| other.reason() != error.reason()), "{error}");
        }
        assert_eq!(ProtocolError::StreamFlood.class(), "http2_flood");
        assert_eq!(ProtocolError::from(FrameError::TooLong).class(), "http2_frame_size");
    }
}
