//! Answer of `/api/v1/listeners`.

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
    /// Bound, but not accepting for the moment: out of descriptors or memory, backing off.
    Paused,
    /// Accepts nothing; the connections it has are finishing.
    Draining,
    /// Closed.
    Closed,
}

/// The action of a listener at its knee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KneeAction {
    /// Tells.
    Observe,
    /// Makes the gateway unready.
    Unready,
    /// Refuses what is beyond.
    Shed,
}

/// How much a listener carries, as the lab found it, and how near its load is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeStatus {
    /// The clean knee, requests per second.
    pub requests_per_second: f64,
    /// Requests per second that arrived over the last two seconds, refused ones too; absent in the first second.
    pub offered_requests_per_second: Option<f64>,
    /// Offered load as a share of the knee; above 1 past it.
    pub load_ratio: Option<f64>,
    /// Share of the knee from which the load is warned about.
    pub warn_ratio: f64,
    /// The load is at `warn_ratio`, or has not been clearly below it for ten seconds yet.
    pub warned: bool,
    /// The load is at the knee, or has not been clearly below it for ten seconds yet.
    pub reached: bool,
    /// Action at the knee.
    pub action: KneeAction,
    /// The result it was read from, at start or at a reload.
    pub file: String,
    /// The search that found it.
    pub run_id: String,
    /// End of that search, seconds since 1970.
    pub measured_at: u64,
    /// In what the measurement differs from what runs here.
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
    /// True if TLS is terminated here.
    pub tls: bool,
    /// The certificates that it shows; none without TLS.
    pub certificates: Vec<CertificateStatus>,
    /// Upstream that its traffic goes to.
    pub upstream: String,
    /// Its treatment of new connections.
    pub state: ListenerState,
    /// Client connections open.
    pub connections_open: u64,
    /// Connections allowed at once; absent: only the process limit holds.
    pub connections_max: Option<u64>,
    /// Connections accepted.
    pub accepted_total: u64,
    /// Connections refused, by reason.
    pub refused_total: BTreeMap<String, u64>,
    /// Connections that ended.
    pub closed_total: u64,
    /// Requests answered or refused.
    pub requests_total: u64,
    /// Requests whose reply is not complete yet.
    pub requests_in_flight: u64,
    /// HTTP responses sent, the gateway's own too, by class of status; absent: it speaks another protocol.
    pub responses_total: Option<ResponseClasses>,
    /// The share of errors among them; absent: it speaks another protocol.
    pub errors: Option<ErrorStatus>,
    /// Requests refused before any work, by reason.
    pub shed_total: BTreeMap<String, u64>,
    /// Bytes read from clients.
    pub received_bytes_total: u64,
    /// Bytes sent to clients.
    pub sent_bytes_total: u64,
    /// Time from the first byte of a request to the last byte of its reply.
    pub request_seconds: Quantiles,
    /// The gateway's own share of it.
    pub overhead_seconds: Quantiles,
    /// How much it carries and how near it is to that; absent: the configuration names no knee.
    pub knee: Option<KneeStatus>,
}

/// Answer of `/api/v1/listeners`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerList {
    /// Every listener, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
}
