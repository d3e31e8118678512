//! Rules about statements: the shell judges a text, the session refuses it in its place among the replies.

use std::rc::Rc;

use weir_analysis::postgres::Effect;
use weir_postgres_codec::frame::Head;

use crate::client::Turn;
use crate::facts::Facts;
use crate::feed::Feed;
use crate::io::Io;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::Session;
use crate::statements::{Meaning, Named, Statement};

/// Judges the statements of one client. A session without one judges nothing.
pub trait Judge {
    /// Why a text may not run; `None`: it may. Called once for each Query and each Parse.
    fn text(&self, text: &[u8]) -> Option<Refusal>;

    /// The same for a text that is too large to be held.
    fn unread(&self) -> Option<Refusal>;

    /// The same for a FunctionCall, which names a function by its number.
    fn function_call(&self) -> Option<Refusal>;
}

/// A request that is judged.
#[derive(Clone, Copy)]
pub(crate) enum Judged<'a> {
    Text(&'a [u8]),
    Unread,
    FunctionCall,
}

impl Session {
    /// Refuses the message if its client may not send it; true: it is done with. A message that is looked at again, as after a wait for a
    /// server, is judged once: its place in all that the client has sent names it.
    pub(crate) fn is_denied<I: Io>(
        &mut self,
        judged: Judged<'_>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> bool {
        let Some(judge) = &self.judge else { return false };
        let place = self.place(turn.feed);
        if self.judged_at == Some(place) {
            return false;
        }
        let refusal = match judged {
            Judged::Text(text) => judge.text(text),
            Judged::Unread => judge.unread(),
            Judged::FunctionCall => judge.function_call(),
        };
        self.judged_at = Some(place);
        match refusal {
            Some(refusal) => {
                self.refuse(&refusal, head, turn, server);
                true
            }
            None => false,
        }
    }

    /// The place of the next message in all that the client has sent.
    pub(crate) fn place(&self, feed: &Feed<'_>) -> u64 {
        self.taken_bytes + feed.consumed() as u64
    }

    /// Other rules hold from now on. Statements that the client prepared before are judged again at a Bind or an EXECUTE. In session
    /// pooling these are not followed, and go on.
    pub fn set_judge(&mut self, judge: Option<Rc<dyn Judge>>) {
        self.judge = judge;
        self.rules_generation = self.rules_generation.wrapping_add(1);
        self.old_unnamed = self.unnamed.clone();
        self.judged_at = None;
        // If the Query that waits for a server is denied now, its facts are not those of the next one.
        self.awaiting_server = None;
    }

    /// A name for a statement that the rules of now let the client prepare.
    pub(crate) fn named(&self, name: &[u8], statement: Rc<Statement>) -> Rc<Named> {
        let named = Named::new(name, Meaning::Protocol(statement));
        named.rules_generation.set(self.rules_generation);
        Rc::new(named)
    }

    /// Refuses a Bind of a statement that the client may not run any more; true: it is done with.
    pub(crate) fn is_denied_now<I: Io>(
        &mut self,
        name: &[u8],
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> bool {
        let refusal = if name.is_empty() { self.refusal_of_unnamed() } else { self.refusal_of_named(name) };
        let Some(refusal) = refusal else { return false };
        self.refuse(&refusal, head, turn, server);
        true
    }

    /// The same for all that a text executes by SQL.
    pub(crate) fn refusal_of_executed(&self, facts: &Facts) -> Option<Refusal> {
        if !facts.names_statements || self.rules_generation == 0 {
            return None;
        }
        facts.all().find_map(|effect| match effect {
            Effect::Execute { name, .. } => self.refusal_of_named(name),
            _ => None,
        })
    }

    fn refusal_of_unnamed(&mut self) -> Option<Refusal> {
        let old = self.old_unnamed.take()?;
        let is_used = self.unnamed.as_ref().is_some_and(|now| Rc::ptr_eq(now, &old));
        let refusal = self.judge.as_ref().filter(|_| is_used)?.text(old.text());
        self.old_unnamed = refusal.is_some().then_some(old);
        refusal
    }

    fn refusal_of_named(&self, name: &[u8]) -> Option<Refusal> {
        let judge = self.judge.as_ref()?;
        let named = self.names.get(name).filter(|named| named.rules_generation.get() != self.rules_generation)?;
        let refusal = match &named.meaning {
            Meaning::Protocol(statement) => judge.text(statement.text()),
            Meaning::Sql(text) => judge.text(text),
        };
        if refusal.is_none() {
            named.rules_generation.set(self.rules_generation);
        }
        refusal
    }
}
