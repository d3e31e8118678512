//! Which node of a Redis Cluster has which slot, as one worker knows it.

use std::cell::{Cell, RefCell};

use crate::placement::{HashTag, Place, SLOTS, slot};

/// Nobody is known to have the slot.
const NONE: u16 = u16::MAX;

/// Owners of slots. A redirection changes one of them, a discovery all.
#[derive(Debug)]
pub struct SlotMap {
    /// Endpoint by slot.
    owners: RefCell<Box<[u16]>>,
    /// Changes with every change.
    version: Cell<u64>,
    /// The owners, each once, by their lowest slot.
    primaries: RefCell<Vec<u16>>,
    /// The endpoint of messages.
    home: Cell<u16>,
}

impl Default for SlotMap {
    fn default() -> Self {
        let owners = vec![NONE; usize::from(SLOTS)].into_boxed_slice();
        Self {
            owners: RefCell::new(owners),
            version: Cell::new(0),
            primaries: RefCell::default(),
            home: Cell::new(NONE),
        }
    }
}

impl SlotMap {
    /// Where `key` is.
    pub fn place(&self, key: &[u8]) -> Place {
        let slot = slot(HashTag::CLUSTER.of(key));
        Place { shard: self.owner(slot), group: slot }
    }

    /// The endpoint that has `slot`; if nobody is known to, the first one, which will say.
    pub fn owner(&self, slot: u16) -> u16 {
        match self.owners.borrow()[usize::from(slot % SLOTS)] {
            NONE => self.first(),
            owner => owner,
        }
    }

    /// The endpoint that commands without keys go to.
    pub fn first(&self) -> u16 {
        self.primaries.borrow().first().copied().unwrap_or(0)
    }

    /// The endpoint that messages go to: once chosen it stays while it `is_well`, whatever slots move.
    pub(crate) fn home(&self, is_well: impl Fn(u16) -> bool) -> u16 {
        let home = self.home.get();
        if home != NONE && is_well(home) {
            return home;
        }
        let next = self.primaries.borrow().iter().copied().find(|&primary| is_well(primary));
        let next = next.unwrap_or_else(|| self.first());
        if is_well(next) {
            self.home.set(next);
        }
        next
    }

    /// The endpoints that have slots, by their lowest.
    pub fn primaries(&self) -> Vec<u16> {
        self.primaries.borrow().clone()
    }

    /// A number that changes with every change.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// A server says that `slot` is at `endpoint`.
    pub fn moved(&self, slot: u16, endpoint: u16) {
        let before = std::mem::replace(&mut self.owners.borrow_mut()[usize::from(slot % SLOTS)], endpoint);
        if before != endpoint {
            self.changed();
        }
    }

    /// Takes the whole map: ranges of slots, first and last, and their endpoints.
    pub fn replace(&self, ranges: impl IntoIterator<Item = (u16, u16, u16)>) {
        let mut fresh = vec![NONE; usize::from(SLOTS)];
        for (first, last, endpoint) in ranges {
            let last = last.min(SLOTS - 1);
            if first <= last {
                fresh[usize::from(first)..=usize::from(last)].fill(endpoint);
            }
        }
        if *fresh != **self.owners.borrow() {
            *self.owners.borrow_mut() = fresh.into_boxed_slice();
            self.changed();
        }
    }

    fn changed(&self) {
        self.version.set(self.version.get() + 1);
        let mut primaries: Vec<u16> = Vec::new();
        for &owner in self.owners.borrow().iter() {
            if owner != NONE && primaries.last() != Some(&owner) && !primaries.contains(&owner) {
                primaries.push(owner);
            }
        }
        *self.primaries.borrow_mut() = primaries;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_moves_one_slot_and_a_discovery_all() {
        let map = SlotMap::default();
        assert_eq!((map.owner(7), map.primaries(), map.version()), (0, vec![], 0));
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 16_383, 1)]);
        assert_eq!((map.primaries(), map.first(), map.version()), (vec![2, 0, 1], 2, 1));
        assert_eq!(map.place(b"{foo}bar"), Place { shard: 1, group: 12_182 });
        map.moved(12_182, 5);
        assert_eq!(map.place(b"foo"), Place { shard: 5, group: 12_182 });
        assert_eq!((map.owner(12_183), map.primaries(), map.version()), (1, vec![2, 0, 1, 5], 2));
        map.moved(12_182, 5);
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 16_383, 1)]);
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 20_000, 1)]);
        assert_eq!((map.owner(12_182), map.version()), (1, 3), "what changes nothing is no change");
    }

    #[test]
    fn messages_stay_on_their_node_whatever_slots_move() {
        let map = SlotMap::default();
        assert_eq!(map.home(|_| false), 0, "nobody is known yet");
        map.replace([(0, 8_000, 2), (8_001, 16_383, 1)]);
        assert_eq!(map.home(|_| true), 2);
        map.moved(0, 1);
        assert_eq!((map.first(), map.home(|_| true)), (1, 2), "others have the lowest slot");
        map.replace([(0, 16_383, 1)]);
        assert_eq!(map.home(|_| true), 2, "it has no slots, and is still part of the cluster");
        assert_eq!(map.home(|number| number != 2), 1);
        map.replace([(0, 8_000, 2), (8_001, 16_383, 1)]);
        assert_eq!(map.home(|_| true), 1, "who comes back is not followed");
        assert_eq!(map.home(|_| false), 2, "somebody will say what is wrong");
    }

    #[test]
    fn what_nobody_has_is_asked_of_the_first() {
        let map = SlotMap::default();
        map.replace([(100, 200, 3), (9, 8, 4)]);
        assert_eq!((map.owner(0), map.owner(150), map.primaries()), (3, 3, vec![3]));
    }
}
