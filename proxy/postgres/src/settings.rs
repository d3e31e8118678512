//! Options that an operator may choose, with defaults and reasons. Names are those of PgBouncer where it has one.

use std::{sync::Arc, time::Duration};

use weir_base::Secret;
use weir_postgres_session::users::{User, Users};
pub use weir_postgres_session::{PoolMode, SessionSettings, hba::Method};
use weir_sasl::limits::SALT_BYTES;
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

/// A PostgreSQL listener.
#[derive(Clone, Debug)]
pub struct PostgresListenerSettings {
    /// How clients prove who they are.
    pub auth: Method,
    /// Users and what is known of their passwords. With [`Method::Trust`] no client needs one.
    pub users: Arc<Users>,
    /// Users of the admin console that may do everything there.
    pub admin_users: Vec<String>,
    /// Users of the admin console that may look.
    pub stats_users: Vec<String>,
    /// Rules about statements.
    pub rules: Arc<StatementRules>,
    /// See [`PoolMode`].
    pub pool_mode: PoolMode,
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
}

impl PostgresListenerSettings {
    /// The part that sessions need.
    pub(crate) fn session(&self) -> SessionSettings {
        SessionSettings {
            pool_mode: self.pool_mode,
            query_timeout: self.query_timeout,
            idle_transaction_timeout: self.idle_transaction_timeout,
            client_idle_timeout: self.client_idle_timeout,
            ..SessionSettings::default()
        }
    }
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
    /// Makes a server clean that a client has left in another state; `None`: what the gateway knows to be necessary.
    pub server_reset_query: Option<String>,
    /// Sizes and ages of the pools.
    pub pool: PooledSettings,
}

/// Users with their stored passwords: plain ones, SCRAM verifiers or MD5 hashes. A plain one costs a millisecond.
pub fn users<'a>(stored: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Users {
    let user = |(name, password): (&str, &Secret)| {
        let mut salt = [0; SALT_BYTES];
        // Without randomness no login succeeds.
        let _ = aws_lc_rs::rand::fill(&mut salt);
        User::new(name.as_bytes(), password, &salt)
    };
    stored.into_iter().map(user).collect()
}
