//! The account of one connection: bytes that its streams have passed on, and those that may have to be given up.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Waker},
    time::Duration,
};

use weir_base::time::{Time, turn};
use weir_http2_codec::{StreamId, settings::WINDOW_BYTES_DEFAULT};

use super::windows::{evidence, needed};

/// While the budget of the process has nothing for a connection, streams of it that pass nothing on for this long and hold
/// most are given up, until a credit is free for the others.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A stream that may hold something.
struct BufferingStream {
    last_taken: Cell<Time>,
    is_given_up: Cell<bool>,
}

/// State that a connection shares with its streams.
#[derive(Default)]
pub(super) struct FlowAccount {
    /// Bytes that came on it, heads and all.
    pub(super) received: Cell<u64>,
    /// Bytes of bodies that were passed on, or dropped.
    pub(super) released: Cell<u64>,
    round: Cell<u32>,
    /// The most bytes that one stream has passed on in this round.
    pub(super) most: Cell<u64>,
    /// The window that streams have.
    pub(super) stream: Cell<u32>,
    /// The largest window that a stream needs which has taken enough for a larger one in this round.
    pub(super) needed: Cell<u64>,
    /// When the round began: with the first byte that was taken in it.
    pub(super) since: Cell<Time>,
    /// Something may come for which a round trip should be known.
    pub(super) wants_measure: Cell<bool>,
    /// A round trip is known.
    pub(super) is_measured: Cell<bool>,
    holders: RefCell<BTreeMap<StreamId, Rc<BufferingStream>>>,
    /// Bodies that are on their way in.
    pub(super) bodies: Cell<usize>,
    /// Something is charged for the connection, or should be while it has streams.
    pub(super) is_grown: Cell<bool>,
    /// The budget of the process has nothing for the connection: its peer may send less than a credit.
    pub(super) is_short: Cell<bool>,
    /// A change that no arriving byte will announce.
    pub(super) is_due: Cell<bool>,
    /// The task of the connection.
    waker: RefCell<Option<Waker>>,
}

impl FlowAccount {
    /// Counts arrived bytes.
    pub(super) fn received(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
    }

    /// Counts bytes of a stream that nothing will take.
    pub(super) fn dropped(&self, count: usize) {
        if count > 0 {
            self.released.set(self.released.get() + count as u64);
            self.look();
        }
    }

    /// [`FlowAccount::wake`] wakes the task of `context`.
    pub(super) fn register(&self, context: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            let before = waker.replace(context.waker().clone());
            drop(waker);
            drop(before);
        }
    }

    /// Has the task of the connection look at it.
    pub(super) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// The connection may have less charged for it.
    fn look(&self) {
        if self.is_grown.get() {
            self.is_due.set(true);
            self.wake();
        }
    }

    /// A body may come: how far the peer is should be known by then.
    pub(super) fn expect_body(&self) {
        self.wants_measure.set(true);
        if !self.is_measured.get() {
            // The PING leaves with what announces the body: nothing else of the connection may be due.
            self.wake();
        }
    }

    /// One stream has passed on `taken` bytes in this round, of a body of `length`.
    fn took(&self, taken: u64, length: Option<u64>) {
        self.most.set(self.most.get().max(taken));
        if taken >= evidence(self.stream.get()) {
            self.needed.set(self.needed.get().max(needed(self.stream.get(), length)));
        }
    }

    pub(super) fn begin_round(&self) -> u64 {
        self.round.set(self.round.get().wrapping_add(1));
        self.needed.set(0);
        self.most.replace(0)
    }

    /// Gives up streams that hold most and pass nothing on, until so many bytes will be free; returns them. Those that were given up before
    /// and hold something still are not counted again: perhaps no task polls them.
    pub(super) fn give_up(&self, mut bytes: u64, now: Time, held_by: impl Fn(StreamId) -> usize) -> Vec<StreamId> {
        let holders = self.holders.borrow();
        let is_stale =
            |holder: &BufferingStream| !holder.is_given_up.get() && now.since(holder.last_taken.get()) >= SHORT_TIMEOUT;
        let stale = holders.iter().filter(|(_, holder)| is_stale(holder));
        let mut stale: Vec<_> = stale.map(|(stream, holder)| (held_by(*stream) as u64, *stream, holder)).collect();
        stale.sort_by_key(|(held, ..)| std::cmp::Reverse(*held));
        let mut given_up = Vec::new();
        for (held, stream, holder) in stale {
            if bytes == 0 {
                break;
            }
            bytes = bytes.saturating_sub(held);
            holder.is_given_up.set(true);
            given_up.push(stream);
        }
        given_up
    }
}

/// The part of one stream.
pub(super) struct StreamAccount {
    account: Rc<FlowAccount>,
    /// Length of the stream's body, in bytes; `None` if it is unknown.
    length: Option<u64>,
    /// The first bytes that are passed on start a measurement of the round trip.
    is_unmeasured: bool,
    round: u32,
    taken: u64,
    /// The stream, and its entry.
    holder: Option<(StreamId, Rc<BufferingStream>)>,
    /// It is one of the account's bodies.
    is_counted: bool,
}

impl StreamAccount {
    /// The part of a body that is on its way; `is_over`: there is none, or it has been passed on.
    pub(super) fn new(account: Rc<FlowAccount>, length: Option<u64>, is_over: bool) -> Self {
        if !is_over {
            account.bodies.set(account.bodies.get() + 1);
            if account.is_grown.get() {
                account.is_due.set(true);
            }
        }
        Self { account, length, is_unmeasured: false, round: 0, taken: 0, holder: None, is_counted: !is_over }
    }

    /// All of its body was passed on: nothing is charged for what its peer might send on it. The stream may stand for long.
    pub(super) fn over(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            self.account.bodies.set(self.account.bodies.get() - 1);
            self.account.look();
        }
    }

    /// From here on it may be given up. Only streams that have to wait come to this.
    pub(super) fn enter(&mut self, stream: StreamId) {
        if self.holder.is_none() {
            let (last_taken, is_given_up) = (Cell::new(turn::now()), Cell::new(false));
            let holder = Rc::new(BufferingStream { last_taken, is_given_up });
            self.account.holders.borrow_mut().insert(stream, holder.clone());
            self.holder = Some((stream, holder));
            // It may hold the rest of the credit, after which no byte would announce it.
            self.account.is_due.set(true);
            self.account.wake();
        }
    }

    /// A body may come for which windows have to grow. That is certain when the first of it is here: a request may be taken back
    /// before, and a short body needs no more than the first window (RFC 9113 section 6.9.2).
    pub(super) fn expect_body(&mut self) {
        self.is_unmeasured = self.length.is_none_or(|length| length > u64::from(WINDOW_BYTES_DEFAULT));
    }

    /// See [`FlowAccount::is_short`].
    pub(super) fn is_short(&self) -> bool {
        self.account.is_short.get()
    }

    /// It is given up for the sake of the others. That is taken back once the connection has enough memory.
    pub(super) fn is_given_up(&self) -> bool {
        let Some((_, holder)) = &self.holder else { return false };
        holder.is_given_up.set(holder.is_given_up.get() && self.is_short());
        holder.is_given_up.get()
    }

    /// Counts bytes that were passed on.
    pub(super) fn taken(&mut self, count: usize) {
        if count > 0 && std::mem::take(&mut self.is_unmeasured) {
            self.account.expect_body();
        }
        let (account, count) = (&self.account, count as u64);
        account.released.set(account.released.get() + count);
        if self.round != account.round.get() {
            (self.round, self.taken) = (account.round.get(), 0);
        }
        if account.most.get() == 0 {
            account.since.set(turn::now());
        }
        self.taken += count;
        account.took(self.taken, self.length);
        if let Some((_, holder)) = &self.holder {
            holder.last_taken.set(turn::now());
            holder.is_given_up.set(false);
        }
    }
}

impl Drop for StreamAccount {
    fn drop(&mut self) {
        if let Some((stream, _)) = self.holder.take() {
            self.account.holders.borrow_mut().remove(&stream);
        }
        self.over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    #[test]
    fn the_stream_that_needs_the_largest_window_counts_and_not_the_one_that_took_most() {
        let account = FlowAccount::default();
        account.stream.set(256 * 1024);
        account.took(130 * KIB, Some(20_000 * KIB));
        account.took(250 * KIB, Some(300 * KIB));
        account.took(100 * KIB, Some(1 << 40));
        assert_eq!((account.needed.get(), account.most.get()), (32 * 1024 * KIB, 250 * KIB));
        assert_eq!(account.begin_round(), 250 * KIB);
        assert_eq!(account.needed.get(), 0);
    }

    #[test]
    fn a_request_without_a_body_and_one_whose_body_was_passed_on_are_no_reason_to_charge() {
        let account = Rc::<FlowAccount>::default();
        account.is_grown.set(true);
        let whole = StreamAccount::new(account.clone(), None, true);
        assert_eq!((account.bodies.get(), account.is_due.get()), (0, false));
        let mut upload = StreamAccount::new(account.clone(), Some(20_000 * KIB), false);
        assert_eq!((account.bodies.get(), account.is_due.take()), (1, true));
        upload.over();
        assert_eq!((account.bodies.get(), account.is_due.get()), (0, true), "the response to it may last long");
        drop((upload, whole));
        assert_eq!(account.bodies.get(), 0);
        drop(StreamAccount::new(account.clone(), None, false));
        assert_eq!(account.bodies.get(), 0, "reset");
    }
}
