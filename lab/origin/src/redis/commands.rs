//! Implementations of the commands. One file per group of Redis' own documentation.

use std::time::Duration;

use weir_base::Time;

use super::{
    errors::{NOT_INTEGER, Refusal},
    number,
};

pub mod clients;
pub mod counters;
pub mod expiry;
pub mod fixed;
pub mod hashes;
pub mod keys;
pub mod lists;
pub mod pubsub;
pub mod server;
pub mod sets;
pub mod strings;
pub mod transactions;

fn integer(text: &[u8]) -> Result<i64, Refusal> {
    number::parse(text).ok_or(NOT_INTEGER)
}

/// Redis adds an expiry to the wall clock's milliseconds and refuses what overflows; this is a wall clock of 2039.
const WALL_CLOCK_MILLIS: i64 = 1 << 41;

/// `now` plus an expiry that a client gave, or `now` for one that has passed; `None` for one that Redis refuses.
fn after(now: Time, value: i64, millis_per_unit: i64) -> Option<Time> {
    let millis = value.checked_mul(millis_per_unit)?;
    millis.checked_add(WALL_CLOCK_MILLIS)?;
    Some(now.saturating_add(Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
}
