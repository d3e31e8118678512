//! The record of a password at a server: enough to check a proof, too little to make one.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use subtle::ConstantTimeEq;
use weir_base::secret::Secret;

use crate::derivation::{Challenge, Derivation};
use crate::error::VerifierError;
use crate::hash::Hash;
use crate::keys::{Key, ScramKeys};
use crate::limits::{SALT_BYTES, VERIFIER_BYTES_MAX};
use crate::mechanism::Mechanism;

/// Largest count of iterations that PostgreSQL stores.
const ITERATIONS_STORED_MAX: u32 = i32::MAX as u32;

/// A verifier, as PostgreSQL stores it: `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramVerifier {
    mechanism: Mechanism,
    challenge: Challenge,
    stored: Key,
    server: Key,
    /// Every proof fails: there is no such user.
    is_mock: bool,
}

impl ScramVerifier {
    /// The verifier of a password. It takes as long as [`Derivation::run`]; `salt` is random, [`SALT_BYTES`] of it.
    #[must_use]
    pub fn from_password(mechanism: Mechanism, password: &Secret, salt: &[u8], iterations: u32) -> ScramVerifier {
        let challenge = Challenge { salt: salt.to_vec(), iterations: iterations.clamp(1, ITERATIONS_STORED_MAX) };
        let keys = Derivation::new(mechanism, password, challenge.clone()).run();
        ScramVerifier {
            mechanism: mechanism.unbound(),
            challenge,
            stored: keys.stored(mechanism),
            server: keys.server,
            is_mock: false,
        }
    }

    /// The verifier of a user that does not exist. It answers as any other, and no proof passes.
    ///
    /// The salt depends on the user and on `secret` alone, so that a second attempt sees the same one, as it would for a user
    /// that exists. `iterations` should be that of the other users.
    #[must_use]
    pub fn mock(mechanism: Mechanism, user: &[u8], secret: &Secret, iterations: u32) -> ScramVerifier {
        let salt = Hash::Sha256.hmac(secret.expose(), &[user]);
        let bytes = mechanism.hash().bytes();
        ScramVerifier {
            mechanism: mechanism.unbound(),
            challenge: Challenge { salt: salt.expose()[..SALT_BYTES].to_vec(), iterations },
            stored: Key::zero(bytes),
            server: Key::zero(bytes),
            is_mock: true,
        }
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// The text is something else, such as a password or an MD5 hash.
    pub fn parse(text: &[u8]) -> Result<ScramVerifier, VerifierError> {
        if text.len() > VERIFIER_BYTES_MAX {
            return Err(VerifierError("it is too long"));
        }
        let mut parts = text.split(|byte| *byte == b'$');
        let mechanism = parts.next().and_then(Mechanism::from_name).filter(|mechanism| !mechanism.is_bound());
        let mechanism = mechanism.ok_or(VerifierError("it does not begin with SCRAM-SHA-256$"))?;
        let (Some(challenge), Some(keys), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(VerifierError("it does not have three parts"));
        };
        let (iterations, salt) = halves(challenge).ok_or(VerifierError("the iterations or the salt are missing"))?;
        let (stored, server) = halves(keys).ok_or(VerifierError("a key is missing"))?;
        let iterations = number(iterations).filter(|count| (1..=ITERATIONS_STORED_MAX).contains(count));
        let salt = BASE64_STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty());
        let challenge = Challenge {
            iterations: iterations.ok_or(VerifierError("the iterations are not a number of its range"))?,
            salt: salt.ok_or(VerifierError("the salt is not base64"))?,
        };
        let key = |text: &[u8]| {
            let key = Secret::new(BASE64_STANDARD.decode(text).unwrap_or_default());
            let is_key = key.expose().len() == mechanism.hash().bytes();
            is_key.then(|| Key::new(key.expose())).ok_or(VerifierError("a key is not base64 of a digest"))
        };
        Ok(ScramVerifier { mechanism, challenge, stored: key(stored)?, server: key(server)?, is_mock: false })
    }

    /// Whether a stored password is meant to be a verifier, as PostgreSQL decides it.
    #[must_use]
    pub fn is_verifier(text: &[u8]) -> bool {
        ScramVerifier::parse(text).is_ok()
    }

    /// The text form. Holders of it can pretend to be the server, and try passwords: it is a secret.
    #[must_use]
    pub fn format(&self) -> Secret {
        let base64 = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        let Challenge { salt, iterations } = &self.challenge;
        let (stored, server) = (base64(self.stored.expose()), base64(self.server.expose()));
        Secret::from(format!("{}${iterations}:{}${stored}:{server}", self.mechanism.name(), base64(salt)))
    }

    /// Salt and rounds for the client.
    #[must_use]
    pub fn challenge(&self) -> &Challenge {
        &self.challenge
    }

    /// The mechanism without its binding.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Whether `keys`, derived from a candidate password at [`ScramVerifier::challenge`], are those of this user.
    #[must_use]
    pub fn accepts(&self, keys: &ScramKeys) -> bool {
        self.accepts_stored(&keys.stored(self.mechanism))
    }

    /// Whether a StoredKey is that of this user; for a mock never. Both take the same time.
    pub(crate) fn accepts_stored(&self, stored: &Key) -> bool {
        let is_same = stored.expose().ct_eq(self.stored.expose());
        bool::from(is_same & u8::from(!self.is_mock).ct_eq(&1))
    }

    pub(crate) fn stored(&self) -> &Key {
        &self.stored
    }

    pub(crate) fn server(&self) -> &Key {
        &self.server
    }
}

/// The two sides of the only colon.
fn halves(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (left, right) = (&text[..colon], &text[colon + 1..]);
    (!right.contains(&b':')).then_some((left, right))
}

/// Decimal digits as a number, without a sign.
pub(crate) fn number(text: &[u8]) -> Option<u32> {
    let is_decimal = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| is_decimal)?.parse().ok()
}
