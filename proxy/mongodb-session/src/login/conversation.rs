//! One exchange of SASL. A user that does not exist goes the whole way and fails at its end.

use std::sync::Arc;

use weir_base::secret::Secret;
use weir_sasl::{
    ChannelBinding, ClientFirst, Derivation, Mechanism, Plain, ScramKeys, ScramServer, ScramVerifier, mongodb,
};

use super::LoginStep;
use super::policy::{LoginPolicy, Methods};
use super::sasl::{Continue, SaslReply, Start};
use crate::io::Users;
use crate::refusal::Refusal;
use crate::users::{EXTERNAL, Identity, User};

/// An exchange that is under way.
#[derive(Debug)]
pub(super) struct Conversation {
    number: i32,
    identity: Arc<Identity>,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The client must prove.
    Proof { server: Box<ScramServer>, skips_empty_exchange: bool },
    /// It has proven, and sends an empty message.
    Empty,
    /// The shell derives the keys of a password in clear text.
    Keys { verifier: Box<ScramVerifier> },
}

impl Conversation {
    /// Begins with the client's first message.
    pub(super) fn start(
        number: i32,
        start: &Start<'_>,
        policy: &LoginPolicy,
        is_encrypted: bool,
        users: &impl Users,
    ) -> Result<(Conversation, LoginStep), Refusal> {
        if start.mechanism == b"PLAIN" {
            let may = is_encrypted && policy.methods.contains(Methods::PLAIN);
            return if may { Self::plain(number, start, policy, users) } else { Err(Refusal::mechanism()) };
        }
        let mechanism = Mechanism::from_name(start.mechanism);
        let mechanism = mechanism.filter(|known| policy.mechanisms().any(|offered| offered == *known));
        let mechanism = mechanism.ok_or_else(Refusal::mechanism)?;
        // Servers bind no exchange to TLS, and drivers may not offer it.
        let first = ClientFirst::read(start.payload, mechanism, &ChannelBinding::None);
        let first = first.map_err(|_| Refusal::login_failed())?;
        let Known { identity, verifier, lacks_mechanism } = known(start.db, first.user(), mechanism, policy, users);
        // The client chooses another mechanism from the list, which says the same.
        if start.is_speculative && lacks_mechanism {
            return Err(Refusal::mechanism());
        }
        let (server, payload) = first.challenge(verifier, &users.nonce());
        let stage = Stage::Proof { server: Box::new(server), skips_empty_exchange: start.skips_empty_exchange };
        let reply = SaslReply { conversation: number, payload, is_done: false };
        Ok((Conversation { number, identity, stage }, LoginStep::Sasl(reply)))
    }

    /// The users of PLAIN are in `$external`. Their keys are derived whether they exist or not: the time says nothing about them.
    fn plain(
        number: i32,
        start: &Start<'_>,
        policy: &LoginPolicy,
        users: &impl Users,
    ) -> Result<(Conversation, LoginStep), Refusal> {
        let plain = Plain::read(start.payload).filter(|_| start.db == EXTERNAL).ok_or_else(Refusal::login_failed)?;
        let mechanism = Mechanism::ScramSha256;
        let Known { identity, verifier, .. } = known(EXTERNAL, &plain.user, mechanism, policy, users);
        let derivation = Derivation::new(mechanism, &plain.password, verifier.challenge().clone());
        let stage = Stage::Keys { verifier: Box::new(verifier) };
        Ok((Conversation { number, identity, stage }, LoginStep::Derive(Box::new(derivation))))
    }

    /// saslContinue: the user if the login is done, or the rest of the conversation.
    pub(super) fn on_message(
        self,
        message: &Continue<'_>,
    ) -> Result<(Result<Arc<Identity>, Conversation>, SaslReply), Refusal> {
        let Conversation { number, identity, stage } = self;
        if message.conversation != i64::from(number) {
            return Err(Refusal::no_conversation());
        }
        let reply = |payload: Vec<u8>, is_done: bool| SaslReply { conversation: number, payload, is_done };
        match stage {
            Stage::Proof { server, skips_empty_exchange } => {
                let proven = server.finish(message.payload).map_err(|_| Refusal::login_failed())?;
                if skips_empty_exchange {
                    return Ok((Ok(identity), reply(proven.message, true)));
                }
                let rest = Conversation { number, identity, stage: Stage::Empty };
                Ok((Err(rest), reply(proven.message, false)))
            }
            Stage::Empty if message.payload.is_empty() => Ok((Ok(identity), reply(Vec::new(), true))),
            Stage::Empty => Err(Refusal::login_failed()),
            Stage::Keys { .. } => Err(Refusal::no_conversation()),
        }
    }

    /// The keys of a password in clear text.
    pub(super) fn on_keys(self, keys: &ScramKeys) -> Result<(SaslReply, Arc<Identity>), Refusal> {
        let Stage::Keys { verifier } = self.stage else { return Err(Refusal::no_conversation()) };
        if !verifier.accepts(keys) {
            return Err(Refusal::login_failed());
        }
        Ok((SaslReply { conversation: self.number, payload: Vec::new(), is_done: true }, self.identity))
    }
}

/// A user that may exist.
struct Known {
    identity: Arc<Identity>,
    verifier: ScramVerifier,
    /// The user exists, and has no verifier of the mechanism.
    lacks_mechanism: bool,
}

/// A user and its verifier, or one that no proof satisfies, with a salt of its own for each mechanism as a real one has.
fn known(db: &[u8], name: &[u8], mechanism: Mechanism, policy: &LoginPolicy, users: &impl Users) -> Known {
    let user: Option<Arc<User>> = users.user(db, name);
    let verifier = user.as_ref().and_then(|user| user.verifier(mechanism)).cloned();
    let lacks_mechanism = user.is_some() && verifier.is_none();
    let mock = || mock_verifier(db, name, mechanism, &policy.mock_secret);
    let identity = user.map_or_else(|| Arc::new(Identity::new(db, name)), |user| Arc::clone(&user.identity));
    Known { identity, verifier: verifier.unwrap_or_else(mock), lacks_mechanism }
}

/// The verifier of a user that does not exist: no proof satisfies it. The salt of a user that exists must be that of its own, or a
/// reload that adds the user shows in it. `secret` is [`LoginPolicy::mock_secret`].
#[must_use]
pub fn mock_verifier(db: &[u8], name: &[u8], mechanism: Mechanism, secret: &Secret) -> ScramVerifier {
    let seed = [mechanism.name().as_bytes(), b"\0", db, b"\0", name].concat();
    ScramVerifier::mock(mechanism, &seed, secret, mongodb::iterations(mechanism))
}
