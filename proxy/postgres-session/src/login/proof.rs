//! Passwords: clear text, MD5, SCRAM. A user that does not exist goes the whole way and fails at its end.

use weir_base::secret::Secret;
use weir_postgres_codec::{backend, frontend};
use weir_sasl::{
    ChannelBinding, ClientFirst, Derivation, Mechanism, Nonce, ScramServer, ScramVerifier, ServerError, md5,
};

use super::policy::{Entropy, LoginPolicy, Peer};
use super::refusal::Refusal;
use crate::hba::Method;
use crate::users::{Credential, ProvenKeys, User};

/// A proof under way.
#[derive(Debug)]
pub(super) enum Proof {
    ClearText { verifier: ScramVerifier },
    Md5 { salt: [u8; 4] },
    Scram { scram: Box<Scram>, method: Method },
}

/// The consequence of a message of the client.
pub(super) enum Verdict {
    /// Another message.
    More,
    /// It is the password, and this much of it is known now.
    Right(Credential),
    /// The keys of the password decide, unless it is known to be right.
    Derive { derivation: Derivation, password: Credential, is_right: bool },
}

/// The exchange of SASL.
#[derive(Debug)]
pub(super) struct Scram {
    binding: ChannelBinding,
    verifier: ScramVerifier,
    nonce: Nonce,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The client chooses a mechanism.
    Choice,
    /// It has chosen one and sent nothing else.
    First(Mechanism),
    /// It must prove.
    Final(ScramServer),
}

impl Proof {
    /// Requests the proof from the client.
    pub(super) fn new(
        method: Method,
        name: &[u8],
        user: Option<&User>,
        policy: &LoginPolicy,
        peer: &Peer,
        entropy: &Entropy,
        out: &mut Vec<u8>,
    ) -> Proof {
        let verifier = user.and_then(User::verifier);
        let form = user.filter(|user| user.has_password()).map_or_else(|| policy.mock_form(name), User::form);
        if method == Method::Md5 && form.has_md5 {
            backend::authentication_md5(out, entropy.salt);
            return Proof::Md5 { salt: entropy.salt };
        }
        let mock = || ScramVerifier::mock(Mechanism::ScramSha256, name, &policy.mock_secret, form.iterations.max(1));
        // PostgreSQL has no other; a verifier of MongoDB would not fit the mechanism.
        let known = verifier.filter(|verifier| verifier.mechanism() == Mechanism::ScramSha256);
        let verifier = known.cloned().unwrap_or_else(mock);
        if method == Method::Password {
            backend::authentication_cleartext(out);
            return Proof::ClearText { verifier };
        }
        let binding = peer.tls.as_ref().map(|tls| tls.binding.clone()).unwrap_or_default();
        let plus = binding.is_available().then_some(Mechanism::ScramSha256Plus);
        let offered = plus.into_iter().chain([Mechanism::ScramSha256]).map(|mechanism| mechanism.name().as_bytes());
        backend::authentication_sasl(out, offered);
        let nonce = Nonce::from_random(&entropy.nonce);
        let scram = Box::new(Scram { binding, verifier, nonce, stage: Stage::Choice });
        Proof::Scram { scram, method }
    }

    pub(super) fn is_sasl(&self) -> bool {
        matches!(self, Proof::Scram { .. })
    }

    /// The method of the rule.
    pub(super) fn method(&self) -> Method {
        match self {
            Proof::ClearText { .. } => Method::Password,
            Proof::Md5 { .. } => Method::Md5,
            Proof::Scram { method, .. } => *method,
        }
    }

    /// The body of a `p` message.
    pub(super) fn on_message(
        &mut self,
        body: &[u8],
        name: &[u8],
        user: Option<&User>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, Refusal> {
        match self {
            Proof::Scram { scram, .. } => scram.on_message(body, name, user, out),
            Proof::ClearText { verifier } => clear_text(password(body)?, verifier, name, user),
            Proof::Md5 { salt } => {
                let candidate = password(body)?;
                // For a user without a hash, one that no response fits: the work is the same.
                let none = Secret::from("md5");
                let stored = user.and_then(User::md5);
                let is_right = md5::accepts(stored.unwrap_or(&none), *salt, candidate);
                match (is_right, user) {
                    (true, Some(user)) if stored.is_some() => Ok(Verdict::Right(user.credential())),
                    _ => Err(Refusal::wrong_password(name)),
                }
            }
        }
    }
}

/// The password of a message.
fn password(body: &[u8]) -> Result<&[u8], Refusal> {
    match frontend::Password::read(body)?.0 {
        b"" => Err(Refusal::empty_password()),
        password => Ok(password),
    }
}

/// An MD5 hash is compared; otherwise the keys of the password decide. They are derived in each case: the time says nothing about the user.
fn clear_text(
    candidate: &[u8],
    verifier: &ScramVerifier,
    name: &[u8],
    user: Option<&User>,
) -> Result<Verdict, Refusal> {
    let password = Secret::from(candidate);
    let stored = user.filter(|user| user.verifier().is_none()).and_then(User::md5);
    let is_right = stored.is_some_and(|stored| md5::stored(name, &password) == *stored);
    let derivation = Derivation::new(Mechanism::ScramSha256, &password, verifier.challenge().clone());
    Ok(Verdict::Derive { derivation, password: Credential::Password(password), is_right })
}

impl Scram {
    fn on_message(
        &mut self,
        body: &[u8],
        name: &[u8],
        user: Option<&User>,
        out: &mut Vec<u8>,
    ) -> Result<Verdict, Refusal> {
        match &self.stage {
            Stage::Choice => {
                let initial = frontend::SaslInitial::read(body)?;
                let mechanism = Mechanism::from_name(initial.mechanism).filter(|mechanism| match mechanism {
                    Mechanism::ScramSha256 => true,
                    Mechanism::ScramSha256Plus => self.binding.is_available(),
                    Mechanism::ScramSha1 => false,
                });
                let mechanism = mechanism.ok_or_else(Refusal::mechanism)?;
                self.stage = Stage::First(mechanism);
                match initial.response {
                    Some(message) => self.on_first(message, mechanism, name, out)?,
                    None => backend::authentication_sasl_continue(out, b""),
                }
                Ok(Verdict::More)
            }
            Stage::First(mechanism) => {
                self.on_first(body, *mechanism, name, out)?;
                Ok(Verdict::More)
            }
            Stage::Final(server) => {
                let proven = server.finish(body).map_err(|error| Refusal::scram(&error, name))?;
                backend::authentication_sasl_final(out, &proven.message);
                // A known password is worth more: the keys fit no server, for our own verifier has a salt of its own.
                let known = user.and_then(User::password).cloned().map(Credential::Password);
                let challenge = self.verifier.challenge().clone();
                let keys = || Credential::Keys(Box::new(ProvenKeys { keys: proven.keys, challenge }));
                Ok(Verdict::Right(known.unwrap_or_else(keys)))
            }
        }
    }

    fn on_first(
        &mut self,
        message: &[u8],
        mechanism: Mechanism,
        name: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let refuse = |error: ServerError| Refusal::scram(&error, name);
        let first = ClientFirst::read(message, mechanism, &self.binding).map_err(refuse)?;
        let (server, challenge) = first.challenge(self.verifier.clone(), &self.nonce);
        backend::authentication_sasl_continue(out, &challenge);
        self.stage = Stage::Final(server);
        Ok(())
    }
}
