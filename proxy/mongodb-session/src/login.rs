//! The login of a client: SCRAM of both kinds, PLAIN, and certificates.
//!
//! Source: "Driver Authentication" of the driver specifications. Every failure has the same words, and a user that does not exist goes the
//! whole way. After a number of failures the connection ends; a delay between them is the shell's.
//!
//! | file | concept |
//! |---|---|
//! | `policy` | decisions of a listener, and facts of a connection that the shell knows |
//! | `sasl` | fields of saslStart and saslContinue; their replies |
//! | `conversation` | one exchange of SASL |
//! | `relay` | a login that a server checks |

mod conversation;
mod policy;
mod relay;
mod sasl;

use std::sync::Arc;

use weir_mongodb_codec::bson::Document;
use weir_mongodb_codec::command::Command;
use weir_sasl::{Derivation, Mechanism, ScramKeys};

pub use policy::{LoginPolicy, Methods, Peer, TlsFacts};
pub use sasl::SaslReply;

use crate::io::Users;
use crate::refusal::Refusal;
use crate::users::{EXTERNAL, Identity};
use conversation::Conversation;
use relay::Relay;
use sasl::{Continue, Start};

/// The login of one client connection.
#[derive(Debug)]
pub struct Login {
    policy: Arc<LoginPolicy>,
    tls: Option<TlsFacts>,
    user: Option<Arc<Identity>>,
    conversation: Option<Conversation>,
    relay: Relay,
    /// The number of the last conversation.
    number: i32,
    failures: u32,
}

/// The consequence of a message of a login.
#[derive(Debug)]
pub enum LoginStep {
    /// A reply of SASL.
    Sasl(SaslReply),
    /// The reply to authenticate: the user of the certificate.
    Certificate(Arc<Identity>),
    /// Find the keys in a cache or derive them, then call [`Login::on_keys`].
    Derive(Box<Derivation>),
}

impl Login {
    /// A new connection.
    #[must_use]
    pub fn new(policy: Arc<LoginPolicy>, tls: Option<TlsFacts>) -> Login {
        Login { policy, tls, user: None, conversation: None, relay: Relay::default(), number: 0, failures: 0 }
    }

    /// The client may send any command.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.user.is_some() || self.policy.methods.is_empty()
    }

    /// The user that has logged in.
    #[must_use]
    pub fn user(&self) -> Option<&Arc<Identity>> {
        self.user.as_ref()
    }

    /// Failures so far. The delay behind one is the shell's.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The client has failed as often as it may. Close the connection behind the error.
    #[must_use]
    pub fn has_failed_too_often(&self) -> bool {
        self.failures >= self.policy.failures_max
    }

    /// Mechanisms of a user, for `saslSupportedMechs`. A user that does not exist has those that the listener has.
    pub fn mechanisms(&self, of: &[u8], users: &impl Users) -> Vec<Mechanism> {
        let (db, name) = sasl::split_user(of);
        let user = users.user(db, name);
        let has = |mechanism: &Mechanism| user.as_ref().is_none_or(|user| user.verifier(*mechanism).is_some());
        self.policy.mechanisms().filter(has).collect()
    }

    /// `speculativeAuthenticate` of a hello. A failure is no reply: the client logs in from the beginning.
    pub fn on_speculation(&mut self, document: Document<'_>, users: &impl Users) -> Option<LoginStep> {
        if self.user.is_some() || self.policy.methods.is_empty() {
            return None;
        }
        let name = document.first_element().ok()??.name;
        let step = match name {
            b"saslStart" => self.start(&Start::read_speculative(document)?, users),
            b"authenticate" => self.certificate(document, EXTERNAL),
            _ => return None,
        };
        // A password in clear text is never sent on speculation.
        step.ok().filter(|step| !matches!(step, LoginStep::Derive(_)))
    }

    /// saslStart.
    ///
    /// # Errors
    /// The login has failed, or cannot begin.
    pub fn on_start(&mut self, command: &Command<'_>, users: &impl Users) -> Result<LoginStep, Refusal> {
        self.may_begin()?;
        let step = Start::read(command).ok_or_else(Refusal::login_failed).and_then(|start| self.start(&start, users));
        self.count(step)
    }

    /// saslContinue.
    ///
    /// # Errors
    /// The login has failed.
    pub fn on_continue(&mut self, command: &Command<'_>) -> Result<LoginStep, Refusal> {
        let step = self.go_on(command);
        self.count(step)
    }

    /// authenticate, of which certificates are the only mechanism that is left.
    ///
    /// # Errors
    /// The login has failed.
    pub fn on_authenticate(&mut self, command: &Command<'_>) -> Result<LoginStep, Refusal> {
        self.may_begin()?;
        let step = self.certificate(command.body, command.db);
        self.count(step)
    }

    /// A server checks the login.
    #[must_use]
    pub fn is_relayed(&self) -> bool {
        self.policy.methods.contains(Methods::RELAYED)
    }

    /// A message of a login that a server checks.
    ///
    /// # Errors
    /// It may not pass.
    pub(crate) fn relay(&mut self, command: &Command<'_>) -> Result<(), Refusal> {
        if self.user.is_some() {
            return Err(Refusal::second_login());
        }
        self.relay.on_request(command)
    }

    /// The server's reply to it; `true`: the client is logged in, `Err`: it has failed.
    pub(crate) fn on_relayed(&mut self, is_ok: bool, body: Document<'_>) -> Result<bool, ()> {
        let user =
            self.relay.on_reply(is_ok, body).inspect_err(|()| self.failures = self.failures.saturating_add(1))?;
        self.user = user;
        Ok(self.user.is_some())
    }

    /// The keys of a derivation.
    ///
    /// # Errors
    /// The password is wrong.
    pub fn on_keys(&mut self, keys: &ScramKeys) -> Result<LoginStep, Refusal> {
        let conversation = self.conversation.take().ok_or_else(Refusal::no_conversation);
        let step = conversation.and_then(|conversation| conversation.on_keys(keys)).map(|(reply, user)| {
            self.user = Some(user);
            LoginStep::Sasl(reply)
        });
        self.count(step)
    }

    /// logout: the next command needs another login.
    pub fn on_logout(&mut self) {
        self.user = None;
        self.conversation = None;
    }

    fn may_begin(&self) -> Result<(), Refusal> {
        match (&self.user, self.policy.methods.is_empty()) {
            (Some(_), _) => Err(Refusal::second_login()),
            (None, true) => Err(Refusal::mechanism()),
            (None, false) => Ok(()),
        }
    }

    fn start(&mut self, start: &Start<'_>, users: &impl Users) -> Result<LoginStep, Refusal> {
        self.conversation = None;
        self.number = self.number.wrapping_add(1).max(1);
        let is_encrypted = self.tls.is_some();
        let (conversation, step) = Conversation::start(self.number, start, &self.policy, is_encrypted, users)?;
        self.conversation = Some(conversation);
        Ok(step)
    }

    fn go_on(&mut self, command: &Command<'_>) -> Result<LoginStep, Refusal> {
        let conversation = self.conversation.take().ok_or_else(Refusal::no_conversation)?;
        let message = Continue::read(command).ok_or_else(Refusal::login_failed)?;
        let (conversation, reply) = conversation.on_message(&message)?;
        match conversation {
            Ok(user) => self.user = Some(user),
            Err(conversation) => self.conversation = Some(conversation),
        }
        Ok(LoginStep::Sasl(reply))
    }

    /// The subject of the certificate is the user. A name that the client sends as well must be the same.
    fn certificate(&mut self, body: Document<'_>, db: &[u8]) -> Result<LoginStep, Refusal> {
        let text = |name: &[u8]| body.get(name).ok().flatten().and_then(|value| value.as_string());
        if !self.policy.methods.contains(Methods::X509) || text(b"mechanism") != Some(b"MONGODB-X509") {
            return Err(Refusal::mechanism());
        }
        let subject = self.tls.as_ref().and_then(|tls| tls.subject.as_deref()).filter(|_| db == EXTERNAL);
        let subject = subject.filter(|subject| text(b"user").is_none_or(|user| user == *subject));
        let subject =
            subject.filter(|subject| self.policy.is_subject_known(subject)).ok_or_else(Refusal::login_failed)?;
        let identity = Arc::new(Identity::new(EXTERNAL, subject));
        self.user = Some(Arc::clone(&identity));
        self.conversation = None;
        Ok(LoginStep::Certificate(identity))
    }

    fn count(&mut self, step: Result<LoginStep, Refusal>) -> Result<LoginStep, Refusal> {
        if step.is_err() {
            self.failures = self.failures.saturating_add(1);
            self.conversation = None;
        }
        step
    }
}
