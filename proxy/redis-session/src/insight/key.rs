//! A key as it is kept and shown: bounded, and only as much of it as the operator allows.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use super::settings::KeyNames;

/// Bytes of a key that are kept; the hash tells longer ones apart.
pub const KEY_TEXT_BYTES_MAX: usize = 128;

/// Where keys are: the same name in another database, or behind another upstream, is another key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Keyspace {
    /// Name of the upstream.
    pub upstream: Arc<str>,
    /// The database.
    pub db: u32,
}

/// A key of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedKey {
    /// Where it is.
    pub keyspace: Keyspace,
    /// Tells keys apart, with their keyspace; the same on all workers of one process.
    pub hash: u64,
    /// The beginning of its text; `None` if only the hash may be shown.
    pub text: Option<Box<[u8]>>,
    /// Its whole length in bytes.
    pub bytes: usize,
}

impl NotedKey {
    /// Hashes a key with the secret of this process, so that no client can choose keys that fall together.
    pub(crate) fn hash(hasher: &RandomState, keyspace: &Keyspace, key: &[u8]) -> u64 {
        hasher.hash_one((keyspace, key))
    }

    pub(crate) fn new(names: KeyNames, keyspace: &Keyspace, hash: u64, key: &[u8]) -> Self {
        let text = (names == KeyNames::Full).then(|| key[..key.len().min(KEY_TEXT_BYTES_MAX)].into());
        Self { keyspace: keyspace.clone(), hash, text, bytes: key.len() }
    }

    /// The text as one printable word, or the hash (`#` and 16 digits).
    pub fn shown(&self) -> String {
        match &self.text {
            Some(text) if text.len() < self.bytes => {
                format!("{}... ({} more bytes)", printable(text), self.bytes - text.len())
            }
            Some(text) => printable(text),
            None => format!("#{:016x}", self.hash),
        }
    }
}

/// Bytes of a client for people: valid UTF-8 as it is, except control characters and the backslash; the rest as `\xNN`.
/// Nothing in it can move the cursor of a terminal or end a line of INFO.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                letter if letter.is_control() || is_invisible(letter) => {
                    let mut utf8 = [0; 4];
                    letter.encode_utf8(&mut utf8).bytes().for_each(|byte| push_hex(&mut out, byte));
                }
                letter => out.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_hex(&mut out, *byte));
    }
    out
}

/// Letters that change how others are shown: marks of direction, joiners, separators of lines.
fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn push_hex(out: &mut String, byte: u8) {
    use std::fmt::Write;
    // Writing to a string cannot fail.
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_one_printable_word() {
        let table: [(&[u8], &str); 6] = [
            (b"user:1", "user:1"),
            (b"a b\r\n\\\x1b[2J", "a b\\r\\n\\\\\\x1b[2J"),
            (b"\xff\x00", "\\xff\\x00"),
            ("größe".as_bytes(), "größe"),
            ("a\u{202e}b".as_bytes(), "a\\xe2\\x80\\xaeb"),
            (b"", ""),
        ];
        for (bytes, text) in table {
            assert_eq!(printable(bytes), text);
        }
    }

    #[test]
    fn long_keys_are_cut_and_hashed_ones_tell_nothing() {
        let keyspace = Keyspace { upstream: "main".into(), db: 3 };
        let (key, hasher) = ([b'k'; 1_000], RandomState::new());
        let hash = NotedKey::hash(&hasher, &keyspace, &key);
        let full = NotedKey::new(KeyNames::Full, &keyspace, hash, &key);
        assert_eq!(full.shown(), format!("{}... (872 more bytes)", "k".repeat(128)));
        let hashed = NotedKey::new(KeyNames::Hashed, &keyspace, hash, &key);
        assert_eq!((hashed.shown(), hashed.text), (format!("#{hash:016x}"), None));
        let elsewhere = Keyspace { db: 4, ..keyspace.clone() };
        assert_ne!(NotedKey::hash(&hasher, &elsewhere, &key), hash, "another database has other keys");
    }
}
