//! A certificate for 127.0.0.1 that lasts as long as a measurement, made by the `openssl` program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peer::find_program;

/// The word that peers write for the certificate, and its file.
pub(crate) const CERTIFICATE: (&str, &str) = ("{certificate}", "tls.crt");
/// The same for its key.
pub(crate) const KEY: (&str, &str) = ("{key}", "tls.key");
/// The same for both in one file.
pub(crate) const BOTH: (&str, &str) = ("{certificate_and_key}", "tls.pem");

/// Writes a self-signed certificate with its key into `folder`, where peers look for them.
///
/// # Errors
/// `openssl` is not there or refuses; a file that cannot be written.
pub fn make(folder: &Path) -> Result<()> {
    let openssl = find_program("openssl").context("openssl is not installed: apt install openssl")?;
    let [certificate, key, both] = [CERTIFICATE, KEY, BOTH].map(|(_, file)| folder.join(file));
    let output = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr).trim());
    std::fs::write(&both, std::fs::read_to_string(&certificate)? + &std::fs::read_to_string(&key)?)?;
    for secret in [&key, &both] {
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}
