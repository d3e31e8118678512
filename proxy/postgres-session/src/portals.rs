//! Portals whose effects are known before they run, and Execute.

use std::rc::Rc;

use weir_postgres_codec::{frame::Head, frontend};

use crate::client::Turn;
use crate::facts::Facts;
use crate::io::{Event, Io};
use crate::outstanding::{Expected, Note, Request};
use crate::pin::PinReasons;
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::simple::whole;

/// Portals of a transaction whose effects are known before they run: the effects of more are unknown. Drivers use one, without a name.
const PORTALS_MAX: usize = 256;

/// Bytes of the name of such a portal.
const PORTAL_NAME_BYTES_MAX: usize = 256;

impl Session {
    /// Keeps which effects an Execute of the portal will have.
    #[inline]
    pub(crate) fn bind_portal(
        &mut self,
        portal: &[u8],
        facts: Option<Rc<Facts>>,
        server: &mut ServerState,
        io: &impl Io,
    ) {
        if !self.portals.is_empty() {
            self.portals.retain(|(name, _)| **name != *portal);
        }
        if let Some(facts) = facts.filter(|facts| facts.has_effects || self.listens()) {
            if self.portals.len() >= PORTALS_MAX || portal.len() > PORTAL_NAME_BYTES_MAX {
                return self.add_pin(PinReasons::OPAQUE, server, io);
            }
            self.portals.push((portal.into(), facts));
        }
    }

    pub(crate) fn on_execute<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let Some(body) = whole(head, turn.feed.rest()) else { return Some(Next::More) };
        let execute = match frontend::Execute::read(body) {
            Ok(execute) => execute,
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        let portal = self.portals.iter().find(|(name, _)| **name == *execute.portal);
        let facts = portal.map(|(_, facts)| facts.clone());
        if let Some(facts) = &facts
            && let Err(next) = self.reserve(facts, head, turn, server.as_deref_mut())
        {
            return next;
        }
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        if facts.as_ref().is_some_and(|facts| !self.may_notify(facts, turn.io)) {
            return Some(Next::Wait);
        }
        turn.io.count(Event::Query);
        self.note_encoding_execute(facts.as_deref(), server);
        let note = match facts {
            Some(facts) => {
                self.has_barrier |= self.is_barrier(&facts);
                if facts.names_statements {
                    self.add_pin(PinReasons::SQL_PREPARE, server, turn.io);
                }
                if facts.has_effects { Note::Effects(facts) } else { Note::None }
            }
            None => Note::None,
        };
        server.queue.push(Expected::forward(Request::Execute, note));
        turn.feed.pass(head.whole());
        None
    }
}
