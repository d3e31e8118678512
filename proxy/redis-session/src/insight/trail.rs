//! The last requests of a worker, as they were sent. A request that turns out to be slow, or its reply to be large, is gone
//! by then: its bytes went to the lane. So a copy of its beginning is kept for a while, in a ring that overwrites itself.
//!
//! One entry stands for a batch of a client, so a request costs a part of one copy of bytes that are in
//! the cache anyway. An entry is found by its time, which only grows.

use std::collections::VecDeque;

use weir_base::time::Time;

use crate::{io::Ticket, lane::LaneKey};

/// Bytes of requests kept: at 100,000 requests of 50 bytes per second those of the last 100 ms, ten times the default
/// threshold of the slow log. 512 KiB per worker, and 0.4 MiB for the entries.
const TEXT_BYTES: usize = 512 << 10;
/// Entries kept.
const HEADS_MAX: usize = 8_192;
/// Bytes kept of one request: what the slow log shows of 32 arguments of 128 bytes.
const REQUEST_BYTES_MAX: usize = 5 << 10;
/// Bytes kept of a batch.
const BATCH_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(BATCH_BYTES_MAX < TEXT_BYTES && REQUEST_BYTES_MAX < BATCH_BYTES_MAX);

/// The bytes that a client sent in one write.
#[derive(Clone, Copy)]
struct Head {
    at: Time,
    connection: u64,
    /// The session's number of the first request.
    number: u64,
    count: u64,
    /// Requests in front of the one that is answered: those of a transaction.
    skip: u32,
    shard: u16,
    db: u32,
    has_deadline: bool,
    /// Where the text begins, counted from the beginning of time.
    begin: u64,
    held: usize,
}

/// A request that was found again.
pub(super) struct TrailRequest {
    pub(super) at: Time,
    /// Which of the requests in `wire` it is.
    pub(super) index: u64,
    /// Requests of a transaction besides the one that is answered.
    pub(super) skip: u32,
    pub(super) shard: u16,
    pub(super) db: u32,
    /// False for one whose duration is the client's choice.
    pub(super) has_deadline: bool,
    /// The bytes that remain; empty if they were overwritten.
    pub(super) wire: Vec<u8>,
}

/// The ring.
#[derive(Default)]
pub(super) struct Trail {
    heads: VecDeque<Head>,
    text: Vec<u8>,
    /// Bytes written so far.
    end: u64,
}

impl Trail {
    /// Keeps what was just sent.
    #[inline]
    pub(super) fn add(&mut self, at: Time, connection: u64, ticket: Ticket, key: LaneKey, wire: &[u8]) {
        if self.text.is_empty() {
            self.allocate();
        }
        let most = if ticket.count > 1 || ticket.skip > 0 { BATCH_BYTES_MAX } else { REQUEST_BYTES_MAX };
        let held = wire.len().min(most);
        let place = (self.end % TEXT_BYTES as u64) as usize;
        let first = held.min(TEXT_BYTES - place);
        self.text[place..place + first].copy_from_slice(&wire[..first]);
        if first < held {
            self.text[..held - first].copy_from_slice(&wire[first..held]);
        }
        if self.heads.len() == HEADS_MAX {
            self.heads.pop_front();
        }
        self.heads.push_back(Head {
            at,
            connection,
            number: ticket.number,
            count: ticket.count,
            skip: ticket.skip,
            shard: key.shard,
            db: key.db,
            has_deadline: ticket.has_deadline,
            begin: self.end,
            held,
        });
        self.end += held as u64;
    }

    #[cold]
    fn allocate(&mut self) {
        self.text = vec![0; TEXT_BYTES];
        self.heads.reserve_exact(HEADS_MAX);
    }

    /// The request `number` of `connection`, which was sent in the turn of `at`. Sent twice in it, the latter.
    pub(super) fn find(&self, connection: u64, number: u64, at: Time) -> Option<TrailRequest> {
        let behind = self.heads.partition_point(|head| head.at <= at);
        let of_turn = self.heads.range(..behind).rev().take_while(|head| head.at == at);
        self.found(of_turn, connection, number)
    }

    /// As [`Trail::find`], whenever it was sent; this looks at everything.
    pub(super) fn find_any(&self, connection: u64, number: u64) -> Option<TrailRequest> {
        self.found(self.heads.iter().rev(), connection, number)
    }

    fn found<'a>(
        &self,
        mut heads: impl Iterator<Item = &'a Head>,
        connection: u64,
        number: u64,
    ) -> Option<TrailRequest> {
        let is_it =
            |head: &&Head| head.connection == connection && (head.number..head.number + head.count).contains(&number);
        let head = heads.find(is_it)?;
        let is_there = head.begin + TEXT_BYTES as u64 >= self.end;
        let byte = |at: u64| self.text[(at % TEXT_BYTES as u64) as usize];
        let wire = if is_there { (head.begin..head.begin + head.held as u64).map(byte).collect() } else { Vec::new() };
        Some(TrailRequest {
            at: head.at,
            index: number - head.number,
            skip: head.skip,
            shard: head.shard,
            db: head.db,
            has_deadline: head.has_deadline,
            wire,
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_resp::Version;

    use super::*;

    fn key() -> LaneKey {
        LaneKey::new(7, Version::Resp2)
    }

    fn ticket(number: u64, count: u64) -> Ticket {
        Ticket { count, ..Ticket::new(number) }
    }

    #[test]
    fn a_request_is_found_by_its_time_client_and_number() {
        let mut trail = Trail::default();
        assert!(trail.find(1, 0, Time::ZERO).is_none());
        for turn in 0..100u64 {
            for connection in 1..4 {
                let wire = format!("{connection}/{turn}");
                trail.add(Time::from_nanos(turn), connection, ticket(turn * 3, 3), key(), wire.as_bytes());
            }
        }
        let found = trail.find(2, 50 * 3 + 2, Time::from_nanos(50)).expect("it is kept");
        assert_eq!((found.index, found.shard, found.wire.as_slice()), (2, 7, &b"2/50"[..]));
        assert!(trail.find(2, 50 * 3, Time::from_nanos(51)).is_none(), "another turn");
        assert!(trail.find(4, 50 * 3, Time::from_nanos(50)).is_none(), "another client");
        assert_eq!(trail.find_any(3, 7).map(|found| (found.at, found.index)), Some((Time::from_nanos(2), 1)));
    }

    #[test]
    fn the_oldest_is_overwritten_and_then_not_found() {
        let mut trail = Trail::default();
        let wire = |number: u64| vec![(number % 251) as u8; 4_000];
        for number in 0..500 {
            trail.add(Time::from_nanos(number), 1, ticket(number, 1), key(), &wire(number));
        }
        for number in 0..500 {
            let found = trail.find(1, number, Time::from_nanos(number)).expect("its head is kept");
            assert!(found.wire.is_empty() || found.wire == wire(number), "{number} is mixed with another");
        }
        let kept = |number| trail.find(1, number, Time::from_nanos(number)).is_some_and(|found| !found.wire.is_empty());
        assert!(kept(499) && kept(400) && !kept(0));
        for number in 500..500 + 2 * HEADS_MAX as u64 {
            trail.add(Time::from_nanos(number), 1, ticket(number, 1), key(), b"x");
        }
        assert!(trail.find_any(1, 499).is_none(), "as many heads as may be");
    }

    #[test]
    fn only_the_beginning_of_a_long_request_is_kept() {
        let mut trail = Trail::default();
        trail.add(Time::ZERO, 1, ticket(0, 1), key(), &vec![b'x'; 1 << 20]);
        trail.add(Time::ZERO, 1, ticket(1, 2), key(), &vec![b'y'; 1 << 20]);
        let held = |number| trail.find_any(1, number).expect("it is kept").wire.len();
        assert_eq!((held(0), held(2)), (REQUEST_BYTES_MAX, BATCH_BYTES_MAX));
    }
}
