//! The dialect of MongoDB: SCRAM as PostgreSQL has it, and another password below SHA-1.
//!
//! Source: "Driver Authentication" of the driver specifications. Names of users are never prepared. Exchanges are not bound to TLS.

use weir_base::secret::Secret;

use crate::md5;
use crate::mechanism::Mechanism;

/// Rounds of PBKDF2 below which no driver answers a challenge, so that an attacker between them cannot make a password cheap.
pub const ITERATIONS_MIN: u32 = 4096;

/// Rounds of PBKDF2 of a verifier that we make, as servers make it.
#[must_use]
pub const fn iterations(mechanism: Mechanism) -> u32 {
    match mechanism {
        Mechanism::ScramSha1 => 10_000,
        Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => 15_000,
    }
}

/// The password that a verifier or a derivation of this mechanism is made of.
///
/// For SHA-1 it is `HEX(MD5(user:mongo:password))`, which the old mechanism MONGODB-CR stored. For SHA-256 it is the password, which
/// [`Derivation`](crate::Derivation) prepares.
#[must_use]
pub fn password(mechanism: Mechanism, user: &[u8], password: &Secret) -> Secret {
    match mechanism {
        Mechanism::ScramSha1 => Secret::from(&md5::hash(&[user, b":mongo:", password.expose()])[3..]),
        Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => password.clone(),
    }
}
