//! Decisions of a listener, and facts of a connection that the shell knows.

use std::fmt;
use std::net::IpAddr;

use weir_base::secret::Secret;
use weir_sasl::limits::NONCE_RANDOM_BYTES;
use weir_sasl::{ChannelBinding, Mechanism, ScramVerifier};

use crate::hba::Rules;
use crate::users::PasswordForm;

/// Decisions of a listener about logins. They are made once per configuration and shared.
#[derive(Clone, Debug)]
pub struct LoginPolicy {
    /// Methods by address, user and database.
    pub rules: Rules,
    /// TLS is offered. It is never offered on a Unix socket.
    pub tls: bool,
    /// Makes the salt of users that do not exist. It stays the same as long as attackers may compare: for a process at least.
    pub mock_secret: Secret,
    /// The forms that a user may see that does not exist: those of the others, one for each name.
    pub mock_forms: Vec<PasswordForm>,
}

impl LoginPolicy {
    /// The policy of one method for all, without TLS.
    #[must_use]
    pub fn new(rules: Rules, mock_secret: Secret) -> LoginPolicy {
        LoginPolicy { rules, tls: false, mock_secret, mock_forms: Vec::new() }
    }
}

impl LoginPolicy {
    /// The form of a user that does not exist, always the same one for a name.
    pub(super) fn mock_form(&self, name: &[u8]) -> PasswordForm {
        if self.mock_forms.is_empty() {
            return PasswordForm::default();
        }
        // The salt of the name: a secret decides about it.
        let mock = ScramVerifier::mock(Mechanism::ScramSha256, name, &self.mock_secret, 1);
        let salt = &mock.challenge().salt;
        let number = salt.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        self.mock_forms[(number % self.mock_forms.len() as u64) as usize]
    }
}

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Address of the client; `None`: a Unix socket.
    pub address: Option<IpAddr>,
    /// TLS, once its handshake is over.
    pub tls: Option<TlsFacts>,
}

/// Facts that a TLS handshake has shown.
#[derive(Clone, Debug, Default)]
pub struct TlsFacts {
    /// Both sides have chosen the application protocol `postgresql`. Direct TLS needs it: without it, a client of another
    /// protocol could be led here.
    pub has_alpn: bool,
    /// Hash of our certificate, for the PLUS mechanism.
    pub binding: ChannelBinding,
    /// Names of the client's certificate, which has been verified; none if it has sent none.
    pub client_names: Vec<Vec<u8>>,
}

/// Randomness of a login. It comes from the system's source.
#[derive(Clone)]
pub struct Entropy {
    /// For the nonce of SCRAM.
    pub nonce: [u8; NONCE_RANDOM_BYTES],
    /// For the salt of MD5.
    pub salt: [u8; 4],
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}
