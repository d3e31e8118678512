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
        /// The property of requests that keeps them together at one endpoint, while that is healthy.
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
        /// Connections to each endpoint, of all workers together; further requests wait for one, no longer than `lane_wait_timeout`.
        /// The request that has waited the longest is next, whichever worker it is on. With `version = "2"` each worker may
        /// have one that takes requests in any case, beside up to 8 that the endpoint drains (GOAWAY). Past 8 the oldest is cut, at the
        /// earliest after 10 s. During an upgrade each process has a limit of its own.
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
    /// The property of requests that keeps them together at one endpoint. One of the three.
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
