//! The messages of SCRAM, PLAIN and certificates on the gateway's side.

use weir_base::secret::Secret;
use weir_mongodb_codec::bson::{Document, Value, Writer};
use weir_sasl::{
    ChannelBinding, ClientError, ClientProven, Derivation, Mechanism, Nonce, Plain, ScramClient, ScramKeys, Waiting,
    mongodb,
};

use super::failure::Failure;
use super::identity::{Credential, ServerIdentity};

/// An exchange and its next message, which [`Exchange::write`] writes.
#[derive(Debug)]
pub(super) struct Exchange {
    stage: Stage,
    /// The number that the server has given to the conversation.
    conversation: i32,
}

#[derive(Debug)]
enum Stage {
    First {
        mechanism: Mechanism,
        client: ScramClient,
    },
    Waiting {
        waiting: Waiting,
    },
    Proof {
        client: ClientProven,
        message: Vec<u8>,
    },
    /// The server has proven itself and wants an empty message.
    Empty,
    Plain {
        message: Secret,
    },
    Certificate {
        user: String,
    },
}

/// The consequence of a reply.
pub(super) enum Sent {
    /// Another message.
    More(Exchange),
    /// The keys of the password, then another message.
    Derive(Exchange, Box<Derivation>),
    /// The gateway is logged in.
    Done,
}

impl Exchange {
    /// The exchange for a server whose user has these mechanisms.
    pub(super) fn new(identity: &ServerIdentity, mechanisms: Option<&[Mechanism]>, nonce: Nonce) -> Exchange {
        // Without a list the server is older than 4.0 and has SHA-1 alone.
        let has_sha256 = mechanisms.is_some_and(|has| has.contains(&Mechanism::ScramSha256));
        let mechanism = if has_sha256 { Mechanism::ScramSha256 } else { Mechanism::ScramSha1 };
        Self::with(identity, mechanism, nonce)
    }

    /// The exchange that may begin within hello.
    pub(super) fn speculative(identity: &ServerIdentity, nonce: Nonce) -> Option<Exchange> {
        let may = matches!(identity.credential, Credential::Password(_) | Credential::Certificate);
        may.then(|| Self::with(identity, Mechanism::ScramSha256, nonce))
    }

    fn with(identity: &ServerIdentity, mechanism: Mechanism, nonce: Nonce) -> Exchange {
        let user = identity.user.as_bytes();
        let stage = match &identity.credential {
            // Without a credential there is no exchange.
            Credential::None | Credential::Password(_) => {
                Stage::First { mechanism, client: ScramClient::new(mechanism, user, ChannelBinding::None, nonce) }
            }
            Credential::Plain(password) => {
                let plain = Plain { user: user.to_vec(), password: password.clone() };
                Stage::Plain { message: plain.message() }
            }
            Credential::Certificate => Stage::Certificate { user: identity.user.to_string() },
        };
        Exchange { stage, conversation: 0 }
    }

    /// Writes the command of the next message, without its database.
    pub(super) fn write(&self, body: &mut Writer<'_>) {
        match &self.stage {
            Stage::First { mechanism, client } => {
                body.int32("saslStart", 1);
                body.string("mechanism", mechanism.name());
                body.binary("payload", 0, client.first_message());
                body.document("options", |options| options.bool("skipEmptyExchange", true));
            }
            Stage::Proof { message, .. } => self.write_continue(message, body),
            Stage::Empty => self.write_continue(b"", body),
            Stage::Plain { message } => {
                body.int32("saslStart", 1);
                body.string("mechanism", "PLAIN");
                body.binary("payload", 0, message.expose());
            }
            Stage::Certificate { user } => {
                body.int32("authenticate", 1);
                body.string("mechanism", "MONGODB-X509");
                if !user.is_empty() {
                    body.string("user", user);
                }
            }
            Stage::Waiting { .. } => debug_assert!(false, "the keys are due first"),
        }
    }

    fn write_continue(&self, payload: &[u8], body: &mut Writer<'_>) {
        body.int32("saslContinue", 1);
        body.int32("conversationId", self.conversation);
        body.binary("payload", 0, payload);
    }

    /// A reply of the server.
    pub(super) fn on_reply(self, reply: Document<'_>, identity: &ServerIdentity) -> Result<Sent, Failure> {
        let field = |name: &[u8]| reply.get(name);
        let payload = field(b"payload")?.and_then(Value::as_binary).map(|(_, payload)| payload).unwrap_or_default();
        let is_done = field(b"done")?.is_some_and(Value::is_true);
        let number =
            field(b"conversationId")?.and_then(Value::as_integer).and_then(|number| i32::try_from(number).ok());
        let conversation = number.unwrap_or(self.conversation);
        let order = || Failure::rule("mongodb_login_order");
        match self.stage {
            Stage::First { .. } if is_done => Err(order()),
            Stage::First { mechanism, client } => {
                let (waiting, challenge) = client.on_challenge(payload)?;
                // So that an attacker between them cannot make the password cheap.
                if challenge.iterations < mongodb::ITERATIONS_MIN {
                    return Err(ClientError::Iterations { claimed: challenge.iterations }.into());
                }
                let Credential::Password(password) = &identity.credential else { return Err(order()) };
                let password = mongodb::password(mechanism, identity.user.as_bytes(), password);
                let derivation = Derivation::new(mechanism, &password, challenge);
                let exchange = Exchange { stage: Stage::Waiting { waiting }, conversation };
                Ok(Sent::Derive(exchange, Box::new(derivation)))
            }
            Stage::Proof { client, .. } => {
                client.finish(payload)?;
                if is_done { Ok(Sent::Done) } else { Ok(Sent::More(Exchange { stage: Stage::Empty, conversation })) }
            }
            Stage::Empty | Stage::Plain { .. } if is_done => Ok(Sent::Done),
            Stage::Certificate { .. } => Ok(Sent::Done),
            Stage::Waiting { .. } | Stage::Empty | Stage::Plain { .. } => Err(order()),
        }
    }

    /// The message with the proof.
    pub(super) fn prove(self, keys: &ScramKeys) -> Exchange {
        let stage = match self.stage {
            Stage::Waiting { waiting } => {
                let (client, message) = waiting.prove(keys);
                Stage::Proof { client, message }
            }
            other => other,
        };
        Exchange { stage, conversation: self.conversation }
    }
}
