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
        /// Output waiting for one client at which it must read: while others wait behind its replies it may have more only if half
        /// of `limits.buffered_bytes` is free, and is closed otherwise. Messages of MONITOR, and replies that wait for
        /// those of a slower shard, close it at this in any case.
        default output_hard_cap: ByteSize = ByteSize::new(listening::OUTPUT_HARD_CAP_BYTES) => ByteSize::kib(16)..=ByteSize::mib(16_384);
        /// Users of a Redis listener, one per line, in the format of Redis's `aclfile`; read again at a reload. Others must
        /// not be able to read it. A relative path starts at this file's directory. Absent: only those of
        /// `[[listener.user]]`.
        optional users_file: UsersFile;
        /// Users of a Redis listener. With none here and no `users_file`, everybody who comes in may do everything.
        tables user: ListenerUserSection;
        /// Settings of Redis listeners only.
        table redis: ListenerRedisSection;
    }
}

section! {
    /// A user of a Redis listener: the rules of ACL SETUSER, and limits besides. Without a user `default` every client
    /// must give a user name. `user` and `password` of `[listener.redis]` are one more user, with all permissions.
    pub(crate) struct ListenerUserSection [name = name] {
        /// The name that clients give in AUTH, unique in the listener; a label of metrics.
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
        /// Let a user with restrictions run EVAL and FCALL: a script runs at the server with the rights of the gateway's
        /// user there, and the gateway does not see its commands. Not needed with an `upstream_user`, whose rights hold there.
        default trust_scripts: bool = false;
        /// ACL user at the server for the requests of this user, on connections of their own. Absent: the gateway's.
        optional upstream_user: Word;
        /// Its password.
        optional upstream_password: SecretRef;
    }
}

section! {
    /// Settings of Redis listeners only.
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
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
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
        /// Requests on one shared lane that wait for their replies; beyond it new ones are refused. The default is
        /// that of `limits.in_flight_per_core`.
        default lane_in_flight_max: u32 = upstreams::LANE_IN_FLIGHT_MAX => 1..=COUNT_MAX;
        /// Settings of Redis upstreams only.
        table redis: UpstreamRedisSection;
        /// The source of the list of servers. `fixed`: the endpoints are the servers. `cluster`: they are nodes of a Redis
        /// Cluster, from which the gateway learns the others and the keys of each. `replicated`: they are a primary
        /// and its replicas, or some of them, and each reports its role. `sentinel`: they are Redis Sentinels.
        default topology: TopologyChoice = TopologyChoice::Fixed;
        /// Where commands that only read keys go, if the topology names replicas: to the `primary`, to a `replica`, to either
        /// (`any`), or to one of them while the other cannot be reached (`prefer_primary`, `prefer_replica`). A client
        /// always reads from the same replica. Replicas are a little behind.
        default read_from: ReadFrom = ReadFrom::Primary;
        /// The availability zone of this gateway. Among the servers that `read_from` allows, those that name this zone in INFO
        /// (Valkey's `availability-zone`) come first; the others are read from only while none of these can be
        /// reached. Redis names none.
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
        /// ACL user of the gateway. Absent: `default`.
        optional user: Word;
        /// Its password. Absent: no AUTH is sent.
        optional password: SecretRef;
        /// Name of the gateway's connections in CLIENT LIST.
        default client_name: Word = Word(redis::CLIENT_NAME.to_owned());
    }
}

section! {
    /// How the gateway queries Redis Sentinel for the primary and its replicas.
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
    /// Pauses between attempts to connect: `base`, doubled at each failure up to `max`. Chance takes up to half off each,
    /// so that workers do not come back in step.
    pub(crate) struct ReconnectSection {
        /// First pause.
        default base: Period = Period(upstreams::RECONNECT_BASE) => DEADLINE_MIN..=Period::secs(60);
        /// Longest pause; not below `base`.
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
