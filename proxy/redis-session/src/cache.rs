//! The reply cache of a listener: replies to plain reads of single keys, kept by each worker while they hold.
//!
//! It relies on the tracking lanes ([`crate::tracking`]): they report every key that changes at the server, and its entries
//! are dropped. A cached reply is the server's own, byte for byte, for the very same request, database, protocol version, login
//! and server (a primary's replies are never those of a replica).
//!
//! # How old a cached reply may be
//!
//! 1. It was read after every change of its key that this worker has heard of. An invalidation of a key marks the reads of it
//!    in flight (`Filling`), and their replies are not cached; nothing is cached or served from the cache while the tracking lane
//!    of its server is not live. That is the order in which the server notifies a caching client of its own.
//! 2. A writer reads its own writes: the keys written by any client of this worker are dropped when the write is sent and when
//!    its reply arrives, and between the two the writing client gets nothing from the cache. After a write with unknown keys (a
//!    script, EXEC, FLUSHALL) the client gets only entries read later than the reply to it.
//! 3. A client does not see time go back: a reply that it has read at the server replaces the entry of that request, and
//!    if the reply is new, entries of other requests for the key (HGET beside HGETALL) are not used until they
//!    have been read again. If several reads of a key are in flight at the same time, perhaps on two lanes, only the first
//!    reply is cached, as the others may be older; each of the others drops the entry, unless it equals it. After a read that
//!    could not be cached (MGET, a script) the client gets only entries read later.
//! 4. A reply is kept for `cache_age_max` at most, whatever was heard. A key whose time to live is over is not reported before
//!    the server finds it; a read finds it.
//!
//! A client on *another* worker may thus still get a value for a moment (until the invalidation arrives there) that a writer
//! already knows to be overwritten, as with any client-side cache. Applications that cannot accept this must not enable it.
//!
//! `crate::tracking::tests` plays it, too.
//!
//! Excluded: clients with a lane of their own (WATCH compares what they read), in a transaction, or that track themselves.
//!
//! | file | concept |
//! |---|---|
//! | `store` | replies by key, bounded in bytes; pure |
//! | `session` | a client in front of it |

pub(crate) mod session;
mod store;

use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};

use weir_base::time::Time;
use weir_telemetry::{CoreMetrics, Counter, Gauge, catalog};

pub(crate) use self::session::Caching;
use self::store::{Read, Store};
use crate::{lane::LaneKey, pubsub::Name, settings::CacheSettings};

/// Metrics of the cache.
struct CacheMetrics {
    hits: Counter,
    misses: Counter,
    evicted: Counter,
    invalidated: Counter,
    bytes: Gauge,
}

impl CacheMetrics {
    fn new(core: &CoreMetrics, listener: &str) -> Self {
        Self {
            hits: core.counter(&catalog::CACHE_HITS, &[listener]),
            misses: core.counter(&catalog::CACHE_MISSES, &[listener]),
            evicted: core.counter(&catalog::CACHE_EVICTED, &[listener]),
            invalidated: core.counter(&catalog::CACHE_INVALIDATED, &[listener]),
            bytes: core.gauge(&catalog::CACHE_BYTES, &[listener]),
        }
    }
}

/// The reply cache of one listener on one worker. See the module's documentation.
pub struct Cache {
    settings: CacheSettings,
    store: RefCell<Store>,
    /// Servers of which every change is heard.
    live: RefCell<BTreeSet<u16>>,
    /// Asks for a tracking lane to a server.
    want: Box<dyn Fn(u16)>,
    metrics: CacheMetrics,
    /// Counts the reads that are sent, and what else may not be answered from before. That of all caches of the listener, one
    /// after the other: clients remember it.
    moment: Rc<Cell<u64>>,
    reported_bytes: Cell<usize>,
}

impl Cache {
    /// That of `listener` on the worker of `core`; `moment` is the one of the cache before, `want` asks for a tracking lane to a
    /// server.
    pub fn new(
        settings: CacheSettings,
        core: &CoreMetrics,
        listener: &str,
        moment: Rc<Cell<u64>>,
        want: impl Fn(u16) + 'static,
    ) -> Rc<Self> {
        let metrics = CacheMetrics::new(core, listener);
        Rc::new(Self {
            store: RefCell::new(Store::new(settings.bytes_max as usize)),
            settings,
            live: RefCell::default(),
            want: Box::new(want),
            metrics,
            moment,
            reported_bytes: Cell::new(0),
        })
    }

    /// The settings that the cache was created with.
    pub fn settings(&self) -> &CacheSettings {
        &self.settings
    }

    /// Starts or stops hearing of changes at this server. Drops the entries of all servers: a key may have been
    /// moved to this one.
    pub fn set_live(&self, shard: u16, is_live: bool) {
        self.clear();
        if is_live {
            self.live.borrow_mut().insert(shard);
        } else {
            self.live.borrow_mut().remove(&shard);
        }
    }

    /// These keys have changed, or may be about to.
    pub fn changed(&self, keys: &[&[u8]]) {
        let gone = self.store.borrow_mut().changed(keys);
        self.metrics.invalidated.add(gone);
        self.publish();
    }

    /// All keys may have changed.
    pub fn clear(&self) {
        let gone = self.store.borrow_mut().clear();
        self.metrics.invalidated.add(gone);
        self.publish();
    }

    fn publish(&self) {
        let bytes = self.store.borrow().bytes();
        self.metrics.bytes.add(bytes as i64 - self.reported_bytes.replace(bytes) as i64);
    }

    /// Later than all that has been read so far.
    fn next_moment(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    fn holds_prefix(&self, key: &[u8]) -> bool {
        let prefixes = &self.settings.prefixes;
        prefixes.is_empty() || prefixes.iter().any(|prefix| key.starts_with(prefix.as_bytes()))
    }

    /// The reply to `request`, read at `since` or later.
    fn get(&self, lane: LaneKey, key: &[u8], request: &[u8], since: u64, now: Time) -> Option<Rc<[u8]>> {
        let oldest = now.as_nanos().saturating_sub(age_nanos(self.settings.age_max));
        let is_live = self.live.borrow().contains(&lane.shard);
        let found = is_live.then(|| self.store.borrow_mut().get(lane, key, request, since, oldest)).flatten();
        match &found {
            Some(_) => self.metrics.hits.inc(),
            None => self.metrics.misses.inc(),
        }
        found
    }

    /// A read is about to be sent that may be kept; `None`: changes of it would not be heard of.
    fn begin(self: &Rc<Self>, lane: LaneKey, key: Name, request: &[u8]) -> Option<Filling> {
        (self.want)(lane.shard);
        if !self.live.borrow().contains(&lane.shard) {
            return None;
        }
        let mark = self.store.borrow_mut().watch(&key);
        let (cache, moment) = (self.clone(), self.next_moment());
        Some(Filling { cache, lane, key, request: request.into(), reply: Vec::new(), mark, moment, is_void: false })
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.metrics.bytes.add(-(self.reported_bytes.get() as i64));
    }
}

fn age_nanos(age: Duration) -> u64 {
    age.as_nanos().min(u64::MAX.into()) as u64
}

/// A read under way whose reply may be kept.
pub(crate) struct Filling {
    cache: Rc<Cache>,
    lane: LaneKey,
    key: Name,
    request: Box<[u8]>,
    reply: Vec<u8>,
    /// The mark of the key's changes when the read was sent.
    mark: u64,
    moment: u64,
    /// It will not be kept.
    is_void: bool,
}

impl Filling {
    fn take(&mut self, bytes: &[u8]) {
        if self.reply.len() + bytes.len() > self.cache.settings.value_bytes_max as usize {
            self.void();
        }
        if !self.is_void {
            self.reply.extend_from_slice(bytes);
        }
    }

    fn void(&mut self) {
        self.is_void = true;
        self.reply = Vec::new();
    }

    /// The reply is complete.
    fn finish(mut self, now: Time) {
        let reply = (!self.is_void).then(|| std::mem::take(&mut self.reply));
        let read = Read { lane: self.lane, request: &self.request, moment: self.moment, at: now };
        let evicted = self.cache.store.borrow_mut().settle(&self.key, self.mark, read, reply);
        self.cache.metrics.evicted.add(evicted);
        self.cache.publish();
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.cache.store.borrow_mut().unwatch(&self.key);
    }
}
