//! Keys of passwords that were derived before: a storm of logins runs PBKDF2 once per user and not once per connection.

use std::collections::HashMap;

use crate::derivation::Derivation;
use crate::keys::ScramKeys;

/// A bounded cache of derived keys. The least recently used entry leaves when it is full.
///
/// An entry's name is an HMAC of password, salt and iterations: a changed password, or a verifier with another salt, is
/// another entry, and no password is kept.
#[derive(Debug)]
pub struct KeyCache {
    seed: [u8; 32],
    entries: HashMap<[u8; 32], Entry>,
    entries_max: usize,
    /// Uses so far: the age of an entry.
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    keys: ScramKeys,
    last_use: u64,
}

impl KeyCache {
    /// A cache for at most `entries_max` keys, at least one. `seed` is random.
    #[must_use]
    pub fn new(entries_max: usize, seed: [u8; 32]) -> KeyCache {
        KeyCache { seed, entries: HashMap::new(), entries_max: entries_max.max(1), uses: 0 }
    }

    /// The keys of a derivation that ran before.
    pub fn get(&mut self, derivation: &Derivation) -> Option<ScramKeys> {
        let name = self.name(derivation);
        self.uses += 1;
        let entry = self.entries.get_mut(&name)?;
        entry.last_use = self.uses;
        Some(entry.keys.clone())
    }

    /// Keeps the keys that `derivation` has made.
    pub fn insert(&mut self, derivation: &Derivation, keys: ScramKeys) {
        let name = self.name(derivation);
        if self.entries.len() >= self.entries_max && !self.entries.contains_key(&name) {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use).map(|(name, _)| *name);
            oldest.and_then(|name| self.entries.remove(&name));
        }
        self.uses += 1;
        self.entries.insert(name, Entry { keys, last_use: self.uses });
    }

    /// The keys of a derivation: from the cache, or by running it here and now.
    pub fn get_or_run(&mut self, derivation: &Derivation) -> ScramKeys {
        if let Some(keys) = self.get(derivation) {
            return keys;
        }
        let keys = derivation.run();
        self.insert(derivation, keys.clone());
        keys
    }

    /// Entries kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn name(&self, derivation: &Derivation) -> [u8; 32] {
        let mut name = [0; 32];
        name.copy_from_slice(derivation.identity(&self.seed).expose());
        name
    }
}

#[cfg(test)]
mod tests {
    use weir_base::secret::Secret;

    use super::*;
    use crate::derivation::Challenge;
    use crate::mechanism::Mechanism;

    fn derivation(password: &str, salt: &[u8], iterations: u32) -> Derivation {
        let challenge = Challenge { salt: salt.to_vec(), iterations };
        Derivation::new(Mechanism::ScramSha256, &Secret::from(password), challenge)
    }

    #[test]
    fn a_result_is_found_again_only_for_the_same_password_salt_and_iterations() {
        let mut cache = KeyCache::new(8, [7; 32]);
        let first = derivation("pencil", b"salt", 2);
        assert_eq!(cache.get(&first), None);
        let keys = cache.get_or_run(&first);
        assert_eq!(cache.get(&first), Some(keys));
        for other in
            [derivation("pencils", b"salt", 2), derivation("lpencil", b"sat", 2), derivation("pencil", b"salt", 3)]
        {
            assert_eq!(cache.get(&other), None, "{other:?}");
        }
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_full_cache_forgets_the_entry_that_was_used_least_recently() {
        let mut cache = KeyCache::new(2, [7; 32]);
        let [first, second, third] = ["a", "b", "c"].map(|password| derivation(password, b"salt", 1));
        cache.get_or_run(&first);
        cache.get_or_run(&second);
        assert!(cache.get(&first).is_some());
        cache.get_or_run(&third);
        assert_eq!(cache.len(), 2);
        assert!(cache.get(&first).is_some() && cache.get(&third).is_some());
        assert!(cache.get(&second).is_none(), "the second was used before the first");
    }

    #[test]
    fn a_cache_prints_no_key() {
        let mut cache = KeyCache::new(2, [7; 32]);
        let derivation = derivation("pencil", b"salt", 1);
        let keys = cache.get_or_run(&derivation);
        let text = format!("{keys:?} {derivation:?} {:?}", cache.entries.values());
        assert!(text.contains("[redacted]") && !text.contains("pencil"), "{text}");
    }
}
