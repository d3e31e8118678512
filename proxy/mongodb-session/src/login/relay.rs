//! A login that a server checks: messages of SASL pass through, on a connection that belongs to this client until the login is over.
//!
//! Behind it the connection is logged in as the client's user, and serves this client alone.

use std::sync::Arc;

use weir_mongodb_codec::CommandError;
use weir_mongodb_codec::bson::{Document, Value};
use weir_mongodb_codec::command::Command;
use weir_sasl::{ChannelBinding, ClientFirst, Mechanism};

use super::sasl::Start;
use crate::refusal::Refusal;
use crate::users::Identity;

/// The user that is about to log in.
#[derive(Debug, Default)]
pub(super) struct Relay {
    user: Option<Arc<Identity>>,
    /// A login on the client's connection to the server has succeeded.
    is_used: bool,
}

impl Relay {
    /// A message of the client may pass. The first one names the user: SCRAM alone, for other mechanisms carry secrets.
    pub(super) fn on_request(&mut self, command: &Command<'_>) -> Result<(), Refusal> {
        // Servers before 5.0 keep the user of before as well: the connection would have the rights of both.
        if self.is_used {
            return Err(Refusal::second_login());
        }
        refuse_doubles(command)?;
        if command.name == b"saslContinue" {
            return if self.user.is_some() { Ok(()) } else { Err(Refusal::no_conversation()) };
        }
        self.user = None;
        let start = Start::read(command).ok_or_else(Refusal::login_failed)?;
        let mechanism = Mechanism::from_name(start.mechanism).filter(|mechanism| !mechanism.is_bound());
        let mechanism = mechanism.ok_or_else(Refusal::mechanism)?;
        let first = ClientFirst::read(start.payload, mechanism, &ChannelBinding::None);
        let first = first.map_err(|_| Refusal::login_failed())?;
        self.user = Some(Arc::new(Identity::new(start.db, first.user())));
        Ok(())
    }

    /// The server's reply: the user if the login is over, or nothing; `Err`: the login has failed, in the server's words.
    pub(super) fn on_reply(&mut self, is_ok: bool, body: Document<'_>) -> Result<Option<Arc<Identity>>, ()> {
        if !is_ok {
            self.user = None;
            return Err(());
        }
        let is_done = body.get(b"done").ok().flatten().is_some_and(Value::is_true);
        self.is_used |= is_done;
        Ok(if is_done { self.user.take() } else { None })
    }
}

/// A field that is there twice is refused, whichever it is: the server might read another user from it than the gateway.
fn refuse_doubles(command: &Command<'_>) -> Result<(), Refusal> {
    let names = command.body.elements().map(|element| element.map(|element| element.name));
    let mut names = names.collect::<Result<Vec<_>, _>>().map_err(CommandError::from)?;
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) { Err(CommandError::Duplicate.into()) } else { Ok(()) }
}
