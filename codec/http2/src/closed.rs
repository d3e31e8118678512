//! Streams that are over, as far as they are remembered.

use std::collections::VecDeque;

use crate::config::RESET_STREAMS_KEPT;

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// This side has reset it: frames of it may be in flight.
    ResetHere,
    /// The peer has reset it.
    ResetByPeer,
    /// Both sides have ended it.
    Complete,
}

/// Streams that ended in another way than by a reset of this side, of which the last ones are known: it matters only for the error that
/// their sender gets.
const ENDED_KEPT: usize = 8;

/// Marks a stream that the peer has reset: numbers of streams have 31 bits.
const BY_PEER: u32 = 1 << 31;

/// The last streams that are over.
#[derive(Debug, Default)]
pub(crate) struct ClosedStreams {
    reset: VecDeque<u32>,
    ended: [u32; ENDED_KEPT],
    next: usize,
}

impl ClosedStreams {
    pub(crate) fn push(&mut self, number: u32, ending: Ending) {
        if ending == Ending::ResetHere {
            // Perhaps the peer has reset it before, and sent more.
            self.ended.iter_mut().filter(|ended| **ended == number | BY_PEER).for_each(|ended| *ended = 0);
            if self.reset.len() == RESET_STREAMS_KEPT {
                self.reset.pop_front();
            }
            self.reset.push_back(number);
            return;
        }
        self.ended[self.next] = if ending == Ending::ResetByPeer { number | BY_PEER } else { number };
        self.next = (self.next + 1) % ENDED_KEPT;
    }

    /// How the stream ended; `None`: that is forgotten, or it was never opened.
    pub(crate) fn find(&self, number: u32) -> Option<Ending> {
        if self.ended.contains(&number) {
            return Some(Ending::Complete);
        }
        if self.ended.contains(&(number | BY_PEER)) {
            return Some(Ending::ResetByPeer);
        }
        // The last ones are in question more often.
        self.reset.iter().rev().any(|reset| *reset == number).then_some(Ending::ResetHere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_streams_are_known_by_their_ending() {
        let mut closed = ClosedStreams::default();
        assert_eq!(closed.find(1), None);
        closed.push(1, Ending::Complete);
        closed.push(3, Ending::ResetByPeer);
        (0..2_000).for_each(|at| closed.push(5 + 2 * at, Ending::ResetHere));
        assert_eq!((closed.find(1), closed.find(3)), (Some(Ending::Complete), Some(Ending::ResetByPeer)));
        assert_eq!((closed.find(5), closed.find(4_003)), (None, Some(Ending::ResetHere)));
        assert_eq!(closed.reset.len(), RESET_STREAMS_KEPT);
        (0..8).for_each(|at| closed.push(5_001 + 2 * at, Ending::Complete));
        assert_eq!((closed.find(1), closed.find(5_015)), (None, Some(Ending::Complete)));
    }
}
