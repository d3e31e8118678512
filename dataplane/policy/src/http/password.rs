//! Passwords as password files keep them: hashed.
//!
//! | written as | made by | cost of a check |
//! |---|---|---|
//! | `$2y$`, `$2b$`, `$2a$` | `htpasswd -B`: bcrypt | 2^cost; about 2 ms at 5, 50 ms at 10 |
//! | `$pbkdf2-sha256$rounds$salt$hash`, `{PBKDF2-SHA256}rounds$salt$hash`; the same with 512 | passlib, OpenLDAP | rounds |
//! | `{SSHA}`, `{SSHA256}`, `{SSHA512}` | LDAP servers | one hash |
//! | `{SHA}`, `{SHA256}`, `{SHA512}` | `htpasswd -s`, the only kind that Envoy reads | one hash |
//!
//! The last two kinds are for passwords that are long and random: an attacker with the file tries billions a second.
//! Everything else is refused with the remedy: MD5 (`$apr1$`, what `htpasswd` writes by itself), SHA-crypt (`$5$`, `$6$`),
//! crypt and clear text.

use std::{fmt, num::NonZeroU32};

use aws_lc_rs::{digest, pbkdf2};
use base64::{
    Engine as _,
    alphabet::BCRYPT,
    engine::{
        DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig,
        general_purpose::{STANDARD, STANDARD_NO_PAD},
    },
};
use subtle::ConstantTimeEq;

/// Bytes of a hash as it is written. Default 512; the longest kind has about 250.
const TEXT_BYTES_MAX: usize = 512;

/// The highest cost of bcrypt. Default 14: about a second. More would let one request take a core for many.
pub const BCRYPT_COST_MAX: u32 = 14;

/// The most rounds of PBKDF2. Default 2,000,000: three times what OWASP advised in 2023, about a second.
pub const PBKDF2_ROUNDS_MAX: u32 = 2_000_000;

/// Bytes of a password that bcrypt uses, with the NUL at its end; it ignores the rest.
const BCRYPT_BYTES_MAX: usize = 72;

/// A hashed password. Printed it shows nothing: a hash of a weak password is as good as the password.
#[derive(Clone)]
pub struct StoredPassword(Scheme);

#[derive(Clone)]
enum Scheme {
    Digest { algorithm: &'static digest::Algorithm, hash: Box<[u8]>, salt: Box<[u8]> },
    Pbkdf2 { algorithm: pbkdf2::Algorithm, rounds: NonZeroU32, salt: Box<[u8]>, hash: Box<[u8]> },
    Bcrypt { cost: u32, salt: [u8; 16], hash: [u8; 23] },
}

impl StoredPassword {
    /// Reads one of the forms above.
    ///
    /// # Errors
    /// Another form, or one that is cut or costs too much. The error never shows the text.
    pub fn parse(text: &str) -> Result<Self, PasswordError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PasswordError::Malformed);
        }
        if let Some(rest) = text.strip_prefix('{') {
            let (name, rest) = rest.split_once('}').ok_or(PasswordError::Malformed)?;
            return named(&name.to_ascii_uppercase(), rest);
        }
        let Some(rest) = text.strip_prefix('$') else { return Err(PasswordError::ClearOrCrypt) };
        let (name, rest) = rest.split_once('$').ok_or(PasswordError::Malformed)?;
        match name {
            "2a" | "2b" | "2y" => bcrypt_hash(rest),
            "pbkdf2-sha256" => pbkdf2_hash(pbkdf2::PBKDF2_HMAC_SHA256, 32, rest),
            "pbkdf2-sha512" => pbkdf2_hash(pbkdf2::PBKDF2_HMAC_SHA512, 64, rest),
            "apr1" | "1" => Err(PasswordError::Md5),
            "5" | "6" => Err(PasswordError::ShaCrypt),
            _ => Err(PasswordError::Unknown),
        }
    }

    /// Whether a check costs milliseconds and more, so that it must not run where connections are served.
    pub fn is_slow(&self) -> bool {
        !matches!(self.0, Scheme::Digest { .. })
    }

    /// Whether it is this one. The comparison takes the same time whatever differs.
    pub fn matches(&self, password: &[u8]) -> bool {
        match &self.0 {
            Scheme::Digest { algorithm, hash, salt } => {
                let mut context = digest::Context::new(algorithm);
                context.update(password);
                context.update(salt);
                context.finish().as_ref().ct_eq(hash).into()
            }
            Scheme::Pbkdf2 { algorithm, rounds, salt, hash } => {
                pbkdf2::verify(*algorithm, *rounds, salt, password, hash).is_ok()
            }
            Scheme::Bcrypt { cost, salt, hash } => {
                let mut seen = [0; BCRYPT_BYTES_MAX];
                let length = password.len().min(BCRYPT_BYTES_MAX);
                seen[..length].copy_from_slice(&password[..length]);
                let given = &seen[..(length + 1).min(BCRYPT_BYTES_MAX)];
                bcrypt::bcrypt(*cost, *salt, given)[..hash.len()].ct_eq(hash).into()
            }
        }
    }

    /// The cost of a check beside those of other hashes; for choosing the one that stands for users that do not exist.
    pub(super) fn cost(&self) -> u64 {
        match &self.0 {
            Scheme::Digest { .. } => 0,
            Scheme::Pbkdf2 { rounds, .. } => u64::from(rounds.get()),
            // A round of bcrypt is two key schedules: about two thousand of the others.
            Scheme::Bcrypt { cost, .. } => 2_000 << cost,
        }
    }
}

impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// `{NAME}rest`, the name in upper case.
fn named(name: &str, rest: &str) -> Result<StoredPassword, PasswordError> {
    let (algorithm, is_salted) = match name {
        "SHA" => (&digest::SHA1_FOR_LEGACY_USE_ONLY, false),
        "SSHA" => (&digest::SHA1_FOR_LEGACY_USE_ONLY, true),
        "SHA256" => (&digest::SHA256, false),
        "SSHA256" => (&digest::SHA256, true),
        "SHA512" => (&digest::SHA512, false),
        "SSHA512" => (&digest::SHA512, true),
        "PBKDF2-SHA256" => return pbkdf2_hash(pbkdf2::PBKDF2_HMAC_SHA256, 32, rest),
        "PBKDF2-SHA512" => return pbkdf2_hash(pbkdf2::PBKDF2_HMAC_SHA512, 64, rest),
        "PLAIN" | "CLEAR" | "CLEARTEXT" | "CRYPT" => return Err(PasswordError::ClearOrCrypt),
        "MD5" | "SMD5" => return Err(PasswordError::Md5),
        _ => return Err(PasswordError::Unknown),
    };
    let bytes = STANDARD.decode(rest).map_err(|_| PasswordError::Malformed)?;
    let (hash, salt) = bytes.split_at_checked(algorithm.output_len()).ok_or(PasswordError::Malformed)?;
    if salt.is_empty() == is_salted {
        return Err(PasswordError::Malformed);
    }
    Ok(StoredPassword(Scheme::Digest { algorithm, hash: hash.into(), salt: salt.into() }))
}

/// `rounds$salt$hash`, in base64 without padding and `.` for `+`.
fn pbkdf2_hash(algorithm: pbkdf2::Algorithm, hash_bytes: usize, text: &str) -> Result<StoredPassword, PasswordError> {
    let mut parts = text.split('$');
    let mut part = || parts.next().ok_or(PasswordError::Malformed);
    let (rounds, salt, hash) = (part()?, part()?, part()?);
    let decode = |text: &str| STANDARD_NO_PAD.decode(text.replace('.', "+")).map_err(|_| PasswordError::Malformed);
    let rounds: u32 = number(rounds)?;
    if rounds > PBKDF2_ROUNDS_MAX {
        return Err(PasswordError::TooSlow);
    }
    let rounds = NonZeroU32::new(rounds).ok_or(PasswordError::Malformed)?;
    let (salt, hash) = (decode(salt)?, decode(hash)?);
    if parts.next().is_some() || hash.len() != hash_bytes || salt.is_empty() {
        return Err(PasswordError::Malformed);
    }
    Ok(StoredPassword(Scheme::Pbkdf2 { algorithm, rounds, salt: salt.into(), hash: hash.into() }))
}

/// `cost$`, then 22 characters of salt and 31 of hash.
fn bcrypt_hash(text: &str) -> Result<StoredPassword, PasswordError> {
    // The last characters hold more bits than the bytes have, and not all programs leave them at zero.
    const CONFIG: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone);
    const BASE64: GeneralPurpose = GeneralPurpose::new(&BCRYPT, CONFIG);
    let (cost, rest) = text.split_once('$').ok_or(PasswordError::Malformed)?;
    let cost: u32 = number(cost)?;
    if cost > BCRYPT_COST_MAX {
        return Err(PasswordError::TooSlow);
    }
    let (salt, hash) = rest.split_at_checked(22).ok_or(PasswordError::Malformed)?;
    let decode = |text: &str| BASE64.decode(text).map_err(|_| PasswordError::Malformed);
    let salt = decode(salt)?.try_into().map_err(|_| PasswordError::Malformed)?;
    let hash = decode(hash)?.try_into().map_err(|_| PasswordError::Malformed)?;
    if cost < 4 {
        return Err(PasswordError::Malformed);
    }
    Ok(StoredPassword(Scheme::Bcrypt { cost, salt, hash }))
}

fn number(text: &str) -> Result<u32, PasswordError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(PasswordError::Malformed)
}

/// Why a hash is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PasswordError {
    /// `$apr1$`, `$1$`, `{MD5}`.
    Md5,
    /// `$5$`, `$6$`.
    ShaCrypt,
    /// No mark of a hash: clear text or the old crypt.
    ClearOrCrypt,
    /// A kind that is not known here.
    Unknown,
    /// A hash of a known kind, but incomplete.
    Malformed,
    /// Over [`BCRYPT_COST_MAX`] or [`PBKDF2_ROUNDS_MAX`].
    TooSlow,
}

impl fmt::Display for PasswordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = "write it again with `htpasswd -B`";
        match self {
            Self::Md5 => write!(f, "the password is hashed with MD5 (`htpasswd` without an option): {remedy}"),
            Self::ShaCrypt => write!(f, "the password is hashed with SHA-crypt: {remedy}"),
            Self::ClearOrCrypt => write!(f, "the password is in clear or hashed with crypt: {remedy}"),
            Self::Unknown => write!(f, "the password is hashed in a way that is not known: {remedy}"),
            Self::Malformed => write!(f, "the hash is not whole: {remedy}"),
            Self::TooSlow => write!(
                f,
                "checking the password would take seconds: {remedy} (the most is cost {BCRYPT_COST_MAX} of bcrypt, \
                 {PBKDF2_ROUNDS_MAX} rounds of PBKDF2)"
            ),
        }
    }
}

impl std::error::Error for PasswordError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, password: &str) -> bool {
        StoredPassword::parse(text).expect(text).matches(password.as_bytes())
    }

    #[test]
    fn every_kind_is_read_and_checked() {
        // Made with Python's hashlib and with the crypt of glibc.
        for text in [
            "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=",
            "{SSHA}o8knsqoeF6dfrPOYBJ37h3y7MHYAAQIDBAUGBwgJCgsMDQ4P",
            "{SHA256}K7gNU3sdo+OL0wNhqoVWhr3g6s1xYv72ol/pe/Unols=",
            "{ssha256}AAztJD1mCljEDl2sgjDF/mJZo8ne8aW9Ya1MgeYWBAYAAQIDBAUGBwgJCgsMDQ4P",
            "{SSHA512}UoZhLQsIuI2qOeKCxRn9dnKEVJ2ZNkuywTNSdJ5ikq9pJEb8zi2HiRv/LPc8o9twrYrAwwo+WL2XgM+i0t6YbAABAgMEBQYHCAkK\
             CwwNDg8=",
            "$pbkdf2-sha256$1000$AAECAwQFBgcICQoLDA0ODw$Tvsru20utY6o3q7VRBeuL9h/1QqKhWhwk2PaYNRWBgY",
            "{PBKDF2-SHA512}1000$AAECAwQFBgcICQoLDA0ODw$8ltlLe5cI6KNrWOmMFkTi2iE7fEXJKJJR9lhjd/xSn68.xOqzv2h20C4IDv/enqlx\
             8f6AaRHE.6XnvHKXKhAjA",
            "$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
            "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW",
        ] {
            assert!(matches(text, "secret"), "{text}");
            assert!(!matches(text, "Secret") && !matches(text, "") && !matches(text, "secret "), "{text}");
            let stored = StoredPassword::parse(text).expect("a hash");
            assert_eq!(stored.is_slow(), text.contains('$'), "{text}");
            assert_eq!(stored.cost() > 0, stored.is_slow());
            assert_eq!(format!("{stored:?}"), "[redacted]");
        }
    }

    #[test]
    fn bcrypt_sees_72_bytes_as_it_does_everywhere() {
        let long = "$2b$04$abcdefghijklmnopqrstuubzadhGtS2zEF.gu0yd0opP6cVzb.e0i";
        for (length, fits) in [(71, false), (72, true), (80, true)] {
            assert_eq!(matches(long, &"x".repeat(length)), fits, "{length}");
        }
        assert!(matches("$2b$04$abcdefghijklmnopqrstuu.gc7UY/21CSNJGJg21jJzx9QiOpJ9bO", &"x".repeat(71)));
        assert!(matches("$2b$04$abcdefghijklmnopqrstuubyCG3zY1GIXMyxfivm.ClDiInHzxjiq", ""));
    }

    #[test]
    fn other_kinds_are_refused_with_the_remedy_and_without_the_hash() {
        use PasswordError::*;
        for (text, error) in [
            ("canary", ClearOrCrypt),
            ("", ClearOrCrypt),
            ("{PLAIN}canary", ClearOrCrypt),
            ("$apr1$canary$x", Md5),
            ("$5$canary$x", ShaCrypt),
            ("$6$rounds=1000$canary$x", ShaCrypt),
            ("$argon2id$canary", Unknown),
            ("{canary}x", Unknown),
            ("{SHA", Malformed),
            ("{SHA}canary", Malformed),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQAAA==", Malformed),
            ("{SSHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", Malformed),
            ("$2b$03$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", Malformed),
            ("$2b$+4$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", Malformed),
            ("$2b$31$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", TooSlow),
            ("$2b$04$abcdefghijklmnopqrst", Malformed),
            ("$2b$04$abcdefghijklmnopqrst\u{e9}u2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW", Malformed),
            ("$2b$04", Malformed),
            ("$pbkdf2-sha256$0$AAEC$AAEC", Malformed),
            ("$pbkdf2-sha256$4000000000$AAEC$AAEC", TooSlow),
            ("$pbkdf2-sha256$1000$AAEC$AAEC", Malformed),
            ("$pbkdf2-sha256$1000$AAEC", Malformed),
        ] {
            assert_eq!(StoredPassword::parse(text).err(), Some(error), "{text}");
            let shown = error.to_string();
            assert!(shown.contains("htpasswd -B") && !shown.contains("canary"), "{shown}");
        }
        assert_eq!(StoredPassword::parse(&"{SHA}".repeat(200)).err(), Some(Malformed));
    }
}
