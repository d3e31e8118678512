//! Stored responses within their bound.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use weir_base::{Budget, Permit, Time};

use super::{entry::Entry, fingerprint::Fingerprint};

/// Parts with a lock of their own. Default 16: a look takes less than a microsecond, and few workers meet in one part.
const SHARDS: usize = 16;

/// Responses that are given up for one that grows. Default 64: the work for one piece of a response stays small.
const EVICTIONS_MAX: usize = 64;

/// Stored responses. They and the recordings have one bound of memory.
pub(super) struct Store {
    memory: Budget,
    shards: [Mutex<Shard>; SHARDS],
    capacity: AtomicU64,
    expired: AtomicU64,
}

/// Responses that have left the cache, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// For others.
    pub capacity: u64,
    /// They were too old for the request that looked for them.
    pub expired: u64,
}

/// The age up to which a response serves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freshness {
    /// By the rule of the tenant. An older one is dropped.
    pub(crate) ttl: Duration,
    /// By the client. An older one stays for others.
    pub(crate) age_max: Option<Duration>,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<Fingerprint, Slot>,
    /// By their last use.
    order: BTreeMap<u64, Fingerprint>,
    /// Counts uses.
    uses: u64,
}

struct Slot {
    entry: Arc<Entry>,
    used: u64,
}

impl Store {
    /// An empty one.
    pub(super) fn new(bytes_max: u64) -> Self {
        let (capacity, expired) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { memory: Budget::new(bytes_max), shards: Default::default(), capacity, expired }
    }

    /// Memory in use.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.in_use()
    }

    pub(super) fn evictions(&self) -> Evictions {
        let (capacity, expired) = (&self.capacity, &self.expired);
        Evictions { capacity: capacity.load(Ordering::Relaxed), expired: expired.load(Ordering::Relaxed) }
    }

    /// The response, if it is fresh. It counts as used now.
    pub(super) fn find(&self, key: &Fingerprint, freshness: Freshness, now: Time) -> Option<Arc<Entry>> {
        let expired = {
            let mut shard = self.lock(key[0].into());
            let age = shard.entries.get(key)?.entry.age(now);
            if age < freshness.ttl {
                let is_young = freshness.age_max.is_none_or(|most| age <= most);
                return is_young.then(|| shard.touch(key)).flatten();
            }
            shard.remove(key)
        };
        self.expired.fetch_add(expired.is_some().into(), Ordering::Relaxed);
        None
    }

    /// Stores a response, in the place of another one.
    pub(super) fn insert(&self, key: Fingerprint, entry: Arc<Entry>) {
        let before = self.lock(key[0].into()).insert(key, entry);
        drop(before);
    }

    /// A permit without memory, for a recording.
    pub(super) fn no_memory(&self) -> Option<Permit> {
        self.memory.try_acquire_many(0)
    }

    /// Gives a permit so much memory. Responses that were not used for the longest time make room. False: there is none.
    pub(super) fn make_room(&self, permit: &mut Permit, bytes: u64, near: &Fingerprint) -> bool {
        if bytes > self.memory.limit() {
            return false;
        }
        for _ in 0..EVICTIONS_MAX {
            if permit.resize(bytes) {
                return true;
            }
            let first = usize::from(near[0]);
            if (first..first + SHARDS).find_map(|number| self.lock(number).evict()).is_none() {
                return false;
            }
            self.capacity.fetch_add(1, Ordering::Relaxed);
        }
        permit.resize(bytes)
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        // No panic leaves a part half changed: each change is a call of a collection.
        self.shards[number % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// The response, which counts as used now.
    fn touch(&mut self, key: &Fingerprint) -> Option<Arc<Entry>> {
        let slot = self.entries.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&slot.used);
        self.order.insert(self.uses, *key);
        slot.used = self.uses;
        Some(slot.entry.clone())
    }

    /// Stores a response. Returns the one in whose place it is.
    fn insert(&mut self, key: Fingerprint, entry: Arc<Entry>) -> Option<Arc<Entry>> {
        let before = self.remove(&key);
        self.uses += 1;
        self.order.insert(self.uses, key);
        self.entries.insert(key, Slot { entry, used: self.uses });
        before
    }

    fn remove(&mut self, key: &Fingerprint) -> Option<Arc<Entry>> {
        let slot = self.entries.remove(key)?;
        self.order.remove(&slot.used);
        Some(slot.entry)
    }

    /// Removes the response that was not used for the longest time. One that is being replayed would free nothing.
    fn evict(&mut self) -> Option<Arc<Entry>> {
        let is_free = |key: &Fingerprint| self.entries.get(key).is_some_and(|slot| Arc::strong_count(&slot.entry) == 1);
        let key = *self.order.values().find(|key| is_free(key))?;
        self.remove(&key)
    }
}
