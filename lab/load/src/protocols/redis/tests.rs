//! Plans against a store in memory that executes them.

use std::collections::HashMap;

use proptest::prelude::*;
use weir_resp::{RequestLimits, RequestParser, Step};

use weir_resp::encode;

use super::preload::Preload;
use crate::protocols::Preload as _;
use crate::requests::{ARENA_BYTES_MAX, Integrity, Requests};
use crate::scenario::{self, Scenario};
use crate::shard::Shard;
use crate::values::{Generation, Values};

const MIXED: &str = r#"
    name = "mixed"
    protocol = "redis"
    [keys]
    count = 50
    distribution = "zipf"
    exponent = 1.0
    [[payload]]
    size = 100
    [[payload]]
    size = 8
    [[command]]
    name = "GET"
    weight = 4
    [[command]]
    name = "SET"
    weight = 2
    [[command]]
    name = "MGET"
    keys = 3
    [[command]]
    name = "INCR"
    [[command]]
    words = ["HSET", "{key}", "field", "{value}"]
    [[phase]]
    rate = 1000
    duration = "1s"
"#;

fn scenario(text: &str) -> Scenario {
    scenario::parse("test.toml", text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn words(request: &[u8]) -> Vec<Vec<u8>> {
    let mut parser = RequestParser::new();
    let step = parser.parse(request, &RequestLimits::default()).expect("a valid request");
    assert_eq!(step, Step::Command { len: request.len(), inline: false });
    parser.args(request).map(<[u8]>::to_vec).collect()
}

/// A server with a map.
#[derive(Default)]
struct Store {
    strings: HashMap<Vec<u8>, Vec<u8>>,
    counters: HashMap<Vec<u8>, i64>,
}

impl Store {
    fn preloaded(scenario: &Scenario) -> Self {
        let mut store = Self::default();
        let mut preload = Preload::new(scenario, Shard::ONLY);
        let mut request = Vec::new();
        while preload.write_next(&mut request) {
            assert_eq!(store.execute(&request), b"+OK\r\n");
            request.clear();
        }
        store
    }

    fn execute(&mut self, request: &[u8]) -> Vec<u8> {
        let words = words(request);
        let mut out = Vec::new();
        match &words[0][..] {
            b"GET" => self.read(&words[1], &mut out),
            b"MGET" => {
                encode::array(&mut out, words.len() - 1);
                words[1..].iter().for_each(|key| self.read(key, &mut out));
            }
            b"SET" => {
                self.strings.insert(words[1].clone(), words[2].clone());
                encode::simple(&mut out, "OK");
            }
            b"INCR" => {
                assert!(!self.strings.contains_key(&words[1]), "a counter with the name of a string");
                let count = self.counters.entry(words[1].clone()).or_default();
                *count += 1;
                encode::integer(&mut out, *count);
            }
            b"HSET" => {
                assert!(!self.strings.contains_key(&words[1]) && !self.counters.contains_key(&words[1]));
                encode::integer(&mut out, 1);
            }
            other => panic!("{other:?}"),
        }
        out
    }

    fn read(&self, key: &[u8], out: &mut Vec<u8>) {
        match self.strings.get(key) {
            Some(value) => encode::bulk(out, value),
            None => encode::null_bulk(out, weir_resp::Version::Resp2),
        }
    }
}

fn tally(requests: &Requests, store: &mut Store, rounds: u64) -> HashMap<Option<Integrity>, u64> {
    let mut found = HashMap::new();
    for index in 0..requests.len() as u64 * rounds {
        let reply = store.execute(requests.bytes(index));
        *found.entry(requests.check(index, &reply)).or_default() += 1;
    }
    found
}

#[test]
fn a_server_that_follows_the_plan_passes_in_every_round() {
    for preload in [true, false] {
        let text = MIXED.replace("count = 50", &format!("count = 50\n preload = {preload}"));
        let scenario = scenario(&text);
        let requests = Requests::build(&scenario, Shard::ONLY, 3_000);
        assert_eq!(requests.len(), 3_000);
        let found = tally(&requests, &mut Store::preloaded(&scenario), 3);
        let kinds: Vec<_> = found.keys().copied().collect();
        assert!(kinds.iter().all(|kind| matches!(kind, None | Some(Integrity::Ok))), "{preload}: {found:?}");
        assert!(found[&None].abs_diff(1_000) < 200, "raw words: {found:?}");
    }
}

#[test]
fn weights_give_the_mix() {
    let requests = Requests::build(&scenario(MIXED), Shard::ONLY, 9_000);
    let mut counts = HashMap::new();
    for index in 0..9_000 {
        *counts.entry(words(requests.bytes(index)).remove(0)).or_insert(0u32) += 1;
    }
    for (word, weight) in [("GET", 4), ("SET", 2), ("MGET", 1), ("INCR", 1), ("HSET", 1)] {
        let count = counts[word.as_bytes()];
        assert!(count.abs_diff(weight * 1_000) < 250, "{word}: {count}");
    }
}

#[test]
fn a_plan_repeats_and_shards_differ() {
    let scenario = scenario(&MIXED.replace("name = \"mixed\"", "name = \"mixed\"\n shards = 2"));
    let [one, again, other] = [0, 0, 1].map(|at| Requests::build(&scenario, Shard::new(at, 2).unwrap(), 500));
    let all = |requests: &Requests| -> Vec<Vec<u8>> { (0..500).map(|at| requests.bytes(at).to_vec()).collect() };
    assert_eq!(all(&one), all(&again));
    assert_ne!(all(&one), all(&other));
}

#[test]
fn a_stale_value_of_a_contested_key_is_a_race_suspect() {
    let scenario = scenario(MIXED);
    let requests = Requests::build(&scenario, Shard::ONLY, 3_000);
    // A server that never stores anything answers with preloaded values: whole, but older than planned.
    let stale = Store::preloaded(&scenario);
    let mut suspects = 0;
    for index in 0..3_000 {
        if words(requests.bytes(index))[0] == b"GET" {
            let mut store = Store { strings: stale.strings.clone(), ..Store::default() };
            let found = requests.check(index, &store.execute(requests.bytes(index)));
            assert!(matches!(found, Some(Integrity::Ok | Integrity::RaceSuspect)), "{found:?}");
            suspects += u32::from(found == Some(Integrity::RaceSuspect));
        }
    }
    assert!(suspects > 300, "{suspects}");
}

const READ_ONLY: &str = r#"
    name = "reads"
    protocol = "redis"
    keys.count = 100
    payload.size = "64B"
    command = [{ name = "GET" }]
    phase = [{ rate = 1, duration = "10s" }]
"#;

#[test]
fn nothing_but_the_planned_value_passes_for_a_key_that_nobody_writes() {
    let scenario = scenario(READ_ONLY);
    let requests = Requests::build(&scenario, Shard::new(1, 2).unwrap(), 100);
    let mut store = Store::preloaded(&scenario);
    for index in 0..200 {
        let good = store.execute(requests.bytes(index));
        assert_eq!(requests.check(index, &good), Some(Integrity::Ok));
        assert_eq!(requests.check(index, b"$-1\r\n"), Some(Integrity::Missing));
        assert_eq!(requests.check(index, b"_\r\n"), Some(Integrity::Missing));
        let next = store.execute(requests.bytes(index + 1));
        if requests.bytes(index) != requests.bytes(index + 1) {
            assert_eq!(requests.check(index, &next), Some(Integrity::Mismatch), "a mix-up of two replies");
        }
        let name = String::from_utf8(words(requests.bytes(index)).remove(1)).expect("a name");
        let key = name.trim_start_matches("key:").parse().expect("its number");
        let (mut written, mut value) = (Vec::new(), Vec::new());
        Values::new(scenario.seed, &scenario.payload).write(key, Generation::of_set(Shard::ONLY, 1), &mut value);
        encode::bulk(&mut written, &value);
        assert_eq!(requests.check(index, &written), Some(Integrity::Mismatch), "nobody planned this SET");
        for wrong in [&b"+OK\r\n"[..], b":1\r\n", b"", b"$3\r\nabc\r\n", b"-ERR x\r\n", b"*1\r\n$-1\r\n"] {
            assert_eq!(requests.check(index, wrong), Some(Integrity::Mismatch));
        }
        assert_eq!(requests.check(index, &[&good[..], b"x"].concat()), Some(Integrity::Mismatch));
    }
}

#[test]
fn a_scenario_that_does_not_check_says_so() {
    let scenario = scenario(&READ_ONLY.replace("name = \"reads\"", "name = \"reads\"\n integrity = false"));
    assert_eq!(Requests::build(&scenario, Shard::ONLY, 1).check(0, b"+anything\r\n"), None);
}

#[test]
fn shards_preload_each_key_once() {
    let scenario = scenario(READ_ONLY);
    let mut seen = HashMap::new();
    for shard in Shard::all(3) {
        let mut preload = Preload::new(&scenario, shard);
        let mut left = preload.left();
        let mut request = Vec::new();
        while preload.write_next(&mut request) {
            *seen.entry(words(&request).remove(1)).or_insert(0) += 1;
            request.clear();
            left -= 1;
            assert_eq!(preload.left(), left);
        }
        assert_eq!(left, 0);
    }
    assert!(seen.len() == 100 && seen.values().all(|count| *count == 1));
}

#[test]
fn large_values_end_the_plan_at_the_arena_limit() {
    let text = READ_ONLY.replace("64B", "1MiB").replace("GET", "SET");
    let requests = Requests::build(&scenario(&text), Shard::ONLY, u64::MAX);
    assert!(requests.round_bytes() <= ARENA_BYTES_MAX);
    assert_eq!(requests.len(), 127, "each SET of 1 MiB and its header");
    assert_eq!(requests.check(0, b"+OK\r\n"), Some(Integrity::Ok));
}

proptest! {
    /// Whatever the system under test sends, the check answers.
    #[test]
    fn no_reply_harms_the_check(reply in proptest::collection::vec(any::<u8>(), 0..60), index in 0u64..200) {
        let requests = Requests::build(&scenario(MIXED), Shard::ONLY, 100);
        let _ = requests.check(index, &reply);
        let _ = requests.check(index, &[b"*3\r\n", &reply[..]].concat());
    }
}
