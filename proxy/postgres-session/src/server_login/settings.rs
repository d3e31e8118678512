//! The identity of a login at a server.

use weir_postgres_codec::Version;

use crate::users::Credential;

/// Whether a connection to a server has TLS: the first three of libpq's `sslmode`. The others are about the certificate, which
/// the shell's handshake verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    #[default]
    Disable,
    /// If the server has it. An attacker on the way can remove it.
    Prefer,
    /// Always.
    Require,
}

/// Whether SCRAM is bound to the TLS connection: libpq's `channel_binding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindingMode {
    /// Never.
    Disable,
    /// If both sides can.
    #[default]
    Prefer,
    /// Always: a server that does not prove that it has the password behind this certificate is refused.
    Require,
}

/// Statements and demands of a login at a server.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// User.
    pub user: Vec<u8>,
    /// Database.
    pub database: Vec<u8>,
    /// More parameters of the startup packet, such as `application_name` or `options`. One named `user` or `database` is not
    /// sent: the identity that was authorised is the one that reaches the server.
    pub parameters: Vec<(Vec<u8>, Vec<u8>)>,
    /// The means to prove it.
    pub credential: Credential,
    /// TLS.
    pub tls: TlsMode,
    /// Channel binding.
    pub binding: BindingMode,
    /// The version that is requested. With 3.2 a server sends longer cancel keys; an older one is content with 3.0.
    pub version: Version,
}

impl ServerIdentity {
    /// A user at a database, with protocol 3.0, without TLS and without more parameters.
    #[must_use]
    pub fn new(user: &[u8], database: &[u8], credential: Credential) -> ServerIdentity {
        ServerIdentity {
            user: user.to_vec(),
            database: database.to_vec(),
            parameters: Vec::new(),
            credential,
            tls: TlsMode::default(),
            binding: BindingMode::default(),
            version: Version::V3_0,
        }
    }

    /// Parameters of the startup packet. An empty name would end the list.
    pub(super) fn startup_parameters(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_free = |name: &[u8]| !matches!(name, b"" | b"user" | b"database");
        let others = self.parameters.iter().filter(move |(name, _)| is_free(name));
        [(&b"user"[..], self.user.as_slice()), (b"database", &self.database)]
            .into_iter()
            .chain(others.map(|(name, value)| (name.as_slice(), value.as_slice())))
    }
}
