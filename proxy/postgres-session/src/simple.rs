//! Query: a text of statements.

use std::rc::Rc;

use weir_analysis::postgres::Effect;
use weir_postgres_codec::{TransactionStatus, backend, frame::HEAD_BYTES, frame::Head, frontend};

use crate::client::Turn;
use crate::facts::{Facts, Known, Reserved};
use crate::io::{Event, Io};
use crate::judge::Judged;
use crate::outstanding::{Expected, Note, Request};
use crate::pin::PinReasons;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::settings::PoolMode;
use crate::statements::Meaning;

/// The body of a message that is there as a whole.
#[inline]
pub(crate) fn whole(head: Head, rest: &[u8]) -> Option<&[u8]> {
    rest.get(HEAD_BYTES..head.whole())
}

/// The note of a Query, and the text that goes to the server in its place.
type Begun = (Note, Option<Rc<[u8]>>);

impl Session {
    pub(crate) fn on_query<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Option<Next> {
        if let Some(next) = self.wait_for_open_batch(turn, server.as_deref_mut()) {
            return Some(next);
        }
        if head.body > self.settings.message_bytes {
            return self.pass_opaque(head, turn, server, Request::Query);
        }
        let Some(body) = whole(head, turn.feed.rest()) else { return Some(Next::More) };
        let text = match frontend::Query::read(body) {
            Ok(query) => query.text,
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        if self.is_unreadable(text) {
            return self.on_unreadable(head, turn, server, Request::Query);
        }
        if self.is_denied(Judged::Text(text), head, turn, server.as_deref_mut()) {
            return None;
        }
        let Known { facts, is_read_only } = self.awaiting_server.take().unwrap_or_else(|| self.known_of(text));
        if let Some(facts) = &facts {
            if let Some(refusal) = self.policy(facts) {
                self.refuse(&refusal, head, turn, server);
                return None;
            }
            if server.is_none()
                && let Some(next) = self.run_without_server(facts, head, turn)
            {
                return next;
            }
            if let Err(next) = self.reserve(facts, head, turn, server.as_deref_mut()) {
                return next;
            }
        }
        let server = match self.ready(is_read_only, head, turn, server) {
            Ok(server) => server,
            Err(next) => {
                // The text comes again, with a server: it is read once.
                self.awaiting_server = next.is_some().then_some(Known { facts, is_read_only });
                return next;
            }
        };
        self.retry.forget();
        self.note_judged_encoding(text, false, server);
        let (note, server_text) = match self.begin_effects(facts, head, turn, server) {
            Ok(begun) => begun,
            Err(next) => return next,
        };
        turn.io.count(Event::Query);
        self.note_running_text(text, server);
        // One that an outstanding request ends is there again if that fails.
        let ends_unnamed = self.unnamed.is_some() || server.unnamed.is_some() || server.queue.changes_unnamed();
        let batch = server.queue.batch();
        let entry = Expected { ends_unnamed, ..Expected::forward(Request::Query, note) };
        if server.queue.push(entry).is_none() && ends_unnamed {
            server.unnamed_since = Some(batch);
        }
        match server_text {
            Some(text) => {
                turn.feed.skip(head.whole(), &mut self.retry, turn.io);
                turn.io.encode_to_server(|out| frontend::query(out, &text));
            }
            None => turn.feed.pass(head.whole()),
        }
        None
    }

    /// Session pooling needs no facts of a text.
    fn known_of(&self, text: &[u8]) -> Known {
        match self.is_multiplexed() {
            true => self.share.facts_of_query(text),
            false => Known { facts: None, is_read_only: false },
        }
    }

    /// Prepares the server for the effects of a text, and gives the text that goes there in its place, if another one does. `Err`: it
    /// goes nowhere, now or at all.
    fn begin_effects<I: Io>(
        &mut self,
        facts: Option<Rc<Facts>>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> Result<Begun, Option<Next>> {
        let Some(facts) = facts else { return Ok((Note::None, None)) };
        // Names, and whether a block has failed, must be certain before anything is sent about them.
        if facts.names_statements && !server.queue.is_empty() {
            return Err(Some(self.wait_for_replies(turn, server)));
        }
        if self.is_deallocated_here(&facts, head, turn, server) {
            return Err(None);
        }
        if facts.names_reserved.is_some() {
            self.use_no_statement(head, turn, server);
            return Err(None);
        }
        if !self.may_notify(&facts, turn.io) {
            return Err(Some(Next::Wait));
        }
        self.prepare_for(&facts, turn, server);
        let server_text = facts.server_text.clone().filter(|_| self.shares_listen());
        Ok((if facts.has_effects { Note::Effects(facts) } else { Note::None }, server_text))
    }

    /// The client may have what a text prepares by SQL.
    fn has_room_for_prepares(&self, facts: &Facts) -> bool {
        let prepares = facts.prepares();
        prepares.is_empty()
            || self.has_room_for(prepares.len(), prepares.iter().map(|prepare| prepare.text.len()).sum())
    }

    /// Why a text is refused although no server has seen it.
    pub(crate) fn policy(&self, facts: &Facts) -> Option<Refusal> {
        if facts.names_reserved == Some(Reserved::Taken) {
            return Some(Refusal::RESERVED_NAME);
        }
        if let Some(refusal) = self.refusal_of_executed(facts) {
            return Some(refusal);
        }
        if !self.has_room_for_prepares(facts) {
            return Some(Refusal::TOO_MANY_STATEMENTS);
        }
        if facts.begins_block && self.settings.pool_mode == PoolMode::Statement {
            return Some(Refusal { is_fatal: false, ..Refusal::BLOCK_IN_STATEMENT_POOLING });
        }
        None
    }

    /// The text uses a name that is the gateway's at the server: it fails as any name does that the client has not given, and its
    /// block with it. None of its statements runs.
    fn use_no_statement<I: Io>(&mut self, head: Head, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        turn.io.count(Event::Query);
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        turn.io.encode_to_server(|out| frontend::query(out, b"EXECUTE weir_none"));
        let batch = server.queue.batch();
        let entry = Expected { ends_unnamed: true, ..Expected::forward(Request::Query, Note::None) };
        if server.queue.push(entry).is_none() {
            server.unnamed_since = Some(batch);
        }
    }

    /// Prepares the server for a text.
    fn prepare_for<I: Io>(&mut self, facts: &Rc<Facts>, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        if facts.is_opaque {
            self.note_opaque(server, turn.io);
        }
        self.has_barrier |= self.is_barrier(facts);
        // A failed block refuses everything but its end.
        if facts.names_statements && server.status != TransactionStatus::Failed {
            for effect in facts.all() {
                if let Effect::Prepare { name, .. } | Effect::Execute { name, .. } | Effect::Deallocate(name) = effect {
                    self.align(name, turn, server);
                }
            }
        }
        if facts.names_statements {
            // Messages behind it with names wait.
            self.names_since = Some(server.queue.batch());
        }
        // The text changes the encoding behind the statements that the gateway sends before it.
        self.note_encoding_effects(facts, server);
    }

    /// A text of unknown effects goes to the server.
    pub(crate) fn note_opaque(&mut self, server: &mut ServerState, io: &impl Io) {
        self.note_encoding_unsure();
        if self.is_multiplexed() {
            self.add_pin(PinReasons::OPAQUE, server, io);
        }
    }

    /// Gives a name of SQL's PREPARE the same meaning at the server as it has for the client.
    pub(crate) fn align<I: Io>(&mut self, name: &[u8], turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        let wanted = match self.names.get(name).map(|named| &named.meaning) {
            Some(Meaning::Sql(text)) => Some(text.clone()),
            // The server knows a statement of the protocol by another name.
            Some(Meaning::Protocol(_)) | None => None,
        };
        let has = server.sql_names.get(name).cloned();
        let is_same = has == wanted;
        // In this encoding it would be another text.
        let wanted = wanted.filter(|wanted| !self.is_unreadable(wanted));
        if is_same || has == wanted || server.queue.is_skipping() {
            return;
        }
        let mut text = Vec::new();
        if has.is_some() {
            text.extend_from_slice(b"DEALLOCATE ");
            crate::variables::quote_name(&mut text, name);
            text.push(b';');
            server.sql_names.remove(name);
        }
        if let Some(wanted) = &wanted {
            text.extend_from_slice(wanted);
            server.sql_names.insert(name.into(), wanted.clone());
        }
        turn.feed.flush(&mut self.retry, turn.io);
        self.retry.forget();
        turn.io.encode_to_server(|out| frontend::query(out, &text));
        let ends_unnamed = server.unnamed.is_some();
        if ends_unnamed {
            server.unnamed_since = Some(server.queue.batch());
        }
        let entry = Expected::swallow(Request::Query, Note::Aligned(name.into(), has));
        server.queue.push(Expected { ends_unnamed, ..entry });
    }

    /// SQL's DEALLOCATE of a statement of the protocol, whose name the server does not know. True if that was it.
    fn is_deallocated_here<I: Io>(
        &mut self,
        facts: &Facts,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> bool {
        let Some(Effect::Deallocate(name)) = facts.only() else { return false };
        if !self.is_of_protocol(name) || server.status == TransactionStatus::Failed || server.queue.is_skipping() {
            return false;
        }
        self.names.remove(name);
        // As any Query does.
        self.unnamed = None;
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        if server.queue.needs_sync() {
            // A Query ends the transaction of an open batch, and its portals.
            turn.io.encode_to_server(frontend::sync);
            server.queue.push(Expected::swallow(Request::Sync, Note::None));
        }
        let mut bytes = Vec::new();
        backend::command_complete(&mut bytes, b"DEALLOCATE");
        server.queue.push(Expected::fake(Request::LocalCommand, Note::Reply(bytes.into())));
        server.queue.push(Expected::fake(Request::LocalReady, Note::None));
        self.emit_due(server, turn.io);
        true
    }

    /// A statement that needs no server while the client holds none.
    fn run_without_server<I: Io>(
        &mut self,
        facts: &Facts,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
    ) -> Option<Option<Next>> {
        match self.is_deallocated_without_server(facts, head, turn) {
            true => Some(None),
            false => self.on_listen_statement(facts, head, turn),
        }
    }

    /// SQL's DEALLOCATE of a statement of the protocol. True if that was it.
    fn is_deallocated_without_server<I: Io>(&mut self, facts: &Facts, head: Head, turn: &mut Turn<'_, '_, I>) -> bool {
        let Some(Effect::Deallocate(name)) = facts.only() else { return false };
        if !self.is_of_protocol(name) {
            return false;
        }
        self.names.remove(name);
        self.unnamed = None;
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        turn.io.encode_to_client(|out| {
            backend::command_complete(out, b"DEALLOCATE");
            backend::ready_for_query(out, TransactionStatus::Idle);
        });
        true
    }

    /// The name is that of a statement of the protocol.
    fn is_of_protocol(&self, name: &[u8]) -> bool {
        self.names.get(name).is_some_and(|named| matches!(named.meaning, Meaning::Protocol(_)))
    }

    /// No message of the server is half sent to the client.
    pub fn is_between_replies(server: Option<&ServerState>) -> bool {
        server.is_none_or(|server| server.body_left == 0 || !server.body_passes)
    }
}
