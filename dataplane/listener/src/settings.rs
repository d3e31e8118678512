//! Settings of a listener, of admission and of drain. Plain data, checked before it is built.

use std::sync::Arc;
use std::time::Duration;

use weir_base::{Net, limits};
use weir_engine::settings::{Address, TlsServerSettings};

/// Client connections of the whole process. Default 16,384, see [`limits::CONNECTIONS_MAX`].
pub const CONNECTIONS_MAX: u32 = limits::CONNECTIONS_MAX as u32;

/// Connections from one source address over the whole process. Default 1,024, see [`limits::CONNECTIONS_PER_SOURCE_MAX`].
pub const CONNECTIONS_PER_SOURCE_MAX: u32 = limits::CONNECTIONS_PER_SOURCE_MAX as u32;

/// Exchanges in flight on one core, counted to the end of the reply. Default 16,384, see [`limits::EXCHANGES_PER_CORE_MAX`].
pub const IN_FLIGHT_PER_CORE_MAX: u32 = limits::EXCHANGES_PER_CORE_MAX as u32;

/// Bytes held in buffers by the whole process, the upper end of the default: 1 GiB, or a quarter of the memory limit
/// if that is less ([`limits::buffered_bytes`]). Leased to the cores in steps of 1 MiB.
pub const BUFFERED_BYTES_MAX: u64 = limits::BUFFERED_BYTES_MAX;

/// TLS handshakes in flight on one core; further ones wait. Default 256, see
/// [`limits::TLS_HANDSHAKES_PER_CORE_MAX`].
pub const HANDSHAKES_PER_CORE_MAX: u32 = limits::TLS_HANDSHAKES_PER_CORE_MAX as u32;

/// Connections the kernel holds that were not accepted yet. Default 1,024; the kernel cuts it to `somaxconn`.
pub const BACKLOG: u32 = 1_024;

/// Output waiting for one client at which reading from it stops. Default 256 KiB, see [`limits::WRITE_HIGH_WATER_BYTES`].
/// Worst case with every connection at it: bounded by [`BUFFERED_BYTES_MAX`], not by this.
pub const OUTPUT_HIGH_WATER_BYTES: u64 = limits::WRITE_HIGH_WATER_BYTES;

/// Output waiting for one client at which reading from it starts again. Default 64 KiB, see
/// [`limits::WRITE_LOW_WATER_BYTES`].
pub const OUTPUT_LOW_WATER_BYTES: u64 = limits::WRITE_LOW_WATER_BYTES;

/// Output waiting for one client beyond which it may only have more, for the sake of those who wait behind its replies, while half
/// of the buffered bytes of the process are free. Default 64 MiB: pending replies of a client that does not
/// read them (the class of CVE-2025-21605).
pub const OUTPUT_HARD_CAP_BYTES: u64 = 64 << 20;

/// From the first byte of a message to the end of its head; progress does not extend it. Default 10 s.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// One direction closed, the other silent. Default 30 s; without it such sockets pile up for ever (istio/ztunnel#1629).
pub const HALF_CLOSE_TIMEOUT: Duration = limits::HALF_CLOSE_TIMEOUT;

/// Share of ended exchanges that reach the access log. Default 1.0: all, as in nginx, HAProxy, Envoy and Caddy. A user who
/// switches the log on expects to find every request in it. Without a log no exchange pays for it.
pub const ACCESS_LOG_SAMPLE: f64 = 1.0;

/// Readiness is false, but accepting goes on. Default 2 s: what balancers need to see it (one probe period).
pub const DRAIN_SETTLE: Duration = Duration::from_secs(2);

/// How long exchanges may take to finish once accepting stopped; what is left is cut and counted. Default 25 s:
/// with the settle time it stays under the 30 s that Kubernetes and systemd grant before SIGKILL.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(25);

/// How long the new process of an upgrade may take until it serves. Default 30 s: it starts within a fraction of a second
/// unless name resolution or a slow disk is in the way, and the old process goes on serving meanwhile.
pub const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);

/// Whether a connection starts with a PROXY protocol header (HAProxy `doc/proxy-protocol.txt`).
/// Where it is not `Off` the header is mandatory: guessing would let a client forge its own address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ProxyProtocol {
    /// No header; the peer is the client.
    #[default]
    Off,
    /// The text form, at most 107 bytes.
    V1,
    /// The binary form.
    V2,
    /// Either form.
    Any,
}

/// One listener: an address, and what a connection on it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSettings {
    /// Unique name; a metric label.
    pub name: Arc<str>,
    /// IP address and port, or a Unix socket; never a host name. Port 0 lets the kernel choose.
    pub bind: Address,
    /// Another process may listen at `bind` too, and gets a share of the connections. Default: no.
    pub reuse_port: bool,
    /// Connections on this listener. Default: the limit of the process, see [`CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// Connections from one source address on this listener. Default: the limit of the process,
    /// see [`CONNECTIONS_PER_SOURCE_MAX`]. Unix sockets have no source and are not counted here.
    pub connections_per_source_max: u32,
    /// PROXY protocol. Default [`ProxyProtocol::Off`].
    pub proxy_protocol: ProxyProtocol,
    /// Peers that may send a PROXY header; others are closed. Empty: every peer may, for a port only balancers reach.
    pub proxy_trusted: Vec<Net>,
    /// TLS towards clients; `None`: clear text.
    pub tls: Option<TlsServerSettings>,
    /// See [`BACKLOG`].
    pub backlog: u32,
    /// Bytes, see [`OUTPUT_HIGH_WATER_BYTES`].
    pub output_high_water: u64,
    /// Bytes, below `output_high_water`; see [`OUTPUT_LOW_WATER_BYTES`].
    pub output_low_water: u64,
    /// Bytes, not below `output_high_water`; see [`OUTPUT_HARD_CAP_BYTES`].
    pub output_hard_cap: u64,
    /// See [`HEAD_TIMEOUT`].
    pub head_timeout: Duration,
    /// A connection without any exchange is closed after this. Default `None`, as Redis' own `timeout 0`:
    /// application pools keep connections for hours and take a close for an error.
    pub idle_timeout: Option<Duration>,
    /// See [`HALF_CLOSE_TIMEOUT`].
    pub half_close_timeout: Duration,
    /// Share of exchanges in the access log, 0.0 to 1.0; see [`ACCESS_LOG_SAMPLE`].
    pub access_log_sample: f64,
    /// Requests per second on each worker; further ones are refused. Default `None`: as many as come. Set where the
    /// capacity was measured and an operator wants it kept.
    pub requests_per_second_per_core: Option<f64>,
}

impl ListenerSettings {
    /// A clear-text listener with every default.
    pub fn new(name: impl Into<Arc<str>>, bind: Address) -> Self {
        Self {
            name: name.into(),
            bind,
            reuse_port: false,
            connections_max: CONNECTIONS_MAX,
            connections_per_source_max: CONNECTIONS_PER_SOURCE_MAX,
            proxy_protocol: ProxyProtocol::Off,
            proxy_trusted: Vec::new(),
            tls: None,
            backlog: BACKLOG,
            output_high_water: OUTPUT_HIGH_WATER_BYTES,
            output_low_water: OUTPUT_LOW_WATER_BYTES,
            output_hard_cap: OUTPUT_HARD_CAP_BYTES,
            head_timeout: HEAD_TIMEOUT,
            idle_timeout: None,
            half_close_timeout: HALF_CLOSE_TIMEOUT,
            access_log_sample: ACCESS_LOG_SAMPLE,
            requests_per_second_per_core: None,
        }
    }
}

/// Limits of the whole process and of each core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Client connections of the process, see [`CONNECTIONS_MAX`].
    pub connections: u32,
    /// Client connections per source address, see [`CONNECTIONS_PER_SOURCE_MAX`].
    pub connections_per_source: u32,
    /// Exchanges in flight per core, see [`IN_FLIGHT_PER_CORE_MAX`].
    pub in_flight_per_core: u32,
    /// Bytes in buffers, whole process, see [`BUFFERED_BYTES_MAX`].
    pub buffered_bytes: u64,
    /// TLS handshakes in flight per core, see [`HANDSHAKES_PER_CORE_MAX`].
    pub handshakes_per_core: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            connections_per_source: CONNECTIONS_PER_SOURCE_MAX,
            in_flight_per_core: IN_FLIGHT_PER_CORE_MAX,
            buffered_bytes: BUFFERED_BYTES_MAX,
            handshakes_per_core: HANDSHAKES_PER_CORE_MAX,
        }
    }
}

/// The phases between SIGTERM and the end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSettings {
    /// See [`DRAIN_SETTLE`].
    pub settle: Duration,
    /// See [`DRAIN_TIMEOUT`].
    pub timeout: Duration,
}

/// A new process of the program in place of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpgradeSettings {
    /// See [`UPGRADE_TIMEOUT`].
    pub timeout: Duration,
}

impl Default for UpgradeSettings {
    fn default() -> Self {
        Self { timeout: UPGRADE_TIMEOUT }
    }
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self { settle: DRAIN_SETTLE, timeout: DRAIN_TIMEOUT }
    }
}

const _: () = assert!(OUTPUT_LOW_WATER_BYTES < OUTPUT_HIGH_WATER_BYTES);
const _: () = assert!(OUTPUT_HIGH_WATER_BYTES <= OUTPUT_HARD_CAP_BYTES);
const _: () = assert!(OUTPUT_HARD_CAP_BYTES <= BUFFERED_BYTES_MAX);
const _: () = assert!(CONNECTIONS_PER_SOURCE_MAX <= CONNECTIONS_MAX);
