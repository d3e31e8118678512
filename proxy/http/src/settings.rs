//! What an operator may choose. Plain data, already checked by whoever made it.

use std::{sync::Arc, time::Duration};

use weir_analysis::http::path::PathRules;
use weir_policy::http::ForwardedFor;
use weir_websocket_codec::Limits;

pub use crate::http2::windows::WindowSettings;
use crate::{compression::Compression, retry::Class, routes::Routes};

/// How long a client connection may stay without a request. Default 75 s, as nginx's `keepalive_timeout`: above the 60 s after
/// which most balancers give up theirs, so that they and not the gateway close first.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(75);

/// From the end of a request to the head of its answer. Default 60 s, as nginx's `proxy_read_timeout`: long polls that keep their
/// head back end by themselves after 25 to 55 s as a rule, and with Envoy's 15 s they would be failures. An origin that hangs
/// costs a client's exchange and a connection so long at worst, both of which have bounds (`limits.in_flight_per_core`,
/// `connections_max`); health checks find it earlier.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the body of a request may pause. Default 30 s.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the body of an answer may pause: event streams and long polls have nothing to say for a while. Default 5 min, as
/// Envoy's idle timeout of streams.
pub const ANSWER_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

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

/// The window of a stream of HTTP/2 as a connection begins, of clients and of origins: what a stream holds that nobody reads.
/// Default 256 KiB: a body of that length needs no second round trip. nginx and HAProxy have 64 KiB, hyper's client 2 MiB, browsers
/// 6 MiB and more, which costs as much for each stream that nobody reads.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// The largest window of a stream, to which it grows while it is read. Default 32 MiB: over 100 ms it carries 320 MB a second, and a
/// body of 20 MB needs one round trip beside the first. Envoy's is 16 MiB, Go's client has 4 MiB, nginx towards origins 2 GiB; these
/// are there from the beginning, here they have to be earned. Worst case: twice this per connection (`http2/windows.rs`), and all
/// connections within `limits.buffered_bytes`.
pub const HTTP2_STREAM_WINDOW_BYTES_MAX: u32 = 32 << 20;

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

/// Attempts after the first one. Default 2.
pub const RETRY_ATTEMPTS: u32 = 2;
/// The longest pause before the second attempt; each further one may be twice as long. Default 25 ms, as Envoy.
pub const RETRY_PAUSE: Duration = Duration::from_millis(25);
/// The longest pause before any attempt. As Envoy's: ten times the first.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(250);

/// Bytes of a request body that are kept so that it can be sent again. Default 64 KiB, as many as a connection's window.
pub const RETRY_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a request body that are read before a connection to an origin in HTTP/1.1 is taken for it. Default 1 MiB, as long as
/// bodies are that nginx takes without being told otherwise: most uploads are whole then, and one that comes slowly holds a connection
/// to no origin. Not in front of HTTP/2: there a slow one holds a stream of many. Charged to `limits.buffered_bytes`; bodies
/// take at most half of that and go on unbuffered beyond it.
pub const REQUEST_BUFFER_BYTES: u64 = 1 << 20;

/// Bytes of a request body. Default 1 GiB, as Apache httpd since 2.4.54: no upload that is meant is longer, and one without an end has
/// one. nginx's 1 MiB would refuse photographs that pass without a gateway.
pub const REQUEST_BODY_BYTES_MAX: u64 = 1 << 30;

/// Bytes a second that the body of a request must bring at least, over ten seconds in which it is waited for. Default 1 KiB: a client
/// on a bad line does better, and one that is slow on purpose is done with a whole [`REQUEST_BUFFER_BYTES`] in 17 minutes. Apache
/// httpd asks for 500 bytes.
pub const BODY_RATE_MIN: u64 = 1024;

/// When another origin is asked instead of one that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetrySettings {
    /// See [`RETRY_ATTEMPTS`]. 0: none.
    pub attempts: u32,
    /// After these failures.
    pub on: Vec<Class>,
    /// After any answer of 500 and more.
    pub on_5xx: bool,
    /// After 502, 503 and 504.
    pub on_gateway_error: bool,
    /// After these.
    pub statuses: Vec<u16>,
    /// Also requests whose methods are not idempotent (RFC 9110 section 9.2.2), though the origin may have acted on them.
    pub non_idempotent: bool,
    /// From the end of a request to the head of its answer, of all attempts but the last.
    pub try_timeout: Option<Duration>,
    /// See [`RETRY_BODY_BYTES_MAX`].
    pub body_bytes_max: usize,
}

impl RetrySettings {
    /// A body has to be kept: something may be asked again that an origin has been sent a part of. `is_multiplexed`: origins may
    /// say that they have not begun with it.
    pub(crate) fn keeps_bodies(&self, is_multiplexed: bool) -> bool {
        let may_follow = |class: &Class| match class {
            Class::ConnectFailure => false,
            Class::RefusedStream => is_multiplexed,
            Class::Reset | Class::Timeout | Class::Status => true,
        };
        let wants_statuses = self.on_5xx || self.on_gateway_error || !self.statuses.is_empty();
        self.attempts > 0 && self.body_bytes_max > 0 && (wants_statuses || self.on.iter().any(may_follow))
    }

    /// An answer with this status is a failure.
    pub(crate) fn takes(&self, status: u16) -> bool {
        (self.on_5xx && status >= 500)
            || (self.on_gateway_error && matches!(status, 502..=504))
            || self.statuses.contains(&status)
    }
}

impl Default for RetrySettings {
    /// What nobody has seen is asked again.
    fn default() -> Self {
        Self {
            attempts: RETRY_ATTEMPTS,
            on: vec![Class::ConnectFailure, Class::RefusedStream],
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
    /// A client of HTTP/1.1 that has closed its direction (FIN) still gets its answers. Default false: whoever closes it has left, more
    /// often than not, and an origin should not work for nobody; nginx and Envoy see it so too.
    pub half_close: bool,
    /// See [`RESPONSE_TIMEOUT`].
    pub response_timeout: Duration,
    /// See [`BODY_IDLE_TIMEOUT`].
    pub body_idle_timeout: Duration,
    /// See [`ANSWER_IDLE_TIMEOUT`].
    pub answer_idle_timeout: Duration,
    /// See [`GRPC_IDLE_TIMEOUT`].
    pub grpc_idle_timeout: Duration,
    /// From the head of a request to the end of its answer. `None`: as long as it takes. Not of gRPC and WebSockets.
    pub request_timeout: Option<Duration>,
    /// See [`BODY_RATE_MIN`]. 0: as slow as it likes.
    pub body_rate_min: u64,
    /// See [`REQUEST_BUFFER_BYTES`]. `None`: that, in front of HTTP/1.1.
    pub request_buffer_bytes: Option<u64>,
    /// See [`REQUEST_BODY_BYTES_MAX`]. `None`: that, but for calls of gRPC; 0: any.
    pub request_body_bytes_max: Option<u64>,
    /// Of routes that do not say. `None`: nothing is compressed.
    pub compression: Option<Arc<Compression>>,
    /// Of routes that do not say.
    pub retry: RetrySettings,
    /// How paths are read.
    pub path_rules: PathRules,
    /// X-Forwarded-For, -Proto and -Host.
    pub forwarded: ForwardedFields,
    /// Origins are told of the certificate that a client has shown, in X-Forwarded-Client-Cert.
    pub forwarded_client_cert: bool,
    /// Of routes that do not say.
    pub upgrades: Upgrades,
    /// What WebSockets may do.
    pub websocket: WebSocketSettings,
    /// See [`HTTP2_STREAMS_MAX`].
    pub http2_streams_max: u32,
    /// Of what clients send.
    pub http2_windows: WindowSettings,
    /// Who the client of a request is, behind trusted proxies.
    pub forwarded_for: ForwardedFor,
    /// Requests go on with an X-Request-Id: the one of a trusted proxy in front, else one that is made.
    pub request_id: bool,
    /// How the gateway calls itself in Via towards origins. `None`: it adds none, as nginx would compress nothing behind one.
    pub via: Option<Box<str>>,
    /// See [`TraceContext`].
    pub trace_context: TraceContext,
}

impl HttpListenerSettings {
    /// Every default, with these routes.
    pub fn new(routes: Arc<Routes>) -> Self {
        Self {
            routes,
            keep_alive_timeout: KEEP_ALIVE_TIMEOUT,
            half_close: false,
            response_timeout: RESPONSE_TIMEOUT,
            body_idle_timeout: BODY_IDLE_TIMEOUT,
            answer_idle_timeout: ANSWER_IDLE_TIMEOUT,
            grpc_idle_timeout: GRPC_IDLE_TIMEOUT,
            request_timeout: None,
            body_rate_min: BODY_RATE_MIN,
            request_buffer_bytes: None,
            request_body_bytes_max: None,
            compression: None,
            retry: RetrySettings::default(),
            path_rules: PathRules::default(),
            forwarded: ForwardedFields::default(),
            forwarded_client_cert: false,
            upgrades: Upgrades::default(),
            websocket: WebSocketSettings::default(),
            http2_streams_max: HTTP2_STREAMS_MAX,
            http2_windows: WindowSettings::default(),
            forwarded_for: ForwardedFor::default(),
            request_id: false,
            via: None,
            trace_context: TraceContext::default(),
        }
    }
}
