//! Answers of `/api/v1/hot-keys`, `/api/v1/big-keys` and `/api/v1/slow-log`.

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
    /// Nothing: no key is looked at.
    #[default]
    Off,
}

/// Records of the workers, merged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InsightAnswer {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// One request of so many was looked at.
    pub sample: u32,
    /// The hottest first.
    pub hot_keys: Vec<HotKeyStatus>,
    /// The largest first.
    pub big_keys: Vec<BigKeyStatus>,
    /// Seconds from which a request is slow; `None`: there is no slow log.
    pub slower_than_seconds: Option<f64>,
    /// The newest first.
    pub slow_requests: Vec<SlowRequestStatus>,
    /// Workers that did not answer in time.
    pub workers_silent: Vec<u32>,
}

/// A key that many requests name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyStatus {
    /// The key as one printable word, cut after 128 bytes; or `#` and its hash.
    pub key: String,
    /// Whole length of the key.
    pub key_bytes: u64,
    /// Tells keys apart, within one process.
    pub hash: String,
    /// Name of its upstream.
    pub upstream: String,
    /// Its database.
    pub db: u32,
    /// The last command that was seen to name it.
    pub command: String,
    /// Requests per second that name it, estimated from samples.
    pub per_second: f64,
    /// Samples that the estimate stands on: of ten of them it may be a third off.
    pub samples: u64,
}

/// Answer of `/api/v1/hot-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyList {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// One request of so many was looked at.
    pub sample: u32,
    /// The hottest first.
    pub hot_keys: Vec<HotKeyStatus>,
    /// Workers that did not answer in time: what they have seen is missing here.
    pub workers_silent: Vec<u32>,
}

/// Which way the bytes of a big key went.
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
    /// Whole length of the key.
    pub key_bytes: u64,
    /// Tells keys apart, within one process.
    pub hash: String,
    /// Name of its upstream.
    pub upstream: String,
    /// Its database.
    pub db: u32,
    /// Bytes of the largest request or reply of the last ten minutes, as on the wire.
    pub bytes: u64,
    /// Which it was.
    pub direction: KeyDirection,
    /// Its command.
    pub command: String,
    /// Seconds since it was seen.
    pub age_seconds: f64,
}

/// Answer of `/api/v1/big-keys`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BigKeyList {
    /// How much of a key is shown.
    pub names: KeyNames,
    /// The largest first.
    pub big_keys: Vec<BigKeyStatus>,
    /// Workers that did not answer in time: what they have seen is missing here.
    pub workers_silent: Vec<u32>,
}

/// A request that took long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequestStatus {
    /// Unique in this process, growing with time.
    pub id: u64,
    /// Unix time, in seconds, at which its reply was complete or known to be lost.
    pub ended_at: f64,
    /// From the queue of its connection to the end of the reply. A wait for a dedicated connection comes before.
    pub duration_seconds: f64,
    /// The part of it before the request was sent to the server.
    pub gateway_seconds: f64,
    /// The rest: server, network, and the requests in front of it on the same connection.
    pub upstream_seconds: f64,
    /// The command and its arguments: at most 32, 128 bytes of each, passwords redacted. Empty if it took so long that they
    /// are not kept any more.
    pub command: Vec<String>,
    /// Requests sent and answered together with it, itself included.
    pub requests: u64,
    /// `ok`, `error`, or why there was no reply: `timeout`, `closed`, ...
    pub outcome: String,
    /// Number of the client's connection.
    pub connection: u64,
    /// The client's address.
    pub peer: String,
    /// Name that the client gave itself.
    pub client_name: Option<String>,
    /// User it authenticated as.
    pub user: Option<String>,
    /// Listener it came in on.
    pub listener: String,
    /// Worker that owns it.
    pub worker: u32,
    /// Name of the upstream.
    pub upstream: String,
    /// Address of the endpoint that it was sent to, if that is known.
    pub endpoint: Option<String>,
}

/// Answer of `/api/v1/slow-log`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowLogList {
    /// Seconds from which a request is slow; absent: there is no slow log.
    pub slower_than_seconds: Option<f64>,
    /// The newest first.
    pub slow_requests: Vec<SlowRequestStatus>,
    /// Workers that did not answer in time: what they have seen is missing here.
    pub workers_silent: Vec<u32>,
}

/// Answer of `POST /api/v1/slow-log/reset`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowLogReset {
    /// Entries that there were.
    pub removed: u64,
    /// Workers that did not answer in time: they may still have theirs.
    pub workers_silent: Vec<u32>,
}
