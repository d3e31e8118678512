//! Virtual keys: clients send them in place of the keys of providers.
//!
//! | file | concept |
//! |---|---|
//! | [`secret`] | the text of a key, its hash, its anonymous form |
//! | [`ring`] | all keys of a listener as an immutable snapshot |
//! | [`document`] | a key as JSON: what its operator may write |
//! | [`issued`] | the keys that the admin API has issued, and their file |
//! | `span` | a span of time as text |
//!
//! The control thread makes a [`KeyRing`] of the keys of the configuration and of those that the admin API has issued; a worker
//! reads it without a lock. Provider keys live elsewhere and never meet these.

pub mod document;
pub mod issued;
mod issued_file;
pub mod ring;
pub mod secret;
mod span;

pub use document::{DocumentError, KeyDocument, PolicyDocument};
pub use issued::{ISSUED_MAX, IssueError, IssuedKey, IssuedKeys};
pub use ring::{Key, KeyError, KeyLevel, KeyRing, KeySecret, KeySettings, KeyState, Scope};
pub use secret::{KeyHash, NewKey, PREFIX};
