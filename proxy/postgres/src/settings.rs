//! Options that an operator may choose, with defaults and reasons. Names are those of PgBouncer where it has one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use weir_base::Secret;
use weir_upstream::pooled::PooledSettings;

/// From the accepted connection to the first ReadyForQuery. Default 30 s: a login takes three round trips and a wait for a server.
pub const CLIENT_LOGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait of a client for a server. Default 10 s: an application gives up at about that time, and a queue that is served later is
/// work for nobody.
pub const QUERY_WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// When a waiting client gets a notice. Default 5 s, as PgBouncer.
pub const QUERY_WAIT_NOTIFY: Duration = Duration::from_secs(5);
/// A client that is silent within a transaction. Default 60 s: it keeps a server from all others.
pub const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// A password that never crosses the wire, by SCRAM-SHA-256.
    #[default]
    ScramSha256,
    /// The challenge of old clients; those with a SCRAM verifier use that.
    Md5,
    /// A certificate of the TLS handshake, which names the user.
    Cert,
    /// No proof at all.
    Trust,
}

/// How long a client keeps a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolMode {
    /// Until its transaction ends.
    #[default]
    Transaction,
    /// Until it disconnects.
    Session,
    /// Until its statement ends; transaction blocks are refused.
    Statement,
}

/// A PostgreSQL listener.
#[derive(Clone, Debug)]
pub struct PostgresListenerSettings {
    /// See [`Auth`].
    pub auth: Auth,
    /// Passwords, or SCRAM verifiers, by the names of users. With [`Auth::Trust`] nobody needs one.
    pub users: Arc<HashMap<String, Secret>>,
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

/// A PostgreSQL upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUpstreamSettings {
    /// The user that logs in at the servers; `None`: that of the client.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The database at the servers; `None`: that of the client.
    pub database: Option<String>,
    /// Sizes and ages of the pools.
    pub pool: PooledSettings,
}
