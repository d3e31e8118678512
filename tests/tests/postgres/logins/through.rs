//! Logins of psql through a gateway.

use std::process::{Command, Stdio};

use weir_tests::gateway::Gateway;
use weir_tests::postgres::USER;

/// Bytes of a program's output, trimmed.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A login of psql over TCP unless `words` has another host, at the database [`USER`] unless they have another: the output of
/// `statement`, or the errors.
pub fn login(
    gateway: &Gateway,
    words: &str,
    (user, password): (&str, &str),
    statement: &str,
) -> Result<String, String> {
    login_at(gateway.address.tcp().port(), words, (user, password), statement)
}

/// The same at a port of this machine.
pub fn login_at(port: u16, words: &str, (user, password): (&str, &str), statement: &str) -> Result<String, String> {
    let target = format!("host=127.0.0.1 port={port} user='{user}' dbname={USER} {words}");
    let mut psql = Command::new("psql");
    psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", &target, "-c", statement]);
    psql.env("PGPASSWORD", password).env("PGCONNECT_TIMEOUT", "30").env_remove("PGOPTIONS").stdin(Stdio::null());
    let output = psql.output().expect("psql starts: `cargo xtask setup postgres` installs it");
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
