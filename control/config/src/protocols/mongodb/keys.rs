//! The keys that only MongoDB has.

use weir_base::ByteSize;
use weir_mongodb::settings::{self as mongodb, Auth, AuthMechanism, Compressor, FaceChoice, Mechanism, PinLimits};
use weir_upstream::pooled as pools;

use super::rules::{RuleDefault, RuleSection};
use crate::document::At;
use crate::numbers::Period;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN, PATH_PERIOD_MAX};
use crate::texts::{Choice, Text, Word};

/// Longest life of a cursor or a connection without a use.
const IDLE_MAX: Period = Period::secs(30 * 86_400);

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Settings of MongoDB listeners only. The users of the listener are tables `[[listener.user]]` with `name` and
        /// `password`.
        table mongodb: ListenerMongodbSection;
    }
}

section! {
    /// Settings of MongoDB listeners only. The users of the listener are tables `[[listener.user]]` with `name` and `password`.
    pub(crate) struct ListenerMongodbSection {
        /// How clients prove their identity: `scram` (SCRAM-SHA-256 or SCRAM-SHA-1), `x509` (a client certificate; needs
        /// `client_auth` in `[listener.tls]`), `plain` (a password in clear text; needs `[listener.tls]`), `passthrough` (SCRAM
        /// that the server checks; each client has a server connection of its own), or `none` (no authentication).
        default auth: Auth = Auth::Scram;
        /// Permit `auth = "none"` at an address that is not a loopback address or a Unix socket.
        default allow_none: bool = false;
        /// Database of the users of this listener: the `authSource` of clients. Only for `auth = "scram"`.
        default auth_source: Word = Word(mongodb::AUTH_SOURCE.to_owned());
        /// Mechanisms of `auth = "scram"`. Old drivers have only `SCRAM-SHA-1`. If absent, both.
        optional mechanisms: Vec<At<ScramMechanism>>;
        /// Subjects of client certificates that may log in with `auth = "x509"`, as RFC 2253 writes them: `CN=app,O=Example`. If
        /// absent, every certificate that `client_ca_file` accepts.
        optional subjects: Vec<At<Text>>;
        /// Failed logins on one connection after which Weir closes the connection.
        default login_failures_max: u32 = mongodb::LOGIN_FAILURES_MAX => 1..=100;
        /// Kind of server that clients see: a `mongos`, a `standalone` server, or `auto` (a mongos, or a standalone server if the
        /// upstream is one). Clients with `loadBalanced=true` always see a service behind a load balancer.
        default face: FaceChoice = FaceChoice::Auto;
        /// Let the monitors of drivers wait for changes, so that they get each change at once. If `false`, drivers look every 10 s.
        default streaming_hello: bool = true;
        /// Compressors that clients may use: `zstd`, `snappy`, `zlib`. A request is forwarded as it came if its server has the
        /// compressor (`compressors` of `[upstream.mongodb]`), and plain otherwise. If absent, none.
        optional compressors: Vec<At<Compressor>>;
        /// Maximum time from the accepted connection to the first hello, and again from the first message of a login to its end. A
        /// client that has said hello and does not log in has no such limit, as the monitors of drivers.
        default client_login_timeout: Period = Period(mongodb::CLIENT_LOGIN_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Maximum time from the first byte of a message to its last byte. Progress does not extend it.
        default message_timeout: Period = Period(mongodb::MESSAGE_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Maximum time that a request waits for a server connection. Then it gets the error 462, after which drivers wait and try
        /// again.
        default queue_wait_timeout: Period = Period(mongodb::QUEUE_WAIT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Maximum time from a request to the end of its reply. 0 disables the limit. It also ends a getMore that waits for changes.
        default request_timeout: Period = Period::secs(0) => Period::secs(0)..=Period::secs(86_400);
        /// Maximum silence of a client between requests. Then the client is disconnected. 0 disables the limit.
        default client_idle_timeout: Period = Period::secs(0) => Period::secs(0)..=IDLE_MAX;
        /// Maximum size of a request that Weir holds until it is complete. Weir forwards a larger request while it still arrives.
        default held_bytes_max: ByteSize = ByteSize::new(mongodb::HELD_BYTES_MAX as u64) => ByteSize::kib(64)..=ByteSize::new(48_000_000);
        /// Maximum number of open cursors of one user, over all connections. At this number a command that may open another one gets
        /// the error 462. With `auth = "none"` all clients are one user.
        default cursors_max: u32 = PinLimits::SHARED.cursors_max as u32 => 1..=COUNT_MAX;
        /// Maximum number of open transactions of one user, over all connections.
        default transactions_max: u32 = PinLimits::SHARED.transactions_max as u32 => 1..=COUNT_MAX;
        /// Maximum number of open cursors of one connection with `loadBalanced=true`.
        default connection_cursors_max: u32 = PinLimits::CONNECTION.cursors_max as u32 => 1..=COUNT_MAX;
        /// Maximum number of open transactions of one connection with `loadBalanced=true`.
        default connection_transactions_max: u32 = PinLimits::CONNECTION.transactions_max as u32 => 1..=COUNT_MAX;
        /// Time after which Weir forgets the server of a cursor that is not used. Servers close such cursors after 10 minutes.
        default cursor_idle_timeout: Period = Period(PinLimits::CONNECTION.cursor_idle) => Period::secs(1)..=IDLE_MAX;
        /// Time after which Weir forgets the server of a transaction that is not used. Servers abort such transactions after 60 s.
        default transaction_idle_timeout: Period = Period(PinLimits::CONNECTION.transaction_idle) => Period::secs(1)..=IDLE_MAX;
        /// Users that may only run commands that read.
        optional read_only_users: Vec<At<Text>>;
        /// Action for a command that no `allow` or `deny` rule fits: `allow` or `deny`. `deny` does not apply to commands of the
        /// classes `session` and `transaction`. Dangerous commands always need a rule.
        default rule_default: RuleDefault = RuleDefault::Allow;
        /// Rules about commands.
        tables rule: RuleSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Settings of upstreams of MongoDB listeners only.
        table mongodb: UpstreamMongodbSection;
    }
}

section! {
    /// Settings of upstreams of MongoDB listeners only. Numbers of connections apply to all workers together, per server.
    pub(crate) struct UpstreamMongodbSection {
        /// User for the login at the servers. If absent, Weir does not log in, or the user of the client logs in
        /// (`auth = "passthrough"`).
        optional user: Word;
        /// Password of `user`.
        optional password: SecretRef;
        /// How Weir proves the identity of `user`: `scram` (SCRAM-SHA-256 or SCRAM-SHA-1), `plain` (in clear text; needs
        /// `[upstream.tls]`), or `x509` (`cert_file` of `[upstream.tls]`; `user` may be absent).
        default auth_mechanism: AuthMechanism = AuthMechanism::Scram;
        /// Database of `user`. With `plain` and `x509` always `$external`.
        default auth_source: Word = Word(mongodb::AUTH_SOURCE.to_owned());
        /// Name of the replica set. Weir then finds all members, beginning at `endpoints`, and follows elections. If absent,
        /// `endpoints` are all servers: one server, or several mongos.
        optional replica_set: Word;
        /// Compressors that Weir offers to the servers, for compressed requests of clients and their replies. If absent, none.
        optional compressors: Vec<At<Compressor>>;
        /// Time between two checks of the state of each server. A lost connection or an error about the primary triggers a check at
        /// once.
        default heartbeat_interval: Period = Period(mongodb::HEARTBEAT_INTERVAL) => Period::millis(500)..=Period::secs(60);
        /// Maximum number of connections per server and user.
        default pool_size: u32 = mongodb::POOL_SIZE => 1..=COUNT_MAX;
        /// Connections per server and user that stay open while there are clients.
        default min_pool_size: u32 = pools::MIN_POOL_SIZE => 0..=COUNT_MAX;
        /// Age at which a connection is closed once no client uses it. 0 disables the limit.
        default server_lifetime: Period = Period(pools::SERVER_LIFETIME) => Period::secs(0)..=IDLE_MAX;
        /// Time after which a connection that no client uses is closed. 0 disables the limit.
        default server_idle_timeout: Period = Period(pools::SERVER_IDLE_TIMEOUT) => Period::secs(0)..=IDLE_MAX;
        /// A connection that no client has used for this time is checked before a client gets it. 0 checks it each time.
        default server_check_delay: Period = Period(pools::SERVER_CHECK_DELAY) => Period::secs(0)..=Period::secs(86_400);
    }
}

/// A mechanism of SCRAM, by the name that drivers give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScramMechanism(pub(crate) Mechanism);

impl Choice for ScramMechanism {
    const WORDS: &'static [(&'static str, Self)] =
        &[("SCRAM-SHA-256", Self(Mechanism::ScramSha256)), ("SCRAM-SHA-1", Self(Mechanism::ScramSha1))];
}

impl Choice for Auth {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("scram", Self::Scram),
        ("x509", Self::X509),
        ("plain", Self::Plain),
        ("passthrough", Self::Passthrough),
        ("none", Self::None),
    ];
}

impl Choice for AuthMechanism {
    const WORDS: &'static [(&'static str, Self)] =
        &[("scram", Self::Scram), ("plain", Self::Plain), ("x509", Self::X509)];
}

impl Choice for FaceChoice {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("mongos", Self::Mongos), ("standalone", Self::Standalone)];
}

impl Choice for Compressor {
    const WORDS: &'static [(&'static str, Self)] =
        &[("zstd", Self::Zstd), ("snappy", Self::Snappy), ("zlib", Self::Zlib)];
}
