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
    /// The peer has ended it, and so has this side in some way.
    Complete,
}

/// Streams that ended in another way than by a reset of this side, of which the last ones are known: it matters only for the error that
/// their sender gets.
const ENDED_KEPT: usize = 8;

/// Marks a stream that the peer has reset: numbers of streams have 31 bits.
const BY_PEER: u32 = 1 << 31;

/// Marks a stream of [`ClosedStreams::reset`] that the peer has ended behind the reset.
const IS_ENDED: u32 = 1;

/// The last streams that are over.
#[derive(Debug, Default)]
pub(crate) struct ClosedStreams {
    /// Numbers of streams that this side has reset, times 2, with [`IS_ENDED`]; ascending, so that a search is short.
    reset: VecDeque<u32>,
    /// The same numbers in the order of their resets.
    order: VecDeque<u32>,
    ended: [u32; ENDED_KEPT],
    next: usize,
}

impl ClosedStreams {
    pub(crate) fn push(&mut self, number: u32, ending: Ending) {
        if ending == Ending::ResetHere {
            // Perhaps the peer has reset it before, and sent more.
            self.ended.iter_mut().filter(|ended| **ended == number | BY_PEER).for_each(|ended| *ended = 0);
            self.push_reset(number);
            return;
        }
        self.ended[self.next] = if ending == Ending::ResetByPeer { number | BY_PEER } else { number };
        self.next = (self.next + 1) % ENDED_KEPT;
    }

    fn push_reset(&mut self, number: u32) {
        if self.order.len() == RESET_STREAMS_KEPT
            && let Some(oldest) = self.order.pop_front()
            && let Ok(at) = self.find_reset(oldest)
        {
            self.reset.remove(at);
        }
        if let Err(at) = self.find_reset(number) {
            self.reset.insert(at, number << 1);
            self.order.push_back(number);
        }
    }

    fn find_reset(&self, number: u32) -> Result<usize, usize> {
        self.reset.binary_search_by_key(&number, |reset| reset >> 1)
    }

    /// True if this side has reset the stream, also if the peer has ended it since.
    pub(crate) fn is_reset_here(&self, number: u32) -> bool {
        self.find_reset(number).is_ok()
    }

    /// The peer has ended a stream that this side has reset: no more frames of it are in flight.
    pub(crate) fn end(&mut self, number: u32) {
        if let Ok(at) = self.find_reset(number) {
            self.reset[at] |= IS_ENDED;
        }
    }

    /// How the stream ended; `None`: that is forgotten, or it was never opened.
    pub(crate) fn find(&self, number: u32) -> Option<Ending> {
        if self.ended.contains(&number) {
            return Some(Ending::Complete);
        }
        if self.ended.contains(&(number | BY_PEER)) {
            return Some(Ending::ResetByPeer);
        }
        let at = self.find_reset(number).ok()?;
        Some(if self.reset[at] & IS_ENDED == 0 { Ending::ResetHere } else { Ending::Complete })
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
        assert_eq!((closed.reset.len(), closed.order.len()), (RESET_STREAMS_KEPT, RESET_STREAMS_KEPT));
        // An old stream that is reset late is kept as long as any other.
        closed.push(7, Ending::ResetHere);
        (2_000..3_000).for_each(|at| closed.push(5 + 2 * at, Ending::ResetHere));
        assert_eq!(closed.find(7), Some(Ending::ResetHere));
        closed.end(7);
        assert_eq!(closed.find(7), Some(Ending::Complete));
        (3_000..3_030).for_each(|at| closed.push(5 + 2 * at, Ending::ResetHere));
        assert_eq!((closed.find(7), closed.reset.len()), (None, RESET_STREAMS_KEPT));
        (0..8).for_each(|at| closed.push(5_001 + 2 * at, Ending::Complete));
        assert_eq!((closed.find(1), closed.find(5_015)), (None, Some(Ending::Complete)));
    }
}
