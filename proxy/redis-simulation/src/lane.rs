//! An upstream connection: what the gateway wrote, what the server made of it, what of that has been read.

use std::collections::VecDeque;

use weir_base::exchange::FrameKind;
use weir_redis_session::{
    io::Ticket,
    lane::{self, LaneKey},
};
use weir_resp::{ReplyFramer, RequestLimits, RequestParser, Step};

use crate::server::{ServerConnection, Shared};

/// Bytes on the way to the server above which a lane counts as congested.
const CONGESTED_BYTES: usize = 512;

/// A request without its reply.
#[derive(Debug)]
pub struct Pending {
    /// The session's number for it.
    pub number: u64,
    skip: u32,
    bytes: usize,
    is_sent: bool,
}

/// A piece of what a lane read.
#[derive(Debug)]
pub enum Piece {
    /// A piece of the reply to an exchange.
    Reply {
        /// The session's number.
        number: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// Set with the last piece.
        end: Option<FrameKind>,
    },
    /// Whole plain replies to consecutive exchanges; the first may have begun earlier.
    Replies {
        /// The session's number of the first.
        first: u64,
        /// How many.
        count: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A piece of an unpaired frame.
    Frame {
        /// The bytes.
        bytes: Vec<u8>,
        /// Set with the last piece.
        end: Option<FrameKind>,
        /// Marked as out of band.
        is_push: bool,
    },
    /// Swallowed by the lane.
    Inner,
}

/// Bytes of each of the commands in `requests`.
fn command_sizes(mut requests: &[u8]) -> Vec<usize> {
    let mut parser = RequestParser::new();
    let mut sizes = Vec::new();
    while let Ok(Step::Command { len, .. }) = parser.parse(requests, &RequestLimits::default()) {
        sizes.push(len);
        requests = &requests[len..];
    }
    assert!(requests.is_empty(), "whole requests");
    sizes
}

/// One upstream connection.
pub struct Lane {
    /// Its purpose.
    pub key: LaneKey,
    /// The other end.
    pub server: ServerConnection,
    /// Frames come unpaired.
    pub is_tunnel: bool,
    /// It takes no more requests; what waits on it is still answered.
    pub is_retired: bool,
    /// It is lost, and the session does not know yet.
    pub is_ruin: bool,
    pending: VecDeque<Pending>,
    unsent: Vec<u8>,
    outbox: VecDeque<u8>,
    framer: ReplyFramer,
    is_mid_frame: bool,
}

impl Lane {
    /// A lane greeted for `key`.
    pub fn new(key: LaneKey) -> Self {
        Self {
            key,
            server: ServerConnection::new(key),
            is_tunnel: false,
            is_retired: false,
            is_ruin: false,
            pending: VecDeque::new(),
            unsent: Vec::new(),
            outbox: VecDeque::new(),
            framer: ReplyFramer::default(),
            is_mid_frame: false,
        }
    }

    /// Queues a request.
    pub fn send(&mut self, request: &[u8], ticket: Ticket) {
        assert!(!self.is_tunnel, "a paired request in a tunnel");
        let Ticket { number, count, skip, .. } = ticket;
        let sizes = if count > 1 { command_sizes(request) } else { vec![request.len()] };
        assert_eq!(sizes.len() as u64, count, "as many requests as the ticket says");
        for (number, bytes) in (number..).zip(sizes) {
            self.pending.push_back(Pending { number, skip, bytes, is_sent: false });
        }
        self.unsent.extend_from_slice(request);
    }

    /// Queues bytes that belong to no new exchange.
    pub fn write(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Hands the output to the kernel; false if there is none.
    pub fn flush(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.unsent);
        self.pending.iter_mut().for_each(|pending| pending.is_sent = true);
        self.server.receive(&bytes);
        !bytes.is_empty()
    }

    /// The server executes one command; false if there is none.
    pub fn execute_one(&mut self, shared: &mut Shared) -> bool {
        let mut out = Vec::new();
        let did = self.server.execute_one(shared, &mut out);
        self.outbox.extend(out);
        did
    }

    /// The server speaks.
    pub fn speak(&mut self, say: impl FnOnce(&mut ServerConnection, &mut Vec<u8>)) {
        let mut out = Vec::new();
        say(&mut self.server, &mut out);
        self.outbox.extend(out);
    }

    /// The next piece of at most `bytes` that the server said, as many replies in one as may be; with the number of its bytes.
    pub fn read(&mut self, bytes: usize, takes_runs: bool) -> Option<(Piece, usize)> {
        let (piece, mut taken) = self.read_one(bytes)?;
        let Piece::Reply { number: first, bytes: mut said, end: Some(FrameKind::Reply) } = piece else {
            return Some((piece, taken));
        };
        let mut count = 1;
        while takes_runs
            && self.next_is_plain(first + count, bytes - taken)
            && let Some((Piece::Reply { bytes: more, .. }, len)) = self.read_one(bytes - taken)
        {
            count += 1;
            said.extend(more);
            taken += len;
        }
        let piece = match count {
            1 => Piece::Reply { number: first, bytes: said, end: Some(FrameKind::Reply) },
            _ => Piece::Replies { first, count, bytes: said },
        };
        Some((piece, taken))
    }

    /// The next `bytes` bytes hold the whole plain reply to exchange `number`.
    fn next_is_plain(&self, number: u64, bytes: usize) -> bool {
        let chunk: Vec<u8> = self.outbox.iter().take(bytes).copied().collect();
        let is_next = self.pending.front().is_some_and(|next| next.number == number && next.skip == 0);
        let scan = || lane::scan(&mut ReplyFramer::default(), &chunk).expect("the model server is correct");
        is_next && !self.is_tunnel && scan().end == Some(FrameKind::Reply)
    }

    fn read_one(&mut self, bytes: usize) -> Option<(Piece, usize)> {
        let chunk: Vec<u8> = self.outbox.iter().take(bytes).copied().collect();
        if chunk.is_empty() {
            return None;
        }
        let scan = lane::scan(&mut self.framer, &chunk).expect("the model server is correct");
        let bytes: Vec<u8> = self.outbox.drain(..scan.taken).collect();
        self.is_mid_frame = scan.end.is_none();
        if scan.is_push || self.is_tunnel {
            return Some((Piece::Frame { bytes, end: scan.end, is_push: scan.is_push }, scan.taken));
        }
        let oldest = self.pending.front_mut().expect("a reply without a request");
        if oldest.skip > 0 {
            oldest.skip -= u32::from(scan.end.is_some());
            return Some((Piece::Inner, scan.taken));
        }
        let number = oldest.number;
        if scan.end.is_some() {
            self.pending.pop_front();
        }
        Some((Piece::Reply { number, bytes, end: scan.end }, scan.taken))
    }

    /// The connection is gone. Gives the numbers of the exchanges that are lost, and a lane that has those which were never
    /// sent, if this one is shared.
    pub fn lose(self, is_shared: bool) -> (Vec<u64>, Lane) {
        let (lost, kept): (VecDeque<_>, VecDeque<_>) =
            self.pending.into_iter().partition(|pending| pending.is_sent || !is_shared);
        let mut next = Lane::new(self.key);
        next.pending = kept;
        next.unsent = if is_shared { self.unsent } else { Vec::new() };
        (lost.into_iter().map(|pending| pending.number).collect(), next)
    }

    /// Gives up the oldest request, if none has been sent: it waited too long for a connection.
    pub fn refuse_oldest(&mut self) -> Option<u64> {
        if self.pending.front()?.is_sent {
            return None;
        }
        let oldest = self.pending.pop_front()?;
        self.unsent.drain(..oldest.bytes);
        Some(oldest.number)
    }

    /// Requests without a complete reply.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Something is on its way in either direction.
    pub fn is_busy(&self) -> bool {
        !self.unsent.is_empty() || !self.outbox.is_empty()
    }

    /// The gateway wrote more than the server took.
    pub fn is_congested(&self) -> bool {
        self.unsent.len() > CONGESTED_BYTES
    }

    /// The reason why no other client may have this lane, if any.
    pub fn dirt(&self) -> Option<&'static str> {
        let rules = [
            (self.is_tunnel, "a tunnel"),
            (!self.pending.is_empty(), "an exchange without its reply"),
            (!self.unsent.is_empty(), "bytes not sent"),
            (!self.outbox.is_empty(), "bytes not read"),
            (self.is_mid_frame, "half a frame"),
        ];
        rules.iter().find(|(holds, _)| *holds).map(|(_, what)| *what).or_else(|| self.server.dirt())
    }

    /// Why a shared lane is not fit for others although requests are under way, if so.
    pub fn shared_dirt(&self) -> Option<&'static str> {
        let is_between_commands = self.unsent.is_empty() && self.pending.is_empty();
        if is_between_commands { self.dirt() } else { None }
    }
}
