//! A client connection as other threads see it: CLIENT LIST, CLIENT KILL and the admin API read it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use crate::time::Time;

/// The rarely changed facts of a connection: never touched on the request path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionDetails {
    /// The name that the client gave itself.
    pub name: String,
    /// The user it authenticated as.
    pub user: String,
    /// The client library, as it reported itself.
    pub library: String,
    /// The version of the client library.
    pub library_version: String,
    /// The number of the selected database. `None`: the protocol numbers none.
    pub db: Option<u32>,
    /// The name of its database, where databases have names.
    pub database: String,
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
        let texts = [&self.name, &self.user, &self.library, &self.library_version, &self.database, &self.pinned];
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

    /// Requests the end of the connection; false if it was requested already.
    pub fn kill(&self) -> bool {
        !self.is_killed.swap(true, Ordering::Relaxed)
    }

    /// The connection has the order to end.
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::Relaxed)
    }
}
