//! Replies in the order of requests: those of the upstream, and those the gateway gives itself in between.
//!
//! In front of one server all exchanges of a session ride one lane at a time, so upstream replies come in order by
//! themselves. A local reply that is due behind them waits here; so does a reply of one of several shards that comes early,
//! and what the shards say to a command that went to more than one.

use std::{collections::VecDeque, rc::Rc};

use weir_base::exchange::FrameKind;

use crate::{
    gather::{Gather, Merge},
    spares::{Spare, Spares},
};

/// The client's mode of CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command gets no reply.
    SkipNext,
}

/// A reply that came before its turn.
#[derive(Debug)]
pub(crate) struct EarlyReply {
    exchange: u64,
    pub(crate) bytes: Vec<u8>,
    /// `None`: its end has not come yet.
    pub(crate) end: Option<FrameKind>,
}

/// The order of a session's replies.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub(crate) struct Ordering {
    next: u64,
    done: u64,
    /// `None`: replies come as the upstream sends them, and the client gets them all.
    out_of_turn: Option<Box<OutOfTurn>>,
    /// Bytes of requests that are kept until they are answered.
    pub(crate) attempts_bytes: usize,
    pub(crate) mode: ReplyMode,
    /// The memory of the sessions of the worker.
    pub(crate) spares: Rc<Spares>,
}

/// Replies that do not go to the client as the upstream sends them.
#[derive(Debug, Default)]
pub(crate) struct OutOfTurn {
    /// Local replies, each due once all exchanges below its number are done.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    /// Replies, or beginnings of them, that came before their turn, by number.
    early: VecDeque<EarlyReply>,
    early_bytes: usize,
    /// Commands that went to several shards, by number.
    gathers: VecDeque<Gather>,
    gathered_bytes: usize,
    /// Exchanges whose replies the client does not want.
    muted: VecDeque<u64>,
}

impl OutOfTurn {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.early.is_empty() && self.gathers.is_empty() && self.muted.is_empty()
    }
}

impl Spare for OutOfTurn {
    fn room(&self) -> usize {
        self.waiting.capacity() * size_of::<(u64, Vec<u8>)>()
            + self.early.capacity() * size_of::<EarlyReply>()
            + self.gathers.capacity() * size_of::<Gather>()
            + self.muted.capacity() * size_of::<u64>()
    }

    fn is_bare(&self) -> bool {
        self.is_empty() && (self.waiting_bytes, self.early_bytes, self.gathered_bytes) == (0, 0, 0)
    }
}

impl Ordering {
    /// The order of a session that has sent nothing, and takes its memory from `spares`.
    pub(crate) fn new(spares: Rc<Spares>) -> Self {
        Self { next: 0, done: 0, out_of_turn: None, attempts_bytes: 0, mode: ReplyMode::On, spares }
    }

    /// Exchanges without a complete reply.
    #[inline]
    pub(crate) fn outstanding(&self) -> u64 {
        self.next - self.done
    }

    /// Every request has been answered in full.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.next == self.done
    }

    /// Every reply on its way is passed as it comes: none is muted, and none of the gateway's own waits between them.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.out_of_turn.as_ref().is_none_or(|out_of_turn| {
            out_of_turn.waiting.is_empty() && out_of_turn.muted.is_empty() && out_of_turn.gathers.is_empty()
        })
    }

    /// It has no memory that other sessions could use.
    pub(crate) fn is_bare(&self) -> bool {
        self.out_of_turn.is_none()
    }

    /// The number of the exchange whose reply comes next.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.done
    }

    /// Bytes of replies that wait for their turn.
    #[inline]
    pub(crate) fn kept_bytes(&self) -> usize {
        let bytes =
            |out_of_turn: &OutOfTurn| out_of_turn.waiting_bytes + out_of_turn.early_bytes + out_of_turn.gathered_bytes;
        self.out_of_turn.as_deref().map_or(0, bytes)
    }

    /// The same, and bytes of requests kept for a second try.
    #[inline]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.kept_bytes() + self.attempts_bytes
    }

    /// The number that the next exchange will get.
    #[inline]
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// The request with [`Ordering::next_number`] was sent.
    #[inline]
    pub(crate) fn sent(&mut self) {
        if self.mode != ReplyMode::On {
            self.mute();
        }
        self.next += 1;
    }

    /// As [`Ordering::sent`], for `count` requests whose replies the client wants.
    #[inline]
    pub(crate) fn sent_many(&mut self, count: u64) {
        debug_assert!(self.mode == ReplyMode::On);
        self.next += count;
    }

    /// As [`Ordering::sent`], for a request of the gateway's own: the client never hears of it.
    pub(crate) fn sent_without_reply(&mut self) {
        let number = self.next;
        self.need().muted.push_back(number);
        self.next += 1;
    }

    /// The requests from [`Ordering::next_number`] on were sent, the parts of one command; or will be reported as failed.
    pub(crate) fn sent_parts(&mut self, mut gather: Gather) {
        gather.is_muted = self.mode != ReplyMode::On;
        self.unskip();
        self.next = gather.last() + 1;
        self.need().gathers.push_back(gather);
    }

    /// Puts `section` behind the text that the last request, INFO, is answered with.
    pub(crate) fn append_to_last(&mut self, section: String) {
        let last = self.next - 1;
        let gathers = &mut self.need().gathers;
        match gathers.back_mut().filter(|gather| gather.last() == last) {
            Some(gather) => gather.append(section),
            None => gathers.push_back(Gather::new(last, 1, Merge::Info { section })),
        }
    }

    /// Keeps a piece of the reply whose turn it is, if it is a part of one; false if it is not.
    #[inline]
    pub(crate) fn gather(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>) -> bool {
        let Some(out_of_turn) = &mut self.out_of_turn else { return false };
        let Some(gather) = out_of_turn.gathers.front_mut().filter(|gather| gather.holds(exchange)) else {
            return false;
        };
        gather.take(exchange, bytes, end);
        out_of_turn.gathered_bytes += bytes.len();
        true
    }

    /// The command whose last part was `exchange`.
    #[inline]
    pub(crate) fn pop_gather(&mut self, exchange: u64) -> Option<Gather> {
        let out_of_turn = self.out_of_turn.as_mut()?;
        let gather = out_of_turn.gathers.pop_front_if(|gather| gather.last() == exchange)?;
        out_of_turn.gathered_bytes -= gather.bytes();
        Some(gather)
    }

    /// Keeps a piece of a reply whose turn has not come. False if no request waits for it.
    #[cold]
    pub(crate) fn keep_early(&mut self, exchange: u64, bytes: &[u8], end: Option<FrameKind>) -> bool {
        if exchange <= self.done || exchange >= self.next {
            return false;
        }
        let out_of_turn = self.need();
        out_of_turn.early_bytes += bytes.len();
        let at = out_of_turn.early.partition_point(|early| early.exchange < exchange);
        match out_of_turn.early.get_mut(at).filter(|early| early.exchange == exchange) {
            Some(early) => {
                early.bytes.extend_from_slice(bytes);
                early.end = end;
            }
            None => out_of_turn.early.insert(at, EarlyReply { exchange, bytes: bytes.to_vec(), end }),
        }
        true
    }

    /// The early bytes of the reply whose turn it is.
    #[inline]
    pub(crate) fn pop_early(&mut self) -> Option<EarlyReply> {
        let (done, out_of_turn) = (self.done, self.out_of_turn.as_mut()?);
        let early = out_of_turn.early.pop_front_if(|early| early.exchange == done)?;
        out_of_turn.early_bytes -= early.bytes.len();
        Some(early)
    }

    /// The end of the reply to `exchange` will not come: its beginning goes.
    pub(crate) fn forget_beginning(&mut self, exchange: u64) {
        let Some(out_of_turn) = &mut self.out_of_turn else { return };
        if let Some(at) = out_of_turn.early.iter().position(|early| early.exchange == exchange)
            && let Some(early) = out_of_turn.early.remove(at)
        {
            out_of_turn.early_bytes -= early.bytes.len();
        }
        if let Some(gather) = out_of_turn.gathers.iter_mut().find(|gather| gather.holds(exchange)) {
            out_of_turn.gathered_bytes -= gather.forget(exchange);
        }
    }

    #[cold]
    fn mute(&mut self) {
        let number = self.next;
        self.need().muted.push_back(number);
        self.unskip();
    }

    /// A command has been answered: CLIENT REPLY SKIP covers one.
    pub(crate) fn unskip(&mut self) {
        if self.mode == ReplyMode::SkipNext {
            self.mode = ReplyMode::On;
        }
    }

    /// The client does not want the reply to `exchange`.
    #[inline]
    pub(crate) fn is_muted(&self, exchange: u64) -> bool {
        self.out_of_turn.as_ref().is_some_and(|out_of_turn| out_of_turn.muted.front() == Some(&exchange))
    }

    /// The reply to `exchange` is complete.
    #[inline]
    pub(crate) fn completed(&mut self, exchange: u64) {
        self.done = exchange + 1;
        if let Some(out_of_turn) = &mut self.out_of_turn {
            out_of_turn.muted.pop_front_if(|muted| *muted == exchange);
            self.settle();
        }
    }

    /// A local reply that is due now, in order.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<Vec<u8>> {
        let out_of_turn = self.out_of_turn.as_mut()?;
        if out_of_turn.waiting.front()?.0 > self.done {
            return None;
        }
        let (_, reply) = out_of_turn.waiting.pop_front()?;
        out_of_turn.waiting_bytes -= reply.len();
        self.settle();
        Some(reply)
    }

    /// Sets aside the local replies that wait, so that [`Ordering::put_back`] finds what is said from now on.
    pub(crate) fn set_aside(&mut self) -> VecDeque<(u64, Vec<u8>)> {
        let Some(out_of_turn) = &mut self.out_of_turn else { return VecDeque::new() };
        out_of_turn.waiting_bytes = 0;
        std::mem::take(&mut out_of_turn.waiting)
    }

    /// Those that were set aside wait again; what was said meanwhile.
    pub(crate) fn put_back(&mut self, waiting: VecDeque<(u64, Vec<u8>)>) -> Vec<u8> {
        let out_of_turn = self.need();
        out_of_turn.waiting_bytes = waiting.iter().map(|(_, reply)| reply.len()).sum();
        let said = std::mem::replace(&mut out_of_turn.waiting, waiting);
        self.settle();
        said.into_iter().flat_map(|(_, reply)| reply).collect()
    }

    /// Keeps a local reply until the exchanges in front of it are done.
    pub(crate) fn wait(&mut self, reply: Vec<u8>) {
        let number = self.next;
        let out_of_turn = self.need();
        out_of_turn.waiting_bytes += reply.len();
        match out_of_turn.waiting.back_mut() {
            Some((due, last)) if *due == number => last.extend_from_slice(&reply),
            _ => out_of_turn.waiting.push_back((number, reply)),
        }
    }

    fn need(&mut self) -> &mut OutOfTurn {
        self.out_of_turn.get_or_insert_with(|| self.spares.out_of_turn.take())
    }

    /// Gives the memory back once nothing is in it.
    fn settle(&mut self) {
        if let Some(out_of_turn) = self.out_of_turn.take_if(|out_of_turn| out_of_turn.is_empty()) {
            self.spares.out_of_turn.give(out_of_turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_replies_come_between_the_exchanges_they_stood_between() {
        let mut order = Ordering::default();
        order.sent();
        order.wait(b"a".to_vec());
        order.wait(b"b".to_vec());
        order.sent();
        order.wait(b"c".to_vec());
        assert_eq!(order.pop_due(), None);
        order.completed(0);
        assert_eq!(order.pop_due(), Some(b"ab".to_vec()));
        assert_eq!(order.pop_due(), None);
        order.completed(1);
        assert_eq!(order.pop_due(), Some(b"c".to_vec()));
        assert!(order.is_quiet());
    }

    #[test]
    fn skip_covers_one_exchange_and_off_all() {
        let mut order = Ordering { mode: ReplyMode::SkipNext, ..Ordering::default() };
        order.sent();
        order.sent();
        assert!(order.is_muted(0) && order.mode == ReplyMode::On);
        order.completed(0);
        assert!(!order.is_muted(1));
    }

    #[test]
    fn memory_for_replies_out_of_turn_goes_back_with_the_last_of_them() {
        let mut order = Ordering::default();
        order.sent();
        assert!(order.is_bare(), "most requests need none");
        order.sent_without_reply();
        order.wait(b"a".to_vec());
        let memory = order.out_of_turn.as_deref().map(std::ptr::from_ref);
        order.completed(0);
        order.completed(1);
        assert!(order.is_quiet() && !order.is_bare(), "a local reply is due");
        assert_eq!(order.pop_due(), Some(b"a".to_vec()));
        assert!(order.is_bare());
        let mut other = Ordering::new(order.spares.clone());
        other.mode = ReplyMode::Off;
        other.sent();
        assert_eq!(other.out_of_turn.as_deref().map(std::ptr::from_ref), memory);
        other.completed(0);
        assert!(other.is_bare());
    }
}
