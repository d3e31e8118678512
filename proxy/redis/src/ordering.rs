//! Replies in the order of requests: those of the upstream, and those the gateway gives itself in between.
//!
//! All exchanges of one session ride one lane at a time, so upstream replies come in order by themselves. A local reply that
//! is due behind them waits here.

use std::collections::VecDeque;

/// What the client has asked for with CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command gets no reply.
    SkipNext,
}

/// The order of a session's replies.
#[derive(Debug, Default)]
pub(crate) struct Ordering {
    next: u64,
    done: u64,
    /// Local replies, each due once all exchanges below its number are done.
    waiting: VecDeque<(u64, Vec<u8>)>,
    waiting_bytes: usize,
    /// Exchanges whose replies the client does not want.
    muted: VecDeque<u64>,
    pub(crate) mode: ReplyMode,
}

impl Ordering {
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
        self.waiting.is_empty() && self.muted.is_empty()
    }

    /// The number of the exchange whose reply comes next.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.done
    }

    /// Bytes of local replies that wait behind exchanges.
    #[inline]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
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
    pub(crate) fn sent_unheard(&mut self) {
        self.muted.push_back(self.next);
        self.next += 1;
    }

    #[cold]
    fn mute(&mut self) {
        self.muted.push_back(self.next);
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
        self.muted.front() == Some(&exchange)
    }

    /// The reply to `exchange` is complete.
    #[inline]
    pub(crate) fn completed(&mut self, exchange: u64) {
        self.done = exchange + 1;
        if self.is_muted(exchange) {
            self.muted.pop_front();
        }
    }

    /// A local reply that is due now, in order.
    #[inline]
    pub(crate) fn pop_due(&mut self) -> Option<Vec<u8>> {
        if self.waiting.front()?.0 > self.done {
            return None;
        }
        let (_, reply) = self.waiting.pop_front()?;
        self.waiting_bytes -= reply.len();
        Some(reply)
    }

    /// Keeps a local reply until the exchanges in front of it are done.
    pub(crate) fn wait(&mut self, reply: Vec<u8>) {
        self.waiting_bytes += reply.len();
        match self.waiting.back_mut() {
            Some((due, last)) if *due == self.next => last.extend_from_slice(&reply),
            _ => self.waiting.push_back((self.next, reply)),
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
}
