//! Response of `/api/v1/upstreams`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Quantiles, ResponseClasses};

/// State of an endpoint according to its health checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Not checked yet.
    Unknown,
    /// Healthy.
    Healthy,
    /// Unhealthy; receives no traffic.
    Unhealthy,
}

/// State of an endpoint's circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// Traffic flows.
    Closed,
    /// Requests are refused at once.
    Open,
    /// A few requests test whether the endpoint has recovered.
    HalfOpen,
}

/// One address of an upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointStatus {
    /// Address; a Unix socket as `unix:<path>`.
    pub address: String,
    /// State according to the health checks.
    pub health: Health,
    /// State of the circuit breaker; the worst of all workers.
    pub breaker: Breaker,
    /// Connections that carry requests of many clients.
    pub lanes_shared: u64,
    /// Connections bound to one client each.
    pub lanes_pinned: u64,
    /// Requests that wait for a connection now.
    pub waiters: u64,
    /// Requests sent whose response is not complete.
    pub requests_in_flight: u64,
    /// Requests sent.
    pub requests_total: u64,
    /// HTTP responses received, by class of status; absent if there were none, and for other protocols.
    pub responses_total: Option<ResponseClasses>,
    /// Requests sent that failed: the connection closed, the response was late, or the upstream violated the protocol.
    pub failures_total: u64,
    /// Connections opened.
    pub connects_total: u64,
    /// Attempts to connect that failed.
    pub connect_failures_total: u64,
    /// Description of the last failure; absent if there was none.
    pub last_error: Option<String>,
    /// Seconds since the last failure.
    pub last_error_age_seconds: Option<f64>,
}

/// One upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Name from the configuration.
    pub name: String,
    /// True if connections to it use TLS.
    pub tls: bool,
    /// Endpoints of the upstream.
    pub endpoints: Vec<EndpointStatus>,
    /// Time that requests waited for a connection.
    pub acquire_wait_seconds: Quantiles,
    /// Time that requests waited for an upstream, measured as in `weir_request_upstream_duration_seconds`. Includes all requests of
    /// the listeners whose `upstream` is this upstream.
    pub response_seconds: Quantiles,
}

/// Response of `/api/v1/upstreams`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamList {
    /// Every upstream, in the order of the configuration.
    pub upstreams: Vec<UpstreamStatus>,
}
