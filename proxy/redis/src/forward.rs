//! Requests on their way to the upstream, and replies on their way back.

use weir_analysis::redis::Command;
use weir_resp::encode;
use weir_upstream::{FrameKind, Refusal};

use crate::{
    io::{Full, Io, Ticket},
    ordering::ReplyMode,
    pin::PinReason,
    refusal,
    session::{Hold, Request, State, Taken},
};

impl State {
    /// Sends a stateless command: on the shared lane, or behind the others on the client's own.
    #[inline]
    pub(crate) fn forward(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if let Some(full) = io.full() {
            return self.hold_for_room(full, io);
        }
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline: true };
        if self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        if self.pins.is_some() {
            io.count(Some(command));
            request.with_wire(|wire| io.forward_pinned(wire, ticket));
            self.order.sent();
            return Taken::Yes;
        }
        match request.with_wire(|wire| io.forward(self.key(), wire, ticket)) {
            Ok(()) => {
                io.count(Some(command));
                self.order.sent();
                Taken::Yes
            }
            Err(refusal) => self.refuse(refusal, io),
        }
    }

    /// Waits a little for room; if that was in vain, refuses.
    #[cold]
    fn hold_for_room(&mut self, full: Full, io: &impl Io) -> Taken {
        if self.pin_refused.take().is_some() {
            io.count_shed(full.name());
            return self.error(io, full.text());
        }
        self.hold = Some(Hold::Room);
        Taken::Held
    }

    /// Sends a command on the client's own lane, getting one first.
    pub(crate) fn forward_on_pin(
        &mut self,
        reason: PinReason,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Taken {
        if let Err(taken) = self.need_pin(reason, self.key(), io) {
            return taken;
        }
        if self.tunnel.is_some() {
            return self.forward_in_tunnel(command, request, io);
        }
        io.count(Some(command));
        let has_deadline = !matches!(reason, PinReason::Blocking | PinReason::Wait);
        let ticket = Ticket { number: self.order.next_number(), skip: 0, has_deadline };
        request.with_wire(|wire| io.forward_pinned(wire, ticket));
        self.order.sent();
        Taken::Yes
    }

    #[inline]
    pub(crate) fn on_reply(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        if !self.order.is_muted(exchange) {
            io.reply(|out| out.extend_from_slice(bytes));
        }
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.order.completed(exchange);
        if self.changes_db.is_some() {
            self.note_db_change(exchange, bytes, kind, io);
        }
        while let Some(reply) = self.order.pop_due() {
            io.reply(|out| out.extend_from_slice(&reply));
        }
        if self.pins.is_some() {
            self.settle_pin(io);
        }
        self.wants_wake()
    }

    /// Something is held back that a reply may have released.
    #[inline]
    pub(crate) fn wants_wake(&self) -> bool {
        let is_below_limit = self.order.outstanding() + 1 == u64::from(self.settings.pipeline_max);
        is_below_limit || (self.is_closing && self.is_quiet()) || (self.hold == Some(Hold::Quiet) && self.is_quiet())
    }

    fn note_db_change(&mut self, exchange: u64, bytes: &[u8], kind: FrameKind, io: &impl Io) {
        if let Some((_, db)) = self.changes_db.take_if(|(number, _)| *number == exchange) {
            let is_null = bytes.starts_with(b"*-1") || bytes.starts_with(b"_");
            if kind == FrameKind::Reply && !is_null {
                self.db = db;
                io.entry().details().db = db;
            }
            if let Some((_, pins)) = &mut self.pins {
                pins.soil();
            }
        }
    }

    /// Writes a reply of the gateway's own, in order.
    pub(crate) fn local(&mut self, io: &impl Io, encode: impl FnOnce(&mut Vec<u8>)) {
        if self.order.mode != ReplyMode::On {
            self.order.unskip();
            return;
        }
        if self.order.is_quiet() {
            io.reply(encode);
        } else {
            let mut reply = Vec::new();
            encode(&mut reply);
            self.order.wait(reply);
        }
    }

    /// Answers with an error of the gateway's own.
    pub(crate) fn error(&mut self, io: &impl Io, text: &str) -> Taken {
        self.error_line(io, text.as_bytes())
    }

    /// As [`State::error`], for texts that repeat what the client wrote.
    pub(crate) fn error_line(&mut self, io: &impl Io, text: &[u8]) -> Taken {
        let mut line = Vec::with_capacity(text.len() + 3);
        encode::error(&mut line, text);
        io.count_error(&line);
        self.local(io, |out| out.extend_from_slice(&line));
        Taken::Yes
    }

    pub(crate) fn ok(&mut self, io: &impl Io) -> Taken {
        self.local(io, |out| out.extend_from_slice(b"+OK\r\n"));
        Taken::Yes
    }

    /// Answers with an error that also spoils a transaction being queued, as the server does for a command it cannot queue.
    pub(crate) fn reject(&mut self, io: &impl Io, text: &str) -> Taken {
        self.reject_with(io, |out| out.extend_from_slice(text.as_bytes()))
    }

    pub(crate) fn reject_with(&mut self, io: &impl Io, text: impl FnOnce(&mut Vec<u8>)) -> Taken {
        if let Some(transaction) = &mut self.transaction {
            transaction.spoil();
        }
        let mut line = Vec::new();
        text(&mut line);
        self.error_line(io, &line)
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal, io: &impl Io) -> Taken {
        io.count_shed(refusal.name());
        self.error(io, &refusal::refused(refusal))
    }
}
