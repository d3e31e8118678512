//! The keys that only PostgreSQL has.

use weir_postgres::settings::{self as postgres, BindingMode, Method, PoolMode, TargetSessionAttrs};
use weir_upstream::pooled as pools;

use super::database::DatabaseSection;
use super::rules::HbaSection;
use super::statement_rules::{RuleDefault, RuleSection};
use super::userlist::Userlist;
use crate::document::At;
use crate::numbers::Period;
use crate::secret::SecretRef;
use crate::section::section;
use crate::sections::{COUNT_MAX, DEADLINE_MIN, PATH_PERIOD_MAX};
use crate::texts::{Choice, Text, Word};

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// Settings of PostgreSQL listeners only. The users of the listener are tables `[[listener.user]]` with `name` and
        /// `password`.
        table postgres: ListenerPostgresSection;
    }
}

section! {
    /// Settings of PostgreSQL listeners only. The users of the listener are tables `[[listener.user]]` with `name` and `password`.
    pub(crate) struct ListenerPostgresSection {
        /// How clients prove their identity: `scram-sha-256`, `md5` for old clients, `cert` (a client certificate that names the
        /// user; needs `client_auth` in `[listener.tls]`), or `trust` (no authentication). Use `hba` for several rules.
        default auth: Method = Method::ScramSha256;
        /// Rules by address, database and user, instead of `auth`.
        tables hba: HbaSection;
        /// Permit `auth = "trust"` at an address that is not a loopback address or a Unix socket.
        default allow_trust: bool = false;
        /// File with users in PgBouncer's format. A user of the same name in `[[listener.user]]` takes precedence. A line is
        /// `"user" "password"`, where the password is plain, a SCRAM verifier or `md5...`. A reload reads the file again. Other
        /// users of the machine must not be able to read it. A relative path starts at the directory of the configuration file.
        optional userlist: Userlist;
        /// User that logs in at the server and looks up users there by `auth_query`, if they are neither in `userlist` nor in
        /// `[[listener.user]]`. Its password comes from these lists or from `[upstream.postgres]`. If absent, only listed users
        /// exist.
        optional auth_user: Word;
        /// Query that looks up a user, with the name as `$1`. It returns a row with the user and the password as the server stores
        /// it; an expired password is NULL. It runs with `search_path = pg_catalog`: write names with their schema. If absent, the
        /// gateway reads `pg_authid`, which only superusers may do.
        optional auth_query: Text;
        /// Database of `auth_query`. If absent, the database of `[upstream.postgres]`, or `postgres`.
        optional auth_dbname: Word;
        /// How long a client keeps a server connection: until its `transaction` ends, until it disconnects (`session`), or until
        /// its `statement` ends. `statement` refuses transaction blocks.
        default pool_mode: PoolMode = PoolMode::Transaction;
        /// Users that may run all commands in the admin console, the database `pgbouncer`.
        optional admin_users: Vec<At<Word>>;
        /// Users that may run SHOW in the admin console, the database `pgbouncer`.
        optional stats_users: Vec<At<Word>>;
        /// Maximum time from the accepted connection to the end of the login.
        default client_login_timeout: Period = Period(postgres::CLIENT_LOGIN_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Maximum time that a client waits for a server connection. Then it gets SQLSTATE 53300.
        default query_wait_timeout: Period = Period(postgres::QUERY_WAIT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// Time after which a client that waits for a server connection gets a notice. 0 disables the notice.
        default query_wait_notify: Period = Period(postgres::QUERY_WAIT_NOTIFY) => Period::secs(0)..=PATH_PERIOD_MAX;
        /// Maximum time from a request to the end of its response. Then the query is cancelled and the client disconnected. 0
        /// disables the limit.
        default query_timeout: Period = Period::secs(0) => Period::secs(0)..=Period::secs(86_400);
        /// Maximum silence of a client within a transaction, a COPY of its data, a batch without its Sync, or a message. Then the
        /// client is disconnected, and its transaction rolled back. 0 disables the limit.
        default idle_transaction_timeout: Period = Period(postgres::IDLE_TRANSACTION_TIMEOUT) => Period::secs(0)..=Period::secs(86_400);
        /// Maximum silence of a client outside of a transaction. Then the client is disconnected. 0 disables the limit.
        default client_idle_timeout: Period = Period::secs(0) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// Minimum duration at the server of a slow statement, which is logged with its duration, fingerprint and class, but not
        /// its text. At most one line per second is written, with the number of omitted statements. 0 counts every statement as
        /// slow. If absent, no statement is logged.
        optional log_min_duration_statement: Period => Period::secs(0)..=Period::secs(86_400);
        /// Databases that clients may name. If absent, the `upstream` of the listener serves all names.
        tables database: DatabaseSection;
        /// Users that may only run statements whose text writes nothing. Functions that are defined in the database may still
        /// write.
        optional read_only_users: Vec<At<Text>>;
        /// Maximum number of statements in one Query; a Query with more is refused with SQLSTATE 42501. If absent, there is no
        /// limit.
        optional statements_max: u32 => 1..=256;
        /// Action for a statement that no `allow` or `deny` rule fits: `allow` or `deny`.
        default rule_default: RuleDefault = RuleDefault::Allow;
        /// Rules about statements.
        tables rule: RuleSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// Settings of upstreams of PostgreSQL listeners only.
        table postgres: UpstreamPostgresSection;
    }
}

section! {
    /// Settings of upstreams of PostgreSQL listeners only. Numbers of connections apply to all workers together, per endpoint.
    pub(crate) struct UpstreamPostgresSection {
        /// User for the login at the servers. If absent, the user of the client.
        optional user: Word;
        /// Password of `user`.
        optional password: SecretRef;
        /// Database at the servers. If absent, the database that the client names.
        optional database: Word;
        /// Whether a login at a server is bound to its TLS connection, with libpq's words: `prefer` binds if the server can,
        /// `require` refuses a server that does not offer `SCRAM-SHA-256-PLUS`, `disable` never binds. Needs `[upstream.tls]`.
        default channel_binding: BindingMode = BindingMode::Prefer;
        /// Endpoints that get sessions, with libpq's words: `any`, the `primary`, a `standby`, or `prefer-standby` (the primary
        /// while there is no standby). All but `any` need `user`, because the gateway logs in to read the role of each server.
        default target_session_attrs: TargetSessionAttrs = TargetSessionAttrs::Any;
        /// Time between two checks of the role of each server. A lost connection or SQLSTATE 25006 triggers a check at once.
        default role_interval: Period = Period(postgres::ROLE_INTERVAL) => Period::millis(100)..=Period::secs(60);
        /// Statements that reset a server connection in which a client has left state. The gateway's own reset follows, and keeps
        /// prepared statements if it can. `DISCARD ALL` replaces that reset. If absent, only the gateway's own reset runs.
        optional server_reset_query: Text;
        /// Maximum number of connections per database and user.
        default pool_size: u32 = pools::POOL_SIZE => 1..=COUNT_MAX;
        /// Connections per database and user that stay open while there are clients.
        default min_pool_size: u32 = pools::MIN_POOL_SIZE => 0..=COUNT_MAX;
        /// Connections per database and user above `pool_size`, for clients that have waited for `reserve_pool_timeout`.
        default reserve_pool_size: u32 = pools::RESERVE_POOL_SIZE => 0..=COUNT_MAX;
        /// Time that a client waits until it may use `reserve_pool_size`.
        default reserve_pool_timeout: Period = Period(pools::RESERVE_POOL_TIMEOUT) => Period::secs(0)..=PATH_PERIOD_MAX;
        /// Maximum number of connections per database, of all users together. If absent, there is no limit.
        optional max_db_connections: u32 => 1..=COUNT_MAX;
        /// Maximum number of connections per user, to all databases together. If absent, there is no limit.
        optional max_user_connections: u32 => 1..=COUNT_MAX;
        /// Age at which a connection is closed once no client uses it. 0 disables the limit.
        default server_lifetime: Period = Period(pools::SERVER_LIFETIME) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// Time after which a connection that no client uses is closed. 0 disables the limit.
        default server_idle_timeout: Period = Period(pools::SERVER_IDLE_TIMEOUT) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// A connection that no client has used for this time is checked before a client gets it. 0 checks it each time.
        default server_check_delay: Period = Period(pools::SERVER_CHECK_DELAY) => Period::secs(0)..=Period::secs(86_400);
    }
}

impl Choice for Method {
    const WORDS: &'static [(&'static str, Self)] =
        &[("scram-sha-256", Self::ScramSha256), ("md5", Self::Md5), ("cert", Self::Cert), ("trust", Self::Trust)];
}

impl Choice for TargetSessionAttrs {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("any", Self::Any),
        ("primary", Self::Primary),
        ("standby", Self::Standby),
        ("prefer-standby", Self::PreferStandby),
    ];
}

impl Choice for BindingMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("disable", Self::Disable), ("prefer", Self::Prefer), ("require", Self::Require)];
}

impl Choice for PoolMode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("transaction", Self::Transaction), ("session", Self::Session), ("statement", Self::Statement)];
}
