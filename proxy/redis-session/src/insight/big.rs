//! Big keys: those with the largest requests and replies that were seen.
//!
//! The k largest maxima of a stream need no sketch: who belongs to them enters with the very request or reply that makes it
//! so, and k places hold them.

use std::time::Duration;

use weir_base::time::Time;

use super::key::NotedKey;

/// A key leaves the list when nothing as large was seen of it for so long.
pub const BIG_KEPT: Duration = Duration::from_secs(600);

/// Which way the bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Written: the command was as large.
    Request,
    /// Read: its reply was.
    Reply,
}

/// A key with a large value, as far as requests and replies tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// The key.
    pub key: NotedKey,
    /// Bytes of the largest request or reply in the last [`BIG_KEPT`], as on the wire.
    pub bytes: u64,
    /// Which it was.
    pub direction: Direction,
    /// Its command.
    pub command: &'static str,
    /// When it was seen last.
    pub at: Time,
}

/// The big keys of one worker.
pub(super) struct BigKeys {
    keys: Vec<BigKey>,
    capacity: usize,
}

impl BigKeys {
    pub(super) fn new(top: u32) -> Self {
        Self { keys: Vec::new(), capacity: top as usize }
    }

    /// A request that names only the key with this hash, or its reply, had so many bytes. `make` makes the rest of the entry.
    pub(super) fn add(&mut self, hash: u64, bytes: u64, now: Time, make: impl FnOnce() -> BigKey) {
        if let Some(known) = self.keys.iter_mut().find(|known| known.key.hash == hash) {
            if bytes >= known.bytes || now.since(known.at) > BIG_KEPT {
                *known = make();
            }
            return;
        }
        if self.keys.len() == self.capacity {
            self.forget_old(now);
        }
        if self.keys.len() < self.capacity {
            self.keys.push(make());
            return;
        }
        if let Some(least) = self.keys.iter_mut().min_by_key(|known| known.bytes)
            && least.bytes < bytes
        {
            *least = make();
        }
    }

    fn forget_old(&mut self, now: Time) {
        self.keys.retain(|known| now.since(known.at) <= BIG_KEPT);
    }

    /// The list, the largest first.
    pub(super) fn report(&mut self, now: Time) -> Vec<BigKey> {
        self.forget_old(now);
        merge_big_keys([self.keys.clone()])
    }
}

/// The lists of several workers as one, the largest first.
pub fn merge_big_keys(lists: impl IntoIterator<Item = Vec<BigKey>>) -> Vec<BigKey> {
    let mut all: Vec<BigKey> = Vec::new();
    for key in lists.into_iter().flatten() {
        match all.iter_mut().find(|known| known.key.hash == key.key.hash && known.key.keyspace == key.key.keyspace) {
            Some(known) if known.bytes < key.bytes => *known = key,
            Some(_) => {}
            None => all.push(key),
        }
    }
    all.sort_by_key(|key| (std::cmp::Reverse(key.bytes), key.key.hash));
    all
}

#[cfg(test)]
mod tests {
    use weir_base::rng::Rng;

    use super::*;
    use crate::insight::{key::Keyspace, settings::KeyNames};

    fn big(hash: u64, bytes: u64, at: Time) -> BigKey {
        let keyspace = Keyspace { upstream: "main".into(), db: 0 };
        let key = NotedKey::new(KeyNames::Hashed, &keyspace, hash, b"k");
        BigKey { key, bytes, direction: Direction::Reply, command: "get", at }
    }

    #[test]
    fn the_largest_maxima_are_exact() {
        let (mut rng, mut keys) = (Rng::new(5), BigKeys::new(8));
        let mut exact = std::collections::HashMap::new();
        for n in 0..5_000 {
            let (hash, bytes, now) = (rng.below(500), rng.below(1 << 20), Time::from_nanos(n));
            let most = exact.entry(hash).or_insert(0);
            *most = bytes.max(*most);
            keys.add(hash, bytes, now, || big(hash, bytes, now));
        }
        let mut exact: Vec<_> = exact.into_iter().map(|(hash, bytes)| (bytes, hash)).collect();
        exact.sort_by(|a, b| b.cmp(a));
        let told: Vec<_> = keys.report(Time::from_nanos(5_000)).iter().map(|key| (key.bytes, key.key.hash)).collect();
        assert_eq!(told, exact[..8]);
    }

    #[test]
    fn old_big_keys_leave() {
        let mut keys = BigKeys::new(2);
        let late = Time::ZERO.saturating_add(BIG_KEPT).saturating_add(Duration::from_secs(1));
        keys.add(1, 900, Time::ZERO, || big(1, 900, Time::ZERO));
        keys.add(2, 800, Time::ZERO, || big(2, 800, Time::ZERO));
        keys.add(1, 100, late, || big(1, 100, late));
        keys.add(3, 50, late, || big(3, 50, late));
        let told: Vec<_> = keys.report(late).iter().map(|key| (key.key.hash, key.bytes)).collect();
        assert_eq!(told, [(1, 100), (3, 50)]);
    }
}
