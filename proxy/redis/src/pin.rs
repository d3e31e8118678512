//! When a client needs an upstream lane of its own, and when no longer.

use std::fmt;

/// Why a session is bound to one upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinReason {
    /// WATCH: the server compares keys for this connection at EXEC.
    Watch = 1,
    /// A command that may wait: it would hold up a shared lane.
    Blocking = 2,
    /// SUBSCRIBE and its kin.
    Subscribe = 4,
    /// MONITOR.
    Monitor = 8,
    /// A command too large to hold: its bytes flow while they arrive.
    Large = 16,
    /// WAIT counts the writes of its own connection, so those must be on one.
    Wait = 32,
    /// State bound to the connection that the gateway does not emulate.
    ConnectionState = 64,
    /// A command this build does not know: it might leave state behind.
    Unknown = 128,
    /// A transaction that changes the database.
    Transaction = 256,
    /// The server is asked what it is.
    Greeting = 512,
}

impl PinReason {
    const ALL: [PinReason; 10] = [
        PinReason::Watch,
        PinReason::Blocking,
        PinReason::Subscribe,
        PinReason::Monitor,
        PinReason::Large,
        PinReason::Wait,
        PinReason::ConnectionState,
        PinReason::Unknown,
        PinReason::Transaction,
        PinReason::Greeting,
    ];

    /// The label value.
    pub fn name(self) -> &'static str {
        match self {
            PinReason::Watch => "watch",
            PinReason::Blocking => "blocking",
            PinReason::Subscribe => "subscribe",
            PinReason::Monitor => "monitor",
            PinReason::Large => "large_request",
            PinReason::Wait => "wait",
            PinReason::ConnectionState => "connection_state",
            PinReason::Unknown => "unknown_command",
            PinReason::Transaction => "transaction",
            PinReason::Greeting => "greeting",
        }
    }

    /// Over with the last reply, without a word from the client.
    fn is_passing(self) -> bool {
        use PinReason::*;
        matches!(self, Blocking | Large | Unknown | Transaction | Greeting)
    }

    /// What the lane carries afterwards is not certain, so nobody else may have it.
    fn leaves_state(self) -> bool {
        use PinReason::*;
        matches!(self, Monitor | Wait | ConnectionState | Unknown | Transaction)
    }
}

/// The reasons for which a session holds its lane, and whether the lane may be lent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins {
    reasons: u16,
    is_dirty: bool,
}

impl Pins {
    pub(crate) fn add(&mut self, reason: PinReason) {
        self.reasons |= reason as u16;
        self.is_dirty |= reason.leaves_state();
    }

    pub(crate) fn remove(&mut self, reason: PinReason) {
        self.reasons &= !(reason as u16);
    }

    pub(crate) fn has(&self, reason: PinReason) -> bool {
        self.reasons & reason as u16 != 0
    }

    /// The last reply is here: passing reasons are over. True if none is left.
    pub(crate) fn settle(&mut self) -> bool {
        for reason in PinReason::ALL {
            if reason.is_passing() {
                self.remove(reason);
            }
        }
        self.reasons == 0
    }

    /// The lane's state is no longer what its key says.
    pub(crate) fn soil(&mut self) {
        self.is_dirty = true;
    }

    pub(crate) fn is_clean(&self) -> bool {
        !self.is_dirty
    }
}

impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for reason in PinReason::ALL {
            if self.has(reason) {
                write!(f, "{separator}{}", reason.name())?;
                separator = ", ";
            }
        }
        Ok(())
    }
}
