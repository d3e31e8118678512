//! The tables that only HTTP listeners and upstreams have.

use std::sync::Arc;

use weir_analysis::http::path::{Ambiguous, PathRules};
use weir_base::ByteSize;
use weir_http::{
    Http2OriginSettings, HttpProbe, Question,
    compression::{self, Coding, Compression},
    retry::Class,
    routes::Routes,
    settings::{
        self as http, ForwardedFields, HttpListenerSettings, RetrySettings, TraceContext, Upgrades, WebSocketSettings,
        WindowSettings,
    },
};
use weir_policy::http::{ForwardedFor, HOPS_MAX};
use weir_upstream::Balance;
use weir_upstream::settings::{self as upstreams, Affinity, EjectionSettings, ExclusiveSettings};
use weir_websocket_codec::limits as websocket;

use crate::checks::{error_at, table_header};
use crate::document::At;
use crate::numbers::Period;
use crate::policy::{
    ApiKeySection, BasicAuthSection, CorsSection, ExtAuthSection, IpFilterSection, JwtSection, RateLimitSection,
    Written, written_policies,
};
use crate::reader::Reader;
use crate::section::section;
use crate::snapshot::HttpUpstreamSettings;
use crate::texts::{Choice, Endpoint, Text, Word};

/// Highest count of connections.
const COUNT_MAX: u32 = 16_777_216;
/// Smallest window of a stream.
const WINDOW_MIN: ByteSize = ByteSize::new(1_024);
/// Largest window (RFC 9113 section 6.9.1).
const WINDOW_MAX: ByteSize = ByteSize::new(i32::MAX as u64);
/// Shortest deadline.
const DEADLINE_MIN: Period = Period::millis(1);
/// Longest deadline.
const DEADLINE_MAX: Period = Period::secs(86_400);

section! {
    /// What only HTTP listeners have.
    pub(crate) struct ListenerHttpSection {
        /// How long a client connection may stay without a request; `idle_timeout` of the listener, if written, holds instead.
        default keep_alive_timeout: Period = Period(http::KEEP_ALIVE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Serve clients of HTTP/1.1 that have closed their direction (FIN) until `half_close_timeout` of the listener has passed in
        /// silence. `false`: they have left, and what is under way for them is cancelled, as by nginx.
        default half_close: bool = false;
        /// From the end of a request to the head of its answer; then the client gets 504.
        default response_timeout: Period = Period(http::RESPONSE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// How long the body of a request may pause. Of routes that do not say.
        default body_idle_timeout: Period = Period(http::BODY_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// How long the body of an answer may pause; event streams and long polls have nothing to say for a while. Of routes that do
        /// not say.
        default answer_idle_timeout: Period = Period(http::ANSWER_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// How long a gRPC call may be silent in either direction, in place of `body_idle_timeout`, `answer_idle_timeout` and
        /// `response_timeout`. How long it may take in all, the client says (`grpc-timeout`).
        default grpc_idle_timeout: Period = Period(http::GRPC_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// From the head of a request to the end of its answer; then 504, or the answer breaks off. Not of gRPC and WebSockets.
        /// Absent: as long as it takes.
        optional request_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
        /// Bytes a second that the body of a request must bring at least, from the first byte on, over 10 s in which the gateway waits
        /// for it and takes what comes; then 408. 0: as slow as it likes. Not of gRPC.
        default body_rate_min: u32 = http::BODY_RATE_MIN as u32 => 0..=COUNT_MAX;
        /// Bytes of a request body that are read before a connection to an origin is taken for it, so that a slow client holds none; a
        /// longer one goes on as it comes from there on. 0: from its first byte on, for bodies that are one half of a talk. Not of gRPC.
        /// Absent: 1MiB in front of HTTP/1.1, 0 in front of HTTP/2. Held in `limits.buffered_bytes`, of which bodies take at most half.
        optional request_buffer_bytes: ByteSize => ByteSize::new(0)..=ByteSize::mib(64);
        /// Compressing answers. Of routes that do not say. Absent: they go as they come.
        optional_table compression: CompressionSection;
        /// Asking another origin when one fails. Of routes that do not say.
        table retry: RetrySection;
        /// `;` and what follows it in a segment of a path: `keep` it as a character like any other, or `reject` the request with 400,
        /// in front of servlet containers, to which `/admin;x` is `/admin`, where some paths are not for everybody.
        default path_parameters: Ambiguous = Ambiguous::Keep;
        /// `%2F` in a path: `reject` the request with 400, because some servers take it for a slash and others do not, or `keep` it
        /// as it is, for origins with names that have a slash in them (npm, GitLab). Routes see no slash in it.
        default path_escaped_slash: Ambiguous = Ambiguous::Reject;
        /// `\\` and `%5C` in a path, likewise.
        default path_backslash: Ambiguous = Ambiguous::Reject;
        /// Make one slash of several in a path, before routes see it. `false` for origins to which they are different, such as
        /// stores of objects; the path of a route that rewrites has one in any case.
        default path_merge_slashes: bool = true;
        /// X-Forwarded-For, -Proto and -Host towards origins: `replace` what the client sent, for a gateway that clients reach
        /// directly; `append` to it, behind trusted proxies; or `keep` what came and add nothing.
        default forwarded: ForwardedFields = ForwardedFields::Replace;
        /// Tell origins of the certificate that a client has shown, in X-Forwarded-Client-Cert (hash, subject, DNS names, URIs). What
        /// clients send under that name goes the way that `forwarded` says.
        default forwarded_client_cert: bool = false;
        /// What client connections may become if the origin agrees: `["websocket"]`. Of routes that do not say; absent: nothing.
        optional upgrades: Vec<At<Upgrade>>;
        /// What WebSockets may do.
        table websocket: WebSocketSection;
        /// Streams that a client may have open on one HTTP/2 connection.
        default http2_streams_max: u32 = http::HTTP2_STREAMS_MAX => 1..=COUNT_MAX;
        /// Bytes that a client may send ahead on one stream of HTTP/2, as a connection begins (SETTINGS_INITIAL_WINDOW_SIZE). It
        /// shrinks to 64KiB while much received data is unread, unless `http2_stream_window_max` is the same. Not written: no more
        /// than `http2_stream_window_max`.
        default http2_stream_window: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// To which that window grows while a stream is read over a distance. The same as `http2_stream_window`: it neither grows nor
        /// shrinks. Not written: no less than `http2_stream_window`.
        default http2_stream_window_max: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES_MAX as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// Trusted proxies in front that append to X-Forwarded-For: the entry that the first of them wrote is the client, for
        /// `ip_filter` and `rate_limit`. 0: the client is the other end of the connection.
        default trusted_hops: u32 = 0 => 0..=HOPS_MAX as u32;
        /// Give requests an X-Request-Id: the one of a proxy in front if `forwarded` is `append` and it is a sensible one, else a
        /// new UUID. It is in the access log too.
        default request_id: bool = false;
        /// A name for the gateway in a Via field towards origins: it shows loops. Absent: no Via, behind which nginx, for one, would
        /// compress nothing.
        optional via: Word;
        /// What becomes of the trace context of W3C (`traceparent`): `pass` it as it came, make a `child` of it, so that the
        /// gateway is a step of the trace, or also `start` one for requests without.
        default trace_context: TraceContext = TraceContext::Pass;
        /// Bytes of a request body; a longer one is answered 413. 0: any length. Absent: 1GiB, and of gRPC any length.
        optional request_body_bytes_max: ByteSize => ByteSize::new(0)..=ByteSize::mib(1 << 20);
        /// Where requests may come from.
        optional_table ip_filter: IpFilterSection;
        /// Which pages of other origins may read answers.
        optional_table cors: CorsSection;
        /// Users with passwords.
        optional_table basic_auth: BasicAuthSection;
        /// Keys of programs.
        optional_table api_key: ApiKeySection;
        /// JSON Web Tokens.
        optional_table jwt: JwtSection;
        /// Another service that decides.
        optional_table ext_auth: ExtAuthSection;
        /// How often clients may ask; all limits count.
        tables rate_limit: RateLimitSection;
    }
}

section! {
    /// What WebSockets may do. Their payload goes through as it is, and only the headers of their frames are read.
    pub(crate) struct WebSocketSection {
        /// How long one may be silent in both directions; then both ends are told 1001.
        default idle_timeout: Period = Period(http::WEBSOCKET_IDLE_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// From the first byte of a frame to its last; then who sends it is told 1008.
        default frame_timeout: Period = Period(http::WEBSOCKET_FRAME_TIMEOUT) => DEADLINE_MIN..=DEADLINE_MAX;
        /// Payload of a message, all its frames together; then who sends it is told 1009.
        default message_max: ByteSize = ByteSize::new(websocket::MESSAGE_BYTES_MAX) => ByteSize::new(125)..=ByteSize::mib(1 << 20);
        /// Frames of a message; then 1009.
        default fragments_max: u32 = websocket::FRAGMENTS_MAX => 1..=COUNT_MAX;
        /// Pings within 10 s, from either end; then 1008.
        default pings_max: u32 = websocket::PINGS_MAX => 1..=COUNT_MAX;
    }
}

section! {
    /// What only HTTP upstreams have.
    pub(crate) struct UpstreamHttpSection {
        /// The version of HTTP that the endpoints are spoken to in: `1.1`, or `2`, which gRPC needs: by ALPN with TLS, else by
        /// prior knowledge.
        default version: OriginVersion = OriginVersion::Http1;
        /// Streams on one connection of HTTP/2; a further connection is made when all have as many, or as the endpoint takes.
        default streams_max: u32 = http::ORIGIN_STREAMS_MAX => 1..=COUNT_MAX;
        /// Bytes that an endpoint may send ahead on one stream of HTTP/2, as a connection begins (SETTINGS_INITIAL_WINDOW_SIZE). It
        /// shrinks to 64KiB while much received data is unread, unless `stream_window_max` is the same. Not written: no more than
        /// `stream_window_max`.
        default stream_window: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// To which that window grows while a stream is read over a distance. The same as `stream_window`: it neither grows nor
        /// shrinks. Not written: no less than `stream_window`.
        default stream_window_max: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES_MAX as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// How one of several endpoints is chosen: in turn (`round_robin`), the one with the fewest requests under way
        /// (`least_request`), of two random ones the one with fewer (`power_of_two`) or the one that is likely to answer sooner
        /// (`peak_ewma`), or at `random`; or by what `affinity` says, with `ring_hash` or `maglev`. Each worker counts its own.
        default balance: Balance = Balance::RoundRobin;
        /// What keeps requests together at one endpoint, while that is well.
        optional_table affinity: AffinitySection;
        /// How long an endpoint that was down takes to get its whole share again. 0: none.
        default slow_start: Period = Period::secs(0) => Period::secs(0)..=Period::secs(3_600);
        /// Below this percentage of endpoints that are well, requests go to all of them. 0: always only to those that are well.
        default panic_percent: u32 = upstreams::PANIC_PERCENT => 0..=100;
        /// Retries under way at once, in percent of the requests under way on a worker; three always may be.
        default retry_budget_percent: u32 = upstreams::RETRY_BUDGET_PERCENT => 0..=100;
        /// Endpoints that answer badly are left out for a while.
        table ejection: EjectionSection;
        /// Shares of the endpoints, in their order: `[3, 1]` gives the first three of four requests. 0: none. Absent: all alike.
        optional weights: Vec<At<u32>>;
        /// Connections of each worker to each endpoint; further requests wait for one, no longer than `lane_wait_timeout`.
        default connections_max: u32 = upstreams::EXCLUSIVE_LANES_MAX => 1..=COUNT_MAX;
        /// Idle connections that each worker keeps to each endpoint.
        default idle_connections_max: u32 = upstreams::EXCLUSIVE_LANES_IDLE_MAX => 0..=COUNT_MAX;
        /// How long an idle connection is kept; it should be less than the origin keeps it.
        default idle_timeout: Period = Period(upstreams::EXCLUSIVE_LANE_IDLE_TIMEOUT) => Period::millis(10)..=DEADLINE_MAX;
        /// Path of the active health check, which expects a status from 200 to 399. Absent: that the origin takes a connection
        /// is enough.
        optional health_path: Word;
        /// Service that the active health check asks for in gRPC (`grpc.health.v1.Health/Check`), in place of a path; `""` asks for
        /// the server as a whole. Needs `version = "2"`.
        optional health_grpc_service: Text;
        /// Host of the active health check. Absent: the host of the first endpoint.
        optional health_host: Word;
    }
}

section! {
    /// What keeps requests together at one endpoint. One of the three.
    pub(crate) struct AffinitySection {
        /// The address of the client.
        default address: bool = false;
        /// A header field; requests without it go anywhere.
        optional header: Word;
        /// A cookie; who has none is given one.
        optional cookie: Word;
        /// How long clients keep the cookie. Absent: until the browser ends.
        optional cookie_max_age: Period => Period::secs(1)..=Period::secs(31_536_000);
    }
}

section! {
    /// Passive health: what an endpoint answers. Each worker counts its own.
    pub(crate) struct EjectionSection {
        /// Failures in a row (502, 503, 504, no answer) after which an endpoint is left out. 0: never.
        default failures: u32 = upstreams::EJECTION_FAILURES => 0..=COUNT_MAX;
        /// Every 5xx is a failure. An application may answer 500 to one bad request and be well, so that is for who knows it.
        default any_5xx: bool = false;
        /// For how long; each further time by as much longer.
        default duration: Period = Period(upstreams::EJECTION_DURATION) => Period::millis(10)..=DEADLINE_MAX;
        /// For how long at most.
        default duration_max: Period = Period(upstreams::EJECTION_DURATION_MAX) => Period::millis(10)..=DEADLINE_MAX;
        /// The most endpoints that are left out at once, in percent; one always may be if there are others.
        default percent_max: u32 = upstreams::EJECTION_PERCENT_MAX => 0..=100;
    }
}

section! {
    /// Asking another origin when one fails. Never once anything of an answer has gone to the client.
    pub(crate) struct RetrySection {
        /// Attempts after the first one. A request that no server has seen also goes once to each other endpoint. 0: none at all.
        default attempts: u32 = http::RETRY_ATTEMPTS => 0..=10;
        /// After what: `connect_failure` (nobody has seen the request), `refused_stream` (HTTP/2: the origin has not begun with
        /// it), `reset` (the connection ended without an answer), `timeout`, `gateway_error` (502, 503, 504), `5xx`. The last four
        /// only for requests that are idempotent: GET, HEAD, OPTIONS, PUT, DELETE. Absent: the first two.
        optional on: Vec<At<RetryOn>>;
        /// Further statuses.
        optional statuses: Vec<At<u32>>;
        /// Requests of other methods too, though the origin may have acted on them.
        default non_idempotent: bool = false;
        /// From the end of a request to the head of its answer, of all attempts but the last one. Absent: as `response_timeout`.
        optional try_timeout: Period => DEADLINE_MIN..=DEADLINE_MAX;
        /// A request with a longer body is not sent again once an origin has had a part of it, unless all of the body was held back
        /// (`request_buffer_bytes`). Kept in memory only where `on` or `statuses` may need it. Not of gRPC.
        default body_bytes_max: ByteSize = ByteSize::new(http::RETRY_BODY_BYTES_MAX as u64) => ByteSize::new(0)..=ByteSize::mib(16);
    }
}

section! {
    /// Compressing answers on their way to clients that take that. Secrets beside what an attacker can put into the same answer can be
    /// guessed from its length (BREACH): leave such routes out. A table of a route stands in place of that of its listener.
    pub(crate) struct CompressionSection {
        /// `false` on a route: the table of the listener does not hold there.
        default enabled: bool = true;
        /// `zstd`, `br`, `gzip`; of those that a client likes best the first is taken. Absent: these, in this order.
        optional codings: Vec<At<Coding>>;
        /// Shorter answers go as they are.
        default bytes_min: ByteSize = ByteSize::new(compression::BYTES_MIN) => ByteSize::new(0)..=ByteSize::mib(1 << 20);
        /// Media types, `text/*` for all that begin so. Absent: text, JSON, JavaScript, XML, WebAssembly, SVG. Streams of events never are.
        optional types: Vec<At<Word>>;
    }
}

impl CompressionSection {
    pub(crate) fn settings(&self) -> Arc<Compression> {
        let codings = match &self.codings {
            _ if !self.enabled.value => Vec::new(),
            Some(written) => written.value.iter().map(|coding| coding.value).collect(),
            None => Coding::ALL.to_vec(),
        };
        let types = match &self.types {
            Some(written) => written.value.iter().map(|one| one.value.0.to_ascii_lowercase().into()).collect(),
            None => compression::TYPES.map(Into::into).to_vec(),
        };
        Arc::new(Compression { codings, bytes_min: self.bytes_min.value.bytes(), types })
    }
}

impl Choice for Coding {
    const WORDS: &'static [(&'static str, Self)] = &[("zstd", Self::Zstd), ("br", Self::Brotli), ("gzip", Self::Gzip)];
}

impl RetrySection {
    pub(crate) fn settings(&self, path: &str, reader: &mut Reader<'_>) -> RetrySettings {
        let mut settings = RetrySettings {
            attempts: self.attempts.value,
            non_idempotent: self.non_idempotent.value,
            try_timeout: self.try_timeout.as_ref().map(|timeout| timeout.value.0),
            body_bytes_max: self.body_bytes_max.value.bytes() as usize,
            ..RetrySettings::default()
        };
        if let Some(on) = &self.on {
            settings.on.clear();
            for one in &on.value {
                match one.value {
                    RetryOn::Class(class) => settings.on.push(class),
                    RetryOn::GatewayError => settings.on_gateway_error = true,
                    RetryOn::Any5xx => settings.on_5xx = true,
                }
            }
        }
        for status in self.statuses.iter().flat_map(|list| &list.value) {
            match u16::try_from(status.value).ok().filter(|status| (400..=599).contains(status)) {
                Some(status) => settings.statuses.push(status),
                None => error_at(status, path, "statuses", "is no failure", "write statuses from 400 to 599", reader),
            }
        }
        settings
    }
}

/// What is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryOn {
    Class(Class),
    GatewayError,
    Any5xx,
}

impl Choice for RetryOn {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("connect_failure", Self::Class(Class::ConnectFailure)),
        ("refused_stream", Self::Class(Class::RefusedStream)),
        ("reset", Self::Class(Class::Reset)),
        ("timeout", Self::Class(Class::Timeout)),
        ("gateway_error", Self::GatewayError),
        ("5xx", Self::Any5xx),
    ];
}

impl ListenerHttpSection {
    /// The policies that stand here.
    pub(crate) fn policies(&self) -> Written<'_> {
        written_policies!(self)
    }
}

/// Settings of a listener.
pub(crate) fn listener(section: &ListenerHttpSection, routes: Routes, retry: RetrySettings) -> HttpListenerSettings {
    HttpListenerSettings {
        routes: Arc::new(routes),
        keep_alive_timeout: section.keep_alive_timeout.value.0,
        half_close: section.half_close.value,
        response_timeout: section.response_timeout.value.0,
        body_idle_timeout: section.body_idle_timeout.value.0,
        answer_idle_timeout: section.answer_idle_timeout.value.0,
        grpc_idle_timeout: section.grpc_idle_timeout.value.0,
        request_timeout: section.request_timeout.as_ref().map(|timeout| timeout.value.0),
        compression: section.compression.as_ref().map(CompressionSection::settings),
        body_rate_min: u64::from(section.body_rate_min.value),
        request_buffer_bytes: section.request_buffer_bytes.as_ref().map(|bytes| bytes.value.bytes()),
        request_body_bytes_max: section.request_body_bytes_max.as_ref().map(|most| most.value.bytes()),
        retry,
        path_rules: PathRules {
            parameters: section.path_parameters.value,
            escaped_slash: section.path_escaped_slash.value,
            backslash: section.path_backslash.value,
            merge_slashes: section.path_merge_slashes.value,
            ..PathRules::default()
        },
        forwarded: section.forwarded.value,
        forwarded_client_cert: section.forwarded_client_cert.value,
        upgrades: section.upgrades.as_ref().map(upgrades).unwrap_or_default(),
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
        forwarded_for: ForwardedFor::new(section.trusted_hops.value as u8).unwrap_or_default(),
    }
}

/// Windows of streams; a largest one that is not written is the initial one if that is larger.
fn windows(initial: &At<ByteSize>, max: &At<ByteSize>) -> WindowSettings {
    // The range of the keys is that of the type.
    let (first, largest) = (initial.value.bytes() as u32, max.value.bytes() as u32);
    match initial.is_given {
        true => WindowSettings { initial: first, max: largest.max(first) },
        false => WindowSettings { initial: first.min(largest), max: largest },
    }
}

/// What the connections of a listener or a route may become.
pub(crate) fn upgrades(written: &At<Vec<At<Upgrade>>>) -> Upgrades {
    Upgrades { websocket: written.value.iter().any(|upgrade| upgrade.value == Upgrade::WebSocket) }
}

/// Settings of an upstream with these endpoints.
pub(crate) fn upstream(
    section: &UpstreamHttpSection,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> Arc<HttpUpstreamSettings> {
    let weights = weights(section.weights.as_ref(), endpoints, path, reader);
    let check = section.health_path.as_ref();
    if let Some(path_of_check) = check.filter(|check| !check.value.0.starts_with('/')) {
        error_at(path_of_check, path, "health_path", "is no path", "begin it with a slash: \"/healthz\"", reader);
    }
    let is_http2 = section.version.value == OriginVersion::Http2;
    let service = section.health_grpc_service.as_ref();
    if let Some(service) = service.filter(|_| !is_http2) {
        let help = "add version = \"2\", or check a path";
        error_at(service, path, "health_grpc_service", "needs HTTP/2", help, reader);
    }
    if let (Some(service), Some(_)) = (service, check) {
        error_at(service, path, "health_grpc_service", "stands beside health_path", "remove one of them", reader);
    }
    let question = match (service, check) {
        (Some(service), _) => Question::Grpc(service.value.0.clone()),
        (None, Some(check)) => Question::Path(check.value.0.clone()),
        (None, None) => Question::Connection,
    };
    let first = endpoints.first().map(|endpoint| endpoint.value.0.to_string()).unwrap_or_default();
    Arc::new(HttpUpstreamSettings {
        lanes: ExclusiveSettings {
            balance: section.balance.value,
            weights,
            connections_max: section.connections_max.value,
            idle_max: section.idle_connections_max.value,
            idle_timeout: section.idle_timeout.value.0,
            ejection: EjectionSettings {
                failures: section.ejection.failures.value,
                any_5xx: section.ejection.any_5xx.value,
                duration: section.ejection.duration.value.0,
                duration_max: section.ejection.duration_max.value.0,
                percent_max: section.ejection.percent_max.value,
            },
            panic_percent: section.panic_percent.value,
            slow_start: section.slow_start.value.0,
            affinity: affinity(section, path, reader),
            retry_budget_percent: section.retry_budget_percent.value,
        },
        http2: is_http2.then_some(Http2OriginSettings {
            streams_max: section.streams_max.value,
            windows: windows(&section.stream_window, &section.stream_window_max),
        }),
        probe: HttpProbe {
            question,
            is_http2,
            host: section.health_host.as_ref().map_or(first, |host| host.value.0.clone()),
        },
    })
}

/// The shares of endpoints; empty if none are written.
pub(crate) fn weights(
    written: Option<&At<Vec<At<u32>>>>,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> Vec<u32> {
    let Some(weights) = written else { return Vec::new() };
    if weights.value.len() != endpoints.len() {
        let what = format!("has {} entries for {} endpoints", weights.value.len(), endpoints.len());
        error_at(weights, path, "weights", &what, "write one number for each endpoint, in their order", reader);
    }
    if weights.value.iter().all(|weight| weight.value == 0) {
        error_at(weights, path, "weights", "gives no endpoint anything", "write a number above 0", reader);
    }
    weights.value.iter().map(|weight| weight.value).collect()
}

/// What keeps requests together, which needs a balance that follows from it.
fn affinity(section: &UpstreamHttpSection, path: &str, reader: &mut Reader<'_>) -> Affinity {
    let balance = &section.balance;
    let Some(written) = &section.affinity else {
        if balance.value.is_hashed() {
            let header = table_header(&format!("{path}.affinity"));
            let help = format!("add {header} with address = true, header = \"NAME\" or cookie = \"NAME\"");
            error_at(balance, path, "balance", "does not say what stays together", &help, reader);
        }
        return Affinity::None;
    };
    let path = format!("{path}.affinity");
    let mut error = |what: &str, help: &str| {
        reader.problems.error(&written.place.0, &path, format!("`{path}` {what}"), help.to_owned());
    };
    if !balance.value.is_hashed() {
        error("needs a balance that follows from it", "write balance = \"ring_hash\" or \"maglev\"");
    }
    let cookie_max_age = written.cookie_max_age.as_ref().map(|age| age.value.0);
    match (written.address.value, &written.header, &written.cookie) {
        (true, None, None) => Affinity::Address,
        (false, Some(header), None) => Affinity::Header(header.value.0.as_str().into()),
        (false, None, Some(cookie)) if is_token(&cookie.value.0) => {
            Affinity::Cookie { name: cookie.value.0.as_str().into(), max_age: cookie_max_age }
        }
        (false, None, Some(_)) => {
            error("names a cookie that cannot be", "use letters, digits, `-` and `_`");
            Affinity::None
        }
        _ => {
            error("needs one of `address`, `header` and `cookie`", "keep one of them");
            Affinity::None
        }
    }
}

fn is_token(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// What an upstream with TLS is to agree on.
pub(crate) fn alpn(section: &UpstreamHttpSection) -> Vec<String> {
    match section.version.value {
        // What a server takes for granted without a word.
        OriginVersion::Http1 => Vec::new(),
        OriginVersion::Http2 => vec!["h2".to_owned()],
    }
}

/// The version of HTTP that an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OriginVersion {
    Http1,
    Http2,
}

impl Choice for OriginVersion {
    const WORDS: &'static [(&'static str, Self)] = &[("1.1", Self::Http1), ("2", Self::Http2)];
}

/// What a connection may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    WebSocket,
}

impl Choice for Upgrade {
    const WORDS: &'static [(&'static str, Self)] = &[("websocket", Self::WebSocket)];
}

impl Choice for Balance {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("round_robin", Self::RoundRobin),
        ("least_request", Self::LeastRequest),
        ("power_of_two", Self::PowerOfTwo),
        ("peak_ewma", Self::PeakEwma),
        ("random", Self::Random),
        ("ring_hash", Self::RingHash),
        ("maglev", Self::Maglev),
    ];
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
