//! The bounded set of open connections, and who makes room when it is full.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::limits::{CONNECTIONS_MAX, EVICTABLE_AFTER};

/// All seats. Lives on the admin thread.
#[derive(Default)]
pub(crate) struct Seats {
    taken: RefCell<BTreeMap<u64, Rc<Seat>>>,
    next_id: Cell<u64>,
    freed: Notify,
}

impl Seats {
    /// Waits until a connection may be accepted.
    ///
    /// With all seats taken, the connection that has been quiet for longest is evicted, if it was for
    /// [`EVICTABLE_AFTER`]; one that is in an exchange never is, its deadlines end it.
    pub(crate) async fn vacancy(&self) {
        while self.len() >= CONNECTIONS_MAX {
            let wait = match self.longest_quiet() {
                Some((seat, quiet)) if quiet >= EVICTABLE_AFTER => {
                    seat.evicted.notify_one();
                    EVICTABLE_AFTER
                }
                Some((_, quiet)) => EVICTABLE_AFTER - quiet,
                None => EVICTABLE_AFTER,
            };
            // Elapsed or freed, the loop looks again.
            let _elapsed = timeout(wait, self.freed.notified()).await;
        }
    }

    /// Waits until every seat is free.
    pub(crate) async fn all_free(&self) {
        while self.len() > 0 {
            self.freed.notified().await;
        }
    }

    /// Takes a seat. The caller has waited for a [`vacancy`](Self::vacancy).
    pub(crate) fn take(self: &Rc<Self>) -> OccupiedSeat {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let seat = Rc::new(Seat {
            exchanges: Cell::new(0),
            writing: Cell::new(false),
            quiet_since: Cell::new(Instant::now()),
            evicted: Notify::new(),
        });
        self.taken.borrow_mut().insert(id, Rc::clone(&seat));
        debug_assert!(self.len() <= CONNECTIONS_MAX);
        OccupiedSeat { seats: Rc::clone(self), seat, id }
    }

    fn len(&self) -> usize {
        self.taken.borrow().len()
    }

    fn longest_quiet(&self) -> Option<(Rc<Seat>, Duration)> {
        self.taken
            .borrow()
            .values()
            .filter_map(|seat| seat.quiet_for().map(|quiet| (Rc::clone(seat), quiet)))
            .max_by_key(|(_, quiet)| *quiet)
    }
}

/// The state of a connection.
pub(crate) struct Seat {
    exchanges: Cell<u32>,
    writing: Cell<bool>,
    quiet_since: Cell<Instant>,
    evicted: Notify,
}

impl Seat {
    /// A request head is complete; until the guard drops, the connection is not quiet.
    pub(crate) fn begin_exchange(self: &Rc<Self>) -> Exchange {
        self.exchanges.set(self.exchanges.get() + 1);
        Exchange(Rc::clone(self))
    }

    /// A response began, or ceased, to wait for the client.
    pub(crate) fn set_writing(&self, writing: bool) {
        self.writing.set(writing);
        self.quiet_since.set(Instant::now());
    }

    /// Resolves when the seat is needed for somebody else.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    fn quiet_for(&self) -> Option<Duration> {
        let busy = self.exchanges.get() > 0 || self.writing.get();
        (!busy).then(|| self.quiet_since.get().elapsed())
    }
}

/// An exchange under way.
pub(crate) struct Exchange(Rc<Seat>);

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.exchanges.set(self.0.exchanges.get() - 1);
        self.0.quiet_since.set(Instant::now());
    }
}

/// A seat that is given back on drop.
pub(crate) struct OccupiedSeat {
    seats: Rc<Seats>,
    seat: Rc<Seat>,
    id: u64,
}

impl OccupiedSeat {
    pub(crate) fn seat(&self) -> &Rc<Seat> {
        &self.seat
    }
}

impl Drop for OccupiedSeat {
    fn drop(&mut self) {
        self.seats.taken.borrow_mut().remove(&self.id);
        self.seats.freed.notify_one();
    }
}
