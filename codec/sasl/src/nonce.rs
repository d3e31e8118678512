//! Random text of both sides.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::limits::NONCE_RANDOM_BYTES;

/// One side's share of the nonce of an exchange: printable text without commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// The nonce of random bytes, as base64. They must come from the system's source of randomness: a peer that predicts them
    /// can repeat an exchange.
    #[must_use]
    pub fn from_random(random: &[u8; NONCE_RANDOM_BYTES]) -> Nonce {
        Nonce(BASE64_STANDARD.encode(random))
    }

    /// The nonce of a recorded exchange. `None` if a nonce cannot be this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Nonce> {
        (!text.is_empty() && is_nonce(text.as_bytes())).then(|| Nonce(text.to_owned()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Whether all bytes are `printable` of RFC 5802: ASCII without blank, control characters and comma.
pub(crate) fn is_nonce(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, 0x21..=0x7e) && *byte != b',')
}
