//! Options that a listener has, and that a route may have of its own.

use std::time::Duration;

use weir_websocket_codec::Limits;

use crate::limits::{RETRY_ATTEMPTS, RETRY_BODY_BYTES_MAX, WEBSOCKET_FRAME_TIMEOUT, WEBSOCKET_IDLE_TIMEOUT};

/// The cause of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// No connection could be made: no origin has seen the request.
    ConnectFailure,
    /// The origin said that it has not begun with it: REFUSED_STREAM, or GOAWAY.
    RefusedStream,
    /// The connection ended without a response.
    Reset,
    /// There was no response in time.
    Timeout,
    /// The response has a status that is retried.
    Status,
}

impl RetryCause {
    /// The word in the file and the label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectFailure => "connect_failure",
            Self::RefusedStream => "refused_stream",
            Self::Reset => "reset",
            Self::Timeout => "timeout",
            Self::Status => "status",
        }
    }

    /// No origin has begun with the request: it may be of any method.
    pub(crate) const fn is_not_processed(self) -> bool {
        matches!(self, Self::ConnectFailure | Self::RefusedStream)
    }
}

/// Settings of retries at another origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// See [`RETRY_ATTEMPTS`]. 0: none.
    pub attempts: u32,
    /// After these failures.
    pub on: Vec<RetryCause>,
    /// After any response of 500 and more.
    pub on_5xx: bool,
    /// After 502, 503 and 504.
    pub on_gateway_error: bool,
    /// After these.
    pub statuses: Vec<u16>,
    /// Also requests whose methods are not idempotent (RFC 9110 section 9.2.2), though the origin may have acted on them.
    pub non_idempotent: bool,
    /// From the end of a request to the head of its response, in all attempts but the last.
    pub try_timeout: Option<Duration>,
    /// See [`RETRY_BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
}

impl RetrySettings {
    /// Bodies have to be buffered: a retry may follow after an origin has received a part. `is_multiplexed`: origins may report that they
    /// have not begun with it.
    pub(crate) fn keeps_bodies(&self, is_multiplexed: bool) -> bool {
        let may_follow = |class: &RetryCause| match class {
            RetryCause::ConnectFailure => false,
            RetryCause::RefusedStream => is_multiplexed,
            RetryCause::Reset | RetryCause::Timeout | RetryCause::Status => true,
        };
        let wants_statuses = self.on_5xx || self.on_gateway_error || !self.statuses.is_empty();
        self.attempts > 0 && self.body_bytes_max > 0 && (wants_statuses || self.on.iter().any(may_follow))
    }

    /// A response with this status is a failure.
    pub(crate) fn retries_on(&self, status: u16) -> bool {
        (self.on_5xx && status >= 500)
            || (self.on_gateway_error && matches!(status, 502..=504))
            || self.statuses.contains(&status)
    }
}

impl Default for RetrySettings {
    /// Requests that no origin has seen are retried.
    fn default() -> Self {
        Self {
            attempts: RETRY_ATTEMPTS,
            on: vec![RetryCause::ConnectFailure, RetryCause::RefusedStream],
            on_5xx: false,
            on_gateway_error: false,
            statuses: Vec::new(),
            non_idempotent: false,
            try_timeout: None,
            body_bytes_max: RETRY_BODY_BYTES_MAX,
        }
    }
}

/// Limits of the WebSockets of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// Limits of each direction.
    pub limits: Limits,
    /// See [`WEBSOCKET_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// See [`WEBSOCKET_FRAME_TIMEOUT`].
    pub frame_timeout: Duration,
}

impl Default for WebSocketSettings {
    fn default() -> Self {
        Self { limits: Limits::default(), idle_timeout: WEBSOCKET_IDLE_TIMEOUT, frame_timeout: WEBSOCKET_FRAME_TIMEOUT }
    }
}

/// Upgrades of a client's connection that are allowed, if the origin agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upgrades {
    /// A WebSocket (RFC 6455).
    pub websocket: bool,
}

/// Handling of fields that describe the client and the proxies before the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedFields {
    /// The gateway is the first proxy: the client's own statements are replaced.
    #[default]
    Replace,
    /// Trusted proxies stand in front: their statements stay, and the gateway adds its own.
    Append,
    /// Nothing is said, and what came stays.
    Keep,
}

impl ForwardedFields {
    /// Every one.
    pub const ALL: &'static [Self] = &[Self::Replace, Self::Append, Self::Keep];

    /// The word in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Keep => "keep",
        }
    }
}

/// Handling of `traceparent` and `tracestate` (W3C Trace Context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TraceContext {
    /// They go on as they came.
    #[default]
    Pass,
    /// The gateway is a step of the trace: it has a span of its own. A malformed trace context is removed.
    Child,
    /// The same, and a request without a trace begins one.
    Start,
}
