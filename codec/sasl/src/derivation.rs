//! The slow way from a password to keys.

use weir_base::secret::Secret;

use crate::hash::Hash;
use crate::keys::{Key, ScramKeys};
use crate::mechanism::Mechanism;
use crate::prepare::prepare;

/// Salt and rounds that a server demands for a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Salt, decoded.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
}

/// Work of a millisecond or more: PBKDF2 over a password. It owns all it needs, so that another thread can run it. A
/// [`KeyCache`](crate::KeyCache) keeps results.
#[derive(Clone, Debug)]
pub struct Derivation {
    mechanism: Mechanism,
    password: Secret,
    challenge: Challenge,
}

impl Derivation {
    /// The derivation of a password, which is prepared by SASLprep here.
    #[must_use]
    pub fn new(mechanism: Mechanism, password: &Secret, challenge: Challenge) -> Derivation {
        let password = Secret::new(prepare(password.expose()).into_owned());
        Derivation { mechanism: mechanism.unbound(), password, challenge }
    }

    /// The keys. It takes about a millisecond for 4,096 iterations.
    #[must_use]
    pub fn run(&self) -> ScramKeys {
        let Challenge { salt, iterations } = &self.challenge;
        ScramKeys::from_salted(self.mechanism, &self.mechanism.hash().salted(self.password.expose(), salt, *iterations))
    }

    /// Tells derivations apart without a copy of the password. Lengths stand before the parts, so that no two inputs agree.
    pub(crate) fn identity(&self, seed: &[u8]) -> Key {
        let (salt, password) = (&self.challenge.salt, self.password.expose());
        let lengths = [salt.len() as u64, u64::from(self.challenge.iterations)].map(u64::to_be_bytes).concat();
        Hash::Sha256.hmac(seed, &[&lengths, self.mechanism.name().as_bytes(), b"\0", salt, password])
    }
}
