//! The keys of `weir.toml` that are common to all protocols. Each key once: type, default, range, meaning. The keys of one
//! protocol are in its folder of `protocols`, and are included here.
//!
//! The text above a key is the documentation that users read, in the reference page and in their editors. Defaults come
//! from the crates that use them.

use std::net::{Ipv4Addr, SocketAddr};

use weir_base::{ByteSize, Net};
use weir_engine::settings as engine;
use weir_engine::settings::{ClientAuth, DriverChoice};
use weir_listener::settings as listening;
use weir_listener::settings::ProxyProtocol;
use weir_telemetry::Level;
use weir_upstream::settings as upstreams;

use crate::access_log::AccessLogSection;
use crate::document::At;
use crate::knee::KneeFile;
use crate::numbers::{Period, Ratio};
use crate::pem::{Certificates, PemFile, PrivateKey};
use crate::protocols::{FileKeys, ListenerKeys, ProtocolName, TelemetryKeys, UpstreamKeys};
use crate::secret::SecretRef;
use crate::section::section;
use crate::snapshot::{ADMIN_PORT, KNEE_WARN, KneeAction, LogFormat, LogLevel, STAGE_SAMPLE};
use crate::texts::{AdminBind, Bind, Choice, Endpoint, Name, Word};

/// Highest number that a count may have; far above every sensible one, far below an overflow.
pub(crate) const COUNT_MAX: u32 = 16_777_216;
/// Longest duration of the data path.
pub(crate) const PATH_PERIOD_MAX: Period = Period::secs(3_600);
/// Shortest deadline: below it every exchange of a busy machine would miss it.
pub(crate) const DEADLINE_MIN: Period = Period::millis(1);

section! {
    /// The configuration file. An unknown key is an error, so that a mistyped or removed key never goes unnoticed.
    pub(crate) struct FileSection {
        /// Worker threads and their kernel interface.
        table runtime: RuntimeSection;
        /// The HTTP server for probes, metrics and the API.
        table admin: AdminSection;
        /// Limits of the whole process.
        table limits: LimitsSection;
        /// The phases of a drain, from SIGTERM to the end of the process.
        table drain: DrainSection;
        /// Replacement of the running process by a new process of the program.
        table upgrade: UpgradeSection;
        /// Metrics and logs.
        table telemetry: TelemetrySection;
        /// Addresses that clients connect to.
        tables listener: ListenerSection;
        /// Servers that the gateway forwards requests to.
        tables upstream: UpstreamSection;
        include own: FileKeys;
    }
}

section! {
    /// Worker threads. They are created at start, so a change needs a restart.
    pub(crate) struct RuntimeSection {
        /// Number of worker threads. Each connection belongs to one worker. If absent, the number of cores that the process may use
        /// (affinity mask and CPU quota).
        optional workers: u32 => 1..=1_024;
        /// Kernel interface for network I/O: `auto` uses io_uring where the kernel allows it, and polling (epoll) elsewhere.
        default driver: DriverChoice = DriverChoice::Auto;
        /// Bind each worker thread to one core. Set `false` if another scheduler assigns the cores.
        default pin: bool = true;
        /// Approximate latency that a busy worker may add to the median Redis request, so that one write to the server carries
        /// several requests. If at least 20 clients send requests, and at least two requests are expected during the pause, the
        /// worker pauses for half of the budget. If at least 10 clients wait for replies from Redis or PostgreSQL, the pause grows
        /// with their number or with the time to a reply. A pause stops the whole worker, and is never longer than 400 us or three
        /// budgets. `0s` disables all pauses.
        default latency_budget: Period = Period(engine::LATENCY_BUDGET) => Period::secs(0)..=Period::millis(1);
    }
}

section! {
    /// The HTTP server for probes (`/livez`, `/readyz`, `/startupz`), `/metrics` and `/api/v1`.
    pub(crate) struct AdminSection {
        /// IP address and port. An address that is not a loopback address requires `token`.
        default bind: AdminBind = AdminBind(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT));
        /// Bearer token for `/metrics` and `/api`, at least 16 visible ASCII characters. If absent, no token is required.
        optional token: SecretRef;
        /// Host names (without port) that a reverse proxy on this machine sends in the `Host` header. With a loopback `bind`, only
        /// these names, `localhost` and loopback addresses are accepted.
        optional hosts: Vec<At<Word>>;
    }
}

section! {
    /// Limits of the whole process. Above a limit, clients are refused in the form of their protocol, and the refusal is counted.
    pub(crate) struct LimitsSection {
        /// Maximum client connections. Each connection needs up to two descriptors; at start, the gateway raises its descriptor
        /// limit as far as the system allows.
        default connections: u32 = listening::CONNECTIONS_MAX => 1..=COUNT_MAX;
        /// Maximum client connections from one source address.
        default connections_per_source: u32 = listening::CONNECTIONS_PER_SOURCE_MAX => 1..=COUNT_MAX;
        /// Maximum requests in flight per worker, each counted until the end of its response.
        default in_flight_per_core: u32 = listening::IN_FLIGHT_PER_CORE_MAX => 1..=COUNT_MAX;
        /// Maximum size of all buffers of the process. If absent, 1GiB, or a quarter of the memory limit (of the machine or
        /// container) if that is less.
        optional buffered_bytes: ByteSize => ByteSize::mib(4)..=ByteSize::mib(1 << 20);
        /// Maximum TLS handshakes in progress per worker. Further clients wait within their `handshake_timeout`, once they have
        /// sent their whole client hello or 16 KiB of it.
        default handshakes_per_core: u32 = listening::HANDSHAKES_PER_CORE_MAX => 1..=65_536;
    }
}

section! {
    /// Drain after SIGTERM: readiness becomes false, `settle` passes, accepting stops, and requests finish within `timeout`.
    pub(crate) struct DrainSection {
        /// How long the gateway still accepts connections after readiness has become false, so that load balancers react.
        default settle: Period = Period(listening::DRAIN_SETTLE) => Period::secs(0)..=Period::secs(600);
        /// How long requests may take to finish after `settle`. Remaining connections are then closed and counted. Keep `settle` +
        /// `timeout` below the grace period of the process manager.
        default timeout: Period = Period(listening::DRAIN_TIMEOUT) => Period::secs(0)..=PATH_PERIOD_MAX;
    }
}

section! {
    /// Upgrade after SIGUSR2 or `weir upgrade`: a new process of the program takes the listening sockets. The old process then
    /// drains within `drain.timeout`, without `drain.settle`.
    pub(crate) struct UpgradeSection {
        /// How long the new process may take until it serves. Then the old process kills it and goes on serving.
        default timeout: Period = Period(listening::UPGRADE_TIMEOUT) => Period::secs(1)..=Period::secs(300);
    }
}

section! {
    /// Metrics and logs.
    pub(crate) struct TelemetrySection {
        /// Content of `/metrics`: `off` (gauges only), `counters`, or `full` (also histograms of latency and request stages, which
        /// only this level measures). The admin API has the counters at every level. A process that starts with `off` records no
        /// hot keys, big keys and slow log until the next start.
        default level: Level = Level::Full;
        /// Share of requests for which each stage (parse, policy, lane wait, encode, write) is timed separately.
        default stage_sample: Ratio = Ratio(STAGE_SAMPLE);
        /// Lowest severity in the program's own log. The environment variable `WEIR_LOG` overrides this key.
        default log_level: LogLevel = LogLevel::Info;
        /// Format of the program's own log.
        default log_format: LogFormat = LogFormat::Text;
        /// The access log, with one line per request (TCP and TLS: per connection; PostgreSQL: each time that a client returns its
        /// server connection).
        table access_log: AccessLogSection;
        include own: TelemetryKeys;
    }
}

section! {
    /// An address that clients connect to, with its protocol. At least one is required.
    pub(crate) struct ListenerSection [name = name] {
        /// Unique name of the listener; a label of metrics.
        required name: Name;
        /// IP address and port, or `unix:/path`. With port 0, the kernel chooses a port.
        required bind: Bind;
        /// Allow other processes to listen at `bind` too; the kernel gives each process a share of the connections. All these
        /// processes must set this key. Without it, the gateway does not start if another process listens there. Not needed for
        /// several workers, a reload or an upgrade.
        default reuse_port: bool = false;
        /// Protocol of the clients.
        required protocol: ProtocolName;
        /// Name of the upstream that requests go to. Required, except for a flags listener with `bootstrap_file`.
        optional upstream: Name;
        /// Maximum connections on this listener. If absent, `limits.connections`.
        optional connections_max: u32 => 1..=COUNT_MAX;
        /// Maximum connections on this listener from one source address. If absent, `limits.connections_per_source`.
        optional connections_per_source_max: u32 => 1..=COUNT_MAX;
        /// Version of the PROXY protocol header that begins each connection, `any` version, or `off` for no header. The header is
        /// mandatory unless `off`: otherwise a client could forge its own address.
        default proxy_protocol: ProxyProtocol = ProxyProtocol::Off;
        /// Networks whose PROXY headers are accepted; other peers are disconnected. If absent, headers of all peers are accepted,
        /// which is safe only if no client can reach the address directly.
        optional proxy_trusted: Vec<At<Net>>;
        /// Maximum connections that the kernel holds until the gateway accepts them. The kernel limits this to
        /// `net.core.somaxconn`.
        default backlog: u32 = listening::BACKLOG => 1..=65_535;
        /// Unsent output of one client at which the gateway stops reading data for this client.
        default output_high_water: ByteSize = ByteSize::new(listening::OUTPUT_HIGH_WATER_BYTES) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Unsent output of one client at which reading for this client starts again; less than `output_high_water`. If absent, a
        /// quarter of `output_high_water`.
        optional output_low_water: ByteSize => ByteSize::kib(1)..=ByteSize::mib(1_024);
        /// Maximum time from the first byte of a request or command to the end of its head. Progress does not extend it.
        default head_timeout: Period = Period(listening::HEAD_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Time after which an idle connection is closed. If absent, Redis connections stay open, because connection pools treat a
        /// close as an error. TCP and TLS listeners use 10 min, HTTP listeners `keep_alive_timeout`, AI listeners 75 s.
        optional idle_timeout: Period => Period::millis(100)..=Period::secs(30 * 86_400);
        /// Maximum silence on a connection after one side has closed its sending direction. Then the connection is closed. For Redis, TCP
        /// and TLS, and for HTTP with `half_close`.
        default half_close_timeout: Period = Period(listening::HALF_CLOSE_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Share of the access log lines of this listener that are written. If absent, `telemetry.access_log.sample`.
        optional access_log_sample: Ratio;
        /// File with a result of `weir lab knee --json`: the load that this listener can carry, measured with as many CPUs as there
        /// are workers. Read only at start and at a reload. A relative path starts at the configuration file's directory. If
        /// absent, the knee is unknown.
        optional knee: KneeFile;
        /// Share of the knee at which the gateway warns about the load, above 0.0.
        default knee_warn: Ratio = Ratio(KNEE_WARN);
        /// Action at the knee: `observe` only reports it, `unready` makes `/readyz` fail until the load has fallen, `shed` makes
        /// each worker refuse requests beyond its share (Redis listeners only).
        default knee_action: KneeAction = KneeAction::Observe;
        /// TLS to clients. If absent, connections use clear text.
        optional_table tls: ListenerTlsSection;
        include own: ListenerKeys;
    }
}

section! {
    /// TLS 1.2 and 1.3 to clients. A reload reads renewed files.
    pub(crate) struct ListenerTlsSection {
        /// Certificate of this listener, followed by its chain. A relative path starts at the configuration file's directory.
        required cert_file: PemFile<Certificates>;
        /// Private key of `cert_file`. Must not be readable for other users.
        required key_file: PemFile<PrivateKey>;
        /// Whether clients must present a certificate (mutual TLS): `off`, `optional` (a presented certificate must be valid) or
        /// `required`.
        default client_auth: ClientAuth = ClientAuth::Off;
        /// Certificate authorities that client certificates must chain to.
        optional client_ca_file: PemFile<Certificates>;
        /// Maximum time from the accepted connection to the end of the TLS handshake. Clients that waited because of
        /// `limits.handshakes_per_core` have up to 1 s more.
        default handshake_timeout: Period = Period(engine::TLS_HANDSHAKE_TIMEOUT) => Period::millis(100)..=Period::secs(60);
        /// Certificates for clients that request one of their names (SNI). Other clients get `cert_file`.
        tables certificate: CertificateSection;
        /// Application protocols (ALPN), in order of preference. If absent, `["h2", "http/1.1"]` for HTTP, AI and flags, `["postgresql"]`
        /// for PostgreSQL, and none for Redis, MongoDB and TCP.
        optional alpn: Vec<At<Word>>;
    }
}

section! {
    /// A certificate for certain host names.
    pub(crate) struct CertificateSection {
        /// `a.example`, or `*.example` for all names below it. If absent, the names in the certificate.
        optional names: Vec<At<Word>>;
        /// Certificate, followed by its chain. A relative path starts at the configuration file's directory.
        required cert_file: PemFile<Certificates>;
        /// Private key of `cert_file`. Must not be readable for other users.
        required key_file: PemFile<PrivateKey>;
    }
}

section! {
    /// One or several servers that requests go to.
    pub(crate) struct UpstreamSection [name = name] {
        /// Unique name of the upstream; a label of metrics.
        required name: Name;
        /// `host:port` or `unix:/path`. Before a connect, a host name is resolved again if the last result is over 5 s old. Several
        /// Redis endpoints are shards, each with a part of the keys, and need `sharding`, unless `topology` defines them.
        required endpoints: Vec<At<Endpoint>>;
        /// Maximum time to connect to an endpoint, including name resolution.
        default connect_timeout: Period = Period(upstreams::CONNECT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        include own: UpstreamKeys;
        /// Maximum clients per worker that wait for a dedicated connection (pinned lane); further clients are refused at once.
        /// While no dedicated connection is free, a client that already has one is refused too. HTTP and TCP: requests per worker
        /// and endpoint. PostgreSQL and MongoDB: clients per worker and pool, by default unlimited.
        default lane_waiters_max: u32 = upstreams::LANE_WAITERS_MAX => 0..=COUNT_MAX;
        /// Maximum time that a client waits for an upstream connection (a lane).
        default lane_wait_timeout: Period = Period(upstreams::LANE_WAIT_TIMEOUT) => Period::secs(0)..=Period::secs(600);
        /// TLS to the endpoints. If absent, connections use clear text.
        optional_table tls: UpstreamTlsSection;
        /// Active health checks.
        table health: HealthSection;
        /// Circuit breaker for endpoints whose connections keep failing.
        table breaker: BreakerSection;
    }
}

section! {
    /// TLS to an upstream. An empty table is enough if a public authority issued the server's certificate.
    pub(crate) struct UpstreamTlsSection {
        /// Certificate authorities that the server certificate must chain to. If absent, the bundle of the operating system
        /// (package `ca-certificates`).
        optional ca_file: PemFile<Certificates>;
        /// Certificate of the gateway, followed by its chain, for mutual TLS. Requires `key_file`.
        optional cert_file: PemFile<Certificates>;
        /// Private key of `cert_file`. Must not be readable for other users.
        optional key_file: PemFile<PrivateKey>;
        /// Name that the server certificate must contain, also sent as SNI. If absent, the host of the endpoint.
        optional server_name: Word;
        /// Accept any server certificate. For tests only: anyone on the network path can read the traffic.
        default insecure_skip_verify: bool = false;
        /// Maximum time from the established connection to the end of the TLS handshake.
        default handshake_timeout: Period = Period(engine::TLS_HANDSHAKE_TIMEOUT) => Period::millis(100)..=Period::secs(60);
    }
}

section! {
    /// Active health checks. For Redis, a check is a PING on a separate connection.
    pub(crate) struct HealthSection {
        /// If `false`, only the traffic of clients shows failures.
        default enabled: bool = true;
        /// Time between two checks.
        default interval: Period = Period(upstreams::HEALTH_INTERVAL) => Period::millis(10)..=PATH_PERIOD_MAX;
        /// Maximum time for one check, including the connect. Must not exceed `interval`.
        default timeout: Period = Period(upstreams::HEALTH_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Consecutive failed checks after which an endpoint is unhealthy.
        default unhealthy_after: u32 = upstreams::HEALTH_UNHEALTHY_AFTER => 1..=1_000;
        /// Consecutive successful checks after which an unhealthy endpoint is healthy again.
        default healthy_after: u32 = upstreams::HEALTH_HEALTHY_AFTER => 1..=1_000;
    }
}

section! {
    /// Circuit breaker of each endpoint. While connections to the endpoint keep failing, requests are refused at once or go to
    /// other endpoints. An error reply of the server is not a failure.
    pub(crate) struct BreakerSection {
        /// Failed or lost connections within `window` that open the breaker.
        default failures: u32 = upstreams::BREAKER_FAILURES => 1..=100_000;
        /// Time window in which failures are counted.
        default window: Period = Period(upstreams::BREAKER_WINDOW) => Period::millis(10)..=PATH_PERIOD_MAX;
        /// Time until an open breaker permits one connection attempt.
        default open_for: Period = Period(upstreams::BREAKER_OPEN_FOR) => Period::millis(10)..=PATH_PERIOD_MAX;
    }
}

impl Choice for DriverChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("io_uring", Self::IoUring), ("polling", Self::Polling)];
}

impl Choice for ClientAuth {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("optional", Self::Optional), ("required", Self::Required)];
}

impl Choice for ProxyProtocol {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("v1", Self::V1), ("v2", Self::V2), ("any", Self::Any)];
}

impl Choice for KneeAction {
    const WORDS: &'static [(&'static str, Self)] =
        &[("observe", Self::Observe), ("unready", Self::Unready), ("shed", Self::Shed)];
}

impl Choice for Level {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("counters", Self::Counters), ("full", Self::Full)];
}

impl Choice for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

impl Choice for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}
