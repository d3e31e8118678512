//! The interface of a session to its shell. The gateway's shell is `weir-mongodb`; tests and fuzzing bring their own.

use std::sync::Arc;

use weir_base::time::Time;
use weir_mongodb_codec::command::Command;
use weir_sasl::Nonce;

use crate::face::Presentation;
use crate::pins::Pins;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::users::{Identity, User};

/// Time.
pub trait Clock {
    /// The time of this loop turn.
    fn now(&self) -> Time;
    /// Milliseconds since 1970, for `localTime`.
    fn unix_ms(&self) -> i64;
}

/// Users of the listener, and randomness for their logins.
pub trait Users {
    /// The user with this name in this database.
    fn user(&self, db: &[u8], name: &[u8]) -> Option<Arc<User>>;
    /// A nonce that was never used.
    fn nonce(&self) -> Nonce;
}

/// Cursors and transactions that any connection of their owner may use: those of clients that see a mongos.
pub trait SharedPins {
    /// Works on them. They may be behind a lock: no plain command comes here.
    fn with_pins<R>(&self, act: impl FnOnce(&mut Pins) -> R) -> R;
    /// An owner has as many cursors as it may have: [`Pins::has_full_owner`] behind the last work on them. Each command that may open a
    /// cursor comes here, so this takes no lock.
    fn has_full_owner(&self) -> bool;
}

/// Rules of the listener.
pub trait Judge {
    /// The refusal of a command; `None`: it may pass. Commands of the handshake and of a login do not come here.
    fn judge(&self, request: &Request<'_>, command: &Command<'_>, user: Option<&Identity>) -> Option<Refusal>;
}

/// The server that the listener presents at this moment.
pub trait Presents {
    /// See [`Presentation`].
    fn presentation(&self) -> &Presentation;
}

/// Everything that a session needs.
pub trait Io: Clock + Users + SharedPins + Judge + Presents {}

impl<T: Clock + Users + SharedPins + Judge + Presents> Io for T {}
