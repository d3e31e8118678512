//! Parse, Bind, Describe and Execute: the names of a client become those of its server.

use std::borrow::Cow;
use std::rc::Rc;

use weir_postgres_codec::{TransactionStatus, backend, frame::HEAD_BYTES, frame::Head, frontend, frontend::Kind};

use crate::client::Turn;
use crate::facts::Facts;
use crate::io::{Event, Io};
use crate::judge::Judged;
use crate::outstanding::{Expected, Note, Request};
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Next, Session};
use crate::simple::whole;
use crate::statements::{Meaning, Named, PREFIX, ServerName, Statement};

/// Bytes of a Bind among which both names must end: PostgreSQL has no limit, programs use some dozens.
const NAMES_BYTES_MAX: usize = 10_000;

/// The server may have a statement by this name that is not the client's.
fn is_of_others(name: &[u8], server: &ServerState) -> bool {
    name.starts_with(PREFIX) || server.sql_names.contains_key(name)
}

impl Session {
    pub(crate) fn on_parse<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Option<Next> {
        if head.body > self.settings.message_bytes {
            return self.pass_opaque(head, turn, server, Request::Parse);
        }
        let Some(body) = whole(head, turn.feed.rest()) else { return Some(Next::More) };
        let parse = match frontend::Parse::read(body) {
            Ok(parse) => parse,
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        if self.is_unreadable(parse.text) {
            return self.on_unreadable(head, turn, server, Request::Parse);
        }
        if self.is_denied(Judged::Text(parse.text), head, turn, server.as_deref_mut()) {
            return None;
        }
        if !self.is_multiplexed() {
            turn.io.count(Event::ClientParse);
            if let Some(server) = server.as_deref() {
                self.note_judged_encoding(parse.text, true, server);
                self.note_running_text(parse.text, server);
            }
            return self.pass_unchanged(Request::Parse, head, turn, server);
        }
        let statement = self.share.statement(parse.rest);
        let facts = statement.facts();
        let is_read_only = statement.is_read_only();
        if let Some(refusal) = self.refusal_of(&parse, facts) {
            self.refuse(&refusal, head, turn, server);
            return None;
        }
        let name = parse.name;
        if server.is_none() && self.is_prepared_here(name, &statement) {
            turn.io.count(Event::ClientParse);
            self.names.insert(self.named(name, statement));
            turn.feed.skip(head.whole(), &mut self.retry, turn.io);
            turn.io.encode_to_client(backend::parse_complete);
            return None;
        }
        let server = match self.ready(is_read_only, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        // An outstanding request may yet fail to give the name, or end it.
        let is_unsure = self.names.get(name).is_some() && !server.queue.is_empty();
        // Whether it works in a block that may have failed, only the server can say.
        let is_known = !name.is_empty() && server.statements.use_number(&statement).is_some();
        let is_unsure = is_unsure
            || (name.is_empty() && Self::is_unnamed_uncertain(server))
            || (is_known && server.queue.is_status_unknown());
        let is_unsure = is_unsure || self.are_names_uncertain(server) || Self::is_uncertain(&statement, server);
        if is_unsure {
            return Some(self.wait_for_replies(turn, server));
        }
        turn.io.count(Event::ClientParse);
        if statement.facts().is_some_and(|facts| facts.is_opaque) {
            self.note_opaque(server, turn.io);
        }
        if name.is_empty() {
            self.parse_unnamed(statement, head, turn, server);
        } else {
            self.parse_named(name, statement, head, turn, server);
        }
        None
    }

    /// Why a Parse is refused although no server has seen it.
    fn refusal_of(&self, parse: &frontend::Parse<'_>, facts: Option<&Rc<Facts>>) -> Option<Refusal> {
        if let Some(refusal) = facts.and_then(|facts| self.policy(facts)) {
            return Some(refusal);
        }
        if !parse.name.is_empty() && !self.has_room_for(1, parse.name.len() + parse.rest.len()) {
            return Some(Refusal::TOO_MANY_STATEMENTS);
        }
        facts.is_some_and(|facts| facts.names_reserved.is_some()).then_some(Refusal::NO_STATEMENT)
    }

    /// The name is free, and a server has taken the text before: whichever serves the client next will get it with its first Bind.
    /// A client that waits for this reply before others of its process end their transactions would wait for its own servers.
    fn is_prepared_here(&self, name: &[u8], statement: &Statement) -> bool {
        let is_proven = || self.pool.as_ref().is_some_and(|pool| self.is_proven(statement, pool));
        !name.is_empty() && self.names.get(name).is_none() && is_proven()
    }

    /// A server of the pool has taken the statement with the parameters of the client, whichever worker its client was on.
    fn is_proven(&self, statement: &Statement, pool: &Rc<str>) -> bool {
        if statement.is_proven(pool, &self.variables) {
            return true;
        }
        let is_known = self.share.proofs.has(statement, pool, &self.variables);
        if is_known {
            statement.prove(pool, &self.variables);
        }
        is_known
    }

    /// The client may have so many prepared statements more, of so many bytes together.
    pub(crate) fn has_room_for(&self, statements: usize, bytes: usize) -> bool {
        self.names.len() + statements <= self.settings.client_statements_max
            && self.names.bytes() + bytes <= self.settings.client_statement_bytes_max
    }

    fn parse_unnamed<I: Io>(
        &mut self,
        statement: Rc<Statement>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) {
        turn.io.count(Event::ServerParse);
        let note = self.note_unnamed(server);
        if server.queue.push(Expected::forward(Request::Parse, note)).is_none() {
            server.unnamed = Some(statement.clone());
            self.unnamed = Some(statement.clone());
        }
        match statement.at_server(self.shares_listen()) {
            Cow::Borrowed(_) => turn.feed.pass(head.whole()),
            Cow::Owned(rest) => {
                turn.feed.skip(head.whole(), &mut self.retry, turn.io);
                self.retry.forget();
                turn.io.encode_to_server(|out| frontend::parse_renamed(out, b"", &rest));
            }
        }
    }

    fn parse_named<I: Io>(
        &mut self,
        name: &[u8],
        statement: Rc<Statement>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) {
        // A name that is taken is an error, and so is a Parse in a failed block: both are the server's to say.
        let is_taken = self.names.get(name).is_some();
        if is_taken {
            self.ensure(&statement, turn, server);
        }
        let is_refused = is_taken || (server.status == TransactionStatus::Failed && !ends_block(&statement));
        let named = self.named(name, statement.clone());
        self.names_since = Some(server.queue.batch());
        match server.statements.use_number(&statement) {
            Some(number) if is_refused => {
                self.write_parse(&statement, number, turn);
                server.queue.push(Expected::forward(Request::Parse, Note::None));
            }
            Some(_) => {
                if server.queue.push(Expected::fake(Request::Parse, Note::Named(named.clone()))).is_none() {
                    self.names.insert(named);
                }
                turn.feed.skip(head.whole(), &mut self.retry, turn.io);
                return self.emit_due(server, turn.io);
            }
            None => {
                self.make_room(turn, server);
                let number = server.statements.insert(statement.clone(), server.queue.batch());
                self.write_parse(&statement, number, turn);
                let entry = Expected::forward(Request::Parse, Note::Named(named.clone()));
                match server.queue.push(entry) {
                    None => self.names.insert(named),
                    Some(_) => drop(server.statements.remove(&statement)),
                }
            }
        }
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
    }

    /// Sends a Parse of a shared statement. The reply is the caller's to expect.
    fn write_parse<I: Io>(&mut self, statement: &Statement, number: u64, turn: &mut Turn<'_, '_, I>) {
        turn.io.count(Event::ServerParse);
        turn.feed.flush(&mut self.retry, turn.io);
        // The batch has what its bytes do not show.
        self.retry.forget();
        let name = ServerName::new(number);
        let rest = statement.at_server(self.shares_listen());
        turn.io.encode_to_server(|out| frontend::parse_renamed(out, name.bytes(), &rest));
    }

    /// Closes statements at the server until there is room for one more.
    fn make_room<I: Io>(&mut self, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        while let Some((statement, number)) = server.statements.evict(self.settings.server_statements_max) {
            turn.io.count(Event::Eviction);
            turn.feed.flush(&mut self.retry, turn.io);
            self.retry.forget();
            self.write_close(number, turn.io);
            let entry = Expected::swallow(Request::Close, Note::Evicted(statement, number));
            if let Some(Expected { note: Note::Evicted(statement, number), .. }) = server.queue.push(entry) {
                // The server skips it.
                server.statements.restore(statement, number);
                return;
            }
        }
    }

    /// Closes statements whose plans are outdated.
    fn close_stale<I: Io>(&mut self, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        if server.queue.is_skipping() {
            return;
        }
        for number in std::mem::take(&mut server.stale) {
            turn.feed.flush(&mut self.retry, turn.io);
            self.retry.forget();
            self.write_close(number, turn.io);
            server.queue.push(Expected::swallow(Request::Close, Note::Stale(number)));
        }
    }

    pub(crate) fn write_close(&self, number: u64, io: &impl Io) {
        let name = ServerName::new(number);
        io.encode_to_server(|out| frontend::close(out, Kind::Statement, name.bytes()));
    }

    /// The server has the statement, or will have it before the next message: its number.
    #[inline]
    fn ensure<I: Io>(
        &mut self,
        statement: &Rc<Statement>,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> u64 {
        match server.statements.use_number(statement) {
            Some(number) => number,
            None => self.prepare(statement, turn, server),
        }
    }

    pub(crate) fn prepare<I: Io>(
        &mut self,
        statement: &Rc<Statement>,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> u64 {
        self.close_stale(turn, server);
        self.make_room(turn, server);
        let number = server.statements.insert(statement.clone(), server.queue.batch());
        self.write_parse(statement, number, turn);
        if server.queue.push(Expected::swallow(Request::Parse, Note::Prepared(statement.clone()))).is_some() {
            server.statements.remove(statement);
        }
        number
    }

    /// Whether the server has the statement of this name, only a reply can tell.
    #[inline]
    fn must_wait_for(&self, name: &[u8], server: &ServerState) -> bool {
        if name.is_empty() {
            return Self::is_unnamed_uncertain(server);
        }
        self.are_names_uncertain(server)
            || match self.names.get(name).map(|named| &named.meaning) {
                Some(Meaning::Protocol(statement)) => Self::is_uncertain(statement, server),
                _ => false,
            }
    }

    /// The Parse of the statement belongs to an earlier batch, and its reply is due.
    #[inline]
    fn is_uncertain(statement: &Statement, server: &ServerState) -> bool {
        !server.queue.is_empty() && server.statements.is_uncertain(statement, server.queue.batch())
    }

    /// An earlier batch has given or ended a name, and its replies are due.
    #[inline]
    pub(crate) fn are_names_uncertain(&self, server: &ServerState) -> bool {
        self.names_since.is_some_and(|since| since != server.queue.batch()) && !server.queue.is_empty()
    }

    /// The Parse of the unnamed statement is outstanding in an earlier batch: an error there may yet skip it.
    #[inline]
    pub(crate) fn is_unnamed_uncertain(server: &ServerState) -> bool {
        server.queue.changes_unnamed() && server.unnamed_since.is_some_and(|since| since != server.queue.batch())
    }

    /// The unnamed statement is about to change, at the server and perhaps for the client.
    pub(crate) fn note_unnamed(&self, server: &mut ServerState) -> Note {
        server.unnamed_since = Some(server.queue.batch());
        Note::Unnamed { before: self.unnamed.clone(), at_server: server.unnamed.clone() }
    }

    /// The server's unnamed statement is the client's.
    fn ensure_unnamed<I: Io>(&mut self, turn: &mut Turn<'_, '_, I>, server: &mut ServerState) {
        let is_same = match (&self.unnamed, &server.unnamed) {
            (Some(wanted), Some(has)) => Rc::ptr_eq(wanted, has),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return;
        }
        turn.feed.flush(&mut self.retry, turn.io);
        self.retry.forget();
        let note = self.note_unnamed(server);
        match self.unnamed.clone() {
            Some(wanted) => {
                turn.io.count(Event::ServerParse);
                let rest = wanted.at_server(self.shares_listen());
                turn.io.encode_to_server(|out| frontend::parse_renamed(out, b"", &rest));
                if server.queue.push(Expected::swallow(Request::Parse, note)).is_none() {
                    server.unnamed = Some(wanted);
                }
            }
            None => {
                turn.io.encode_to_server(|out| frontend::close(out, Kind::Statement, b""));
                if server.queue.push(Expected::swallow(Request::Close, note)).is_none() {
                    server.unnamed = None;
                }
            }
        }
    }

    pub(crate) fn on_bind<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        mut server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let rest = turn.feed.rest();
        let here = &rest[HEAD_BYTES..head.whole().min(rest.len())];
        let bind = match frontend::Bind::read(here) {
            Ok(bind) => bind,
            Err(_) if here.len() < head.body && here.len() < NAMES_BYTES_MAX => return Some(Next::More),
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        if !self.is_multiplexed() {
            return self.pass_unchanged(Request::Bind, head, turn, server);
        }
        if self.is_denied_now(bind.statement, head, turn, server.as_deref_mut()) {
            return None;
        }
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        if self.must_wait_for(bind.statement, server) {
            return Some(self.wait_for_replies(turn, server));
        }
        if let Some(waits) = self.is_of_other_encoding(bind.statement, server) {
            return self.on_other_encoding(waits, head, turn, server);
        }
        let named = if bind.statement.is_empty() { None } else { self.names.get(bind.statement).cloned() };
        let of_protocol = of_protocol(named.as_ref());
        if let Some((named, statement)) = &of_protocol
            && !Self::has_row_type(named, statement, server)
        {
            return self.compare_row_types(statement, head, turn, server);
        }
        turn.io.count(Event::Bind);
        let missing = head.body - here.len();
        self.last_bound = None;
        if bind.statement.is_empty() {
            self.ensure_unnamed(turn, server);
            if let Some(statement) = self.unnamed.clone() {
                self.note_running(&statement, server);
            }
            let facts = self.unnamed.as_ref().and_then(|statement| statement.facts().cloned());
            self.bind_portal(bind.portal, facts, server, turn.io);
            server.queue.push(Expected::forward(Request::Bind, Note::None));
            self.pass(head, turn, server);
            return None;
        }
        let Some((named, statement)) = of_protocol else {
            return self.bind_other(&bind, named.as_ref(), head, turn, server);
        };
        self.record(turn, server);
        let number = self.ensure(&statement, turn, server);
        self.note_running(&statement, server);
        self.bind_portal(bind.portal, statement.facts().cloned(), server, turn.io);
        self.retry.note_statement(&statement);
        self.note_bound(bind.portal, &named, number, server);
        server.queue.push(Expected::forward(Request::Bind, Note::Bound(named, number)));
        turn.feed.flush(&mut self.retry, turn.io);
        self.write_bind(&bind, number, missing, turn.io);
        self.replaced(head, turn, server);
        None
    }

    /// The next message may begin a batch that can be repeated.
    #[inline]
    fn record<I: Io>(&mut self, turn: &mut Turn<'_, '_, I>, server: &ServerState) {
        if server.queue.is_quiet() && server.status == TransactionStatus::Idle && !self.retry.is_recording() {
            turn.feed.flush(&mut self.retry, turn.io);
            self.retry.begin(|| self.share.spare_batch());
        }
    }

    /// A Bind of a name of SQL's PREPARE, or of none that the client has.
    fn bind_other<I: Io>(
        &mut self,
        bind: &frontend::Bind<'_>,
        named: Option<&Rc<Named>>,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: &mut ServerState,
    ) -> Option<Next> {
        let is_sql = named.is_some();
        if is_sql && server.queue.is_quiet() && server.status != TransactionStatus::Failed {
            self.align(bind.statement, turn, server);
        }
        self.bind_portal(bind.portal, named.and_then(|named| named.effects.clone()), server, turn.io);
        server.queue.push(Expected::forward(Request::Bind, Note::None));
        if is_sql || !is_of_others(bind.statement, server) {
            self.pass(head, turn, server);
            return None;
        }
        turn.feed.flush(&mut self.retry, turn.io);
        let missing = head.whole().saturating_sub(turn.feed.rest().len());
        turn.io.encode_to_server(|out| {
            frontend::bind_head(out, bind.portal, ServerName::none().bytes(), bind.rest.len() + missing);
            out.extend_from_slice(bind.rest);
        });
        self.replaced(head, turn, server);
        None
    }

    /// A Bind with the server's name; `missing` bytes of it follow.
    #[inline]
    fn write_bind(&mut self, bind: &frontend::Bind<'_>, number: u64, missing: usize, io: &impl Io) {
        let name = ServerName::new(number);
        let retry = &mut self.retry;
        io.encode_to_server(|out| {
            let start = out.len();
            frontend::bind_head(out, bind.portal, name.bytes(), bind.rest.len() + missing);
            out.extend_from_slice(bind.rest);
            retry.note(&out[start..]);
        });
    }

    pub(crate) fn on_describe<I: Io>(
        &mut self,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let Some(body) = whole(head, turn.feed.rest()) else { return Some(Next::More) };
        let describe = match frontend::Describe::read(body) {
            Ok(describe) => describe,
            Err(error) => return self.refuse_body(error, head, turn, server),
        };
        if !self.is_multiplexed() {
            return self.pass_unchanged(Request::Describe, head, turn, server);
        }
        if describe.kind == Kind::Portal {
            let note = |session: &mut Self, server: &ServerState| session.note_of_portal(describe.name, server);
            return self.pass_noted(Request::Describe, note, head, turn, server);
        }
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        if self.must_wait_for(describe.name, server) {
            return Some(self.wait_for_replies(turn, server));
        }
        if let Some(waits) = self.is_of_other_encoding(describe.name, server) {
            return self.on_other_encoding(waits, head, turn, server);
        }
        let is_sql = self.names.get(describe.name).is_some_and(|named| matches!(named.meaning, Meaning::Sql(_)));
        if is_sql && server.queue.is_quiet() && server.status != TransactionStatus::Failed {
            self.align(describe.name, turn, server);
        }
        let named = self.names.get(describe.name).cloned();
        let (number, note) = match of_protocol(named.as_ref()) {
            Some((named, statement)) => {
                self.record(turn, server);
                let number = self.ensure(&statement, turn, server);
                self.retry.note_statement(&statement);
                (Some(number), Note::Bound(named, number))
            }
            None => (None, Note::None),
        };
        if describe.name.is_empty() {
            self.ensure_unnamed(turn, server);
        }
        server.queue.push(Expected::forward(Request::Describe, note));
        let name = match number {
            Some(number) => ServerName::new(number),
            None if !is_sql && is_of_others(describe.name, server) => ServerName::none(),
            None => {
                turn.feed.pass(head.whole());
                return None;
            }
        };
        turn.feed.flush(&mut self.retry, turn.io);
        let retry = &mut self.retry;
        turn.io.encode_to_server(|out| {
            let start = out.len();
            frontend::describe(out, Kind::Statement, name.bytes());
            retry.note(&out[start..]);
        });
        turn.feed.skip(head.whole(), &mut self.retry, turn.io);
        None
    }

    /// The message goes to the server as it is, and its reply comes back as it is.
    pub(crate) fn pass_unchanged<I: Io>(
        &mut self,
        request: Request,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        self.pass_noted(request, |_, _| Note::None, head, turn, server)
    }

    /// The same with a note for the reply.
    fn pass_noted<I: Io>(
        &mut self,
        request: Request,
        note: impl FnOnce(&mut Self, &ServerState) -> Note,
        head: Head,
        turn: &mut Turn<'_, '_, I>,
        server: Option<&mut ServerState>,
    ) -> Option<Next> {
        let server = match self.ready(false, head, turn, server) {
            Ok(server) => server,
            Err(next) => return next,
        };
        let note = note(self, server);
        server.queue.push(Expected::forward(request, note));
        self.pass(head, turn, server);
        None
    }

    /// Replies of the gateway's own whose turn it is already.
    pub(crate) fn emit_due(&mut self, server: &mut ServerState, io: &impl Io) {
        use crate::replies::Delivery;
        use crate::scan::Replies;
        while let Some(entry) = server.queue.pop_due() {
            if !entry.request.is_marker() {
                Delivery { session: self, io }.on_fake(server, entry);
            }
        }
    }
}

/// A name of a statement of the protocol, and that statement.
#[inline]
fn of_protocol(named: Option<&Rc<Named>>) -> Option<(Rc<Named>, Rc<Statement>)> {
    match named {
        Some(named) => match &named.meaning {
            Meaning::Protocol(statement) => Some((named.clone(), statement.clone())),
            Meaning::Sql(_) => None,
        },
        None => None,
    }
}

/// COMMIT or ROLLBACK, which a failed block accepts.
fn ends_block(statement: &Statement) -> bool {
    statement.begins_with([b"commit", b"rollback", b"end", b"abort"])
}
