//! Settings of an upstream: endpoints, lanes, health, breaker, reconnect. Plain data, already checked.

use std::sync::Arc;
use std::time::Duration;

use weir_base::limits;
use weir_engine::settings::{Address, TlsClientSettings};

use crate::balance::Balance;
use weir_placement::PlacementSettings;

/// TCP (or Unix) connect, name resolution included. Default 1 s: inside one data centre a connect takes under 1 ms,
/// one retransmitted SYN takes 1 s, and more only hides a dead server.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// From the last byte of a request to the last byte of its reply, blocking commands excepted. Default 5 s.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Shared pipelined connections per worker and endpoint. Default 1: one keeps a single-threaded server busy, and
/// merges the requests of all clients of a core into one send. More help only servers with I/O threads.
pub const SHARED_LANES: u16 = 1;

/// Connections per worker that belong to one client because of its session state. Default 1,024.
/// Redis allows 10,000 clients by default, so eight workers at this limit still leave it room.
pub const PINNED_LANES_MAX: u32 = 1_024;

/// Sessions per worker that may wait for a pinned lane. Default 1,024; beyond it the command is refused at once.
pub const LANE_WAITERS_MAX: u32 = 1_024;

/// How long one waits for a lane. Default 1 s: longer than a connect, shorter than a client's own timeout.
pub const LANE_WAIT_TIMEOUT: Duration = limits::QUEUE_WAIT_MAX;

/// Clean pinned lanes kept open per worker for the next session that needs one. Default 8.
pub const PINNED_LANES_IDLE_MAX: u32 = 8;

/// Requests on one shared lane that wait for their replies; beyond it new ones are refused. Default 16,384, the
/// exchanges a core may have in flight. About 64 bytes each, so 1 MiB.
pub const LANE_IN_FLIGHT_MAX: u32 = limits::EXCHANGES_PER_CORE_MAX as u32;

/// Between two active health checks of an endpoint. Default 1 s.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// For one health check, connect included. Default 500 ms, less than the interval so that checks never overlap.
pub const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);
/// Failed checks in a row that make an endpoint unhealthy. Default 3.
pub const HEALTH_UNHEALTHY_AFTER: u32 = 3;
/// Good checks in a row that make it healthy again. Default 2.
pub const HEALTH_HEALTHY_AFTER: u32 = 2;

/// Failures (connect, timeout, lanes lost with requests under way) within the window that open the breaker. Default 5.
/// An error reply of the server is no failure: the server is well.
pub const BREAKER_FAILURES: u32 = 5;
/// The window in which failures are counted. Default 10 s.
pub const BREAKER_WINDOW: Duration = Duration::from_secs(10);
/// How long an open breaker refuses at once before it lets one attempt through. Default 1 s.
pub const BREAKER_OPEN_FOR: Duration = Duration::from_secs(1);

/// First pause before a reconnect; doubled at each failure. Default 5 ms: a restarted server is found at once.
pub const RECONNECT_BASE: Duration = Duration::from_millis(5);
/// Longest pause before a reconnect. Default 1 s.
pub const RECONNECT_MAX: Duration = Duration::from_secs(1);

/// One named set of endpoints and how it is spoken to.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamSettings {
    /// Unique name; a metric label.
    pub name: Arc<str>,
    /// At least one. A host name is resolved at a connect if its last result is over 5 s old.
    pub endpoints: Vec<Address>,
    /// How keys are spread over the endpoints, if there are several.
    pub placement: Option<PlacementSettings>,
    /// The source of the list of servers.
    pub topology: Topology,
    /// Where commands that only read go, if a server has replicas.
    pub read_from: ReadFrom,
    /// The availability zone of this gateway: of the servers that may be read from, those that report this zone come
    /// first. `None`: all are alike.
    pub zone: Option<String>,
    /// TLS towards the endpoints; `None`: clear text.
    pub tls: Option<TlsClientSettings>,
    /// See [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// See [`REQUEST_TIMEOUT`].
    pub request_timeout: Duration,
    /// Per worker and endpoint, at least 1; see [`SHARED_LANES`].
    pub shared_lanes: u16,
    /// Per worker, see [`PINNED_LANES_MAX`]. 0: commands that need one are refused.
    pub pinned_lanes_max: u32,
    /// Per worker, at most `pinned_lanes_max`; see [`PINNED_LANES_IDLE_MAX`].
    pub pinned_lanes_idle_max: u32,
    /// Per worker, see [`LANE_WAITERS_MAX`].
    pub lane_waiters_max: u32,
    /// See [`LANE_WAIT_TIMEOUT`].
    pub lane_wait_timeout: Duration,
    /// Per lane, see [`LANE_IN_FLIGHT_MAX`].
    pub lane_in_flight_max: u32,
    /// Active checks; `None`: only what traffic shows.
    pub health: Option<HealthSettings>,
    /// Passive checks: refuse at once while the endpoint keeps failing.
    pub breaker: BreakerSettings,
    /// Pauses between attempts to connect.
    pub reconnect: ReconnectSettings,
}

impl UpstreamSettings {
    /// A clear-text upstream with every default.
    pub fn new(name: impl Into<Arc<str>>, endpoints: Vec<Address>) -> Self {
        Self {
            name: name.into(),
            endpoints,
            placement: None,
            topology: Topology::Fixed,
            read_from: ReadFrom::Primary,
            zone: None,
            tls: None,
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            shared_lanes: SHARED_LANES,
            pinned_lanes_max: PINNED_LANES_MAX,
            pinned_lanes_idle_max: PINNED_LANES_IDLE_MAX,
            lane_waiters_max: LANE_WAITERS_MAX,
            lane_wait_timeout: LANE_WAIT_TIMEOUT,
            lane_in_flight_max: LANE_IN_FLIGHT_MAX,
            health: Some(HealthSettings::default()),
            breaker: BreakerSettings::default(),
            reconnect: ReconnectSettings::default(),
        }
    }
}

/// Connections of all workers to one endpoint, idle ones included. Default 16,384: what a gateway of 16 cores needs for 1,024 exchanges
/// on each. A lower limit protects an endpoint, as `maxconn` of a server does in HAProxy.
pub const EXCLUSIVE_LANES_MAX: u32 = 16_384;
/// Idle connections that a worker keeps to one endpoint. Default 256: as many as its clients have requests under way; nginx's
/// examples have 16 to 64, with which a busy gateway connects again for most requests.
pub const EXCLUSIVE_LANES_IDLE_MAX: u32 = 256;
/// How long an idle connection is kept. Default 50 s: below the 60 to 75 s after which servers close theirs, so that a request
/// seldom meets a closing one.
pub const EXCLUSIVE_LANE_IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// Failures in a row after which an endpoint is left out. Default 5, as Envoy.
pub const EJECTION_FAILURES: u32 = 5;
/// For how long it is left out the first time. Default 30 s, as Envoy.
pub const EJECTION_DURATION: Duration = Duration::from_secs(30);
/// For how long at most. Default 300 s, as Envoy.
pub const EJECTION_DURATION_MAX: Duration = Duration::from_secs(300);
/// Share of the endpoints that may be left out at once, in percent; one always may if there are others. Default 10, as Envoy.
pub const EJECTION_PERCENT_MAX: u32 = 10;

/// Endpoints that one exchange tries to connect to before it needs the leave of the retry budget, if there are as many. 16: all of
/// them where restarts are rolling. Worst case with the default [`CONNECT_TIMEOUT`] 16 s, before the breakers have opened; they do
/// after [`BREAKER_FAILURES`] timeouts each.
pub const CONNECT_TRIES_MAX: usize = 16;

/// When an endpoint that responds badly is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionSettings {
    /// See [`EJECTION_FAILURES`]. 0: never.
    pub failures: u32,
    /// Errors of the application are failures too. An application may fail for one bad request and be well.
    pub application_errors: bool,
    /// See [`EJECTION_DURATION`].
    pub duration: Duration,
    /// See [`EJECTION_DURATION_MAX`].
    pub duration_max: Duration,
    /// See [`EJECTION_PERCENT_MAX`].
    pub percent_max: u32,
}

impl Default for EjectionSettings {
    fn default() -> Self {
        Self {
            failures: EJECTION_FAILURES,
            application_errors: false,
            duration: EJECTION_DURATION,
            duration_max: EJECTION_DURATION_MAX,
            percent_max: EJECTION_PERCENT_MAX,
        }
    }
}

/// Below this share of endpoints that are well, in percent, it no longer counts who is: those left could not carry the load of
/// all. Default 50, as Envoy's panic threshold.
pub const PANIC_PERCENT: u32 = 50;

/// Share of its weight that an endpoint has at the beginning of its slow start, in percent. As Envoy's.
pub const SLOW_START_PERCENT_MIN: u64 = 10;

/// How one of several endpoints is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// The rule.
    pub balance: Balance,
    /// Relative weight of each endpoint; empty: all alike. 0: no exchanges.
    pub weights: Vec<u32>,
    /// Passive health.
    pub ejection: EjectionSettings,
    /// See [`PANIC_PERCENT`]. 0: health always counts.
    pub panic_percent: u32,
    /// How long an endpoint that is healthy again takes to get its whole share; zero: none.
    pub slow_start: Duration,
    /// Retries under way at once, in percent of the exchanges under way. See [`RETRY_BUDGET_PERCENT`].
    pub retry_budget_percent: u32,
}

/// The connections that are kept to each endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Connections of all workers together. See [`EXCLUSIVE_LANES_MAX`].
    pub connections_max: u32,
    /// Idle connections per worker. See [`EXCLUSIVE_LANES_IDLE_MAX`].
    pub idle_max: u32,
    /// See [`EXCLUSIVE_LANE_IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
}

/// Lanes that serve one exchange at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExclusiveSettings {
    /// How endpoints are chosen.
    pub balancing: BalanceSettings,
    /// The value by which exchanges keep their endpoint, for balances with affinity.
    pub affinity: Affinity,
    /// The connections to each.
    pub pool: PoolSettings,
}

/// Default 20, as Envoy: when many exchanges fail, more would make it worse.
pub const RETRY_BUDGET_PERCENT: u32 = 20;
/// Retries of a worker that are always possible, as Envoy's least concurrency.
pub const RETRY_BUDGET_MIN: u64 = 3;

/// The value of an exchange by which it keeps its endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// Nothing.
    #[default]
    None,
    /// The address of the client.
    Address,
    /// A field of its head, by name.
    Header(Box<str>),
    /// A cookie, which a client without it gets.
    Cookie {
        /// Its name.
        name: Box<str>,
        /// How long it is kept; `None`: until the browser ends.
        max_age: Option<Duration>,
    },
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            weights: Vec::new(),
            ejection: EjectionSettings::default(),
            panic_percent: PANIC_PERCENT,
            slow_start: Duration::ZERO,
            retry_budget_percent: RETRY_BUDGET_PERCENT,
        }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            connections_max: EXCLUSIVE_LANES_MAX,
            idle_max: EXCLUSIVE_LANES_IDLE_MAX,
            idle_timeout: EXCLUSIVE_LANE_IDLE_TIMEOUT,
        }
    }
}

/// The source of the list of servers, and of the owners of keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// The settings.
    #[default]
    Fixed,
    /// The nodes of a cluster: each primary has some slots.
    Slots,
    /// The servers: one is the primary and has all keys, the others are its replicas.
    Primary,
    /// As `Primary`; the endpoints are not the servers but watch over them.
    Watched,
}

/// Where commands that only read go. A replica is a little behind its primary, so a client may not find what it has just
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// To the primary.
    #[default]
    Primary,
    /// To a replica while the primary cannot be reached.
    PreferPrimary,
    /// To a replica, or to the primary if none can be reached.
    PreferReplica,
    /// To a replica. Without one they are refused as if it could not be reached.
    Replica,
    /// To the primary or one of its replicas.
    Any,
}

/// Active health checks (for Redis: PING on a connection of its own).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// See [`HEALTH_INTERVAL`].
    pub interval: Duration,
    /// Below `interval`; see [`HEALTH_TIMEOUT`].
    pub timeout: Duration,
    /// See [`HEALTH_UNHEALTHY_AFTER`].
    pub unhealthy_after: u32,
    /// See [`HEALTH_HEALTHY_AFTER`].
    pub healthy_after: u32,
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            interval: HEALTH_INTERVAL,
            timeout: HEALTH_TIMEOUT,
            unhealthy_after: HEALTH_UNHEALTHY_AFTER,
            healthy_after: HEALTH_HEALTHY_AFTER,
        }
    }
}

/// When to stop trying for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// See [`BREAKER_FAILURES`].
    pub failures: u32,
    /// See [`BREAKER_WINDOW`].
    pub window: Duration,
    /// See [`BREAKER_OPEN_FOR`].
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures: BREAKER_FAILURES, window: BREAKER_WINDOW, open_for: BREAKER_OPEN_FOR }
    }
}

/// Pauses between attempts to connect: `base`, doubled up to `max`. Chance takes up to half off each, so that workers
/// and instances do not come back in step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconnectSettings {
    /// See [`RECONNECT_BASE`].
    pub base: Duration,
    /// Not below `base`; see [`RECONNECT_MAX`].
    pub max: Duration,
}

impl Default for ReconnectSettings {
    fn default() -> Self {
        Self { base: RECONNECT_BASE, max: RECONNECT_MAX }
    }
}

const _: () = assert!(HEALTH_TIMEOUT.as_nanos() < HEALTH_INTERVAL.as_nanos());
const _: () = assert!(RECONNECT_BASE.as_nanos() <= RECONNECT_MAX.as_nanos());
const _: () = assert!(PINNED_LANES_IDLE_MAX <= PINNED_LANES_MAX);
