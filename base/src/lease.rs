//! A core's share of the process-wide byte budget.
//!
//! Buffers grow and shrink on every message, so counting each byte on a shared atomic would make all cores pay for all
//! traffic. A [`ByteLease`] takes whole steps (1 MiB) from the [`Budget`] and hands bytes out of them from a plain
//! cell. From two free steps on it gives all but one back at once, so the process total is less than two steps per core
//! above what is really buffered.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use crate::limits::BYTE_LEASE_STEP;
use crate::permit::Budget;

#[derive(Debug)]
struct State {
    budget: Budget,
    step: u64,
    leased: Cell<u64>,
    in_use: Cell<u64>,
}

impl State {
    fn free(&self) -> u64 {
        self.leased.get() - self.in_use.get()
    }

    /// Takes `bytes`, leasing more if the free part does not cover them.
    fn take(&self, bytes: u64) -> bool {
        if bytes > self.free() && !self.lease_more(bytes - self.free()) {
            return false;
        }
        self.in_use.set(self.in_use.get() + bytes);
        true
    }

    /// Leases whole steps for `missing` bytes; near the end of the budget, exactly what is missing.
    fn lease_more(&self, missing: u64) -> bool {
        let whole = missing.checked_next_multiple_of(self.step).filter(|&whole| self.budget.take(whole));
        let granted = match whole {
            Some(whole) => whole,
            None if self.budget.take(missing) => missing,
            None => return false,
        };
        self.leased.set(self.leased.get() + granted);
        true
    }

    fn put(&self, bytes: u64) {
        debug_assert!(self.in_use.get() >= bytes);
        self.in_use.set(self.in_use.get() - bytes);
        // Two free steps, give back down to one: a buffer that swings around a step boundary does not touch the atomic.
        if self.free() >= self.step.saturating_mul(2) {
            self.give_back(self.free() - self.step);
        }
    }

    fn give_back(&self, bytes: u64) {
        self.leased.set(self.leased.get() - bytes);
        self.budget.put(bytes);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.budget.put(self.leased.get());
    }
}

/// A core's lease on a process-wide byte [`Budget`]. Not `Send`; clones share the lease.
#[derive(Clone, Debug)]
pub struct ByteLease(Rc<State>);

impl ByteLease {
    /// A lease on `budget` in steps of [`BYTE_LEASE_STEP`]; nothing is leased yet.
    #[must_use]
    pub fn new(budget: Budget) -> ByteLease {
        ByteLease::with_step(budget, BYTE_LEASE_STEP)
    }

    /// The same with steps of `step` bytes (at least one); for tests and for small budgets.
    #[must_use]
    pub fn with_step(budget: Budget, step: u64) -> ByteLease {
        ByteLease(Rc::new(State { budget, step: step.max(1), leased: Cell::new(0), in_use: Cell::new(0) }))
    }

    /// The right to buffer `bytes`, or `None` if the process budget is used up. Never waits.
    #[must_use = "the bytes are given back when the permit is dropped"]
    pub fn try_acquire(&self, bytes: u64) -> Option<BytesPermit> {
        self.0.take(bytes).then(|| BytesPermit { lease: self.clone(), bytes })
    }

    /// A permit of zero bytes, to be grown as a buffer grows.
    pub fn empty(&self) -> BytesPermit {
        BytesPermit { lease: self.clone(), bytes: 0 }
    }

    /// Bytes in use on this core.
    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.0.in_use.get()
    }

    /// Bytes this core holds from the process budget, used or free.
    #[must_use]
    pub fn leased(&self) -> u64 {
        self.0.leased.get()
    }

    /// At least half of the process budget is free: there is room for what is useful and not needed.
    #[must_use]
    pub fn is_half_free(&self) -> bool {
        self.0.budget.in_use() <= self.0.budget.limit() / 2
    }

    /// At least seven eighths of the process budget are free: there is room for what is only announced.
    #[must_use]
    pub fn is_mostly_free(&self) -> bool {
        self.0.budget.in_use() <= self.0.budget.limit() / 8
    }

    /// Gives every free byte back. The engine calls it when a core goes idle, so that a quiet core holds nothing.
    pub fn release_surplus(&self) {
        self.0.give_back(self.0.free());
    }
}

/// The right to keep some bytes buffered; dropping it gives them back.
#[must_use = "dropping the permit gives its bytes back"]
pub struct BytesPermit {
    lease: ByteLease,
    bytes: u64,
}

impl BytesPermit {
    /// How many bytes this permit covers.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes the permit cover exactly `bytes`. Returns false, and changes nothing, if the budget has no room to grow.
    #[must_use = "without the permit the buffer must not grow"]
    pub fn resize(&mut self, bytes: u64) -> bool {
        if bytes > self.bytes {
            if !self.lease.0.take(bytes - self.bytes) {
                return false;
            }
        } else {
            self.lease.0.put(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// Covers `bytes` less (at most all).
    pub fn shrink(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.lease.0.put(bytes);
        self.bytes -= bytes;
    }

    /// Covers `bytes` more, or returns false and changes nothing.
    #[must_use = "without the permit the buffer must not grow"]
    pub fn grow(&mut self, bytes: u64) -> bool {
        match self.bytes.checked_add(bytes) {
            Some(total) => self.resize(total),
            None => false,
        }
    }
}

impl Drop for BytesPermit {
    fn drop(&mut self) {
        self.lease.0.put(self.bytes);
    }
}

impl fmt::Debug for BytesPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BytesPermit({})", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lease_takes_whole_steps_and_keeps_at_most_one_free() {
        let budget = Budget::new(100);
        let lease = ByteLease::with_step(budget.clone(), 10);
        let small = lease.try_acquire(1).unwrap();
        assert_eq!((lease.in_use(), lease.leased(), budget.in_use()), (1, 10, 10));
        let large = lease.try_acquire(35).unwrap();
        assert_eq!((lease.in_use(), budget.in_use()), (36, 40));
        drop(large);
        assert_eq!(budget.in_use(), 11, "one used and one free step are kept");
        drop(small);
        assert_eq!(lease.in_use(), 0);
        assert!(lease.leased() < 20);
        lease.release_surplus();
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn near_the_end_of_the_budget_the_last_bytes_can_still_be_used() {
        let budget = Budget::new(25);
        let lease = ByteLease::with_step(budget.clone(), 10);
        let mut permit = lease.try_acquire(20).unwrap();
        assert!(permit.grow(5), "no whole step is left, but five bytes are");
        assert!(!permit.grow(1));
        assert_eq!(permit.bytes(), 25);
        assert!(!permit.grow(u64::MAX));
        permit.shrink(100);
        assert_eq!(permit.bytes(), 0);
    }

    #[test]
    fn a_dropped_core_gives_its_lease_back_after_the_last_permit() {
        let budget = Budget::new(100);
        let lease = ByteLease::with_step(budget.clone(), 10);
        let permit = lease.try_acquire(15).unwrap();
        drop(lease);
        assert_eq!(budget.in_use(), 20);
        drop(permit);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn cores_on_threads_never_exceed_the_process_budget() {
        let budget = Budget::new(1_000);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let budget = budget.clone();
                scope.spawn(move || {
                    let lease = ByteLease::with_step(budget.clone(), 16);
                    let (mut rng, mut out) = (crate::Rng::new(seed), Vec::new());
                    for _ in 0..5_000 {
                        if rng.below(2) == 0 {
                            out.extend(lease.try_acquire(rng.below(90)));
                        } else {
                            out.pop();
                        }
                        assert!(budget.in_use() <= 1_000);
                        assert!(lease.in_use() <= lease.leased());
                    }
                });
            }
        });
        assert_eq!(budget.in_use(), 0);
    }

    proptest! {
        /// Whatever is taken, grown, shrunk and dropped: used <= leased <= limit, the sum agrees, and all come back.
        #[test]
        fn leases_follow_a_plain_count(steps in prop::collection::vec((0u8..5, 0u64..40), 1..200)) {
            let budget = Budget::new(100);
            let lease = ByteLease::with_step(budget.clone(), 8);
            let mut out: Vec<BytesPermit> = Vec::new();
            for (step, n) in steps {
                let sum: u64 = out.iter().map(BytesPermit::bytes).sum();
                match (step, out.last_mut()) {
                    (0 | 1, _) => {
                        let granted = lease.try_acquire(n);
                        prop_assert_eq!(granted.is_some(), sum + n <= 100);
                        out.extend(granted);
                    }
                    (2, Some(last)) => {
                        let fits = sum - last.bytes() + n <= 100;
                        prop_assert_eq!(last.resize(n), fits);
                    }
                    (3, Some(last)) => last.shrink(n),
                    (4, _) => { out.pop(); }
                    _ => lease.release_surplus(),
                }
                let sum: u64 = out.iter().map(BytesPermit::bytes).sum();
                prop_assert_eq!(lease.in_use(), sum);
                prop_assert!(lease.in_use() <= lease.leased());
                prop_assert!(lease.leased() - lease.in_use() < 16, "less than two free steps");
                prop_assert_eq!(lease.leased(), budget.in_use());
                prop_assert!(budget.in_use() <= 100);
            }
            drop(out);
            drop(lease);
            prop_assert_eq!(budget.in_use(), 0);
        }
    }
}
