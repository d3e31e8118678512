//! Which clients get which invalidations: by the keys that they have read, or the prefixes that they have named.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use slab::Slab;

use super::terms::Scope;
use crate::pubsub::Name;

/// Keys remembered, counted for each client that has read them. Default 1,000,000, as `tracking-table-max-keys`. Past it the
/// oldest are invalidated, as if they had changed.
pub const KEYS_MAX: usize = 1_000_000;

/// Most bytes of these keys. Default 256 MiB: keys of 100 bytes reach [`KEYS_MAX`] first.
const BYTES_MAX: usize = 256 << 20;

/// Bytes of a key that a client has read, its places in the maps included, rounded up.
fn cost(key: &[u8]) -> usize {
    150 + key.len()
}

/// Longer keys are not remembered: who reads one forgets it with its reply.
pub const KEY_BYTES_MAX: usize = 1024;

/// A key that is not remembered any more, and who had read it.
pub type EvictedKey = (Name, BTreeSet<usize>);

/// The order of keys may hold so many more than there are.
const ORDER_SLACK: usize = 1024;

#[derive(Debug)]
struct Follower {
    scope: Scope,
    /// The keys that it may have kept.
    keys: HashSet<Name>,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Table {
    followers: Slab<Follower>,
    /// For each key, the clients that have read it since it changed.
    keys: HashMap<Name, BTreeSet<usize>>,
    prefixes: BTreeMap<Name, BTreeSet<usize>>,
    /// Keys as they came; some are gone, some come twice.
    order: VecDeque<Name>,
    count: usize,
    bytes: usize,
}

impl Table {
    /// Adds a client that gets invalidations from now on; its number.
    pub fn join(&mut self, scope: Scope) -> usize {
        let client = self.followers.insert(Follower { scope: Scope::Read, keys: HashSet::new() });
        self.set_scope(client, scope);
        client
    }

    /// It gets invalidations of other changes from now on.
    pub fn set_scope(&mut self, client: usize, scope: Scope) {
        self.drop_prefixes(client);
        if let Scope::Prefixes(prefixes) = &scope {
            for prefix in prefixes {
                self.prefixes.entry(prefix.clone()).or_default().insert(client);
            }
        }
        self.followers[client].scope = scope;
    }

    fn drop_prefixes(&mut self, client: usize) {
        let Scope::Prefixes(prefixes) = &self.followers[client].scope else { return };
        for prefix in prefixes {
            if let Some(clients) = self.prefixes.get_mut(prefix) {
                clients.remove(&client);
                if clients.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
    }

    /// It gets no more invalidations, and its number may become another's.
    pub fn leave(&mut self, client: usize) {
        self.drop_prefixes(client);
        for key in self.followers.remove(client).keys {
            self.drop_reader(&key, client);
        }
    }

    /// Clients.
    pub fn followers(&self) -> usize {
        self.followers.len()
    }

    /// Keys, counted for each client that has read them.
    pub fn keys(&self) -> usize {
        self.count
    }

    /// A client may keep the value of `key` from now on. Returns the keys evicted for it, if there are too many, each with the
    /// clients to notify.
    pub fn remember(&mut self, client: usize, key: &Name, keys_max: usize) -> Vec<EvictedKey> {
        if !self.followers[client].keys.insert(key.clone()) {
            return Vec::new();
        }
        self.count += 1;
        self.bytes += cost(key);
        let readers = self.keys.entry(key.clone()).or_default();
        if readers.is_empty() {
            if self.order.len() > 2 * self.count + ORDER_SLACK {
                let keys = &self.keys;
                // The last of those that are there twice would be the right one, and costs another pass.
                let mut seen = HashSet::new();
                self.order
                    .retain(|key| keys.get(key).is_some_and(|readers| !readers.is_empty()) && seen.insert(key.clone()));
            }
            self.order.push_back(key.clone());
        }
        self.keys.entry(key.clone()).or_default().insert(client);
        let mut forgotten = Vec::new();
        for _ in 0..self.order.len() {
            if self.count <= keys_max && self.bytes <= BYTES_MAX {
                break;
            }
            let Some(oldest) = self.order.pop_front() else { break };
            if oldest == *key {
                self.order.push_back(oldest);
                continue;
            }
            let readers = self.readers_of_forgotten(&oldest);
            if !readers.is_empty() {
                forgotten.push((oldest, readers));
            }
        }
        forgotten
    }

    /// A client has not kept the value of `key`.
    pub fn forget(&mut self, client: usize, key: &[u8]) {
        if self.followers[client].keys.remove(key) {
            self.drop_reader(key, client);
        }
    }

    fn drop_reader(&mut self, key: &[u8], client: usize) {
        if let Some(readers) = self.keys.get_mut(key)
            && readers.remove(&client)
        {
            self.count -= 1;
            self.bytes -= cost(key);
            if readers.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Keys have changed: the clients that get an invalidation, and its keys.
    pub fn changed(&mut self, keys: &[&[u8]], mut tell: impl FnMut(usize, &[&[u8]])) {
        for &key in keys {
            self.readers_of_forgotten(key).into_iter().for_each(|client| tell(client, &[key]));
        }
        for (prefix, clients) in &self.prefixes {
            let named: Vec<&[u8]> = keys.iter().copied().filter(|key| key.starts_with(prefix)).collect();
            if !named.is_empty() {
                clients.iter().for_each(|&client| tell(client, &named));
            }
        }
    }

    /// Forgets who has read `key`: who that was.
    pub(super) fn readers_of_forgotten(&mut self, key: &[u8]) -> BTreeSet<usize> {
        let readers = self.keys.remove(key).unwrap_or_default();
        self.count -= readers.len();
        self.bytes -= readers.len() * cost(key);
        for &client in &readers {
            self.followers[client].keys.remove(key);
        }
        readers
    }

    /// Everything may have changed: the clients that get an invalidation.
    pub fn all_changed(&mut self) -> Vec<usize> {
        self.keys.clear();
        self.order.clear();
        (self.count, self.bytes) = (0, 0);
        self.followers.iter_mut().for_each(|(_, follower)| follower.keys.clear());
        self.followers.iter().map(|(client, _)| client).collect()
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn readers_of(table: &mut Table, keys: &[&str]) -> Vec<(usize, Vec<String>)> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let mut told = Vec::new();
        table.changed(&keys, |client, keys| {
            told.push((client, keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect()));
        });
        told
    }

    fn name(text: &str) -> Name {
        text.as_bytes().into()
    }

    #[test]
    fn a_reader_is_notified_once_and_a_prefix_every_time() {
        let mut table = Table::default();
        let reader = table.join(Scope::Read);
        let follower = table.join(Scope::Prefixes([name("a"), name("b")].into()));
        table.remember(reader, &name("ab"), KEYS_MAX);
        assert_eq!(
            readers_of(&mut table, &["ab", "b", "c"]),
            [(reader, vec!["ab".into()]), (follower, vec!["ab".into()]), (follower, vec!["b".into()])]
        );
        assert_eq!(readers_of(&mut table, &["ab"]), [(follower, vec!["ab".into()])]);
        table.leave(follower);
        assert!(table.prefixes.is_empty());
        assert_eq!(readers_of(&mut table, &["ab"]), []);
    }

    #[test]
    fn nothing_is_left_of_clients_that_leave() {
        let mut table = Table::default();
        let (one, two) = (table.join(Scope::Read), table.join(Scope::Read));
        for key in ["a", "b", "a"] {
            table.remember(one, &name(key), KEYS_MAX);
            table.remember(two, &name(key), KEYS_MAX);
        }
        assert_eq!(table.keys(), 4);
        table.forget(one, b"a");
        assert_eq!(readers_of(&mut table, &["a"]), [(two, vec!["a".into()])]);
        table.leave(one);
        table.leave(two);
        assert_eq!((table.keys(), table.keys.len(), table.followers()), (0, 0, 0));
    }

    #[test]
    fn past_the_limit_the_oldest_key_has_to_go() {
        let mut table = Table::default();
        let client = table.join(Scope::Read);
        assert_eq!(table.remember(client, &name("a"), 2), []);
        assert_eq!(table.remember(client, &name("b"), 2), []);
        table.changed(&[b"a"], |_, _| {});
        assert_eq!(table.remember(client, &name("c"), 2), []);
        assert_eq!(table.remember(client, &name("d"), 2), [(name("b"), [client].into())]);
        for number in 0..10_000 {
            table.remember(client, &name(&number.to_string()), KEYS_MAX);
            table.changed(&[number.to_string().as_bytes()], |_, _| {});
        }
        assert!(table.order.len() < 2 * ORDER_SLACK, "keys that are gone are not kept");
    }
}
