//! Subscriptions and MONITOR: the client's own lane speaks without being asked.
//!
//! In this mode frames of the lane go to the client as they come, in the server's own order. What the session must know is
//! only which of them answer a command, and how many subscriptions are left. Behind each SUBSCRIBE or UNSUBSCRIBE goes a
//! PING of the gateway's own, a fence: when its answer is here, all confirmations are.

use std::collections::VecDeque;

use weir_analysis::redis::{Args, Class, Command, LocalCommand};
use weir_resp::Version;
use weir_upstream::FrameKind;

use crate::{
    io::Io,
    pin::PinReason,
    refusal,
    session::{Hold, Request, State, Taken},
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Reply,
    /// The answer to a PING of the gateway's own: swallowed.
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frame {
    Message,
    /// A confirmation; shard subscriptions are counted apart.
    Confirmation {
        is_shard: bool,
    },
    Answer(Expect),
}

/// The state of a client whose lane speaks by itself.
#[derive(Debug)]
pub(crate) struct Tunnel {
    mode: Mode,
    /// Channels and patterns, and shard channels, as the server counts them.
    subscriptions: [u64; 2],
    expected: VecDeque<Expect>,
    frame: Option<Frame>,
    /// The first bytes of a frame that is not recognised yet.
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Tunnel {
    fn new(mode: Mode) -> Self {
        Self { mode, subscriptions: [0; 2], expected: VecDeque::new(), frame: None, head: Vec::new(), tail: Vec::new() }
    }

    pub(crate) fn expect_reply(&mut self) {
        self.expected.push_back(Expect::Reply);
    }

    pub(crate) fn expect_fence(&mut self) {
        self.expected.push_back(Expect::Fence);
    }

    /// Every command has been answered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.expected.is_empty()
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
    fn recognise(&self, head: &[u8], is_push: bool, is_whole: bool) -> Option<Frame> {
        let answer = || Some(Frame::Answer(self.expected.front().copied().unwrap_or(Expect::Reply)));
        if self.mode == Mode::Monitor {
            return match self.expected.front() {
                Some(&expect) => Some(Frame::Answer(expect)),
                None => Some(Frame::Message),
            };
        }
        if !is_push && !head.starts_with(b"*") {
            return answer();
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
            _ => answer(),
        }
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
        let held = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.subscriptions.iter().sum());
        let asked = request.argc() as u64 - 1;
        if class == Class::Subscribe && held + asked > u64::from(self.settings.subscriptions_max) {
            io.count_shed("subscriptions");
            return self.error(io, refusal::SUBSCRIPTIONS);
        }
        if let Err(taken) = self.need_pin(PinReason::Subscribe, self.key(), io) {
            return taken;
        }
        io.count(Some(command));
        let tunnel = self.open_tunnel(Mode::Subscribed, io);
        tunnel.expect_fence();
        request.with_wire(|wire| io.write_pinned(wire));
        io.write_pinned(FENCE);
        Taken::Yes
    }

    /// MONITOR.
    pub(crate) fn monitor(&mut self, command: &'static Command, request: &Request<'_>, io: &impl Io) -> Taken {
        if !self.is_quiet() {
            self.hold = Some(Hold::Quiet);
            return Taken::Held;
        }
        if let Err(taken) = self.need_pin(PinReason::Monitor, self.key(), io) {
            return taken;
        }
        io.count(Some(command));
        let tunnel = self.open_tunnel(Mode::Monitor, io);
        tunnel.mode = Mode::Monitor;
        tunnel.expect_reply();
        request.with_wire(|wire| io.write_pinned(wire));
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
        if let Some(tunnel) = &mut self.tunnel {
            io.count(Some(command));
            tunnel.expect_reply();
            request.with_wire(|wire| io.write_pinned(wire));
        }
        Taken::Yes
    }

    pub(crate) fn on_frame(&mut self, bytes: &[u8], end: Option<FrameKind>, is_push: bool, io: &impl Io) -> bool {
        let Some(tunnel) = &mut self.tunnel else {
            // A push on a pinned lane that is not subscribed (a server's notice): between replies it is the client's.
            if self.version == Version::Resp3 {
                io.reply(|out| out.extend_from_slice(bytes));
            }
            return false;
        };
        let frame = match tunnel.frame {
            Some(frame) => {
                tunnel.note_tail(bytes);
                Self::pass(frame, bytes, io);
                frame
            }
            None => {
                tunnel.head.extend_from_slice(bytes);
                let Some(frame) = tunnel.recognise(&tunnel.head, is_push, end.is_some()) else { return false };
                let head = std::mem::take(&mut tunnel.head);
                tunnel.frame = Some(frame);
                tunnel.note_tail(&head);
                Self::pass(frame, &head, io);
                frame
            }
        };
        let Some(kind) = end else { return false };
        if kind == FrameKind::Error {
            io.count_error(bytes);
        }
        self.end_frame(frame, io)
    }

    fn pass(frame: Frame, bytes: &[u8], io: &impl Io) {
        if frame != Frame::Answer(Expect::Fence) {
            io.reply(|out| out.extend_from_slice(bytes));
        }
    }

    fn end_frame(&mut self, frame: Frame, io: &impl Io) -> bool {
        let Some(tunnel) = &mut self.tunnel else { return false };
        let count = trailing_count(&tunnel.tail);
        tunnel.frame = None;
        tunnel.tail.clear();
        match frame {
            Frame::Message => {}
            Frame::Confirmation { is_shard } => tunnel.subscriptions[usize::from(is_shard)] = count,
            Frame::Answer(_) => {
                tunnel.expected.pop_front();
            }
        }
        if tunnel.is_over() {
            self.tunnel = None;
            io.set_tunnel(false);
            if let Some((_, pins)) = &mut self.pins {
                pins.remove(PinReason::Subscribe);
            }
            self.settle_pin(io);
        }
        self.wants_wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_tells_the_frame_and_the_tail_the_count() {
        let tunnel = Tunnel::new(Mode::Subscribed);
        let confirmation = b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:17\r\n";
        assert_eq!(tunnel.recognise(confirmation, false, true), Some(Frame::Confirmation { is_shard: false }));
        assert_eq!(trailing_count(&confirmation[confirmation.len() - TAIL_BYTES..]), 17);
        assert_eq!(tunnel.recognise(b"*3\r\n$7\r\nmess", false, false), None);
        let pong = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(tunnel.recognise(pong, false, true), Some(Frame::Answer(Expect::Reply)));
        assert_eq!(tunnel.recognise(b"+PONG\r\n", false, true), Some(Frame::Answer(Expect::Reply)));
    }
}
