//! Virtual keys: clients send them in place of the keys of providers.
//!
//! | file | concept |
//! |---|---|
//! | [`secret`] | the text of a key, its hash, its anonymous form |
//! | [`ring`] | all keys of a configuration as an immutable snapshot |
//!
//! The control thread makes a [`KeyRing`] and publishes it with the other parts of a configuration; a worker reads it without
//! a lock. Provider keys live elsewhere and never meet these.

pub mod ring;
pub mod secret;

pub use ring::{Key, KeyError, KeyLevel, KeyRing, KeySecret, KeySettings, KeyState, Scope};
pub use secret::{KeyHash, NewKey, PREFIX};
