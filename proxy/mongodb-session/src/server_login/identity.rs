//! The identity of a login.

use std::sync::Arc;

use weir_base::secret::Secret;
use weir_mongodb_codec::bson::Writer;

/// The proof of a login.
#[derive(Clone, Debug)]
pub enum Credential {
    /// None: the server lets everything in.
    None,
    /// A password by SCRAM, with the better mechanism that the user has.
    Password(Secret),
    /// A password in clear text by PLAIN: for servers behind a directory. Over TLS alone.
    Plain(Secret),
    /// The certificate that TLS has shown.
    Certificate,
}

/// The identity of the gateway at a server.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// The user; empty without a login, and for the subject of a certificate.
    pub user: Arc<str>,
    /// The database in which the user is; `admin` unless configured otherwise.
    pub source: Arc<str>,
    /// Its proof.
    pub credential: Credential,
    /// The name that the server logs: `client.application.name`.
    pub application: Arc<str>,
    /// The connection is encrypted: a password in clear text may pass.
    pub is_encrypted: bool,
}

impl ServerIdentity {
    /// The database of the login. Users of directories and certificates are in `$external`.
    pub(super) fn source(&self) -> &str {
        match self.credential {
            Credential::Plain(_) | Credential::Certificate => "$external",
            Credential::None | Credential::Password(_) => &self.source,
        }
    }

    /// `saslSupportedMechs`: the user whose mechanisms are of interest.
    pub(super) fn mechanisms_of(&self) -> Option<String> {
        matches!(self.credential, Credential::Password(_)).then(|| format!("{}.{}", self.source, self.user))
    }

    /// `client`: the gateway describes itself, as servers demand it in the first hello.
    pub(super) fn write_metadata(&self, body: &mut Writer<'_>) {
        body.document("client", |client| {
            client.document("application", |application| application.string("name", &*self.application));
            client.document("driver", |driver| {
                driver.string("name", "weir");
                driver.string("version", env!("CARGO_PKG_VERSION"));
            });
            client.document("os", |os| os.string("type", "Linux"));
        });
    }
}
