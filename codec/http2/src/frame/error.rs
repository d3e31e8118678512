//! Errors of single frames. The connection judges whether a frame fits to those before it.

use std::fmt;

use crate::error_code::ErrorCode;

/// The part of a connection that an error ends (RFC 9113 section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorScope {
    /// The connection: GOAWAY, then close.
    Connection,
    /// One stream: RST_STREAM. The others go on.
    Stream,
}

/// A rule of RFC 9113 that one frame breaks by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameError {
    /// A payload above the receiver's SETTINGS_MAX_FRAME_SIZE (section 4.2).
    TooLong,
    /// A payload without the bytes that its kind or flags require, or with too many.
    Length,
    /// A PRIORITY frame without exactly 5 bytes (section 6.3): an error of its stream.
    PriorityLength,
    /// A frame of a stream with stream identifier 0.
    StreamMissing,
    /// A frame of the connection with a stream identifier.
    StreamUnexpected,
    /// Padding as long as the payload, or longer.
    Padding,
    /// A stream that depends on itself (RFC 7540 section 5.3.1): an error of the stream.
    SelfDependency,
    /// A window update of 0 for a stream (section 6.9): an error of the stream.
    StreamIncrement,
    /// A window update of 0 for the connection (section 6.9).
    ConnectionIncrement,
    /// A parameter of SETTINGS that has a value beyond its range (section 6.5.2).
    SettingValue,
    /// SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1 (section 6.5.2).
    SettingWindow,
}

impl FrameError {
    /// Every one.
    pub const ALL: &'static [Self] = &[
        Self::TooLong,
        Self::Length,
        Self::PriorityLength,
        Self::StreamMissing,
        Self::StreamUnexpected,
        Self::Padding,
        Self::SelfDependency,
        Self::StreamIncrement,
        Self::ConnectionIncrement,
        Self::SettingValue,
        Self::SettingWindow,
    ];

    /// The code for RST_STREAM or GOAWAY.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::TooLong | Self::Length | Self::PriorityLength => ErrorCode::FRAME_SIZE_ERROR,
            Self::SettingWindow => ErrorCode::FLOW_CONTROL_ERROR,
            _ => ErrorCode::PROTOCOL_ERROR,
        }
    }

    /// The part of the connection that the error ends.
    pub const fn scope(self) -> ErrorScope {
        match self {
            Self::PriorityLength | Self::SelfDependency | Self::StreamIncrement => ErrorScope::Stream,
            _ => ErrorScope::Connection,
        }
    }

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "http2_frame_too_long",
            Self::Length => "http2_frame_length",
            Self::PriorityLength => "http2_priority_length",
            Self::StreamMissing => "http2_stream_missing",
            Self::StreamUnexpected => "http2_stream_unexpected",
            Self::Padding => "http2_padding",
            Self::SelfDependency => "http2_self_dependency",
            Self::StreamIncrement => "http2_stream_increment",
            Self::ConnectionIncrement => "http2_connection_increment",
            Self::SettingValue => "http2_setting_value",
            Self::SettingWindow => "http2_setting_window",
        }
    }

    /// The rule, never the bytes that broke it; short enough for the debug data of GOAWAY.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLong => "frame above SETTINGS_MAX_FRAME_SIZE",
            Self::Length => "frame of a wrong length",
            Self::PriorityLength => "PRIORITY of a wrong length",
            Self::StreamMissing => "frame without a stream",
            Self::StreamUnexpected => "frame of the connection on a stream",
            Self::Padding => "padding longer than its frame",
            Self::SelfDependency => "stream that depends on itself",
            Self::StreamIncrement => "window update of 0 for a stream",
            Self::ConnectionIncrement => "window update of 0 for the connection",
            Self::SettingValue => "value of a setting out of range",
            Self::SettingWindow => "initial window above 2^31-1",
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for FrameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_distinct_labels() {
        for (at, error) in FrameError::ALL.iter().enumerate() {
            assert!(error.reason().starts_with("http2_"), "{error}");
            assert!(FrameError::ALL[at + 1..].iter().all(|other| other.reason() != error.reason()));
        }
    }
}
