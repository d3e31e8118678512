//! Settings of the Redis session, on the client side and on the upstream side. Plain data, already checked.

use std::{sync::Arc, time::Duration};

use weir_base::{limits, secret::Secret};

use crate::users::{UpstreamLogin, Users};

/// Databases that SELECT accepts. Default 16, as redis.conf `databases`.
pub const DATABASES: u32 = 16;

/// Commands of one client that wait for replies; then reading from it stops. Default 1,024: a deeper pipeline gains
/// nothing (the batch already fills a send), but its replies would have to be held.
pub const PIPELINE_COMMANDS_MAX: u32 = limits::RESP_PIPELINE_COMMANDS_MAX as u32;

/// Bytes of commands of one client that wait for replies; then reading from it stops. Default 1 MiB.
pub const PIPELINE_BYTES_MAX: u64 = limits::RESP_PIPELINE_BYTES_MAX;

/// Arguments of one command. Default 1,048,576, the multibulk limit of older Redis lines; worst case about 16 MiB of
/// bookkeeping, which grows with the bytes received and never with the count claimed.
pub const ARGS_MAX: u32 = limits::RESP_ELEMENTS_MAX as u32;

/// Bytes of one argument. Default 512 MiB, as `proto-max-bulk-len`. Streamed, not buffered.
pub const BULK_BYTES_MAX: u64 = limits::RESP_BULK_BYTES_MAX;

/// Arguments and replies above this many bytes are streamed instead of buffered whole. Default 64 KiB.
pub const STREAM_BYTES: u64 = 64 << 10;

/// Commands queued between MULTI and EXEC. Default 10,000.
pub const TRANSACTION_COMMANDS_MAX: u32 = 10_000;

/// Bytes queued between MULTI and EXEC. Default 16 MiB.
pub const TRANSACTION_BYTES_MAX: u64 = 16 << 20;

/// Channels and patterns one client may subscribe to. Default 10,000.
pub const SUBSCRIPTIONS_MAX: u32 = 10_000;

/// Clients of one listener that may sit in a blocking command (BLPOP, XREAD BLOCK) at a time, per worker.
/// Default 512: half of the pinned lanes, so that transactions still find one.
pub const BLOCKING_MAX: u32 = 512;

/// Wait after the first wrong password from an address, on all its connections. Default 100 ms: not noticeable after a
/// typing mistake.
pub const AUTH_FAILURE_DELAY: Duration = Duration::from_millis(100);

/// The longest of these waits: it doubles with every wrong password from one address. Default 2 s: shorter than clients wait
/// for a reply, for others may come from the same address.
pub const AUTH_FAILURE_DELAY_MAX: Duration = Duration::from_secs(2);

/// Wrong passwords on one connection; then it is closed. Default 10.
pub const AUTH_FAILURES_MAX: u32 = 10;

/// Name that upstream connections carry in CLIENT LIST.
pub const CLIENT_NAME: &str = "weir";

/// Bytes of one reply in the reply cache. Default 16 KiB: what is larger costs more to copy than it saves in waiting.
pub const CACHE_VALUE_BYTES_MAX: u64 = 16 << 10;

/// A cached reply is not older than this. Default 1 s: a key requested a thousand times a second is then read once, and one
/// whose time to live is over is found by the server a second later at the most.
pub const CACHE_AGE_MAX: Duration = Duration::from_secs(1);

/// Limits and scope of the reply cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// Bytes per worker.
    pub bytes_max: u64,
    /// See [`CACHE_VALUE_BYTES_MAX`].
    pub value_bytes_max: u64,
    /// See [`CACHE_AGE_MAX`].
    pub age_max: Duration,
    /// Keys that begin so; none: all keys.
    pub prefixes: Vec<String>,
}

/// Handling of a command that is in no table of this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum UnknownCommands {
    /// Send it on (modules, newer servers); it is treated as stateful, so it never touches a shared lane's state.
    #[default]
    Forward,
    /// Reply with `ERR unknown command` at the gateway.
    Refuse,
}

/// Redis towards clients.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisListenerSettings {
    /// User that clients must name; `None`: `default`, which is also what the one-argument AUTH means.
    pub user: Option<String>,
    /// Password that clients must give with AUTH or HELLO AUTH; `None`: no authentication.
    pub password: Option<Secret>,
    /// See [`DATABASES`].
    pub databases: u32,
    /// See [`PIPELINE_COMMANDS_MAX`].
    pub pipeline_max: u32,
    /// Bytes, see [`PIPELINE_BYTES_MAX`].
    pub pipeline_bytes: u64,
    /// See [`ARGS_MAX`].
    pub args_max: u32,
    /// Bytes, see [`BULK_BYTES_MAX`].
    pub bulk_bytes_max: u64,
    /// Bytes, at most `bulk_bytes_max`; see [`STREAM_BYTES`].
    pub stream_bytes: u64,
    /// See [`TRANSACTION_COMMANDS_MAX`].
    pub transaction_commands_max: u32,
    /// Bytes, see [`TRANSACTION_BYTES_MAX`].
    pub transaction_bytes_max: u64,
    /// See [`SUBSCRIPTIONS_MAX`].
    pub subscriptions_max: u32,
    /// See [`BLOCKING_MAX`].
    pub blocking_max: u32,
    /// Let SHUTDOWN, CONFIG SET, DEBUG, REPLICAOF and the like through. Default false.
    pub admin_commands: bool,
    /// Default [`UnknownCommands::Forward`].
    pub unknown_commands: UnknownCommands,
    /// See [`AUTH_FAILURE_DELAY`].
    pub auth_failure_delay: Duration,
    /// See [`AUTH_FAILURE_DELAY_MAX`].
    pub auth_failure_delay_max: Duration,
    /// See [`AUTH_FAILURES_MAX`].
    pub auth_failures_max: u32,
    /// The users and their rights; `None`: `user` and `password` are the only credentials, and every client may do everything.
    pub users: Option<Arc<Users>>,
    /// The reply cache; `None`: there is none.
    pub cache: Option<CacheSettings>,
}

impl RedisListenerSettings {
    /// Whether clients need no login.
    pub fn is_open(&self) -> bool {
        match &self.users {
            Some(users) => users.open().is_some(),
            None => self.password.is_none(),
        }
    }
}

impl Default for RedisListenerSettings {
    fn default() -> Self {
        Self {
            user: None,
            password: None,
            databases: DATABASES,
            pipeline_max: PIPELINE_COMMANDS_MAX,
            pipeline_bytes: PIPELINE_BYTES_MAX,
            args_max: ARGS_MAX,
            bulk_bytes_max: BULK_BYTES_MAX,
            stream_bytes: STREAM_BYTES,
            transaction_commands_max: TRANSACTION_COMMANDS_MAX,
            transaction_bytes_max: TRANSACTION_BYTES_MAX,
            subscriptions_max: SUBSCRIPTIONS_MAX,
            blocking_max: BLOCKING_MAX,
            admin_commands: false,
            unknown_commands: UnknownCommands::Forward,
            auth_failure_delay: AUTH_FAILURE_DELAY,
            auth_failure_delay_max: AUTH_FAILURE_DELAY_MAX,
            auth_failures_max: AUTH_FAILURES_MAX,
            users: None,
            cache: None,
        }
    }
}

/// Redis towards an upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct RedisUpstreamSettings {
    /// ACL user of the gateway itself; `None`: `default`.
    pub user: Option<String>,
    /// Its password; `None`: no AUTH is sent.
    pub password: Option<Secret>,
    /// Further logins, for users of listeners that have one of their own; no two alike.
    pub logins: Vec<UpstreamLogin>,
    /// Argument of CLIENT SETNAME on each upstream connection. Default [`CLIENT_NAME`]; no spaces, printable ASCII.
    pub client_name: String,
    /// Source of the list of servers.
    pub topology: RedisTopology,
}

/// Source of the list of servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RedisTopology {
    /// The endpoints are the servers.
    #[default]
    Fixed,
    /// They are nodes of a Redis Cluster.
    Cluster,
    /// They are a primary and its replicas, which say so themselves.
    Replicated,
    /// They watch over a primary and its replicas.
    Sentinel(SentinelSettings),
}

/// How the gateway queries Redis Sentinel.
#[derive(Clone, Debug, PartialEq)]
pub struct SentinelSettings {
    /// The name of the primary in its configuration (`sentinel monitor <name> ...`).
    pub service: String,
    /// How many of the endpoints are sentinels: the first ones.
    pub count: u16,
    /// ACL user at the sentinels; `None`: `default`.
    pub user: Option<String>,
    /// Its password; `None`: no AUTH is sent to them.
    pub password: Option<Secret>,
}

impl Default for RedisUpstreamSettings {
    fn default() -> Self {
        Self {
            user: None,
            password: None,
            logins: Vec::new(),
            client_name: CLIENT_NAME.to_owned(),
            topology: RedisTopology::Fixed,
        }
    }
}

const _: () = assert!(STREAM_BYTES <= BULK_BYTES_MAX);
const _: () = assert!(STREAM_BYTES <= PIPELINE_BYTES_MAX);
