//! What an operator may choose. Plain data, already checked by whoever made it.

use std::{sync::Arc, time::Duration};

use weir_policy::http::ForwardedFor;
use weir_websocket_codec::Limits;

use crate::routes::Routes;

/// How long a client connection may stay without a request. Default 75 s, as nginx's `keepalive_timeout`: above the 60 s after
/// which most balancers give up theirs, so that they and not the gateway close first.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);

/// From the end of a request to the head of its answer. Default 15 s, as Envoy's route timeout.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a body may pause, in either direction. Default 30 s.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a gRPC call may be silent, in either direction: of a stream that waits for news that is no fault. Default 5 min, as
/// Envoy's idle timeout of streams.
pub const GRPC_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Streams that the gateway has open on one HTTP/2 connection to an origin. Default 100, as many as most origins take.
pub const ORIGIN_STREAMS_MAX: u32 = 100;

/// What a request body that nobody wants any more may still bring before the connection is closed: reading a little is cheaper
/// for both than a new connection. Default 64 KiB, and no longer than [`DISCARD_TIMEOUT`].
pub const DISCARD_BYTES_MAX: u64 = 64 * 1024;
/// See [`DISCARD_BYTES_MAX`].
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a closed connection may take to let the client read the last answer: closing at once would reset it while bytes of
/// the client are unread, and the answer with it. Default 1 s.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// Streams that a client may have open on one HTTP/2 connection. Default 100, the least that RFC 9113 section 6.5.2 recommends.
pub const HTTP2_STREAMS_MAX: u32 = 100;

/// Bytes that a client may send ahead on one stream, and on all of a connection: what a connection holds at most while origins
/// do not read. As Envoy advises for gateways at the edge.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// See [`HTTP2_STREAM_WINDOW_BYTES`].
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Bytes of answers that wait on one stream for the client's window.
pub const HTTP2_SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Interim answers (1xx) to one request; an origin that sends more is broken.
pub const INTERIM_RESPONSES_MAX: u32 = 8;

/// How long a WebSocket may be silent in both directions. Default 60 s, as ExpressGateway and nginx's `proxy_read_timeout`; pings
/// count as life.
pub const WEBSOCKET_IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// From the first byte of a WebSocket frame to its last, but for the time in which its receiver takes nothing. Default 30 s, as
/// ExpressGateway.
pub const WEBSOCKET_FRAME_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of the WebSockets of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// Of each direction.
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

/// What the connection of a client may become, if the origin agrees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upgrades {
    /// A WebSocket (RFC 6455).
    pub websocket: bool,
}

/// What a client may know of the gateway and of whom else it asked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForwardedFields {
    /// The gateway is the first: what the client says of others is replaced.
    #[default]
    Replace,
    /// Trusted proxies stand in front: what they say is kept and added to.
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

/// What becomes of `traceparent` and `tracestate` (W3C Trace Context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TraceContext {
    /// They go on as they came.
    #[default]
    Pass,
    /// The gateway is a step of the trace: it has a span of its own. What is no trace is taken away.
    Child,
    /// The same, and a request without a trace begins one.
    Start,
}

/// An HTTP listener.
#[derive(Clone, Debug)]
pub struct HttpListenerSettings {
    /// Where requests go. Made anew whenever a file is read.
    pub routes: Arc<Routes>,
    /// See [`KEEP_ALIVE_TIMEOUT`].
    pub keep_alive_timeout: Duration,
    /// See [`RESPONSE_TIMEOUT`].
    pub response_timeout: Duration,
    /// See [`BODY_IDLE_TIMEOUT`].
    pub body_idle_timeout: Duration,
    /// See [`GRPC_IDLE_TIMEOUT`].
    pub grpc_idle_timeout: Duration,
    /// X-Forwarded-For, -Proto and -Host.
    pub forwarded: ForwardedFields,
    /// Of routes that do not say.
    pub upgrades: Upgrades,
    /// What WebSockets may do.
    pub websocket: WebSocketSettings,
    /// See [`HTTP2_STREAMS_MAX`].
    pub http2_streams_max: u32,
    /// Who the client of a request is, behind trusted proxies.
    pub forwarded_for: ForwardedFor,
    /// Requests go on with an X-Request-Id: the one of a trusted proxy in front, else one that is made.
    pub request_id: bool,
    /// See [`TraceContext`].
    pub trace_context: TraceContext,
}

impl HttpListenerSettings {
    /// Every default, with these routes.
    pub fn new(routes: Arc<Routes>) -> Self {
        Self {
            routes,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
            response_timeout: RESPONSE_TIMEOUT,
            body_idle_timeout: BODY_IDLE_TIMEOUT,
            grpc_idle_timeout: GRPC_IDLE_TIMEOUT,
            forwarded: ForwardedFields::default(),
            upgrades: Upgrades::default(),
            websocket: WebSocketSettings::default(),
            http2_streams_max: HTTP2_STREAMS_MAX,
            forwarded_for: ForwardedFor::default(),
            request_id: false,
            trace_context: TraceContext::default(),
        }
    }
}
