//! The table of open connections: written by their workers, read by the admin API and by CLIENT LIST.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_base::{connection::ConnectionEntry, time::Time};

/// All open connections of the process.
#[derive(Default)]
pub struct ConnectionTable {
    next: AtomicU64,
    shards: Vec<Mutex<BTreeMap<u64, Arc<ConnectionEntry>>>>,
    /// Connections that have the order to end and are still open.
    killed: AtomicU64,
}

impl ConnectionTable {
    /// A table with one shard per worker, so that workers do not wait for each other.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            next: AtomicU64::new(1),
            shards: (0..workers.max(1)).map(|_| Mutex::default()).collect(),
            killed: AtomicU64::new(0),
        })
    }

    /// The number that the next connection will get.
    pub fn next_id(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Numbers connections from `id` on: those below belong to the process before.
    pub fn number_from(&self, id: u64) {
        self.next.store(id, Ordering::Relaxed);
    }

    /// Enters a connection; it leaves when the guard is dropped.
    pub fn enter(self: &Arc<Self>, listener: Arc<str>, worker: usize, peer: String, now: Time) -> ConnectionGuard {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.enter_as(id, listener, worker, peer, now)
    }

    /// As [`ConnectionTable::enter`], for a connection that was accepted at `now` by the process before and keeps its number.
    pub fn enter_as(
        self: &Arc<Self>,
        id: u64,
        listener: Arc<str>,
        worker: usize,
        peer: String,
        now: Time,
    ) -> ConnectionGuard {
        let entry = Arc::new(ConnectionEntry::new(id, listener, worker, peer, now));
        self.shard(worker).insert(id, entry.clone());
        ConnectionGuard { table: self.clone(), entry }
    }

    /// The open connections, in the order of their numbers.
    pub fn entries(&self) -> Vec<Arc<ConnectionEntry>> {
        let shards = 0..self.shards.len();
        let mut all: Vec<_> =
            shards.flat_map(|worker| self.shard(worker).values().cloned().collect::<Vec<_>>()).collect();
        all.sort_by_key(|entry| entry.id);
        all
    }

    /// Asks the worker that owns `entry` to end the connection; it does so at its next look.
    pub fn kill(&self, entry: &ConnectionEntry) {
        // Within the lock: one that leaves meanwhile is not counted for ever.
        let shard = self.shard(entry.worker);
        if shard.contains_key(&entry.id) && entry.kill() {
            self.killed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Some open connection has the order to end.
    pub fn has_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed) > 0
    }

    fn shard(&self, worker: usize) -> MutexGuard<'_, BTreeMap<u64, Arc<ConnectionEntry>>> {
        self.shards[worker % self.shards.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a connection in the table.
pub struct ConnectionGuard {
    table: Arc<ConnectionTable>,
    entry: Arc<ConnectionEntry>,
}

impl ConnectionGuard {
    /// The entry.
    pub fn entry(&self) -> &Arc<ConnectionEntry> {
        &self.entry
    }

    /// The table it stands in.
    pub fn table(&self) -> &Arc<ConnectionTable> {
        &self.table
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.entry.worker);
        shard.remove(&self.entry.id);
        if self.entry.is_killed() {
            self.table.killed.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_enter_in_order_and_leave_on_drop() {
        let table = ConnectionTable::new(2);
        let enter = |worker| table.enter("cache".into(), worker, "peer".into(), Time::ZERO);
        let (first, second, third) = (enter(1), enter(0), enter(1));
        let ids = |table: &ConnectionTable| table.entries().iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&table), [1, 2, 3]);
        drop(second);
        assert_eq!(ids(&table), [1, 3]);
        let left = first.entry().clone();
        drop((first, third));
        assert!(table.entries().is_empty());
        table.kill(&left);
        assert!(!table.has_killed(), "it had left");
        let killed = enter(0);
        table.kill(killed.entry());
        table.kill(killed.entry());
        assert!(table.has_killed());
        drop(killed);
        assert!(!table.has_killed());
    }
}
