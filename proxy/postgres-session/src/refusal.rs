//! Every way to say no, in PostgreSQL's words.

use std::borrow::Cow;

use weir_postgres_codec::{backend::ErrorReport, sqlstate};

/// An error of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The SQLSTATE.
    pub sqlstate: &'static str,
    /// The text for the client.
    pub text: Cow<'static, str>,
    /// The session ends with it.
    pub is_fatal: bool,
}

impl Refusal {
    pub(crate) const SHUTDOWN: Self =
        Self::fixed(sqlstate::ADMIN_SHUTDOWN, "terminating connection due to administrator command", true);
    pub(crate) const SERVER_REPLACED: Self =
        Self::fixed(sqlstate::ADMIN_SHUTDOWN, "terminating connection: another server is the primary now", true);
    pub(crate) const BLOCK_IN_STATEMENT_POOLING: Self =
        Self::fixed(sqlstate::FEATURE_NOT_SUPPORTED, "transaction blocks not allowed in statement pooling mode", true);
    pub(crate) const QUERY_TIMEOUT: Self = Self::fixed(sqlstate::QUERY_CANCELED, "query timeout", true);
    pub(crate) const IDLE_TRANSACTION: Self = Self::fixed(
        sqlstate::IDLE_IN_TRANSACTION_TIMEOUT,
        "terminating connection due to idle-in-transaction timeout",
        true,
    );
    pub(crate) const CLIENT_IDLE: Self =
        Self::fixed(sqlstate::IDLE_SESSION_TIMEOUT, "terminating connection due to idle-session timeout", true);
    pub(crate) const SERVER_LOST_FATAL: Self =
        Self::fixed(sqlstate::CONNECTION_FAILURE, "the connection to the server was lost within a transaction", true);
    pub(crate) const SERVER_LOST: Self = Self::fixed(
        sqlstate::CONNECTION_FAILURE,
        "the connection to the server was lost: the statement may have been executed",
        false,
    );
    pub(crate) const SERVER_LOST_UNUSED: Self = Self::fixed(
        sqlstate::CONNECTION_FAILURE,
        "the connection to the server was lost before it had the statement: it has not been executed",
        false,
    );
    pub(crate) const TOO_MANY_STATEMENTS: Self = Self::fixed(
        sqlstate::INSUFFICIENT_RESOURCES,
        "too many prepared statements, or too many bytes of them: close some that are not needed",
        false,
    );

    pub(crate) const NO_STATEMENT: Self =
        Self::fixed(sqlstate::INVALID_SQL_STATEMENT_NAME, "prepared statement does not exist", false);
    pub(crate) const OTHER_ENCODING: Self = Self::fixed(
        sqlstate::INVALID_SQL_STATEMENT_NAME,
        "the prepared statement was prepared with another client_encoding: prepare it again",
        false,
    );
    pub(crate) const OTHER_ROW_TYPE: Self =
        Self::fixed(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type", false);
    pub(crate) const RESERVED_NAME: Self = Self::fixed(
        sqlstate::DUPLICATE_PREPARED_STATEMENT,
        "names of prepared statements that begin with \"weir_\" are the gateway's",
        false,
    );

    const fn fixed(sqlstate: &'static str, text: &'static str, is_fatal: bool) -> Self {
        Self { sqlstate, text: Cow::Borrowed(text), is_fatal }
    }

    /// An error with this SQLSTATE; the session goes on.
    pub fn error(sqlstate: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { sqlstate, text: text.into(), is_fatal: false }
    }

    /// An error with which the session ends.
    pub fn fatal_error(sqlstate: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { sqlstate, text: text.into(), is_fatal: true }
    }

    /// No server of the pool became free in time (53300).
    pub fn wait_timeout(pool: &str, waiters: usize, waited: std::time::Duration) -> Self {
        let text = format!(
            "query_wait_timeout: no server of pool {pool} became free within {:.1} s ({waiters} clients wait)",
            waited.as_secs_f64()
        );
        Self::error(sqlstate::TOO_MANY_CONNECTIONS, text)
    }

    /// No server can be reached (57P03).
    pub fn unreachable(pool: &str) -> Self {
        let text = format!("no server of pool {pool} can be reached; try again later");
        Self::error(sqlstate::CANNOT_CONNECT_NOW, text)
    }

    /// The session goes to standbys alone, and none serves (57P03).
    pub fn no_standby(pool: &str) -> Self {
        let text = format!(
            "no standby serves pool {pool} now, and weir.role requires one; try again later, or SET weir.role = 'auto'"
        );
        Self::error(sqlstate::CANNOT_CONNECT_NOW, text)
    }

    /// The gateway drains (57P01).
    pub fn shutdown() -> Self {
        Self::SHUTDOWN
    }

    pub(crate) fn report(&self) -> ErrorReport<'_> {
        ErrorReport::error(self.sqlstate, &*self.text)
    }

    pub(crate) fn fatal(&self) -> ErrorReport<'_> {
        ErrorReport::fatal(self.sqlstate, &*self.text)
    }
}
