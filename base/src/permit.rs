//! Budgets and permits: the right to use a bounded thing, given back by dropping it.
//!
//! A counter that is decremented by hand leaks on a path that its author overlooked, until it rejects everything
//! (envoyproxy/envoy#43032). Here the only way to give back is `Drop`.
//!
//! | budget | scope | cost | for |
//! |---|---|---|---|
//! | [`Budget`] | process | one atomic compare-exchange | rare: connections, leases of bytes |
//! | [`LocalBudget`] | one core | a plain cell | hot: exchanges in flight, TLS handshakes |
//! | [`crate::lease::ByteLease`] | one core, leased from a `Budget` | a plain cell, an atomic per MiB | buffered bytes |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

pub use crate::lease::{ByteLease, BytesPermit};

#[derive(Debug)]
struct Shared {
    in_use: AtomicU64,
    limit: AtomicU64,
}

/// A process-wide exact budget. Clones share the count.
///
/// Exact: at no time are more units out than the limit that was in force when the last of them was taken, except those
/// of [`acquire_over`](Budget::acquire_over).
/// Lowering the limit below what is in use takes nothing away; new permits wait until use has fallen.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

impl Budget {
    /// A budget of `limit` units, none in use.
    #[must_use]
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Shared { in_use: AtomicU64::new(0), limit: AtomicU64::new(limit) }))
    }

    /// One unit, or `None` if the budget is used up. Never waits.
    #[must_use = "the unit is given back when the permit is dropped"]
    pub fn try_acquire(&self) -> Option<Permit> {
        self.try_acquire_many(1)
    }

    /// `units` at once or none at all.
    #[must_use = "the units are given back when the permit is dropped"]
    pub fn try_acquire_many(&self, units: u64) -> Option<Permit> {
        self.take(units).then(|| Permit { budget: self.clone(), units })
    }

    /// One unit, also beyond the limit: for what is there already and can only be counted. Others wait until use has fallen.
    pub fn acquire_over(&self) -> Permit {
        self.0.in_use.fetch_add(1, Ordering::Relaxed);
        Permit { budget: self.clone(), units: 1 }
    }

    /// Units out right now.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.0.in_use.load(Ordering::Relaxed)
    }

    /// Units that may be out.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit; see the type for what happens to units already out.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    /// Counts `units` as used if they fit. Relaxed is enough: the count guards no other memory.
    pub(crate) fn take(&self, units: u64) -> bool {
        let mut in_use = self.0.in_use.load(Ordering::Relaxed);
        loop {
            let Some(next) = in_use.checked_add(units).filter(|&next| next <= self.limit()) else {
                return false;
            };
            match self.0.in_use.compare_exchange_weak(in_use, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => in_use = seen,
            }
        }
    }

    /// Gives back `units` that [`Budget::take`] granted.
    pub(crate) fn put(&self, units: u64) {
        let before = self.0.in_use.fetch_sub(units, Ordering::Relaxed);
        debug_assert!(before >= units, "gave back {units} of {before}");
    }
}

/// Units of a [`Budget`]; dropping it gives them back. May move between threads: a connection is admitted on the core
/// that accepts it and handed to the one that serves it.
#[must_use = "dropping the permit gives its units back"]
pub struct Permit {
    budget: Budget,
    units: u64,
}

impl Permit {
    /// How many units this permit holds.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Takes or gives back units until the permit holds `units`. False: the budget has no room for more, and nothing
    /// changes. Never waits.
    #[must_use = "a larger permit may be refused"]
    pub fn resize(&mut self, units: u64) -> bool {
        match units.checked_sub(self.units) {
            Some(more) if !self.budget.take(more) => return false,
            Some(_) => {}
            None => self.budget.put(self.units - units),
        }
        self.units = units;
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.put(self.units);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.units)
    }
}

#[derive(Debug)]
struct LocalState {
    in_use: Cell<u64>,
    limit: Cell<u64>,
    /// Those that wait for a unit, by their numbers.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    number: Cell<u64>,
}

/// A budget of one core: plain cells, no atomics, not `Send`. Clones share the count.
#[derive(Clone, Debug)]
pub struct LocalBudget(Rc<LocalState>);

impl LocalBudget {
    /// A budget of `limit` units, none in use.
    #[must_use]
    pub fn new(limit: u64) -> LocalBudget {
        LocalBudget(Rc::new(LocalState {
            in_use: Cell::new(0),
            limit: Cell::new(limit),
            waiting: RefCell::default(),
            number: Cell::new(0),
        }))
    }

    /// One unit, or `None` if the budget is used up. Never waits.
    #[must_use = "the unit is given back when the permit is dropped"]
    pub fn try_acquire(&self) -> Option<LocalPermit> {
        self.try_acquire_many(1)
    }

    /// `units` at once or none at all.
    #[must_use = "the units are given back when the permit is dropped"]
    pub fn try_acquire_many(&self, units: u64) -> Option<LocalPermit> {
        let next = self.0.in_use.get().checked_add(units).filter(|&next| next <= self.0.limit.get())?;
        self.0.in_use.set(next);
        Some(LocalPermit { budget: self.clone(), units })
    }

    /// One unit, first come first served. [`LocalBudget::try_acquire`] does not look at those that wait.
    pub fn acquire(&self) -> Acquire {
        Acquire { budget: self.clone(), number: None }
    }

    fn put(&self, units: u64) {
        let in_use = &self.0.in_use;
        debug_assert!(in_use.get() >= units);
        in_use.set(in_use.get() - units);
        self.wake();
    }

    /// Wakes the first that waits: there may be a unit for it.
    fn wake(&self) {
        if let Some((_, first)) = self.0.waiting.borrow().front() {
            first.wake_by_ref();
        }
    }

    /// Units out right now.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.0.in_use.get()
    }

    /// Units that may be out.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit.get()
    }

    /// Whether one more unit would be granted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Units that would be granted.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.limit().saturating_sub(self.in_use())
    }

    /// Changes the limit. Units already out stay out; new ones wait until use has fallen below the new limit.
    pub fn set_limit(&self, limit: u64) {
        self.0.limit.set(limit);
        self.wake();
    }
}

/// A unit on its way. See [`LocalBudget::acquire`]. Dropped, it gives up its turn.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    budget: LocalBudget,
    /// Its number among those that wait.
    number: Option<u64>,
}

impl Acquire {
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            self.budget.0.waiting.borrow_mut().retain(|(other, _)| *other != number);
            if self.budget.has_room() {
                self.budget.wake();
            }
        }
    }
}

impl Future for Acquire {
    type Output = LocalPermit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LocalPermit> {
        let budget = self.budget.clone();
        let is_first = match (self.number, budget.0.waiting.borrow().front()) {
            (_, None) => true,
            (number, Some((first, _))) => number == Some(*first),
        };
        if let Some(permit) = is_first.then(|| budget.try_acquire()).flatten() {
            self.leave();
            return Poll::Ready(permit);
        }
        let mut waiting = budget.0.waiting.borrow_mut();
        match self.number.and_then(|number| waiting.iter_mut().find(|(other, _)| *other == number)) {
            Some((_, waker)) => waker.clone_from(context.waker()),
            None => {
                let number = budget.0.number.replace(budget.0.number.get() + 1);
                waiting.push_back((number, context.waker().clone()));
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Units of a [`LocalBudget`]; dropping it gives them back.
#[must_use = "dropping the permit gives its units back"]
pub struct LocalPermit {
    budget: LocalBudget,
    units: u64,
}

impl LocalPermit {
    /// How many units this permit holds.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Takes over the units of `other`, a permit of the same budget.
    pub fn merge(&mut self, mut other: LocalPermit) {
        debug_assert!(Rc::ptr_eq(&self.budget.0, &other.budget.0), "permits of one budget");
        self.units += std::mem::take(&mut other.units);
    }

    /// Gives some of the units back early, at most all of them.
    pub fn give_back(&mut self, units: u64) {
        let units = units.min(self.units);
        self.units -= units;
        self.budget.put(units);
    }
}

impl Drop for LocalPermit {
    fn drop(&mut self) {
        self.budget.put(self.units);
    }
}

impl fmt::Debug for LocalPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalPermit({})", self.units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Barrier;
    use std::thread;

    #[test]
    fn those_that_wait_for_a_local_unit_have_it_in_their_order() {
        #[derive(Default)]
        struct WakeCount(AtomicU64);
        impl std::task::Wake for WakeCount {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (budget, woken) = (LocalBudget::new(1), [(); 3].map(|()| Arc::<WakeCount>::default()));
        let poll = |acquire: &mut Acquire, woken: &Arc<WakeCount>| {
            Pin::new(acquire).poll(&mut Context::from_waker(&woken.clone().into()))
        };
        let Poll::Ready(held) = poll(&mut budget.acquire(), &woken[0]) else { panic!("there is one") };
        let [mut first, mut second, mut third] = [(); 3].map(|()| budget.acquire());
        assert!(poll(&mut first, &woken[0]).is_pending() && poll(&mut second, &woken[1]).is_pending());
        assert!(poll(&mut third, &woken[2]).is_pending() && poll(&mut first, &woken[0]).is_pending());
        drop(held);
        let counts = || woken.each_ref().map(|woken| woken.0.load(Ordering::Relaxed));
        assert_eq!(counts(), [1, 0, 0]);
        assert!(poll(&mut second, &woken[1]).is_pending(), "it is not its turn");
        drop(first);
        assert_eq!(counts(), [1, 1, 0], "a turn that is given up goes on");
        let Poll::Ready(held) = poll(&mut second, &woken[1]) else { panic!("its turn") };
        assert!(poll(&mut third, &woken[2]).is_pending());
        drop(held);
        assert!(poll(&mut third, &woken[2]).is_ready() && budget.in_use() == 0);
    }

    #[test]
    fn a_full_budget_refuses_and_a_dropped_permit_makes_room() {
        let budget = Budget::new(2);
        let first = budget.try_acquire().unwrap();
        let second = budget.try_acquire().unwrap();
        assert!(budget.try_acquire().is_none());
        drop(first);
        assert_eq!(budget.in_use(), 1);
        let third = budget.try_acquire().unwrap();
        drop((second, third));
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_permit_changes_its_size_within_the_budget() {
        let budget = Budget::new(10);
        let mut permit = budget.try_acquire_many(0).unwrap();
        assert!(permit.resize(7) && !permit.resize(11));
        assert_eq!((permit.units(), budget.in_use()), (7, 7));
        assert!(permit.resize(2));
        assert_eq!((permit.units(), budget.in_use()), (2, 2));
        drop(permit);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn existing_units_are_counted_beyond_the_limit() {
        let budget = Budget::new(1);
        let out: Vec<_> = (0..3).map(|_| budget.acquire_over()).collect();
        assert_eq!(budget.in_use(), 3);
        assert!(budget.try_acquire().is_none());
        drop(out);
        assert!(budget.try_acquire().is_some());
    }

    #[test]
    fn lowering_the_limit_takes_nothing_away_but_grants_nothing_new() {
        let budget = Budget::new(4);
        let out: Vec<_> = (0..4).map(|_| budget.try_acquire().unwrap()).collect();
        budget.set_limit(2);
        assert_eq!((budget.in_use(), budget.limit()), (4, 2));
        assert!(budget.try_acquire().is_none());
        drop(out);
        assert!(budget.try_acquire_many(2).is_some());
        assert!(budget.try_acquire_many(3).is_none());
    }

    #[test]
    fn a_local_permit_grows_by_others_and_shrinks_by_parts() {
        let budget = LocalBudget::new(8);
        let mut all = budget.try_acquire_many(3).unwrap();
        all.merge(budget.try_acquire().unwrap());
        assert_eq!((all.units(), budget.in_use()), (4, 4));
        all.give_back(3);
        assert_eq!((all.units(), budget.in_use()), (1, 1));
        all.give_back(2);
        assert_eq!((all.units(), budget.in_use()), (0, 0));
        drop(all);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_claim_near_the_top_of_the_range_does_not_wrap() {
        let budget = Budget::new(u64::MAX);
        let _one = budget.try_acquire().unwrap();
        assert!(budget.try_acquire_many(u64::MAX).is_none());
        let local = LocalBudget::new(u64::MAX);
        let _one = local.try_acquire().unwrap();
        assert!(local.try_acquire_many(u64::MAX).is_none());
    }

    /// Four threads fight for 64 units; none may ever see more than 64 out, and all come back.
    #[test]
    fn the_budget_is_exact_under_contention() {
        const LIMIT: u64 = 64;
        let (budget, held, start) = (Budget::new(LIMIT), AtomicU64::new(0), Barrier::new(4));
        let (granted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for seed in 0..4 {
                let (budget, held, start, granted, refused) = (&budget, &held, &start, &granted, &refused);
                scope.spawn(move || {
                    let mut rng = crate::Rng::new(seed);
                    let mut mine = Vec::new();
                    start.wait();
                    for _ in 0..20_000 {
                        if rng.below(5) < 3 {
                            let Some(permit) = budget.try_acquire_many(1 + rng.below(3)) else {
                                refused.fetch_add(1, Ordering::Relaxed);
                                continue;
                            };
                            granted.fetch_add(1, Ordering::Relaxed);
                            let now = held.fetch_add(permit.units(), Ordering::SeqCst) + permit.units();
                            assert!(now <= LIMIT, "{now} units out");
                            mine.push(permit);
                        } else if let Some(permit) = mine.pop() {
                            held.fetch_sub(permit.units(), Ordering::SeqCst);
                            drop(permit);
                        }
                    }
                    for permit in mine {
                        held.fetch_sub(permit.units(), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(budget.in_use(), 0);
        assert!(granted.into_inner() > 1_000 && refused.into_inner() > 0, "the test must meet both outcomes");
        drop(budget.try_acquire_many(LIMIT).expect("every unit is back"));
    }

    #[test]
    fn a_permit_comes_back_from_another_thread_and_from_a_panic() {
        let budget = Budget::new(1);
        let permit = budget.try_acquire().unwrap();
        thread::spawn(move || drop(permit)).join().unwrap();
        assert_eq!(budget.in_use(), 0);
        let permit = budget.try_acquire().unwrap();
        let unwound = thread::spawn(move || {
            let _held = permit;
            std::panic::resume_unwind(Box::new("session failed"));
        });
        assert!(unwound.join().is_err());
        assert_eq!(budget.in_use(), 0);
    }

    proptest! {
        /// Any order of taking, giving back and changing the limit matches a plain count, and ends at zero.
        #[test]
        fn budgets_follow_a_plain_count(steps in prop::collection::vec((0u8..4, 0u64..20), 1..200)) {
            let (budget, local) = (Budget::new(16), LocalBudget::new(16));
            let (mut out, mut count, mut limit) = (Vec::new(), 0u64, 16u64);
            for (step, n) in steps {
                match step {
                    0 | 1 => {
                        let (a, b) = (budget.try_acquire_many(n), local.try_acquire_many(n));
                        let fits = count + n <= limit;
                        prop_assert_eq!((a.is_some(), b.is_some()), (fits, fits));
                        if let (Some(a), Some(b)) = (a, b) {
                            count += n;
                            out.push((a, b));
                        }
                    }
                    2 => if !out.is_empty() {
                        let at = usize::try_from(n).unwrap() % out.len();
                        count -= out.swap_remove(at).0.units();
                    },
                    _ => {
                        limit = n;
                        budget.set_limit(n);
                        local.set_limit(n);
                    }
                }
                prop_assert_eq!((budget.in_use(), local.in_use()), (count, count));
                prop_assert_eq!(local.has_room(), count < limit);
            }
            drop(out);
            prop_assert_eq!((budget.in_use(), local.in_use()), (0, 0));
        }
    }
}
