//! Responses of `/api/v1/hot-keys`, `/api/v1/big-keys` and `/api/v1/slow-log`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of a key is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyNames {
    /// Its text, up to 128 bytes.
    Full,
    /// A hash.
    Hashed,
    /// Nothing; the gateway does not sample keys.
    #[default]
    Off,
}

/// Records of the workers, merged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InsightResponse {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// Keys are sampled from one of this many requests.
    pub sample: u32,
    /// The keys, most requests first.
    pub hot_keys: Vec<HotKeyStatus>,
    /// The keys, largest first.
    pub big_keys: Vec<BigKeyStatus>,
    /// Seconds from which a request is slow; `None` if there is no slow log.
    pub slower_than_seconds: Option<f64>,
    /// The requests, newest first.
    pub slow_requests: Vec<SlowRequestStatus>,
    /// Workers that did not respond in time.
    pub workers_silent: Vec<u32>,
}

/// A key that many requests name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyStatus {
    /// The key as one printable word, cut after 128 bytes; or `#` and its hash.
    pub key: String,
    /// Full length of the key.
    pub key_bytes: u64,
    /// Hash that distinguishes keys within one process.
    pub hash: String,
    /// Name of the upstream of the key.
    pub upstream: String,
    /// Number of the database.
    pub db: u32,
    /// Last sampled command that names the key.
    pub command: String,
    /// Requests per second that name the key, estimated from samples.
    pub per_second: f64,
    /// Number of samples of the estimate. With ten samples the error can be one third.
    pub samples: u64,
}

/// Response of `/api/v1/hot-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyList {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// Keys are sampled from one of this many requests.
    pub sample: u32,
    /// The keys, most requests first.
    pub hot_keys: Vec<HotKeyStatus>,
    /// Workers that did not respond in time. Their data are missing.
    pub workers_silent: Vec<u32>,
}

/// Direction of the bytes of a big key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyDirection {
    /// Written by a request.
    Request,
    /// Read with a reply.
    Reply,
}

/// A key with a large value, as far as requests and replies tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BigKeyStatus {
    /// The key as one printable word, cut after 128 bytes; or `#` and its hash.
    pub key: String,
    /// Full length of the key.
    pub key_bytes: u64,
    /// Hash that distinguishes keys within one process.
    pub hash: String,
    /// Name of the upstream of the key.
    pub upstream: String,
    /// Number of the database.
    pub db: u32,
    /// Bytes of the largest request or reply of the last ten minutes, as on the wire.
    pub bytes: u64,
    /// Direction of these bytes.
    pub direction: KeyDirection,
    /// Command of the request.
    pub command: String,
    /// Seconds since this request.
    pub age_seconds: f64,
}

/// Response of `/api/v1/big-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BigKeyList {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// The keys, largest first.
    pub big_keys: Vec<BigKeyStatus>,
    /// Workers that did not respond in time. Their data are missing.
    pub workers_silent: Vec<u32>,
}

/// A request that took long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequestStatus {
    /// Unique in this process; later requests have larger ids.
    pub id: u64,
    /// Unix time, in seconds, at which the reply was complete or known to be lost.
    pub ended_at: f64,
    /// Time from the queue of the upstream connection to the end of the reply. Does not include a wait for a pinned connection.
    pub duration_seconds: f64,
    /// Part of the duration before the request was sent to the server.
    pub gateway_seconds: f64,
    /// Rest of the duration: server, network, and earlier requests on the same connection.
    pub upstream_seconds: f64,
    /// The command and its arguments: at most 32, 128 bytes of each, passwords redacted. Empty if the request took so long
    /// that the gateway no longer has them.
    pub command: Vec<String>,
    /// Requests that were sent and completed together with this request, including it.
    pub requests: u64,
    /// `ok`, `error`, or the reason for a missing reply: `timeout`, `closed`, ...
    pub outcome: String,
    /// Id of the client connection.
    pub connection: u64,
    /// Address of the client.
    pub peer: String,
    /// Name that the client set for itself.
    pub client_name: Option<String>,
    /// User as which the client authenticated.
    pub user: Option<String>,
    /// Listener that received the request.
    pub listener: String,
    /// Worker that owns the connection.
    pub worker: u32,
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the endpoint that received the request, if it is known.
    pub endpoint: Option<String>,
}

/// Response of `/api/v1/slow-log`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowLogList {
    /// Seconds from which a request is slow; absent if there is no slow log.
    pub slower_than_seconds: Option<f64>,
    /// The requests, newest first.
    pub slow_requests: Vec<SlowRequestStatus>,
    /// Workers that did not respond in time. Their data are missing.
    pub workers_silent: Vec<u32>,
}

/// Response of `POST /api/v1/slow-log/reset`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowLogReset {
    /// Number of removed entries.
    pub removed: u64,
    /// Workers that did not respond in time. Their entries may still exist.
    pub workers_silent: Vec<u32>,
}
