//! The text of a virtual key, its hash and its anonymous form.

use std::{fmt, hash};

use aws_lc_rs::{
    digest::{SHA256, digest},
    rand,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;
use weir_base::Secret;
use zeroize::Zeroize;

/// How a virtual key begins. SDKs and secret scanners know keys by `sk-`.
pub const PREFIX: &str = "sk-weir-";

/// Random bytes of a key.
pub const RANDOM_BYTES: usize = 32;

/// Characters of a key: the prefix, and the random bytes in the URL-safe alphabet of RFC 4648 section 5 without padding.
pub const KEY_CHARS: usize = PREFIX.len() + 43;

/// Characters behind the prefix that an operator sees. 4 of 43: 24 bits, enough to tell keys apart; 232 bits stay secret.
pub const SHOWN_CHARS: usize = 4;

/// A key that was just made. Its text is shown once and stored nowhere.
#[derive(Debug)]
pub struct NewKey {
    /// For its owner.
    pub text: Secret,
    /// For the configuration.
    pub hash: KeyHash,
    /// For logs and lists: [`shown`].
    pub shown: String,
}

impl NewKey {
    /// A key from the randomness of the system.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn generate() -> Result<Self, NoRandomness> {
        let mut random = [0; RANDOM_BYTES];
        rand::fill(&mut random).map_err(|_| NoRandomness)?;
        let mut text = Vec::with_capacity(KEY_CHARS);
        text.extend_from_slice(PREFIX.as_bytes());
        let mut encoded = URL_SAFE_NO_PAD.encode(random).into_bytes();
        text.extend_from_slice(&encoded);
        encoded.zeroize();
        random.zeroize();
        Ok(Self { hash: KeyHash::of(&text), shown: shown(&text), text: Secret::new(text) })
    }
}

/// The system gives no randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomness;

impl fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system gives no randomness")
    }
}

impl std::error::Error for NoRandomness {}

/// The anonymous form of a key: `sk-weir-AbCd…`. A text that is no key shows nothing of itself.
pub fn shown(text: &[u8]) -> String {
    if !is_well_formed(text) {
        return "[no key]".to_owned();
    }
    let visible = &text[..PREFIX.len() + SHOWN_CHARS];
    format!("{}…", String::from_utf8_lossy(visible))
}

/// Whether `text` has the form of a key. Other texts are refused without a hash.
pub fn is_well_formed(text: &[u8]) -> bool {
    let is_alphabet = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() == KEY_CHARS && text.starts_with(PREFIX.as_bytes()) && text[PREFIX.len()..].iter().all(is_alphabet)
}

/// The SHA-256 of a key, all that is stored of it. 256 random bits need no slow hash. Printed it shows nothing; comparison takes
/// the same time wherever the difference is.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Hash of a key in clear.
    pub fn of(key: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// From 64 hexadecimal characters, as `sha256sum` prints them.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut hash = [0; 32];
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        for (byte, pair) in hash.iter_mut().zip(pairs) {
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(hash))
    }

    /// 64 hexadecimal characters, for the configuration.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyHash {}

impl hash::Hash for KeyHash {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_32_random_bytes_and_is_shown_by_its_beginning() {
        let (one, other) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
        let text = one.text.expose_str().unwrap();
        assert_eq!(text.len(), KEY_CHARS);
        assert_eq!(URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).unwrap().len(), RANDOM_BYTES);
        assert!(is_well_formed(text.as_bytes()) && one.hash == KeyHash::of(text.as_bytes()));
        assert!(one.hash != other.hash && one.text != other.text);
        assert_eq!(one.shown, format!("{}…", &text[..12]));
        let printed = format!("{one:?}");
        assert!(!printed.contains(&text[12..]) && !printed.contains(&one.hash.to_hex()), "{printed}");
    }

    #[test]
    fn other_texts_are_no_keys_and_show_nothing() {
        let good = format!("{PREFIX}{}", "a".repeat(43));
        assert!(is_well_formed(good.as_bytes()));
        for bad in ["", "sk-weir-", "sk-other", &good[1..], &format!("{good}a"), &good.replace("aaa", "a+a")] {
            assert!(!is_well_formed(bad.as_bytes()), "{bad}");
            assert_eq!(shown(bad.as_bytes()), "[no key]");
        }
    }

    #[test]
    fn a_hash_is_read_as_it_was_written() {
        let hash = KeyHash::of(b"key");
        assert!(KeyHash::from_hex(&hash.to_hex()) == Some(hash));
        assert!(KeyHash::from_hex(&hash.to_hex().to_uppercase()) == Some(hash));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(65)] {
            assert!(KeyHash::from_hex(bad).is_none());
        }
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of(b"abc").to_hex(), abc);
    }
}
