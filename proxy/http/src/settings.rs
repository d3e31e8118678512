//! Settings of an operator. Plain data, already checked.

use std::{sync::Arc, time::Duration};

use weir_analysis::http::path::PathRules;
use weir_policy::http::ForwardedFor;

use crate::{compression::Compression, refusal_format::RefusalFormat, routes::Routes};
pub use crate::{http2::windows::WindowSettings, limits::*, options::*};

/// An HTTP listener.
#[derive(Clone, Debug)]
pub struct HttpListenerSettings {
    /// Routes of the requests. Rebuilt whenever a file is read.
    pub routes: Arc<Routes>,
    /// See [`KEEP_ALIVE_TIMEOUT`].
    pub keep_alive_timeout: Duration,
    /// A client of HTTP/1.1 that has closed its direction (FIN) still gets its responses. Default false: such a client has usually left,
    /// and an origin should not work for it; nginx and Envoy do the same.
    pub half_close: bool,
    /// See [`RESPONSE_TIMEOUT`].
    pub response_timeout: Duration,
    /// See [`BODY_IDLE_TIMEOUT`].
    pub body_idle_timeout: Duration,
    /// See [`RESPONSE_IDLE_TIMEOUT`].
    pub response_idle_timeout: Duration,
    /// See [`GRPC_IDLE_TIMEOUT`].
    pub grpc_idle_timeout: Duration,
    /// Requests of gRPC to an origin of HTTP/2 are calls, which stream in both directions, and for which no filter chooses an upstream.
    /// Default true; false where a filter has to see each request.
    pub grpc_calls: bool,
    /// From the head of a request to the end of its response. `None`: as long as it takes. Does not apply to gRPC and WebSockets.
    pub request_timeout: Option<Duration>,
    /// See [`BODY_RATE_MIN`]. 0: as slow as it likes.
    pub body_rate_min: u64,
    /// See [`REQUEST_BUFFER_BYTES`]. `None`: that, in front of HTTP/1.1.
    pub request_buffer_bytes: Option<u64>,
    /// See [`REQUEST_BODY_BYTES_MAX`]. `None`: that, except for calls of gRPC; 0: any.
    pub request_body_bytes_max: Option<u64>,
    /// The form of its refusals. `None`: a line of text.
    pub refusal_format: Option<Arc<dyn RefusalFormat>>,
    /// Default of the routes. `None`: nothing is compressed.
    pub compression: Option<Arc<Compression>>,
    /// Default of the routes.
    pub retry: RetrySettings,
    /// Rules of path normalisation.
    pub path_rules: PathRules,
    /// X-Forwarded-For, -Proto and -Host.
    pub forwarded: ForwardedFields,
    /// Origins get the certificate of the client in X-Forwarded-Client-Cert.
    pub forwarded_client_cert: bool,
    /// Default of the routes.
    pub upgrades: Upgrades,
    /// Settings of WebSockets.
    pub websocket: WebSocketSettings,
    /// See [`HTTP2_STREAMS_MAX`].
    pub http2_streams_max: u32,
    /// Windows for the bytes of clients.
    pub http2_windows: WindowSettings,
    /// Finds the client of a request behind trusted proxies.
    pub forwarded_for: ForwardedFor,
    /// Requests go on with an X-Request-Id: the one of a trusted proxy in front, else one that is made.
    pub request_id: bool,
    /// The gateway's name in Via towards origins. `None`: it adds none, as nginx would compress nothing behind one.
    pub via: Option<Box<str>>,
    /// See [`TraceContext`].
    pub trace_context: TraceContext,
    /// See [`ERROR_WARN`].
    pub error_warn: f64,
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
            response_idle_timeout: RESPONSE_IDLE_TIMEOUT,
            grpc_idle_timeout: GRPC_IDLE_TIMEOUT,
            grpc_calls: true,
            request_timeout: None,
            body_rate_min: BODY_RATE_MIN,
            request_buffer_bytes: None,
            request_body_bytes_max: None,
            refusal_format: None,
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
            error_warn: ERROR_WARN,
        }
    }
}
