//! The snapshot of the keys of a listener: those of the configuration with those that the admin API has issued.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_spend::{
    Denial,
    budget::Ledger,
    keys::{IssuedKeys, Key, KeyRing},
};

use crate::settings::{AiListenerSettings, KeyMode};

/// The latest snapshot of a listener, which its workers share. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct SharedRing(Arc<Latest>);

#[derive(Debug, Default)]
struct Latest {
    /// Grows with each snapshot; 0: there is none. A request reads this, and nothing else while it stays.
    version: AtomicU64,
    /// Held while a snapshot is made, which takes long with many keys: the latest one has the latest keys. Requests do not wait for it.
    making: Mutex<()>,
    /// Held to copy the pointer.
    ring: Mutex<Option<Arc<KeyRing>>>,
}

impl Latest {
    fn copy(&self) -> (Option<Arc<KeyRing>>, u64) {
        let ring = lock(&self.ring);
        (ring.clone(), self.version.load(Ordering::Acquire))
    }

    fn publish(&self, made: Arc<KeyRing>) {
        let mut ring = lock(&self.ring);
        // The one before is dropped behind the lock.
        let _before = ring.replace(made);
        self.version.fetch_add(1, Ordering::Release);
        drop(ring);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AiListenerSettings {
    /// Makes the snapshot again, since the issued keys have changed. The next request on each worker finds it. For control threads.
    pub fn renew_keys(&self, listener: &str, ledger: &Ledger, issued: &IssuedKeys) {
        if self.key_mode == KeyMode::Required {
            let _one = lock(&self.ring.0.making);
            self.ring.0.publish(self.make(listener, ledger, issued));
        }
    }

    /// The snapshot for a worker; the first one makes it. `None`: clients need no key.
    pub(crate) fn ring(&self, listener: &str, ledger: &Ledger, issued: &IssuedKeys) -> Option<ListenerRing> {
        if self.key_mode == KeyMode::None {
            return None;
        }
        let shared = self.ring.clone();
        let one = lock(&shared.0.making);
        if shared.0.copy().0.is_none() {
            shared.0.publish(self.make(listener, ledger, issued));
        }
        drop(one);
        let (ring, seen) = shared.0.copy();
        Some(ListenerRing { shared, seen: Cell::new(seen), ring: RefCell::new(ring.unwrap_or_default()) })
    }

    fn make(&self, listener: &str, ledger: &Ledger, issued: &IssuedKeys) -> Arc<KeyRing> {
        let made = KeyRing::new(&issued.joined(listener, &self.keys), &[], ledger);
        // The configuration has checked its keys, and the join drops what does not fit. Without a ring each key is unknown.
        made.inspect_err(|error| tracing::error!(listener, %error, "the keys cannot be used"))
            .unwrap_or_default()
            .into()
    }
}

/// The snapshot as one worker has it.
#[derive(Debug)]
pub(crate) struct ListenerRing {
    shared: SharedRing,
    /// The version of `ring`.
    seen: Cell<u64>,
    ring: RefCell<Arc<KeyRing>>,
}

impl ListenerRing {
    /// The key that a client has sent, by the latest snapshot. Besides the look-up it costs one load of an atomic, unless the keys have
    /// changed.
    ///
    /// # Errors
    /// It may not be used.
    pub(crate) fn find(&self, sent: &[u8], unix_seconds: u64) -> Result<Arc<Key>, Denial> {
        let latest = &self.shared.0;
        if latest.version.load(Ordering::Acquire) != self.seen.get() {
            let (ring, seen) = latest.copy();
            self.seen.set(seen);
            self.ring.replace(ring.unwrap_or_default());
        }
        self.ring.borrow().find(sent, unix_seconds).cloned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use weir_spend::keys::KeyDocument;

    use super::*;

    #[test]
    fn a_request_does_not_wait_while_a_snapshot_is_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let issued = IssuedKeys::open(Some(folder.path())).expect("a file");
        let (ledger, open) = (Ledger::default(), KeyDocument::read(Map::new()).expect("a key"));
        let settings = AiListenerSettings { key_mode: KeyMode::Required, ..crate::filter::tests::settings() };
        let ring = settings.ring("ai", &ledger, &issued).expect("keys are needed");
        let (_, new) = issued.issue("a", &open, 0).expect("a key");
        settings.renew_keys("ai", &ledger, &issued);
        let (shared, renews) = (settings.ring.clone(), settings.clone());
        let making = lock(&shared.0.making);
        std::thread::scope(|scope| {
            let renewed = scope.spawn(|| renews.renew_keys("ai", &ledger, &issued));
            // The snapshot is of another version than the one that the worker has seen.
            assert!(ring.find(new.text.expose(), 0).is_ok());
            assert!(!renewed.is_finished(), "it is made still");
            drop(making);
        });
        assert!(ring.find(new.text.expose(), 0).is_ok());
    }

    #[test]
    fn a_worker_finds_an_issued_key_with_its_next_request() {
        let folder = tempfile::tempdir().expect("a folder");
        let issued = IssuedKeys::open(Some(folder.path())).expect("a file");
        let ledger = Ledger::default();
        let settings = AiListenerSettings { key_mode: KeyMode::Required, ..crate::filter::tests::settings() };
        let rings = [(); 2].map(|()| settings.ring("ai", &ledger, &issued).expect("keys are needed"));
        let open = KeyDocument::read(Map::new()).expect("a key");
        let (_, new) = issued.issue("a", &open, 0).expect("a key");
        let is_good = |ring: &ListenerRing| ring.find(new.text.expose(), 0).is_ok();
        assert!(!rings.iter().any(is_good), "it is not shown yet");
        settings.renew_keys("ai", &ledger, &issued);
        assert!(rings.iter().all(is_good));
        let serde_json::Value::Object(patch) = json!({ "enabled": false }) else { unreachable!() };
        issued.patch("a", patch).expect("changed");
        settings.renew_keys("ai", &ledger, &issued);
        assert!(!rings.iter().any(is_good));
        let after_reload = AiListenerSettings { ring: SharedRing::default(), ..settings };
        let found = after_reload.ring("ai", &ledger, &issued).expect("keys").find(new.text.expose(), 0);
        assert_eq!(found.err(), Some(Denial::DisabledKey), "it is there, and disabled");
        let none = AiListenerSettings { key_mode: KeyMode::None, ..after_reload };
        assert!(none.ring("ai", &ledger, &issued).is_none());
    }
}
