//! Ctrl-C and SIGTERM become an ordinary error, so that every guard on the way out ends its process and deletes its
//! files. A second Ctrl-C changes nothing: the way out takes well under a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Pause between two looks at the flag and at children. Long enough to cost nothing beside the measured load.
const LOOK: Duration = Duration::from_millis(20);

/// Begins to watch both signals. Fails if the system refuses a signal handler.
pub fn watch() -> Result<()> {
    let seen = SEEN.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(seen))?;
    }
    Ok(())
}

/// An error once a signal has arrived.
pub fn check() -> Result<()> {
    if SEEN.get().is_some_and(|seen| seen.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps, and ends early with an error when a signal arrives.
pub fn sleep(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

/// Asks again and again until it is so. Fails after `limit`, naming what was waited for.
pub fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + limit;
    while !is_so()? {
        if Instant::now() >= end {
            bail!("waited {:.1} s in vain for {what}", limit.as_secs_f64());
        }
        sleep(LOOK)?;
    }
    Ok(())
}
