//! `[upstream.http]`: the keys, and the step to settings.

use weir_base::ByteSize;
use weir_http::settings as http;
use weir_http::{Http2OriginSettings, HttpProbe, ProbeKind};
use weir_upstream::Balance;
use weir_upstream::settings::{
    self as upstreams, Affinity, BalanceSettings, EjectionSettings, ExclusiveSettings, PoolSettings,
};

use super::handling::DEADLINE_MAX;
use super::listener::{WINDOW_MAX, WINDOW_MIN, windows};
use crate::checks::{error_at, table_header};
use crate::document::At;
use crate::numbers::Period;
use crate::reader::Reader;
use crate::section::section;
use crate::sections::COUNT_MAX;
use crate::shares::weights;
use crate::texts::{Choice, Endpoint, Text, Word};

/// Settings of an HTTP upstream besides those that every protocol has.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpUpstreamSettings {
    /// Its connections, and how endpoints are chosen.
    pub lanes: ExclusiveSettings,
    /// `None`: its endpoints speak HTTP/1.1.
    pub http2: Option<Http2OriginSettings>,
    /// The active health check.
    pub probe: HttpProbe,
}

section! {
    /// Settings of HTTP upstreams only.
    pub(crate) struct UpstreamHttpSection {
        /// Version of HTTP to the endpoints: `1.1`, or `2`, which gRPC needs. `2` uses ALPN with TLS, and prior knowledge without
        /// TLS.
        default version: OriginVersion = OriginVersion::Http1;
        /// Maximum concurrent streams on one HTTP/2 connection. When all connections have this many, or as many as the endpoint
        /// allows, the gateway opens another connection.
        default streams_max: u32 = http::ORIGIN_STREAMS_MAX => 1..=COUNT_MAX;
        /// Initial flow-control window of HTTP/2 streams from endpoints (SETTINGS_INITIAL_WINDOW_SIZE). It shrinks to 64KiB while
        /// much received data is unread, unless `stream_window_max` is equal. If absent, 256KiB, or `stream_window_max`
        /// if that is less.
        default stream_window: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// Maximum flow-control window of HTTP/2 streams from endpoints, to which windows grow while data from a distant endpoint
        /// is read. If equal to `stream_window`, windows neither grow nor shrink. If absent, 32MiB, or `stream_window` if
        /// that is more.
        default stream_window_max: ByteSize = ByteSize::new(http::HTTP2_STREAM_WINDOW_BYTES_MAX as u64) => WINDOW_MIN..=WINDOW_MAX;
        /// How one of several endpoints is chosen: in turn (`round_robin`), by the fewest requests in flight (`least_request`), by
        /// fewer requests in flight among two random endpoints (`power_of_two`), by shorter expected response time among two random
        /// endpoints (`peak_ewma`), at `random`, or by `affinity` (`ring_hash`, `maglev`). Each worker counts separately.
        default balance: Balance = Balance::RoundRobin;
        /// Session affinity: the property by which requests stay at one endpoint.
        optional_table affinity: AffinitySection;
        /// Time over which an endpoint that was down returns to its full share. 0 disables the slow start.
        default slow_start: Period = Period::secs(0) => Period::secs(0)..=Period::secs(3_600);
        /// If fewer than this percentage of endpoints are healthy, requests go to all endpoints. With 0, requests go to unhealthy
        /// endpoints only if no healthy endpoint is left.
        default panic_percent: u32 = upstreams::PANIC_PERCENT => 0..=100;
        /// Maximum concurrent retries, in percent of the requests in flight on a worker. Three retries are always allowed.
        default retry_budget_percent: u32 = upstreams::RETRY_BUDGET_PERCENT => 0..=100;
        /// Temporary ejection of endpoints that fail.
        table ejection: EjectionSection;
        /// Shares of the endpoints, in their order: `[3, 1]` gives the first endpoint three of four requests. 0 gives none. If
        /// absent, all shares are equal.
        optional weights: Vec<At<u32>>;
        /// Maximum connections to each endpoint, of all workers together. Further requests wait, at most `lane_wait_timeout`, in
        /// the order of their arrival. With `version = "2"`, each worker may always have one connection for new requests, and up to
        /// 8 that the endpoint drains (GOAWAY). Beyond 8, the oldest draining connection is closed, after 10 s at the earliest.
        /// During an upgrade, each process has a separate limit.
        default connections_max: u32 = upstreams::EXCLUSIVE_LANES_MAX => 1..=COUNT_MAX;
        /// Maximum idle connections that each worker keeps to each endpoint.
        default idle_connections_max: u32 = upstreams::EXCLUSIVE_LANES_IDLE_MAX => 0..=COUNT_MAX;
        /// Time after which an idle connection is closed. Should be shorter than the keep-alive timeout of the endpoint.
        default idle_timeout: Period = Period(upstreams::EXCLUSIVE_LANE_IDLE_TIMEOUT) => Period::millis(10)..=DEADLINE_MAX;
        /// Path of the active health check. A status from 200 to 399 is healthy. If absent, the check only opens a connection.
        optional health_path: Word;
        /// Service name for active health checks by gRPC (`grpc.health.v1.Health/Check`), instead of `health_path`. `""` checks the
        /// server as a whole. Requires `version = "2"`.
        optional health_grpc_service: Text;
        /// Host of the active health check. If absent, the host of the first endpoint.
        optional health_host: Word;
    }
}

section! {
    /// Session affinity: the property by which requests stay at one endpoint while it is healthy. Set exactly one of `address`,
    /// `header` and `cookie`.
    pub(crate) struct AffinitySection {
        /// Select the endpoint by the address of the client.
        default address: bool = false;
        /// Header whose value selects the endpoint. Requests without the header go to any endpoint.
        optional header: Word;
        /// Cookie whose value selects the endpoint. The gateway sets the cookie for clients without it.
        optional cookie: Word;
        /// How long clients keep the cookie. If absent, until the browser ends.
        optional cookie_max_age: Period => Period::secs(1)..=Period::secs(31_536_000);
    }
}

section! {
    /// Passive health checks: ejection of endpoints by their responses. Each worker counts separately.
    pub(crate) struct EjectionSection {
        /// Consecutive failures (502, 503, 504, no response) after which an endpoint is ejected. 0 disables ejection.
        default failures: u32 = upstreams::EJECTION_FAILURES => 0..=COUNT_MAX;
        /// Count every 5xx as a failure. Not suitable if a healthy application responds with 500 to single bad requests.
        default any_5xx: bool = false;
        /// Duration of the first ejection. Each further ejection lasts longer by this time, up to `duration_max`.
        default duration: Period = Period(upstreams::EJECTION_DURATION) => Period::millis(10)..=DEADLINE_MAX;
        /// Maximum duration of an ejection.
        default duration_max: Period = Period(upstreams::EJECTION_DURATION_MAX) => Period::millis(10)..=DEADLINE_MAX;
        /// Maximum percentage of endpoints that are ejected at the same time. One of several endpoints may always be ejected.
        default percent_max: u32 = upstreams::EJECTION_PERCENT_MAX => 0..=100;
    }
}

/// Settings of an upstream with these endpoints.
pub(super) fn settings(
    section: &UpstreamHttpSection,
    endpoints: &[At<Endpoint>],
    path: &str,
    reader: &mut Reader<'_>,
) -> HttpUpstreamSettings {
    let weights = weights(section.weights.as_ref(), endpoints, path, reader);
    let check = section.health_path.as_ref();
    if let Some(path_of_check) = check.filter(|check| !check.value.0.starts_with('/')) {
        error_at(path_of_check, path, "health_path", "is not a path", "begin it with a slash: \"/healthz\"", reader);
    }
    let is_http2 = section.version.value == OriginVersion::Http2;
    let service = section.health_grpc_service.as_ref();
    if let Some(service) = service.filter(|_| !is_http2) {
        let help = "add version = \"2\", or use health_path";
        error_at(service, path, "health_grpc_service", "needs HTTP/2", help, reader);
    }
    if let (Some(service), Some(_)) = (service, check) {
        error_at(
            service,
            path,
            "health_grpc_service",
            "cannot be combined with health_path",
            "remove one of them",
            reader,
        );
    }
    let kind = match (service, check) {
        (Some(service), _) => ProbeKind::Grpc(service.value.0.clone()),
        (None, Some(check)) => ProbeKind::Path(check.value.0.clone()),
        (None, None) => ProbeKind::Connection,
    };
    let first = endpoints.first().map(|endpoint| endpoint.value.0.to_string()).unwrap_or_default();
    HttpUpstreamSettings {
        lanes: ExclusiveSettings {
            balancing: BalanceSettings {
                balance: section.balance.value,
                weights,
                ejection: EjectionSettings {
                    failures: section.ejection.failures.value,
                    application_errors: section.ejection.any_5xx.value,
                    duration: section.ejection.duration.value.0,
                    duration_max: section.ejection.duration_max.value.0,
                    percent_max: section.ejection.percent_max.value,
                },
                panic_percent: section.panic_percent.value,
                slow_start: section.slow_start.value.0,
                retry_budget_percent: section.retry_budget_percent.value,
            },
            affinity: affinity(section, path, reader),
            pool: PoolSettings {
                connections_max: section.connections_max.value,
                idle_max: section.idle_connections_max.value,
                idle_timeout: section.idle_timeout.value.0,
            },
        },
        http2: is_http2.then_some(Http2OriginSettings {
            streams_max: section.streams_max.value,
            windows: windows(&section.stream_window, &section.stream_window_max),
        }),
        probe: HttpProbe {
            kind,
            is_http2,
            host: section.health_host.as_ref().map_or(first, |host| host.value.0.clone()),
            fields: Vec::new(),
        },
    }
}

/// The affinity, which needs a balance that uses it.
fn affinity(section: &UpstreamHttpSection, path: &str, reader: &mut Reader<'_>) -> Affinity {
    let balance = &section.balance;
    let Some(written) = &section.affinity else {
        if balance.value.is_hashed() {
            let header = table_header(&format!("{path}.affinity"));
            let help = format!("add {header} with address = true, header = \"NAME\" or cookie = \"NAME\"");
            error_at(balance, path, "balance", "needs an affinity", &help, reader);
        }
        return Affinity::None;
    };
    let path = format!("{path}.affinity");
    let mut error = |what: &str, help: &str| {
        reader.problems.error(&written.place.0, &path, format!("`{path}` {what}"), help.to_owned());
    };
    if !balance.value.is_hashed() {
        error("has no effect with this balance", "write balance = \"ring_hash\" or \"maglev\"");
    }
    let cookie_max_age = written.cookie_max_age.as_ref().map(|age| age.value.0);
    match (written.address.value, &written.header, &written.cookie) {
        (true, None, None) => Affinity::Address,
        (false, Some(header), None) => Affinity::Header(header.value.0.as_str().into()),
        (false, None, Some(cookie)) if is_token(&cookie.value.0) => {
            Affinity::Cookie { name: cookie.value.0.as_str().into(), max_age: cookie_max_age }
        }
        (false, None, Some(_)) => {
            error("has an invalid cookie name", "use letters, digits, `-` and `_`");
            Affinity::None
        }
        _ => {
            error("needs one of `address`, `header` and `cookie`", "set exactly one of them");
            Affinity::None
        }
    }
}

fn is_token(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The protocols that an upstream with TLS offers.
pub(super) fn alpn(section: &UpstreamHttpSection) -> Vec<String> {
    match section.version.value {
        // The default of a server without ALPN.
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
