//! The windows of one connection, kept as they should be.

use std::{rc::Rc, task::Context, time::Duration};

use weir_base::{
    permit::ByteLease,
    time::{Time, turn},
};
use weir_engine::Deadline;
use weir_http2_codec::Connection;

use super::{
    flow::{FlowAccount, SHORT_TIMEOUT},
    machine::Machine,
    windows::{BudgetRoom, CREDIT_BYTES, WindowSettings, Windows},
};

/// Bytes that a connection receives between two looks at what its streams hold: a fraction of the credit, so that it is
/// renewed long before it is used up.
const LOOK_BYTES: u64 = 64 * 1024;

/// A window that was not used for this long shrinks.
const UNUSED_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps the windows of a connection as they should be; the task of the connection polls it.
pub(super) struct WindowControl {
    machine: Rc<Machine>,
    account: Rc<FlowAccount>,
    windows: Windows,
    lease: ByteLease,
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
    pub(super) fn new(machine: &Rc<Machine>, settings: WindowSettings, lease: ByteLease) -> Self {
        let account = machine.account.clone();
        // Larger ones than the credit get theirs with the first look.
        account.is_due.set(true);
        let windows = Windows::new(settings, lease.empty());
        account.stream.set(windows.stream());
        Self {
            machine: machine.clone(),
            announced: (windows.connection(), windows.stream()),
            account,
            windows,
            lease,
            measured_since: None,
            looked_at: (0, 0),
            busiest: 0,
            is_short: false,
            short: 0,
            judgement: weir_engine::deadline(),
        }
    }

    /// Looks at the account, if there is reason to.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) {
        let has_grown = self.grow();
        let is_judged = self.judgement.at().is_some() && self.judgement.poll_expired(context).is_ready();
        let has_come = self.account.received.get() - self.looked_at.0 >= LOOK_BYTES;
        // A grown connection is judged before freed bytes are granted again.
        let is_freed = self.windows.is_grown() && self.account.released.get() != self.looked_at.1;
        if self.account.is_due.take() || has_come || has_grown || is_freed || is_judged {
            self.look(is_judged, context);
        }
        self.announce();
    }

    /// The peer has acknowledged the PING that measures a round trip.
    pub(super) fn measured(&mut self) {
        if let Some(since) = self.measured_since.take() {
            self.windows.measured(turn::now().since(since));
            self.account.is_measured.set(true);
        }
    }

    fn look(&mut self, is_judged: bool, context: &mut Context<'_>) {
        self.looked_at = (self.account.received.get(), self.account.released.get());
        let held = self.machine.look(Connection::held);
        if is_judged {
            self.judge(held);
        }
        let has_streams = self.account.bodies.get() > 0;
        self.is_short = !self.windows.update(held, self.account.released.get(), has_streams);
        self.account.stream.set(self.windows.stream());
        self.account.is_short.set(self.is_short);
        self.account.is_grown.set(self.windows.is_grown());
        self.arm(context);
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
        let (held, room) = (self.machine.look(Connection::held), BudgetRoom::of(&self.lease));
        let has_grown = is_in_time && self.windows.grow(held, needed, room);
        if has_grown {
            self.account.stream.set(self.windows.stream());
            // The first one may have waited in a queue.
            self.measure(now);
        }
        has_grown
    }

    fn measure(&mut self, now: Time) {
        if self.measured_since.is_none() && self.machine.with(Connection::ping) {
            self.measured_since = Some(now);
        }
    }

    /// Announces windows that have changed: those of streams once the peer has confirmed the last ones.
    fn announce(&mut self) {
        let (connection, stream) = (self.windows.connection(), self.windows.stream());
        if self.announced.0 != connection {
            self.announced.0 = connection;
            self.machine.with(|codec| codec.set_connection_window(connection));
        }
        if self.announced.1 != stream && self.machine.with(|codec| codec.set_initial_stream_window(stream)) {
            self.announced.1 = stream;
        }
    }

    /// A while is over.
    fn judge(&mut self, held: u64) {
        let busiest = std::mem::take(&mut self.busiest).max(self.account.most.get());
        if self.is_short {
            // Others of those that stand still may take what becomes free.
            let bytes = (CREDIT_BYTES << self.short.min(10)).min(held);
            let held_by = |stream| self.machine.look(|codec| codec.held_by(stream));
            for stream in self.account.give_up(bytes, turn::now(), held_by) {
                self.machine.wake_reader(stream);
            }
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
