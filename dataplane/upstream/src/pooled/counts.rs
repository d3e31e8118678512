//! How many connections of a key are in which state: what SHOW POOLS of PgBouncer shows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use super::ledger::Tally;

/// A count that one worker writes with plain stores, and others read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    #[inline]
    pub(crate) fn add(&self, change: i32) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count as u32, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The connections of one key to one endpoint on one worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounts {
    pub(crate) lent: Count,
    /// With those that are used.
    pub(crate) idle: Count,
    pub(crate) used: Count,
    pub(crate) tested: Count,
}

/// The connections of one key to one endpoint, over all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolCounts<K> {
    /// The key of the pool.
    pub key: K,
    /// Position of the endpoint in the settings.
    pub endpoint: usize,
    /// Lent to clients.
    pub active: u32,
    /// Ready for the next client.
    pub idle: u32,
    /// Idle for so long that they are checked before they serve again.
    pub used: u32,
    /// Being reset or checked.
    pub tested: u32,
    /// Logging in.
    pub login: u32,
    /// Clients that wait.
    pub waiting: u32,
    /// How long the first of them has waited.
    pub maxwait: Duration,
    /// All connections, those included that close or move at the moment.
    pub open: u32,
}

impl<K> PoolCounts<K> {
    /// Adds the connections of another endpoint or key, and the clients that wait for them.
    pub fn add(&mut self, other: &Self) {
        self.active += other.active;
        self.idle += other.idle;
        self.used += other.used;
        self.tested += other.tested;
        self.login += other.login;
        self.waiting += other.waiting;
        self.maxwait = self.maxwait.max(other.maxwait);
        self.open += other.open;
    }

    pub(super) fn new(
        key: K,
        endpoint: usize,
        tally: &Tally,
        workers: impl Iterator<Item = Arc<WorkerCounts>>,
    ) -> Self {
        let mut counts = Self {
            key,
            endpoint,
            active: 0,
            idle: 0,
            used: 0,
            tested: 0,
            login: tally.logins,
            waiting: tally.waiting,
            maxwait: tally.maxwait,
            open: tally.open,
        };
        for worker in workers {
            let used = worker.used.get().min(worker.idle.get());
            counts.active += worker.lent.get();
            counts.idle += worker.idle.get() - used;
            counts.used += used;
            counts.tested += worker.tested.get();
        }
        counts
    }
}
