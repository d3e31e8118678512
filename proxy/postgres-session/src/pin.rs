//! Why a client keeps its server beyond the transaction, and since when.

use weir_base::time::Time;

bitflags::bitflags! {
    /// The reasons of a session for its pin; several may hold at once.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct PinReasons: u16 {
        /// A cursor WITH HOLD is open.
        const HELD_CURSOR = 1;
        /// A session-level advisory lock is held.
        const ADVISORY_LOCK = 1 << 1;
        /// A temporary table exists.
        const TEMPORARY_TABLE = 1 << 2;
        /// LISTEN without a shared listener.
        const LISTEN = 1 << 3;
        /// A statement whose effects are not known.
        const OPAQUE = 1 << 4;
        /// SQL's PREPARE within the extended protocol.
        const SQL_PREPARE = 1 << 5;
        /// A parameter was set to a value that the text does not show.
        const UNKNOWN_SETTING = 1 << 6;
        /// The pool mode is `session`.
        const SESSION_POOLING = 1 << 7;
        /// LOAD of a library.
        const LOAD = 1 << 8;
    }
}

impl PinReasons {
    /// The stable snake_case words, joined by `+`; empty if there is no pin.
    pub fn names(self) -> String {
        let words = self.iter_names().map(|(name, _)| name.to_ascii_lowercase());
        words.collect::<Vec<_>>().join("+")
    }
}

/// A client's pin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pin {
    /// Why; empty: there is none.
    pub reasons: PinReasons,
    /// Since when the first of them holds.
    pub since: Time,
}

impl Pin {
    /// Adds reasons; true if the pin begins with them.
    pub(crate) fn add(&mut self, reasons: PinReasons, now: Time) -> bool {
        let begins = self.reasons.is_empty() && !reasons.is_empty();
        if begins {
            self.since = now;
        }
        self.reasons |= reasons;
        begins
    }

    /// Ends reasons.
    pub(crate) fn end(&mut self, reasons: PinReasons) {
        self.reasons -= reasons;
    }

    /// Whether any reason holds.
    pub fn is_held(&self) -> bool {
        !self.reasons.is_empty()
    }
}
