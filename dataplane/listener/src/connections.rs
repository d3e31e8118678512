//! The table of open connections: written by their workers, read by the admin API and by CLIENT LIST.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use weir_base::time::Time;

/// What changes rarely about a connection: never touched on the request path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDetails {
    /// The name that the client gave itself.
    pub name: String,
    /// The user it authenticated as.
    pub user: String,
    /// The client library, as it told.
    pub library: String,
    /// The version of the client library.
    pub library_version: String,
    /// The selected database. `None`: the protocol has none.
    pub db: Option<u32>,
    /// The version of the protocol that it speaks, e.g. `RESP3` or `HTTP/2`.
    pub version: &'static str,
    /// The protocol has users: a client without one has not logged in yet.
    pub has_users: bool,
    /// Why it has an upstream connection of its own; empty if it has none.
    pub pinned: String,
}

impl ConnectionDetails {
    /// Bytes of all texts in it.
    pub fn text_bytes(&self) -> usize {
        let texts = [&self.name, &self.user, &self.library, &self.library_version, &self.pinned];
        texts.into_iter().map(String::len).sum()
    }
}

/// One open client connection. The worker that owns it writes with plain stores.
pub struct ConnectionEntry {
    /// Unique in the process, from 1.
    pub id: u64,
    /// Name of its listener.
    pub listener: Arc<str>,
    /// The worker that owns it.
    pub worker: usize,
    /// The peer's address.
    pub peer: String,
    /// When it was accepted.
    pub accepted_at: Time,
    details: Mutex<ConnectionDetails>,
    /// Exchanges without a complete reply.
    pub in_flight: AtomicU32,
    /// Number of the last command in the command table, plus one; 0 before the first.
    pub last_command: AtomicU32,
    /// When it last sent a command, in nanoseconds of [`Time`].
    pub active_at: AtomicU64,
    /// Bytes waiting to be sent to it.
    pub buffered: AtomicU64,
    /// Channels and patterns it is subscribed to.
    pub subscriptions: AtomicU32,
    /// The number under which the server knows it while it sits in a blocking command, and the shard in the lowest 16 bits;
    /// 0: it does not.
    blocked_as: AtomicU64,
    is_killed: AtomicBool,
    has_left: AtomicBool,
}

/// Bits of [`ConnectionEntry::blocked_as`] for the shard.
const SHARD_BITS: u32 = u16::BITS;

impl ConnectionEntry {
    /// An entry for a connection accepted at `now`.
    pub fn new(id: u64, listener: Arc<str>, worker: usize, peer: String, now: Time) -> Self {
        Self {
            id,
            listener,
            worker,
            peer,
            accepted_at: now,
            details: Mutex::default(),
            in_flight: AtomicU32::new(0),
            last_command: AtomicU32::new(0),
            active_at: AtomicU64::new(now.as_nanos()),
            buffered: AtomicU64::new(0),
            subscriptions: AtomicU32::new(0),
            blocked_as: AtomicU64::new(0),
            is_killed: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    /// The rarely changing part.
    pub fn details(&self) -> MutexGuard<'_, ConnectionDetails> {
        self.details.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It sits in a blocking command at this shard, whose server knows it by this number; 0: it does not.
    pub fn set_blocked_as(&self, shard: u16, id: u64) {
        let both = if id == 0 { 0 } else { id << SHARD_BITS | u64::from(shard) };
        self.blocked_as.store(both, Ordering::Relaxed);
    }

    /// Shard and number of one that sits in a blocking command.
    pub fn blocked_as(&self) -> Option<(u16, u64)> {
        let both = self.blocked_as.load(Ordering::Relaxed);
        (both != 0).then_some((both as u16, both >> SHARD_BITS))
    }

    /// Nothing more is said on it: what is left of it waits for the peer to close.
    pub fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// See [`ConnectionEntry::leave`].
    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// The connection has been asked to end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }
}

/// All open connections of the process.
#[derive(Default)]
pub struct ConnectionTable {
    next: AtomicU64,
    shards: Vec<Mutex<BTreeMap<u64, Arc<ConnectionEntry>>>>,
    /// Connections asked to end and still open.
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
        if !entry.is_killed.swap(true, Ordering::Relaxed) {
            self.killed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Some open connection has been asked to end.
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
        self.table.shard(self.entry.worker).remove(&self.entry.id);
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
        drop((first, third));
        assert!(table.entries().is_empty());
    }
}
