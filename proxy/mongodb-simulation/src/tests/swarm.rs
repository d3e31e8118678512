//! Random runs, each from a seed of its own.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::{Counts, World};

/// Runs in each test. `WEIR_SEEDS` wants more, `WEIR_SEED` one.
const SEEDS: u64 = 256;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

fn each_seed(make: impl Fn(u64) -> World) -> Counts {
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    };
    let mut sum = Counts::default();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| make(seed).run(2_000))) {
            Ok(counts) => {
                sum.compared += counts.compared;
                sum.committed += counts.committed;
                sum.vanished += counts.vanished;
                sum.lost += counts.lost;
                sum.cleaned += counts.cleaned;
                sum.intrusions += counts.intrusions;
            }
            Err(panic) => {
                eprintln!("run it again: WEIR_SEED={seed} cargo test -p weir-mongodb-simulation swarm");
                resume_unwind(panic);
            }
        }
    }
    sum
}

#[test]
fn every_batch_is_of_the_clients_own_cursor_whatever_breaks() {
    let sum = each_seed(|seed| World::new(seed, 10, 1 + seed as u32 % 4, false));
    if number("WEIR_SEED").is_none() {
        let is_enough = sum.compared > 20_000 && sum.committed > 1_000 && sum.vanished > 500 && sum.lost > 500;
        assert!(is_enough && sum.cleaned > 1_000, "{sum:?}");
    }
}

#[test]
fn in_a_calm_world_nothing_fails() {
    let sum = each_seed(|seed| World::new(seed, 10, 1 + seed as u32 % 4, true));
    if number("WEIR_SEED").is_none() {
        assert!(sum.compared > 20_000 && sum.committed > 1_000 && sum.intrusions > 1_000 && sum.lost == 0, "{sum:?}");
    }
}
