//! MONITOR: the client's own lane speaks unprompted.
//!
//! In this mode frames of the lane go to the client as they come, in the server's own order. The session only has to know
//! which of them answer a command. Commands in a tunnel are numbered with all the others ([`crate::ordering`]), so
//! local replies between them find their place.

use weir_analysis::redis::{Class, Command, LocalCommand};
use weir_base::{error::Culprit, exchange::FrameKind, violation::Violation};

use crate::{
    io::Io,
    pin_reason::PinReason,
    refusal,
    request::Request,
    state::{CommandStatus, Hold, State},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    /// A line of MONITOR.
    Message,
    Reply,
    /// A reply that no command waits for.
    Stray,
}

/// The state of a client whose lane speaks by itself.
#[derive(Debug, Default)]
pub(crate) struct Tunnel {
    /// MONITOR has been answered.
    has_reply: bool,
    /// With an error: it ends when what was sent behind it has been answered too.
    is_refused: bool,
    /// Replies to come.
    expected: u64,
    frame: Option<Frame>,
    /// The first byte of a frame that is not recognised yet.
    head: Vec<u8>,
}

impl Tunnel {
    /// A command was sent.
    pub(crate) fn expect_reply(&mut self) {
        self.expected += 1;
    }

    /// The refusal for a command that this mode does not allow.
    pub(crate) fn forbids(&self, class: Class) -> Option<String> {
        let is_allowed = matches!(class, Class::Local(LocalCommand::Ping | LocalCommand::Quit | LocalCommand::Reset));
        (!is_allowed).then(|| "ERR weir: only QUIT and RESET are possible after MONITOR".into())
    }

    /// Kind of the frame that begins with `head`; `None` if that is too little to decide.
    fn recognise(&self, head: &[u8], is_push: bool, is_whole: bool) -> Option<Frame> {
        match head {
            // A line of MONITOR begins with the time.
            [b'+', b'0'..=b'9', ..] => Some(Frame::Message),
            [b'+'] if !is_whole => None,
            _ if is_push => Some(Frame::Message),
            _ if self.expected > 0 => Some(Frame::Reply),
            _ => Some(Frame::Stray),
        }
    }
}

impl State {
    /// MONITOR.
    pub(crate) fn monitor(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> CommandStatus {
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return CommandStatus::Held;
        }
        if self.is_sharded {
            io.count_refused(Some(command), "unsupported_command");
            return self.error(io, refusal::NOT_OVER_SHARDS);
        }
        let asked = self.need_room(Some(command), io);
        if let Err(taken) = asked.and_then(|()| self.need_pin(PinReason::Monitor, self.key(), Some(command), io)) {
            return taken;
        }
        io.count(Some(command), 1);
        if self.tunnel.is_none() {
            io.set_tunnel(true);
            self.tunnel = Some(Box::default());
        }
        self.send_in_tunnel(request, io);
        CommandStatus::Done
    }

    /// Sends a command of a client that uses MONITOR.
    pub(crate) fn forward_in_tunnel(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> CommandStatus {
        io.count(Some(command), 1);
        self.send_in_tunnel(request, io);
        CommandStatus::Done
    }

    pub(crate) fn send_in_tunnel(&mut self, request: &Request<'_>, io: &impl Io) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.expect_reply();
            request.with_wire(|wire| io.write_pinned(wire));
            self.order.sent();
        }
    }

    pub(crate) fn on_frame(&mut self, bytes: &[u8], end: Option<FrameKind>, is_push: bool, io: &impl Io) -> bool {
        let Some(tunnel) = &mut self.tunnel else { return self.on_notice(bytes, end, io) };
        let (frame, head) = match tunnel.frame {
            Some(frame) => (frame, None),
            None => {
                tunnel.head.extend_from_slice(bytes);
                let recognised = tunnel.recognise(&tunnel.head, is_push, end.is_some());
                let Some(frame) = recognised else { return false };
                tunnel.frame = Some(frame);
                (frame, Some(std::mem::take(&mut tunnel.head)))
            }
        };
        let bytes = head.as_deref().unwrap_or(bytes);
        let passes = match frame {
            Frame::Stray => false,
            Frame::Message => true,
            Frame::Reply => !self.order.is_muted(self.order.oldest()),
        };
        if passes {
            self.pass(bytes, end.is_some(), io);
        }
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.end_frame(frame, kind, io)
    }

    /// A push on a pinned lane that does not monitor (a server's notice): between replies it is the client's.
    fn on_notice(&mut self, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        // Over shards it could come into the middle of another one's reply; nothing that a client may ask for makes one.
        if self.version == weir_resp::Version::Resp3 && !self.is_sharded {
            self.pass(bytes, end.is_some(), io);
        }
        if end.is_none() {
            return false;
        }
        self.flush_due(io);
        self.settle_pin(io);
        self.wants_wake()
    }

    fn end_frame(&mut self, frame: Frame, kind: FrameKind, io: &impl Io) -> bool {
        let Some(tunnel) = &mut self.tunnel else { return false };
        tunnel.frame = None;
        let mut wakes = false;
        match frame {
            Frame::Message => self.flush_due(io),
            Frame::Reply => {
                tunnel.expected -= 1;
                // The first reply is that to MONITOR itself.
                let is_first = !std::mem::replace(&mut tunnel.has_reply, true);
                tunnel.is_refused |= is_first && kind == FrameKind::Error;
                wakes = self.complete(kind, io);
                self.leave_if_refused(io);
            }
            Frame::Stray => {
                let text = "a reply without a request";
                io.report(&Violation::rule("unsolicited_reply", Culprit::Upstream, text));
                self.drop_pin(io);
                self.lose_state(io);
                return true;
            }
        }
        wakes || self.wants_wake()
    }

    fn leave_if_refused(&mut self, io: &impl Io) {
        let is_over = |tunnel: &mut Box<Tunnel>| tunnel.is_refused && tunnel.expected == 0;
        if self.tunnel.take_if(is_over).is_none() {
            return;
        }
        io.set_tunnel(false);
        if let Some((_, pins)) = &mut self.pins {
            pins.remove(PinReason::Monitor);
        }
        self.settle_pin(io);
    }
}
