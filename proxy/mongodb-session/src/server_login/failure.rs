//! Why a login at a server fails.

use std::fmt;

use weir_base::error::Culprit;
use weir_base::violation::Violation;
use weir_mongodb_codec::{BsonError, MessageError};
use weir_sasl::ClientError;

use crate::face::WireVersions;

/// Why a login at a server fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server refuses, in its own words. They are not for clients.
    Refused {
        /// Its code.
        code: i32,
        /// Its text, cut.
        text: String,
    },
    /// The server is too old or too new.
    Version {
        /// Its versions.
        wire: WireVersions,
    },
    /// A password in clear text would pass without TLS.
    ClearText,
    /// SCRAM fails on the server's side: it is not the one that it claims to be, or demands too much or too little.
    Scram(ClientError),
    /// The server breaks a rule of the protocol or a limit.
    Violation(Violation),
    /// The server has closed the connection without an error.
    Closed,
}

impl Failure {
    pub(super) fn rule(reason: &'static str) -> Failure {
        Failure::Violation(Violation::rule(reason, Culprit::Upstream, "the server broke a rule of the login"))
    }

    /// Stable snake_case label for counters and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Refused { .. } => "mongodb_server_refused",
            Failure::Version { .. } => "mongodb_server_version",
            Failure::ClearText => "mongodb_clear_text",
            Failure::Scram(_) => "mongodb_server_scram",
            Failure::Violation(violation) => violation.reason,
            Failure::Closed => "mongodb_server_closed",
        }
    }

    /// Whether another attempt may succeed without a change of the configuration: the server starts, stops, is overloaded or was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Failure::Closed => true,
            // Shutdown, primary stepped down, not primary, interrupted, overloaded.
            Failure::Refused { code, .. } => {
                matches!(code, 6 | 7 | 89 | 91 | 189 | 462 | 10107 | 11600 | 11602 | 13435 | 13436)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused { code, text } => write!(f, "the server refused the login: {text} ({code})"),
            Failure::Version { wire } => {
                write!(f, "the server speaks wire versions {} to {}, which the gateway does not", wire.min, wire.max)
            }
            Failure::ClearText => f.write_str("PLAIN sends the password in clear text: use TLS at the upstream"),
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

impl From<BsonError> for Failure {
    fn from(error: BsonError) -> Failure {
        Failure::Violation(error.violation(Culprit::Upstream))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Scram(error)
    }
}
