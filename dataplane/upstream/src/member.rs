//! One endpoint of an upstream whose lanes serve one exchange at a time: its connections, and the exchanges that wait for one.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::Waker,
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    time::{Time, turn},
};

use crate::{
    balance::Latency,
    carrier::{Carrier, Slot},
    choice::{Reach, Standing},
    ejection::Ejection,
    endpoint::Endpoint,
    health::EndpointState,
    idle::{Found, Idle, IdlePool},
};

/// How long the connections of an endpoint rest after every response once it has written behind one. 60 s: whoever does this on
/// purpose or by mistake does it again. Worst case: its clients wait for connects.
const DISTRUST: Duration = Duration::from_secs(60);

/// One endpoint with its lanes.
pub(crate) struct Member<C: Carrier> {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) weight: u32,
    pub(crate) idle: RefCell<IdlePool>,
    /// When it last wrote behind the end of a response.
    overran_at: Cell<Option<Time>>,
    /// The first with room is the next one taken, for the same reason.
    pub(crate) carriers: RefCell<Vec<Rc<Slot<C>>>>,
    /// Connections lent, idle or being made.
    pub(crate) open: Cell<u32>,
    /// Those of them that are being made.
    pub(crate) promised: Cell<u32>,
    /// How many could not be made, and why the last one could not.
    pub(crate) refused: Cell<(u64, Refusal)>,
    /// Exchanges that have a lane of it.
    pub(crate) lent: Cell<u64>,
    pub(crate) latency: Cell<Latency>,
    pub(crate) ejection: RefCell<Ejection>,
    /// Exchanges that wait for room, in their order.
    pub(crate) waiting: RefCell<VecDeque<(u64, Waker)>>,
    /// The number of the next one that waits.
    ticket: Cell<u64>,
}

impl<C: Carrier> Member<C> {
    pub(crate) fn new(endpoint: Endpoint, weight: u32) -> Self {
        Self {
            endpoint: Rc::new(endpoint),
            weight,
            idle: RefCell::default(),
            overran_at: Cell::new(None),
            carriers: RefCell::default(),
            open: Cell::new(0),
            promised: Cell::new(0),
            refused: Cell::new((0, Refusal::Unreachable)),
            lent: Cell::new(0),
            latency: Cell::default(),
            ejection: RefCell::default(),
            waiting: RefCell::default(),
            ticket: Cell::new(0),
        }
    }

    /// It wrote behind the end of a response.
    pub(crate) fn overran(&self) {
        self.overran_at.set(Some(turn::now()));
    }

    /// It did so lately.
    pub(crate) fn is_distrusted(&self) -> bool {
        self.overran_at.get().is_some_and(|at| turn::now().since(at) <= DISTRUST)
    }

    /// Closes an idle connection for what was found on it; `ended` is the cause if that is nothing special.
    pub(crate) fn let_go(&self, idle: Idle, found: Found, ended: LossCause) {
        if found == Found::Bytes {
            self.overran();
        }
        self.endpoint.metrics().lane_closed(if found == Found::Bytes { LossCause::Violation } else { ended });
        drop(idle);
        self.closed();
    }

    /// A connection stands that another exchange may have now, and nobody has waited for it.
    pub(crate) fn has_lane(&self, now: Time) -> bool {
        let is_idle = || self.idle.borrow().has_ready(now);
        self.waiting.borrow().is_empty() && (is_idle() || self.carriers.borrow().iter().any(|slot| slot.has_room()))
    }

    /// What it may be asked for now. `has_waited`: the exchange has waited for a connection that timed out. It makes no second such
    /// trial.
    pub(crate) fn standing(&self, has_failed: bool, has_waited: bool, now: Time) -> Standing {
        let reach = match self.reach() {
            Reach::Trial if has_waited && self.endpoint.is_silent() => Reach::Silent,
            reach => reach,
        };
        // Otherwise a connection can be made.
        let has_lane = reach == Reach::Silent && self.has_lane(now);
        Standing {
            is_off: self.weight == 0,
            is_down: self.endpoint.health().state() == EndpointState::Down,
            is_ejected: self.ejection.borrow().is_out(now),
            reach,
            has_failed,
            has_lane,
        }
    }

    /// Whether a connection to it may be tried.
    pub(crate) fn reach(&self) -> Reach {
        self.endpoint.reach(self.promised.get() > 0)
    }

    /// A connection is gone: another may be opened.
    pub(crate) fn closed(&self) {
        self.open.set(self.open.get() - 1);
        self.wake();
    }

    /// There may be room: the next one looks. It stays in the queue until it has some, or gives up.
    pub(crate) fn wake(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }
}

/// A connection that is being made, and counted as open already.
pub(crate) struct Promise<'a, C: Carrier> {
    member: &'a Member<C>,
    is_kept: bool,
}

impl<'a, C: Carrier> Promise<'a, C> {
    pub(crate) fn new(member: &'a Member<C>) -> Self {
        member.open.set(member.open.get() + 1);
        member.promised.set(member.promised.get() + 1);
        Self { member, is_kept: false }
    }

    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl<C: Carrier> Drop for Promise<'_, C> {
    fn drop(&mut self) {
        let member = self.member;
        member.promised.set(member.promised.get() - 1);
        if self.is_kept {
            // Whoever waited for the result of this attempt may make its own connection now.
            member.wake();
        } else {
            member.open.set(member.open.get() - 1);
            member.wake_all();
        }
    }
}

/// An exchange that waits for room.
pub(crate) struct Waiting<'a, C: Carrier> {
    member: &'a Member<C>,
    ticket: u64,
}

impl<'a, C: Carrier> Waiting<'a, C> {
    pub(crate) fn new(member: &'a Member<C>) -> Self {
        member.endpoint.metrics().waiters(1);
        let ticket = member.ticket.replace(member.ticket.get() + 1);
        // A place in the queue is taken at once, and the waker found when it is polled first.
        member.waiting.borrow_mut().push_back((ticket, Waker::noop().clone()));
        Self { member, ticket }
    }

    pub(crate) fn is_next(&self) -> bool {
        self.member.waiting.borrow().front().is_some_and(|(first, _)| *first == self.ticket)
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let mut waiting = self.member.waiting.borrow_mut();
        if let Some((_, own)) = waiting.iter_mut().find(|(ticket, _)| *ticket == self.ticket) {
            own.clone_from(waker);
        }
    }
}

impl<C: Carrier> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.member.endpoint.metrics().waiters(-1);
        self.member.waiting.borrow_mut().retain(|(ticket, _)| *ticket != self.ticket);
        // There may be room for the next one too.
        self.member.wake();
    }
}
