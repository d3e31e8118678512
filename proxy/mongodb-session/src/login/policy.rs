//! Decisions of a listener about logins, and facts of a connection.

use weir_base::secret::Secret;
use weir_sasl::Mechanism;

/// Ways to log in. None: every client may send any command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u8);

impl Methods {
    /// SCRAM-SHA-256.
    pub const SCRAM_SHA_256: Methods = Methods(1);
    /// SCRAM-SHA-1.
    pub const SCRAM_SHA_1: Methods = Methods(2);
    /// MONGODB-X509.
    pub const X509: Methods = Methods(4);
    /// PLAIN, which needs TLS.
    pub const PLAIN: Methods = Methods(8);

    /// SCRAM that a server checks, with the passwords of its users. It goes with no other method.
    pub const RELAYED: Methods = Methods(16);

    /// These and those.
    #[must_use]
    pub const fn and(self, those: Methods) -> Methods {
        Methods(self.0 | those.0)
    }

    /// Whether these are among them.
    #[must_use]
    pub const fn contains(self, those: Methods) -> bool {
        self.0 & those.0 == those.0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Decisions of a listener.
#[derive(Clone, Debug)]
pub struct LoginPolicy {
    /// Ways to log in.
    pub methods: Methods,
    /// Makes the salts of users that do not exist. Random, the same for all connections.
    pub mock_secret: Secret,
    /// Failures on one connection until it ends. Default 3: drivers close after the first.
    pub failures_max: u32,
    /// Subjects of certificates that may log in (RFC 2253); `None`: every certificate that TLS has accepted.
    pub subjects: Option<Vec<Box<[u8]>>>,
}

impl LoginPolicy {
    /// A listener whose clients need no login.
    #[must_use]
    pub fn open() -> LoginPolicy {
        let mock_secret = Secret::new(Vec::new());
        LoginPolicy { methods: Methods::default(), mock_secret, failures_max: 3, subjects: None }
    }

    /// Kinds of SCRAM, the better one first.
    pub(super) fn mechanisms(&self) -> impl Iterator<Item = Mechanism> + use<> {
        let methods = self.methods;
        let all = [(Methods::SCRAM_SHA_256, Mechanism::ScramSha256), (Methods::SCRAM_SHA_1, Mechanism::ScramSha1)];
        all.into_iter().filter(move |(method, _)| methods.contains(*method)).map(|(_, mechanism)| mechanism)
    }

    pub(super) fn is_subject_known(&self, subject: &[u8]) -> bool {
        self.subjects.as_ref().is_none_or(|known| known.iter().any(|one| **one == *subject))
    }
}

/// Facts of a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFacts {
    /// The subject of the client's certificate as RFC 2253 writes it, if TLS has verified one.
    pub subject: Option<Box<[u8]>>,
}

/// Facts of a connection that the shell knows.
#[derive(Clone, Debug)]
pub struct Peer {
    /// A number that no other connection of the process has.
    pub connection_id: i32,
    /// The client's address, for whatsmyuri.
    pub address: Box<str>,
    /// TLS, if it is there.
    pub tls: Option<TlsFacts>,
}
