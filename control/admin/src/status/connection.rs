//! Query and answer of `/api/v1/connections`.

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

/// Answers of the workers, in any order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConnectionAnswer {
    /// The connections.
    pub connections: Vec<ConnectionStatus>,
    /// Workers that did not answer in time.
    pub workers_silent: Vec<u32>,
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// TLS or PROXY protocol is not finished.
    Handshake,
    /// Not authenticated yet.
    Unauthenticated,
    /// Between requests, on shared lanes.
    Idle,
    /// Requests are under way on shared lanes.
    Active,
    /// Commands of a transaction are being collected.
    Queuing,
    /// Bound to an upstream connection of its own; `pinned_by` says why.
    Pinned,
    /// Waiting for a pooled upstream connection; `waits_for` says for which.
    Waiting,
    /// The client does not read its replies, so its requests are not read either.
    BackPressured,
    /// Finishing.
    Closing,
}

/// One client connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionStatus {
    /// Unique in this process; below 2^53, so that every JSON reader keeps it exact.
    pub id: u64,
    /// Listener it came in on.
    pub listener: String,
    /// Protocol of the listener, such as `redis` or `ai`. Empty: the gateway is older than this field, or the listener is removed.
    #[serde(default)]
    pub protocol: String,
    /// Worker that owns it.
    pub worker: u32,
    /// The client's address, from the PROXY header if one is trusted.
    pub peer: String,
    /// Seconds since it was accepted.
    pub age_seconds: f64,
    /// Seconds since the client last sent anything.
    pub idle_seconds: f64,
    /// Name that the client gave itself.
    pub name: Option<String>,
    /// User it authenticated as.
    pub user: Option<String>,
    /// Number of the database it selected, where databases have numbers.
    pub db: Option<u32>,
    /// Name of its database, where databases have names.
    pub database: Option<String>,
    /// Version of the protocol it speaks, such as `RESP3` or `HTTP/2`.
    pub protocol_version: String,
    /// Its present activity.
    pub state: ConnectionState,
    /// Why it holds an upstream connection of its own, such as `watch` or `subscribe`; empty if it does not.
    pub pinned_by: Vec<String>,
    /// Seconds since it is bound, without a break in the reasons; absent if it is not.
    pub pinned_seconds: Option<f64>,
    /// Seconds for which it has had its pooled upstream connection: the age of its transaction in transaction pooling. Absent if it has none.
    pub transaction_seconds: Option<f64>,
    /// The pool that it waits for; absent if it does not wait.
    pub waits_for: Option<PoolWait>,
    /// Requests whose reply is not complete yet.
    pub in_flight: u64,
    /// Bytes that the gateway holds for it.
    pub buffered_bytes: u64,
    /// Name of the last command, without arguments.
    pub last_command: Option<String>,
    /// Name of the key of its last request, of an AI listener.
    #[serde(default)]
    pub key: Option<String>,
    /// The model of that request, by the name of the client.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether that request is for a stream.
    #[serde(default)]
    pub stream: Option<bool>,
}

/// The wait for a connection of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolWait {
    /// User and database of the pool: `app@shop`.
    pub pool: String,
    /// The upstream of the pool: that of the primary, or that of the standbys. Empty: the gateway is older than this field.
    #[serde(default)]
    pub upstream: String,
    /// Seconds since the wait began.
    pub seconds: f64,
    /// Its place among the clients of the listener that wait for the pool, from 1. The pool serves them in this order, except for the few
    /// whose worker has the connection at hand.
    pub position: u64,
    /// How many clients of the listener wait for the pool.
    pub waiting: u64,
}

/// Answer of `/api/v1/connections`, by ascending id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionPage {
    /// The connections on this page.
    pub connections: Vec<ConnectionStatus>,
    /// Value of `after` for the next page; absent on the last.
    pub next_after: Option<u64>,
    /// Workers that did not answer in time: their connections are missing here.
    pub workers_silent: Vec<u32>,
}

impl ConnectionPage {
    /// The page for a query out of what the workers answered.
    ///
    /// With a silent worker the page ends where it ends: going on from the last id is still right for the
    /// others, and `workers_silent` tells that entries are missing.
    pub(crate) fn of(answer: ConnectionAnswer, query: &ConnectionQuery) -> Self {
        let mut connections = answer.connections;
        connections.retain(|connection| query.matches(connection));
        connections.sort_unstable_by_key(|connection| connection.id);
        let more = connections.len() > query.limit;
        connections.truncate(query.limit);
        let next_after = if more { connections.last().map(|connection| connection.id) } else { None };
        Self { connections, next_after, workers_silent: answer.workers_silent }
    }
}
