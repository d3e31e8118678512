//! What the commands do. One file per group of Redis' own documentation.

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

/// `now` plus an expiry that a client gave; `None` if it overflows Redis' own arithmetic.
fn after(now: Time, value: i64, millis_per_unit: i64) -> Option<Time> {
    let millis = value.checked_mul(millis_per_unit)?;
    let millis = u64::try_from(millis).ok()?;
    Some(now.saturating_add(std::time::Duration::from_millis(millis)))
}
