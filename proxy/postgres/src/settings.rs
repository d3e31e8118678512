//! Options that an operator may choose, with defaults and reasons. Names are those of PgBouncer where it has one.

use std::{sync::Arc, time::Duration};

use weir_base::Secret;
use weir_listener::login::entropy::process_secret;
use weir_postgres_session::users::{User, Users};
pub use weir_postgres_session::{
    PoolMode, SessionSettings,
    hba::{Method, Name, Rule, Rules, Transport},
    server_login::BindingMode,
    users::{AUTH_QUERY, Credential, UserlistError, userlist},
};
use weir_sasl::{Mechanism, ScramVerifier};
use weir_upstream::pooled::PooledSettings;

use crate::rules::StatementRules;

/// From the accepted connection to the first ReadyForQuery. Default 30 s: a login takes three round trips and a wait for a server.
pub const CLIENT_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait of a client for a server. Default 10 s: an application gives up at about that time, and later
/// replies would find no reader.
pub const QUERY_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// When a waiting client gets a notice. Default 5 s, as PgBouncer.
pub const QUERY_WAIT_NOTIFY: Duration = Duration::from_secs(5);
/// A client that is silent within a transaction. Default 60 s: it keeps a server from all others.
pub const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two looks at the role of a server. Default 1 s: a look costs a server some 50 us.
pub const ROLE_INTERVAL: Duration = Duration::from_secs(1);

/// The servers of an upstream that take sessions, by their role. The words are those of libpq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// All of them.
    #[default]
    Any,
    /// The primary.
    Primary,
    /// Standbys.
    Standby,
    /// Standbys, or the primary while there is none.
    PreferStandby,
}

/// A PostgreSQL listener.
#[derive(Clone, Debug)]
pub struct PostgresListenerSettings {
    /// How clients prove who they are, by address, database and user.
    pub rules: Rules,
    /// Users and what is known of their passwords. With [`Method::Trust`] no client needs one.
    pub users: Arc<Users>,
    /// Where users are looked for that `users` does not have; `None`: nowhere.
    pub auth_query: Option<Arc<AuthQuerySettings>>,
    /// Users of the admin console that may do everything there.
    pub admin_users: Vec<String>,
    /// Users of the admin console that may look.
    pub stats_users: Vec<String>,
    /// Rules about statements.
    pub statement_rules: Arc<StatementRules>,
    /// See [`PoolMode`].
    pub pool_mode: PoolMode,
    /// The names of the upstreams, the listener's own first.
    pub upstreams: Vec<Arc<str>>,
    /// The databases that clients may name. Empty: all of the first upstream.
    pub databases: Vec<PostgresDatabaseSettings>,
    /// See [`CLIENT_LOGIN_TIMEOUT`].
    pub client_login_timeout: Duration,
    /// See [`QUERY_WAIT_TIMEOUT`].
    pub query_wait_timeout: Duration,
    /// See [`QUERY_WAIT_NOTIFY`]; `None`: no notice.
    pub query_wait_notify: Option<Duration>,
    /// Longest time from a request to its ReadyForQuery; `None`: no limit.
    pub query_timeout: Option<Duration>,
    /// See [`IDLE_TRANSACTION_TIMEOUT`]; `None`: no limit.
    pub idle_transaction_timeout: Option<Duration>,
    /// Longest silence of a client outside of a transaction; `None`: no limit.
    pub client_idle_timeout: Option<Duration>,
    /// A statement that takes so long at its server is logged; `None`: none is. PostgreSQL's `log_min_duration_statement`.
    pub log_min_duration_statement: Option<Duration>,
}

impl PostgresListenerSettings {
    /// The part that sessions with this pool mode need.
    pub(crate) fn session(&self, pool_mode: PoolMode, splits_reads: bool) -> SessionSettings {
        SessionSettings {
            pool_mode,
            splits_reads,
            query_timeout: self.query_timeout,
            idle_transaction_timeout: self.idle_transaction_timeout,
            client_idle_timeout: self.client_idle_timeout,
            log_min_duration: self.log_min_duration_statement,
            ..SessionSettings::default()
        }
    }
}

/// A database as clients name it, or all that have no entry of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresDatabaseSettings {
    /// The name that clients give; `None`: every name that no other entry has.
    pub name: Option<String>,
    /// The place of its upstream in [`PostgresListenerSettings::upstreams`].
    pub upstream: usize,
    /// The same for the upstream whose standbys serve statements that only read.
    pub read_upstream: Option<usize>,
    /// A standby that is further behind serves none; `None`: no limit.
    pub replica_lag_max: Option<Duration>,
    /// The database at the servers; `None`: that of the upstream, or else the name that the client gives.
    pub database: Option<String>,
    /// See [`PoolMode`].
    pub pool_mode: PoolMode,
    /// The user that logs in at the servers; `None`: that of the upstream.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
}

/// Users that the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthQuerySettings {
    /// The user that looks, `auth_user`.
    pub user: String,
    /// Its means to log in at the server.
    pub credential: Credential,
    /// The database of the query.
    pub database: String,
    /// The query. `$1` is the user that is looked for; it returns a row with the user and its stored password.
    pub query: String,
    /// Longest time of a lookup. It is shorter than that of a login: a slow server is not the fault of the client.
    pub timeout: Duration,
}

/// A PostgreSQL upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUpstreamSettings {
    /// The user that logs in at the servers; `None`: that of the client.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The database at the servers; `None`: that of the client.
    pub database: Option<String>,
    /// Whether a login is bound to its TLS.
    pub channel_binding: BindingMode,
    /// Makes a server clean that a client has left in another state; `None`: what the gateway knows to be necessary.
    pub server_reset_query: Option<String>,
    /// Which of the servers take sessions.
    pub target_session_attrs: TargetSessionAttrs,
    /// See [`ROLE_INTERVAL`].
    pub role_interval: Duration,
    /// Sizes and ages of the pools.
    pub pool: PooledSettings,
}

/// Users with their stored passwords: plain ones, SCRAM verifiers or MD5 hashes. A later one of a name replaces an earlier one.
pub fn users<'a>(stored: impl IntoIterator<Item = (&'a [u8], &'a Secret)>) -> Users {
    stored.into_iter().map(|(name, password)| user(name, password)).collect()
}

/// A user with its stored password. The salt of a plain one is that which a user of the name has that does not exist: neither a
/// reload nor a new user shows in it.
pub(crate) fn user(name: &[u8], password: &Secret) -> User {
    let none = ScramVerifier::mock(Mechanism::ScramSha256, name, &process_secret(), 1);
    let mut salt = [0; _];
    salt.copy_from_slice(&none.challenge().salt);
    User::new(name, password, &salt)
}
