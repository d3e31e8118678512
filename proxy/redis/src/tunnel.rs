//! Subscriptions and MONITOR: the client's own lane speaks without being asked.
//!
//! In this mode frames of the lane go to the client as they come, in the server's own order. What the session must know is
//! only which of them answer a command, and how many subscriptions are left. Behind each SUBSCRIBE or UNSUBSCRIBE goes a
//! PING of the gateway's own, a fence: when its answer is here, all confirmations are. Commands in a tunnel are numbered
//! with all the others ([`crate::ordering`]), so local replies between them find their place.

use std::collections::VecDeque;

use weir_analysis::redis::{Args, Class, Command, LocalCommand};
use weir_base::{error::Culprit, violation::Violation};
use weir_resp::Version;
use weir_upstream::FrameKind;

use crate::{
    io::Io,
    pin::PinReason,
    refusal,
    request::Request,
    state::{Hold, State, Taken},
};

const FENCE: &[u8] = b"*1\r\n$4\r\nPING\r\n";
/// Bytes that tell what a frame is: `*4\r\n$12\r\npunsubscribe\r\n` and a little more.
const HEAD_BYTES: usize = 28;
/// Bytes at the end of a confirmation that hold its count: `:` and up to 20 digits and CRLF.
const TAIL_BYTES: usize = 24;

/// What the frames of the lane are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Subscribed,
    Monitor,
}

/// What ends the oldest command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// Its reply, behind `skip` others that are swallowed (those of a transaction's inner commands).
    Reply { skip: u32 },
    /// The answer to a PING of the gateway's own, swallowed.
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Message,
    /// A confirmation; shard subscriptions are counted apart.
    Confirmation {
        is_shard: bool,
    },
    /// The error of a SUBSCRIBE that the server refuses; its fence is still to come.
    Refusal,
    Reply,
    /// The reply to an inner command of a transaction.
    Inner,
    Fence,
    /// A reply that nobody waits for.
    Stray,
}

/// The state of a client whose lane speaks by itself.
#[derive(Debug)]
pub(crate) struct Tunnel {
    mode: Mode,
    /// MONITOR has been answered.
    is_monitoring: bool,
    /// Channels and patterns, and shard channels, as the server counts them.
    subscriptions: [u64; 2],
    expected: VecDeque<Expect>,
    /// The oldest command has had a confirmation or an error: what else it gets is its fence's answer.
    is_told: bool,
    frame: Option<Frame>,
    /// The first bytes of a frame that is not recognised yet.
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Tunnel {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            is_monitoring: false,
            subscriptions: [0; 2],
            expected: VecDeque::new(),
            is_told: false,
            frame: None,
            head: Vec::new(),
            tail: Vec::new(),
        }
    }

    /// A command was sent whose reply comes behind `skip` others.
    pub(crate) fn expect_reply(&mut self, skip: u32) {
        self.expected.push_back(Expect::Reply { skip });
    }

    fn is_over(&self) -> bool {
        self.mode == Mode::Subscribed && self.subscriptions == [0, 0] && self.expected.is_empty()
    }

    /// The refusal for a command that this mode does not allow.
    pub(crate) fn forbids(&self, command: &Command, class: Class, version: Version) -> Option<String> {
        let is_always_allowed =
            matches!(class, Class::Local(LocalCommand::Ping | LocalCommand::Quit | LocalCommand::Reset));
        let is_subscription = matches!(class, Class::Subscribe | Class::Unsubscribe);
        match self.mode {
            Mode::Monitor if !is_always_allowed => {
                Some("ERR weir: only QUIT and RESET are possible after MONITOR".into())
            }
            Mode::Subscribed if version == Version::Resp2 && !is_always_allowed && !is_subscription => {
                Some(refusal::subscribed(command.name))
            }
            _ => None,
        }
    }

    /// What the frame that begins with `head` is; `None` if that is too little to tell.
    fn recognise(&self, head: &[u8], is_push: bool, is_whole: bool, version: Version) -> Option<Frame> {
        if self.mode == Mode::Monitor {
            return match head {
                // A line of MONITOR begins with the time.
                [b'+', b'0'..=b'9', ..] => Some(Frame::Message),
                [b'+'] if !is_whole => None,
                _ if is_push => Some(Frame::Message),
                _ => Some(self.answer(head)),
            };
        }
        // In RESP3 an array is an answer, whatever it holds.
        let may_be_message = is_push || (version == Version::Resp2 && head.starts_with(b"*"));
        if !may_be_message {
            return Some(self.answer(head));
        }
        if head.len() < HEAD_BYTES && !is_whole {
            return None;
        }
        match first_element(head) {
            b"subscribe" | b"unsubscribe" | b"psubscribe" | b"punsubscribe" => {
                Some(Frame::Confirmation { is_shard: false })
            }
            b"ssubscribe" | b"sunsubscribe" => Some(Frame::Confirmation { is_shard: true }),
            b"message" | b"pmessage" | b"smessage" => Some(Frame::Message),
            _ if is_push => Some(Frame::Message),
            _ => Some(self.answer(head)),
        }
    }

    /// Which answer the frame is, as it is neither message nor confirmation.
    fn answer(&self, head: &[u8]) -> Frame {
        match self.expected.front() {
            Some(Expect::Reply { skip: 0 }) => Frame::Reply,
            Some(Expect::Reply { .. }) => Frame::Inner,
            Some(Expect::Fence) if matches!(head, [b'-' | b'!', ..]) && !self.is_told => Frame::Refusal,
            Some(Expect::Fence) => Frame::Fence,
            None => Frame::Stray,
        }
    }

    /// The first reply after MONITOR is its own. True if the server refused it.
    fn begin_monitor(&mut self, kind: FrameKind) -> bool {
        if self.mode != Mode::Monitor || std::mem::replace(&mut self.is_monitoring, true) {
            return false;
        }
        let is_refused = kind == FrameKind::Error;
        if is_refused {
            self.is_monitoring = false;
            self.mode = Mode::Subscribed;
        }
        is_refused
    }

    /// A frame is complete.
    fn note_end(&mut self, frame: Frame) {
        match frame {
            Frame::Message | Frame::Stray => {}
            Frame::Confirmation { is_shard } => {
                self.subscriptions[usize::from(is_shard)] = trailing_count(&self.tail);
                self.is_told = true;
            }
            Frame::Refusal => self.is_told = true,
            Frame::Inner => {
                if let Some(Expect::Reply { skip }) = self.expected.front_mut() {
                    *skip -= 1;
                }
            }
            Frame::Reply | Frame::Fence => {
                self.expected.pop_front();
                self.is_told = false;
            }
        }
        self.frame = None;
        self.tail.clear();
    }

    fn note_tail(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
    }
}

/// The first string of an array or push: the bytes between its length line and the next line end.
fn first_element(head: &[u8]) -> &[u8] {
    head.split(|&byte| byte == b'\n').nth(2).and_then(|line| line.strip_suffix(b"\r")).unwrap_or_default()
}

/// The integer that a confirmation ends with.
fn trailing_count(tail: &[u8]) -> u64 {
    let digits = tail.rsplit(|&byte| byte == b':').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|text| text.trim_end().parse().ok()).unwrap_or(0)
}

impl State {
    /// SUBSCRIBE and UNSUBSCRIBE in their three forms.
    pub(crate) fn subscribe(
        &mut self,
        command: &'static Command,
        class: Class,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Taken {
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Taken::Held;
        }
        if self.is_ended {
            self.is_closing = true;
            return Taken::Yes;
        }
        let held = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.subscriptions.iter().sum());
        let asked = request.argc() as u64 - 1;
        if class == Class::Subscribe && held + asked > u64::from(self.settings.subscriptions_max) {
            io.count_refused(Some(command), "subscriptions");
            return self.error(io, refusal::SUBSCRIPTIONS);
        }
        let key = match self.lane_key(command, request, io) {
            Ok(key) => key,
            Err(text) => return self.error(io, text),
        };
        if let Err(taken) = self.need_pin(PinReason::Subscribe, key, Some(command), io) {
            return taken;
        }
        io.count(Some(command), 1);
        self.open_tunnel(Mode::Subscribed, io).expected.push_back(Expect::Fence);
        request.with_wire(|wire| io.write_pinned(wire));
        io.write_pinned(FENCE);
        self.order.sent();
        Taken::Yes
    }

    /// MONITOR.
    pub(crate) fn monitor(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Taken::Held;
        }
        if self.is_sharded {
            io.count_refused(Some(command), "unsupported_command");
            return self.error(io, refusal::NOT_OVER_SHARDS);
        }
        if let Err(taken) = self.need_pin(PinReason::Monitor, self.key(), Some(command), io) {
            return taken;
        }
        io.count(Some(command), 1);
        self.open_tunnel(Mode::Monitor, io).mode = Mode::Monitor;
        self.send_in_tunnel(request, io);
        Taken::Yes
    }

    fn open_tunnel(&mut self, mode: Mode, io: &impl Io) -> &mut Tunnel {
        self.tunnel.get_or_insert_with(|| {
            io.set_tunnel(true);
            Box::new(Tunnel::new(mode))
        })
    }

    /// Sends a command of a subscribed client.
    pub(crate) fn forward_in_tunnel(
        &mut self,
        command: &'static Command,
        request: &Request<'_>,
        io: &impl Io,
    ) -> Taken {
        io.count(Some(command), 1);
        self.send_in_tunnel(request, io);
        Taken::Yes
    }

    pub(crate) fn send_in_tunnel(&mut self, request: &Request<'_>, io: &impl Io) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.expect_reply(0);
            request.with_wire(|wire| io.write_pinned(wire));
            self.order.sent();
        }
    }

    pub(crate) fn on_frame(&mut self, bytes: &[u8], end: Option<FrameKind>, is_push: bool, io: &impl Io) -> bool {
        let version = self.version;
        if self.tunnel.is_none() {
            return self.on_notice(bytes, end, io);
        }
        let moved = self.unless_moved(bytes, end, io);
        let bytes = &*moved;
        let Some(tunnel) = &mut self.tunnel else { return false };
        let (frame, head) = match tunnel.frame {
            Some(frame) => (frame, None),
            None => {
                tunnel.head.extend_from_slice(bytes);
                let recognised = tunnel.recognise(&tunnel.head, is_push, end.is_some(), version);
                let Some(frame) = recognised else { return false };
                tunnel.frame = Some(frame);
                (frame, Some(std::mem::take(&mut tunnel.head)))
            }
        };
        let bytes = head.as_deref().unwrap_or(bytes);
        tunnel.note_tail(bytes);
        let passes = match frame {
            Frame::Inner | Frame::Fence | Frame::Stray => false,
            Frame::Message | Frame::Confirmation { .. } => true,
            Frame::Reply | Frame::Refusal => !self.order.is_muted(self.order.oldest()),
        };
        if passes {
            self.pass(bytes, end.is_some(), io);
        }
        if frame == Frame::Reply
            && let Some(change) = &mut self.changes_db
        {
            change.note(self.order.oldest(), bytes);
        }
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.end_frame(frame, kind, io)
    }

    /// A push on a pinned lane that is not subscribed (a server's notice): between replies it is the client's.
    fn on_notice(&mut self, bytes: &[u8], end: Option<FrameKind>, io: &impl Io) -> bool {
        // Over shards it could come into the middle of another one's reply; nothing that a client may ask for makes one.
        if self.version == Version::Resp3 && !self.is_sharded {
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
        tunnel.note_end(frame);
        let is_refused = frame == Frame::Reply && tunnel.begin_monitor(kind);
        if is_refused && let Some((_, pins)) = &mut self.pins {
            pins.remove(PinReason::Monitor);
        }
        let mut wakes = false;
        match frame {
            Frame::Reply | Frame::Fence => wakes = self.complete(kind, io),
            Frame::Stray => {
                let text = "a reply that nobody asked for";
                io.report(&Violation::rule("unsolicited_reply", Culprit::Upstream, text));
                self.drop_pin(io);
                self.lose_state(io);
                return true;
            }
            _ => self.flush_due(io),
        }
        if self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_over()) {
            self.tunnel = None;
            io.set_tunnel(false);
            if let Some((_, pins)) = &mut self.pins {
                pins.remove(PinReason::Subscribe);
            }
            self.settle_pin(io);
        }
        wakes || self.wants_wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_tells_the_frame_and_the_tail_the_count() {
        let mut tunnel = Tunnel::new(Mode::Subscribed);
        tunnel.expect_reply(0);
        let recognise = |head: &[u8], is_whole| tunnel.recognise(head, false, is_whole, Version::Resp2);
        let confirmation = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:17\r\n";
        assert_eq!(recognise(confirmation, true), Some(Frame::Confirmation { is_shard: false }));
        assert_eq!(trailing_count(&confirmation[confirmation.len() - TAIL_BYTES..]), 17);
        assert_eq!(recognise(b"*3\r\n$7\r\nmess", false), None);
        assert_eq!(recognise(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", true), Some(Frame::Reply));
        assert_eq!(recognise(b"+PONG\r\n", true), Some(Frame::Reply));
        let array_of_resp3 = tunnel.recognise(confirmation, false, true, Version::Resp3);
        assert_eq!(array_of_resp3, Some(Frame::Reply), "data that only looks like a confirmation");
    }
}
