//! Packets of a client before its first message.

use std::collections::HashSet;

use weir_postgres_codec::startup::Parameters;
use weir_postgres_codec::{Version, backend};

use super::Start;
use super::options::{Setting, settings};
use super::refusal::Refusal;

/// Requests for encryption so far: each is accepted once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Encryption {
    has_ssl: bool,
    has_gss: bool,
}

impl Encryption {
    /// Nothing was requested.
    pub(super) fn is_new(self) -> bool {
        !self.has_ssl && !self.has_gss
    }

    /// Nothing may be requested any more.
    pub(super) fn all() -> Encryption {
        Encryption { has_ssl: true, has_gss: true }
    }

    /// A request for TLS. Bytes behind it were sent before the response: by an attacker that wants them to count as encrypted
    /// (CVE-2021-23214), or by a client that does not wait.
    pub(super) fn ssl(&mut self, is_followed: bool) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.has_ssl, true) {
            return Err(Refusal::second_request(Version::SSL));
        }
        if is_followed { Err(Refusal::bytes_behind("SSL request")) } else { Ok(()) }
    }

    /// The same for a request for encryption by GSSAPI.
    pub(super) fn gss(&mut self, is_followed: bool) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.has_gss, true) {
            return Err(Refusal::second_request(Version::GSS));
        }
        if is_followed { Err(Refusal::bytes_behind("GSSAPI encryption request")) } else { Ok(()) }
    }
}

/// Reads the startup packet of a session, and informs a client of a newer protocol of the one that is spoken.
pub(super) fn read(version: Version, parameters: Parameters<'_>, out: &mut Vec<u8>) -> Result<Start, Refusal> {
    let spoken = version.min(Version::LATEST);
    if version > spoken || parameters.protocol_options().next().is_some() {
        backend::negotiate_protocol_version(out, spoken, parameters.protocol_options());
    }
    refuse_replication(parameters)?;
    let user = parameters.user().ok_or_else(Refusal::no_user)?.to_vec();
    let database = parameters.database().unwrap_or(&user).to_vec();
    let options = parameters.get(b"options").unwrap_or_default();
    let mut settings = settings(options).map_err(|error| Refusal::options(&error))?;
    let others = parameters.iter().filter(|(name, _)| is_setting(name));
    settings.extend(others.map(|(name, value)| (name.to_vec(), value.to_vec())));
    let settings = last_of_each(settings);
    Ok(Start { user, database, settings, version: spoken })
}

/// Whether a parameter is a setting of the session.
fn is_setting(name: &[u8]) -> bool {
    !matches!(name, b"user" | b"database" | b"options" | b"replication") && !name.starts_with(b"_pq_.")
}

/// The last value of each name, in order. Names of settings have no case.
fn last_of_each(settings: Vec<Setting>) -> Vec<Setting> {
    let mut seen = HashSet::new();
    let mut kept: Vec<Setting> =
        settings.into_iter().rev().filter(|(name, _)| seen.insert(name.to_ascii_lowercase())).collect();
    kept.reverse();
    kept
}

/// The parameter `replication`: `database`, or a boolean. A pool has no use for such a connection.
fn refuse_replication(parameters: Parameters<'_>) -> Result<(), Refusal> {
    let Some(value) = parameters.get(b"replication") else { return Ok(()) };
    let is_wanted = value == b"database" || boolean(value).ok_or_else(|| Refusal::replication_value(value))?;
    if is_wanted { Err(Refusal::replication()) } else { Ok(()) }
}

/// A boolean as PostgreSQL reads it: any case, and any prefix that belongs to one word.
fn boolean(text: &[u8]) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let is_prefix = |word: &str, least: usize| text.len() >= least && word.as_bytes().starts_with(&text);
    match () {
        () if is_prefix("true", 1) || is_prefix("yes", 1) || is_prefix("on", 2) || text == b"1" => Some(true),
        () if is_prefix("false", 1) || is_prefix("no", 1) || is_prefix("off", 2) || text == b"0" => Some(false),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_read_as_postgresql_reads_them() {
        for text in ["t", "TRUE", "tr", "y", "yes", "on", "1"] {
            assert_eq!(boolean(text.as_bytes()), Some(true), "{text}");
        }
        for text in ["f", "False", "n", "no", "of", "off", "0"] {
            assert_eq!(boolean(text.as_bytes()), Some(false), "{text}");
        }
        for text in ["", "o", "truex", "2", "database", "onn"] {
            assert_eq!(boolean(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_last_value_of_a_setting_counts_whatever_its_case() {
        let settings = [("DateStyle", "ISO"), ("search_path", "a"), ("datestyle", "German")];
        let settings = last_of_each(settings.map(|(name, value)| (name.into(), value.into())).to_vec());
        let expected = [(b"search_path".to_vec(), b"a".to_vec()), (b"datestyle".to_vec(), b"German".to_vec())];
        assert_eq!(settings, expected);
    }
}
