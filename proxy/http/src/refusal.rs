//! Every refusal, in HTTP's words.

use weir_http_codec::{Fields, Known, WireError};
use weir_upstream::Refusal as LaneRefusal;

use crate::local_response::LocalResponse;

/// A refusal as a response of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status of the response.
    pub(crate) status: u16,
    /// Stable word for counters, logs and the access record.
    pub(crate) reason: &'static str,
    /// Text for the client; never an internal name.
    pub(crate) text: &'static str,
    /// No request can follow on the connection.
    pub(crate) closes: bool,
}

/// Seconds after which a client that was shed may come back; chance adds up to as much again, so that they do not come all at
/// once.
const RETRY_AFTER: u64 = 1;

impl Refusal {
    const fn new(status: u16, reason: &'static str, text: &'static str) -> Self {
        Self { status, reason, text, closes: false }
    }

    pub(crate) const fn closing(self) -> Self {
        Self { closes: true, ..self }
    }

    /// The path could be read in two ways.
    pub(crate) const PATH: Self = Self::new(400, "path", "ambiguous or malformed path");
    /// The host is none.
    pub(crate) const HOST: Self = Self::new(400, "host", "malformed host");
    /// A rewrite of the configuration makes no path of this one.
    pub(crate) const REWRITE: Self = Self::new(400, "rewrite", "the path cannot be rewritten");
    /// No route takes it.
    pub(crate) const NO_ROUTE: Self = Self::new(404, "no_route", "no route for this request");
    /// There is a mistake in the route that takes it.
    pub(crate) const ROUTE_INVALID: Self = Self::new(503, "route_invalid", "this is not available");
    /// The limit of concurrent exchanges is reached.
    pub(crate) const IN_FLIGHT: Self = Self::new(503, "in_flight", "the gateway is at its limit of requests");
    /// The body is longer than its route takes.
    pub(crate) const BODY_TOO_LONG: Self = Self::new(413, "body_too_long", "the request body is too long");
    /// A check of credentials broke down.
    pub(crate) const POLICY_FAILED: Self = Self::new(503, "policy_failed", "the credentials cannot be checked now");
    /// The service that decides on requests does not.
    pub(crate) const EXT_AUTH_FAILED: Self =
        Self::new(503, "ext_auth_failed", "it cannot be found out now whether this is allowed");
    /// The keys of the issuers of tokens cannot be fetched.
    pub(crate) const JWKS_UNAVAILABLE: Self =
        Self::new(503, "jwt_keys_unavailable", "the credentials cannot be checked now");
    /// The head took longer than its deadline.
    pub(crate) const HEAD_TIMEOUT: Self =
        Self::new(408, "head_timeout", "the request took too long to arrive").closing();
    /// The body paused longer than it may.
    pub(crate) const BODY_TIMEOUT: Self = Self::new(408, "body_timeout", "the request body took too long").closing();
    /// The client went away in the middle of a body.
    pub(crate) const BODY_CUT: Self = Self::new(400, "body_cut", "the request body ended early").closing();
    /// The origin's head took longer than its deadline.
    pub(crate) const RESPONSE_TIMEOUT: Self = Self::new(504, "response_timeout", "the origin did not respond in time");
    /// The first byte of the origin's body took longer than the filter allows.
    pub(crate) const FIRST_BYTE_TIMEOUT: Self =
        Self::new(504, "first_byte_timeout", "the origin did not begin its response in time");
    /// A pause in the origin's body was longer than the filter allows. The client has a part of it then, and gets no refusal.
    pub(crate) const IDLE_TIMEOUT: Self = Self::new(504, "idle_timeout", "the origin paused for too long");
    /// All of the exchange took longer than it may.
    pub(crate) const REQUEST_TIMEOUT: Self = Self::new(504, "request_timeout", "the origin did not respond in time");
    /// The origin closed without a response.
    pub(crate) const ORIGIN_CLOSED: Self = Self::new(502, "origin_closed", "the origin closed the connection");
    /// The origin broke HTTP.
    pub(crate) const ORIGIN_MALFORMED: Self = Self::new(502, "origin_malformed", "the origin's response is malformed");
    /// A tap on the response gave it up. The client has a part of it then, and gets no refusal.
    pub(crate) const TAP_BROKE_OFF: Self = Self::new(502, "tap_broke_off", "the response cannot be passed on");
    /// A response that is to be replaced is longer than its filter takes.
    pub(crate) const RESPONSE_TOO_LONG: Self = Self::new(502, "response_too_long", "the origin's response is too long");
    /// There is no memory for a response that is to be replaced.
    pub(crate) const RESPONSE_NO_ROOM: Self =
        Self::new(503, "response_no_room", "the gateway has no room for the response");
    /// The origin does not read the body, and others need the memory that it holds.
    pub(crate) const UPLOAD_GIVEN_UP: Self =
        Self::new(503, "upload_given_up", "the origin does not read the request, and the gateway has no room for it");
    /// The body is for a handler, and there is no memory for it.
    pub(crate) const BODY_NO_ROOM: Self =
        Self::new(503, "body_no_room", "the gateway has no room for the request body");
    /// A filter broke a rule of its own.
    pub(crate) const FILTER_FAILED: Self = Self::new(500, "filter_failed", "the request cannot be passed on");
    /// A gRPC call over HTTP/1.1, which cannot carry its status.
    pub(crate) const GRPC_NEEDS_HTTP2: Self = Self::new(426, "grpc_needs_http2", "gRPC needs HTTP/2");

    /// A WebSocket handshake that breaks RFC 6455 section 4.1.
    pub(crate) const WEBSOCKET_HANDSHAKE: Self =
        Self::new(426, "websocket_handshake", "WebSocket needs GET, a key of 16 bytes and version 13");

    /// An extended CONNECT (RFC 8441) where there is no WebSocket.
    pub(crate) const CONNECT_PROTOCOL: Self = Self::new(501, "connect_protocol", "no WebSocket is to be had here");

    /// The origin did not become a WebSocket and said that all is well, which over HTTP/2 would mean that it did.
    pub(crate) const ORIGIN_NO_WEBSOCKET: Self =
        Self::new(502, "origin_no_websocket", "the origin did not agree to a WebSocket");

    /// The refusal of a request that breaks a rule.
    pub(crate) const fn malformed(error: WireError) -> Self {
        Self::new(error.status(), error.reason(), error.text()).closing()
    }

    /// The refusal of a policy; its fields go into the response separately.
    pub(crate) fn of_policy(refusal: &weir_policy::http::Refusal) -> Self {
        let text = match refusal.status {
            401 => "credentials are needed",
            403 => "not allowed",
            413 => Self::BODY_TOO_LONG.text,
            503 if refusal.reason == "basic_busy" => "too many logins at once",
            _ => "too many requests",
        };
        Self::new(refusal.status, refusal.reason, text)
    }

    /// No lane was available.
    pub(crate) const fn no_lane(refusal: LaneRefusal) -> Self {
        match refusal {
            LaneRefusal::BreakerOpen => Self::new(503, "no_healthy_endpoint", "no origin is available"),
            LaneRefusal::QueueFull => Self::new(503, "queue_full", "too many requests wait for the origin"),
            LaneRefusal::QueueTimeout => Self::new(503, "queue_timeout", "no connection to the origin became free"),
            _ => Self::new(502, "connect", "the origin cannot be reached"),
        }
    }

    /// In HTTP's words; `fields` stand in its head besides its own.
    pub(crate) fn response(&self, own: Option<&Fields>, chance: u64) -> LocalResponse {
        let mut response = LocalResponse::new(self.status, b"text/plain; charset=utf-8", format!("{}\n", self.text));
        let fields = &mut response.head.fields;
        own.into_iter().flat_map(Fields::iter).for_each(|field| fields.push(field.name, field.value));
        match self.status {
            503 if !fields.has(Known::RetryAfter) => {
                fields.push(b"Retry-After", itoa::Buffer::new().format(RETRY_AFTER + chance % 5).as_bytes());
            }
            405 => fields.push(b"Allow", b"GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS"),
            426 if *self == Self::WEBSOCKET_HANDSHAKE => {
                fields.push(b"Upgrade", b"websocket");
                fields.push(b"Sec-WebSocket-Version", b"13");
            }
            501 if *self == Self::CONNECT_PROTOCOL => fields.push(b"Sec-WebSocket-Version", b"13"),
            426 => fields.push(b"Upgrade", b"h2c"),
            _ => {}
        }
        response
    }
}
