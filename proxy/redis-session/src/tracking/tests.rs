//! Many clients and writers, a server, and a tracking lane: reads, changes and invalidations in orders drawn from a seed, and
//! in each step the question whether a client holds what it should have forgotten.

mod play;
mod surroundings;

use self::play::{Play, TrackingMode};

/// Runs plays; one that fails names its seed.
fn plays(seeds: std::ops::Range<u64>, terms: &[TrackingMode]) {
    for seed in seeds {
        let mut play = Play::new(seed, terms);
        for _ in 0..400 {
            play.step();
        }
        play.end();
    }
}

#[test]
fn no_client_keeps_an_invalidated_value() {
    plays(0..600, &[TrackingMode::Read, TrackingMode::Read, TrackingMode::Bcast, TrackingMode::OptIn]);
}

#[test]
fn nor_do_clients_with_noloop() {
    plays(0..600, &[TrackingMode::NoLoop, TrackingMode::NoLoopBcast, TrackingMode::NoLoop, TrackingMode::Read]);
}

#[test]
fn nor_do_clients_that_redirect() {
    plays(0..600, &[TrackingMode::Redirect, TrackingMode::Redirect, TrackingMode::Read]);
}

#[test]
fn the_reply_cache_gives_nothing_older_than_the_known_version() {
    plays(0..800, &[TrackingMode::Cached, TrackingMode::Cached, TrackingMode::Cached, TrackingMode::Read]);
}

#[test]
fn the_reply_cache_serves_replies_that_have_been_read() {
    let mut play = Play::new(2, &[TrackingMode::Cached, TrackingMode::Cached]);
    play.calm();
    play.end();
    for _ in 0..10 {
        play.reads_of_all();
        play.end();
    }
    assert_eq!(play.hits(), (19, 1), "one read, and all the others answered from it");
}

#[test]
fn without_losses_everything_is_kept_and_a_change_is_reported_once() {
    let mut play = Play::new(
        7,
        &[
            TrackingMode::Read,
            TrackingMode::Bcast,
            TrackingMode::OptIn,
            TrackingMode::NoLoop,
            TrackingMode::NoLoopBcast,
        ],
    );
    play.calm();
    for _ in 0..2_000 {
        play.step();
    }
    play.end();
    play.rest();
}
