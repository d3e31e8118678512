//! Why a login at a server fails.

use std::fmt;

use weir_base::error::Culprit;
use weir_base::violation::Violation;
use weir_postgres_codec::MessageError;
use weir_sasl::ClientError;

/// Why a login at a server fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses, in its own words.
    Refused(ServerError),
    /// The server has no TLS, and the configuration demands it.
    NoTls,
    /// The server wants a proof that the gateway has no means for.
    NoCredential {
        /// The gateway has keys of the client's proof, which are worth nothing to this server's method.
        has_keys: bool,
    },
    /// Keys of a client's proof are those of another verifier than the server's: forget them.
    OtherVerifier,
    /// The server's method is not supported, or not without TLS. The text says which.
    Unsupported(&'static str),
    /// SCRAM fails on the server's side: it is not the one that it claims to be, or demands too much.
    Scram(ClientError),
    /// The server breaks a rule of the protocol or a limit.
    Violation(Violation),
    /// The server has closed the connection without an error.
    Closed,
}

/// An error of a server in a login.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    /// The whole message, with its head: a client may get it as it is.
    pub message: Vec<u8>,
    /// Its code; `None`: it has none, and a client needs one of ours.
    pub sqlstate: Option<String>,
    /// Its text, for the log.
    pub text: String,
    /// The server has accepted the gateway: the error is about the session, such as a database that does not exist. Before
    /// that it is about the gateway's own password, and not for clients.
    pub is_authenticated: bool,
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerError")
            .field("sqlstate", &self.sqlstate)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

impl ServerError {
    /// The server has no room for another session: SQLSTATE class 53.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.sqlstate.as_deref().is_some_and(|code| code.starts_with("53"))
    }
}

impl Failure {
    pub(super) const NO_BINDING: Failure =
        Failure::Unsupported("channel binding is required, and the server does not offer SCRAM-SHA-256-PLUS over TLS");

    pub(super) fn rule(reason: &'static str) -> Failure {
        Failure::Violation(Violation::rule(reason, Culprit::Upstream, "the server broke a rule of the login"))
    }

    /// Stable snake_case label for counters and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Refused(_) => "postgres_server_refused",
            Failure::NoTls => "postgres_server_without_tls",
            Failure::NoCredential { .. } => "postgres_no_credential",
            Failure::OtherVerifier => "postgres_other_verifier",
            Failure::Unsupported(_) => "postgres_unsupported_authentication",
            Failure::Scram(_) => "postgres_server_scram",
            Failure::Violation(violation) => violation.reason,
            Failure::Closed => "postgres_server_closed",
        }
    }

    /// Whether another attempt may succeed without a change of the configuration: the server starts, stops, is full or was
    /// lost. SQLSTATE classes 08, 53 and 57P.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Failure::Closed => true,
            Failure::Refused(error) => {
                let code = error.sqlstate.as_deref().unwrap_or_default();
                ["08", "53", "57P"].iter().any(|class| code.starts_with(class)) && code != "08P01"
            }
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(error) => {
                write!(f, "the server refused the login: {} ({})", error.text, error.sqlstate.as_deref().unwrap_or("-"))
            }
            Failure::NoTls => f.write_str("the server has no TLS, and the upstream demands it"),
            Failure::NoCredential { has_keys: true } => {
                f.write_str("the server wants a password, and the client's login has left only SCRAM keys: set user and password at the upstream")
            }
            Failure::NoCredential { has_keys: false } => {
                f.write_str("the server wants a password, and none is known: set user and password at the upstream")
            }
            Failure::OtherVerifier => f.write_str(
                "the client's SCRAM keys belong to another verifier than the server's: store the server's verifier, or set user and password at the upstream",
            ),
            Failure::Unsupported(text) => f.write_str(text),
            Failure::Scram(error) => error.fmt(f),
            Failure::Violation(violation) => violation.fmt(f),
            Failure::Closed => f.write_str("the server closed the connection during the login"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<MessageError> for Failure {
    fn from(error: MessageError) -> Failure {
        Failure::Violation(error.violation(Culprit::Upstream))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Scram(error)
    }
}
