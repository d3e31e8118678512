//! Replies of a server go to the client; the consequences of a failure of the server.

use std::mem;

use weir_base::{error::Culprit, exchange::LossCause, time::turn, violation::Violation};
use weir_engine::Output;
use weir_listener::{CloseReason, ConnectionHandle};
use weir_mongodb_codec::reply::Reply;
use weir_mongodb_session::Lost;

use super::{
    lease::Link,
    life::{Life, Stage, has_room_for},
    replies::{Sink, Taken},
};
use crate::own_request;

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
    /// A write has happened, and its write concern has failed with this code. `Some(None)`: without one.
    unsure: Option<Option<i32>>,
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
        if reply.has_write_concern_error {
            self.unsure = Some(reply.write_concern_code);
        }
    }

    fn has_room_for(&mut self, bytes: usize) -> bool {
        has_room_for(self.handle, bytes)
    }
}

impl Life<'_> {
    /// The client takes its reply slowly, others wait for its server, and the byte budget has room for the rest: it is taken now, and the server
    /// is free behind it. At least half of the budget stays free for requests and for readers in time.
    pub(super) fn may_take_rest(&self) -> bool {
        let Some(Link::Pooled(server)) = self.lease.server.as_ref().filter(|_| matches!(self.stage, Stage::Replying))
        else {
            return false;
        };
        let Some(left) = self.lease.replies.left() else { return false };
        server.is_awaited()
            && !self.session.may_stream()
            && self.connection.service.sessions.core().bytes.is_half_free()
            && has_room_for(&self.connection.handle, left)
    }

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
        let mut sink = ToClient { output: &self.output, handle: &self.connection.handle, error: None, unsure: None };
        let taken = self.lease.replies.take(chunk, &mut self.session, &self.scene, &mut sink);
        let ToClient { error, unsure, .. } = sink;
        if let Some(error) = error {
            self.note_error(&error);
        }
        if let Some(code) = unsure {
            self.note_unsure(code);
        }
        match taken {
            Ok(Taken::More) if self.charge() => {
                self.count_written();
                Ok(())
            }
            Ok(Taken::More) => {
                // A compressed reply that is held.
                self.scene.service.metrics.shed("buffered_bytes");
                self.lost(LossCause::Retired)
            }
            Ok(Taken::Over { is_followed }) => self.exchange_over(is_followed),
            Err(violation) => self.server_broke(&violation),
        }
    }

    /// Bytes behind a request that wants no reply: the reply to the gateway's ping, and replies of a server that answers nevertheless.
    fn on_ping_bytes(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        let id = self.lease.barrier_id();
        let received = &mut self.lease.relay_reply;
        received.extend_from_slice(chunk);
        match own_request::take_ping_reply(received, id) {
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
        drop(tally);
        if reply.code.is_some_and(is_state_change) {
            self.note_state_change();
        }
    }

    /// The write concern of a write that has happened has failed. A step-down is one of its reasons.
    #[cold]
    fn note_unsure(&self, code: Option<i32>) {
        match code {
            Some(code) if is_state_change(code) => self.note_state_change(),
            Some(_) => {}
            None => self.lease.server.iter().for_each(Link::suspect),
        }
    }

    fn note_state_change(&self) {
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
        // A server for its next request would wait for the client as well.
        self.is_held_back = self.output.is_congested() && !self.input.is_empty();
        if self.is_held_back { Ok(()) } else { self.go_on() }
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

    pub(super) fn lost(&mut self, cause: LossCause) -> Result<(), CloseReason> {
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
        // A reply that was held in part is of no use, and its bytes are free again.
        let is_begun = mem::take(&mut self.lease.replies).is_begun();
        let lost = self.session.on_server_lost(is_begun, &self.scene.io(None), &mut self.own);
        self.give_own();
        if lost == Lost::Close {
            return Err(CloseReason::of_upstream("mongodb_server_lost"));
        }
        self.lose_own()?;
        self.active = turn::now();
        self.stage = Stage::Request;
        if left > 0 {
            self.skip(left);
        }
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
