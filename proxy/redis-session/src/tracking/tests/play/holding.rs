//! What clients make of what they are told, and whether they may hold what they hold.

use std::collections::BTreeSet;

use weir_resp::{Value, ValueLimits};

use super::{Asked, Play, Terms};

impl Play {
    /// The client reads all that the gateway has told it.
    pub(super) fn reads(&mut self, at: usize) {
        let told = std::mem::take(&mut *self.clients[at].io.output.borrow_mut());
        self.clients[at].read.extend(told);
        loop {
            let client = &mut self.clients[at];
            let decoded = Value::decode(&client.read, &ValueLimits::default()).expect("valid replies");
            let Some((value, length)) = decoded else { return };
            client.read.drain(..length);
            match value {
                Value::Push(values) => {
                    assert_eq!(values[0], Value::Bulk(b"invalidate".to_vec()));
                    // A partner forgets for the one who reads.
                    let holder = at / 2 * 2;
                    self.forget(holder, &values[1]);
                }
                value => self.answered(at, value),
            }
        }
    }

    fn forget(&mut self, holder: usize, keys: &Value) {
        let holds = &mut self.clients[holder].holds;
        match keys {
            Value::Array(keys) => {
                for key in keys {
                    holds.remove(&*String::from_utf8_lossy(key.as_bytes().expect("a key")));
                    self.told += 1;
                }
            }
            _ => holds.clear(),
        }
    }

    fn answered(&mut self, at: usize, value: Value) {
        let client = &mut self.clients[at];
        let asked = client.asked.pop_front().expect("a reply was asked for");
        let is_error = matches!(value, Value::Error(_));
        match asked {
            Asked::Nothing => assert!(!is_error, "{value:?}"),
            Asked::Write(key, is_named) => {
                let version = if is_error { None } else { client.wrote.pop_front() };
                if let Some(version) = version.filter(|_| client.terms == Terms::Cached) {
                    let seen = client.seen.entry(key.clone()).or_default();
                    *seen = (*seen).max(version);
                    if is_named {
                        // Nobody on this worker gets what was there before.
                        let told = self.told_writers.entry(key).or_default();
                        *told = (*told).max(version);
                    }
                    return;
                }
                match (client.terms, version) {
                    (_, None) => {}
                    // It is told of changes of what it has not read, too.
                    (Terms::NoLoopBcast | Terms::Bcast, Some(version))
                        if client.terms != Terms::Bcast || key.starts_with(['a', 'd']) =>
                    {
                        client.holds.insert(key, version);
                    }
                    _ => drop(client.holds.remove(&key)),
                }
            }
            Asked::Fresh(keys) => {
                let values = match value {
                    Value::Array(values) => values,
                    value => vec![value],
                };
                for ((key, floor), value) in keys.into_iter().zip(values) {
                    let text = String::from_utf8_lossy(value.as_bytes().expect("a value")).into_owned();
                    let version: u64 = text.parse().expect("a version");
                    let seen = client.seen.entry(key.clone()).or_default();
                    let floor = floor.max(*seen);
                    assert!(version >= floor, "client {at} was given {key} of {version} and knew of {floor}");
                    *seen = version;
                }
            }
            Asked::Values(keys, is_kept) => {
                let values = match value {
                    Value::Array(values) => values,
                    value => vec![value],
                };
                for (key, value) in keys.into_iter().zip(values) {
                    let text = String::from_utf8_lossy(value.as_bytes().expect("a value")).into_owned();
                    if is_kept {
                        client.holds.insert(key, text.parse().expect("a version"));
                    }
                }
            }
        }
    }

    /// Nobody holds a value of which the gateway has heard that it was overwritten.
    pub(super) fn check(&self) {
        let on_their_way: BTreeSet<usize> =
            self.common.posted.borrow().iter().map(|(id, _)| *id as usize - 2).collect();
        for (at, client) in self.clients.iter().enumerate() {
            // What another client is told may be on its way to it; what comes in the middle of a reply waits for its end.
            if on_their_way.contains(&at) || client.session.kept_pushes() > 0 {
                continue;
            }
            let is_own = |key: &str| {
                let is_it = |asked: &Asked| matches!(asked, Asked::Write(other, _) if other == key);
                client.asked.iter().any(is_it)
            };
            // What it is about to overwrite itself it is told of behind the reply, if need be.
            for (key, version) in client.holds.iter().filter(|(key, _)| !is_own(key)) {
                let heard = self.heard.get(key).copied().unwrap_or(0);
                assert!(*version >= heard, "client {at} {:?} holds {key} of {version}, heard {heard}", client.terms);
            }
            assert!(
                self.common.is_live.get() || client.holds.is_empty(),
                "client {at} holds {:?} and nobody listens",
                client.holds
            );
        }
    }
}
