//! Limits that a sender of events can break. Each has one stable label and one text. The format itself has no invalid
//! stream.

use std::fmt;

use weir_base::{error::Culprit, violation::Violation};

/// A sender broke a limit. The splitter is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SseError {
    /// A line larger than [`Limits::line_bytes`](crate::Limits::line_bytes).
    LineTooLong,
    /// An event larger than [`Limits::event_bytes`](crate::Limits::event_bytes).
    EventTooLong,
}

impl SseError {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::LineTooLong, Self::EventTooLong];

    /// Stable snake_case label for counters, logs and close reasons.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::LineTooLong => "sse_line_too_long",
            Self::EventTooLong => "sse_event_too_long",
        }
    }

    /// The limit, never the bytes that broke it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::LineTooLong => "a line of the event stream is too long",
            Self::EventTooLong => "an event of the stream is too long",
        }
    }

    /// The violation that `culprit` committed with it.
    pub fn violation(self, culprit: Culprit) -> Violation {
        Violation::rule(self.reason(), culprit, self.text())
    }
}

impl fmt::Display for SseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for SseError {}
