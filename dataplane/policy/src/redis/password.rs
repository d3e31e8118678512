//! Passwords are known by their SHA-256 only, as Redis keeps them.

use std::fmt;

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a password. Printed it shows nothing: a hash of a weak password is as good as the password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    /// Hash of a password in clear.
    pub fn of(password: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, password).as_ref());
        Self(hash)
    }

    /// From 64 lower-case hexadecimal characters, and nothing else (`ACLCheckPasswordHash`).
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != 64 {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }

    /// As 64 hexadecimal characters, for ACL LIST and GETUSER.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Eight bytes of it, to tell passwords apart.
    pub fn short(self) -> u64 {
        self.0.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Whether it is one of `known`. All are compared, each in constant time.
    pub fn is_one_of(&self, known: &[Self]) -> bool {
        let found = known.iter().fold(Choice::from(0), |found, other| found | self.0.ct_eq(&other.0));
        found.into()
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A password of `bits` random bits in hexadecimal, rounded up to whole characters (`ACL GENPASS`). `None` if the
/// system gives no randomness.
pub fn random_password(bits: usize) -> Option<String> {
    let chars = bits.div_ceil(4);
    let mut bytes = vec![0; chars.div_ceil(2)];
    rand::fill(&mut bytes).ok()?;
    let mut text = hex(&bytes);
    text.truncate(chars);
    Some(text)
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_redis_and_goes_both_ways() {
        let hash = PasswordHash::of(b"x");
        assert_eq!(hash.to_hex(), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881");
        assert_eq!(PasswordHash::from_hex(hash.to_hex().as_bytes()), Some(hash));
        assert_eq!(format!("{hash:?}"), "[redacted]");
        for wrong in [hash.to_hex().to_uppercase(), hash.to_hex()[1..].to_owned(), "g".repeat(64)] {
            assert_eq!(PasswordHash::from_hex(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn any_of_several_hashes_fits_and_none_of_none() {
        let known = [PasswordHash::of(b"a"), PasswordHash::of(b"b")];
        assert!(PasswordHash::of(b"b").is_one_of(&known) && !PasswordHash::of(b"c").is_one_of(&known));
        assert!(!PasswordHash::of(b"").is_one_of(&[]));
    }

    #[test]
    fn random_passwords_have_the_requested_length() {
        for (bits, chars) in [(1, 1), (4, 1), (5, 2), (256, 64), (4096, 1024)] {
            let text = random_password(bits).expect("randomness");
            assert!(text.len() == chars && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{bits}: {text}");
        }
        assert_ne!(random_password(256), random_password(256));
    }
}
