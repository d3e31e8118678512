//! Options of keyed pools that an operator may choose, with defaults and reasons. Names are those of PgBouncer where it has one.

use std::time::Duration;

use crate::settings::BalanceSettings;

/// Connections of all workers together to one endpoint for one key. Default 20, as PgBouncer: a server does more work with fewer
/// connections than clients.
pub const POOL_SIZE: u32 = 20;
/// Idle connections that are kept for a key that has clients. Default 0.
pub const MIN_POOL_SIZE: u32 = 0;
/// Connections above the pool size for one that has waited for long. Default 0: none.
pub const RESERVE_POOL_SIZE: u32 = 0;
/// For how long. Default 5 s, as PgBouncer.
pub const RESERVE_POOL_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection older than this is closed when it is idle. Default 1 h, as PgBouncer: a server process grows with its caches. Chance
/// takes up to a tenth off, so that connections made together do not end together.
pub const SERVER_LIFETIME: Duration = Duration::from_secs(3_600);
/// An idle connection is closed after this time. Default 10 min, as PgBouncer.
pub const SERVER_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// A connection that was idle for so long is checked before it serves again. Default 30 s, as PgBouncer.
pub const SERVER_CHECK_DELAY: Duration = Duration::from_secs(30);
/// Clients that may wait for a connection of one key, per worker. Default 1,048,576, more than a process can have: the limits of
/// connections of clients bound them, as in PgBouncer, and each has one wait of some 2 KiB at the most.
pub const WAITERS_MAX: u32 = 1 << 20;
/// For one reset or one check. Default 5 s: both take a round trip, and a server that hangs must not keep a connection for ever.
pub const UPKEEP_TIMEOUT: Duration = Duration::from_secs(5);

/// The connections of one upstream, key by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PooledSettings {
    /// How endpoints are chosen.
    pub balancing: BalanceSettings,
    /// Per process, endpoint and key, at least 1; see [`POOL_SIZE`].
    pub pool_size: u32,
    /// Per process, endpoint and key; see [`MIN_POOL_SIZE`].
    pub min_pool_size: u32,
    /// Per process, endpoint and key; see [`RESERVE_POOL_SIZE`].
    pub reserve_pool_size: u32,
    /// See [`RESERVE_POOL_TIMEOUT`].
    pub reserve_pool_timeout: Duration,
    /// Connections per process and endpoint to one database, over all keys; `None`: as many as the pools have.
    pub max_db_connections: Option<u32>,
    /// Connections per process and endpoint of one user, over all keys; `None`: as many as the pools have.
    pub max_user_connections: Option<u32>,
    /// See [`SERVER_LIFETIME`]; zero: for ever.
    pub server_lifetime: Duration,
    /// See [`SERVER_IDLE_TIMEOUT`]; zero: for ever.
    pub server_idle_timeout: Duration,
    /// See [`SERVER_CHECK_DELAY`]; zero: each time.
    pub server_check_delay: Duration,
    /// See [`UPKEEP_TIMEOUT`].
    pub upkeep_timeout: Duration,
}

impl PooledSettings {
    /// A connection of one key may be in the way of another key.
    pub(crate) fn has_shared_limits(&self) -> bool {
        self.max_db_connections.is_some() || self.max_user_connections.is_some()
    }
}

impl Default for PooledSettings {
    fn default() -> Self {
        Self {
            balancing: BalanceSettings::default(),
            pool_size: POOL_SIZE,
            min_pool_size: MIN_POOL_SIZE,
            reserve_pool_size: RESERVE_POOL_SIZE,
            reserve_pool_timeout: RESERVE_POOL_TIMEOUT,
            max_db_connections: None,
            max_user_connections: None,
            server_lifetime: SERVER_LIFETIME,
            server_idle_timeout: SERVER_IDLE_TIMEOUT,
            server_check_delay: SERVER_CHECK_DELAY,
            upkeep_timeout: UPKEEP_TIMEOUT,
        }
    }
}
