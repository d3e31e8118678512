//! Query and response of `/api/v1/connections`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The query to the workers. The server has checked the limit already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionQuery {
    /// Entries wanted, 1 to [`PAGE_MAX`](crate::limits::PAGE_MAX).
    pub limit: usize,
    /// Only ids above this one.
    pub after: Option<u64>,
    /// Only this listener's.
    pub listener: Option<String>,
    /// Only this worker's.
    pub worker: Option<u32>,
}

impl ConnectionQuery {
    /// True if this connection was requested.
    pub fn matches(&self, connection: &ConnectionStatus) -> bool {
        self.after.is_none_or(|after| connection.id > after)
            && self.worker.is_none_or(|worker| connection.worker == worker)
            && self.listener.as_ref().is_none_or(|listener| connection.listener == *listener)
    }
}

/// Responses of the workers, in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConnectionResponse {
    /// The connections.
    pub connections: Vec<ConnectionStatus>,
    /// Workers that did not respond in time.
    pub workers_silent: Vec<u32>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// The TLS handshake or the PROXY header is not complete.
    Handshake,
    /// Not authenticated yet.
    Unauthenticated,
    /// Between requests, with shared upstream connections.
    Idle,
    /// Requests are in flight on shared upstream connections.
    Active,
    /// The gateway collects the commands of a transaction.
    Queuing,
    /// Bound to an upstream connection of its own; `pinned_by` says why.
    Pinned,
    /// Waiting for a pooled upstream connection; `waits_for` says for which.
    Waiting,
    /// The client does not read its replies, so its requests are not read either.
    BackPressured,
    /// The connection is closing.
    Closing,
}

/// One client connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionStatus {
    /// Unique in this process; below 2^53, so that every JSON reader keeps it exact.
    pub id: u64,
    /// Listener that accepted the connection.
    pub listener: String,
    /// Protocol of the listener, such as `redis` or `ai`. Empty if the gateway is older than this field or the listener is gone.
    #[serde(default)]
    pub protocol: String,
    /// Worker that owns the connection.
    pub worker: u32,
    /// Address of the client, from the PROXY header if the header is trusted.
    pub peer: String,
    /// Seconds since the connection was accepted.
    pub age_seconds: f64,
    /// Seconds since the client last sent data.
    pub idle_seconds: f64,
    /// Name that the client set for itself.
    pub name: Option<String>,
    /// User as which the client authenticated.
    pub user: Option<String>,
    /// Number of the selected database, if databases have numbers.
    pub db: Option<u32>,
    /// Name of the database, if databases have names.
    pub database: Option<String>,
    /// Version of the protocol in use, such as `RESP3` or `HTTP/2`.
    pub protocol_version: String,
    /// Current activity of the session.
    pub state: ConnectionState,
    /// Reasons for an upstream connection of its own, such as `watch` or `subscribe`; empty if it has none.
    pub pinned_by: Vec<String>,
    /// Seconds for which it has been pinned without interruption; absent if it is not pinned.
    pub pinned_seconds: Option<f64>,
    /// Seconds for which it has had its pooled upstream connection: the age of its transaction in transaction pooling. Absent if it has none.
    pub transaction_seconds: Option<f64>,
    /// The pool for which the client waits; absent if it does not wait.
    pub waits_for: Option<PoolWait>,
    /// Requests whose reply is not complete yet.
    pub in_flight: u64,
    /// Bytes that the gateway buffers for the connection.
    pub buffered_bytes: u64,
    /// Name of the last command, without arguments.
    pub last_command: Option<String>,
    /// Name of the key of the last request, on an AI listener.
    #[serde(default)]
    pub key: Option<String>,
    /// Model of the last request, by the name that clients use.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether the last request is for a stream.
    #[serde(default)]
    pub stream: Option<bool>,
}

/// The wait for a connection of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolWait {
    /// User and database of the pool: `app@shop`.
    pub pool: String,
    /// Upstream of the pool: the upstream of the primary or of the standbys. Empty if the gateway is older than this field.
    #[serde(default)]
    pub upstream: String,
    /// Seconds since the wait began.
    pub seconds: f64,
    /// Its place among the clients of the listener that wait for the pool, from 1. The pool serves them in this order, except for the few
    /// whose worker has the connection at hand.
    pub position: u64,
    /// Number of clients of the listener that wait for the pool.
    pub waiting: u64,
}

/// Response of `/api/v1/connections`, by ascending id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionPage {
    /// The connections on this page.
    pub connections: Vec<ConnectionStatus>,
    /// Value of `after` for the next page; absent on the last page.
    pub next_after: Option<u64>,
    /// Workers that did not respond in time. Their connections are missing.
    pub workers_silent: Vec<u32>,
}

impl ConnectionPage {
    /// The page for a query out of what the workers sent.
    ///
    /// With a silent worker the page ends where it ends: going on from the last id is still right for the
    /// others, and `workers_silent` tells that entries are missing.
    pub(crate) fn of(response: ConnectionResponse, query: &ConnectionQuery) -> Self {
        let mut connections = response.connections;
        connections.retain(|connection| query.matches(connection));
        connections.sort_unstable_by_key(|connection| connection.id);
        let more = connections.len() > query.limit;
        connections.truncate(query.limit);
        let next_after = if more { connections.last().map(|connection| connection.id) } else { None };
        Self { connections, next_after, workers_silent: response.workers_silent }
    }
}
