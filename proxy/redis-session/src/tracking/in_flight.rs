//! The requests in flight of a client that tracks: which keys its requests touch, and which of them have changed meanwhile.

use std::collections::{HashMap, VecDeque};

use crate::pubsub::Name;

/// The access of a request to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAccess {
    /// It shows what a client may keep.
    Read,
    /// It writes, and does not wait for others before it does: the invalidation of a change meanwhile comes behind the reply, as a
    /// server does, and only there. With BCAST a client may keep what it has written.
    Written,
}

/// A request whose reply is not complete.
#[derive(Debug)]
struct InFlightRequest {
    exchange: u64,
    keys: Vec<TouchedKey>,
}

#[derive(Debug)]
pub(super) struct TouchedKey {
    pub(super) name: Name,
    pub(super) access: KeyAccess,
    /// It has to be invalidated behind the reply, whatever happens.
    pub(super) is_due: bool,
}

/// A key that requests under way touch.
#[derive(Debug, Default)]
struct Key {
    reads: u32,
    writes: u32,
    /// The last of these requests.
    last: u64,
    /// It has changed while this request and those before it were under way.
    changed_at: Option<u64>,
}

/// See the module's documentation. A change costs a look, however much is under way.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    touches: VecDeque<InFlightRequest>,
    keys: HashMap<Name, Key>,
}

impl InFlight {
    pub(super) fn is_empty(&self) -> bool {
        self.touches.is_empty()
    }

    /// A request touches these keys. Requests come in any order, but mostly in that of their numbers.
    pub(super) fn add(&mut self, exchange: u64, keys: Vec<TouchedKey>) {
        for key in &keys {
            let state = self.keys.entry(key.name.clone()).or_default();
            match key.access {
                KeyAccess::Read => state.reads += 1,
                KeyAccess::Written => state.writes += 1,
            }
            state.last = state.last.max(exchange);
        }
        let at = self.touches.partition_point(|touch| touch.exchange <= exchange);
        self.touches.insert(at, InFlightRequest { exchange, keys });
    }

    /// A key has changed. True if it is being written, so that the invalidation comes behind the reply.
    pub(super) fn changed(&mut self, key: &[u8]) -> bool {
        let Some(state) = self.keys.get_mut(key) else { return false };
        state.changed_at = Some(state.last);
        state.writes > 0
    }

    /// All keys may have changed.
    pub(super) fn all_changed(&mut self) {
        self.keys.values_mut().for_each(|state| state.changed_at = Some(state.last));
    }

    /// A request went to another server than the watched one. For a command in parts the number is that of its last part.
    pub(super) fn redirected(&mut self, exchange: u64) {
        let meant = self.touches.iter_mut().find(|touch| touch.exchange >= exchange);
        meant.into_iter().flat_map(|touch| &mut touch.keys).for_each(|key| key.is_due = true);
    }

    /// The key is being read.
    pub(super) fn is_read(&self, key: &[u8]) -> bool {
        self.keys.get(key).is_some_and(|state| state.reads > 0)
    }

    /// The keys that the client must forget after the reply to `exchange`.
    pub(super) fn take_due(&mut self, exchange: u64) -> Vec<Name> {
        let mut due: Vec<Name> = Vec::new();
        while let Some(touch) = self.touches.pop_front_if(|touch| touch.exchange <= exchange) {
            for key in touch.keys {
                let Some(state) = self.keys.get_mut(&key.name) else { continue };
                match key.access {
                    KeyAccess::Read => state.reads -= 1,
                    KeyAccess::Written => state.writes -= 1,
                }
                let has_changed = state.changed_at.is_some_and(|last| touch.exchange <= last);
                if state.reads + state.writes == 0 {
                    self.keys.remove(&key.name);
                }
                due.extend((has_changed || key.is_due).then_some(key.name));
            }
        }
        due.sort_unstable();
        due.dedup();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str], access: KeyAccess) -> Vec<TouchedKey> {
        let key = |name: &&str| TouchedKey { name: name.as_bytes().into(), access, is_due: false };
        names.iter().map(key).collect()
    }

    fn due(under_way: &mut InFlight, exchange: u64) -> Vec<String> {
        under_way.take_due(exchange).iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    #[test]
    fn a_change_is_due_for_requests_in_flight() {
        let mut all = InFlight::default();
        all.add(1, keys(&["a", "b", "a"], KeyAccess::Read));
        assert!(!all.changed(b"a") && !all.changed(b"c"));
        all.add(2, keys(&["a"], KeyAccess::Read));
        assert_eq!(due(&mut all, 1), ["a"]);
        assert!(all.is_read(b"a") && !all.is_read(b"b"));
        assert!(due(&mut all, 2).is_empty(), "it began later");
        assert!(all.is_empty() && all.keys.is_empty());
    }

    #[test]
    fn own_writes_are_reported_behind_the_reply() {
        let mut all = InFlight::default();
        all.add(4, keys(&["a"], KeyAccess::Written));
        all.add(5, keys(&["b"], KeyAccess::Read));
        assert!(all.changed(b"a"));
        all.all_changed();
        assert_eq!(due(&mut all, 4), ["a"]);
        assert!(!all.changed(b"a"), "it is over");
        assert_eq!(due(&mut all, 5), ["b"]);
    }

    #[test]
    fn a_redirected_client_forgets_its_reads() {
        let mut all = InFlight::default();
        all.add(7, keys(&["a"], KeyAccess::Read));
        all.add(3, keys(&["b"], KeyAccess::Read));
        all.redirected(6);
        assert!(due(&mut all, 3).is_empty());
        assert_eq!(due(&mut all, 7), ["a"]);
    }
}
