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
        /// Settings of PostgreSQL listeners only. Its users are tables `[[listener.user]]` with `name` and `password`.
        table postgres: ListenerPostgresSection;
    }
}

section! {
    /// Settings of PostgreSQL listeners only. Its users are tables `[[listener.user]]` with `name` and `password`.
    pub(crate) struct ListenerPostgresSection {
        /// How clients prove who they are: `scram-sha-256`, `md5` for old clients, `cert` (TLS with `client_auth = "required"`; the
        /// certificate names the user), or `trust`: no client is authenticated. The short form of one rule in `hba`.
        default auth: Method = Method::ScramSha256;
        /// Rules about clients by address, database and user, instead of `auth`.
        tables hba: HbaSection;
        /// Permit `auth = "trust"` at an address that is not a loopback address or a Unix socket.
        default allow_trust: bool = false;
        /// Users in a file of PgBouncer's format, besides those of `[[listener.user]]`, which count if a name stands in both; read
        /// again at a reload. A line is `"user" "password"`, where the password is plain, a SCRAM verifier or `md5...`. Others must
        /// not be able to read it. A relative path starts at this file's directory.
        optional userlist: Userlist;
        /// User that looks at the server for users that are neither in `userlist` nor in `[[listener.user]]`, with `auth_query`. Its
        /// password is that of the user in those lists, or of `[upstream.postgres]`. Absent: other users do not exist.
        optional auth_user: Word;
        /// Query of `auth_user`, with the user as `$1`; it returns a row with the user and its password as the server stores it, and
        /// NULL for one that has expired. It runs with `search_path = pg_catalog`: write names with their schema. Absent: the row
        /// of `pg_authid`, which only superusers may read.
        optional auth_query: Text;
        /// Database of `auth_query`. Absent: that of `[upstream.postgres]`, or `postgres`.
        optional auth_dbname: Word;
        /// How long a client keeps a server connection: until its `transaction` ends, until it disconnects (`session`), or until its
        /// `statement` ends, where transaction blocks are refused.
        default pool_mode: PoolMode = PoolMode::Transaction;
        /// Users that may do everything in the admin console, which is the database `pgbouncer`.
        optional admin_users: Vec<At<Word>>;
        /// Users that may use SHOW in the admin console.
        optional stats_users: Vec<At<Word>>;
        /// From the accepted connection to the end of the login.
        default client_login_timeout: Period = Period(postgres::CLIENT_LOGIN_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// How long a client waits for a server connection; then it gets SQLSTATE 53300.
        default query_wait_timeout: Period = Period(postgres::QUERY_WAIT_TIMEOUT) => DEADLINE_MIN..=PATH_PERIOD_MAX;
        /// A client that waits so long for a server connection gets a notice. 0: none.
        default query_wait_notify: Period = Period(postgres::QUERY_WAIT_NOTIFY) => Period::secs(0)..=PATH_PERIOD_MAX;
        /// From a request to the end of its response; then the query is cancelled and the client disconnected. 0: no limit.
        default query_timeout: Period = Period::secs(0) => Period::secs(0)..=Period::secs(86_400);
        /// A client that is silent so long within a transaction, a COPY of its data, a batch without its Sync or a message is disconnected, and its transaction rolled back. 0: no limit.
        default idle_transaction_timeout: Period = Period(postgres::IDLE_TRANSACTION_TIMEOUT) => Period::secs(0)..=Period::secs(86_400);
        /// A client that is silent so long outside of a transaction is disconnected. 0: no limit.
        default client_idle_timeout: Period = Period::secs(0) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// A statement that takes so long or longer at its server is logged with its duration, fingerprint and class, and without its
        /// text. One line a second is written, with the number of those left out. 0: each statement. Absent: none.
        optional log_min_duration_statement: Period => Period::secs(0)..=Period::secs(86_400);
        /// Databases that clients may name. Absent: all names are served by the `upstream` of the listener.
        tables database: DatabaseSection;
        /// Users whose statements have to be read-only by their texts. Functions of the database's own may write all the same.
        optional read_only_users: Vec<At<Text>>;
        /// Statements of one Query; more are refused with SQLSTATE 42501. Absent: no limit.
        optional statements_max: u32 => 1..=256;
        /// The action for a statement that no rule fits: `allow` or `deny`.
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
    /// Settings of upstreams of PostgreSQL listeners only. Counts of connections hold for all workers together, per endpoint.
    pub(crate) struct UpstreamPostgresSection {
        /// User that logs in at the servers. Absent: that of the client.
        optional user: Word;
        /// Its password.
        optional password: SecretRef;
        /// Database at the servers. Absent: that of the client.
        optional database: Word;
        /// Whether a login is bound to the TLS below it, with libpq's words: `prefer` if the server can, `require` to refuse a server
        /// that does not prove by SCRAM that it has the password behind its certificate, or `disable`. It needs `[upstream.tls]`.
        default channel_binding: BindingMode = BindingMode::Prefer;
        /// Which of the `endpoints` take sessions, with libpq's words: `any`, the `primary`, a `standby`, or `prefer-standby`: the primary
        /// while there is no standby. Needs `user`, as whom the gateway looks at each server's role.
        default target_session_attrs: TargetSessionAttrs = TargetSessionAttrs::Any;
        /// The time between two looks at the role of each server. A lost connection and SQLSTATE 25006 lead to one at once.
        default role_interval: Period = Period(postgres::ROLE_INTERVAL) => Period::millis(100)..=Period::secs(60);
        /// Statements that run on a connection after a client that left state behind, before those that the gateway knows to be
        /// necessary and that keep prepared statements. `DISCARD ALL` takes the place of these. Absent: the gateway's alone.
        optional server_reset_query: Text;
        /// Connections per database and user.
        default pool_size: u32 = pools::POOL_SIZE => 1..=COUNT_MAX;
        /// Connections per database and user that stay open while there are clients.
        default min_pool_size: u32 = pools::MIN_POOL_SIZE => 0..=COUNT_MAX;
        /// Connections per database and user above `pool_size`, for a client that has waited for `reserve_pool_timeout`.
        default reserve_pool_size: u32 = pools::RESERVE_POOL_SIZE => 0..=COUNT_MAX;
        /// See `reserve_pool_size`.
        default reserve_pool_timeout: Period = Period(pools::RESERVE_POOL_TIMEOUT) => Period::secs(0)..=PATH_PERIOD_MAX;
        /// Connections per database, of all users together. Absent: no limit.
        optional max_db_connections: u32 => 1..=COUNT_MAX;
        /// Connections per user, to all databases together. Absent: no limit.
        optional max_user_connections: u32 => 1..=COUNT_MAX;
        /// A connection older than this is closed once no client has it. 0: no limit.
        default server_lifetime: Period = Period(pools::SERVER_LIFETIME) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// A connection that no client had for so long is closed. 0: no limit.
        default server_idle_timeout: Period = Period(pools::SERVER_IDLE_TIMEOUT) => Period::secs(0)..=Period::secs(30 * 86_400);
        /// A connection that no client had for so long is checked before it serves one. 0: each time.
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
