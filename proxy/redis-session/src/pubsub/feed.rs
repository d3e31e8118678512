//! One subscription lane as the registry sees it: what the server still owes, and the frame that is arriving.

use std::{collections::VecDeque, rc::Rc};

use weir_base::{error::Culprit, exchange::Scan, time::Time, violation::Violation};
use weir_resp::ReplyFramer;

use super::frame::Kind;
use crate::lane;

/// The name of a channel or pattern.
pub type Name = Rc<[u8]>;

/// A frame is held until it is whole, so that it can be copied to many without one of them holding up the others. Bytes of
/// the largest. It is what a subscriber may have unread: a subscriber that received a larger one would be evicted.
pub const FRAME_BYTES_MAX: usize = 32 << 20;

/// Capacity that the buffer of a held frame keeps. Larger ones are rare.
const HELD_BYTES_KEPT: usize = 64 << 10;

/// A client and its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) client: usize,
    /// Serial number of the command: the reply to an abandoned command is dropped.
    pub(crate) serial: u64,
}

/// A request to the server, and its expected end.
#[derive(Debug)]
pub(crate) enum Expect {
    /// `left` more confirmations, or one error.
    Subscribe { who: Requester, kind: Kind, left: usize },
    /// One confirmation for each of the names, or one error.
    Unsubscribe { who: Option<Requester>, kind: Kind, names: VecDeque<Name> },
    /// The reply to a PING: all that was said before has arrived.
    Fence { who: Option<Requester> },
    /// As `Subscribe`, for those who were subscribed before the connection was lost.
    Resubscribe { kind: Kind, names: Vec<Name>, left: usize },
    /// The reply to a PUBLISH.
    Publish { who: Requester },
}

/// The progress of a frame after a piece of input.
pub enum FrameProgress {
    /// The middle of a frame.
    Piece,
    /// A frame, whole in the input.
    Frame,
    /// A frame that came in pieces.
    Held(Vec<u8>),
    /// The beginning of a frame that is too large; the rest is dropped.
    TooLarge(Vec<u8>),
}

/// See the module's documentation.
#[derive(Default)]
pub struct Feed {
    /// There is a connection.
    pub(crate) is_open: bool,
    /// Oldest first, with the time at which it was sent.
    pub(crate) expected: VecDeque<(Expect, Time)>,
    /// The names to subscribe again, command by command.
    pub(crate) again: VecDeque<(Kind, Vec<Name>)>,
    /// When the server last said something.
    pub(crate) heard_at: Time,
    /// Time since when the connection has been unused.
    pub(crate) unused_since: Option<Time>,
    framer: ReplyFramer,
    held: Vec<u8>,
    is_skipping: bool,
}

impl Feed {
    /// A fresh connection.
    pub fn open(&mut self, now: Time) {
        debug_assert!(self.expected.is_empty() && !self.is_open);
        *self = Self { is_open: true, heard_at: now, ..Self::default() };
    }

    /// The connection is gone: what it owes will not come.
    pub(crate) fn close(&mut self) -> VecDeque<(Expect, Time)> {
        let lost = std::mem::take(&mut self.expected);
        *self = Self::default();
        lost
    }

    /// Takes the next piece of `input`, up to the end of a frame; its bytes and what it was.
    ///
    /// # Errors
    /// The server broke the protocol.
    pub fn take(&mut self, input: &[u8]) -> Result<(usize, FrameProgress), Violation> {
        let Scan { taken, end, .. } = lane::scan(&mut self.framer, input)?;
        let is_end = end.is_some();
        if self.is_skipping {
            self.is_skipping = !is_end;
            return Ok((taken, FrameProgress::Piece));
        }
        if is_end && self.held.is_empty() {
            return Ok((taken, FrameProgress::Frame));
        }
        self.held.extend_from_slice(&input[..taken]);
        if self.held.len() > FRAME_BYTES_MAX {
            self.is_skipping = !is_end;
            return Ok((taken, FrameProgress::TooLarge(std::mem::take(&mut self.held))));
        }
        let held = if is_end { FrameProgress::Held(std::mem::take(&mut self.held)) } else { FrameProgress::Piece };
        Ok((taken, held))
    }

    /// Gives the buffer of a held frame back.
    pub fn give_back(&mut self, mut held: Vec<u8>) {
        if held.capacity() <= HELD_BYTES_KEPT {
            held.clear();
            self.held = held;
        }
    }

    /// The time of the oldest request without a reply, or of the last received frame if that is later; `None` if nothing is
    /// owed.
    pub(crate) fn waits_since(&self) -> Option<Time> {
        let (_, sent) = self.expected.front()?;
        Some((*sent).max(self.heard_at))
    }
}

/// The server sends unsolicited data.
pub(crate) fn unsolicited(text: &'static str) -> Violation {
    Violation::rule("unsolicited_reply", Culprit::Upstream, text)
}
