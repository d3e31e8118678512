//! Answer of `/api/v1/listeners`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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

/// What a listener does with newcomers.
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
    /// Upstream that its traffic goes to.
    pub upstream: String,
    /// What it does with newcomers.
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
}

/// Answer of `/api/v1/listeners`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerList {
    /// Every listener, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
}
