//! Digest, HMAC and PBKDF2 over the one provider of hashes.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};

use crate::keys::Key;

/// The hash of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    /// Bytes of a digest, and so of a key and a proof.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Hash::Sha1 => 20,
            Hash::Sha256 => 32,
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Key {
        let algorithm = match self {
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &digest::SHA256,
        };
        Key::new(digest::digest(algorithm, data).as_ref())
    }

    /// HMAC of `parts`, one after another.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Key {
        let algorithm = match self {
            Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => hmac::HMAC_SHA256,
        };
        let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
        for part in parts {
            context.update(part);
        }
        Key::new(context.sign().as_ref())
    }

    /// SaltedPassword of RFC 5802. `iterations` of 0 count as 1.
    pub(crate) fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Key {
        let algorithm = match self {
            Hash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        };
        let mut key = Key::zero(self.bytes());
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, iterations, salt, password, key.bytes_mut());
        key
    }
}
