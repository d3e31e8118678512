//! Things that are kept for as long as they have room: the least recently used ones go first.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// Things by their keys, bounded in number and in bytes.
#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    kept: HashMap<K, Kept<V>>,
    /// The keys by the numbers of their last uses.
    by_use: BTreeMap<u64, K>,
    bytes: usize,
    /// Counts the uses.
    uses: u64,
    count_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Kept<V> {
    thing: V,
    bytes: usize,
    /// The number of its last use.
    used: u64,
}

impl<K: Clone + Hash + Eq, V: Clone> Recent<K, V> {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Self {
        Self { kept: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, uses: 0, count_max, bytes_max }
    }

    /// The thing of a key, which counts as used.
    pub(crate) fn find<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let kept = self.kept.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(&kept.used) {
            self.by_use.insert(self.uses, key);
        }
        kept.used = self.uses;
        Some(kept.thing.clone())
    }

    /// Keeps a thing of so many bytes, and forgets others until it has room. One that has no room by itself is not kept. Returns the thing of the
    /// key, which another thread may have kept first.
    pub(crate) fn keep(&mut self, key: K, thing: V, bytes: usize) -> V {
        if let Some(first) = self.find(&key) {
            return first;
        }
        if bytes > self.bytes_max || self.count_max == 0 {
            return thing;
        }
        while self.kept.len() >= self.count_max || self.bytes + bytes > self.bytes_max {
            self.forget_oldest();
        }
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key.clone());
        self.kept.insert(key, Kept { thing: thing.clone(), bytes, used: self.uses });
        thing
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_use.pop_first();
        let gone = oldest.and_then(|(_, key)| self.kept.remove(&key));
        // Without any the sum begins again, so that a caller who waits for room ends.
        self.bytes = gone.map_or(0, |gone| self.bytes - gone.bytes);
    }

    /// The things, in no order.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_things_go_first() {
        let mut recent: Recent<u32, u32> = Recent::new(3, 100);
        (0..3).for_each(|key| assert_eq!(recent.keep(key, key, 10), key));
        assert_eq!(recent.find(&0), Some(0), "used again");
        assert_eq!(recent.keep(3, 3, 10), 3);
        let kept: Vec<u32> = (0..4).filter(|key| recent.find(key).is_some()).collect();
        assert_eq!(kept, [0, 2, 3], "the number is bounded");
        recent.keep(4, 4, 85);
        let kept: Vec<u32> = (0..5).filter(|key| recent.find(key).is_some()).collect();
        assert_eq!((kept, recent.bytes), (vec![3, 4], 95), "the bytes are bounded");
        assert_eq!(recent.keep(4, 9, 85), 4, "the first of two that are made at once stays");
        assert_eq!((recent.keep(5, 5, 101), recent.find(&5), recent.len()), (5, None, 2), "it never has room");
        assert_eq!(recent.by_use.len(), 2, "keys end with their things");
    }
}
