//! Which node of a Redis Cluster has which slot, as one worker knows it.

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use weir_base::time::Time;

use weir_placement::{HashTag, KeyLocation, SLOTS, slot};

/// The owner of the slot is not known.
const NONE: u16 = u16::MAX;

/// How long the word of the node that gave a slot away outweighs the view of one that has not heard of it yet. 2 s: nodes tell
/// each other of the end of a move at once. A slot that comes back meanwhile costs one redirection more.
const NEWS: Duration = Duration::from_secs(2);

/// A slot that a node says it does not have any more.
#[derive(Clone, Copy, Debug)]
struct Moved {
    slot: u16,
    from: u16,
    until: Time,
}

/// Owners of slots. A redirection changes one of them, a discovery all.
#[derive(Debug)]
pub struct SlotMap {
    /// Endpoint by slot.
    owners: RefCell<Box<[u16]>>,
    /// Changes with every change.
    version: Cell<u64>,
    /// The owners, each once, by their lowest slot.
    primaries: RefCell<Vec<u16>>,
    /// Recent redirections, each slot once.
    news: RefCell<Vec<Moved>>,
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
            news: RefCell::default(),
            home: Cell::new(NONE),
        }
    }
}

impl SlotMap {
    /// Where `key` is.
    pub fn place(&self, key: &[u8]) -> KeyLocation {
        let slot = slot(HashTag::CLUSTER.of(key));
        KeyLocation { shard: self.owner(slot), group: slot }
    }

    /// The endpoint that has `slot`; if the owner is not known, the first endpoint, which will redirect.
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

    /// The server `from` says that `slot` is at `endpoint`.
    pub fn moved(&self, slot: u16, from: u16, endpoint: u16, now: Time) {
        let slot = slot % SLOTS;
        let before = std::mem::replace(&mut self.owners.borrow_mut()[usize::from(slot)], endpoint);
        let mut news = self.news.borrow_mut();
        news.retain(|one| one.slot != slot && one.until > now);
        if from != endpoint {
            news.push(Moved { slot, from, until: now.saturating_add(NEWS) });
        }
        drop(news);
        if before != endpoint {
            self.changed();
        }
    }

    /// Replaces the whole map: ranges of slots, first and last, and their endpoints. A report that a slot is still at the
    /// server that has just given it away is outdated.
    pub fn replace(&self, ranges: impl IntoIterator<Item = (u16, u16, u16)>, now: Time) {
        let mut fresh = vec![NONE; usize::from(SLOTS)];
        for (first, last, endpoint) in ranges {
            let last = last.min(SLOTS - 1);
            if first <= last {
                fresh[usize::from(first)..=usize::from(last)].fill(endpoint);
            }
        }
        for news in self.news.borrow().iter().filter(|news| news.until > now) {
            let slot = usize::from(news.slot);
            if fresh[slot] == news.from {
                fresh[slot] = self.owners.borrow()[slot];
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
        let now = Time::from_nanos(1);
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 16_383, 1)], now);
        assert_eq!((map.primaries(), map.first(), map.version()), (vec![2, 0, 1], 2, 1));
        assert_eq!(map.place(b"{foo}bar"), KeyLocation { shard: 1, group: 12_182 });
        map.moved(12_182, 1, 5, now);
        assert_eq!(map.place(b"foo"), KeyLocation { shard: 5, group: 12_182 });
        assert_eq!((map.owner(12_183), map.primaries(), map.version()), (1, vec![2, 0, 1, 5], 2));
        map.moved(12_182, 1, 5, now);
        let later = now.saturating_add(NEWS);
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 16_383, 1)], later);
        map.replace([(0, 5_460, 2), (5_461, 10_922, 0), (10_923, 20_000, 1)], later);
        assert_eq!((map.owner(12_182), map.version()), (1, 3), "what changes nothing is no change");
    }

    #[test]
    fn messages_stay_on_their_node_whatever_slots_move() {
        let map = SlotMap::default();
        let now = Time::from_nanos(1);
        assert_eq!(map.home(|_| false), 0, "nobody is known yet");
        map.replace([(0, 8_000, 2), (8_001, 16_383, 1)], now);
        assert_eq!(map.home(|_| true), 2);
        map.moved(0, 2, 1, now);
        assert_eq!((map.first(), map.home(|_| true)), (1, 2), "others have the lowest slot");
        map.replace([(0, 16_383, 1)], now);
        assert_eq!(map.home(|_| true), 2, "it has no slots, and is still part of the cluster");
        assert_eq!(map.home(|number| number != 2), 1);
        map.replace([(0, 8_000, 2), (8_001, 16_383, 1)], now.saturating_add(NEWS));
        assert_eq!(map.home(|_| true), 1, "who comes back is not followed");
        assert_eq!(map.home(|_| false), 2, "somebody will say what is wrong");
    }

    #[test]
    fn the_first_node_serves_slots_without_owner() {
        let map = SlotMap::default();
        map.replace([(100, 200, 3), (9, 8, 4)], Time::ZERO);
        assert_eq!((map.owner(0), map.owner(150), map.primaries()), (3, 3, vec![3]));
    }
    /// A discovery follows each redirection, and may ask a node that has not heard of the move.
    #[test]
    fn a_node_with_an_old_map_does_not_undo_a_redirection() {
        let map = SlotMap::default();
        let at = |seconds| Time::ZERO.saturating_add(Duration::from_secs(seconds));
        map.replace([(0, 16_383, 1)], at(1));
        map.moved(7, 1, 2, at(1));
        map.replace([(0, 16_383, 1)], at(2));
        assert_eq!((map.owner(7), map.owner(8)), (2, 1), "the first node said itself that it is not there");
        map.replace([(0, 6, 1), (7, 7, 3), (8, 16_383, 1)], at(2));
        assert_eq!(map.owner(7), 3, "who knows of somebody else has heard more");
        map.moved(7, 3, 1, at(2));
        map.replace([(0, 16_383, 1)], at(2));
        assert_eq!(map.owner(7), 1, "it came back");
        map.moved(7, 1, 2, at(3));
        map.replace([(0, 16_383, 1)], at(5));
        assert_eq!(map.owner(7), 1, "what all say after a while holds");
    }
}
