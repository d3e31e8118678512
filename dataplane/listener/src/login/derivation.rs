//! Keys from passwords: a millisecond of work, which another thread does once per password.

use std::cell::RefCell;

use weir_sasl::{Derivation, KeyCache, ScramKeys};

/// The keys of a derivation: from the cache, or by another thread.
pub async fn derive(derivation: Derivation, cache: &RefCell<KeyCache>) -> ScramKeys {
    if let Some(keys) = cache.borrow_mut().get(&derivation) {
        return keys;
    }
    let work = derivation.clone();
    let keys = match weir_engine::run_blocking(move || work.run()).await {
        Ok(keys) => keys,
        Err(_) => derivation.run(),
    };
    cache.borrow_mut().insert(&derivation, keys.clone());
    keys
}
