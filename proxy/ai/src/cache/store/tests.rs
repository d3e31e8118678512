//! The cache by hand: its bound, its order, and requests that wait for each other.

use std::{
    pin::Pin,
    sync::atomic::AtomicUsize,
    task::{Context, Poll, Wake},
};

use super::*;
use crate::cache::{Recording, Source, entry::OVERHEAD_BYTES};

const FRESH: Freshness = Freshness { ttl: Duration::from_secs(10), age_max: None };

fn cache(bytes_max: u64, response_bytes_max: u64) -> Arc<ResponseCache> {
    ResponseCache::new(CacheSettings { bytes_max, response_bytes_max, followers_max: 3, ..CacheSettings::default() })
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn key(number: u8) -> Fingerprint {
    [number; 32]
}

fn source() -> Source {
    Source { provider: "u".into(), model: "m".into() }
}

/// Records a response of so many bytes. False: it was not stored.
fn record(lead: Lead, bytes: usize, now: Time) -> bool {
    let Some(mut recording) = Recording::begin(lead, b"application/json", false, None) else { return false };
    if recording.push(&vec![b'x'; bytes]) {
        recording.store(source(), 5, now);
        return true;
    }
    recording.release();
    false
}

fn lead(cache: &Arc<ResponseCache>, key: Fingerprint, now: Time) -> Lead {
    match cache.look(key, FRESH, now) {
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
    assert!(record(lead(&cache, key(1), at(0)), 100, at(1)));
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
        assert!(record(lead(&cache, key(number), at(0)), 500, at(0)));
        assert!(hit(&cache, key(0), at(0)).is_some(), "it is used all the time");
        assert!(cache.bytes() <= most, "{}", cache.bytes());
    }
    let kept = (0..100).filter(|number| hit(&cache, key(*number), at(0)).is_some()).count();
    assert!((5..=14).contains(&kept), "{kept}");
    assert_eq!(cache.evictions().capacity, 100 - kept as u64);
    // One that is larger than all of the cache is not stored, and leaves room.
    assert!(!record(lead(&cache, key(200), at(0)), 60_000, at(0)));
    assert!(cache.bytes() <= most);
}

#[test]
fn a_response_beyond_its_bound_is_not_stored_and_holds_nothing() {
    let cache = cache(1 << 20, 1_000);
    assert!(record(lead(&cache, key(1), at(0)), 1_000, at(0)));
    assert!(!record(lead(&cache, key(2), at(0)), 1_001, at(0)));
    let declared = Recording::begin(lead(&cache, key(3), at(0)), b"a/b", false, Some(1_001));
    assert!(declared.is_none() && hit(&cache, key(2), at(0)).is_none() && hit(&cache, key(1), at(0)).is_some());
    assert!(cache.bytes() < 1_000 + 2 * OVERHEAD_BYTES, "{}", cache.bytes());
}

#[test]
fn memory_that_is_being_replayed_counts() {
    let cache = cache(4 * (OVERHEAD_BYTES + 1_024), 1 << 10);
    assert!(record(lead(&cache, key(1), at(0)), 1_000, at(0)));
    let held = hit(&cache, key(1), at(0)).expect("stored");
    for number in 2..20 {
        record(lead(&cache, key(number), at(0)), 1_000, at(0));
    }
    assert!(hit(&cache, key(1), at(0)).is_some(), "its eviction would free nothing");
    assert!(cache.bytes() <= 4 * (OVERHEAD_BYTES + 1_024));
    drop(held);
}

/// Counts wakes.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One that waits, and its wakes.
struct Waiting(Follower, Arc<WakeCount>);

impl Waiting {
    fn begin(cache: &Arc<ResponseCache>, key: Fingerprint) -> Self {
        let Turn::Follow(follower) = cache.look(key, FRESH, at(0)) else { panic!("nothing is under way") };
        let mut waiting = Self(follower, Arc::default());
        assert!(waiting.turn().is_none());
        waiting
    }

    fn turn(&mut self) -> Option<Turn> {
        match Pin::new(&mut self.0).poll(&mut Context::from_waker(&self.1.clone().into())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn wakes(&self) -> usize {
        self.1.0.load(Ordering::Relaxed)
    }
}

#[test]
fn those_that_wait_get_the_response_of_the_first() {
    let cache = cache(1 << 20, 1 << 10);
    let first = lead(&cache, key(1), at(0));
    let mut waiting = [(); 3].map(|()| Waiting::begin(&cache, key(1)));
    assert!(matches!(cache.look(key(1), FRESH, at(0)), Turn::Pass), "a fourth one goes on");
    assert!(record(first, 10, at(0)));
    for one in &mut waiting {
        assert_eq!(one.wakes(), 1);
        assert!(matches!(one.turn(), Some(Turn::Hit(_))));
    }
}

#[test]
fn behind_a_failure_one_goes_on_and_not_all() {
    let cache = cache(1 << 20, 1 << 10);
    let first = lead(&cache, key(1), at(0));
    let [mut second, third, mut fourth] = [(); 3].map(|()| Waiting::begin(&cache, key(1)));
    drop(first);
    assert_eq!((second.wakes(), third.wakes(), fourth.wakes()), (1, 0, 0));
    let Some(Turn::Lead(lead)) = second.turn() else { panic!("it leads") };
    assert!(fourth.turn().is_none());
    drop(second);
    // The next one has left, and one that is told to lead leaves before it does.
    drop(third);
    drop(lead);
    assert_eq!(fourth.wakes(), 1);
    let mut fifth = Waiting::begin(&cache, key(1));
    drop(fourth);
    assert_eq!(fifth.wakes(), 1);
    let Some(Turn::Lead(lead)) = fifth.turn() else { panic!("it leads") };
    drop(lead);
    assert!(cache.shard(&key(1)).flights.is_empty(), "nothing waits");
}

#[test]
fn behind_a_response_that_cannot_be_stored_all_go_on() {
    let cache = cache(1 << 20, 100);
    let first = lead(&cache, key(1), at(0));
    let mut waiting = [(); 3].map(|()| Waiting::begin(&cache, key(1)));
    assert!(!record(first, 1_000, at(0)));
    for one in &mut waiting {
        assert_eq!(one.wakes(), 1);
        assert!(matches!(one.turn(), Some(Turn::Pass)));
    }
    assert!(cache.shard(&key(1)).flights.is_empty());
}

#[test]
fn a_request_that_refreshes_waits_for_nothing_and_replaces_the_response() {
    let cache = cache(1 << 20, 1 << 10);
    assert!(record(lead(&cache, key(1), at(0)), 10, at(0)));
    assert!(record(cache.lead_alone(key(1)), 20, at(5)));
    assert_eq!(hit(&cache, key(1), at(14)).map(|entry| entry.body().len()), Some(20));
    drop(cache.lead_alone(key(1)));
    assert!(hit(&cache, key(1), at(14)).is_some(), "a failure takes nothing away");
}

#[test]
fn equal_requests_of_many_threads_have_one_leader_at_a_time() {
    let cache = cache(1 << 20, 1 << 10);
    let (leading, stored) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..500_u32 {
                    let key = [(round % 50) as u8; 32];
                    let Turn::Lead(lead) = cache.look(key, FRESH, at(0)) else { continue };
                    if key[0] == 0 {
                        assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "a second leader");
                        leading.fetch_sub(1, Ordering::SeqCst);
                    }
                    if round.is_multiple_of(3) {
                        drop(lead);
                    } else {
                        stored.fetch_add(usize::from(record(lead, 8, at(0))), Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let stored = stored.load(Ordering::SeqCst);
    assert_eq!(stored, 50, "each once: none is stored while it is there");
}
