//! One database: keys, their values, and when they end.
//!
//! Entries stand in numbered slots that they never leave, so that a `SCAN` cursor is a slot number: whatever exists
//! from its begin to its end is seen exactly once. The map only leads from a key to its slot.

use std::{collections::HashMap, rc::Rc};

use weir_base::Time;

use super::{memory::Memory, value::Value};

#[cfg(test)]
mod tests;

/// Beside the bytes of key and value: slot, map entry, and the counts of the shared key.
const ENTRY_BYTES: usize = 136;

#[derive(Debug)]
struct Entry {
    key: Rc<[u8]>,
    value: Value,
    /// [`Time::NEVER`] for a key without expiry.
    expires: Time,
    /// Differs after every change, also when a key is removed and made again: what `WATCH` compares.
    stamp: u64,
}

impl Entry {
    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.value.bytes()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Keyspace {
    index: HashMap<Rc<[u8]>, u32>,
    slots: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    stamps: u64,
    /// Where the next sweep begins.
    swept: usize,
    memory: Rc<Memory>,
}

impl Keyspace {
    pub fn new(memory: Rc<Memory>) -> Self {
        Self { index: HashMap::new(), slots: Vec::new(), vacant: Vec::new(), stamps: 0, swept: 0, memory }
    }

    /// The slot of a key that exists at `now`; removes one that has ended.
    #[inline]
    fn find(&mut self, key: &[u8], now: Time) -> Option<usize> {
        let slot = *self.index.get(key)? as usize;
        if self.slots[slot].as_ref().is_some_and(|entry| entry.expires <= now) {
            self.vacate(slot);
            return None;
        }
        Some(slot)
    }

    fn entry(&mut self, key: &[u8], now: Time) -> Option<&mut Entry> {
        let slot = self.find(key, now)?;
        self.slots[slot].as_mut()
    }

    fn vacate(&mut self, slot: usize) -> Option<Value> {
        let entry = self.slots[slot].take()?;
        self.index.remove(&entry.key);
        self.memory.credit(entry.bytes());
        self.vacant.push(slot as u32);
        if self.index.is_empty() {
            self.release();
        }
        Some(entry.value)
    }

    /// Frees what an empty keyspace does not need.
    fn release(&mut self) {
        self.index = HashMap::new();
        self.slots = Vec::new();
        self.vacant = Vec::new();
    }

    fn next_stamp(&mut self) -> u64 {
        self.stamps += 1;
        self.stamps
    }

    /// The value of a key.
    #[inline]
    pub fn get(&mut self, key: &[u8], now: Time) -> Option<&Value> {
        self.entry(key, now).map(|entry| &entry.value)
    }

    /// Stores a value; `None` keeps the expiry that the key has.
    pub fn set(&mut self, key: &[u8], value: Value, expires: Option<Time>, now: Time) {
        let stamp = self.next_stamp();
        let Some(slot) = self.find(key, now) else {
            return self.insert(key, value, expires.unwrap_or(Time::NEVER), stamp);
        };
        let Some(entry) = self.slots[slot].as_mut() else { return };
        let before = entry.bytes();
        entry.value = value;
        entry.expires = expires.unwrap_or(entry.expires);
        entry.stamp = stamp;
        let after = entry.bytes();
        self.memory.adjust(before, after);
    }

    fn insert(&mut self, key: &[u8], value: Value, expires: Time, stamp: u64) {
        let entry = Entry { key: key.into(), value, expires, stamp };
        self.memory.charge(entry.bytes());
        let key = entry.key.clone();
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                // The memory limit is far below 2^32 entries of ENTRY_BYTES each.
                let slot = self.slots.len() as u32;
                self.slots.push(Some(entry));
                slot
            }
        };
        self.index.insert(key, slot);
    }

    /// Changes the value of a key, made by `vacant` if there is none; its expiry stays. `None` if the key does not exist
    /// and may not be made. A container that is empty afterwards is removed.
    pub fn change<R>(
        &mut self,
        key: &[u8],
        now: Time,
        vacant: Option<fn() -> Value>,
        change: impl FnOnce(&mut Value) -> R,
    ) -> Option<R> {
        let stamp = self.next_stamp();
        let slot = match (self.find(key, now), vacant) {
            (Some(slot), _) => slot,
            (None, None) => return None,
            (None, Some(vacant)) => {
                self.insert(key, vacant(), Time::NEVER, stamp);
                self.find(key, now)?
            }
        };
        let entry = self.slots[slot].as_mut()?;
        let before = entry.bytes();
        let result = change(&mut entry.value);
        entry.stamp = stamp;
        let (after, is_vacant) = (entry.bytes(), entry.value.is_vacant());
        self.memory.adjust(before, after);
        if is_vacant {
            self.vacate(slot);
        }
        Some(result)
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8], now: Time) -> Option<Value> {
        let slot = self.find(key, now)?;
        self.vacate(slot)
    }

    /// When a key ends ([`Time::NEVER`] without expiry); `None` if it does not exist.
    pub fn expires(&mut self, key: &[u8], now: Time) -> Option<Time> {
        self.entry(key, now).map(|entry| entry.expires)
    }

    /// Sets when a key ends; false if it does not exist.
    pub fn set_expires(&mut self, key: &[u8], expires: Time, now: Time) -> bool {
        let stamp = self.next_stamp();
        let Some(entry) = self.entry(key, now) else { return false };
        entry.expires = expires;
        entry.stamp = stamp;
        true
    }

    /// Zero for a key that does not exist; otherwise another number after every change.
    pub fn stamp(&mut self, key: &[u8], now: Time) -> u64 {
        self.entry(key, now).map_or(0, |entry| entry.stamp)
    }

    /// Shows the keys of `count` slots from `cursor` on. Gives the next cursor, 0 after the last slot.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, now: Time, mut show: impl FnMut(&'a [u8], &'a Value)) -> u64 {
        let first = usize::try_from(cursor).unwrap_or(usize::MAX).min(self.slots.len());
        let end = first.saturating_add(count).min(self.slots.len());
        for entry in self.slots[first..end].iter().flatten() {
            if entry.expires > now {
                show(&entry.key, &entry.value);
            }
        }
        if end == self.slots.len() { 0 } else { end as u64 }
    }

    /// Removes what has ended among the next `count` slots.
    pub fn sweep(&mut self, count: usize, now: Time) {
        for _ in 0..count.min(self.slots.len()) {
            if self.swept >= self.slots.len() {
                self.swept = 0;
            }
            if self.slots.get(self.swept).and_then(Option::as_ref).is_some_and(|entry| entry.expires <= now) {
                self.vacate(self.swept);
            }
            self.swept += 1;
        }
    }

    /// Keys, with those that have ended and were not swept yet.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Keys with an expiry: a walk over all of them.
    pub fn expiring(&self) -> usize {
        self.slots.iter().flatten().filter(|entry| entry.expires != Time::NEVER).count()
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        let bytes = self.slots.iter().flatten().map(Entry::bytes).sum();
        self.memory.credit(bytes);
        self.release();
    }
}
