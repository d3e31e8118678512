//! One endpoint of an upstream whose lanes serve one exchange at a time: its connections, and the exchanges that wait for one.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    time::{Time, turn},
};

use crate::{
    carrier::{Carrier, CarrierEntry},
    draining::Draining,
    endpoint::Endpoint,
    idle::{Idle, IdleCheck, IdlePool},
    room::Room,
};

/// How long the connections of an endpoint rest after every response once it has written behind one. 60 s: a server that does
/// this on purpose or by mistake does it again. Worst case: its clients wait for connects.
const DISTRUST: Duration = Duration::from_secs(60);

/// One endpoint with its lanes.
pub(crate) struct Member<C: Carrier> {
    pub(crate) endpoint: Rc<Endpoint>,
    pub(crate) idle: RefCell<IdlePool>,
    /// When it last wrote behind the end of a response.
    overran_at: Cell<Option<Time>>,
    /// The first with room is the next one taken, for the same reason.
    pub(crate) carriers: RefCell<Vec<Rc<CarrierEntry<C>>>>,
    /// Those that take no exchanges any more.
    pub(crate) draining: Draining<C>,
    /// Its connections, and the exchanges that wait for one.
    pub(crate) room: Rc<Room<()>>,
    /// How many could not be made, and why the last one could not.
    pub(crate) refused: Cell<(u64, Refusal)>,
}

impl<C: Carrier> Member<C> {
    pub(crate) fn new(endpoint: Rc<Endpoint>) -> Self {
        Self {
            endpoint,
            idle: RefCell::default(),
            overran_at: Cell::new(None),
            carriers: RefCell::default(),
            draining: Draining::default(),
            room: Rc::default(),
            refused: Cell::new((0, Refusal::Unreachable)),
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
    pub(crate) fn let_go(&self, _idle: Idle, found: IdleCheck, ended: LossCause) {
        if found == IdleCheck::Bytes {
            self.overran();
        }
        self.endpoint.metrics().lane_closed(if found == IdleCheck::Bytes { LossCause::Violation } else { ended });
    }

    /// `carriage` gets no further exchanges; those on it go on.
    pub(crate) fn part_with(&self, carriage: &Rc<CarrierEntry<C>>) {
        let mut carriers = self.carriers.borrow_mut();
        let parted: Vec<_> = carriers.extract_if(.., |other| Rc::ptr_eq(other, carriage)).collect();
        self.draining.extend(&parted);
    }

    /// True if there is a connection that another exchange may have now, and no exchange waits for one.
    pub(crate) fn has_lane(&self, now: Time) -> bool {
        let is_idle = || self.idle.borrow().has_ready(now);
        !self.room.is_awaited(()) && (is_idle() || self.carriers.borrow().iter().any(|carriage| carriage.has_room()))
    }
}
