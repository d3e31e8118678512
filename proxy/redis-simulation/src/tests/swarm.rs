//! Random runs, each from a seed of its own.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{
    shards,
    swarm::{Seeded, run, run_moving},
};

/// Runs in each test. `WEIR_SEEDS` asks for more, `WEIR_SEED` for one.
const SEEDS: u64 = 256;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

fn each_seed(what: impl Fn(&mut Seeded)) {
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| what(&mut Seeded::new(seed)))) {
            eprintln!("run it again: WEIR_SEED={seed} cargo test -p weir-redis swarm");
            resume_unwind(panic);
        }
    }
}

#[test]
fn whatever_happens_each_client_gets_its_own_replies() {
    each_seed(run);
}

/// An upgrade at any moment at which a session may move: its client, and the model of what it must see, notice nothing.
#[test]
fn a_session_that_moves_to_another_process_is_the_same() {
    for every in [1, 2, 7] {
        let moments = std::cell::Cell::new(0);
        each_seed(|choice| moments.set(moments.get() + run_moving(choice, every)));
        assert!(moments.get() > 100, "only {} moments", moments.get());
    }
}

#[test]
fn whatever_happens_to_shards_replies_keep_their_order() {
    each_seed(|choice| shards::run(choice, false));
}

#[test]
fn whatever_a_cluster_does_nothing_overtakes() {
    each_seed(|choice| shards::run(choice, true));
}
