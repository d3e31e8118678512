//! The clients' use of invalidations, and a check of the values that they keep.

use std::collections::BTreeSet;

use weir_resp::{Value, ValueLimits};

use super::{ExpectedReply, Play, TrackingMode};

impl Play {
    /// The client reads all messages of the gateway.
    pub(super) fn reads(&mut self, at: usize) {
        let invalidations = std::mem::take(&mut *self.clients[at].io.output.borrow_mut());
        self.clients[at].read.extend(invalidations);
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
                value => self.on_reply(at, value),
            }
        }
    }

    fn forget(&mut self, holder: usize, keys: &Value) {
        let holds = &mut self.clients[holder].holds;
        match keys {
            Value::Array(keys) => {
                for key in keys {
                    holds.remove(&*String::from_utf8_lossy(key.as_bytes().expect("a key")));
                    self.invalidations += 1;
                }
            }
            _ => holds.clear(),
        }
    }

    fn on_reply(&mut self, at: usize, value: Value) {
        let client = &mut self.clients[at];
        let expected = client.expected.pop_front().expect("a reply was asked for");
        let is_error = matches!(value, Value::Error(_));
        match expected {
            ExpectedReply::Nothing => assert!(!is_error, "{value:?}"),
            ExpectedReply::Write(key, is_named) => {
                let version = if is_error { None } else { client.wrote.pop_front() };
                if let Some(version) = version.filter(|_| client.terms == TrackingMode::Cached) {
                    let seen = client.seen.entry(key.clone()).or_default();
                    *seen = (*seen).max(version);
                    if is_named {
                        // No client of this worker gets an older value.
                        let invalidations = self.notified_writers.entry(key).or_default();
                        *invalidations = (*invalidations).max(version);
                    }
                    return;
                }
                match (client.terms, version) {
                    (_, None) => {}
                    // It also gets changes of keys that it has not read.
                    (TrackingMode::NoLoopBcast | TrackingMode::Bcast, Some(version))
                        if client.terms != TrackingMode::Bcast || key.starts_with(['a', 'd']) =>
                    {
                        client.holds.insert(key, version);
                    }
                    _ => drop(client.holds.remove(&key)),
                }
            }
            ExpectedReply::Fresh(keys) => {
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
            ExpectedReply::Values(keys, is_kept) => {
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

    /// No client holds a value that the gateway knows to be overwritten.
    pub(super) fn check(&self) {
        let on_their_way: BTreeSet<usize> =
            self.common.posted.borrow().iter().map(|(id, _)| *id as usize - 2).collect();
        for (at, client) in self.clients.iter().enumerate() {
            // An invalidation for another client may be on its way to it; a message in the middle of a reply waits for its end.
            if on_their_way.contains(&at) || client.session.kept_pushes() > 0 {
                continue;
            }
            let is_own = |key: &str| {
                let is_it =
                    |expected: &ExpectedReply| matches!(expected, ExpectedReply::Write(other, _) if other == key);
                client.expected.iter().any(is_it)
            };
            // For a key that the client is about to overwrite the invalidation comes behind the reply, if needed.
            for (key, version) in client.holds.iter().filter(|(key, _)| !is_own(key)) {
                let overwritten = self.overwritten.get(key).copied().unwrap_or(0);
                assert!(
                    *version >= overwritten,
                    "client {at} {:?} holds {key} of {version}, heard {overwritten}",
                    client.terms
                );
            }
            assert!(
                self.common.is_live.get() || client.holds.is_empty(),
                "client {at} holds {:?} and nobody listens",
                client.holds
            );
        }
    }
}
