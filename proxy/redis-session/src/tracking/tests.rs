//! Many clients and writers, a server, and a tracking lane: reads, changes and invalidations in orders drawn from a seed, and
//! in each step the question whether a client holds what it should have forgotten.

mod play;
mod surroundings;

use self::play::{Play, Terms};

/// Runs plays; one that fails names its seed.
fn plays(seeds: std::ops::Range<u64>, terms: &[Terms]) {
    for seed in seeds {
        let mut play = Play::new(seed, terms);
        for _ in 0..400 {
            play.step();
        }
        play.end();
    }
}

#[test]
fn nobody_keeps_what_it_should_have_forgotten() {
    plays(0..600, &[Terms::Read, Terms::Read, Terms::Bcast, Terms::OptIn]);
}

#[test]
fn nor_do_those_who_do_not_want_to_hear_of_themselves() {
    plays(0..600, &[Terms::NoLoop, Terms::NoLoopBcast, Terms::NoLoop, Terms::Read]);
}

#[test]
fn nor_those_in_whose_place_another_client_is_told() {
    plays(0..600, &[Terms::Redirect, Terms::Redirect, Terms::Read]);
}

#[test]
fn the_reply_cache_gives_nothing_older_than_what_is_known() {
    plays(0..800, &[Terms::Cached, Terms::Cached, Terms::Cached, Terms::Read]);
}

#[test]
fn the_reply_cache_answers_what_has_been_read() {
    let mut play = Play::new(2, &[Terms::Cached, Terms::Cached]);
    play.calm();
    play.end();
    for _ in 0..10 {
        play.reads_of_all();
        play.end();
    }
    assert_eq!(play.hits(), (19, 1), "one read, and all the others answered from it");
}

#[test]
fn in_peace_everything_is_kept_and_a_change_is_told_once() {
    let mut play = Play::new(7, &[Terms::Read, Terms::Bcast, Terms::OptIn, Terms::NoLoop, Terms::NoLoopBcast]);
    play.calm();
    for _ in 0..2_000 {
        play.step();
    }
    play.end();
    play.rest();
}
