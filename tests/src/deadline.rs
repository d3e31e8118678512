//! Waiting for a condition, always bounded.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// The time that a local process needs to answer even on a loaded two-core machine.
pub const WAIT: Duration = Duration::from_secs(15);

/// Between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(2);

/// Looks until `condition` gives a value.
///
/// # Panics
/// After `limit`, naming `what` was waited for.
pub fn until<T>(what: impl Display, limit: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < limit, "waited {} ms for: {what}", limit.as_millis());
        thread::sleep(PAUSE);
    }
}

/// [`until`] for a condition without a value.
///
/// # Panics
/// After [`WAIT`].
pub fn until_true(what: impl Display, mut condition: impl FnMut() -> bool) {
    until(what, WAIT, || condition().then_some(()));
}
