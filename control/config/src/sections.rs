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
    /// One file holds everything. An unknown key is an error, so a mistyped or removed one never goes unnoticed.
    pub(crate) struct FileSection {
        /// Worker threads and their buffers.
        table runtime: RuntimeSection;
        /// The HTTP server for probes, metrics and the API.
        table admin: AdminSection;
        /// Limits of the whole process.
        table limits: LimitsSection;
        /// The time between SIGTERM and the end of the process.
        table drain: DrainSection;
        /// A new process of the program in place of this one.
        table upgrade: UpgradeSection;
        /// Metrics and logs.
        table telemetry: TelemetrySection;
        /// Where clients connect to.
        tables listener: ListenerSection;
        /// Where their requests go.
        tables upstream: UpstreamSection;
        include own: FileKeys;
    }
}

section! {
    /// Worker threads. They are laid out once, so a change needs a restart.
    pub(crate) struct RuntimeSection {
        /// Worker threads, one connection lives on one of them. Absent: as many as the cores this process may use
        /// (affinity mask and CPU quota).
        optional workers: u32 => 1..=1_024;
        /// Kernel interface: `auto` takes io_uring where the kernel allows it and polling elsewhere.
        default driver: DriverChoice = DriverChoice::Auto;
        /// Bind each worker to one core. Turn it off where another scheduler owns the cores.
        default pin: bool = true;
        /// About the latency that a busy worker may add to the median request of Redis so that requests gather, and one write to the
        /// server carries several. Half of it is the pause of a worker if 20 clients or more begin requests, and two of them or more
        /// meanwhile. With 10 clients or more that wait for replies, of Redis or PostgreSQL, the pause grows with their number, or with
        /// the time to a reply. No pause is longer than 400 us or three budgets. It stops the whole worker. `0s` turns all pauses off.
        default latency_budget: Period = Period(engine::LATENCY_BUDGET) => Period::secs(0)..=Period::millis(1);
    }
}

section! {
    /// The HTTP server for probes (`/livez`, `/readyz`, `/startupz`), `/metrics` and `/api/v1`.
    pub(crate) struct AdminSection {
        /// IP address and port. Anything but a loopback address needs `token`.
        default bind: AdminBind = AdminBind(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT));
        /// Bearer token for `/metrics` and `/api`, at least 16 visible ASCII characters. Absent: no token is required.
        optional token: SecretRef;
        /// Names that a `Host` header may carry on a loopback `bind`, besides `localhost` and loopback addresses: what a
        /// reverse proxy on this machine sends. Without port.
        optional hosts: Vec<At<Word>>;
    }
}

section! {
    /// Limits of the whole process. Beyond one, the client gets the refusal of its protocol and a counter moves.
    pub(crate) struct LimitsSection {
        /// Client connections. Each needs up to two descriptors; the descriptor limit is raised at start as far as the
        /// system allows.
        default connections: u32 = listening::CONNECTIONS_MAX => 1..=COUNT_MAX;
        /// Client connections from one source address.
        default connections_per_source: u32 = listening::CONNECTIONS_PER_SOURCE_MAX => 1..=COUNT_MAX;
        /// Exchanges in flight per worker, each counted to the end of its reply.
        default in_flight_per_core: u32 = listening::IN_FLIGHT_PER_CORE_MAX => 1..=COUNT_MAX;
        /// Bytes held in buffers by the whole process. Absent: 1GiB, or a quarter of the memory limit (of the machine or
        /// of the container) if that is less.
        optional buffered_bytes: ByteSize => ByteSize::mib(4)..=ByteSize::mib(1 << 20);
        /// TLS handshakes in flight per worker. Further ones wait within their `handshake_timeout`; the wait begins with the whole
        /// client hello, or 16 KiB of it.
        default handshakes_per_core: u32 = listening::HANDSHAKES_PER_CORE_MAX => 1..=65_536;
    }
}

section! {
    /// SIGTERM: readiness turns false, `settle` passes, accepting stops, exchanges finish within `timeout`.
    pub(crate) struct DrainSection {
        /// How long connections are still accepted while readiness is already false, so that balancers notice.
        default settle: Period = Period(listening::DRAIN_SETTLE) => Period::secs(0)..=Period::secs(600);
        /// How long exchanges may take to finish after that; what is left is cut and counted. Keep `settle` + `timeout`
        /// under the grace period of the process manager.
        default timeout: Period = Period(listening::DRAIN_TIMEOUT) => Period::secs(0)..=PATH_PERIOD_MAX;
    }
}

section! {
    /// SIGUSR2 or `weir upgrade`: the program is started again and takes the listening sockets; this process then drains within
    /// `drain.timeout`, without `drain.settle`.
    pub(crate) struct UpgradeSection {
        /// How long the new process may take until it serves. After that it is killed, and this one goes on.
        default timeout: Period = Period(listening::UPGRADE_TIMEOUT) => Period::secs(1)..=Period::secs(300);
    }
}

section! {
    /// Metrics and logs.
    pub(crate) struct TelemetrySection {
        /// Content of `/metrics`: `off` (gauges only), `counters`, or `full` (also latency histograms and stages, which are
        /// measured at this level only). The admin API has the counters at every level. With `off` at the start of the process
        /// it keeps no hot keys, big keys and slow log until the next start.
        default level: Level = Level::Full;
        /// Share of exchanges whose stages (parse, policy, lane wait, encode, write) are timed one by one.
        default stage_sample: Ratio = Ratio(STAGE_SAMPLE);
        /// Least severity of the program's own log. The environment variable `WEIR_LOG` wins.
        default log_level: LogLevel = LogLevel::Info;
        /// Form of the program's own log.
        default log_format: LogFormat = LogFormat::Text;
        /// One line per sampled exchange.
        table access_log: AccessLogSection;
        include own: TelemetryKeys;
    }
}

section! {
    /// A bound address with its protocol. There is at least one.
    pub(crate) struct ListenerSection [name = name] {
        /// Unique among listeners; a label of metrics.
        required name: Name;
        /// IP address and port, or `unix:/path`. Port 0 lets the kernel choose.
        required bind: Bind;
        /// Let another process listen at `bind` too: the kernel gives each a share of the connections. Both processes need it.
        /// Without it a gateway does not start where somebody listens already. Workers of one process, a reload and an
        /// upgrade do not need it.
        default reuse_port: bool = false;
        /// The protocol spoken on it.
        required protocol: ProtocolName;
        /// Name of the upstream that requests go to.
        required upstream: Name;
        /// Connections on this listener. Absent: as `limits.connections`.
        optional connections_max: u32 => 1..=COUNT_MAX;
        /// Connections on this listener from one source address. Absent: as `limits.connections_per_source`.
        optional connections_per_source_max: u32 => 1..=COUNT_MAX;
        /// Whether a PROXY protocol header comes first. If not `off` it is mandatory: guessing would let a client
        /// forge its own address.
        default proxy_protocol: ProxyProtocol = ProxyProtocol::Off;
        /// Networks whose PROXY headers are accepted; other peers are closed. Absent: those of every peer, for an
        /// address that only balancers can reach.
        optional proxy_trusted: Vec<At<Net>>;
        /// Connections that the kernel holds until they are accepted; it cuts this to `net.core.somaxconn`.
        default backlog: u32 = listening::BACKLOG => 1..=65_535;
        /// Output waiting for one client at which reading from it stops.
        default output_high_water: ByteSize = ByteSize::new(listening::OUTPUT_HIGH_WATER_BYTES) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Output waiting for one client at which reading from it starts again; below `output_high_water`. Absent: a
        /// quarter of it.
        optional output_low_water: ByteSize => ByteSize::kib(1)..=ByteSize::mib(1_024);
        /// From the first byte of a message to the end of its head; progress does not extend it.
        default head_timeout: Period = Period(listening::HEAD_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// A connection without any exchange is closed after this. Absent: never, since connection pools take a close
        /// for an error; of TCP and TLS listeners 10 min.
        optional idle_timeout: Period => Period::millis(100)..=Period::secs(30 * 86_400);
        /// How long a connection may stay open after one direction was closed, and the other is silent.
        default half_close_timeout: Period = Period(listening::HALF_CLOSE_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Share of exchanges in the access log. Absent: as `telemetry.access_log.sample`.
        optional access_log_sample: Ratio;
        /// Result of `weir lab knee --json`, found with as many CPUs as there are workers: how much this listener
        /// carries. Read at start and at a reload only. A relative path starts at this file's directory. Absent: the knee
        /// is not known.
        optional knee: KneeFile;
        /// Share of the knee from which the load is warned about, above 0.0.
        default knee_warn: Ratio = Ratio(KNEE_WARN);
        /// The action at the knee: `observe` (report only), `unready` (`/readyz` fails until the load has fallen) or
        /// `shed` (each worker refuses what is beyond its share; Redis listeners only).
        default knee_action: KneeAction = KneeAction::Observe;
        /// TLS towards clients. Absent: clear text.
        optional_table tls: ListenerTlsSection;
        include own: ListenerKeys;
    }
}

section! {
    /// TLS 1.2 and 1.3 towards clients. Renewed files are picked up by a reload.
    pub(crate) struct ListenerTlsSection {
        /// The certificate of this listener and then its chain. A relative path starts at this file's directory.
        required cert_file: PemFile<Certificates>;
        /// The private key that belongs to it. Others must not be able to read it.
        required key_file: PemFile<PrivateKey>;
        /// Whether clients must show a certificate (mutual TLS): `off`, `optional` (one that is shown must be good) or
        /// `required`.
        default client_auth: ClientAuth = ClientAuth::Off;
        /// Authorities that client certificates must chain to.
        optional client_ca_file: PemFile<Certificates>;
        /// From the accepted connection to the finished handshake. A client that has waited for its turn has up to 1 s more.
        default handshake_timeout: Period = Period(engine::TLS_HANDSHAKE_TIMEOUT) => Period::millis(100)..=Period::secs(60);
        /// Certificates for clients that ask for one of their names (SNI). Others get that of `cert_file`.
        tables certificate: CertificateSection;
        /// Application protocols (ALPN), most wanted first. Absent: `["h2", "http/1.1"]` for HTTP, and none for Redis, which is
        /// what its clients expect.
        optional alpn: Vec<At<Word>>;
    }
}

section! {
    /// A certificate for some names.
    pub(crate) struct CertificateSection {
        /// `a.example`, or `*.example` for all names that end so. Absent: the names in the certificate.
        optional names: Vec<At<Word>>;
        /// The certificate and then its chain. A relative path starts at this file's directory.
        required cert_file: PemFile<Certificates>;
        /// The private key that belongs to it. Others must not be able to read it.
        required key_file: PemFile<PrivateKey>;
    }
}

section! {
    /// A server that requests go to.
    pub(crate) struct UpstreamSection [name = name] {
        /// Unique among upstreams; a label of metrics.
        required name: Name;
        /// `host:port` or `unix:/path`. A host name is resolved at a connect if its last result is over 5 s old. Several are
        /// shards, each with a part of the keys, and need `sharding`, unless `topology` says what they are.
        required endpoints: Vec<At<Endpoint>>;
        /// To connect, name resolution included.
        default connect_timeout: Period = Period(upstreams::CONNECT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        include own: UpstreamKeys;
        /// Clients per worker that may wait for a pinned lane; further ones are refused at once, and so are those that
        /// have one already. PostgreSQL: per pool and worker, and absent, as many as there are clients.
        default lane_waiters_max: u32 = upstreams::LANE_WAITERS_MAX => 0..=COUNT_MAX;
        /// How long one waits for a lane.
        default lane_wait_timeout: Period = Period(upstreams::LANE_WAIT_TIMEOUT) => Period::secs(0)..=Period::secs(600);
        /// TLS towards the endpoints. Absent: clear text.
        optional_table tls: UpstreamTlsSection;
        /// Active health checks.
        table health: HealthSection;
        /// Refuse at once while an endpoint keeps failing.
        table breaker: BreakerSection;
    }
}

section! {
    /// TLS towards an upstream. An empty table is enough where the server's certificate is from a public authority.
    pub(crate) struct UpstreamTlsSection {
        /// Authorities that the server must chain to. Absent: the bundle of the platform (package `ca-certificates`).
        optional ca_file: PemFile<Certificates>;
        /// Our own certificate and then its chain, for mutual TLS; together with `key_file`.
        optional cert_file: PemFile<Certificates>;
        /// The private key of `cert_file`. Others must not be able to read it.
        optional key_file: PemFile<PrivateKey>;
        /// Name that the server's certificate must carry, also sent as SNI. Absent: the host of the endpoint.
        optional server_name: Word;
        /// Accept whatever certificate the server shows. For tests only: anyone on the path can read the traffic.
        default insecure_skip_verify: bool = false;
        /// From the connected socket to the finished handshake.
        default handshake_timeout: Period = Period(engine::TLS_HANDSHAKE_TIMEOUT) => Period::millis(100)..=Period::secs(60);
    }
}

section! {
    /// Active health checks; for Redis a PING on a connection of its own.
    pub(crate) struct HealthSection {
        /// Off: only what traffic shows counts.
        default enabled: bool = true;
        /// Between two checks.
        default interval: Period = Period(upstreams::HEALTH_INTERVAL) => Period::millis(10)..=PATH_PERIOD_MAX;
        /// For one check, connect included; not above `interval`.
        default timeout: Period = Period(upstreams::HEALTH_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Failed checks in a row that make an endpoint unhealthy.
        default unhealthy_after: u32 = upstreams::HEALTH_UNHEALTHY_AFTER => 1..=1_000;
        /// Good checks in a row that make it healthy again.
        default healthy_after: u32 = upstreams::HEALTH_HEALTHY_AFTER => 1..=1_000;
    }
}

section! {
    /// Refuse at once while an endpoint keeps failing. An error reply of the server is no failure.
    pub(crate) struct BreakerSection {
        /// Failures within `window` that open it.
        default failures: u32 = upstreams::BREAKER_FAILURES => 1..=100_000;
        /// The window in which failures count.
        default window: Period = Period(upstreams::BREAKER_WINDOW) => Period::millis(10)..=PATH_PERIOD_MAX;
        /// How long it refuses before it lets one attempt through.
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
