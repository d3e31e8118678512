//! From the first packet to the first ReadyForQuery. Every user is let in, and every database is there.

use weir_postgres_codec::backend::{self, ErrorReport, TransactionStatus};
use weir_postgres_codec::startup::{self, Parameters, Startup};
use weir_postgres_codec::{StartupError, Version, sqlstate};

/// Parameters that PostgreSQL 15 reports, and their values here. Those of a client come from its startup packet.
const REPORTED: [(&[u8], &[u8]); 11] = [
    (b"client_encoding", b"UTF8"),
    (b"DateStyle", b"ISO, MDY"),
    (b"default_transaction_read_only", b"off"),
    (b"in_hot_standby", b"off"),
    (b"integer_datetimes", b"on"),
    (b"IntervalStyle", b"postgres"),
    (b"is_superuser", b"off"),
    (b"server_encoding", b"UTF8"),
    (b"server_version", b"15.0 (weir lab origin)"),
    (b"standard_conforming_strings", b"on"),
    (b"TimeZone", b"UTC"),
];

/// Names of the client's own among the reported ones that take its value.
const FROM_CLIENT: [&[u8]; 4] = [b"client_encoding", b"DateStyle", b"IntervalStyle", b"TimeZone"];

/// The state of the login.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginStep {
    /// The packet is not whole.
    More,
    /// So many bytes were taken; another packet follows.
    Again(usize),
    /// So many bytes were taken; messages follow.
    Done(usize),
    /// The connection ends.
    Close,
}

/// The login of one client.
#[derive(Debug, Default)]
pub(super) struct Login {
    has_asked_for_tls: bool,
    has_asked_for_gss: bool,
}

impl Login {
    /// Answers the packet that `input` begins with.
    pub(super) fn answer(&mut self, pid: u32, input: &[u8], out: &mut Vec<u8>) -> LoginStep {
        match startup::read(input) {
            Ok(None) => LoginStep::More,
            Ok(Some((Startup::Ssl, bytes))) if !self.has_asked_for_tls => {
                self.has_asked_for_tls = true;
                out.push(b'N');
                LoginStep::Again(bytes)
            }
            Ok(Some((Startup::Gss, bytes))) if !self.has_asked_for_gss => {
                self.has_asked_for_gss = true;
                out.push(b'N');
                LoginStep::Again(bytes)
            }
            Ok(Some((Startup::Ssl, _))) => refuse(StartupError::Version(Version::SSL), out),
            Ok(Some((Startup::Gss, _))) => refuse(StartupError::Version(Version::GSS), out),
            // No statement runs long enough to be cancelled.
            Ok(Some((Startup::Cancel { .. }, _))) => LoginStep::Close,
            Ok(Some((Startup::Session { version, parameters }, bytes))) => {
                if welcome(pid, version, parameters, out) {
                    LoginStep::Done(bytes)
                } else {
                    LoginStep::Close
                }
            }
            Err(error) => refuse(error, out),
        }
    }
}

fn refuse(error: StartupError, out: &mut Vec<u8>) -> LoginStep {
    if let Some(sqlstate) = error.sqlstate() {
        backend::error(out, &ErrorReport::fatal(sqlstate, &*error.text()));
    }
    LoginStep::Close
}

/// Everything up to the first ReadyForQuery; false: the client is refused.
fn welcome(pid: u32, version: Version, parameters: Parameters<'_>, out: &mut Vec<u8>) -> bool {
    if version > Version::V3_0 || parameters.protocol_options().next().is_some() {
        backend::negotiate_protocol_version(out, Version::V3_0, parameters.protocol_options());
    }
    let Some(user) = parameters.user() else {
        let text = "no PostgreSQL user name specified in startup packet";
        backend::error(out, &ErrorReport::fatal(sqlstate::INVALID_AUTHORIZATION, text));
        return false;
    };
    backend::authentication_ok(out);
    backend::parameter_status(out, b"application_name", parameters.get(b"application_name").unwrap_or_default());
    for (name, value) in REPORTED {
        let own = FROM_CLIENT.contains(&name).then(|| parameters.get(name)).flatten();
        backend::parameter_status(out, name, own.unwrap_or(value));
    }
    backend::parameter_status(out, b"session_authorization", user);
    backend::backend_key_data(out, pid, &pid.wrapping_mul(0x9e37_79b1).to_be_bytes());
    backend::ready_for_query(out, TransactionStatus::Idle);
    true
}
