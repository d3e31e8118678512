//! Response of `/api/v1/listeners`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CertificateStatus, ErrorStatus, ResponseClasses};

/// Quantiles of a time since the process started, from log-linear histograms.
///
/// Absent values mean that nothing was recorded yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Values recorded.
    pub count: u64,
    /// Median, seconds.
    pub p50: Option<f64>,
    /// 99th percentile, seconds.
    pub p99: Option<f64>,
    /// 99.9th percentile, seconds.
    pub p999: Option<f64>,
}

/// The handling of new connections by a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListenerState {
    /// Configured, not bound yet.
    Starting,
    /// Accepts connections.
    Accepting,
    /// Bound, but accepts no connections for a short time, because descriptors or memory ran out.
    Paused,
    /// Accepts no new connections; open connections finish.
    Draining,
    /// Closed.
    Closed,
}

/// The action of a listener at its knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KneeAction {
    /// Only reports the load.
    Observe,
    /// Makes the gateway unready.
    Unready,
    /// Refuses requests beyond the knee.
    Shed,
}

/// The capacity of a listener, as the lab measured it, and its current load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeStatus {
    /// The clean knee, requests per second.
    pub requests_per_second: f64,
    /// Requests received per second over the last two seconds, including refused requests; absent in the first second.
    pub offered_requests_per_second: Option<f64>,
    /// Offered load divided by the knee; above 1 if the load exceeds the knee.
    pub load_ratio: Option<f64>,
    /// Share of the knee from which the gateway warns about the load.
    pub warn_ratio: f64,
    /// The load is at `warn_ratio`, or has not been clearly below it for ten seconds yet.
    pub warned: bool,
    /// The load is at the knee, or has not been clearly below it for ten seconds yet.
    pub reached: bool,
    /// Action when the load reaches the knee.
    pub action: KneeAction,
    /// File with the result that contains the knee, read at start or at a reload.
    pub file: String,
    /// Identifier of the search that found the knee.
    pub run_id: String,
    /// End of the search, in seconds since 1970.
    pub measured_at: u64,
    /// Differences between the measured setup and this gateway.
    pub caveats: Vec<String>,
}

/// One listener.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerStatus {
    /// Name from the configuration.
    pub name: String,
    /// Protocol spoken, such as `redis`.
    pub protocol: String,
    /// Bound address; a Unix socket as `unix:<path>`.
    pub bind: String,
    /// True if the listener terminates TLS.
    pub tls: bool,
    /// Certificates that the listener presents; empty without TLS.
    pub certificates: Vec<CertificateStatus>,
    /// Upstream that receives the traffic.
    pub upstream: String,
    /// Treatment of new connections.
    pub state: ListenerState,
    /// Client connections open.
    pub connections_open: u64,
    /// Maximum number of concurrent connections; absent if only the limit of the process applies.
    pub connections_max: Option<u64>,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Connections refused, by reason.
    pub refused_total: BTreeMap<String, u64>,
    /// Connections that ended.
    pub closed_total: u64,
    /// Requests served or refused.
    pub requests_total: u64,
    /// Requests whose reply is not complete yet.
    pub requests_in_flight: u64,
    /// HTTP responses sent, including the own responses of the gateway, by class of status; absent for other protocols.
    pub responses_total: Option<ResponseClasses>,
    /// Share of errors among the HTTP responses; absent for other protocols.
    pub errors: Option<ErrorStatus>,
    /// Requests and logins that the gateway refused, by reason, counted as in `weir_shed_total`.
    pub shed_total: BTreeMap<String, u64>,
    /// Bytes read from clients.
    pub received_bytes_total: u64,
    /// Bytes sent to clients.
    pub sent_bytes_total: u64,
    /// Request duration, measured as in `weir_request_duration_seconds`.
    pub request_seconds: Quantiles,
    /// Part of the request duration spent in the gateway, measured as in `weir_request_overhead_duration_seconds`.
    pub overhead_seconds: Quantiles,
    /// Capacity and load of the listener; absent if the configuration names no knee.
    pub knee: Option<KneeStatus>,
}

/// Response of `/api/v1/listeners`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerList {
    /// Every listener, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
}
