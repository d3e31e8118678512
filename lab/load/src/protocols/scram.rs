//! Logins by SCRAM: the keys of a password, derived once for each core.

use std::cell::RefCell;

use weir_sasl::limits::NONCE_RANDOM_BYTES;
use weir_sasl::{Derivation, KeyCache, Nonce, ScramKeys};

/// Passwords and salts of one core whose keys are kept. Default 16: a scenario has one password, and each target a salt.
const KEYS_MAX: usize = 16;

thread_local! {
    static KEYS: RefCell<Option<KeyCache>> = const { RefCell::new(None) };
}

/// The keys of a login. PBKDF2 runs once per core, so that a storm of logins loads the target and not the generator.
pub(super) fn keys_of(derivation: &Derivation) -> ScramKeys {
    KEYS.with_borrow_mut(|cache| {
        let mut seed = [0; 32];
        // The seed hides names of entries in a dump of memory; without randomness `nonce` has refused the login before.
        let _ = aws_lc_rs::rand::fill(&mut seed);
        cache.get_or_insert_with(|| KeyCache::new(KEYS_MAX, seed)).get_or_run(derivation)
    })
}

/// Random text of a login.
///
/// # Errors
/// A sentence for people: there is no randomness.
pub(super) fn nonce() -> Result<Nonce, String> {
    let mut random = [0; NONCE_RANDOM_BYTES];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| "this machine has no randomness".to_owned())?;
    Ok(Nonce::from_random(&random))
}
