//! Names of the mechanisms.

use crate::hash::Hash;

/// A SASL mechanism of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// `SCRAM-SHA-1` (RFC 5802). PostgreSQL has never had it; MongoDB has.
    ScramSha1,
    /// `SCRAM-SHA-256` (RFC 7677).
    ScramSha256,
    /// `SCRAM-SHA-256-PLUS`: the same, bound to the TLS connection.
    ScramSha256Plus,
}

impl Mechanism {
    /// Every mechanism.
    pub const ALL: [Mechanism; 3] = [Mechanism::ScramSha1, Mechanism::ScramSha256, Mechanism::ScramSha256Plus];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::ScramSha1 => "SCRAM-SHA-1",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha256Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    /// The mechanism of a name; case counts.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }

    /// Whether the exchange is bound to the TLS connection.
    #[must_use]
    pub const fn is_bound(self) -> bool {
        matches!(self, Mechanism::ScramSha256Plus)
    }

    /// The mechanism without the binding: the name in a verifier.
    #[must_use]
    pub const fn unbound(self) -> Mechanism {
        match self {
            Mechanism::ScramSha256Plus => Mechanism::ScramSha256,
            other => other,
        }
    }

    pub(crate) const fn hash(self) -> Hash {
        match self {
            Mechanism::ScramSha1 => Hash::Sha1,
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => Hash::Sha256,
        }
    }
}
