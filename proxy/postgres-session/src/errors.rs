//! Errors of a server: whose they are, and what they change.

use std::rc::Rc;

use weir_analysis::postgres::Effect;
use weir_postgres_codec::{
    TransactionStatus,
    backend::{self, ErrorFields, Severity},
    frontend, sqlstate,
};

use crate::facts::Facts;
use crate::io::Io;
use crate::outstanding::{Expected, Note, Request};
use crate::pin::PinReasons;
use crate::replies::Delivery;
use crate::retry::is_outdated;
use crate::row_type::awaits_known_rows;
use crate::server::ServerState;
use crate::session::{Attachment, End};
use crate::statements::{Meaning, is_missing};

impl<I: Io> Delivery<'_, I> {
    /// The error of a request with this note goes to the client.
    pub(crate) fn is_for_client(&mut self, server: &mut ServerState, note: Note, fields: ErrorFields<'_>) -> bool {
        match note {
            // The server goes away: the parameters are not at fault, and nothing of the client has run. The lost connection speaks.
            Note::Replayed { .. } | Note::Cleared | Note::Aligned(..) if fields.is_fatal() => return false,
            Note::Replayed { has_foreign: true, drops_names, wanted }
                if matches!(self.session.attachment, Attachment::Preparing | Attachment::Spoiled) =>
            {
                self.session.attachment = Attachment::Spoiled;
                if drops_names {
                    server.dirt |= PinReasons::SQL_PREPARE;
                }
                if wanted.is_none() {
                    // The parameters behind the encoding are on their way.
                    server.dirt |= PinReasons::UNKNOWN_SETTING;
                }
                return false;
            }
            Note::Cleared => {
                // Another server will do.
                self.session.attachment = Attachment::Spoiled;
                server.dirt |= PinReasons::UNKNOWN_SETTING;
                return false;
            }
            // The client learns which of its parameters it is: it requested them.
            Note::Replayed { .. } => self.session.end = Some(Box::new(End::ParametersRefused)),
            Note::Aligned(name, before) => {
                // The first of its statements is DEALLOCATE if there was something.
                match before.filter(|_| server.queue.current_step() == 0) {
                    Some(before) => drop(server.sql_names.insert(name, before)),
                    None => drop(server.sql_names.remove(&name)),
                }
                return false;
            }
            Note::LocksCounted => {
                // A late cancel request, or a time limit of the client. It has its ReadyForQuery already, and keeps the server.
                self.session.has_unlocked = true;
                return false;
            }
            Note::Effects(facts) => self.apply_failed(&facts, server),
            Note::Refused(error) if fields.sqlstate() == Some(sqlstate::INVALID_SQL_STATEMENT_NAME) => {
                self.show_held();
                self.io.encode_to_client(|out| out.extend_from_slice(&error));
                return false;
            }
            Note::Bound(..) if is_missing(&fields) => {
                // A function of some client has dropped it, and perhaps others.
                server.dirt |= PinReasons::OPAQUE;
                if self.may_repeat(server) {
                    server.statements.keep_only(self.session.retry.statements());
                    self.fail_batch(server);
                    return false;
                }
                server.statements.clear();
            }
            Note::Bound(named, _) if is_outdated(&fields) => {
                // A client would misread the rows of another statement that it knows, and that is prepared again with this one.
                if !named.is_seen.get() && self.may_repeat(server) && !awaits_known_rows(&server.queue) {
                    self.fail_batch(server);
                    return false;
                }
                if let Meaning::Protocol(statement) = &named.meaning {
                    server.stale.extend(server.statements.remove(statement));
                }
            }
            _ => {}
        }
        true
    }

    /// The server ends its connection, and the session goes on without: the client gets FATAL as ERROR, or nothing if it waits for nothing.
    /// Drivers close their connection at FATAL.
    pub(crate) fn softens(&mut self, server: &ServerState, fields: ErrorFields<'_>) -> bool {
        if !fields.is_fatal() || self.session.is_bound(server) || self.session.end.is_some() {
            return false;
        }
        if server.queue.front().is_some() {
            self.show_held();
            self.session.retry.forget();
            self.io.encode_to_client(|out| backend::error_as(out, Severity::Error, fields));
        }
        true
    }

    /// The failed batch can run again: the client has seen nothing of it, it changed nothing, and it ends with what is outstanding.
    fn may_repeat(&self, server: &ServerState) -> bool {
        self.session.retry.is_recording()
            && !self.session.encoding.is_doubtful()
            && server.status == TransactionStatus::Idle
            && (server.queue.ends_with_its_only_sync() || !server.queue.is_status_unknown())
    }

    /// The batch has failed, and will be repeated behind its ReadyForQuery.
    fn fail_batch(&mut self, server: &mut ServerState) {
        let has_sync = server.queue.is_status_unknown();
        self.session.retry.fail(has_sync);
        if !has_sync {
            // The client waits for the replies before its own.
            self.io.encode_to_server(frontend::sync);
            server.queue.push(Expected::swallow(Request::Sync, Note::None));
        }
    }

    /// Effects that an error does not undo, of the statement that failed: it may have come as far as them.
    fn apply_failed(&mut self, facts: &Rc<Facts>, server: &mut ServerState) {
        let step = server.queue.current_step();
        for effect in facts.effects(step) {
            match effect {
                Effect::AdvisoryLock => self.apply_lock(effect, server),
                Effect::Execute { name, .. } => {
                    let named = self.session.names.get(name).cloned();
                    let effects = named.iter().flat_map(|named| &named.effects).flat_map(|facts| facts.effects(0));
                    if effects.into_iter().any(|effect| matches!(effect, Effect::AdvisoryLock)) {
                        self.apply_lock(&Effect::AdvisoryLock, server);
                    }
                }
                _ => {}
            }
        }
    }
}
