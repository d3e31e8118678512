//! Every way to say no, in MongoDB's words: an error document, and the labels by which drivers decide about another attempt.
//!
//! Codes are those of the server's list (`error_codes.yml`). Drivers take some codes for news about the topology (91, 189, 10107, 11600,
//! 11602, 13435, 13436): they clear their pools. No refusal has one of these.

use std::borrow::Cow;

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::reply::Labels;
use weir_mongodb_codec::{CommandError, MessageError};

/// An error document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Stable snake_case label for counters and logs.
    pub reason: &'static str,
    /// `code`.
    pub code: i32,
    /// `codeName`.
    pub code_name: &'static str,
    /// `errmsg`.
    pub text: Cow<'static, str>,
    /// `errorLabels`.
    pub labels: Labels,
}

impl Refusal {
    fn new(
        reason: &'static str,
        (code, code_name): (i32, &'static str),
        text: impl Into<Cow<'static, str>>,
        labels: Labels,
    ) -> Refusal {
        Refusal { reason, code, code_name, text: text.into(), labels }
    }

    /// The gateway, or every server behind it, has too much to do. Drivers wait and try any command again.
    #[must_use]
    pub fn overloaded(reason: &'static str) -> Refusal {
        let labels = Labels::SYSTEM_OVERLOADED | Labels::RETRYABLE;
        Refusal::new(
            reason,
            (462, "IngressRequestRateLimitExceeded"),
            "the gateway is overloaded, try again later",
            labels,
        )
    }

    /// The command may be tried again as it is: nothing of it has left the gateway.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        self.labels.contains(Labels::SYSTEM_OVERLOADED)
    }

    /// A rule of the listener forbids the command.
    #[must_use]
    pub fn policy(text: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new("mongodb_policy", (13, "Unauthorized"), text, Labels::empty())
    }

    /// A command in front of the login.
    #[must_use]
    pub fn login_required(command: &str) -> Refusal {
        let text = format!("Command {command} requires authentication");
        Refusal::new("mongodb_login_required", (13, "Unauthorized"), text, Labels::empty())
    }

    /// A wrong password, an unknown user, a broken exchange: a client learns nothing more.
    #[must_use]
    pub fn login_failed() -> Refusal {
        Refusal::new("mongodb_login_failed", (18, "AuthenticationFailed"), "Authentication failed.", Labels::empty())
    }

    /// A mechanism that the listener does not have, or not without TLS.
    #[must_use]
    pub fn mechanism() -> Refusal {
        let text = "Unsupported or disabled authentication mechanism";
        Refusal::new("mongodb_mechanism", (334, "MechanismUnavailable"), text, Labels::empty())
    }

    /// A message of an exchange of SASL that is not under way.
    #[must_use]
    pub fn no_conversation() -> Refusal {
        let text = "No SASL session state found";
        Refusal::new("mongodb_sasl_order", (17, "ProtocolError"), text, Labels::empty())
    }

    /// A second login on a connection.
    #[must_use]
    pub fn second_login() -> Refusal {
        let text = "the connection is authenticated already";
        Refusal::new("mongodb_second_login", (17, "ProtocolError"), text, Labels::empty())
    }

    /// A command that no server has any more.
    #[must_use]
    pub fn unknown_command(command: &str) -> Refusal {
        let text = format!("no such command: '{command}'");
        Refusal::new("mongodb_unknown_command", (59, "CommandNotFound"), text, Labels::empty())
    }

    /// A command other than the handshake as an OP_QUERY.
    #[must_use]
    pub fn legacy_command() -> Refusal {
        let text = "Unsupported OP_QUERY command. The client driver may require an upgrade.";
        Refusal::new("mongodb_legacy_command", (352, "UnsupportedOpQueryCommand"), text, Labels::empty())
    }

    /// A cursor that does not exist for this client.
    #[must_use]
    pub fn cursor_not_found(id: i64) -> Refusal {
        let text = format!("cursor id {id} not found");
        Refusal::new("mongodb_cursor_not_found", (43, "CursorNotFound"), text, Labels::empty())
    }

    /// A transaction whose server is gone. Drivers begin it again.
    #[must_use]
    pub fn no_such_transaction(number: i64) -> Refusal {
        let text = format!("Transaction with {{ txnNumber: {number} }} has lost its server.");
        let labels = Labels::TRANSIENT_TRANSACTION;
        Refusal::new("mongodb_transaction_lost", (251, "NoSuchTransaction"), text, labels)
    }

    /// The server's connection broke before its reply, or no server could be reached. `labels` say what a driver may do.
    #[must_use]
    pub fn host_unreachable(labels: Labels) -> Refusal {
        let text = "the connection to the server was lost";
        Refusal::new("mongodb_server_lost", (6, "HostUnreachable"), text, labels)
    }

    /// The time of `maxTimeMS` is over.
    #[must_use]
    pub fn max_time() -> Refusal {
        Refusal::new("mongodb_max_time", (50, "MaxTimeMSExpired"), "operation exceeded time limit", Labels::empty())
    }

    /// A message that the gateway would have to hold and may not.
    #[must_use]
    pub fn too_large(limit: usize) -> Refusal {
        let text = format!("the body of a message may have {limit} bytes in front of its end");
        Refusal::new("mongodb_body_too_large", (10334, "BSONObjectTooLarge"), text, Labels::empty())
    }

    /// A number of something in one command that is beyond a limit.
    #[must_use]
    pub fn too_many(reason: &'static str, text: &'static str) -> Refusal {
        Refusal::new(reason, (2, "BadValue"), text, Labels::empty())
    }

    /// Fields of a hello that do not belong together.
    #[must_use]
    pub fn hello(text: &'static str) -> Refusal {
        Refusal::new("mongodb_hello", (31368, "Location31368"), text, Labels::empty())
    }

    /// A client describes itself twice.
    #[must_use]
    pub fn second_metadata() -> Refusal {
        let text = "The client metadata document may only be sent in the first hello";
        Refusal::new("mongodb_metadata_twice", (186, "ClientMetadataCannotBeMutated"), text, Labels::empty())
    }

    /// A client describes itself at length.
    #[must_use]
    pub fn large_metadata() -> Refusal {
        let text = "The client metadata document must be less then or equal to 512 bytes";
        Refusal::new("mongodb_metadata_size", (185, "ClientMetadataDocumentTooLarge"), text, Labels::empty())
    }

    /// Writes the document.
    pub fn write(&self, body: &mut Writer<'_>) {
        body.double("ok", 0.0);
        body.string("errmsg", &*self.text);
        body.int32("code", self.code);
        body.string("codeName", self.code_name);
        if !self.labels.is_empty() {
            body.array("errorLabels", self.labels.texts(), |writer, name, text| writer.string(name, text));
        }
    }
}

/// A command that cannot be read. The connection goes on: the message was whole.
impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Refusal {
        let code = match error {
            CommandError::Namespace => (73, "InvalidNamespace"),
            CommandError::Bson(_) => (22, "InvalidBSON"),
            CommandError::Type => (14, "TypeMismatch"),
            CommandError::Empty | CommandError::Duplicate | CommandError::NoDatabase => (9, "FailedToParse"),
        };
        Refusal::new(error.reason(), code, error.to_string(), Labels::empty())
    }
}

/// A message that cannot be read. The connection ends behind the error.
impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Refusal {
        Refusal::new(error.reason(), (17, "ProtocolError"), error.to_string(), Labels::empty())
    }
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{self, Document};
    use weir_mongodb_codec::reply::Reply;

    use super::*;

    #[test]
    fn an_overload_has_the_labels_by_which_drivers_back_off() {
        let mut out = Vec::new();
        bson::document(&mut out, |body| Refusal::overloaded("full").write(body));
        let reply = Reply::read(Document::read(&out).unwrap()).unwrap();
        assert_eq!((reply.is_ok, reply.code), (false, Some(462)));
        assert_eq!(reply.labels, Labels::SYSTEM_OVERLOADED | Labels::RETRYABLE);
    }
}
