//! Replies of the server on their way to the client, and what they change.

use std::rc::Rc;

use weir_analysis::postgres::{Effect, Scope, Value};
use weir_base::{error::Culprit, violation::Violation};
use weir_postgres_codec::{TransactionStatus, backend, frontend, sqlstate};

use crate::facts::Facts;
use crate::io::{Event, Io};
use crate::listening::{Change, LISTEN};
use crate::outstanding::{Expected, Fate, Note, Request};
use crate::pin::PinReasons;
use crate::retry::Batch;
use crate::row_type::RowType;
use crate::scan::Replies;
use crate::server::ServerState;
use crate::session::{Attachment, End, Session};
use crate::statements::{Meaning, Named, Statement};
use crate::tag::is_foreseen;
use crate::uncommitted::Made;
use crate::variables::{AUTHORIZATION, ROLE};

/// Delivers replies to the client of a session.
pub(crate) struct Delivery<'s, I> {
    pub(crate) session: &'s mut Session,
    pub(crate) io: &'s I,
}

impl<I: Io> Replies for Delivery<'_, I> {
    #[inline]
    fn pass(&mut self, bytes: &[u8]) {
        self.show_held();
        // A reply that the client has seen cannot be repeated.
        self.session.retry.forget();
        self.io.to_client(bytes);
    }

    fn on_command(&mut self, server: &mut ServerState, note: &Note, tag: &[u8], step: u32) -> bool {
        let is_partial = match note {
            Note::Effects(facts) => facts.effects(step).iter().any(|effect| matches!(effect, Effect::RollbackTo(_))),
            _ => false,
        };
        server.variables.on_tag(tag, is_partial, &self.session.share.variables);
        if matches!((note, tag), (Note::LocksCounted, b"SELECT 0")) {
            self.unpin(PinReasons::ADVISORY_LOCK, server);
        }
        if let Some(listening) = &mut self.session.listening {
            match tag {
                b"COMMIT" => listening.commit(self.io),
                b"ROLLBACK" if !is_partial => listening.roll_back(),
                _ => {}
            }
        }
        let effects = match note {
            Note::Effects(facts) if facts.is_opaque => None,
            Note::Effects(facts) => Some(facts.effects(step)),
            Note::None => Some(&[][..]),
            _ => None,
        };
        if effects.is_some_and(|effects| !is_foreseen(tag, effects)) && self.session.is_multiplexed() {
            server.dirt |= PinReasons::OPAQUE;
        }
        if !self.session.uncommitted.is_empty() {
            match tag {
                b"COMMIT" => self.session.commit_made(server, self.io),
                b"ROLLBACK" if !is_partial => self.session.uncommitted.clear(),
                _ => {}
            }
        }
        let Note::Effects(facts) = note else { return true };
        for effect in facts.effects(step) {
            self.apply(effect, facts, server);
        }
        if facts.is_opaque {
            self.apply_tag(tag, server);
        }
        !self.is_renamed(facts, step)
    }

    #[inline]
    fn interleaves(&self) -> bool {
        self.session.listening.is_some()
    }

    fn on_row_type(&mut self, server: &mut ServerState, row_type: RowType) {
        let (statement, number) = match server.queue.front().map(|front| front.note.clone()) {
            Some(Note::Bound(named, number)) => match &named.meaning {
                Meaning::Protocol(statement) if statement.is_revalidated() => {
                    named.row_type.set(Some(row_type));
                    (statement.clone(), number)
                }
                _ => return,
            },
            Some(Note::Described(statement, number)) => (statement, number),
            _ => return,
        };
        server.statements.set_row_type(&statement, number, row_type);
    }

    fn on_done(&mut self, server: &mut ServerState, entry: Expected) {
        if entry.ends_unnamed {
            server.unnamed = None;
            if entry.fate == Fate::Forward {
                self.session.unnamed = None;
            }
        }
        match entry.note {
            Note::Replayed { wanted: Some(wanted), .. }
                if self.session.end.is_none() && self.session.attachment != Attachment::Spoiled =>
            {
                server.variables.become_like(&wanted);
                self.session.is_proven = true;
            }
            // Another one has failed: the server has what is not known of it.
            Note::Replayed { wanted: Some(_), has_foreign: false, .. } => server.dirt |= PinReasons::UNKNOWN_SETTING,
            Note::Cleared if self.session.attachment == Attachment::Clearing => {
                server.variables.on_discard(&mut self.session.share.variables.borrow_mut());
            }
            Note::Named(named) if entry.fate == Fate::Forward => {
                if let Meaning::Protocol(statement) = &named.meaning {
                    self.on_prepared(statement, server);
                }
            }
            Note::Prepared(statement) => self.on_prepared(&statement, server),
            Note::Bound(named, _) => named.is_seen.set(true),
            _ => {}
        }
    }

    fn on_fake(&mut self, server: &mut ServerState, entry: Expected) {
        self.show_held();
        self.session.retry.forget();
        let status = server.status;
        self.io.encode_to_client(|out| match (entry.request, &entry.note) {
            (Request::Parse, _) => backend::parse_complete(out),
            (Request::Close, _) => backend::close_complete(out),
            (Request::LocalReady, _) => backend::ready_for_query(out, status),
            (_, Note::Reply(bytes)) => out.extend_from_slice(bytes),
            (request, note) => debug_assert!(false, "no reply of the gateway's own: {request:?}, {note:?}"),
        });
    }

    fn on_undone(&mut self, server: &mut ServerState, entry: Expected, has_failed: bool) {
        if self.session.retry.is_repeating() {
            return self.session.retry.keep(entry);
        }
        match entry.note {
            Note::Named(named) => {
                self.session.names.undo(&named);
                if let (Fate::Forward, Meaning::Protocol(statement)) = (entry.fate, &named.meaning) {
                    server.statements.remove(statement);
                }
            }
            Note::Prepared(statement) => drop(server.statements.remove(&statement)),
            // A Parse that fails ends the unnamed statement first; one that is skipped does not.
            Note::Unnamed { .. } if has_failed => {
                server.unnamed = None;
                if entry.fate == Fate::Forward {
                    self.session.unnamed = None;
                }
            }
            Note::Unnamed { before, at_server } => {
                server.unnamed = at_server;
                self.session.unnamed = before;
            }
            Note::Closed(named) => {
                if let (Fate::Forward, Meaning::Sql(text)) = (entry.fate, &named.meaning) {
                    server.sql_names.insert(named.name.clone(), text.clone());
                }
                self.session.names.insert(named);
            }
            Note::Aligned(name, Some(before)) => drop(server.sql_names.insert(name, before)),
            Note::Aligned(name, None) => drop(server.sql_names.remove(&name)),
            Note::Evicted(statement, number) => server.statements.restore(statement, number),
            Note::Stale(number) => server.stale.push(number),
            _ => {}
        }
    }

    fn on_error(&mut self, server: &mut ServerState, fields: backend::ErrorFields<'_>) -> bool {
        let breaks_protocol = fields.sqlstate() == Some(sqlstate::PROTOCOL_VIOLATION);
        if breaks_protocol && fields.is_fatal() {
            // A request was at the server before it said that its COPY begins, and was read as data.
            let text = "the server lost the synchronization with the client's messages";
            let violation = Violation::rule("postgres_copy_message", Culprit::Client, text);
            self.session.end = Some(Box::new(End::Violation(violation)));
            return true;
        }
        if fields.sqlstate() == Some(sqlstate::READ_ONLY_SQL_TRANSACTION) {
            self.session.route.saw_read_only = true;
        }
        // The server ends the connection itself.
        if server.late_syncs > 0 && !breaks_protocol {
            let text = "a COPY failed that had a Sync among its data: the number of replies to come is unknown";
            let violation = Violation::rule("postgres_copy_sync", Culprit::Client, text);
            self.session.end = Some(Box::new(End::Violation(violation)));
            server.is_doomed = true;
            return true;
        }
        let note = server.queue.front().map_or(Note::None, |front| front.note.clone());
        // An error of a request that the gateway made is the error of the client's message that needed it.
        self.is_for_client(server, note, fields) && !self.softens(server, fields)
    }

    fn on_report(&mut self, server: &mut ServerState, report: backend::ParameterStatus<'_>) {
        self.session.note_reported_encoding(report.name, report.value);
        let share = self.session.share.clone();
        if !server.variables.on_report(report.name, report.value, &mut share.variables.borrow_mut()) {
            self.pin(PinReasons::UNKNOWN_SETTING, server);
        }
    }

    fn holds(&mut self, body: &[u8]) -> bool {
        self.session.retry.hold(body)
    }

    fn on_notification(&mut self, server: &ServerState, notification: backend::NotificationResponse<'_>) {
        let backend::NotificationResponse { pid, channel, payload } = notification;
        let of_server = server.cancel_target().map_or(0, |target| target.pid);
        let pid = match self.session.process {
            Some(own) if pid == of_server => own,
            // By chance the process of another session has the number that this client knows as its own.
            Some(own) if pid == own => of_server,
            _ => pid,
        };
        self.io.encode_to_client(|out| backend::notification(out, pid, channel, payload));
    }

    #[inline]
    fn on_ready(&mut self, server: &mut ServerState, is_forwarded: bool) -> bool {
        if server.status == TransactionStatus::Idle {
            server.variables.on_idle(server.has_failed, &self.session.share.variables);
            self.session.end_made(server, self.io);
        }
        if self.session.retry.is_repeating() {
            self.repeat(server);
            return false;
        }
        self.session.retry.forget();
        if is_forwarded {
            self.session.note_finished(server, self.io.now());
        }
        // With pipelined requests, the time of the next begins where that of the last ends.
        if let Some(since) = &mut self.session.busy_since {
            *since = self.io.now();
        }
        let ends = is_forwarded && server.status == TransactionStatus::Idle;
        if ends {
            self.io.count(Event::Transaction);
        }
        is_forwarded && (!ends || self.session.end_transaction(server, self.io))
    }
}

impl<I: Io> Delivery<'_, I> {
    /// The server has taken a statement.
    fn on_prepared(&self, statement: &Statement, server: &mut ServerState) {
        server.statements.confirm(statement);
        // Within a block, or with objects of its own, the client has what others have not.
        let has_own = self.session.pin.is_held() || !self.session.uncommitted.is_empty();
        let is_for_all = server.status == TransactionStatus::Idle && !has_own;
        if let Some(pool) = self.session.pool.as_ref().filter(|_| is_for_all) {
            let variables = server.variables.now();
            if !statement.is_proven(pool, variables) {
                self.session.share.proofs.note(statement, pool, variables);
                statement.prove(pool, variables);
            }
        }
    }

    /// Bytes that were kept back come before whatever the client gets next.
    #[inline]
    pub(crate) fn show_held(&mut self) {
        if let Some(held) = self.session.retry.take_held() {
            self.io.to_client(&held);
        }
    }

    /// The server was given another statement for LISTEN; the client gets the tag of its own.
    fn is_renamed(&mut self, facts: &Facts, step: u32) -> bool {
        let listens = facts.effects(step).iter().any(|effect| matches!(effect, Effect::Listen(_)));
        if !listens || !self.session.shares_listen() {
            return false;
        }
        self.show_held();
        self.session.retry.forget();
        self.io.encode_to_client(|out| backend::command_complete(out, LISTEN));
        true
    }

    /// Prepares the statements of the failed batch again, and sends it again.
    fn repeat(&mut self, server: &mut ServerState) {
        let Batch { statements, entries, bytes, has_sync } = self.session.retry.take();
        self.io.count(Event::Heal);
        for statement in statements {
            // Under the same number: the bytes of the batch have it.
            let Some(number) = server.statements.use_number(&statement) else { continue };
            server.statements.forget_row_type(&statement);
            self.session.write_close(number, self.io);
            server.queue.push(Expected::swallow(Request::Close, Note::Stale(number)));
            self.io.count(Event::ServerParse);
            self.io.encode_to_server(|out| {
                let rest = statement.at_server(self.session.shares_listen());
                frontend::parse_renamed(out, crate::statements::ServerName::new(number).bytes(), &rest);
            });
            server.queue.push(Expected::swallow(Request::Parse, Note::Prepared(statement)));
        }
        self.io.to_server(&bytes);
        for entry in entries {
            server.queue.push(entry);
        }
        if has_sync {
            server.queue.push(Expected::forward(Request::Sync, Note::None));
        }
    }

    /// A statement has done what its text says.
    fn apply(&mut self, effect: &Effect, facts: &Rc<Facts>, server: &mut ServerState) {
        let share = self.session.share.clone();
        let sets = || share.variables.borrow_mut();
        match effect {
            Effect::Set { scope: Scope::Session, name, value } => match value {
                Value::Sql(_) | Value::Config(_) => {
                    if server.variables.needs_identity(name) {
                        self.pin(PinReasons::UNKNOWN_SETTING, server);
                    }
                    self.set(name, kept(value), server);
                }
                Value::Default => self.reset(Some(name), server),
                Value::Unknown if server.variables.reports(name) => {}
                Value::Unknown => self.pin(PinReasons::UNKNOWN_SETTING, server),
            },
            Effect::SetConfig { name, is_local } => {
                if name.as_ref().is_none_or(|name| matches!(&**name, ROLE | AUTHORIZATION)) {
                    server.variables.on_local_identity();
                }
                if name.as_ref().is_none_or(|name| **name == *b"search_path") {
                    server.variables.on_local_path();
                }
                let is_reported = name.as_ref().is_some_and(|name| server.variables.reports(name));
                if !is_reported && *is_local != Some(true) {
                    self.pin(PinReasons::UNKNOWN_SETTING, server);
                }
            }
            Effect::Reset(name) => self.reset(Some(name), server),
            Effect::ResetAll => self.reset(None, server),
            Effect::SetRole { scope: Scope::Session, value } => self.identity(ROLE, value, server),
            Effect::SetSessionAuthorization { scope: Scope::Session, value } => {
                self.identity(AUTHORIZATION, value, server);
            }
            Effect::SetRole { scope: Scope::Local, .. }
            | Effect::SetSessionAuthorization { scope: Scope::Local, .. } => {
                server.variables.on_local_identity();
            }
            Effect::Savepoint(name) => server.variables.on_savepoint(name),
            Effect::Release(name) => {
                server.variables.on_release(name);
                self.session.uncommitted.release_to(server.variables.savepoints());
                if let Some(listening) = &mut self.session.listening {
                    listening.release_to(server.variables.savepoints());
                }
            }
            Effect::RollbackTo(name) => {
                server.variables.on_rollback_to(name, &mut sets());
                self.session.uncommitted.roll_back_to(server.variables.savepoints());
                if let Some(listening) = &mut self.session.listening {
                    listening.roll_back_to(server.variables.savepoints());
                }
            }
            _ => self.apply_object(effect, facts, server),
        }
    }

    /// A statement set a parameter. One without room stays with the server, and the client with it.
    fn set(&mut self, name: &[u8], value: crate::variables::Value, server: &mut ServerState) {
        if !server.variables.has_room_for(name, value.text().len()) {
            return self.pin(PinReasons::UNKNOWN_SETTING, server);
        }
        let share = self.session.share.clone();
        server.variables.on_set(name, value, &mut share.variables.borrow_mut());
    }

    /// A statement reset a parameter, or all of them.
    fn reset(&mut self, name: Option<&[u8]>, server: &mut ServerState) {
        server.variables.on_reset(name, &mut self.session.share.variables.borrow_mut());
        self.session.startup.on_reset(name);
    }

    fn identity(&mut self, name: &[u8], value: &Value, server: &mut ServerState) {
        match value {
            Value::Sql(_) | Value::Config(_) => self.set(name, kept(value), server),
            Value::Default => self.reset(Some(name), server),
            Value::Unknown => self.pin(PinReasons::UNKNOWN_SETTING, server),
        }
    }

    /// Effects on what the session has at the server besides its parameters.
    fn apply_object(&mut self, effect: &Effect, facts: &Rc<Facts>, server: &mut ServerState) {
        match effect {
            Effect::Prepare { name, .. } => {
                if let Some(prepare) = facts.prepare(name) {
                    server.sql_names.insert(name.clone(), prepare.text.clone());
                    self.session.names.insert(Rc::new(Named::of_sql(name, prepare)));
                }
            }
            Effect::Execute { name, .. } => self.apply_executed(name, server),
            Effect::Deallocate(name) => {
                self.session.names.remove(name);
                server.sql_names.remove(name);
            }
            Effect::DeallocateAll => self.forget_statements(server),
            Effect::DeclareCursor { name, hold: true } => {
                self.session.uncommitted.note(server.variables.savepoints(), Made::Cursor(name.clone()));
            }
            Effect::CloseCursor(name) => {
                self.session.uncommitted.close(Some(name));
                self.session.cursors.retain(|open| open != name);
                self.unpin_cursors(server);
            }
            Effect::CloseAllCursors => {
                self.session.uncommitted.close(None);
                self.session.cursors.clear();
                self.unpin_cursors(server);
            }
            Effect::Create if server.variables.may_have_temporary_path() => {
                self.session.uncommitted.note(server.variables.savepoints(), Made::Table);
            }
            Effect::CreateTemp { drops_on_commit: false } => {
                self.session.uncommitted.note(server.variables.savepoints(), Made::Table);
            }
            Effect::DiscardTemp if is_final(facts, server) => self.unpin(PinReasons::TEMPORARY_TABLE, server),
            Effect::DiscardAll => self.discard_all(server),
            Effect::Load => self.pin(PinReasons::LOAD, server),
            Effect::Opaque => server.dirt |= PinReasons::OPAQUE,
            Effect::Listen(channel) if self.session.shares_listen() => {
                self.session.note_change(Change::Listen(channel.clone()), server);
            }
            Effect::Listen(channel) => {
                if !self.session.channels.contains(channel) {
                    self.session.channels.push(channel.clone());
                }
                self.pin(PinReasons::LISTEN, server);
            }
            Effect::Unlisten(channel) if self.session.shares_listen() => {
                self.session.note_change(Change::Unlisten(channel.clone()), server);
            }
            Effect::Unlisten(channel) if is_final(facts, server) => {
                self.session.channels.retain(|known| known != channel);
                if self.session.channels.is_empty() {
                    self.unpin(PinReasons::LISTEN, server);
                }
            }
            Effect::UnlistenAll => {
                self.session.note_change(Change::UnlistenAll, server);
                if is_final(facts, server) {
                    self.session.channels.clear();
                    self.unpin(PinReasons::LISTEN, server);
                }
            }
            _ => self.apply_lock(effect, server),
        }
    }

    /// EXECUTE has done what its statement does.
    fn apply_executed(&mut self, name: &[u8], server: &mut ServerState) {
        match self.session.names.get(name).cloned() {
            Some(named) => {
                if let Some(facts) = &named.effects {
                    facts.effects(0).iter().for_each(|effect| self.apply(effect, facts, server));
                    if facts.is_opaque {
                        server.dirt |= PinReasons::OPAQUE;
                    }
                }
            }
            // Something that was not read has prepared it.
            None => server.dirt |= PinReasons::OPAQUE,
        }
    }

    pub(crate) fn apply_lock(&mut self, effect: &Effect, server: &mut ServerState) {
        match effect {
            Effect::AdvisoryLock => self.pin(PinReasons::ADVISORY_LOCK, server),
            Effect::AdvisoryUnlock | Effect::AdvisoryUnlockAll => {
                self.session.has_unlocked = self.session.pin.reasons.contains(PinReasons::ADVISORY_LOCK);
            }
            _ => {}
        }
    }

    /// Effects of a text that was not read, as far as its command tag shows them.
    fn apply_tag(&mut self, tag: &[u8], server: &mut ServerState) {
        match tag {
            b"DISCARD ALL" => self.discard_all(server),
            b"DEALLOCATE ALL" => self.forget_statements(server),
            _ => {}
        }
    }

    fn forget_statements(&mut self, server: &mut ServerState) {
        self.session.names.clear();
        server.statements.clear();
        server.sql_names.clear();
        server.stale.clear();
    }

    fn discard_all(&mut self, server: &mut ServerState) {
        self.forget_statements(server);
        server.variables.on_discard(&mut self.session.share.variables.borrow_mut());
        self.session.startup.on_reset(None);
        self.session.unlisten_all(self.io);
        self.session.has_unlocked = false;
        self.session.uncommitted.clear();
        self.session.cursors.clear();
        self.session.channels.clear();
        let kept = PinReasons::SESSION_POOLING | PinReasons::LOAD;
        self.unpin(PinReasons::all() - kept, server);
    }

    fn unpin_cursors(&mut self, server: &mut ServerState) {
        if self.session.cursors.is_empty() {
            self.unpin(PinReasons::HELD_CURSOR, server);
        }
    }

    fn pin(&mut self, reasons: PinReasons, server: &mut ServerState) {
        self.session.add_pin(reasons, server, self.io);
    }

    fn unpin(&mut self, reasons: PinReasons, server: &mut ServerState) {
        server.dirt -= reasons;
        self.session.pin.end(reasons);
    }
}

/// Nothing can undo what the statement has just done: it is alone in its text, and in no block.
fn is_final(facts: &Facts, server: &ServerState) -> bool {
    facts.only().is_some() && server.status == TransactionStatus::Idle
}

/// A value as the session keeps it.
fn kept(value: &Value) -> crate::variables::Value {
    match value {
        Value::Config(string) => crate::variables::Value::Config(string.clone()),
        Value::Sql(text) => crate::variables::Value::Expression(text.clone()),
        Value::Default | Value::Unknown => unreachable!("callers have seen the value"),
    }
}
