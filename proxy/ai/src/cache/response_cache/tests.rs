//! The cache by hand: its bound, its order, its ages.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::cache::{Recording, Source, entry::OVERHEAD_BYTES};

const FRESH: Freshness = Freshness { ttl: Duration::from_secs(10), age_max: None };

fn cache(bytes_max: u64, response_bytes_max: u64) -> Arc<ResponseCache> {
    ResponseCache::new(CacheSettings { bytes_max, response_bytes_max, ..CacheSettings::default() })
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn key(number: u8) -> Fingerprint {
    [number; 32]
}

/// Records a response of so many bytes. False: it was not stored.
fn record(lead: Lead, bytes: usize, now: Time) -> bool {
    let source = Source { provider: "u".into(), model: "m".into() };
    let Some(mut recording) = Recording::begin(lead, b"application/json", false, None) else { return false };
    if recording.push(&vec![b'x'; bytes]) {
        recording.store(source, 5, now);
        return true;
    }
    recording.release();
    false
}

fn lead(cache: &Arc<ResponseCache>, key: Fingerprint) -> Lead {
    match cache.look(key, FRESH, at(0)) {
        Turn::Lead(lead) => lead,
        _ => panic!("no lead"),
    }
}

fn hit(cache: &Arc<ResponseCache>, key: Fingerprint, now: Time) -> Option<Arc<Entry>> {
    match cache.look(key, FRESH, now) {
        Turn::Hit(entry) => Some(entry),
        _ => None,
    }
}

#[test]
fn a_response_serves_until_its_time_is_over() {
    let cache = cache(1 << 20, 1 << 10);
    assert!(record(lead(&cache, key(1)), 100, at(1)));
    let entry = hit(&cache, key(1), at(10)).expect("it is 9 s old");
    assert_eq!((entry.body().len(), entry.tokens, entry.age(at(10))), (100, 5, Duration::from_secs(9)));
    assert!(hit(&cache, key(2), at(10)).is_none());
    let young = Freshness { age_max: Some(Duration::from_secs(3)), ..FRESH };
    assert!(matches!(cache.look(key(1), young, at(10)), Turn::Lead(_)), "the client wants a younger one");
    assert!(hit(&cache, key(1), at(10)).is_some(), "it stays for others");
    drop(entry);
    assert!(hit(&cache, key(1), at(11)).is_none());
    assert_eq!((cache.evictions(), cache.bytes()), (Evictions { capacity: 0, expired: 1 }, 0));
}

#[test]
fn the_bound_holds_and_the_longest_unused_go_first() {
    let most = 10 * (OVERHEAD_BYTES + 1_000);
    let cache = cache(most, 1 << 16);
    for number in 0..100 {
        assert!(record(lead(&cache, key(number)), 500, at(0)));
        assert!(cache.bytes() <= most, "{}", cache.bytes());
    }
    let kept = (0..100).filter(|number| hit(&cache, key(*number), at(0)).is_some()).count();
    assert!((5..=14).contains(&kept), "{kept}");
    assert!(hit(&cache, key(99), at(0)).is_some(), "the last one is there");
    assert_eq!(cache.evictions().capacity, 100 - kept as u64);
    // One that is larger than all of the cache is not stored, and takes nothing away.
    assert!(!record(lead(&cache, key(200)), 60_000, at(0)));
    assert!(cache.bytes() <= most && hit(&cache, key(99), at(0)).is_some());
}

#[test]
fn in_one_part_a_response_that_is_used_stays() {
    let cache = cache(3 * (OVERHEAD_BYTES + 4_200), 1 << 16);
    // The same first byte: the same part.
    let near = |number: u8| {
        let mut near = key(1);
        near[1] = number;
        near
    };
    for number in 0..20 {
        assert!(record(lead(&cache, near(number)), 4_000, at(0)));
        assert!(hit(&cache, near(0), at(0)).is_some(), "{number}");
    }
    assert!(hit(&cache, near(1), at(0)).is_none());
}

#[test]
fn a_response_beyond_its_bound_is_not_stored_and_holds_nothing() {
    let cache = cache(1 << 20, 1_000);
    assert!(record(lead(&cache, key(1)), 1_000, at(0)));
    assert!(!record(lead(&cache, key(2)), 1_001, at(0)));
    let declared = Recording::begin(lead(&cache, key(3)), b"a/b", false, Some(1_001));
    assert!(declared.is_none() && hit(&cache, key(2), at(0)).is_none() && hit(&cache, key(1), at(0)).is_some());
    assert!(cache.bytes() < 1_000 + 2 * OVERHEAD_BYTES, "{}", cache.bytes());
}

#[test]
fn memory_that_is_being_replayed_counts() {
    let most = 4 * (OVERHEAD_BYTES + 1_024);
    let cache = cache(most, 1 << 10);
    assert!(record(lead(&cache, key(1)), 1_000, at(0)));
    let held = hit(&cache, key(1), at(0)).expect("stored");
    for number in 2..20 {
        record(lead(&cache, key(number)), 1_000, at(0));
    }
    assert!(hit(&cache, key(1), at(0)).is_some(), "its eviction would free nothing");
    assert!(cache.bytes() <= most);
    drop(held);
}

#[test]
fn a_request_that_refreshes_replaces_the_response() {
    let cache = cache(1 << 20, 1 << 10);
    assert!(record(lead(&cache, key(1)), 10, at(0)));
    assert!(record(cache.lead_alone(key(1)), 20, at(5)));
    assert_eq!(hit(&cache, key(1), at(14)).map(|entry| entry.body().len()), Some(20));
    drop(cache.lead_alone(key(1)));
    assert!(hit(&cache, key(1), at(14)).is_some(), "a failure takes nothing away");
}

#[test]
fn of_many_threads_one_stores_each_response() {
    let (cache, stored) = (cache(1 << 20, 1 << 10), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500_u32 {
                    let Turn::Lead(lead) = cache.look(key((round % 50) as u8), FRESH, at(0)) else { continue };
                    if !round.is_multiple_of(3) {
                        stored.fetch_add(usize::from(record(lead, 8, at(0))), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert_eq!(stored.load(Ordering::SeqCst), 50, "none is stored again while it is there");
}
