//! The error bound of rates that workers share, with threads.

use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use weir_base::{Rng, Time};
use weir_spend::rate::{Bucket, Pace};

const THREADS: u64 = 4;
const RUN: Duration = Duration::from_millis(300);

/// How much older than the clock a worker's time may be: a long turn.
const STALE: Duration = Duration::from_millis(5);

/// Threads take as fast as they can, each with a clock that is late by up to [`STALE`]: the sum of what they took, the largest
/// take, and the time from the first to the last.
fn race(take: impl Fn(u64, Time) -> bool + Sync, largest: u64) -> (u64, Duration) {
    let start = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        let racer = |seed: u64| {
            let (take, start) = (&take, &start);
            move || {
                let mut rng = Rng::new(seed);
                start.wait();
                let (begin, mut taken) = (Instant::now(), 0);
                while begin.elapsed() < RUN {
                    let late = rng.below(STALE.as_nanos() as u64);
                    let now = Time::from_nanos(Time::now().as_nanos().saturating_sub(late));
                    let units = 1 + rng.below(largest);
                    taken += if take(units, now) { units } else { 0 };
                }
                (taken, begin, Instant::now())
            }
        };
        let racers: Vec<_> = (0..THREADS).map(|seed| scope.spawn(racer(seed))).collect();
        let ends: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        let first = ends.iter().map(|(_, begin, _)| *begin).min().unwrap();
        let last = ends.iter().map(|(.., end)| *end).max().unwrap();
        (ends.iter().map(|(taken, ..)| taken).sum(), last - first)
    })
}

/// Earned in a span and in the lateness of a clock.
fn earned(pace: Pace, span: Duration) -> u64 {
    ((span + STALE).as_secs_f64() * pace.per_minute as f64 / 60.0).ceil() as u64
}

#[test]
fn all_threads_together_take_the_burst_and_what_is_earned_and_no_more() {
    let (bucket, pace) = (Bucket::default(), Pace::per_minute(60_000).with_burst(50));
    // The first reading of the clock is its beginning: a bucket that is never late.
    thread::sleep(STALE);
    let (taken, span) = race(|_, now| bucket.take_request(pace, now).is_ok(), 1);
    assert!(taken <= 50 + earned(pace, span), "{taken} in {span:?}");
    // Whatever the threads did, the limit was used: half of it at least on the busiest machine.
    assert!(taken >= 50 + earned(pace, span) / 2, "{taken} in {span:?}");
}

#[test]
fn tokens_exceed_the_bound_by_one_request_at_most() {
    const LARGEST: u64 = 400;
    let (bucket, pace) = (Bucket::default(), Pace::per_minute(600_000).with_burst(1_000));
    thread::sleep(STALE);
    let (taken, span) = race(|tokens, now| bucket.take_tokens(pace, tokens, now).is_ok(), LARGEST);
    assert!(taken <= 1_000 + earned(pace, span) + LARGEST, "{taken} in {span:?}");
    assert!(taken >= 1_000, "{taken} in {span:?}");
}

#[test]
fn corrections_of_many_threads_are_all_counted() {
    let (bucket, pace) = (Bucket::default(), Pace::per_minute(1_000_000));
    let now = Time::from_nanos(1);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    let charge = bucket.take_tokens(pace, 200, now).unwrap();
                    bucket.correct(pace, charge, 50, now);
                }
            });
        }
    });
    let left = bucket.look_tokens(pace, now).unwrap().remaining;
    assert_eq!(left, 1_000_000 - THREADS * 1_000 * 50);
}
