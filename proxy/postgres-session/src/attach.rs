//! A client gets a server, and loses one.

use std::rc::Rc;

use weir_postgres_codec::{TransactionStatus, backend, frontend};

use crate::encoding;
use crate::io::{Event, Io};
use crate::outstanding::{Expected, Fate, Note, Request};
use crate::pin::PinReasons;
use crate::refusal::Refusal;
use crate::server::ServerState;
use crate::session::{Attachment, End, Next, Session};
use crate::statements::Meaning;
use crate::variables::{Difference, Variables, difference};

/// Takes back all parameters, the role included.
const CLEAR: &[u8] = b"SET SESSION AUTHORIZATION DEFAULT;RESET ALL";

/// Servers in a row that a message may lose before one has it.
const LOST_UNUSED_MAX: u8 = 4;

/// Sends the statements that make a server like `wanted`: its `difference`, and behind it `names` to deallocate. A text of several
/// encodings takes several Queries; then it is true.
pub(crate) fn replay(
    server: &mut ServerState,
    wanted: &Rc<Variables>,
    (difference, names): (&Difference, &[u8]),
    (has_foreign, drops_names): (bool, bool),
    io: &impl Io,
) -> bool {
    io.count(Event::Replay);
    let whole = [&difference.text[..], names].concat();
    let parts = encoding::parts(server, wanted, &whole, names).unwrap_or_else(|| {
        // A server reads all of a text in the encoding that it has before.
        let first = (!difference.encoding.is_empty()).then(|| difference.encoding.clone());
        first.into_iter().chain([whole]).collect()
    });
    let last = parts.len() - 1;
    for (at, text) in parts.iter().enumerate() {
        io.encode_to_server(|out| frontend::query(out, text));
        let wanted = (at == last).then(|| wanted.clone());
        let note = Note::Replayed { wanted, has_foreign, drops_names: drops_names && at == last };
        server.queue.push(Expected::swallow(Request::Query, note));
    }
    // A simple Query ends the unnamed statement.
    server.unnamed = None;
    last > 0
}

impl Session {
    /// Makes a server as the client wants it. Its requests may follow at once if the server is sure to become so.
    pub(crate) fn attach(&mut self, server: &mut ServerState, io: &impl Io) {
        self.attachment = Attachment::Fresh;
        self.forget_running();
        self.note_server_encoding(server);
        if !self.is_multiplexed() {
            self.add_pin(PinReasons::SESSION_POOLING, server, io);
        }
        if Rc::ptr_eq(&self.variables, server.variables.now()) && server.sql_names.is_empty() {
            return;
        }
        let difference = difference(&server.variables, &self.variables);
        let mut names = Vec::new();
        let drops_names = self.drop_names_of_others(server, &mut names);
        let text = [&difference.text[..], &names].concat();
        if text.is_empty() {
            return server.variables.become_like(&self.variables);
        }
        let has_foreign = drops_names || server.variables.now().iter().next().is_some();
        let is_split = replay(server, &self.variables, (&difference, &names), (has_foreign, drops_names), io);
        if difference.may_fail || drops_names || is_split || !self.is_proven {
            self.attachment = Attachment::Preparing;
            // The client waits already.
            self.busy_since.get_or_insert(io.now());
        }
    }

    /// Parameters of others may be why the server refused: they are reset, and those of the client are sent once more. A replay that fails has
    /// changed nothing, so prepared statements and all else stay.
    #[cold]
    pub(crate) fn clear_parameters(&mut self, server: &mut ServerState, io: &impl Io) {
        io.count(Event::Replay);
        io.encode_to_server(|out| frontend::query(out, CLEAR));
        server.queue.push(Expected::swallow(Request::Query, Note::Cleared));
        server.unnamed = None;
        self.attachment = Attachment::Clearing;
        self.busy_since = Some(io.now());
    }

    /// No EXECUTE may reach what another client has prepared. True if there is something to drop.
    fn drop_names_of_others(&self, server: &mut ServerState, text: &mut Vec<u8>) -> bool {
        let before = server.sql_names.len();
        server.sql_names.retain(|name, has| {
            let own = self.names.get(name).map(|named| &named.meaning);
            let is_own = matches!(own, Some(Meaning::Sql(wanted)) if wanted == has);
            if !is_own {
                text.extend_from_slice(b"DEALLOCATE ");
                crate::variables::quote_name(text, name);
                text.push(b';');
            }
            is_own
        });
        server.sql_names.len() < before
    }

    /// The session ends with its server: the client has a transaction or other state there, or has sent half of a message.
    pub(crate) fn is_bound(&self, server: &ServerState) -> bool {
        let has_transaction = server.status != TransactionStatus::Idle || server.queue.has_open_transaction();
        has_transaction || self.pin.is_held() || server.is_half_sent
    }

    /// The connection to the server is lost. Its state is of no more use.
    ///
    /// The session goes on if the client can know all that it lost: it gets an error for each request without a reply. No request is
    /// sent again: the server may have executed it.
    pub fn on_server_lost(&mut self, server: &mut ServerState, io: &impl Io) -> Next {
        let is_mid_reply = server.body_left > 0 && server.body_passes;
        let was_used = self.attachment == Attachment::Used;
        let was_preparing = matches!(self.attachment, Attachment::Preparing | Attachment::Clearing);
        let is_bound = self.is_bound(server);
        self.attachment = Attachment::None;
        self.busy_since = None;
        self.idle_since = io.now();
        // Its error was kept back, and nothing is repeated any more.
        let hides_error = self.retry.is_repeating();
        self.retry.forget();
        self.lose_transaction(io);
        self.uncommitted.clear();
        // The client gets an error in its place.
        drop(self.retry.take_held());
        if is_mid_reply || (was_used && is_bound) {
            if !is_mid_reply {
                self.end_with(Refusal::SERVER_LOST_FATAL, io);
            }
            self.end = Some(Box::new(End::ServerLost));
            return Next::Close(End::ServerLost);
        }
        self.portals.clear();
        self.last_bound = None;
        self.fail_outstanding(server, hides_error, io);
        // A Bind may wait for the description of its statement, and has gone nowhere either.
        let was_describing = self.described_at.take_if(|place| *place == self.taken_bytes).is_some();
        if was_preparing || was_describing {
            self.lose_unused();
        }
        Next::More
    }

    /// The next statement has gone nowhere, and another server may take it. A server that never does would be tried without end.
    #[cold]
    pub(crate) fn lose_unused(&mut self) {
        let lost = if self.lost_unused.0 == self.taken_bytes { self.lost_unused.1 + 1 } else { 1 };
        self.lost_unused = (self.taken_bytes, lost);
        if lost >= LOST_UNUSED_MAX {
            self.lost_unused.1 = 0;
            self.refuse_next(Refusal::SERVER_LOST_UNUSED);
        }
    }

    /// An error for each request that the lost server leaves without a reply.
    fn fail_outstanding(&mut self, server: &mut ServerState, hides_error: bool, io: &impl Io) {
        let mut is_failed = server.queue.is_skipping();
        // With FATAL in reply to the parameters, nothing behind them has run.
        let is_replay = |front: &Expected| matches!(front.note, Note::Replayed { .. });
        let is_unused = server.is_doomed && server.queue.front().is_some_and(is_replay);
        let refusal = if is_unused { Refusal::SERVER_LOST_UNUSED } else { Refusal::SERVER_LOST };
        let refuse = || {
            io.count(Event::Refusal);
            io.encode_to_client(|out| backend::error(out, &refusal.report()));
        };
        if hides_error {
            refuse();
            is_failed = true;
        }
        let mut error_sent_for_front = server.has_failed;
        while let Some(entry) = server.queue.pop() {
            if entry.fate == Fate::Swallow {
                // Its error was none of the next request.
                error_sent_for_front = false;
                continue;
            }
            match entry.request {
                Request::CopyEnd | Request::CopyData => {}
                Request::Query | Request::FunctionCall | Request::Sync | Request::LocalReady => {
                    let owes_error = entry.request != Request::LocalReady && !error_sent_for_front && !is_failed;
                    if owes_error {
                        refuse();
                    }
                    io.encode_to_client(|out| backend::ready_for_query(out, TransactionStatus::Idle));
                    is_failed = false;
                }
                _ if is_failed => {}
                _ => {
                    refuse();
                    is_failed = true;
                }
            }
            error_sent_for_front = false;
        }
        // The Sync of the batch is still to come from the client.
        self.is_skipping = is_failed;
        self.unnamed = None;
    }
}
