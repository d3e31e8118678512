//! How long the tests under load go on: a few seconds in the lanes, as long as `WEIR_SOAK_SECONDS` says by hand.

use std::time::Duration;

/// `WEIR_SOAK_SECONDS`, if it is set.
///
/// # Panics
/// If it is no whole number of seconds.
pub fn requested_duration() -> Option<Duration> {
    let named = std::env::var("WEIR_SOAK_SECONDS").ok()?;
    Some(Duration::from_secs(named.parse().expect("WEIR_SOAK_SECONDS is a number")))
}

/// Whether a test has done enough for the lanes, and has gone on for as long as [`requested_duration`] says.
///
/// # Panics
/// As [`requested_duration`].
pub fn is_over(has_done_enough: bool, elapsed: Duration) -> bool {
    has_done_enough && requested_duration().is_none_or(|wanted| elapsed >= wanted)
}
