//! The cost of one client for another: the isolation cases S1 to S12 with every protocol (`weir_tests::isolation`). Each case has
//! a short form, which runs in CI. `WEIR_ISOLATION_SECONDS=4` plays all rates, numbers and distances, also without a gateway,
//! and leaves the whole table in `target/isolation.md`. TESTING.md has the list of the cases.
#![forbid(unsafe_code)]

mod config;
mod distance;
mod leaving;
mod measure;
mod parts;
mod reading;
mod reconnects;
mod record;
mod refusals;
mod restarts;
mod sizes;
mod uploads;
