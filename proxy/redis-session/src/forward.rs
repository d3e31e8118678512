//! Requests on their way to the upstream, and replies on their way back.

use weir_analysis::redis::{Class, Command};
use weir_base::exchange::{FrameKind, Refusal};

use crate::{
    gather::Gather,
    io::{Io, Ticket},
    lane::LaneKey,
    ordering::ReplyMode,
    pin_reason::PinReason,
    refusal,
    request::Request,
    spread::one_place,
    state::{CommandStatus, Hold, State},
};

impl State {
    /// Sends a stateless command: on the shared lane, or behind the others on the client's own.
    #[inline]
    pub(crate) fn forward(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if let Err(taken) = self.may_go(Some(command), io) {
            return taken;
        }
        if self.subscriptions.is_some()
            && let Some(taken) = self.publish(command, request, io)
        {
            return taken;
        }
        if self.is_sharded {
            return self.forward_over_shards(command, request, io);
        }
        let ticket = Ticket::new(self.order.next_number());
        if self.pins.is_some() {
            io.count(Some(command), 1);
            request.with_wire(|wire| io.forward_pinned(wire, ticket));
            self.order.sent();
            return CommandStatus::Done;
        }
        if io.must_settle(self.key()) {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        io.count(Some(command), 1);
        match request.with_wire(|wire| io.forward(self.key(), wire, ticket)) {
            Ok(()) => {
                self.order.sent();
                CommandStatus::Done
            }
            Err(refusal) => self.refuse(refusal, io),
        }
    }

    /// Makes sure that the command may go to the server: there is room for it, and the listener is below its knee.
    #[inline]
    pub(crate) fn may_go(&mut self, command: Option<&'static Command>, io: &impl Io) -> Result<(), CommandStatus> {
        self.need_room(command, io)?;
        match self.is_below_knee(io) {
            true => Ok(()),
            false => Err(self.refuse_at_knee(command, io)),
        }
    }

    /// Makes sure that the core has room for one more exchange: waits a little; if that was in vain, refuses.
    #[inline]
    pub(crate) fn need_room(&mut self, command: Option<&'static Command>, io: &impl Io) -> Result<(), CommandStatus> {
        let Some(full) = io.full() else { return Ok(()) };
        Err(match self.waits_in_vain() {
            true => {
                io.count_refused(command, full.name());
                self.error(io, full.text())
            }
            false => CommandStatus::Held,
        })
    }

    /// Holds the command until there is room. True if it has waited long enough and must be refused.
    #[cold]
    pub(crate) fn waits_in_vain(&mut self) -> bool {
        let is_refused = std::mem::take(&mut self.is_room_refused);
        if !is_refused {
            self.hold = Some(Hold::Room);
        }
        is_refused
    }

    /// The command at the front of the input is within the rate of the listener. Checked once, however often the command
    /// is held and checked again. A command over the rate does not wait: a queue at the knee only grows.
    #[inline]
    pub(crate) fn is_below_knee(&mut self, io: &impl Io) -> bool {
        self.is_admitted = self.is_admitted || io.admit(1);
        self.is_admitted
    }

    #[cold]
    fn refuse_at_knee(&mut self, command: Option<&'static Command>, io: &impl Io) -> CommandStatus {
        io.count_refused(command, refusal::KNEE_REASON);
        self.error(io, refusal::KNEE)
    }

    /// Sends a command on the client's own lane, getting one first.
    pub(crate) fn forward_on_pin(
        &mut self,
        reason: PinReason,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        if reason == PinReason::Blocking && self.is_ended {
            // The client that would receive the element is gone.
            self.is_closing = true;
            return CommandStatus::Done;
        }
        let key = match self.lane_key(command, request, io) {
            // A server in a long script answers SELECT with BUSY: greeted for a database, the lane could never stop it.
            Ok(key) if command.class == Class::Exclusive => LaneKey { db: 0, ..key },
            Ok(key) => key,
            Err(no) => {
                no.count(command, io);
                return self.error_line(io, &no.text(command));
            }
        };
        let place = io.topology().and_then(|_| one_place(command, request, io).ok().flatten());
        if self.must_wait_for_cluster(io) {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        if place.is_some_and(|place| self.is_quiet() && self.watch_has_moved(place)) {
            // As if they had changed; a lane to their new node can be had when the old one is given back.
            self.is_watch_broken = true;
            self.forget_watch(io);
            if !self.is_quiet() {
                self.hold = Some(Hold::Quiet);
                return CommandStatus::Held;
            }
        }
        let may_go = self.may_go(Some(command), io);
        if let Err(taken) = may_go.and_then(|()| self.need_pin(reason, key, Some(command), io)) {
            return taken;
        }
        io.count(Some(command), 1);
        let has_deadline = !matches!(reason, PinReason::Blocking | PinReason::Wait);
        let ticket = Ticket { has_deadline, ..Ticket::new(self.order.next_number()) };
        request.with_wire(|wire| io.forward_pinned(wire, ticket));
        self.keep_bound(ticket, place.map(|place| place.group), key.shard, io);
        self.order.sent();
        if reason == PinReason::Watch {
            self.watch_sent(ticket.number, place.map(|place| place.group));
        }
        if key.db != self.db {
            // The commands that follow mean another database than this lane's.
            self.hold = Some(Hold::Quiet);
        }
        CommandStatus::Done
    }

    #[inline]
    pub(crate) fn on_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        if self.is_sharded {
            return self.on_shard_reply(exchange, bytes, end, io);
        }
        // Not only in tests: a reply that is not this request's would be another's data.
        assert_eq!(exchange, self.order.oldest(), "the k-th reply belongs to the k-th request");
        self.on_due_reply(exchange, bytes, end, io)
    }

    /// As [`State::on_reply`], of one of several shards.
    fn on_shard_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        let had_enough = self.is_deep() || self.has_enough_waiting();
        let Some(bytes) = self.unless_redirected(exchange, bytes, end, io) else { return false };
        if exchange != self.order.oldest() {
            assert!(self.order.keep_early(exchange, &bytes, end), "a reply belongs to a request under way");
            return false;
        }
        let wake = self.on_due_reply(exchange, &bytes, end, io);
        let wake = wake | (end.is_some() && self.pass_early(io));
        wake | (had_enough && !self.is_deep() && !self.has_enough_waiting())
    }

    /// Replies that came early and are due now; true if the session should be woken.
    fn pass_early(&mut self, io: &impl Io) -> bool {
        let mut wake = false;
        while let Some(early) = self.order.pop_early() {
            wake |= self.on_due_reply(self.order.oldest(), &early.bytes, early.end, io);
            if early.end.is_none() {
                break;
            }
        }
        wake
    }

    /// A piece of the reply whose turn it is.
    #[inline]
    fn on_due_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        if self.order.gather(exchange, bytes, end) {
            return end.is_some_and(|kind| self.complete(kind, io));
        }
        if let Some(change) = &mut self.changes_db {
            // As the server wrote it: the gateway's own replies in it are empty where the client wants no replies.
            change.note(exchange, bytes);
        }
        let edited = if self.local_replies.is_some() { self.with_local_replies(exchange, bytes, io) } else { None };
        let bytes = edited.as_deref().unwrap_or(bytes);
        if !self.order.is_muted(exchange) {
            self.pass(bytes, end.is_some(), io);
        }
        if let Some(caching) = &mut self.caching {
            caching.take(exchange, bytes);
        }
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.complete(kind, io)
    }

    /// Nothing that a plain reply could change is under way, and nothing of the gateway's own stands between replies.
    #[inline]
    pub(crate) fn takes_runs(&self) -> bool {
        self.order.is_plain()
            && !self.is_sharded
            && self.pins.is_none()
            && self.changes_db.is_none()
            && self.local_replies.is_none()
            && self.tracking.is_none()
            && self.caching.is_none()
    }

    #[inline]
    pub(crate) fn on_replies(&mut self, first: u64, count: u64, bytes: &[u8], io: &impl Io) -> bool {
        assert_eq!(first, self.order.oldest(), "the k-th reply belongs to the k-th request");
        let had_enough = self.is_deep();
        self.pass(bytes, true, io);
        self.order.completed(first + count - 1);
        self.wants_wake() || (had_enough && !self.is_deep())
    }

    /// The reply to the oldest exchange is complete; true if the session should be woken.
    #[inline]
    pub(crate) fn complete(&mut self, kind: FrameKind, io: &impl Io) -> bool {
        let exchange = self.order.oldest();
        let had_enough = self.is_deep() || self.has_enough_waiting();
        if let Some(gather) = self.order.pop_gather(exchange) {
            self.pass_gathered(gather, io);
        }
        self.forget_attempt(exchange);
        self.order.completed(exchange);
        if self.changes_db.is_some() {
            self.change_db(exchange, kind, io);
        }
        self.local_replies.take_if(|replies| replies.exchange() == exchange);
        if self.tracking.is_some() {
            self.on_tracked_reply(exchange, kind == FrameKind::Error, io);
        }
        if self.caching.is_some() {
            self.on_cached_reply(exchange, kind, io);
        }
        self.flush_due(io);
        if self.pins.is_some() {
            self.note_watch(exchange, kind == FrameKind::Error);
            self.note_early_reply();
            self.settle_pin(io);
        }
        self.wants_wake() || (had_enough && !self.is_deep() && !self.has_enough_waiting())
    }

    /// Gives the client the one reply of several shards.
    fn pass_gathered(&mut self, gather: Gather, io: &impl Io) {
        if gather.is_muted {
            return;
        }
        let reply = gather.merged();
        if reply.starts_with(b"-") {
            io.count_error(&reply);
        }
        self.pass(&reply, true, io);
    }

    /// No reply to `exchange` will come.
    pub(crate) fn on_no_reply(&mut self, exchange: u64, text: &str, io: &impl Io) -> bool {
        if exchange < self.order.oldest() {
            // Given up already, with the lane it was on.
            return false;
        }
        if self.is_mid_frame && exchange == self.order.oldest() {
            self.cut();
        }
        // Whether the keys are watched is not known then; the lane that would say is lost.
        self.take_watch_sent(exchange);
        self.order.forget_beginning(exchange);
        self.give_up_attempt(exchange);
        // The error is a reply of its own and no part of the array that has begun.
        self.local_replies.take_if(|replies| replies.exchange() == exchange);
        self.on_reply(exchange, &refusal::line(text), Some(FrameKind::Error), io)
    }

    /// Hands a piece of a frame to the client.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: &[u8], is_end: bool, io: &impl Io) {
        if !self.is_cut {
            self.is_mid_frame = !is_end;
            io.reply(|out| out.extend_from_slice(bytes));
            if is_end && self.subscriptions.is_some() {
                self.release_pushes(io);
            }
        }
    }

    /// Sends the gateway's own replies whose turn it is.
    #[inline]
    pub(crate) fn flush_due(&mut self, io: &impl Io) {
        while let Some(reply) = self.order.pop_due() {
            self.pass(&reply, true, io);
        }
    }

    /// Half a frame is with the client and its end will not come: nothing can be said any more.
    pub(crate) fn cut(&mut self) {
        self.is_mid_frame = false;
        self.is_cut = true;
        self.is_closing = true;
    }

    /// Something is held back that a reply may have released.
    #[inline]
    pub(crate) fn wants_wake(&self) -> bool {
        let waits_for_quiet = self.is_closing || self.is_ended || self.hold == Some(Hold::Quiet);
        self.is_cut || (waits_for_quiet && self.is_quiet())
    }

    fn change_db(&mut self, exchange: u64, kind: FrameKind, io: &impl Io) {
        let Some(change) = self.changes_db.take_if(|change| change.exchange() == exchange) else { return };
        if let Some(db) = change.outcome(kind == FrameKind::Error) {
            self.db = db;
            io.entry().details().db = Some(db);
        }
        if let Some((_, pins)) = &mut self.pins {
            pins.soil();
        }
    }

    /// Writes a reply of the gateway's own, in order.
    pub(crate) fn local(&mut self, io: &impl Io, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.order.mode != ReplyMode::On {
            self.order.unskip();
            return;
        }
        if self.is_cut {
            return;
        }
        if self.is_quiet() {
            io.reply(encode);
        } else {
            let mut reply = Vec::new();
            encode(&mut reply);
            self.order.wait(reply);
        }
    }

    /// Replies with an error of the gateway's own.
    pub(crate) fn error(&mut self, io: &impl Io, text: &str) -> CommandStatus {
        self.error_line(io, text.as_bytes())
    }

    /// As [`State::error`], for texts that repeat what the client wrote.
    pub(crate) fn error_line(&mut self, io: &impl Io, text: &[u8]) -> CommandStatus {
        let line = refusal::line(text);
        io.count_error(&line);
        self.local(io, |out| out.extend_from_slice(&line));
        CommandStatus::Done
    }

    pub(crate) fn ok(&mut self, io: &impl Io) -> CommandStatus {
        self.local(io, |out| out.extend_from_slice(b"+OK\r\n"));
        CommandStatus::Done
    }

    /// Replies with an error that also spoils a transaction being queued, as the server does for a command it cannot queue.
    pub(crate) fn reject(&mut self, io: &impl Io, text: &str) -> CommandStatus {
        self.reject_with(io, |out| out.extend_from_slice(text.as_bytes()))
    }

    pub(crate) fn reject_with(&mut self, io: &impl Io, text: impl FnOnce(&mut Vec<u8>)) -> CommandStatus {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
        let mut line = Vec::new();
        text(&mut line);
        self.error_line(io, &line)
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal, io: &impl Io) -> CommandStatus {
        io.count_shed(refusal.name());
        self.error(io, &refusal::refused(refusal))
    }
}
