//! Replies by key, bounded in bytes. Entries that were not used since the last look go first.

use std::{
    collections::{HashMap, VecDeque},
    rc::Rc,
};

use weir_base::time::Time;

use crate::{lane::LaneKey, pubsub::Name};

/// Different requests for one key (HGET of many fields) whose replies are kept; the oldest goes for the next.
const VARIANTS_MAX: usize = 16;
/// Bytes of an entry besides its key, request and reply: its places in the maps, rounded up.
const OVERHEAD_BYTES: usize = 256;
/// The order of keys may hold so many more than there are.
const ORDER_SLACK: usize = 1024;

#[derive(Debug)]
struct Variant {
    lane: LaneKey,
    request: Box<[u8]>,
    reply: Rc<[u8]>,
    /// When it was read, by count and by clock.
    moment: u64,
    at: Time,
    /// Another request for the key has shown something new since: this may be older than that.
    is_doubted: bool,
}

impl Variant {
    fn matches(&self, read: &Read<'_>) -> bool {
        self.lane == read.lane && *self.request == *read.request
    }
}

/// A read that is answered.
pub(super) struct Read<'a> {
    pub(super) lane: LaneKey,
    pub(super) request: &'a [u8],
    /// When it was sent, by count, and answered, by clock.
    pub(super) moment: u64,
    pub(super) at: Time,
}

#[derive(Debug, Default)]
struct Slot {
    variants: Vec<Variant>,
    /// It was used since the last look.
    is_used: bool,
}

/// Reads of a key that are under way.
#[derive(Debug)]
struct PendingReads {
    reads: usize,
    /// Changes with each invalidation.
    mark: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Store {
    slots: HashMap<Name, Slot>,
    watched: HashMap<Name, PendingReads>,
    /// Keys in the order in which they are looked at; some are gone.
    order: VecDeque<Name>,
    bytes: usize,
    bytes_max: usize,
    /// The next mark.
    mark: u64,
}

fn size(key: &[u8], variant: &Variant) -> usize {
    OVERHEAD_BYTES + key.len() + variant.request.len() + variant.reply.len()
}

impl Store {
    pub(super) fn new(bytes_max: usize) -> Self {
        let (slots, watched, order) = Default::default();
        Self { slots, watched, order, bytes: 0, bytes_max, mark: 0 }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The reply to `request`, read at the moment `since` and the time `oldest` or later.
    pub(super) fn get(
        &mut self,
        lane: LaneKey,
        key: &[u8],
        request: &[u8],
        since: u64,
        oldest: u64,
    ) -> Option<Rc<[u8]>> {
        let slot = self.slots.get_mut(key)?;
        let variant = slot.variants.iter().find(|variant| variant.lane == lane && *variant.request == *request)?;
        if variant.is_doubted || variant.moment < since || variant.at.as_nanos() < oldest {
            return None;
        }
        slot.is_used = true;
        Some(variant.reply.clone())
    }

    /// A read of `key` is sent; what is known of its changes.
    pub(super) fn watch(&mut self, key: &Name) -> u64 {
        let watched = self.watched.entry(key.clone()).or_insert(PendingReads { reads: 0, mark: self.mark });
        watched.reads += 1;
        watched.mark
    }

    /// It is over.
    pub(super) fn unwatch(&mut self, key: &Name) {
        if let Some(watched) = self.watched.get_mut(key) {
            watched.reads -= 1;
            if watched.reads == 0 {
                self.watched.remove(key);
            }
        }
    }

    /// The key has not changed since, and no other client's read of it was answered.
    fn is_unchanged(&self, key: &[u8], mark: u64) -> bool {
        self.watched.get(key).is_some_and(|watched| watched.mark == mark)
    }

    /// A read of `key` is answered that was sent when `mark` was known: keeps the reply, `None` if that may not be; how many
    /// keys had to go for it. If it shows something new, what is kept of other requests for the key is not given any more
    /// until it has been read again.
    pub(super) fn settle(&mut self, key: &Name, mark: u64, read: Read<'_>, reply: Option<Vec<u8>>) -> u64 {
        let is_first = self.is_unchanged(key, mark);
        self.mark += 1;
        if let Some(watched) = self.watched.get_mut(key) {
            watched.mark = self.mark;
        }
        let slot = self.slots.get_mut(key);
        let mut variants = slot.into_iter().flat_map(|slot| &mut slot.variants);
        let same = variants.find(|variant| variant.matches(&read) && reply.as_deref() == Some(&*variant.reply));
        if let Some(same) = same {
            // It shows nothing that was not known, so what other requests have shown may still be delivered.
            if is_first {
                (same.moment, same.at, same.is_doubted) = (read.moment, read.at, false);
            }
            return 0;
        }
        self.remove(key, &read);
        let others = self.slots.get_mut(key).into_iter().flat_map(|slot| &mut slot.variants);
        others.for_each(|variant| variant.is_doubted = true);
        match reply.filter(|_| is_first) {
            Some(reply) => self.add(key, read, reply),
            None => 0,
        }
    }

    fn add(&mut self, key: &Name, read: Read<'_>, reply: Vec<u8>) -> u64 {
        let Read { lane, request, moment, at } = read;
        let variant = Variant { lane, request: request.into(), reply: reply.into(), moment, at, is_doubted: false };
        let slot = self.slots.entry(key.clone()).or_insert_with(|| {
            self.order.push_back(key.clone());
            Slot::default()
        });
        if slot.variants.len() >= VARIANTS_MAX {
            self.bytes -= size(key, &slot.variants.remove(0));
        }
        self.bytes += size(key, &variant);
        slot.variants.push(variant);
        let evicted = self.make_room();
        if self.order.len() > 2 * self.slots.len() + ORDER_SLACK {
            let slots = &self.slots;
            let mut seen = std::collections::HashSet::new();
            self.order.retain(|key| slots.contains_key(key) && seen.insert(key.clone()));
        }
        evicted
    }

    /// Lets keys go until the rest fits: a second chance for each used one.
    fn make_room(&mut self) -> u64 {
        let mut evicted = 0;
        while self.bytes > self.bytes_max {
            let Some(key) = self.order.pop_front() else { break };
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            if std::mem::take(&mut slot.is_used) {
                self.order.push_back(key);
                continue;
            }
            self.drop_slot(&key);
            evicted += 1;
        }
        evicted
    }

    fn drop_slot(&mut self, key: &[u8]) -> bool {
        let Some(slot) = self.slots.remove(key) else { return false };
        self.bytes -= slot.variants.iter().map(|variant| size(key, variant)).sum::<usize>();
        true
    }

    /// Forgets the reply to a request.
    fn remove(&mut self, key: &[u8], read: &Read<'_>) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        for gone in slot.variants.extract_if(.., |variant| variant.matches(read)) {
            self.bytes -= size(key, &gone);
        }
        if slot.variants.is_empty() {
            self.slots.remove(key);
        }
    }

    /// Keys have changed; of how many something was kept.
    pub(super) fn changed(&mut self, keys: &[&[u8]]) -> u64 {
        self.mark += 1;
        let mut gone = 0;
        for &key in keys {
            if let Some(watched) = self.watched.get_mut(key) {
                watched.mark = self.mark;
            }
            gone += u64::from(self.drop_slot(key));
        }
        gone
    }

    /// All have.
    pub(super) fn clear(&mut self) -> u64 {
        self.mark += 1;
        self.watched.values_mut().for_each(|watched| watched.mark = self.mark);
        self.order.clear();
        self.bytes = 0;
        std::mem::take(&mut self.slots).len() as u64
    }
}

#[cfg(test)]
mod unit {
    use weir_resp::Version;

    use super::*;

    fn lane() -> LaneKey {
        LaneKey::new(0, Version::Resp2)
    }

    fn read(request: &[u8]) -> Read<'_> {
        Read { lane: lane(), request, moment: 5, at: Time::from_nanos(100) }
    }

    fn add(store: &mut Store, key: &str, reply: &str) -> u64 {
        store.add(&key.as_bytes().into(), read(key.as_bytes()), reply.into())
    }

    fn get(store: &mut Store, key: &str) -> Option<Rc<[u8]>> {
        store.get(lane(), key.as_bytes(), key.as_bytes(), 5, 100)
    }

    #[test]
    fn a_reply_is_found_by_every_part_of_its_key() {
        let mut store = Store::new(10_000);
        add(&mut store, "a", "1");
        assert_eq!(get(&mut store, "a").as_deref(), Some(&b"1"[..]));
        let other = LaneKey { db: 1, ..lane() };
        assert_eq!(store.get(other, b"a", b"a", 5, 100), None, "another database");
        assert_eq!(store.get(LaneKey::new(0, Version::Resp3), b"a", b"a", 5, 100), None, "another version");
        assert_eq!(store.get(lane(), b"a", b"b", 5, 100), None, "another request");
        assert_eq!(store.get(lane(), b"a", b"a", 6, 100), None, "too early");
        assert_eq!(store.get(lane(), b"a", b"a", 5, 101), None, "too old");
        assert_eq!(store.changed(&[b"a", b"b"]), 1);
        assert_eq!((get(&mut store, "a"), store.bytes()), (None, 0));
    }

    #[test]
    fn it_stays_within_its_bytes_and_keeps_used_replies() {
        let mut store = Store::new(10 * (OVERHEAD_BYTES + 20));
        for round in 0..10_000 {
            add(&mut store, &format!("key:{round}"), "value");
            add_if_absent(&mut store);
            assert!(get(&mut store, "hot").is_some());
            assert!(store.bytes() <= store.bytes_max, "{} bytes", store.bytes());
        }
        assert!(store.slots.len() >= 9 && store.order.len() < 2 * ORDER_SLACK);
        for variant in 0..100 {
            let (name, request): (Name, _) = (b"k"[..].into(), format!("HGET k {variant}"));
            store.add(&name, read(request.as_bytes()), b"v".to_vec());
        }
        assert!(store.slots[&b"k"[..]].variants.len() <= VARIANTS_MAX);
        store.clear();
        assert_eq!((store.bytes(), store.slots.len()), (0, 0));
    }

    fn add_if_absent(store: &mut Store) {
        if get(store, "hot").is_none() {
            add(store, "hot", "value");
        }
    }

    #[test]
    fn of_reads_at_the_same_time_the_first_reply_is_kept() {
        let mut store = Store::new(10_000);
        let key: Name = b"a"[..].into();
        let marks = [store.watch(&key), store.watch(&key), store.watch(&key)];
        store.settle(&key, marks[0], read(b"a"), Some(b"2".to_vec()));
        assert!(get(&mut store, "a").is_some());
        store.settle(&key, marks[1], read(b"a"), Some(b"2".to_vec()));
        assert!(get(&mut store, "a").is_some(), "it says the same");
        store.settle(&key, marks[2], read(b"a"), Some(b"1".to_vec()));
        assert_eq!(get(&mut store, "a"), None, "which of them is older nobody knows");
        let late = store.watch(&key);
        store.settle(&key, late, read(b"a"), None);
        assert_eq!(get(&mut store, "a"), None);
    }

    #[test]
    fn a_newer_value_puts_other_requests_for_the_key_in_doubt() {
        let mut store = Store::new(10_000);
        let key: Name = b"h"[..].into();
        let filled = |store: &mut Store, request: &'static [u8], reply: &str| {
            let mark = store.watch(&key);
            store.settle(&key, mark, read(request), Some(reply.into()));
            store.unwatch(&key);
        };
        let has = |store: &mut Store, request: &[u8]| store.get(lane(), b"h", request, 5, 100).is_some();
        filled(&mut store, b"HGET h f", "1");
        filled(&mut store, b"HGETALL h", "f 2");
        assert!(!has(&mut store, b"HGET h f"), "who has seen 2 must not see 1");
        assert!(has(&mut store, b"HGETALL h"));
        // The same as before: it says nothing about others.
        filled(&mut store, b"HGET h f", "1");
        assert!(has(&mut store, b"HGET h f") && has(&mut store, b"HGETALL h"));
        filled(&mut store, b"HGET h f", "3");
        assert!(has(&mut store, b"HGET h f") && !has(&mut store, b"HGETALL h"));
    }

    #[test]
    fn a_read_under_way_is_marked_by_a_change() {
        let mut store = Store::new(10_000);
        let key: Name = b"a"[..].into();
        let mark = store.watch(&key);
        assert!(store.is_unchanged(&key, mark));
        store.changed(&[b"b"]);
        assert!(store.is_unchanged(&key, mark));
        store.changed(&[b"a"]);
        assert!(!store.is_unchanged(&key, mark));
        let second = store.watch(&key);
        assert!(store.is_unchanged(&key, second) && !store.is_unchanged(&key, mark));
        store.clear();
        assert!(!store.is_unchanged(&key, second));
        store.unwatch(&key);
        store.unwatch(&key);
        assert!(store.watched.is_empty());
    }
}
