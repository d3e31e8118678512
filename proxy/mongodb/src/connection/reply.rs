//! Bytes of a server become replies, which go to the client as they come.

use std::mem;

use weir_base::{error::Culprit, exchange::LossCause, time::turn, violation::Violation};
use weir_listener::CloseReason;
use weir_mongodb_codec::{
    frame::Piece,
    header::HEADER_BYTES,
    message::{Flags, Message},
    reply::{Reply, ReplyFollower},
};
use weir_mongodb_session::{AfterReply, Lost};

use super::life::{Life, Stage};

/// Codes of a server that is no primary, or not for long: its role is looked at again.
const fn is_state_change(code: i32) -> bool {
    matches!(code, 91 | 189 | 10107 | 11600 | 11602 | 13435 | 13436)
}

impl Life<'_> {
    /// Bytes of the server.
    pub(super) fn on_server_bytes(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        match self.stage {
            Stage::Relaying => return self.on_relayed_bytes(chunk),
            Stage::Replying => {}
            _ => {
                let text = "the server replies to a request that is not over";
                return self.server_broke(&Violation::rule("mongodb_reply_unexpected", Culprit::Upstream, text));
            }
        }
        if self.lease.head.is_empty() {
            return self.take_replies(chunk);
        }
        // A header that came in two parts.
        let mut head = mem::take(&mut self.lease.head);
        let missing = HEADER_BYTES.saturating_sub(head.len()).min(chunk.len());
        head.extend_from_slice(&chunk[..missing]);
        if missing < chunk.len() {
            self.take_replies_of(&head, true)?;
            return if self.is_replying() { self.take_replies(&chunk[missing..]) } else { Ok(()) };
        }
        self.take_replies(&head)
    }

    fn is_replying(&self) -> bool {
        matches!(self.stage, Stage::Replying) && self.lease.server.is_some()
    }

    #[inline]
    fn take_replies(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        self.take_replies_of(bytes, false)
    }

    /// Messages, or pieces of them. `has_more`: others follow at once.
    fn take_replies_of(&mut self, mut bytes: &[u8], has_more: bool) -> Result<(), CloseReason> {
        while !bytes.is_empty() && self.is_replying() {
            let piece = match self.lease.framer.next(bytes) {
                Ok(Some(piece)) => piece,
                Ok(None) => {
                    self.lease.head.extend_from_slice(bytes);
                    return Ok(());
                }
                Err(error) => return self.server_broke(&error.violation(Culprit::Upstream)),
            };
            let (part, rest) = bytes.split_at(piece.bytes);
            if let Err(violation) = self.take_piece(&piece, part) {
                return self.server_broke(&violation);
            }
            if piece.is_end() && !matches!(self.stage, Stage::Replying) {
                return self.exchange_over(!rest.is_empty() || has_more);
            }
            bytes = rest;
        }
        Ok(())
    }

    /// A piece of a reply: the session hears of a header before the client gets a byte, and of the end before the client gets the last.
    fn take_piece(&mut self, piece: &Piece, part: &[u8]) -> Result<(), Violation> {
        if piece.is_start {
            self.session.on_reply_head(&piece.header)?;
        }
        if piece.is_whole() {
            let broken = |error: weir_mongodb_codec::MessageError| error.violation(Culprit::Upstream);
            let message = Message::read(part).map_err(broken)?;
            let reply = Reply::read(message.body).map_err(|error| error.violation(Culprit::Upstream))?;
            self.end_reply(piece, message.flags, &reply)?;
        } else {
            if piece.is_start {
                self.lease.follower = Some(ReplyFollower::new(&piece.header));
            }
            let Some(follower) = &mut self.lease.follower else { return Ok(()) };
            follower.take(part).map_err(|error| error.violation(Culprit::Upstream))?;
            if piece.is_end() {
                let ended = follower.reply();
                self.lease.follower = None;
                let text = "the reply ends inside of its body";
                let short = || Violation::rule("mongodb_reply_short", Culprit::Upstream, text);
                let (flags, reply) = ended.ok_or_else(short)?;
                self.end_reply(piece, flags, &reply)?;
            }
        }
        self.lease.is_begun = !piece.is_end();
        self.output.append(part);
        Ok(())
    }

    /// A reply is whole. The stage is that of a request if no other one follows.
    fn end_reply(&mut self, piece: &Piece, flags: Flags, reply: &Reply) -> Result<(), Violation> {
        let after = self.session.on_reply(&piece.header, flags, reply, &self.scene.io(None))?;
        if !reply.is_ok {
            self.note_error(reply);
        }
        if after == AfterReply::Return {
            self.stage = Stage::Request;
        }
        Ok(())
    }

    #[cold]
    fn note_error(&mut self, reply: &Reply) {
        self.lease.is_error = true;
        let tally = self.scene.tally.borrow();
        if let Some(metrics) = &tally.metrics {
            metrics.class(tally.class).errors.inc();
        }
        if let Some(server) = self.lease.server.as_ref().filter(|_| reply.code.is_some_and(is_state_change)) {
            server.doubt();
        }
    }

    /// The last reply of an exchange is with the client. `is_followed`: the server speaks on, unasked.
    fn exchange_over(&mut self, is_followed: bool) -> Result<(), CloseReason> {
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
        let left = match &self.stage {
            Stage::Sending(sending) => sending.left,
            _ => 0,
        };
        self.partial_since = None;
        let lost = self.session.on_server_lost(self.lease.is_begun, &self.scene.io(None), &mut self.own);
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
