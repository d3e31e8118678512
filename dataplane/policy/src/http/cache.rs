//! Recent results, by digest. Bounded; when full, unused entries go first.

use std::collections::HashMap;

/// A keyed hash or a SHA-256: clients cannot choose its value, and it reveals nothing of its input.
pub(super) type Digest = [u8; 32];

/// Slots looked at for a victim before one is taken whatever it is. Default 8: an insertion has a bounded cost.
const STEPS_MAX: usize = 8;

#[derive(Debug)]
struct Slot<V> {
    digest: Digest,
    value: V,
    /// The entry holds before this, in the unit of the caller.
    until: u64,
    /// Used since the hand came by.
    is_used: bool,
}

/// A map of at most so many entries that end. Replacement by second chance (a clock hand).
#[derive(Debug)]
pub(super) struct Cache<V> {
    index: HashMap<Digest, u32>,
    slots: Vec<Slot<V>>,
    hand: usize,
    capacity: usize,
}

impl<V> Cache<V> {
    /// Empty; memory grows with what is put in. A capacity of 0 keeps nothing.
    pub(super) fn new(capacity: u32) -> Self {
        Self { index: HashMap::new(), slots: Vec::new(), hand: 0, capacity: capacity as usize }
    }

    /// The entry of `digest`, if it holds at `now`.
    pub(super) fn get(&mut self, digest: &Digest, now: u64) -> Option<&V> {
        let at = *self.index.get(digest)?;
        let slot = self.slots.get_mut(at as usize).filter(|slot| now < slot.until)?;
        slot.is_used = true;
        Some(&slot.value)
    }

    /// Puts an entry in, in place of one that has ended or an unused one, if there is no room.
    pub(super) fn insert(&mut self, digest: Digest, value: V, until: u64, now: u64) {
        let slot = Slot { digest, value, until, is_used: false };
        if let Some(&at) = self.index.get(&digest) {
            self.slots[at as usize] = slot;
        } else if self.slots.len() < self.capacity {
            self.index.insert(digest, self.slots.len() as u32);
            self.slots.push(slot);
        } else if self.capacity > 0 {
            let at = self.victim(now);
            self.index.remove(&self.slots[at].digest);
            self.index.insert(digest, at as u32);
            self.slots[at] = slot;
        }
    }

    fn victim(&mut self, now: u64) -> usize {
        for _ in 0..STEPS_MAX {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            if slot.until <= now || !std::mem::take(&mut slot.is_used) {
                return at;
            }
        }
        self.hand
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digest(of: u8) -> Digest {
        [of; 32]
    }

    #[test]
    fn entries_end() {
        let mut cache = Cache::new(4);
        cache.insert(digest(1), 'a', 10, 0);
        assert_eq!((cache.get(&digest(1), 9).copied(), cache.get(&digest(1), 10)), (Some('a'), None));
        cache.insert(digest(1), 'b', 20, 10);
        assert_eq!((cache.get(&digest(1), 19).copied(), cache.slots.len()), (Some('b'), 1));
    }

    #[test]
    fn used_entries_stay_while_others_come() {
        let mut cache = Cache::new(4);
        cache.insert(digest(0), 0, 1_000, 0);
        for of in 1..200 {
            assert!(cache.get(&digest(0), 1).is_some(), "{of}");
            cache.insert(digest(of), of, 1_000, 1);
            assert!(cache.slots.len() <= 4 && cache.index.len() == cache.slots.len());
        }
        let mut nothing = Cache::new(0);
        nothing.insert(digest(0), 0, 1_000, 0);
        assert_eq!(nothing.get(&digest(0), 0), None);
    }

    proptest! {
        #[test]
        fn it_returns_only_inserted_values(steps in prop::collection::vec((0u8..20, 0u64..50), 1..200)) {
            let mut cache = Cache::new(5);
            let mut put = HashMap::new();
            for (now, (of, span)) in steps.into_iter().enumerate() {
                let now = now as u64;
                if let Some(value) = cache.get(&digest(of), now) {
                    let (known, until) = put[&of];
                    prop_assert!(*value == known && now < until);
                }
                cache.insert(digest(of), now, now + span, now);
                put.insert(of, (now, now + span));
                prop_assert!(cache.slots.len() <= 5 && cache.index.len() == cache.slots.len());
            }
        }
    }
}
