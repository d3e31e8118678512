//! Bytes that must not be seen: passwords, keys, tokens.

use std::fmt;
use std::hint::black_box;

use zeroize::Zeroizing;

/// A password, key or token.
///
/// Prints as `[redacted]`, has no serialisation, is zeroed when dropped and is opened only through
/// [`Secret::expose`], so that every reader can be found by searching for that word. Comparison takes time that depends
/// on the candidate's length, not on how much of it is right.
#[derive(Clone, Default)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes ownership of `bytes`; no copy is left behind.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// The secret bytes. Keep the borrow short; never log it, never copy it into a value that is not a `Secret`.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The secret as text, or `None` if it is not UTF-8. The same care as for [`Secret::expose`].
    #[must_use]
    pub fn expose_str(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// Whether `candidate` is this secret. Every byte of the candidate is looked at, whatever the first difference.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        let secret: &[u8] = &self.0;
        let mut difference = u8::from(secret.len() != candidate.len());
        for (index, byte) in candidate.iter().enumerate() {
            // A candidate longer than the secret is compared with zeros: already unequal by length.
            let expected = secret.get(index).copied().unwrap_or(0);
            difference = black_box(difference | (expected ^ byte));
        }
        black_box(difference) == 0
    }

    /// Whether there is no secret at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Secret {
        Secret::new(bytes)
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text.into_bytes())
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Secret {
        Secret::new(bytes.to_vec())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }
}

/// Constant time in the contents, as [`Secret::matches`] is.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.matches(other.expose())
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_secret_never_prints_its_content() {
        let secret = Secret::from("canary-7f3a");
        for text in [format!("{secret}"), format!("{secret:?}"), format!("{:#?}", Some(&secret))] {
            assert!(text.contains("[redacted]"));
            assert!(!text.contains("canary"));
        }
    }

    #[test]
    fn only_the_very_same_bytes_match() {
        let secret = Secret::from("hunter2");
        assert!(secret.matches(b"hunter2"));
        for wrong in [&b""[..], b"hunter", b"hunter22", b"hunter3", b"Hunter2", b"hunter2\0"] {
            assert!(!secret.matches(wrong), "{wrong:?}");
        }
        assert!(Secret::default().matches(b""));
        assert!(!Secret::default().matches(b"\0"), "padding is not content");
        assert_eq!(secret, secret.clone());
        assert_eq!(secret.expose_str(), Some("hunter2"));
        assert_eq!(Secret::from(&[0xff][..]).expose_str(), None);
    }

    proptest! {
        #[test]
        fn matching_agrees_with_plain_equality(a: Vec<u8>, b: Vec<u8>) {
            prop_assert_eq!(Secret::new(a.clone()).matches(&b), a == b);
            prop_assert!(Secret::new(a.clone()).matches(&a));
        }
    }
}
