//! The connections that all workers together may have to one endpoint.
//!
//! Each worker has a pool and a queue of its own ([`crate::room`]); the quota is one for the process. A worker takes a permit before it
//! makes a connection. Without one, the exchange at the head of its queue gets a ticket here, and tickets are served by age. So the
//! oldest exchange of all workers is next, whichever worker it is on.
//!
//! A connection stays on its worker. Where another worker waits, an idle connection is closed and its permit moves: a new ticket rings
//! the [`Bell`] of every other worker, and a worker looks at the line before it keeps a connection that has come back. A worker whose
//! own exchanges wait gives a connection away only to a ticket that is older by [`MOVE_AFTER`]. An exchange with a connection at hand
//! takes no lock and touches no atomic to have it; to give it back it reads the length of the line.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
};

use weir_base::time::Time;
use weir_engine::wake_elsewhere;

use crate::{
    bell::{Bell, Bells},
    room::MOVE_AFTER,
};

/// The connections of the process to one endpoint. Clones share the count.
#[derive(Clone)]
pub struct Quota(Arc<Shared>);

struct Shared {
    limit: AtomicU32,
    /// Permits that are out.
    open: AtomicU32,
    /// The length of the line, to be read without its lock.
    waiting: AtomicU32,
    line: Mutex<Line>,
}

/// Those that wait, the oldest first.
#[derive(Default)]
struct Line {
    number: u64,
    queued: Vec<Queued>,
    keepers: Bells,
    /// Connections that are being closed for those that wait.
    reclaimed: u32,
}

struct Queued {
    number: u64,
    since: Time,
    keeper: Weak<Bell>,
    waker: Option<Waker>,
}

impl Default for Quota {
    /// Without a limit.
    fn default() -> Self {
        Self(Arc::new(Shared {
            limit: AtomicU32::new(u32::MAX),
            open: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            line: Mutex::default(),
        }))
    }
}

impl Quota {
    /// Sets the limit. Connections above a lowered limit stay while they carry exchanges, or while no worker waits.
    pub fn set_limit(&self, limit: u32) {
        self.0.limit.store(limit, Ordering::SeqCst);
        self.wake_first();
    }

    /// The pool of a worker: its keeper is rung when another worker waits.
    pub(crate) fn enter(&self, keeper: &Arc<Bell>) {
        self.line().keepers.enter(keeper);
    }

    /// A permit, if one is free and no worker waits for it.
    pub(crate) fn try_take(&self) -> Option<QuotaPermit> {
        (self.0.waiting.load(Ordering::SeqCst) == 0 && self.take()).then(|| QuotaPermit(self.clone()))
    }

    /// A permit beyond the limit.
    pub(crate) fn take_over(&self) -> QuotaPermit {
        self.0.open.fetch_add(1, Ordering::SeqCst);
        QuotaPermit(self.clone())
    }

    /// All permits are out, or waited for.
    pub(crate) fn is_used_up(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
            || self.0.open.load(Ordering::Relaxed) >= self.0.limit.load(Ordering::Relaxed)
    }

    /// Waits for a permit since `since`, for the worker of `keeper`.
    pub(crate) fn wait(&self, since: Time, keeper: &Arc<Bell>) -> Ticket {
        let mut line = self.line();
        let number = line.number;
        line.number += 1;
        let at = line.queued.partition_point(|queued| queued.since <= since);
        line.queued.insert(at, Queued { number, since, keeper: Arc::downgrade(keeper), waker: None });
        self.publish(&mut line);
        let others = line.keepers.others(keeper);
        drop(line);
        others.iter().for_each(|keeper| keeper.ring());
        Ticket { quota: self.clone(), number }
    }

    /// Whether the worker of `keeper` closes a connection that it could keep, because another worker waits. `own`: since when an
    /// exchange of its own has waited for one. Each yes is for one connection.
    pub(crate) fn reclaims(&self, keeper: &Arc<Bell>, own: Option<Time>) -> bool {
        if self.0.waiting.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut line = self.line();
        let (open, limit) = (self.0.open.load(Ordering::SeqCst), self.0.limit.load(Ordering::SeqCst));
        let (free, over) = (limit.saturating_sub(open), open.saturating_sub(limit));
        let mut others = line.queued.iter().filter(|queued| !std::ptr::eq(queued.keeper.as_ptr(), Arc::as_ptr(keeper)));
        let Some(other) = others.next() else { return false };
        let wanted = (1 + others.count() as u32).saturating_add(over);
        if line.reclaimed.saturating_add(free) >= wanted {
            return false;
        }
        if own.is_some_and(|own| other.since.saturating_add(MOVE_AFTER) >= own) {
            return false;
        }
        line.reclaimed += 1;
        true
    }

    fn take(&self) -> bool {
        let limit = self.0.limit.load(Ordering::SeqCst);
        let more = |open: u32| (open < limit).then_some(open + 1);
        self.0.open.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length is written before the count is looked at, and a permit that comes back is counted before the length is looked at: one
    /// of the two sees the other.
    fn publish(&self, line: &mut Line) {
        if line.queued.is_empty() {
            // The permits of these connections come back without a look at the line.
            line.reclaimed = 0;
        }
        self.0.waiting.store(line.queued.len() as u32, Ordering::SeqCst);
    }

    fn wake_first(&self) {
        if self.0.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let waker = self.line().queued.first_mut().and_then(|first| first.waker.take());
        waker.into_iter().for_each(wake_elsewhere);
    }
}

/// The right to one connection, until it is dropped.
pub(crate) struct QuotaPermit(Quota);

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let shared = &self.0.0;
        if shared.waiting.load(Ordering::SeqCst) > 0 {
            // Together: a look at the line counts the connection as free or as on its way, not as both.
            let mut line = self.0.line();
            shared.open.fetch_sub(1, Ordering::SeqCst);
            line.reclaimed = line.reclaimed.saturating_sub(1);
        } else {
            shared.open.fetch_sub(1, Ordering::SeqCst);
        }
        // One that has come to wait meanwhile, too.
        self.0.wake_first();
    }
}

/// A place in the line, until it is dropped.
pub(crate) struct Ticket {
    quota: Quota,
    number: u64,
}

impl Ticket {
    /// It is the oldest.
    pub(crate) fn is_next(&self) -> bool {
        self.quota.line().queued.first().is_some_and(|first| first.number == self.number)
    }

    /// Ready with a permit, once this is the oldest and one is there. Not to be polled after that.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<QuotaPermit> {
        let mut line = self.quota.line();
        let Some(first) = line.queued.first_mut().filter(|first| first.number == self.number) else {
            if let Some(own) = line.queued.iter_mut().find(|queued| queued.number == self.number) {
                own.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        };
        first.waker = Some(context.waker().clone());
        if !self.quota.take() {
            return Poll::Pending;
        }
        line.queued.remove(0);
        self.quota.publish(&mut line);
        drop(line);
        self.quota.wake_first();
        Poll::Ready(QuotaPermit(self.quota.clone()))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut line = self.quota.line();
        line.queued.retain(|queued| queued.number != self.number);
        self.quota.publish(&mut line);
        drop(line);
        // A permit that it was woken for is for the next one.
        self.quota.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::AtomicUsize,
        task::Wake,
        thread,
        time::{Duration, Instant},
    };

    use weir_base::rng::Rng;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn quota(limit: u32) -> Quota {
        let quota = Quota::default();
        quota.set_limit(limit);
        quota
    }

    fn keepers<const N: usize>(quota: &Quota) -> [Arc<Bell>; N] {
        std::array::from_fn(|_| {
            let keeper = Arc::<Bell>::default();
            quota.enter(&keeper);
            keeper
        })
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn poll(ticket: &Ticket) -> Option<QuotaPermit> {
        match ticket.poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    fn is_rung(keeper: &Bell) -> bool {
        keeper.take_ring()
    }

    #[test]
    fn the_oldest_of_all_workers_is_next_and_nobody_passes_it() {
        let quota = quota(1);
        let [a, b] = keepers(&quota);
        let held = quota.try_take().expect("the only one");
        assert!(quota.try_take().is_none() && quota.is_used_up());
        let (late, early) = (quota.wait(at(20), &a), quota.wait(at(10), &b));
        assert!(poll(&late).is_none() && poll(&early).is_none());
        drop(held);
        assert!(quota.try_take().is_none(), "it is for those that wait");
        assert!(poll(&late).is_none(), "and for the older of them");
        let held = poll(&early).expect("free");
        drop((early, held));
        assert!(poll(&late).is_some());
        drop(late);
        assert!(quota.try_take().is_some());
    }

    #[test]
    fn a_ticket_that_is_dropped_hands_its_turn_on() {
        let quota = quota(1);
        let [a, b] = keepers(&quota);
        let held = quota.try_take().expect("the only one");
        let (first, second) = (quota.wait(at(1), &a), quota.wait(at(2), &b));
        let woken = Arc::<WakeCount>::default();
        assert!(second.poll(&Context::from_waker(&woken.clone().into())).is_pending());
        drop(held);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "it is the turn of the first");
        drop(first);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(poll(&second).is_some());
    }

    #[test]
    fn a_new_ticket_rings_the_other_workers_and_one_idle_connection_is_closed_for_it() {
        let quota = quota(2);
        let [a, b, c] = keepers(&quota);
        let (idle, _busy) = (quota.try_take(), quota.try_take());
        let ticket = quota.wait(at(1), &a);
        assert_eq!([is_rung(&a), is_rung(&b), is_rung(&c)], [false, true, true]);
        assert!(!quota.reclaims(&a, None), "it is its own");
        assert!(quota.reclaims(&b, None) && !quota.reclaims(&c, None), "one is enough");
        drop(idle);
        let taken = poll(&ticket).expect("the place of the idle one");
        drop(ticket);
        assert!(!quota.reclaims(&b, None));
        drop(taken);
    }

    #[test]
    fn a_connection_that_was_closed_for_one_that_left_is_not_expected_any_more() {
        let quota = quota(1);
        let [a, b] = keepers(&quota);
        let held = quota.try_take();
        let ticket = quota.wait(at(1), &a);
        assert!(quota.reclaims(&b, None));
        drop(ticket);
        drop(held);
        let _held = quota.try_take().expect("free");
        let _ticket = quota.wait(at(2), &a);
        assert!(quota.reclaims(&b, None), "it waits for this one");
    }

    #[test]
    fn connections_beyond_the_limit_are_closed_before_one_that_waits_has_a_permit() {
        let quota = quota(1);
        let [a, b] = keepers(&quota);
        let (first, second) = (quota.try_take(), Some(quota.take_over()));
        let ticket = quota.wait(at(1), &a);
        assert!(quota.reclaims(&b, None) && quota.reclaims(&b, None) && !quota.reclaims(&b, None));
        drop(first);
        assert!(poll(&ticket).is_none());
        drop(second);
        assert!(poll(&ticket).is_some());
    }

    #[test]
    fn a_worker_whose_own_exchanges_wait_gives_way_only_to_much_older_ones() {
        let quota = quota(1);
        let [a, b] = keepers(&quota);
        let _held = quota.try_take();
        let (_other, _own) = (quota.wait(at(100), &b), quota.wait(at(120), &a));
        assert!(!quota.reclaims(&a, Some(at(120))) && !quota.reclaims(&a, Some(at(150))));
        assert!(quota.reclaims(&a, Some(at(151))));
    }

    #[test]
    fn a_worker_closes_no_connection_for_its_own_ticket() {
        let quota = quota(2);
        let [a, b] = keepers(&quota);
        let (first, _second) = (quota.try_take(), quota.try_take());
        let (_other, _own) = (quota.wait(at(0), &a), quota.wait(at(100), &b));
        assert!(quota.reclaims(&b, Some(at(100))));
        drop(first);
        assert!(!quota.reclaims(&b, Some(at(100))), "one other waits, and one connection was closed for it");
    }

    #[test]
    fn a_higher_limit_wakes_the_first_and_a_lower_one_takes_nothing_away() {
        let quota = quota(1);
        let [a] = keepers(&quota);
        let _held = quota.try_take();
        let (ticket, woken) = (quota.wait(at(1), &a), Arc::<WakeCount>::default());
        assert!(ticket.poll(&Context::from_waker(&woken.clone().into())).is_pending());
        quota.set_limit(2);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        let _second = poll(&ticket).expect("one more");
        quota.set_limit(1);
        drop(ticket);
        assert!(quota.is_used_up() && quota.try_take().is_none());
        let _over = quota.take_over();
    }

    /// Waits as a worker does: parked until it is woken.
    fn take(quota: &Quota, keeper: &Arc<Bell>, since: Time) -> QuotaPermit {
        struct Parked(thread::Thread);
        impl Wake for Parked {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        if let Some(permit) = quota.try_take() {
            return permit;
        }
        let (ticket, waker) = (quota.wait(since, keeper), Arc::new(Parked(thread::current())).into());
        loop {
            if let Poll::Ready(permit) = ticket.poll(&Context::from_waker(&waker)) {
                return permit;
            }
            let parked = Instant::now();
            thread::park_timeout(Duration::from_secs(20));
            assert!(parked.elapsed() < Duration::from_secs(20), "forgotten");
        }
    }

    #[test]
    fn threads_never_pass_the_limit_and_none_is_forgotten() {
        const THREADS: u64 = 4;
        for limit in [1, 3] {
            let (quota, open, clock) = (quota(limit), AtomicUsize::new(0), AtomicUsize::new(0));
            thread::scope(|scope| {
                for seed in 0..THREADS {
                    let (quota, open, clock) = (&quota, &open, &clock);
                    scope.spawn(move || {
                        let (mut rng, [keeper]) = (Rng::new(seed), keepers(quota));
                        for _ in 0..2_000 {
                            let since = at(clock.fetch_add(1, Ordering::SeqCst) as u64);
                            if rng.below(8) == 0 {
                                // One that gives up.
                                let ticket = quota.wait(since, &keeper);
                                drop(poll(&ticket));
                                continue;
                            }
                            let permit = take(quota, &keeper, since);
                            assert!(open.fetch_add(1, Ordering::SeqCst) < limit as usize, "over the limit");
                            if rng.below(4) == 0 {
                                thread::yield_now();
                            }
                            // A connection that is closed for another worker, or kept.
                            let _ = quota.reclaims(&keeper, None);
                            open.fetch_sub(1, Ordering::SeqCst);
                            drop(permit);
                        }
                    });
                }
            });
            assert_eq!(quota.line().reclaimed, 0, "nobody waits");
            let all: Vec<_> = (0..limit).map(|_| quota.try_take().expect("all are back")).collect();
            assert!(quota.try_take().is_none() && all.len() == limit as usize);
        }
    }
}
