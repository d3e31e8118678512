//! The seed of a randomised test.

use weir_base::rng::Rng;

/// From `WEIR_TEST_SEED`, else from the clock; printed, so that a failure can be repeated.
///
/// # Panics
/// If the variable is no number.
pub fn seeded() -> Rng {
    let seed = match std::env::var("WEIR_TEST_SEED") {
        Ok(text) => text.parse().expect("WEIR_TEST_SEED is a number"),
        Err(_) => {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
        }
    };
    eprintln!("WEIR_TEST_SEED={seed}");
    Rng::new(seed)
}
