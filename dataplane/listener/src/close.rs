//! The reason of the end of a client connection.

use weir_base::{error::Culprit, violation::Violation};

/// The reason of an end: the label `reason` of `weir_connections_closed_total`, and the side that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed, and nothing of it was under way.
    ClientClosed,
    /// The connection to the client broke.
    ClientReset,
    /// The client was silent for too long.
    IdleTimeout,
    /// One direction had ended, and the other was silent for too long.
    HalfCloseTimeout,
    /// The session ended in a quiet moment of a drain.
    Drained,
    /// The drain was over, and the session was not.
    DrainCut,
    /// An operator or another client named the connection.
    Killed,
    /// Another process goes on with the connection.
    Moved,
    /// The gateway broke an invariant of its own, or its code panicked.
    InternalInvariant,
    /// The session came to the end that its protocol has for it. The word is the protocol's.
    Ended(&'static str),
    /// A side broke a rule, or failed.
    Broken {
        /// The word for it.
        reason: &'static str,
        /// The side.
        culprit: Culprit,
    },
}

impl CloseReason {
    /// An end that the origin caused.
    pub const fn of_upstream(reason: &'static str) -> Self {
        Self::Broken { reason, culprit: Culprit::Upstream }
    }

    /// An end that the client caused.
    pub const fn of_client(reason: &'static str) -> Self {
        Self::Broken { reason, culprit: Culprit::Client }
    }

    /// The value of the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientClosed => "client_closed",
            Self::ClientReset => "client_reset",
            Self::IdleTimeout => "idle_timeout",
            Self::HalfCloseTimeout => "half_close_timeout",
            Self::Drained => "drained",
            Self::DrainCut => "drain_cut",
            Self::Killed => "killed",
            Self::Moved => "moved",
            Self::InternalInvariant => "internal_invariant",
            Self::Ended(reason) | Self::Broken { reason, .. } => reason,
        }
    }

    /// The side at fault. `None`: the end is in order.
    pub const fn culprit(self) -> Option<Culprit> {
        match self {
            Self::ClientReset | Self::IdleTimeout | Self::HalfCloseTimeout => Some(Culprit::Client),
            Self::InternalInvariant => Some(Culprit::Gateway),
            Self::Broken { culprit, .. } => Some(culprit),
            Self::ClientClosed | Self::Drained | Self::DrainCut | Self::Killed | Self::Moved | Self::Ended(_) => None,
        }
    }
}

impl From<&Violation> for CloseReason {
    fn from(violation: &Violation) -> Self {
        if violation.reason == Self::InternalInvariant.name() {
            return Self::InternalInvariant;
        }
        Self::Broken { reason: violation.reason, culprit: violation.culprit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_word_and_the_culprit_of_its_violation() {
        let violation = Violation::rule("tls_hello", Culprit::Client, "no hello");
        let reason = CloseReason::from(&violation);
        assert_eq!((reason.name(), reason.culprit()), ("tls_hello", Some(Culprit::Client)));
        assert_eq!(CloseReason::Drained.culprit(), None);
        assert_eq!(CloseReason::InternalInvariant.name(), "internal_invariant");
    }
}
