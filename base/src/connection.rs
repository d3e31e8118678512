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
    /// Since when it has one for these reasons.
    pub pinned_since: Option<Time>,
    /// Version and cipher suite of its TLS, e.g. `TLSv1.3/TLS_AES_256_GCM_SHA384`, where a protocol shows them; empty: none.
    pub tls: String,
    /// The pool that its upstream connections are of, where it has one at a time: user and database. Empty: none yet.
    pub pool: String,
    /// The upstream of that pool.
    pub upstream: String,
    /// The pool of servers that only read, where it has one too.
    pub read_pool: Option<Box<PoolName>>,
    /// The language model that its last request names; empty: none.
    pub model: String,
    /// Its last request to a language model is for a stream. `None`: there was none.
    pub is_stream: Option<bool>,
}

/// A pool of upstream connections, by its names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolName {
    /// Its upstream.
    pub upstream: String,
    /// User and database.
    pub pool: String,
}

impl ConnectionDetails {
    /// Bytes of all texts in it.
    pub fn text_bytes(&self) -> usize {
        let names = [&self.name, &self.user, &self.library, &self.library_version, &self.database];
        let texts = names.into_iter().chain([&self.pinned, &self.pool, &self.tls, &self.upstream, &self.model]);
        let texts = texts.chain(self.read_pool.iter().flat_map(|pool| [&pool.upstream, &pool.pool]));
        texts.map(String::len).sum()
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
    /// The number of the pooled upstream connection that it holds; 0: none.
    pub holds: AtomicU64,
    /// Since when it holds that, in nanoseconds of [`Time`].
    pub holds_since: AtomicU64,
    /// Since when it waits for one, in nanoseconds of [`Time`]; 0: it does not.
    pub waits_since: AtomicU64,
    /// That one is of its read pool.
    waits_to_read: AtomicBool,
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
            holds: AtomicU64::new(0),
            holds_since: AtomicU64::new(0),
            waits_since: AtomicU64::new(0),
            waits_to_read: AtomicBool::new(false),
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

    /// It holds the pooled upstream connection of that number from `now` on, and waits no longer.
    #[inline]
    pub fn hold(&self, id: u64, now: Time) {
        self.holds.store(id, Ordering::Relaxed);
        self.holds_since.store(now.as_nanos(), Ordering::Relaxed);
        self.waits_since.store(0, Ordering::Relaxed);
    }

    /// It holds none.
    #[inline]
    pub fn let_go(&self) {
        self.holds.store(0, Ordering::Relaxed);
    }

    /// It waits for one of its pool from `now` on; `None`: no longer.
    pub fn wait(&self, now: Option<Time>) {
        self.wait_in(now, false);
    }

    /// It waits for one of its read pool from `now` on.
    pub fn wait_to_read(&self, now: Time) {
        self.wait_in(Some(now), true);
    }

    fn wait_in(&self, now: Option<Time>, to_read: bool) {
        self.waits_to_read.store(to_read, Ordering::Relaxed);
        self.waits_since.store(now.map_or(0, |now| now.as_nanos().max(1)), Ordering::Relaxed);
    }

    /// The one that it waits for, if it waits, is of its read pool.
    pub fn waits_to_read(&self) -> bool {
        self.waits_to_read.load(Ordering::Relaxed)
    }

    /// The pool that it waits for, or would wait for: `details` are its own.
    pub fn awaited_pool(&self, details: &ConnectionDetails) -> PoolName {
        match &details.read_pool {
            Some(pool) if self.waits_to_read() => (**pool).clone(),
            _ => PoolName { upstream: details.upstream.clone(), pool: details.pool.clone() },
        }
    }

    /// The pooled upstream connection that it holds, and since when.
    pub fn held(&self) -> Option<(u64, Time)> {
        let id = self.holds.load(Ordering::Relaxed);
        (id != 0).then(|| (id, Time::from_nanos(self.holds_since.load(Ordering::Relaxed))))
    }

    /// Since when it waits for one.
    pub fn waiting_since(&self) -> Option<Time> {
        let since = self.waits_since.load(Ordering::Relaxed);
        (since != 0).then(|| Time::from_nanos(since))
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
