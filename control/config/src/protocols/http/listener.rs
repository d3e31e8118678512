//! `[listener.http]`: the keys, and the step to settings.

use std::sync::Arc;

use weir_analysis::http::path::{Ambiguous, PathRules};
use weir_base::ByteSize;
use weir_http::routes::Routes;
use weir_http::settings::{
    self as http, ForwardedFields, HttpListenerSettings, TraceContext, WebSocketSettings, WindowSettings,
};
use weir_policy::http::{ForwardedFor, HOPS_MAX};
use weir_websocket_codec::limits as websocket;

use super::handling::{CompressionSection, DEADLINE_MAX, ListenerHandling, upgrades};
use super::policy::PolicyKeys;
use crate::checks::{Lowest, error_at};
use crate::document::At;
use crate::numbers::{Period, Ratio};
use crate::protocols::ListenerContext;
use crate::reader::Reader;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN};
use crate::texts::{Choice, Word};

/// Smallest window of a stream.
pub(super) const WINDOW_MIN: ByteSize = ByteSize::new(1_024);
/// Largest window (RFC 9113 section 6.9.1).
pub(super) const WINDOW_MAX: ByteSize = ByteSize::new(i32::MAX as u64);

section! {
    /// Settings of HTTP listeners only.
    pub(crate) struct ListenerHttpSection {
        /// Time after which a client connection without a request is closed. `idle_timeout` of the listener, if set, replaces it.
        default keep_alive_timeout: Period = Period(http::KEEP_ALIVE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Serve HTTP/1.1 clients that have closed their sending direction (FIN), until `half_close_timeout` of the listener passes
        /// in silence. If `false`, a FIN means that the client has disconnected, and its requests are cancelled, as in nginx.
        default half_close: bool = false;
        include handling: ListenerHandling;
        /// Maximum silence of a gRPC call in either direction. Replaces `body_idle_timeout`, `response_idle_timeout` and
        /// `response_timeout` of the listener. The client sets the total timeout of the call (`grpc-timeout`).
        default grpc_idle_timeout: Period = Period(http::GRPC_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Treatment of `;` and the text after it in a path segment: `keep` it like other text, or `reject` the request with 400.
        /// Use `reject` in front of servlet containers, which read `/admin;x` as `/admin`, if access to some paths is restricted.
        default path_parameters: Ambiguous = Ambiguous::Keep;
        /// Treatment of `%2F` in a path: `reject` the request with 400, because only some servers read `%2F` as a slash, or `keep`
        /// it, for upstreams with slashes in names (npm, GitLab). Routes do not match `%2F` as a slash.
        default path_escaped_slash: Ambiguous = Ambiguous::Reject;
        /// Treatment of a backslash or `%5C` in a path: `reject` the request with 400, because some servers read it as a slash, or
        /// `keep` it.
        default path_backslash: Ambiguous = Ambiguous::Reject;
        /// Merge repeated slashes in a path before routes match it. Set `false` for upstreams that distinguish them, such as object
        /// stores; a rewritten path never has repeated slashes.
        default path_merge_slashes: bool = true;
        /// X-Forwarded-For, -Proto and -Host to upstreams: `replace` the values of the client, for a gateway that clients reach
        /// directly; `append` to the values, behind trusted proxies; or `keep` the values and add nothing.
        default forwarded: ForwardedFields = ForwardedFields::Replace;
        /// Send the certificate of the client to upstreams in X-Forwarded-Client-Cert (hash, subject, DNS names, URIs). `forwarded`
        /// also applies to this header if the client sends it.
        default forwarded_client_cert: bool = false;
        /// Limits of WebSockets.
        table websocket: WebSocketSection;
        /// Maximum concurrent streams on one HTTP/2 connection of a client.
        default http2_streams_max: u32 = http::HTTP2_STREAMS_MAX => 1..=COUNT_MAX;
        /// Initial flow-control window of HTTP/2 streams from clients (SETTINGS_INITIAL_WINDOW_SIZE). It shrinks to 64KiB while
        /// much received data is unread, unless `http2_stream_window_max` is equal. If absent, 256KiB, or
        /// `http2_stream_window_max` if that is less.
        default http2_stream_window: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// Maximum flow-control window of HTTP/2 streams from clients, to which windows grow while data from a distant client is
        /// read. If equal to `http2_stream_window`, windows neither grow nor shrink. If absent, 32MiB, or
        /// `http2_stream_window` if that is more.
        default http2_stream_window_max: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES_MAX as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// Number of trusted proxies in front that append to X-Forwarded-For. The entry of the first of these proxies is the
        /// address of the client, for `ip_filter`, `rate_limit` and `affinity`. With 0, the client is the peer of the connection.
        default trusted_hops: u32 = 0 => 0..=HOPS_MAX as u32;
        /// Add X-Request-Id to requests. If `forwarded` is `append`, a valid id of a proxy in front is kept; otherwise the id is a
        /// new UUID. The access log contains the id.
        default request_id: bool = false;
        /// Name of the gateway in the Via header of requests to upstreams, which reveals loops. If absent, no Via is added, because
        /// some servers, such as nginx, do not compress responses to requests with Via.
        optional via: Word;
        /// Treatment of the W3C trace context (`traceparent`): `pass` it unchanged, make a `child` of it, so that the gateway is a
        /// step of the trace, or also `start` a trace for requests without a trace.
        default trace_context: TraceContext = TraceContext::Pass;
        /// Share of errors among the responses of the last 10 s at which the gateway warns about the listener (log, admin API,
        /// `weir top`), above 0.0. With fewer than five responses, the window grows up to 60 s. Fewer than five responses in 60 s
        /// cause no warning. Errors are 5xx, and responses that upstream or gateway aborted. Requests whose client disconnected are
        /// not counted. The warning ends when the share has been below nine tenths of this value for 10 s.
        default error_warn: Ratio = Ratio(http::ERROR_WARN);
        include policies: PolicyKeys;
    }
}

section! {
    /// Limits of WebSockets. The gateway reads only the headers of frames, and forwards the payload unchanged.
    pub(crate) struct WebSocketSection {
        /// Maximum silence of a WebSocket in both directions. Then client and upstream get close code 1001.
        default idle_timeout: Period = Period(http::WEBSOCKET_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Maximum time from the first to the last byte of a frame. Then the sender gets close code 1008.
        default frame_timeout: Period = Period(http::WEBSOCKET_FRAME_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Maximum payload of a message, all frames together. The sender of a longer message gets close code 1009.
        default message_max: ByteSize = ByteSize::new(websocket::MESSAGE_BYTES_MAX) => ByteSize::new(125)..=ByteSize::mib(1 << 20);
        /// Maximum frames of a message. The sender of a message with more frames gets close code 1009.
        default fragments_max: u32 = websocket::FRAGMENTS_MAX => 1..=COUNT_MAX;
        /// Maximum pings within 10 s from one side. The sender of more pings gets close code 1008.
        default pings_max: u32 = websocket::PINGS_MAX => 1..=COUNT_MAX;
    }
}

/// Zero is in the range of a share, and would warn of a listener without an error.
fn error_warn(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) -> f64 {
    let warn = &section.error_warn;
    if warn.value.0 <= 0.0 {
        let help = "it is a share of the responses above 0.0, up to 1.0; 0.05 warns when one of twenty is an error";
        error_at(warn, path, "error_warn", "is 0", help, reader);
    }
    warn.value.0
}

/// Settings of a listener.
pub(super) fn settings(
    section: &ListenerHttpSection,
    routes: Routes,
    path: &str,
    reader: &mut Reader<'_>,
) -> HttpListenerSettings {
    let handling = &section.handling;
    HttpListenerSettings {
        routes: Arc::new(routes),
        keep_alive_timeout: section.keep_alive_timeout.value.0,
        half_close: section.half_close.value,
        response_timeout: handling.response_timeout.value.0,
        body_idle_timeout: handling.body_idle_timeout.value.0,
        response_idle_timeout: handling.response_idle_timeout.value.0,
        grpc_calls: true,
        grpc_idle_timeout: section.grpc_idle_timeout.value.0,
        request_timeout: handling.request_timeout.as_ref().map(|timeout| timeout.value.0),
        compression: handling.compression.as_ref().map(CompressionSection::settings),
        body_rate_min: u64::from(handling.body_rate_min.value),
        request_buffer_bytes: handling.request_buffer_bytes.as_ref().map(|bytes| bytes.value.bytes()),
        request_body_bytes_max: handling.request_body_bytes_max.as_ref().map(|most| most.value.bytes()),
        // That of another protocol, whose room sets it.
        refusal_format: None,
        retry: handling.retry.settings(&format!("{path}.retry"), reader),
        path_rules: PathRules {
            parameters: section.path_parameters.value,
            escaped_slash: section.path_escaped_slash.value,
            backslash: section.path_backslash.value,
            merge_slashes: section.path_merge_slashes.value,
            ..PathRules::default()
        },
        forwarded: section.forwarded.value,
        forwarded_client_cert: section.forwarded_client_cert.value,
        upgrades: handling.upgrades.as_ref().map(|list| upgrades(&list.value)).unwrap_or_default(),
        websocket: WebSocketSettings {
            limits: websocket::Limits {
                message_bytes: section.websocket.message_max.value.bytes(),
                fragments: section.websocket.fragments_max.value,
                pings: section.websocket.pings_max.value,
            },
            idle_timeout: section.websocket.idle_timeout.value.0,
            frame_timeout: section.websocket.frame_timeout.value.0,
        },
        http2_streams_max: section.http2_streams_max.value,
        http2_windows: windows(&section.http2_stream_window, &section.http2_stream_window_max),
        // The range of the key is that of the type.
        request_id: section.request_id.value,
        via: section.via.as_ref().map(|name| name.value.0.as_str().into()),
        trace_context: section.trace_context.value,
        error_warn: error_warn(section, path, reader),
        forwarded_for: ForwardedFor::new(section.trusted_hops.value as u8).unwrap_or_default(),
    }
}

/// Windows of streams; a largest one that is not written is the initial one if that is larger.
pub(super) fn windows(initial: &At<ByteSize>, max: &At<ByteSize>) -> WindowSettings {
    // The range of the keys is that of the type.
    let (first, largest) = (initial.value.bytes() as u32, max.value.bytes() as u32);
    match initial.is_given {
        true => WindowSettings { initial: first, max: largest.max(first) },
        false => WindowSettings { initial: first.min(largest), max: largest },
    }
}

/// Relations between the keys of a listener.
pub(super) fn check(of: &ListenerContext<'_>, path: &str, reader: &mut Reader<'_>) {
    let section = &of.section.own.http.http;
    check_hops(section, path, reader);
    check_via(section, path, reader);
    check_half_close(of, reader);
    let (initial, max) = (&section.http2_stream_window, &section.http2_stream_window_max);
    check_windows(initial, max, path, ("http2_stream_window", "http2_stream_window_max"), reader);
}

/// Proxies in front are believed by one key and replaced by another.
fn check_hops(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) {
    let hops = &section.trusted_hops;
    if hops.value > 0 && section.forwarded.value == ForwardedFields::Replace {
        let what = "trusts proxies in front, and forwarded = \"replace\" discards their header fields";
        error_at(hops, path, "trusted_hops", what, "write forwarded = \"append\"", reader);
    }
}

/// How long half a connection is served says nothing where none is.
fn check_half_close(of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let timeout = &of.section.half_close_timeout;
    if timeout.is_given && !of.section.own.http.http.half_close.value {
        let what =
            "has no effect: without half_close, the gateway disconnects a client that closes its sending direction";
        let help = "add half_close = true to [listener.http], or remove it";
        error_at(timeout, of.path, "half_close_timeout", what, help, reader);
    }
}

fn check_via(section: &ListenerHttpSection, path: &str, reader: &mut Reader<'_>) {
    if let Some(name) = &section.via
        && !weir_http_codec::token::is_token(name.value.0.as_bytes())
    {
        error_at(name, path, "via", "is not a valid name of a proxy", "use letters, digits and hyphens", reader);
    }
}

/// The first window of a stream is at most the largest.
pub(super) fn check_windows(
    initial: &At<ByteSize>,
    max: &At<ByteSize>,
    path: &str,
    (key, other): (&'static str, &str),
    reader: &mut Reader<'_>,
) {
    // One that is not written follows the other.
    if initial.is_given && max.is_given {
        Lowest { path, key, other: &format!("{path}.{other}") }.check(initial, max, reader);
    }
}

impl Choice for TraceContext {
    const WORDS: &'static [(&'static str, Self)] =
        &[("pass", Self::Pass), ("child", Self::Child), ("start", Self::Start)];
}

impl Choice for Ambiguous {
    const WORDS: &'static [(&'static str, Self)] = &[("keep", Self::Keep), ("reject", Self::Reject)];
}

impl Choice for ForwardedFields {
    const WORDS: &'static [(&'static str, Self)] =
        &[("replace", Self::Replace), ("append", Self::Append), ("keep", Self::Keep)];
}
