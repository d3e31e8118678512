//! The account of one connection: bytes that its streams hold and have passed on, and the windows that follow from them.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{FlowControl, Ping, PingPong, RecvStream};
use weir_base::{
    permit::ByteLease,
    time::{Time, turn},
};
use weir_engine::{Deadline, poll_face::PollStream};

use super::windows::{BudgetRoom, CREDIT_BYTES, WindowSettings, Windows, evidence, needed};

/// Bytes that a connection receives between two looks at what its streams hold: a fraction of the credit, so that it is
/// renewed long before it is used up.
const LOOK_BYTES: u64 = 64 * 1024;

/// Bytes that the peer may send on a stream before it knows of any setting (RFC 9113 section 6.9.2).
const FIRST_BYTES: u64 = 65_535;

/// A window that was not used for this long shrinks.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(10);

/// While the budget of the process has nothing for a connection, streams of it that pass nothing on for this long and hold
/// most are given up, until a credit is free for the others.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// A stream that may hold something.
struct BufferingStream {
    flow: FlowControl,
    last_taken: Cell<Time>,
    is_given_up: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// State that a connection shares with its streams.
#[derive(Default)]
pub(crate) struct FlowAccount {
    /// Bytes that came on it, heads and all.
    received: Cell<u64>,
    /// Bytes of bodies that were passed on.
    released: Cell<u64>,
    round: Cell<u32>,
    /// The most bytes that one stream has passed on in this round.
    most: Cell<u64>,
    /// The window that streams have.
    stream: Cell<u32>,
    /// The largest window that a stream needs which has taken enough for a larger one in this round.
    needed: Cell<u64>,
    /// When the round began: with the first byte that was taken in it.
    since: Cell<Time>,
    /// Something may come for which a round trip should be known.
    wants_measure: Cell<bool>,
    holders: RefCell<BTreeMap<u32, Rc<BufferingStream>>>,
    /// Bodies that are on their way in.
    bodies: Cell<usize>,
    /// Something is charged for the connection, or should be while it has streams.
    is_grown: Cell<bool>,
    /// The budget of the process has nothing for the connection: its peer may send less than a credit.
    is_short: Cell<bool>,
    /// A change that no arriving byte will announce.
    is_due: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl FlowAccount {
    /// Counts arrived bytes.
    pub(crate) fn received(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
    }

    /// Has the task that moves the frames of the connection look at it.
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Bytes that were received and not passed on.
    fn held(&self) -> u64 {
        self.holders.borrow().values().map(|holder| holder.flow.used_capacity() as u64).sum()
    }

    /// A body may come: how far the peer is should be known by then.
    pub(super) fn expect_body(&self) {
        self.wants_measure.set(true);
    }

    /// One stream has passed on `taken` bytes in this round, of a body of `length`.
    fn took(&self, taken: u64, length: Option<u64>) {
        self.most.set(self.most.get().max(taken));
        if taken >= evidence(self.stream.get()) {
            self.needed.set(self.needed.get().max(needed(self.stream.get(), length)));
        }
    }

    fn begin_round(&self) -> u64 {
        self.round.set(self.round.get().wrapping_add(1));
        self.needed.set(0);
        self.most.replace(0)
    }

    /// Gives up streams that hold most and pass nothing on, until so many bytes will be free. Those that were given up before and
    /// hold something still are not counted again: perhaps no task polls them.
    fn give_up(&self, mut bytes: u64, now: Time) {
        let holders = self.holders.borrow();
        let is_stale = |holder: &&Rc<BufferingStream>| {
            !holder.is_given_up.get() && now.since(holder.last_taken.get()) >= SHORT_TIMEOUT
        };
        let mut stale: Vec<_> = holders.values().filter(is_stale).collect();
        stale.sort_by_key(|holder| std::cmp::Reverse(holder.flow.used_capacity()));
        for holder in stale {
            bytes = match bytes {
                0 => return,
                _ => bytes.saturating_sub(holder.flow.used_capacity() as u64),
            };
            holder.is_given_up.set(true);
            if let Some(waker) = holder.waker.borrow_mut().take() {
                waker.wake();
            }
        }
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
    /// The number of the stream, and its entry.
    holder: Option<(u32, Rc<BufferingStream>)>,
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
            self.look();
        }
    }

    /// The connection may have less charged for it.
    fn look(&self) {
        if self.account.is_grown.get() {
            self.account.is_due.set(true);
            self.account.wake();
        }
    }

    /// From here on what it holds counts. Only streams that have to wait come to this.
    pub(super) fn enter(&mut self, body: &mut RecvStream) -> &Self {
        if self.holder.is_none() {
            let holder = Rc::new(BufferingStream {
                flow: body.flow_control().clone(),
                last_taken: Cell::new(turn::now()),
                is_given_up: Cell::new(false),
                waker: RefCell::default(),
            });
            let stream = body.stream_id().as_u32();
            self.account.holders.borrow_mut().insert(stream, holder.clone());
            self.holder = Some((stream, holder));
            // It may hold the rest of the credit, after which no byte would announce it.
            self.account.is_due.set(true);
            self.account.wake();
        }
        self
    }

    /// A body may come for which windows have to grow. That is certain when the first of it is here: a request may be taken back
    /// before, and a short body needs no more than the first window.
    pub(super) fn expect_body(&mut self) {
        self.is_unmeasured = self.length.is_none_or(|length| length > FIRST_BYTES);
    }

    /// See [`FlowAccount::is_short`].
    pub(super) fn is_short(&self) -> bool {
        self.account.is_short.get()
    }

    /// Ready once it is given up for the sake of the others. It is taken back once the connection has enough memory.
    pub(super) fn poll_given_up(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some((_, holder)) = &self.holder else { return Poll::Pending };
        holder.is_given_up.set(holder.is_given_up.get() && self.is_short());
        if holder.is_given_up.get() {
            return Poll::Ready(());
        }
        *holder.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }

    /// Counts bytes that were passed on.
    pub(super) fn taken(&mut self, count: usize) {
        if count > 0 && std::mem::take(&mut self.is_unmeasured) {
            self.account.expect_body();
            // So few bytes give no window back, and would not move a frame.
            self.account.wake();
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
        if let Some((stream, holder)) = self.holder.take() {
            let account = &self.account;
            account.holders.borrow_mut().remove(&stream);
            account.released.set(account.released.get() + holder.flow.used_capacity() as u64);
            self.look();
        }
        self.over();
    }
}

/// A connection whose windows can be set, on either side.
pub(super) trait Windowed {
    /// Sets the window of the connection.
    fn set_connection_window(&mut self, bytes: u32);
    /// Sets the window of its streams; false while the peer has not confirmed the last one.
    fn set_stream_window(&mut self, bytes: u32) -> bool;
    /// Measures round trips; there is one.
    fn ping_pong(&mut self) -> Option<PingPong>;
}

impl Windowed for h2::server::Connection<PollStream, Bytes> {
    fn set_connection_window(&mut self, bytes: u32) {
        self.set_target_window_size(bytes);
    }

    fn set_stream_window(&mut self, bytes: u32) -> bool {
        self.set_initial_window_size(bytes).is_ok()
    }

    fn ping_pong(&mut self) -> Option<PingPong> {
        self.ping_pong()
    }
}

impl Windowed for h2::client::Connection<PollStream, Bytes> {
    fn set_connection_window(&mut self, bytes: u32) {
        self.set_target_window_size(bytes);
    }

    fn set_stream_window(&mut self, bytes: u32) -> bool {
        self.set_initial_window_size(bytes).is_ok()
    }

    fn ping_pong(&mut self) -> Option<PingPong> {
        self.ping_pong()
    }
}

/// Keeps the windows of a connection as they should be; the task that moves its frames polls it.
pub(super) struct WindowControl {
    account: Rc<FlowAccount>,
    windows: Windows,
    lease: ByteLease,
    ping: Option<PingPong>,
    /// A round trip is being measured since then.
    measured_since: Option<Time>,
    /// Bytes received and passed on at the last look at the streams.
    looked_at: (u64, u64),
    /// The most that a stream has taken in a round since the windows were last judged.
    busiest: u64,
    /// See [`FlowAccount::is_short`].
    is_short: bool,
    /// Judgements in a row that found it so.
    short: u32,
    judgement: Deadline,
    /// The windows that the peer knows: of the connection, of streams.
    announced: (u32, u32),
}

impl WindowControl {
    pub(super) fn new(
        connection: &mut impl Windowed,
        account: Rc<FlowAccount>,
        settings: WindowSettings,
        lease: ByteLease,
    ) -> Self {
        // Larger ones than the credit get theirs with the first look.
        account.is_due.set(true);
        let windows = Windows::new(settings, lease.empty());
        account.stream.set(windows.stream());
        Self {
            announced: (windows.connection(), windows.stream()),
            account,
            windows,
            lease,
            ping: connection.ping_pong(),
            measured_since: None,
            looked_at: (0, 0),
            busiest: 0,
            is_short: false,
            short: 0,
            judgement: weir_engine::deadline(),
        }
    }

    /// Looks at the account, if there is reason to: before frames are moved, and after. True: the connection has something to
    /// send.
    pub(super) fn poll(&mut self, connection: &mut impl Windowed, context: &mut Context<'_>) -> bool {
        self.remember(context);
        self.poll_measured(context);
        let has_grown = self.grow();
        let is_judged = self.judgement.at().is_some() && self.judgement.poll_expired(context).is_ready();
        let has_come = self.account.received.get() - self.looked_at.0 >= LOOK_BYTES;
        // A grown connection is judged before freed bytes are granted again.
        let is_freed = self.windows.is_grown() && self.account.released.get() != self.looked_at.1;
        if !(self.account.is_due.take() || has_come || has_grown || is_freed || is_judged) {
            return self.announce_stream(connection);
        }
        self.looked_at = (self.account.received.get(), self.account.released.get());
        let held = self.account.held();
        if is_judged {
            self.judge(held);
        }
        let has_streams = self.account.bodies.get() > 0;
        self.is_short = !self.windows.update(held, self.account.released.get(), has_streams);
        self.account.stream.set(self.windows.stream());
        self.account.is_short.set(self.is_short);
        self.account.is_grown.set(self.windows.is_grown());
        self.arm(context);
        let has_changed = self.announced.0 != self.windows.connection();
        if has_changed {
            self.announced.0 = self.windows.connection();
            connection.set_connection_window(self.announced.0);
        }
        self.announce_stream(connection) || has_changed
    }

    /// Lets the window of streams grow, if one has taken half of it within a round trip.
    fn grow(&mut self) -> bool {
        let is_evident = self.account.needed.get() > 0;
        if !(is_evident || self.account.wants_measure.get()) || !self.windows.may_grow() {
            return false;
        }
        let now = turn::now();
        let Some(round_trip) = self.windows.round_trip() else {
            self.measure(now);
            return false;
        };
        self.account.wants_measure.set(false);
        // A window that the peer has not confirmed cannot have been used.
        if !is_evident || self.announced.1 != self.windows.stream() {
            return false;
        }
        // A burst of the peer takes a moment to arrive.
        let is_in_time = now.since(self.account.since.get()) <= round_trip + round_trip / 4;
        let needed = self.account.needed.get();
        self.busiest = self.busiest.max(self.account.begin_round());
        let room = BudgetRoom::of(&self.lease);
        let has_grown = is_in_time && self.windows.grow(self.account.held(), needed, room);
        if has_grown {
            self.account.stream.set(self.windows.stream());
            // The first one may have waited in a queue.
            self.measure(now);
        }
        has_grown
    }

    fn measure(&mut self, now: Time) {
        if self.measured_since.is_none()
            && self.ping.as_mut().is_some_and(|ping| ping.send_ping(Ping::opaque()).is_ok())
        {
            self.measured_since = Some(now);
        }
    }

    fn poll_measured(&mut self, context: &mut Context<'_>) {
        let (Some(since), Some(ping)) = (self.measured_since, &mut self.ping) else { return };
        if let Poll::Ready(answered) = ping.poll_pong(context) {
            self.measured_since = None;
            if answered.is_ok() {
                self.windows.measured(turn::now().since(since));
            }
        }
    }

    fn announce_stream(&mut self, connection: &mut impl Windowed) -> bool {
        let stream = self.windows.stream();
        let is_announced = self.announced.1 != stream && connection.set_stream_window(stream);
        if is_announced {
            self.announced.1 = stream;
        }
        is_announced
    }

    fn remember(&self, context: &Context<'_>) {
        let mut waker = self.account.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }

    /// A while is over.
    fn judge(&mut self, held: u64) {
        let busiest = std::mem::take(&mut self.busiest).max(self.account.most.get());
        if self.is_short {
            // Others of those that stand still may take what becomes free.
            self.account.give_up((CREDIT_BYTES << self.short.min(10)).min(held), turn::now());
            self.short += 1;
        } else if busiest < u64::from(self.windows.stream()) {
            self.windows.unused();
        }
        self.short = if self.is_short { self.short } else { 0 };
        self.account.begin_round();
    }

    /// Sets the time of the next judgement, if there is anything to judge.
    fn arm(&mut self, context: &mut Context<'_>) {
        let timeout = match (self.is_short, self.windows.is_grown()) {
            (true, _) => SHORT_TIMEOUT,
            (false, true) => UNUSED_TIMEOUT,
            (false, false) => {
                self.judgement.clear();
                return;
            }
        };
        let at = turn::now().saturating_add(timeout);
        if self.judgement.at().is_none_or(|set| set > at || set <= turn::now()) {
            self.judgement.set(at);
            // It is woken only if it is polled.
            let _ = self.judgement.poll_expired(context);
        }
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
