//! The keys that a password becomes: ClientKey proves the client, ServerKey the server.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::mechanism::Mechanism;

/// Longest digest of a mechanism.
const KEY_BYTES_MAX: usize = 32;

/// A key, digest, proof or signature: 20 or 32 bytes. It never prints, is zeroed when dropped, and is compared in constant
/// time.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key {
    bytes: [u8; KEY_BYTES_MAX],
    length: usize,
}

impl Key {
    /// A copy of at most 32 bytes.
    pub(crate) fn new(bytes: &[u8]) -> Key {
        let mut key = Key::zero(bytes.len());
        key.bytes_mut().copy_from_slice(&bytes[..bytes.len().min(KEY_BYTES_MAX)]);
        key
    }

    pub(crate) fn zero(length: usize) -> Key {
        debug_assert!(length <= KEY_BYTES_MAX, "a digest of {length} bytes");
        Key { bytes: [0; KEY_BYTES_MAX], length: length.min(KEY_BYTES_MAX) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    /// The bytes. The care of [`weir_base::secret::Secret::expose`] applies.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Each byte of one XOR that of the other: a proof from a key and its signature, or the reverse.
    pub(crate) fn xor(&self, other: &Key) -> Key {
        let mut result = self.clone();
        result.bytes_mut().iter_mut().zip(other.expose()).for_each(|(byte, other)| *byte ^= other);
        result
    }
}

/// Constant time in the contents; the length is no secret.
impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.expose().ct_eq(other.expose()).into()
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// The keys of a user at one salt and count of iterations. A client that has them needs no password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramKeys {
    /// Proves the client. Its digest is the StoredKey of a verifier.
    pub client: Key,
    /// Proves the server.
    pub server: Key,
}

impl ScramKeys {
    pub(crate) fn from_salted(mechanism: Mechanism, salted: &Key) -> ScramKeys {
        let hash = mechanism.hash();
        let key = |name: &[u8]| hash.hmac(salted.expose(), &[name]);
        ScramKeys { client: key(b"Client Key"), server: key(b"Server Key") }
    }

    /// StoredKey: the digest of ClientKey.
    pub(crate) fn stored(&self, mechanism: Mechanism) -> Key {
        mechanism.hash().digest(self.client.expose())
    }
}
