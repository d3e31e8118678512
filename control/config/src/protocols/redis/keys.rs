//! The keys that only Redis has.

use weir_base::ByteSize;
use weir_listener::settings as listening;
use weir_redis_session::settings as redis;
use weir_redis_session::settings::UnknownCommands;
use weir_upstream::placement::{Distribution, KeyHash};
use weir_upstream::settings as upstreams;
use weir_upstream::settings::ReadFrom;

use super::insight::{KeysSection, SlowLogSection};
use super::rules::{Rules, UsersFile};
use crate::document::At;
use crate::numbers::Period;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN, PATH_PERIOD_MAX};
use crate::texts::{Choice, Tag, Word};

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Unread output of one client at which the gateway may disconnect it. While other clients wait behind its replies, it may
        /// have more only if half of `limits.buffered_bytes` is free. Replies that wait for those of a slower shard disconnect the
        /// client at this size in any case. Subscribers and MONITOR clients are disconnected at this size or 32MiB, whichever is
        /// less. A subscriber with more than 8MiB unread for 60 s is disconnected too.
        default output_hard_cap: ByteSize = ByteSize::new(listening::OUTPUT_HARD_CAP_BYTES) => ByteSize::kib(16)..=ByteSize::mib(16_384);
        /// File with users of a Redis listener, one per line, in the format of Redis's `aclfile`. A reload reads it again. Other
        /// users of the machine must not be able to read it. A relative path starts at the directory of the configuration file. If
        /// absent, only `[[listener.user]]` defines users.
        optional users_file: UsersFile;
        /// Users of a Redis or PostgreSQL listener. Without this table and without `users_file`, Redis clients have all permissions
        /// after the login of `[listener.redis]`, if it has a `password`.
        tables user: ListenerUserSection;
        /// Settings of Redis listeners only.
        table redis: ListenerRedisSection;
    }
}

section! {
    /// A user of a Redis listener, with rules as in ACL SETUSER, and limits. If no user is named `default`, every client must give
    /// a user name. `user` and `password` of `[listener.redis]` are one more user, with all permissions. A user of a PostgreSQL
    /// listener has only `name` and `password`.
    pub(crate) struct ListenerUserSection [name = name] {
        /// User name that clients give in AUTH. Must be unique in the listener. A label of metrics.
        required name: Word;
        /// Rules in Redis's own syntax; later rules override earlier ones: `on`, `>password`, `#hash`, `~keys`, `%R~keys`,
        /// `&channels`, `+command`, `-@category`, `(selector)`. A password in clear text is hashed when the file is read. If
        /// absent, `users_file` has the rules.
        optional rules: Rules;
        /// Password of the user, in addition to those in `rules`.
        optional password: SecretRef;
        /// Maximum number of connections that are logged in as this user, in the whole process. If absent, the user has no limit.
        optional connections_max: u32 => 1..=COUNT_MAX;
        /// Maximum number of requests per second on all connections of the user, in the whole process. If absent, the user has no
        /// limit.
        optional requests_per_second: u32 => 1..=COUNT_MAX;
        /// Allow a user with restrictions to run EVAL and FCALL. A script runs with the rights of the gateway's user at the server,
        /// and the gateway does not see the commands of the script. Not needed with an `upstream_user`, whose rights apply to its
        /// scripts.
        default trust_scripts: bool = false;
        /// ACL user at the server for the requests of this user, on separate connections. If absent, the gateway's user.
        optional upstream_user: Word;
        /// Password of `upstream_user`.
        optional upstream_password: SecretRef;
    }
}

section! {
    /// Settings of Redis listeners only.
    pub(crate) struct ListenerRedisSection {
        /// User that clients must name in AUTH. If absent, `default`, which AUTH with one argument also means.
        optional user: Word;
        /// Password that clients must give. If absent, clients need no password, except that of a user.
        optional password: SecretRef;
        /// Number of databases that SELECT accepts.
        default databases: u32 = redis::DATABASES => 1..=16_384;
        /// Maximum number of commands of one client that wait for replies; then the gateway stops reading from the client.
        default pipeline_max: u32 = redis::PIPELINE_COMMANDS_MAX => 1..=65_536;
        /// Maximum bytes of one client that wait at the gateway (held commands, the gateway's own replies); then the gateway stops
        /// reading from the client.
        default pipeline_bytes: ByteSize = ByteSize::new(redis::PIPELINE_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Maximum number of arguments of one command.
        default args_max: u32 = redis::ARGS_MAX => 8..=COUNT_MAX;
        /// Maximum size of one argument. Large arguments are streamed, not buffered.
        default bulk_bytes_max: ByteSize = ByteSize::new(redis::BULK_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(16_384);
        /// Arguments and replies above this size are streamed instead of buffered whole.
        default stream_bytes: ByteSize = ByteSize::new(redis::STREAM_BYTES) => ByteSize::kib(16)..=ByteSize::mib(64);
        /// Maximum number of commands queued between MULTI and EXEC.
        default transaction_commands_max: u32 = redis::TRANSACTION_COMMANDS_MAX => 1..=1_048_576;
        /// Maximum bytes queued between MULTI and EXEC.
        default transaction_bytes_max: ByteSize = ByteSize::new(redis::TRANSACTION_BYTES_MAX) => ByteSize::kib(16)..=ByteSize::mib(1_024);
        /// Maximum number of channels and patterns that one client may subscribe to.
        default subscriptions_max: u32 = redis::SUBSCRIPTIONS_MAX => 0..=COUNT_MAX;
        /// Maximum number of clients per worker in a blocking command (BLPOP, XREAD BLOCK); at most `pinned_lanes_max` of the
        /// upstream. If absent, 512, or half of `pinned_lanes_max` if that is less.
        optional blocking_max: u32 => 0..=COUNT_MAX;
        /// Allow administrative commands (SHUTDOWN, CONFIG SET, DEBUG, REPLICAOF and the like).
        default admin_commands: bool = false;
        /// Treatment of commands that this build does not know: `forward` sends them on a dedicated connection, `refuse` refuses
        /// them.
        default unknown_commands: UnknownCommands = UnknownCommands::Forward;
        /// Memory per worker for cached replies to reads of one key (GET, HGET, ...). When the server reports a change of the key,
        /// the gateway drops the replies. If absent, there is no reply cache.
        optional cache_bytes_max: ByteSize => ByteSize::kib(64)..=ByteSize::mib(65_536);
        /// Maximum size of a cached reply.
        default cache_value_bytes_max: ByteSize = ByteSize::new(redis::CACHE_VALUE_BYTES_MAX) => ByteSize::kib(1)..=ByteSize::mib(1);
        /// Maximum age of a cached reply, even if the server reports no change.
        default cache_age_max: Period = Period(redis::CACHE_AGE_MAX) => Period::millis(1)..=Period::secs(3_600);
        /// Prefixes of the keys that are cached. If absent, all keys.
        optional cache_prefixes: Vec<At<Word>>;
        /// Delay after the first wrong password from an address, for all its logins. Each further wrong password doubles the delay,
        /// up to `auth_failure_delay_max`. After a minute without a wrong password, the delay is back at this value.
        default auth_failure_delay: Period = Period(redis::AUTH_FAILURE_DELAY) => Period::secs(0)..=Period::secs(10);
        /// Upper limit of `auth_failure_delay` as it doubles. If absent, 2s, or `auth_failure_delay` if that is more.
        optional auth_failure_delay_max: Period => Period::secs(0)..=Period::secs(60);
        /// Wrong passwords on one connection until the gateway closes it.
        default auth_failures_max: u32 = redis::AUTH_FAILURES_MAX => 1..=1_000;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Maximum time from the end of a request to the end of its reply. Does not apply to blocking commands.
        default request_timeout: Period = Period(upstreams::REQUEST_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Pipelined connections that all clients of a worker share, per server, login (`upstream_user`), database and RESP
        /// version, and separately for reads from replicas.
        default shared_lanes: u16 = upstreams::SHARED_LANES => 1..=64;
        /// Maximum number of dedicated connections (pinned lanes) per worker. A client has one while it has session state (WATCH,
        /// MONITOR, blocking commands). 0 refuses such commands. While all are in use, a client that has one is refused a second
        /// connection for a large value on another shard.
        default pinned_lanes_max: u32 = upstreams::PINNED_LANES_MAX => 0..=COUNT_MAX;
        /// Unused dedicated connections per worker that stay open for the next client. If absent, 8, or `pinned_lanes_max` if that
        /// is less.
        optional pinned_lanes_idle_max: u32 => 0..=COUNT_MAX;
        /// Maximum number of requests on one shared connection that wait for replies; further requests are refused. The default is
        /// that of `limits.in_flight_per_core`.
        default lane_in_flight_max: u32 = upstreams::LANE_IN_FLIGHT_MAX => 1..=COUNT_MAX;
        /// Settings of Redis upstreams only.
        table redis: UpstreamRedisSection;
        /// How the gateway finds the servers. `fixed`: the endpoints are the servers. `cluster`: the endpoints are nodes of a Redis
        /// Cluster, which report the other nodes and the keys of each. `replicated`: the endpoints are a primary and its replicas,
        /// or some of them, and each reports its role. `sentinel`: the endpoints are Redis Sentinels.
        default topology: TopologyChoice = TopologyChoice::Fixed;
        /// Where commands that only read keys go, if the topology has replicas: to the `primary`, to a `replica`, or to either
        /// (`any`). `prefer_primary` and `prefer_replica` use the other role while no server of the preferred role can be reached.
        /// A client always reads from the same replica. Replicas lag a little behind.
        default read_from: ReadFrom = ReadFrom::Primary;
        /// Availability zone of this gateway. Among the servers that `read_from` allows, reads prefer those that report this zone
        /// in INFO (Valkey's `availability-zone`). Reads go to other servers only while no server of the zone can be reached. Redis
        /// reports no zone.
        optional zone: Word;
        /// How the gateway queries the sentinels of a `sentinel` topology.
        optional_table sentinel: SentinelSection;
        /// How keys are spread over several endpoints of a `fixed` topology.
        optional_table sharding: ShardingSection;
        /// Pauses between attempts to connect.
        table reconnect: ReconnectSection;
    }
}

section! {
    /// Settings of Redis upstreams only.
    pub(crate) struct UpstreamRedisSection {
        /// ACL user of the gateway at the server. If absent, `default`.
        optional user: Word;
        /// Password of `user`. If absent, the gateway sends no AUTH.
        optional password: SecretRef;
        /// Name of the gateway's connections in CLIENT LIST.
        default client_name: Word = Word(redis::CLIENT_NAME.to_owned());
    }
}

section! {
    /// How the gateway queries Redis Sentinel for the primary and its replicas.
    pub(crate) struct SentinelSection {
        /// Name of the primary in the configuration of the sentinels (`sentinel monitor <name> ...`).
        required service: Word;
        /// ACL user at the sentinels. If absent, `default`.
        optional user: Word;
        /// Password of `user`. If absent, the sentinels get no AUTH. The password for the servers is in `[upstream.redis]`.
        optional password: SecretRef;
    }
}

section! {
    /// How the endpoint of a key is chosen. Each scheme gives exactly the result of another proxy, so that data stays in place when
    /// the proxy is replaced: `ketama` and `modula` are twemproxy's, `ring_hash` and `maglev` are Envoy's.
    pub(crate) struct ShardingSection {
        /// How a key hash selects an endpoint. With `modula`, a new endpoint moves nearly all keys; with the other schemes, about
        /// its share.
        required distribution: Distribution;
        /// Hash function of keys. If absent, `fnv1a_64` for the schemes of twemproxy and `murmur2` for those of Envoy.
        optional hash: KeyHash;
        /// Two characters, such as `"{}"`. If a key contains them, only the text between them is hashed, so that keys can be kept
        /// together. If absent, the whole key is hashed.
        optional hash_tag: Tag;
    }
}

section! {
    /// Pauses between attempts to connect: `base`, doubled at each failure up to `max`. Each pause is shortened at random by up to
    /// half, so that workers do not reconnect at the same time.
    pub(crate) struct ReconnectSection {
        /// First pause.
        default base: Period = Period(upstreams::RECONNECT_BASE) => DEADLINE_MIN..=Period::secs(60);
        /// Longest pause. Must not be less than `base`.
        default max: Period = Period(upstreams::RECONNECT_MAX) => DEADLINE_MIN..=PATH_PERIOD_MAX;
    }
}

section! {
    /// Keys of `[telemetry]`.
    pub(crate) struct TelemetryKeys {
        /// Hot and big keys.
        table keys: KeysSection;
        /// Slow requests.
        table slow_log: SlowLogSection;
    }
}

/// The source of the list of servers.
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

impl Choice for UnknownCommands {
    const WORDS: &'static [(&'static str, Self)] = &[("forward", Self::Forward), ("refuse", Self::Refuse)];
}
