//! Hot keys: those that most requests name just now.

use std::time::Duration;

use weir_base::{rng::Rng, time::Time};

use super::{key::NotedKey, sketch::HeavyKeeper};

/// Counts are halved this often, so a key that is no longer requested has an eighth of its weight after half a minute.
/// Shorter, and the counts of a quiet gateway are too small to rank; longer, and yesterday's storm hides today's.
pub const HALF_LIFE: Duration = Duration::from_secs(10);

/// Half-lives after which nothing is left of any count.
const HALVINGS_MAX: u32 = 32;

/// A key that many requests name.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// The key.
    pub key: NotedKey,
    /// The last command that was seen to name it.
    pub command: &'static str,
    /// Requests per second that name it, over the last [`HALF_LIFE`] and, with less weight, before.
    pub per_second: f64,
    /// Samples that this is made of, not above the truth: with ten of them `per_second` may be a third off.
    pub samples: u32,
}

/// Key and command of an item of the list.
struct HotItem {
    key: NotedKey,
    command: &'static str,
}

/// The hot keys of one worker.
pub(super) struct HotKeys {
    sketch: HeavyKeeper<HotItem>,
    /// Seconds of the stream that the counts stand for: halved with them.
    window: f64,
    /// Until when they do.
    until: Option<Time>,
    halved: Time,
}

impl HotKeys {
    pub(super) fn new(top: u32, rng: Rng) -> Self {
        Self { sketch: HeavyKeeper::new(top as usize, rng), window: 0.0, until: None, halved: Time::ZERO }
    }

    /// A sampled request names the key with this hash.
    pub(super) fn add(&mut self, hash: u64, command: &'static str, now: Time, make: impl FnOnce() -> NotedKey) {
        self.advance(now);
        if let Some(seen) = self.sketch.add(hash, || HotItem { key: make(), command }) {
            seen.command = command;
        }
    }

    /// Lets the time since the last look pass, half-life by half-life.
    fn advance(&mut self, now: Time) {
        let Some(mut until) = self.until.replace(now) else {
            self.halved = now;
            return;
        };
        if now.since(until) > HALF_LIFE * HALVINGS_MAX {
            self.sketch.clear();
            (self.window, self.halved) = (0.0, now);
            return;
        }
        loop {
            let due = self.halved.saturating_add(HALF_LIFE);
            if now < due {
                break;
            }
            self.window = (self.window + due.since(until).as_secs_f64()) / 2.0;
            self.sketch.halve();
            (until, self.halved) = (due, due);
        }
        self.window += now.since(until).as_secs_f64();
    }

    /// The list, the hottest first; one request of `sample` was looked at.
    pub(super) fn report(&mut self, now: Time, sample: u32) -> Vec<HotKey> {
        self.advance(now);
        // A first moment would make any rate of one request.
        let seconds = self.window.max(1.0);
        let of = |top: &super::sketch::Top<HotItem>| HotKey {
            key: top.item.key.clone(),
            command: top.item.command,
            per_second: f64::from(top.count) * f64::from(sample) / seconds,
            samples: top.count,
        };
        let mut keys: Vec<HotKey> = self.sketch.iter().map(of).collect();
        sort(&mut keys);
        keys
    }
}

/// The hottest first; equal ones in an order that stays.
fn sort(keys: &mut [HotKey]) {
    keys.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then(a.key.hash.cmp(&b.key.hash)));
}

/// The lists of several workers as one: a key that is on several counts on all of them together.
pub fn merge_hot_keys(lists: impl IntoIterator<Item = Vec<HotKey>>) -> Vec<HotKey> {
    let mut all: Vec<HotKey> = Vec::new();
    for key in lists.into_iter().flatten() {
        match all.iter_mut().find(|known| known.key.hash == key.key.hash && known.key.keyspace == key.key.keyspace) {
            Some(known) => {
                known.per_second += key.per_second;
                known.samples = known.samples.saturating_add(key.samples);
            }
            None => all.push(key),
        }
    }
    sort(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insight::{key::Keyspace, settings::KeyNames};

    fn key(name: &str, hash: u64) -> NotedKey {
        NotedKey::new(KeyNames::Full, &Keyspace { upstream: "main".into(), db: 0 }, hash, name.as_bytes())
    }

    fn at(millis: u64) -> Time {
        Time::from_nanos((millis + 1) * 1_000_000)
    }

    #[test]
    fn a_steady_rate_is_known_at_any_moment_and_fades_when_it_ends() {
        let mut hot = HotKeys::new(8, Rng::new(1));
        for millis in 0..60_000 {
            hot.add(1, "get", at(millis), || key("a", 1));
            if millis % 4 == 0 {
                hot.add(2, "set", at(millis), || key("b", 2));
            }
            if millis % 7_000 == 6_999 {
                let keys = hot.report(at(millis), 64);
                assert_eq!((keys[0].key.shown(), keys[0].command), ("a".to_owned(), "get"));
                let off = (keys[0].per_second / 64_000.0 - 1.0).abs();
                assert!(off < 0.02, "at {millis} ms: {}", keys[0].per_second);
                assert!((keys[1].per_second / 16_000.0 - 1.0).abs() < 0.02);
            }
        }
        let rate = |hot: &mut HotKeys, millis| hot.report(at(millis), 64).first().map(|key| key.per_second);
        assert!(rate(&mut hot, 80_000).expect("it is there") < 30_000.0);
        assert!(rate(&mut hot, 120_000).is_none_or(|rate| rate < 1_500.0));
        assert_eq!(rate(&mut hot, 1_000_000), None, "nothing is left after a long silence");
    }

    #[test]
    fn lists_of_workers_are_added_up() {
        let hot =
            |name: &str, hash, per_second| HotKey { key: key(name, hash), command: "get", per_second, samples: 1 };
        let merged = merge_hot_keys([vec![hot("a", 1, 5.0), hot("b", 2, 3.0)], vec![hot("b", 2, 4.0)]]);
        let told: Vec<_> = merged.iter().map(|key| (key.key.shown(), key.per_second, key.samples)).collect();
        assert_eq!(told, [("b".to_owned(), 7.0, 2), ("a".to_owned(), 5.0, 1)]);
    }
}
