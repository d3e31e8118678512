//! A server that its client has left: what has to happen before another client may have it.
//!
//! A machine apart from the session, so that it runs in the background. The shell gives it the server's bytes and bounds its
//! time; a server that is not clean by then is closed.

use weir_base::violation::Violation;
use weir_postgres_codec::{TransactionStatus, backend, frontend};

use crate::checkin::Verdict;
use crate::io::ToServer;
use crate::outstanding::{Expected, Note, Request};
use crate::pin::PinReasons;
use crate::row_type::RowType;
use crate::scan::Replies;
use crate::server::{CopyIn, ServerState};
use crate::share::WorkerShare;
use crate::statements::Meaning;

/// The end of a recovery, or the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// Replies are to come.
    NotYet,
    /// Any client may have the server.
    Clean,
    /// No client may have it: close it.
    Unusable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Drains,
    RollsBack,
    Resets,
}

/// The way of a server without a client back to its pool.
#[derive(Debug)]
pub struct Recovery {
    step: Step,
    reset_query: Option<Box<[u8]>>,
    /// The query of the configuration runs, and has not shown that nothing is left.
    is_unproven: bool,
    has_failed: bool,
}

/// Resets what clients can leave behind and keeps prepared statements, which belong to the gateway.
const RESET: &[u8] = b"SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;\
                       SELECT pg_catalog.pg_advisory_unlock_all();DISCARD PLANS;DISCARD SEQUENCES;DISCARD TEMP";
/// After statements of which nothing is known.
const DISCARD: &[u8] = b"DISCARD ALL";

impl Recovery {
    /// Begins. `reset_query`: that of the configuration. If it is not `DISCARD ALL`, what it leaves is unknown, and the gateway's own choice
    /// follows.
    pub fn new(reset_query: Option<&[u8]>) -> Self {
        Self { step: Step::Drains, reset_query: reset_query.map(Into::into), is_unproven: false, has_failed: false }
    }

    /// Sends what has to be sent first. Call it once.
    pub fn begin(&mut self, server: &mut ServerState, _: &WorkerShare, io: &impl ToServer) -> Recovered {
        if server.facts(false).without_client() == Verdict::Close {
            return Recovered::Unusable;
        }
        self.proceed(server, io)
    }

    /// Takes bytes of the server.
    pub fn on_server(
        &mut self,
        input: &[u8],
        server: &mut ServerState,
        share: &WorkerShare,
        io: &impl ToServer,
    ) -> Recovered {
        let result: Result<(), Violation> = server.scan(input, &mut Silence { recovery: self, share });
        if result.is_err() {
            return Recovered::Unusable;
        }
        self.proceed(server, io)
    }

    fn proceed(&mut self, server: &mut ServerState, io: &impl ToServer) -> Recovered {
        // The client began it and will not end it.
        if server.copy != CopyIn::No {
            server.copy = CopyIn::No;
            io.encode_to_server(|out| frontend::copy_fail(out, b"the client is gone"));
        }
        if server.queue.needs_sync() {
            io.encode_to_server(frontend::sync);
            server.queue.push(Expected::swallow(Request::Sync, Note::None));
        }
        // A failed reset leaves the server as it was, and would be tried without end.
        if self.has_failed && self.step == Step::Resets {
            return Recovered::Unusable;
        }
        match server.facts(false).without_client() {
            Verdict::Drain => Recovered::NotYet,
            Verdict::Keep | Verdict::Close => Recovered::Unusable,
            Verdict::Rollback if self.step != Step::Drains => Recovered::Unusable,
            Verdict::Rollback => {
                self.step = Step::RollsBack;
                self.send(b"ROLLBACK", server, io)
            }
            // Libraries stay in a process.
            Verdict::Reset if server.dirt.contains(PinReasons::LOAD) => Recovered::Unusable,
            Verdict::Reset => {
                self.step = Step::Resets;
                let unknown = PinReasons::OPAQUE | PinReasons::SESSION_POOLING | PinReasons::SQL_PREPARE;
                let own = if server.dirt.intersects(unknown) { DISCARD } else { RESET };
                let query = self.reset_query.take();
                self.is_unproven = query.is_some();
                match query {
                    Some(query) => self.send(&query, server, io),
                    None => self.send(own, server, io),
                }
            }
            Verdict::Clean => Recovered::Clean,
        }
    }

    fn send(&mut self, text: &[u8], server: &mut ServerState, io: &impl ToServer) -> Recovered {
        self.has_failed = false;
        server.unnamed = None;
        io.encode_to_server(|out| frontend::query(out, text));
        server.queue.push(Expected::swallow(Request::Query, Note::None));
        Recovered::NotYet
    }

    /// The reset has worked: nothing of earlier clients is left.
    fn on_reset(server: &mut ServerState, share: &WorkerShare) {
        let unknown = PinReasons::OPAQUE | PinReasons::SESSION_POOLING | PinReasons::SQL_PREPARE;
        if server.dirt.intersects(unknown) {
            forget_statements(server);
        }
        server.variables.on_discard(&mut share.variables.borrow_mut());
        server.dirt = PinReasons::empty();
    }
}

/// The server has no prepared statement any more.
fn forget_statements(server: &mut ServerState) {
    server.statements.clear();
    server.sql_names.clear();
    server.stale.clear();
}

/// Replies without a reader.
struct Silence<'r> {
    recovery: &'r mut Recovery,
    share: &'r WorkerShare,
}

impl Replies for Silence<'_> {
    fn pass(&mut self, _: &[u8]) {}

    fn on_command(&mut self, server: &mut ServerState, note: &Note, tag: &[u8], step: u32) -> bool {
        server.variables.on_tag(tag, false, &self.share.variables);
        // No other statement can be in the text of a DISCARD ALL.
        self.recovery.is_unproven &= tag != b"DISCARD ALL";
        // A reset of the configuration may take the prepared statements along.
        if matches!(tag, b"DISCARD ALL" | b"DEALLOCATE ALL") {
            forget_statements(server);
        }
        let Note::Effects(facts) = note else { return false };
        // State that came too late for its client is dirt.
        if !facts.effects(step).is_empty() || facts.is_opaque {
            server.dirt |= PinReasons::OPAQUE;
        }
        false
    }

    fn interleaves(&self) -> bool {
        false
    }

    fn on_row_type(&mut self, _: &mut ServerState, _: RowType) {}

    fn on_done(&mut self, server: &mut ServerState, entry: Expected) {
        // A Parse behind a Query that ends nothing has set it already.
        if entry.ends_unnamed {
            server.unnamed = None;
        }
        match entry.note {
            Note::Replayed { .. } | Note::Cleared => server.dirt |= PinReasons::OPAQUE,
            Note::Aligned(..) => server.dirt |= PinReasons::SQL_PREPARE,
            Note::Prepared(statement) => server.statements.confirm(&statement),
            Note::Named(named) => {
                if let Meaning::Protocol(statement) = &named.meaning {
                    server.statements.confirm(statement);
                }
            }
            _ => {}
        }
    }

    fn on_fake(&mut self, _: &mut ServerState, _: Expected) {}

    fn on_undone(&mut self, server: &mut ServerState, entry: Expected, _: bool) {
        // The names at the server are uncertain.
        if !matches!(entry.note, Note::None | Note::Refused(_)) {
            server.dirt |= PinReasons::OPAQUE;
        }
    }

    fn on_error(&mut self, server: &mut ServerState, _: backend::ErrorFields<'_>) -> bool {
        self.recovery.has_failed = true;
        server.is_doomed |= server.late_syncs > 0;
        if let Some(Note::Effects(_)) = server.queue.front().map(|front| &front.note) {
            server.dirt |= PinReasons::OPAQUE;
        }
        false
    }

    fn on_report(&mut self, server: &mut ServerState, report: backend::ParameterStatus<'_>) {
        if !server.variables.on_report(report.name, report.value, &mut self.share.variables.borrow_mut()) {
            server.dirt |= PinReasons::UNKNOWN_SETTING;
        }
    }

    fn holds(&mut self, _: &[u8]) -> bool {
        false
    }

    fn on_notification(&mut self, _: &ServerState, _: backend::NotificationResponse<'_>) {}

    fn on_ready(&mut self, server: &mut ServerState, _: bool) -> bool {
        if server.status == TransactionStatus::Idle {
            server.variables.on_idle(server.has_failed, &self.share.variables);
        }
        let has_reset = self.recovery.step == Step::Resets && !self.recovery.has_failed && !self.recovery.is_unproven;
        if has_reset && server.queue.is_empty() {
            Recovery::on_reset(server, self.share);
        }
        false
    }
}
