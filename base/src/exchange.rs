//! The outcome of an exchange with an upstream, in the words that its connection and the session share.

/// One step of a framer.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Bytes of the input that belong to the current frame.
    pub taken: usize,
    /// The frame is out of band: it replies to no request.
    pub is_push: bool,
    /// Kind of the frame, once it is complete.
    pub end: Option<FrameKind>,
}

/// The kind of a complete frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A reply.
    Reply,
    /// A reply that refuses.
    Error,
    /// Out of band.
    Push,
}

/// The reason why a lane ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// The upstream closed or reset the connection.
    Closed,
    /// No reply within the request timeout.
    Timeout,
    /// The upstream broke the protocol.
    Violation,
    /// The gateway is closing the lane (drain, reload).
    Retired,
}

impl LossCause {
    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            LossCause::Closed => "closed",
            LossCause::Timeout => "timeout",
            LossCause::Violation => "violation",
            LossCause::Retired => "retired",
        }
    }
}

/// Why a request was not given to the upstream at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No connection could be made in time.
    Unreachable,
    /// The breaker is open: it failed too often just now.
    BreakerOpen,
    /// As many requests wait for a lane as may.
    QueueFull,
    /// The wait for a lane took too long.
    QueueTimeout,
    /// The upstream refused the greeting: wrong credentials, or a protocol version that it does not speak.
    Greeting,
}

impl Refusal {
    /// The label value, and the stable token in error texts.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Unreachable => "upstream_unreachable",
            Refusal::BreakerOpen => "breaker_open",
            Refusal::QueueFull => "upstream_queue_full",
            Refusal::QueueTimeout => "upstream_queue_timeout",
            Refusal::Greeting => "upstream_greeting",
        }
    }

    /// The text for a person.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Unreachable => "upstream unreachable",
            Refusal::BreakerOpen => "upstream unavailable, breaker open",
            Refusal::QueueFull => "upstream queue full",
            Refusal::QueueTimeout => "timed out waiting for an upstream lane",
            Refusal::Greeting => "upstream refused the gateway's login",
        }
    }
}
