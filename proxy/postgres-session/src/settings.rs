//! Options that an operator may choose.

use std::time::Duration;

/// How long a client keeps a server. The names are PgBouncer's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolMode {
    /// Until it disconnects.
    Session,
    /// Until its transaction ends.
    #[default]
    Transaction,
    /// Until its statement ends; transaction blocks are refused.
    Statement,
}

impl PoolMode {
    /// The word of the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// Bytes of a Query or Parse that are held for the analysis. Larger ones are streamed and opaque.
/// Default 128 KiB: statements that people and programs write are smaller. Worst case: as much for each client.
pub const MESSAGE_BYTES: usize = 128 * 1024;

/// Names of prepared statements of one client, those of SQL's PREPARE included. Drivers keep 100 to 256.
pub const CLIENT_STATEMENTS_MAX: usize = 512;

/// Bytes of the names and texts of these. Default 4 MiB: 512 statements of 8 kB. Worst case: as much for each client, in
/// texts that no two have in common.
pub const CLIENT_STATEMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Prepared statements at one server, as PgBouncer's `max_prepared_statements` since 1.24.
pub const SERVER_STATEMENTS_MAX: usize = 200;

/// The settings of the sessions of one listener and database.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// How long a client keeps a server.
    pub pool_mode: PoolMode,
    /// Longest time from a request to its ReadyForQuery; `None`: no limit.
    pub query_timeout: Option<Duration>,
    /// Longest time in a transaction without a request; `None`: no limit.
    pub idle_transaction_timeout: Option<Duration>,
    /// Longest time outside of a transaction without a request; `None`: no limit.
    pub client_idle_timeout: Option<Duration>,
    /// Bytes of a Query or Parse that are held for the analysis; see [`MESSAGE_BYTES`].
    pub message_bytes: usize,
    /// Names of prepared statements of one client; see [`CLIENT_STATEMENTS_MAX`].
    pub client_statements_max: usize,
    /// Bytes of the names and texts of these; see [`CLIENT_STATEMENT_BYTES_MAX`].
    pub client_statement_bytes_max: usize,
    /// Prepared statements at one server; see [`SERVER_STATEMENTS_MAX`].
    pub server_statements_max: usize,
    /// LISTEN goes to the hub of server, database and user, and does not pin. In session pooling it stays with the client's server.
    pub shares_listen: bool,
    /// Statements that only read may go to a standby.
    pub splits_reads: bool,
    /// A statement that takes so long or longer is one of [`Session::take_slow`](crate::Session::take_slow); `None`: none is.
    pub log_min_duration: Option<Duration>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            pool_mode: PoolMode::Transaction,
            query_timeout: None,
            idle_transaction_timeout: Some(Duration::from_secs(60)),
            client_idle_timeout: None,
            message_bytes: MESSAGE_BYTES,
            client_statements_max: CLIENT_STATEMENTS_MAX,
            client_statement_bytes_max: CLIENT_STATEMENT_BYTES_MAX,
            server_statements_max: SERVER_STATEMENTS_MAX,
            shares_listen: true,
            splits_reads: false,
            log_min_duration: None,
        }
    }
}
