//! Random runs, each from a seed of its own.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use weir_postgres_session::{PoolMode, SessionSettings};

use crate::World;

/// Runs in each test. `WEIR_SEEDS` asks for more, `WEIR_SEED` for one.
const SEEDS: u64 = 256;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// Counts of all runs together: a run that compares nothing proves nothing.
#[derive(Debug, Default)]
struct Sum {
    checked_in: u64,
    vanished: u64,
    compared: u64,
    listening: u64,
}

fn each_seed(make: impl Fn(u64) -> World) -> Sum {
    let seeds = match number("WEIR_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_SEEDS").unwrap_or(SEEDS),
    };
    let mut sum = Sum::default();
    for seed in seeds {
        let run = || {
            let mut world = make(seed);
            world.run(1_500);
            world
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(world) => {
                sum.checked_in += world.checked_in;
                sum.vanished += world.vanished;
                sum.compared += world.compared;
                sum.listening += world.listening;
            }
            Err(panic) => {
                eprintln!("run it again: WEIR_SEED={seed} cargo test -p weir-postgres-simulation swarm");
                resume_unwind(panic);
            }
        }
    }
    sum
}

#[test]
fn whatever_happens_each_client_gets_what_a_server_of_its_own_says() {
    let sum = each_seed(|seed| World::new(seed, 10, 2 + seed as usize % 3, SessionSettings::default()));
    if number("WEIR_SEED").is_none() {
        assert!(
            sum.checked_in > 1_000 && sum.vanished > 100 && sum.compared > 1_000_000 && sum.listening > 20,
            "{sum:?}"
        );
    }
}

/// Servers with room for two statements: each Parse may evict one.
#[test]
fn p13_few_slots_for_statements_change_nothing() {
    let settings = SessionSettings { server_statements_max: 2, ..SessionSettings::default() };
    each_seed(|seed| World::new(seed, 8, 3, settings.clone()));
}

/// PgBouncer's reset takes the gateway's statements along.
#[test]
fn a_reset_of_the_configuration_changes_nothing_for_clients() {
    each_seed(|seed| World::new(seed, 8, 3, SessionSettings::default()).with_reset_query(b"DISCARD ALL"));
}

/// It leaves roles, temporary tables and prepared statements: the gateway's own reset follows.
#[test]
fn a_reset_of_the_configuration_that_leaves_something_is_completed() {
    each_seed(|seed| World::new(seed, 8, 3, SessionSettings::default()).with_reset_query(b"RESET ALL"));
}

#[test]
fn in_session_pooling_a_client_has_its_server_to_itself() {
    let settings = SessionSettings { pool_mode: PoolMode::Session, ..SessionSettings::default() };
    // A client that waits for a server waits until another vanishes.
    each_seed(|seed| World::new(seed, 4, 4, settings.clone()));
}
