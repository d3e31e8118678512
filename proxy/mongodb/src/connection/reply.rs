//! Replies of a server go to the client, and what follows when the server fails.

use weir_base::{error::Culprit, exchange::LossCause, time::turn, violation::Violation};
use weir_engine::Output;
use weir_listener::{CloseReason, ConnectionHandle};
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::Lost;

use super::{
    life::{Life, Stage, has_room_for},
    replies::{Sink, Taken},
};
use crate::own_request::{self, BARRIER_ID};

/// Codes of a server that is no primary, or not for long: its role is looked at again.
const fn is_state_change(code: i32) -> bool {
    matches!(code, 91 | 189 | 10107 | 11600 | 11602 | 13435 | 13436)
}

/// The client's side of its replies.
struct ToClient<'a> {
    output: &'a Output,
    handle: &'a ConnectionHandle,
    /// The last reply that was an error.
    error: Option<Reply>,
}

impl Sink for ToClient<'_> {
    #[inline]
    fn pass(&mut self, bytes: &[u8]) {
        self.output.append(bytes);
    }

    #[inline]
    fn ended(&mut self, reply: &Reply) {
        if !reply.is_ok {
            self.error = Some(*reply);
        }
    }

    fn has_room_for(&mut self, bytes: usize) -> bool {
        has_room_for(self.handle, bytes)
    }
}

impl Life<'_> {
    /// Bytes of the server.
    pub(super) fn on_server_bytes(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        match self.stage {
            Stage::Relaying => return self.on_relayed_bytes(chunk),
            Stage::Flushing => return self.on_ping_bytes(chunk),
            Stage::Replying => {}
            _ => {
                let text = "the server replies to a request that is not over";
                return self.server_broke(&Violation::rule("mongodb_reply_unexpected", Culprit::Upstream, text));
            }
        }
        let mut sink = ToClient { output: &self.output, handle: &self.connection.handle, error: None };
        let taken = self.lease.replies.take(chunk, &mut self.session, &self.scene, &mut sink);
        if let Some(error) = sink.error {
            self.note_error(&error);
        }
        match taken {
            Ok(Taken::More) if self.charge() => Ok(()),
            Ok(Taken::More) => {
                // A compressed reply that is held.
                self.scene.service.metrics.shed("buffered_bytes");
                self.lost(LossCause::Retired)
            }
            Ok(Taken::Over { is_followed }) => self.exchange_over(is_followed),
            Err(violation) => self.server_broke(&violation),
        }
    }

    /// Bytes behind a request that wants no reply: the reply to the gateway's ping, and what a server says nevertheless.
    fn on_ping_bytes(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        let received = &mut self.lease.relay_reply;
        received.extend_from_slice(chunk);
        match own_request::take_ping_reply(received, BARRIER_ID) {
            Ok(false) => Ok(()),
            Ok(true) => {
                let is_followed = !received.is_empty();
                self.lease.relay_reply = Vec::new();
                self.exchange_over(is_followed)
            }
            Err(error) => self.server_broke(&error.violation(Culprit::Upstream)),
        }
    }

    #[cold]
    fn note_error(&mut self, reply: &Reply) {
        self.lease.is_error = true;
        let tally = self.scene.tally.borrow();
        if let Some(metrics) = &tally.metrics {
            metrics.class(tally.class).errors.inc();
        }
        if !reply.code.is_some_and(is_state_change) {
            return;
        }
        if let Some(server) = &self.lease.server {
            server.doubt();
        }
        self.scene.service.shared.note_state_change();
    }

    /// The last reply of an exchange is with the client. `is_followed`: the server speaks on, unasked.
    fn exchange_over(&mut self, is_followed: bool) -> Result<(), CloseReason> {
        self.stage = Stage::Request;
        if is_followed {
            let text = "the server speaks behind its reply";
            let violation = Violation::rule("mongodb_reply_unexpected", Culprit::Upstream, text);
            self.connection.service.sessions.report(&self.connection.handle, &violation);
            self.done("server_lost");
            if let Some(server) = self.lease.server.take() {
                server.close(LossCause::Violation);
            }
            self.lose_own()?;
        } else {
            self.release();
        }
        if self.is_outdated {
            self.follow_upstream();
        }
        self.go_on()
    }

    /// The server broke a rule: its connection ends.
    #[cold]
    fn server_broke(&mut self, violation: &Violation) -> Result<(), CloseReason> {
        self.connection.service.sessions.report(&self.connection.handle, violation);
        self.lost(LossCause::Violation)
    }

    /// The connection to the server broke.
    #[cold]
    pub(super) fn on_server_lost(&mut self) -> Result<(), CloseReason> {
        if matches!(self.stage, Stage::Relaying) {
            return self.on_relay_lost();
        }
        self.lost(LossCause::Closed)
    }

    /// The time of a request is over.
    #[cold]
    pub(super) fn on_reply_overdue(&mut self) -> Result<(), CloseReason> {
        if matches!(self.stage, Stage::Relaying) {
            return self.on_relay_lost();
        }
        self.lost(LossCause::Timeout)
    }

    fn lost(&mut self, cause: LossCause) -> Result<(), CloseReason> {
        let Some(server) = self.lease.server.take() else { return Ok(()) };
        self.done("server_lost");
        server.close(cause);
        if matches!(self.stage, Stage::Flushing) {
            // A write without a reply may be lost: the end of the connection is all that its client can see.
            return Err(CloseReason::of_upstream("mongodb_server_lost"));
        }
        let left = match &self.stage {
            Stage::Sending(sending) => sending.left,
            _ => 0,
        };
        self.partial_since = None;
        let is_begun = self.lease.replies.is_begun();
        let lost = self.session.on_server_lost(is_begun, &self.scene.io(None), &mut self.own);
        self.give_own();
        if lost == Lost::Close {
            return Err(CloseReason::of_upstream("mongodb_server_lost"));
        }
        self.lose_own()?;
        self.active = turn::now();
        self.stage = if left > 0 { Stage::Skipping(left) } else { Stage::Request };
        self.go_on()
    }

    /// A client that has logged in at a server has lost its login with the connection.
    fn lose_own(&self) -> Result<(), CloseReason> {
        match self.session.login().is_relayed() {
            true => Err(CloseReason::of_upstream("mongodb_server_lost")),
            false => Ok(()),
        }
    }
}
