//! Every way to refuse a login. SQLSTATE and text are those of PostgreSQL where it has the case.

use weir_base::error::Culprit;
use weir_base::violation::Violation;
use weir_postgres_codec::backend::{self, ErrorReport};
use weir_postgres_codec::limits::PREAUTH_MESSAGE_BYTES_MAX;
use weir_postgres_codec::{FrameError, MessageError, StartupError, Version, sqlstate};
use weir_sasl::ServerError;

use super::options::OptionsError;
use crate::hba::Client;

/// Why a login ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Whose doing it is.
    pub kind: RefusalKind,
    /// Stable snake_case label for counters and logs.
    pub reason: &'static str,
    /// The FATAL error for the client; `None`: PostgreSQL closes without a word.
    report: Option<Box<Report>>,
}

/// The kinds of refusals, which a shell treats in different ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The client broke a rule of the protocol or a limit: a defensive close.
    Violation(Violation),
    /// The password or proof is wrong, or there is no such user: the source is delayed.
    WrongPassword,
    /// The configuration does not let this client in.
    Policy,
    /// A mistake of ours.
    Internal,
}

/// An owned [`ErrorReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    sqlstate: &'static str,
    message: Vec<u8>,
    detail: Option<String>,
    hint: Option<&'static str>,
}

impl Report {
    fn new(sqlstate: &'static str, message: Vec<u8>) -> Box<Report> {
        Box::new(Report { sqlstate, message, detail: None, hint: None })
    }
}

impl Refusal {
    /// The SQLSTATE for the client; `None`: it gets no error.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&'static str> {
        self.report.as_ref().map(|report| report.sqlstate)
    }

    /// The text for the client, or nothing.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        self.report.as_ref().map(|report| report.message.as_slice()).unwrap_or_default()
    }

    /// The login takes too long. PostgreSQL closes without a word after `authentication_timeout`.
    #[must_use]
    pub fn timeout(limit_ms: u64) -> Refusal {
        let violation =
            Violation::limit("postgres_login_timeout", Culprit::Client, "the login took too long", limit_ms, limit_ms);
        Refusal { reason: violation.reason, kind: RefusalKind::Violation(violation), report: None }
    }

    /// Writes the error for the client, if there is one.
    pub fn write(&self, out: &mut Vec<u8>) {
        let Some(report) = &self.report else { return };
        let mut fatal = ErrorReport::fatal(report.sqlstate, &report.message);
        fatal.detail = report.detail.as_deref().map(str::as_bytes);
        fatal.hint = report.hint.map(str::as_bytes);
        backend::error(out, &fatal);
    }

    pub(super) fn second_request(version: Version) -> Refusal {
        let text = StartupError::Version(version).text().into_owned();
        rule("postgres_second_encryption_request", sqlstate::PROTOCOL_VIOLATION, &text)
    }

    pub(super) fn bytes_behind(request: &'static str) -> Refusal {
        let text = format!("received unencrypted data after {request}");
        let detail = "This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.";
        rule("postgres_bytes_behind_request", sqlstate::PROTOCOL_VIOLATION, &text).with_detail(Some(detail.to_owned()))
    }

    pub(super) fn direct_tls_without_alpn() -> Refusal {
        let text = "received direct SSL connection request without ALPN protocol negotiation extension";
        let violation = Violation::rule("postgres_direct_tls_without_alpn", Culprit::Client, text);
        Refusal { reason: violation.reason, kind: RefusalKind::Violation(violation), report: None }
    }

    pub(super) fn no_user() -> Refusal {
        let message = b"no PostgreSQL user name specified in startup packet".to_vec();
        policy("postgres_no_user", sqlstate::INVALID_AUTHORIZATION, message)
    }

    pub(super) fn options(error: &OptionsError) -> Refusal {
        policy("postgres_options", sqlstate::SYNTAX_ERROR, error.to_string().into_bytes())
    }

    pub(super) fn replication_value(value: &[u8]) -> Refusal {
        let message = quoted(b"invalid value for parameter \"replication\": ", value, b"");
        let mut refusal = policy("postgres_replication_value", sqlstate::INVALID_PARAMETER_VALUE, message);
        refusal.set_hint("Valid values are: \"false\", 0, \"true\", 1, \"database\".");
        refusal
    }

    pub(super) fn replication() -> Refusal {
        let message = b"replication connections are not allowed here".to_vec();
        let mut refusal = policy("postgres_replication", sqlstate::FEATURE_NOT_SUPPORTED, message);
        refusal.set_hint("Connect to the server itself.");
        refusal
    }

    /// No rule fits, or the one that fits rejects.
    pub(super) fn rules(client: &Client<'_>, is_rejected: bool) -> Refusal {
        let host = client.address.map_or_else(|| "[local]".to_owned(), |address| address.to_canonical().to_string());
        let beginning = match is_rejected {
            true => format!("pg_hba.conf rejects connection for host \"{host}\""),
            false => format!("no pg_hba.conf entry for host \"{host}\""),
        };
        let encryption = if client.is_tls { "SSL encryption" } else { "no encryption" };
        let parts: [&[u8]; 7] = [
            beginning.as_bytes(),
            b", user \"",
            client.user,
            b"\", database \"",
            client.database,
            b"\", ",
            encryption.as_bytes(),
        ];
        let message = parts.concat();
        let reason = if is_rejected { "postgres_rejected" } else { "postgres_no_rule" };
        policy(reason, sqlstate::INVALID_AUTHORIZATION, message)
    }

    pub(super) fn clear_text_without_tls() -> Refusal {
        let message = b"a password in clear text requires an encrypted connection".to_vec();
        let mut refusal = policy("postgres_clear_text_without_tls", sqlstate::INVALID_AUTHORIZATION, message);
        refusal.set_hint("Connect with sslmode=require.");
        refusal
    }

    pub(super) fn no_certificate() -> Refusal {
        let message = b"connection requires a valid client certificate".to_vec();
        policy("postgres_no_certificate", sqlstate::INVALID_AUTHORIZATION, message)
    }

    pub(super) fn wrong_certificate(user: &[u8]) -> Refusal {
        let message = quoted(b"certificate authentication failed for user ", user, b"");
        let refusal = policy("postgres_wrong_certificate", sqlstate::INVALID_AUTHORIZATION, message);
        Refusal { kind: RefusalKind::WrongPassword, ..refusal }
    }

    /// A wrong password and an unknown user: a client sees no difference.
    pub(super) fn wrong_password(user: &[u8]) -> Refusal {
        let message = quoted(b"password authentication failed for user ", user, b"");
        let refusal = policy("postgres_wrong_password", sqlstate::INVALID_PASSWORD, message);
        Refusal { kind: RefusalKind::WrongPassword, ..refusal }
    }

    pub(super) fn empty_password() -> Refusal {
        let message = b"empty password returned by client".to_vec();
        let refusal = policy("postgres_empty_password", sqlstate::INVALID_PASSWORD, message);
        Refusal { kind: RefusalKind::WrongPassword, ..refusal }
    }

    pub(super) fn wrong_type(is_sasl: bool, tag: u8) -> Refusal {
        let response = if is_sasl { "SASL" } else { "password" };
        let text = format!("expected {response} response, got message type {tag}");
        rule("postgres_unexpected_message", sqlstate::PROTOCOL_VIOLATION, &text)
    }

    pub(super) fn message_too_long(bytes: usize) -> Refusal {
        let limit = PREAUTH_MESSAGE_BYTES_MAX as u64;
        let text = "a message before the login is too long";
        let violation = Violation::limit("postgres_preauth_message", Culprit::Client, text, bytes as u64, limit);
        Refusal { reason: violation.reason, kind: RefusalKind::Violation(violation), report: None }
    }

    pub(super) fn mechanism() -> Refusal {
        let text = "client selected an invalid SASL authentication mechanism";
        rule("postgres_sasl_mechanism", sqlstate::PROTOCOL_VIOLATION, text)
    }

    /// The message of SCRAM is wrong; `user` is for a wrong proof.
    pub(super) fn scram(error: &ServerError, user: &[u8]) -> Refusal {
        let sqlstate = match error {
            ServerError::WrongProof => return Refusal::wrong_password(user),
            ServerError::AuthorizationIdentity | ServerError::MandatoryExtension => sqlstate::FEATURE_NOT_SUPPORTED,
            ServerError::Downgrade | ServerError::BindingMismatch => sqlstate::INVALID_AUTHORIZATION,
            ServerError::Malformed(_)
            | ServerError::NonceNotPrintable
            | ServerError::BindingType { .. }
            | ServerError::BindingAttribute
            | ServerError::NonceMismatch => sqlstate::PROTOCOL_VIOLATION,
        };
        rule("postgres_scram", sqlstate, &error.to_string()).with_detail(error.detail())
    }

    pub(super) fn internal() -> Refusal {
        let refusal = policy("postgres_internal", sqlstate::INTERNAL_ERROR, b"the login cannot go on".to_vec());
        Refusal { kind: RefusalKind::Internal, ..refusal }
    }

    fn with_detail(mut self, detail: Option<String>) -> Refusal {
        if let Some(report) = &mut self.report {
            report.detail = detail;
        }
        self
    }

    fn set_hint(&mut self, hint: &'static str) {
        if let Some(report) = &mut self.report {
            report.hint = Some(hint);
        }
    }
}

impl From<StartupError> for Refusal {
    fn from(error: StartupError) -> Refusal {
        let message = error.text().into_owned().into_bytes();
        let report = error.sqlstate().map(|sqlstate| Report::new(sqlstate, message));
        Refusal { kind: RefusalKind::Violation(error.violation()), reason: error.reason(), report }
    }
}

/// PostgreSQL closes without an error.
impl From<FrameError> for Refusal {
    fn from(error: FrameError) -> Refusal {
        let violation = error.violation(Culprit::Client);
        Refusal { kind: RefusalKind::Violation(violation), reason: error.reason(), report: None }
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Refusal {
        let message = error.text().into_owned().into_bytes();
        let report = Report::new(error.sqlstate(), message);
        let violation = error.violation(Culprit::Client);
        Refusal { kind: RefusalKind::Violation(violation), reason: error.reason(), report: Some(report) }
    }
}

fn policy(reason: &'static str, sqlstate: &'static str, message: Vec<u8>) -> Refusal {
    let report = Report::new(sqlstate, message);
    Refusal { kind: RefusalKind::Policy, reason, report: Some(report) }
}

fn rule(reason: &'static str, sqlstate: &'static str, text: &str) -> Refusal {
    let report = Report::new(sqlstate, text.as_bytes().to_vec());
    // A violation never quotes the peer; its reason says enough.
    let violation = Violation::rule(reason, Culprit::Client, "the client broke a rule of the login");
    Refusal { kind: RefusalKind::Violation(violation), reason, report: Some(report) }
}

/// `before "name" after`.
fn quoted(before: &[u8], name: &[u8], after: &[u8]) -> Vec<u8> {
    [before, b"\"", name, b"\"", after].concat()
}
