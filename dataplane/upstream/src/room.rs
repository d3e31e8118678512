//! The room of a pool: its open connections, and those that wait for one, first come first served.
//!
//! How many connections there may be is for the pool to say, or for the [`crate::quota`] of all workers.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::Waker,
    time::Duration,
};

use weir_base::time::Time;

use crate::{metrics::EndpointMetrics, quota::QuotaPermit};

/// How much longer one must have waited for a connection that has to be made to come before another that can have a connection which
/// stands. 50 ms: several times a connect with a login inside one data centre, and at most 20 connects a second for each connection
/// that would otherwise serve on. Worst case: one waits so much longer than another.
pub(crate) const MOVE_AFTER: Duration = Duration::from_millis(50);

/// The connections that a pool has, and the queue for them. `K`: what makes connections different.
pub(crate) struct Room<K> {
    /// Connections that are lent, idle or being made.
    open: Cell<u32>,
    waiting: RefCell<VecDeque<Queued<K>>>,
    /// The number of the next one that waits.
    ticket: Cell<u64>,
}

struct Queued<K> {
    ticket: u64,
    key: K,
    since: Time,
    waker: Waker,
}

impl<K> Default for Room<K> {
    fn default() -> Self {
        Self { open: Cell::new(0), waiting: RefCell::default(), ticket: Cell::new(0) }
    }
}

impl<K: Copy + Eq> Room<K> {
    /// Connections that are lent, idle or being made.
    pub(crate) fn open(&self) -> u32 {
        self.open.get()
    }

    /// A connection more, until the result is dropped. Whether there may be one is for the caller to say; `quota`: the leave of all workers.
    pub(crate) fn permit(self: &Rc<Self>, quota: Option<QuotaPermit>) -> Permit<K> {
        self.open.set(self.open.get() + 1);
        Permit { room: self.clone(), quota }
    }

    /// A place in the queue from `since` on, until the result is dropped.
    pub(crate) fn wait(self: &Rc<Self>, key: K, since: Time, metrics: &Rc<EndpointMetrics>) -> QueuedWaiter<K> {
        metrics.waiters(1);
        let ticket = self.ticket.replace(self.ticket.get() + 1);
        // A place in the queue is taken at once, and the waker found when it is polled first.
        self.waiting.borrow_mut().push_back(Queued { ticket, key, since, waker: Waker::noop().clone() });
        QueuedWaiter { room: self.clone(), ticket, key, metrics: metrics.clone() }
    }

    /// The length of the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Somebody waits for a connection of `key`.
    pub(crate) fn is_awaited(&self, key: K) -> bool {
        self.waiting.borrow().iter().any(|queued| queued.key == key)
    }

    /// Since when the first has waited.
    pub(crate) fn waiting_since(&self) -> Option<Time> {
        self.waiting.borrow().front().map(|first| first.since)
    }

    /// The first of all waits for another key than `key`, and has waited so much longer than the first of `key` that a connection of
    /// that makes room for it.
    pub(crate) fn is_overtaken_by(&self, key: K) -> bool {
        let waiting = self.waiting.borrow();
        let Some(first) = waiting.front().filter(|first| first.key != key) else { return false };
        let of_key = waiting.iter().find(|queued| queued.key == key);
        of_key.is_some_and(|own| first.since.saturating_add(MOVE_AFTER) < own.since)
    }

    /// There may be room: the first looks. It stays in the queue until it has some, or gives up.
    pub(crate) fn wake(&self) {
        if let Some(first) = self.waiting.borrow().front() {
            first.waker.wake_by_ref();
        }
    }

    /// A connection of `key` stands: the first that waits for one looks.
    pub(crate) fn wake_for(&self, key: K) {
        if let Some(first) = self.waiting.borrow().iter().find(|queued| queued.key == key) {
            first.waker.wake_by_ref();
        }
    }

    /// All look.
    pub(crate) fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|queued| queued.waker.wake_by_ref());
    }
}

/// A connection that is counted as open.
pub(crate) struct Permit<K: Copy + Eq> {
    room: Rc<Room<K>>,
    quota: Option<QuotaPermit>,
}

impl<K: Copy + Eq> Drop for Permit<K> {
    fn drop(&mut self) {
        self.room.open.set(self.room.open.get() - 1);
        self.quota = None;
        self.room.wake();
    }
}

/// A place in the queue.
pub(crate) struct QueuedWaiter<K: Copy + Eq> {
    room: Rc<Room<K>>,
    ticket: u64,
    key: K,
    metrics: Rc<EndpointMetrics>,
}

impl<K: Copy + Eq> QueuedWaiter<K> {
    /// It is the first of all: it may have any room there is.
    pub(crate) fn is_next(&self) -> bool {
        self.room.waiting.borrow().front().is_some_and(|first| first.ticket == self.ticket)
    }

    /// It is the first of those that wait for its key: it may have a connection of that.
    pub(crate) fn is_next_of_key(&self) -> bool {
        let waiting = self.room.waiting.borrow();
        waiting.iter().find(|queued| queued.key == self.key).is_some_and(|first| first.ticket == self.ticket)
    }

    /// Wakes `waker` when it may be its turn.
    pub(crate) fn register(&self, waker: &Waker) {
        let mut waiting = self.room.waiting.borrow_mut();
        if let Some(own) = waiting.iter_mut().find(|queued| queued.ticket == self.ticket) {
            own.waker.clone_from(waker);
        }
    }
}

impl<K: Copy + Eq> Drop for QueuedWaiter<K> {
    fn drop(&mut self) {
        self.metrics.waiters(-1);
        self.room.waiting.borrow_mut().retain(|queued| queued.ticket != self.ticket);
        // There may be room for the next one too, or a connection of its key.
        self.room.wake();
        self.room.wake_for(self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
        task::Wake,
    };

    use weir_telemetry::{EventLog, Level, Registry, log::log_ring};

    use super::*;
    use crate::metrics::UpstreamMetrics;

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One that waits, and how often it was woken.
    fn waiting(room: &Rc<Room<u8>>, key: u8, metrics: &Rc<EndpointMetrics>) -> (QueuedWaiter<u8>, Arc<WakeCount>) {
        let (waiting, woken) = (room.wait(key, Time::ZERO, metrics), Arc::<WakeCount>::default());
        waiting.register(&Waker::from(woken.clone()));
        (waiting, woken)
    }

    fn count(woken: &WakeCount) -> u32 {
        woken.0.swap(0, Ordering::Relaxed)
    }

    #[test]
    fn first_come_first_served_and_each_key_has_an_order_of_its_own() {
        let registry = Registry::with_level(Level::Full);
        let of = UpstreamMetrics::new(&registry.core(0), EventLog::new(log_ring(8, None).0), "one".into());
        let metrics = Rc::new(EndpointMetrics::new(&of, "one"));
        let room = Rc::<Room<u8>>::default();
        let permit = room.permit(None);
        let ((first, a), (second, b), (third, c)) =
            (waiting(&room, 1, &metrics), waiting(&room, 2, &metrics), waiting(&room, 2, &metrics));
        let next = |one: &QueuedWaiter<u8>| (one.is_next(), one.is_next_of_key());
        assert_eq!([next(&first), next(&second), next(&third)], [(true, true), (false, true), (false, false)]);
        assert!((room.open(), room.waiting()) == (1, 3) && room.is_awaited(2) && !room.is_awaited(3));
        drop(permit);
        assert_eq!((room.open(), [count(&a), count(&b), count(&c)]), (0, [1, 0, 0]), "room is for the first of all");
        room.wake_for(2);
        assert_eq!([count(&a), count(&b), count(&c)], [0, 1, 0], "a connection is for the first of its key");
        drop(first);
        assert_eq!((next(&second), [count(&b), count(&c)]), ((true, true), [1, 0]), "the next one looks");
        let ((fourth, d), (fifth, e)) = (waiting(&room, 3, &metrics), waiting(&room, 3, &metrics));
        drop(fourth);
        assert_eq!([count(&b), count(&d), count(&e)], [1, 0, 1], "and the next of its key");
        drop(fifth);
        assert_eq!([count(&b), count(&c)], [1, 0]);
        room.wake_all();
        assert_eq!([count(&b), count(&c)], [1, 1]);
        let late = room.wait(7, Time::ZERO.saturating_add(MOVE_AFTER), &metrics);
        assert!(!room.is_overtaken_by(7), "not by enough");
        let later = room.wait(8, Time::ZERO.saturating_add(MOVE_AFTER * 2), &metrics);
        assert!(room.is_overtaken_by(8) && !room.is_overtaken_by(2) && !room.is_overtaken_by(9));
        assert_eq!(room.waiting_since(), Some(Time::ZERO));
        drop((late, later));
        drop((second, third));
        assert_eq!((room.waiting(), registry.read().gauge("gateway_lane_pool_waiters", &[])), (0, Some(0)));
    }
}
