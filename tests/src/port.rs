//! Free TCP ports for processes that need one by configuration.
//!
//! The ports come from below the range that the kernel hands to outgoing connections (32768 and up
//! on Linux), so no client socket can take one between the choice and the bind.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Mutex;

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port without a listener that this process has not received before.
///
/// # Panics
/// If the whole range is taken.
pub fn free() -> u16 {
    let mut taken = TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Processes that run at the same time start at different places.
    let offset = (std::process::id().wrapping_mul(1_009) % u32::from(COUNT)) as u16;
    for step in 0..COUNT {
        let port = FIRST + (offset + step) % COUNT;
        if taken.contains(&port) || TcpListener::bind(("127.0.0.1", port)).is_err() {
            continue;
        }
        taken.insert(port);
        return port;
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}
