//! Users of a listener: their names, and the proofs of their identity.

use std::fmt;
use std::sync::Arc;

use weir_base::secret::Secret;
use weir_sasl::{Mechanism, ScramVerifier, mongodb};

/// The database of users that certificates and directories prove.
pub const EXTERNAL: &[u8] = b"$external";

/// A user: its name is unique in its database.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The database in which the user is.
    pub db: Box<[u8]>,
    /// Its name.
    pub name: Box<[u8]>,
}

impl Identity {
    /// A user of a database.
    #[must_use]
    pub fn new(db: &[u8], name: &[u8]) -> Identity {
        Identity { db: db.into(), name: name.into() }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name.escape_ascii(), self.db.escape_ascii())
    }
}

/// The owner of cursors and transactions; `None`: the listener has no logins, and all clients are one.
pub type Owner = Option<Arc<Identity>>;

/// A user and its verifiers.
#[derive(Clone, Debug)]
pub struct User {
    /// Its name and database.
    pub identity: Arc<Identity>,
    verifiers: Vec<ScramVerifier>,
}

impl User {
    /// A user with a password. It takes as long as one derivation for each mechanism; `salts` are random, one for each.
    #[must_use]
    pub fn from_password(identity: Identity, password: &Secret, mechanisms: &[Mechanism], salts: &[[u8; 16]]) -> User {
        let verifier = |(mechanism, salt): (&Mechanism, &[u8; 16])| {
            let digest = mongodb::password(*mechanism, &identity.name, password);
            ScramVerifier::from_password(*mechanism, &digest, salt, mongodb::iterations(*mechanism))
        };
        let verifiers = mechanisms.iter().zip(salts).map(verifier).collect();
        User { identity: Arc::new(identity), verifiers }
    }

    /// A user with stored verifiers, or with none: a certificate or a directory proves it.
    #[must_use]
    pub fn from_verifiers(identity: Identity, verifiers: Vec<ScramVerifier>) -> User {
        User { identity: Arc::new(identity), verifiers }
    }

    /// The verifier of a mechanism.
    #[must_use]
    pub fn verifier(&self, mechanism: Mechanism) -> Option<&ScramVerifier> {
        self.verifiers.iter().find(|verifier| verifier.mechanism() == mechanism)
    }
}
