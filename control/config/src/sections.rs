//! What may stand in `weir.toml`. Each key once: type, default, range, meaning.
//!
//! The text above a key is the documentation that users read, in the reference page and in their editors. Defaults come
//! from the crates that use them.

use std::net::{Ipv4Addr, SocketAddr};

use weir_base::{ByteSize, Net};
use weir_engine::settings as engine;
use weir_engine::settings::{ClientAuth, DriverChoice};
use weir_listener::settings as listening;
use weir_listener::settings::{Protocol, ProxyProtocol};
use weir_redis_session::settings as redis;
use weir_redis_session::settings::UnknownCommands;
use weir_telemetry::Level;
use weir_upstream::placement::{Distribution, KeyHash};
use weir_upstream::settings as upstreams;
use weir_upstream::settings::ReadFrom;

use crate::access_log::AccessLogSection;
use crate::document::At;
use crate::domain::DomainSection;
use crate::http::{ListenerHttpSection, UpstreamHttpSection};
use crate::insight::{KeysSection, SlowLogSection};
use crate::knee::KneeFile;
use crate::numbers::{Period, Ratio};
use crate::pem::{Certificates, PemFile, PrivateKey};
use crate::route::{InvalidRoutes, RouteSection};
use crate::rules::{Rules, UsersFile};
use crate::secret::SecretRef;
use crate::section::section;
use crate::snapshot::{ADMIN_PORT, KNEE_WARN, KneeAction, LogFormat, LogLevel, STAGE_SAMPLE};
use crate::tcp::{ServerNameSection, UpstreamTcpSection};
use crate::texts::{AdminBind, Bind, Choice, Endpoint, Name, Tag, Word};

/// Highest number that a count may have; far above every sensible one, far below an overflow.
const COUNT_MAX: u32 = 16_777_216;
/// Longest duration of the data path.
const PATH_PERIOD_MAX: Period = Period::secs(3_600);
/// Shortest deadline: below it every exchange of a busy machine would miss it.
const DEADLINE_MIN: Period = Period::millis(1);

section! {
    /// One file holds everything. An unknown key is an error, so a mistyped or removed one never goes unnoticed.
    pub(crate) struct FileSection {
        /// What becomes of a `[[route]]` with a mistake in what it does: `refuse` the whole file, or leave the route out
        /// (`unavailable`): its requests are answered 503, and the rest serves. A mistake in which requests it takes always
        /// refuses the file. `weir check` tells of both.
        default invalid_routes: InvalidRoutes = InvalidRoutes::Refuse;
        /// Worker threads and their buffers.
        table runtime: RuntimeSection;
        /// The HTTP server for probes, metrics and the API.
        table admin: AdminSection;
        /// Limits of the whole process.
        table limits: LimitsSection;
        /// What happens between SIGTERM and the end.
        table drain: DrainSection;
        /// A new process of the program in place of this one.
        table upgrade: UpgradeSection;
        /// Metrics and logs.
        table telemetry: TelemetrySection;
        /// Where clients connect to.
        tables listener: ListenerSection;
        /// Where their requests go.
        tables upstream: UpstreamSection;
        /// What the routes of some hosts have in common.
        tables domain: DomainSection;
        /// Which requests of HTTP listeners go elsewhere.
        tables route: RouteSection;
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
        /// The longest pause in which a busy worker lets requests gather: 3 us per client that waits for a reply, from 10
        /// clients on. `0s` turns it off.
        default coalesce: Period = Period(engine::COALESCE) => Period::secs(0)..=Period::millis(1);
    }
}

section! {
    /// The HTTP server for probes (`/livez`, `/readyz`, `/startupz`), `/metrics` and `/api/v1`.
    pub(crate) struct AdminSection {
        /// IP address and port. Anything but a loopback address needs `token`.
        default bind: AdminBind = AdminBind(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), ADMIN_PORT));
        /// Bearer token for `/metrics` and `/api`, at least 16 visible ASCII characters. Absent: no token is asked for.
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
        /// TLS handshakes in flight per worker; further ones wait, no longer than their `handshake_timeout`.
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
    /// SIGUSR2 or `weir upgrade`: the program is started anew and takes the listening sockets; this process then drains within
    /// `drain.timeout`, without `drain.settle`.
    pub(crate) struct UpgradeSection {
        /// How long the new process may take until it serves. After that it is killed, and this one goes on.
        default timeout: Period = Period(listening::UPGRADE_TIMEOUT) => Period::secs(1)..=Period::secs(300);
    }
}

section! {
    /// Metrics and logs. Cells, log and access log are set up once, so a change needs a restart.
    pub(crate) struct TelemetrySection {
        /// What is measured: `off` (gauges only), `counters`, or `full` (also latency histograms and stages).
        default level: Level = Level::Full;
        /// Share of exchanges whose stages (parse, policy, lane wait, encode, write) are timed one by one.
        default stage_sample: Ratio = Ratio(STAGE_SAMPLE);
        /// Least severity of the program's own log.
        default log_level: LogLevel = LogLevel::Info;
        /// Form of the program's own log.
        default log_format: LogFormat = LogFormat::Text;
        /// One line per sampled exchange.
        table access_log: AccessLogSection;
        /// Hot and big keys.
        table keys: KeysSection;
        /// Slow requests.
        table slow_log: SlowLogSection;
    }
}

section! {
    /// A bound address with its protocol. There is at least one.
    pub(crate) struct ListenerSection [name = name] {
        /// Unique among listeners; a label of metrics.
        required name: Name;
        /// IP address and port, or `unix:/path`. Port 0 lets the kernel choose.
        required bind: Bind;
        /// The protocol spoken on it.
        required protocol: Protocol;
        /// Name of the upstream that requests go to.
        required upstream: Name;
        /// Connections on this listener. Absent: as `limits.connections`.
        optional connections_max: u32 => 1..=COUNT_MAX;
        /// Connections on this listener from one source address. Absent: as `limits.connections_per_source`.
        optional connections_per_source_max: u32 => 1..=COUNT_MAX;
        /// Whether a PROXY protocol header comes first. If not `off` it is mandatory: guessing would let a client
        /// forge its own address.
        default proxy_protocol: ProxyProtocol = ProxyProtocol::Off;
        /// Networks whose PROXY headers are believed; other peers are closed. Absent: every peer is believed, for an
        /// address that only balancers can reach.
        optional proxy_trusted: Vec<At<Net>>;
        /// Connections that the kernel holds until they are accepted; it cuts this to `net.core.somaxconn`.
        default backlog: u32 = listening::BACKLOG => 1..=65_535;
        /// Output waiting for one client at which reading from it stops.
        default output_high_water: ByteSize = ByteSize::new(listening::OUTPUT_HIGH_WATER_BYTES) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Output waiting for one client at which reading from it starts again; below `output_high_water`. Absent: a
        /// quarter of it.
        optional output_low_water: ByteSize => ByteSize::kib(1)..=ByteSize::mib(1_024);
        /// Output waiting for one client at which it must read: while others wait behind its replies it may have more only if half
        /// of `limits.buffered_bytes` is free, and is closed otherwise. Messages of MONITOR, and replies that wait for
        /// those of a slower shard, close it at this in any case.
        default output_hard_cap: ByteSize = ByteSize::new(listening::OUTPUT_HARD_CAP_BYTES) => ByteSize::kib(16)..=ByteSize::mib(16_384);
        /// From the first byte of a message to the end of its head; progress does not extend it.
        default head_timeout: Period = Period(listening::HEAD_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// A connection without any exchange is closed after this. Absent: never, since connection pools take a close
        /// for an error.
        optional idle_timeout: Period => Period::millis(100)..=Period::secs(30 * 86_400);
        /// How long a connection may stay open after one direction was closed, and the other is silent.
        default half_close_timeout: Period = Period(listening::HALF_CLOSE_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Share of exchanges in the access log. Absent: as `telemetry.access_log.sample`.
        optional access_log_sample: Ratio;
        /// Result of `weir lab knee --json`, found with as many CPUs as there are workers: how much this listener
        /// carries. Read at start and at a reload only. A relative path starts at this file's directory. Absent: nobody
        /// has said.
        optional knee: KneeFile;
        /// Share of the knee from which the load is warned about, above 0.0.
        default knee_warn: Ratio = Ratio(KNEE_WARN);
        /// What happens at the knee: `observe` (it is told), `unready` (`/readyz` fails until the load has fallen) or
        /// `shed` (each worker refuses what is beyond its share; Redis listeners only).
        default knee_action: KneeAction = KneeAction::Observe;
        /// Users of a Redis listener, one per line, in the format of Redis's `aclfile`; read again at a reload. Others must
        /// not be able to read it. A relative path starts at this file's directory. Absent: only those of
        /// `[[listener.user]]`.
        optional users_file: UsersFile;
        /// Users of a Redis listener. With none here and no `users_file`, everybody who comes in may do everything.
        tables user: ListenerUserSection;
        /// TLS towards clients. Absent: clear text.
        optional_table tls: ListenerTlsSection;
        /// What only Redis listeners have.
        table redis: ListenerRedisSection;
        /// What only HTTP listeners have.
        table http: ListenerHttpSection;
        /// Where a TLS listener sends connections by the server name that they ask for.
        tables server_name: ServerNameSection;
    }
}

section! {
    /// A user of a Redis listener: what ACL SETUSER would be told, and limits besides. Without a user `default` nobody
    /// comes in without a name. `user` and `password` of `[listener.redis]` are one user more, that may do everything.
    pub(crate) struct ListenerUserSection [name = name] {
        /// What clients name in AUTH, unique in the listener; a label of metrics.
        required name: Word;
        /// Rules in Redis's own language, the later ones counting: `on`, `>password`, `#hash`, `~keys`, `%R~keys`,
        /// `&channels`, `+command`, `-@category`, `(selector)`. A password in clear is hashed when the file is read.
        /// Absent: the user stands in `users_file`.
        optional rules: Rules;
        /// A password besides those of the rules.
        optional password: SecretRef;
        /// Connections logged in as this user at a time, in the whole process. Absent: no limit of its own.
        optional connections_max: u32 => 1..=COUNT_MAX;
        /// Requests of all its connections together, in the whole process. Absent: no limit of its own.
        optional requests_per_second: u32 => 1..=COUNT_MAX;
        /// Let a user with restrictions run EVAL and FCALL: what a script does at the server is done with the rights of the
        /// gateway's user there, and nobody here sees it. Not needed with an `upstream_user`, whose rights hold there.
        default trust_scripts: bool = false;
        /// ACL user at the server for the requests of this user, on connections of their own. Absent: the gateway's.
        optional upstream_user: Word;
        /// Its password.
        optional upstream_password: SecretRef;
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
        /// From the accepted connection to the finished handshake.
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
    /// What only Redis listeners have.
    pub(crate) struct ListenerRedisSection {
        /// User that clients must name in AUTH. Absent: `default`, which the one-argument AUTH means too.
        optional user: Word;
        /// Password that clients must give. Absent: no authentication, or only that of the users.
        optional password: SecretRef;
        /// Databases that SELECT accepts.
        default databases: u32 = redis::DATABASES => 1..=16_384;
        /// Commands of one client that wait for replies; then reading from it stops.
        default pipeline_max: u32 = redis::PIPELINE_COMMANDS_MAX => 1..=65_536;
        /// Bytes of one client that wait at the gateway (held commands, the gateway's own replies); then reading stops.
        default pipeline_bytes: ByteSize = ByteSize::new(redis::PIPELINE_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Arguments of one command.
        default args_max: u32 = redis::ARGS_MAX => 8..=COUNT_MAX;
        /// Size of one argument. Large ones are streamed, not buffered.
        default bulk_bytes_max: ByteSize = ByteSize::new(redis::BULK_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(16_384);
        /// Arguments and replies above this size are streamed instead of buffered whole.
        default stream_bytes: ByteSize = ByteSize::new(redis::STREAM_BYTES) => ByteSize::kib(16)..=ByteSize::mib(64);
        /// Commands queued between MULTI and EXEC.
        default transaction_commands_max: u32 = redis::TRANSACTION_COMMANDS_MAX => 1..=1_048_576;
        /// Bytes queued between MULTI and EXEC.
        default transaction_bytes_max: ByteSize = ByteSize::new(redis::TRANSACTION_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Channels and patterns that one client may subscribe to.
        default subscriptions_max: u32 = redis::SUBSCRIPTIONS_MAX => 0..=COUNT_MAX;
        /// Clients per worker that may sit in a blocking command (BLPOP, XREAD BLOCK) at a time. At most the upstream's
        /// `pinned_lanes_max`. Absent: 512, or half of `pinned_lanes_max` if that is less.
        optional blocking_max: u32 => 0..=COUNT_MAX;
        /// Let administrative commands through (SHUTDOWN, CONFIG SET, DEBUG, REPLICAOF and the like).
        default admin_commands: bool = false;
        /// Commands in no table of this build: `forward` them on a lane of their own client, or `refuse` them.
        default unknown_commands: UnknownCommands = UnknownCommands::Forward;
        /// Bytes of replies to plain reads of one key (GET, HGET, ...) that each worker keeps while they hold, as the server
        /// tells of every change. Absent: no reply cache.
        optional cache_bytes_max: ByteSize => ByteSize::kib(64)..=ByteSize::mib(65_536);
        /// Larger replies are not cached.
        default cache_value_bytes_max: ByteSize = ByteSize::new(redis::CACHE_VALUE_BYTES_MAX) => ByteSize::kib(1)..=ByteSize::mib(1);
        /// Cached replies are not older than this, whatever the server tells.
        default cache_age_max: Period = Period(redis::CACHE_AGE_MAX) => Period::millis(1)..=Period::secs(3_600);
        /// Keys that begin so are cached. Absent: all.
        optional cache_prefixes: Vec<At<Word>>;
        /// Wait after the first wrong password from an address, on all its connections; it doubles with each further one,
        /// up to `auth_failure_delay_max`, and is forgotten after a minute without.
        default auth_failure_delay: Period = Period(redis::AUTH_FAILURE_DELAY) => Period::secs(0)..=Period::secs(10);
        /// The longest of these waits. Absent: 2s, or `auth_failure_delay` if that is more.
        optional auth_failure_delay_max: Period => Period::secs(0)..=Period::secs(60);
        /// Wrong passwords on one connection; then it is closed.
        default auth_failures_max: u32 = redis::AUTH_FAILURES_MAX => 1..=1_000;
    }
}

section! {
    /// A server that requests go to.
    pub(crate) struct UpstreamSection [name = name] {
        /// Unique among upstreams; a label of metrics.
        required name: Name;
        /// `host:port` or `unix:/path`; host names are resolved at connect. Several are shards, each with a part of the
        /// keys, and need `sharding`, unless `topology` says what they are.
        required endpoints: Vec<At<Endpoint>>;
        /// To connect, name resolution included.
        default connect_timeout: Period = Period(upstreams::CONNECT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// From the end of a request to the end of its reply; not for blocking commands.
        default request_timeout: Period = Period(upstreams::REQUEST_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Connections per worker that all clients share, pipelined.
        default shared_lanes: u16 = upstreams::SHARED_LANES => 1..=64;
        /// Connections per worker that belong to one client while it has session state (WATCH, MONITOR, blocking
        /// commands). 0 refuses such commands. While all are in use, a client that has one is refused a second lane for a
        /// large value on another shard.
        default pinned_lanes_max: u32 = upstreams::PINNED_LANES_MAX => 0..=COUNT_MAX;
        /// Clean pinned lanes per worker that stay open for the next client. Absent: 8, or `pinned_lanes_max` if that is less.
        optional pinned_lanes_idle_max: u32 => 0..=COUNT_MAX;
        /// Clients per worker that may wait for a pinned lane; further ones are refused at once, and so are those that
        /// have one already.
        default lane_waiters_max: u32 = upstreams::LANE_WAITERS_MAX => 0..=COUNT_MAX;
        /// How long one waits for a lane.
        default lane_wait_timeout: Period = Period(upstreams::LANE_WAIT_TIMEOUT) => Period::secs(0)..=Period::secs(600);
        /// Requests on one shared lane that wait for their replies; beyond it new ones are refused. The default is
        /// that of `limits.in_flight_per_core`.
        default lane_in_flight_max: u32 = upstreams::LANE_IN_FLIGHT_MAX => 1..=COUNT_MAX;
        /// TLS towards the endpoints. Absent: clear text.
        optional_table tls: UpstreamTlsSection;
        /// What only Redis upstreams have.
        table redis: UpstreamRedisSection;
        /// What only HTTP upstreams have.
        table http: UpstreamHttpSection;
        /// What only upstreams of TCP and TLS listeners have.
        table tcp: UpstreamTcpSection;
        /// Who says which servers there are. `fixed`: the endpoints are what there is. `cluster`: they are nodes of a Redis
        /// Cluster, from which the gateway learns the others and who of them has which keys. `replicated`: they are a primary
        /// and its replicas, or some of them, and are asked who is what. `sentinel`: they are Redis Sentinels.
        default topology: TopologyChoice = TopologyChoice::Fixed;
        /// Where commands that only read keys go, if the topology names replicas: to the `primary`, to a `replica`, to either
        /// (`any`), or to one of them while the other cannot be reached (`prefer_primary`, `prefer_replica`). A client
        /// always reads from the same replica. Replicas are a little behind.
        default read_from: ReadFrom = ReadFrom::Primary;
        /// The availability zone of this gateway. Of the servers that `read_from` allows, those that name this zone in INFO
        /// (Valkey's `availability-zone`) come first; of the others one is read from only while none of these can be
        /// reached. Redis names none.
        optional zone: Word;
        /// How the sentinels of a `sentinel` topology are asked.
        optional_table sentinel: SentinelSection;
        /// How keys are spread over several endpoints of a `fixed` topology.
        optional_table sharding: ShardingSection;
        /// Active health checks.
        table health: HealthSection;
        /// Refuse at once while an endpoint keeps failing.
        table breaker: BreakerSection;
        /// Pauses between attempts to connect.
        table reconnect: ReconnectSection;
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
    /// What only Redis upstreams have.
    pub(crate) struct UpstreamRedisSection {
        /// ACL user of the gateway. Absent: `default`.
        optional user: Word;
        /// Its password. Absent: no AUTH is sent.
        optional password: SecretRef;
        /// Name of the gateway's connections in CLIENT LIST.
        default client_name: Word = Word(redis::CLIENT_NAME.to_owned());
    }
}

section! {
    /// How Redis Sentinel is asked for the primary and its replicas.
    pub(crate) struct SentinelSection {
        /// The name of the primary in the sentinels' own configuration (`sentinel monitor <name> ...`).
        required service: Word;
        /// ACL user at the sentinels. Absent: `default`.
        optional user: Word;
        /// Its password. Absent: no AUTH is sent to them; that of the servers is in `redis`.
        optional password: SecretRef;
    }
}

section! {
    /// Which endpoint holds a key. Each scheme is another proxy's, bit by bit, so that data stays where it is when the proxy is
    /// replaced: `ketama` and `modula` are twemproxy's, `ring_hash` and `maglev` are Envoy's.
    pub(crate) struct ShardingSection {
        /// Key hash to endpoint. With `modula` another endpoint moves nearly all keys; with the others about its share.
        required distribution: Distribution;
        /// Key to hash. Absent: the default of the scheme's own proxy, `fnv1a_64` or `murmur2`.
        optional hash: KeyHash;
        /// Two characters, `"{}"` for example: what stands between them in a key is hashed instead of the whole key, so that
        /// keys can be kept together. Absent: the whole key.
        optional hash_tag: Tag;
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

section! {
    /// Pauses between attempts to connect: `base`, doubled at each failure up to `max`. Chance takes up to half off each,
    /// so that workers do not come back in step.
    pub(crate) struct ReconnectSection {
        /// First pause.
        default base: Period = Period(upstreams::RECONNECT_BASE) => DEADLINE_MIN..=Period::secs(60);
        /// Longest pause; not below `base`.
        default max: Period = Period(upstreams::RECONNECT_MAX) => DEADLINE_MIN..=PATH_PERIOD_MAX;
    }
}

impl Choice for DriverChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("io_uring", Self::IoUring), ("polling", Self::Polling)];
}

/// Who says which servers there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopologyChoice {
    Fixed,
    Cluster,
    Replicated,
    Sentinel,
}

impl Choice for TopologyChoice {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("fixed", Self::Fixed),
        ("cluster", Self::Cluster),
        ("replicated", Self::Replicated),
        ("sentinel", Self::Sentinel),
    ];
}

impl Choice for ReadFrom {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("primary", Self::Primary),
        ("prefer_primary", Self::PreferPrimary),
        ("prefer_replica", Self::PreferReplica),
        ("replica", Self::Replica),
        ("any", Self::Any),
    ];
}

impl Choice for Distribution {
    const WORDS: &'static [(&'static str, Self)] =
        &[("ketama", Self::Ketama), ("modula", Self::Modula), ("ring_hash", Self::RingHash), ("maglev", Self::Maglev)];
}

impl Choice for KeyHash {
    const WORDS: &'static [(&'static str, Self)] =
        &[("fnv1a_64", Self::Fnv1a64), ("murmur2", Self::Murmur2), ("crc16", Self::Crc16)];
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

impl Choice for UnknownCommands {
    const WORDS: &'static [(&'static str, Self)] = &[("forward", Self::Forward), ("refuse", Self::Refuse)];
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

impl FileSection {
    /// The upstreams that routes and domains name, for themselves or for their policies.
    pub(crate) fn routed_upstreams(&self) -> impl Iterator<Item = &At<Name>> {
        let of_domains = self.domain.iter().flat_map(|domain| domain.policies().upstreams());
        self.route.iter().flat_map(|route| route.upstreams()).chain(of_domains.map(|(_, upstream)| upstream))
    }
}
