//! Stored responses within their bound.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use weir_base::{Budget, Permit, Time};

use super::{
    entry::Entry,
    fingerprint::Fingerprint,
    flight::{Flight, Follower, Lead, Turn},
    settings::CacheSettings,
};

/// Parts with a lock of their own. Default 16: a look takes less than a microsecond, and few workers meet in one part.
const SHARDS: usize = 16;

/// Responses that are given up for one that grows. Default 64: the work for one piece of a response stays small.
const EVICTIONS_MAX: usize = 64;

/// The exact cache of a process. Stored responses and recordings together have at most [`CacheSettings::bytes_max`] of memory.
pub struct ResponseCache {
    pub(super) settings: CacheSettings,
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

/// A part of the cache.
#[derive(Default)]
pub(super) struct Shard {
    entries: HashMap<Fingerprint, Slot>,
    /// By their last use.
    order: BTreeMap<u64, Fingerprint>,
    /// Counts uses.
    uses: u64,
    /// Requests under way whose response may be stored.
    pub(super) flights: HashMap<Fingerprint, Arc<Flight>>,
}

struct Slot {
    entry: Arc<Entry>,
    used: u64,
}

impl ResponseCache {
    /// An empty one.
    pub fn new(settings: CacheSettings) -> Arc<Self> {
        let memory = Budget::new(settings.bytes_max);
        let (capacity, expired) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { settings, memory, shards: Default::default(), capacity, expired })
    }

    /// Time for which a request waits for an equal one.
    pub(crate) fn wait_max(&self) -> Duration {
        self.settings.wait_max
    }

    /// Memory in use: stored responses, those that leave while they are replayed, and recordings.
    pub fn bytes(&self) -> u64 {
        self.memory.in_use()
    }

    /// Responses that have left.
    pub fn evictions(&self) -> Evictions {
        let (capacity, expired) = (&self.capacity, &self.expired);
        Evictions { capacity: capacity.load(Ordering::Relaxed), expired: expired.load(Ordering::Relaxed) }
    }

    /// Looks for a response. Without one the request leads, or follows an equal one.
    pub(crate) fn look(self: &Arc<Self>, key: Fingerprint, freshness: Freshness, now: Time) -> Turn {
        let mut old = None;
        let turn = {
            let mut shard = self.shard(&key);
            let age = shard.entries.get(&key).map(|slot| slot.entry.age(now));
            if age.is_some_and(|age| age >= freshness.ttl) {
                old = shard.remove(&key);
            }
            let is_fresh = old.is_none() && age.is_some_and(|age| freshness.age_max.is_none_or(|most| age <= most));
            match is_fresh.then(|| shard.touch(&key)).flatten() {
                Some(entry) => Turn::Hit(entry),
                None => self.enter(&mut shard, key),
            }
        };
        if old.is_some() {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        turn
    }

    /// The way of a request without a response.
    fn enter(self: &Arc<Self>, shard: &mut Shard, key: Fingerprint) -> Turn {
        if let Some(flight) = shard.flights.get(&key) {
            return match flight.join(self.settings.followers_max) {
                Some(number) => Turn::Follow(Follower::new(self.clone(), key, flight.clone(), number)),
                None => Turn::Pass,
            };
        }
        let flight = Arc::<Flight>::default();
        shard.flights.insert(key, flight.clone());
        Turn::Lead(Lead::new(self.clone(), key, Some(flight)))
    }

    /// The lead of a request that must not be served from the cache, and whose response may be stored.
    pub(crate) fn lead_alone(self: &Arc<Self>, key: Fingerprint) -> Lead {
        Lead::new(self.clone(), key, None)
    }

    /// The part in which a request is.
    pub(super) fn shard(&self, key: &Fingerprint) -> MutexGuard<'_, Shard> {
        self.lock(usize::from(key[0]))
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Shard> {
        // No panic leaves a part half changed: each change is a call of a collection.
        self.shards[number % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A permit without memory, for a recording.
    pub(super) fn no_memory(&self) -> Option<Permit> {
        self.memory.try_acquire_many(0)
    }

    /// Gives a permit so much memory. Responses that were not used for the longest time make room. False: there is none.
    pub(super) fn make_room(&self, permit: &mut Permit, bytes: u64, near: &Fingerprint) -> bool {
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
    pub(super) fn insert(&mut self, key: Fingerprint, entry: Arc<Entry>) -> Option<Arc<Entry>> {
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

impl fmt::Debug for ResponseCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseCache").field("settings", &self.settings).field("bytes", &self.bytes()).finish()
    }
}

#[cfg(test)]
mod tests;
