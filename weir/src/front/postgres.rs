//! PostgreSQL: a login without a password, and what the server reports of itself.

use weir_engine::settings::Address;
use weir_postgres_codec::{
    backend::{Authentication, ErrorFields, ParameterStatus, tag},
    frame::{self, HEAD_BYTES},
    frontend,
    startup::Version,
};

use super::{
    Protocol, TlsRequest,
    probe::{ProbeConnection, excerpt, millis},
};

/// The row.
pub const PROTOCOL: Protocol = Protocol {
    word: "postgres",
    about: "Run the gateway in front of a PostgreSQL server, without a configuration file",
    listen_port: 6432,
    server_port: 5432,
    listener_table: "\n# Every client is trusted, and logs in at the server as the user that it names. For passwords:\n\
                     # auth = \"scram-sha-256\", [[listener.user]], and user and password in [upstream.postgres].\n\
                     [listener.postgres]\nauth = \"trust\"\n",
    tls_request: Some(TlsRequest { request: &[0, 0, 0, 8, 4, 210, 22, 47], agreement: b'S' }),
    ask,
    try_it,
};

/// The user and database of the login: every cluster has both, unless they were dropped.
const PARAMETERS: [(&[u8], &[u8]); 2] = [(b"user", b"postgres"), (b"database", b"postgres")];

fn ask(contact: &mut ProbeConnection<'_>) -> Result<String, String> {
    let mut startup = Vec::new();
    frontend::startup(&mut startup, Version::V3_0, PARAMETERS);
    let (reply, took) = contact.exchange(&startup, |bytes| outcome(bytes).is_some())?;
    match outcome(&reply) {
        Some(Ok(server)) => Ok(format!("{server}, responded in {}", millis(took))),
        Some(Err(what)) => Err(what),
        None => Err(format!("something listens there that is not PostgreSQL: it responds with {}", excerpt(&reply))),
    }
}

/// The result of the login. `None`: it has not come yet, or the bytes are not of PostgreSQL.
fn outcome(mut bytes: &[u8]) -> Option<Result<String, String>> {
    let (mut version, mut is_standby) = (String::new(), false);
    while let Ok(Some(head)) = frame::head(bytes) {
        let body = bytes.get(HEAD_BYTES..head.whole())?;
        match head.tag {
            tag::AUTHENTICATION => match Authentication::read(body).ok()? {
                Authentication::Ok => {}
                _ => return Some(Err(PASSWORD_WANTED.to_owned())),
            },
            tag::ERROR => return Some(refusal(ErrorFields::read(body).ok()?)),
            tag::PARAMETER_STATUS => {
                let report = ParameterStatus::read(body).ok()?;
                match report.name {
                    b"server_version" => version = String::from_utf8_lossy(report.value).into_owned(),
                    b"in_hot_standby" => is_standby = report.value == b"on",
                    _ => {}
                }
            }
            tag::READY_FOR_QUERY => {
                let role = if is_standby { "standby" } else { "primary" };
                // `15.20 (Debian 15.20-0+deb12u1)`
                let number = version.split(' ').next().unwrap_or_default();
                return Some(Ok(format!("PostgreSQL {number}, {role}")));
            }
            _ => {}
        }
        bytes = &bytes[head.whole()..];
    }
    None
}

const PASSWORD_WANTED: &str = "PostgreSQL wants a password. Write the file with --write and add user and password: \
                               [upstream.postgres] password = { env = \"NAME\" }";

/// A server that refuses the user of the probe may serve others.
fn refusal(fields: ErrorFields<'_>) -> Result<String, String> {
    let message = String::from_utf8_lossy(fields.message().unwrap_or_default()).into_owned();
    match fields.sqlstate() {
        Some(state) if state.starts_with("28") || state.starts_with("3D") => {
            Ok(format!("PostgreSQL, which has no login for the probe ({message})"))
        }
        _ => Err(format!("PostgreSQL refuses connections: {message}")),
    }
}

fn try_it(address: &Address) -> String {
    match address {
        Address::Unix(path) => {
            let folder = path.parent().unwrap_or(std::path::Path::new("/"));
            format!("psql -h {} -p PORT, if the socket is called .s.PGSQL.PORT", folder.display())
        }
        other => {
            let (host, port) = (other.host().unwrap_or_default(), other.port().unwrap_or_default());
            format!("psql -h {host} -p {port} -U postgres")
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_postgres_codec::{
        TransactionStatus,
        backend::{self, ErrorReport},
    };

    use super::*;

    fn reply(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_login_says_the_version_and_the_role_and_no_byte_less() {
        for (standby, role) in [("off", "primary"), ("on", "standby")] {
            let whole = reply(|out| {
                backend::authentication_ok(out);
                backend::parameter_status(out, b"server_version", b"15.20 (Debian 15.20-0+deb12u1)");
                backend::parameter_status(out, b"in_hot_standby", standby.as_bytes());
                backend::ready_for_query(out, TransactionStatus::Idle);
            });
            for end in 0..whole.len() {
                assert_eq!(outcome(&whole[..end]), None, "{end} bytes");
            }
            assert_eq!(outcome(&whole), Some(Ok(format!("PostgreSQL 15.20, {role}"))));
        }
    }

    #[test]
    fn a_password_and_a_refusal_are_findings_and_other_protocols_are_none() {
        let wants = reply(|out| backend::authentication_md5(out, [1; 4]));
        assert_eq!(outcome(&wants), Some(Err(PASSWORD_WANTED.to_owned())));
        let refused = |state| reply(|out| backend::error(out, &ErrorReport::fatal(state, "no")));
        let unknown = "PostgreSQL, which has no login for the probe (no)";
        assert_eq!(outcome(&refused("28000")), Some(Ok(unknown.to_owned())));
        assert_eq!(outcome(&refused("53300")), Some(Err("PostgreSQL refuses connections: no".to_owned())));
        assert_eq!(outcome(b"HTTP/1.1 400 Bad Request\r\n\r\n"), None);
    }
}
