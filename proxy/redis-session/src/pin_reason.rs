//! The reasons for which a client needs an upstream lane of its own.

/// Why a session is bound to one upstream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinReason {
    /// WATCH: the server compares keys for this connection at EXEC.
    Watch = 1,
    /// A command that may wait: it would hold up a shared lane.
    Blocking = 2,
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
    /// The gateway queries the server's role.
    Greeting = 512,
}

impl PinReason {
    pub(crate) const ALL: [PinReason; 9] = [
        PinReason::Watch,
        PinReason::Blocking,
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
    pub(crate) fn is_passing(self) -> bool {
        use PinReason::*;
        matches!(self, Blocking | Large | Unknown | Transaction | Greeting)
    }

    /// The state of the lane afterwards is uncertain, so no other client may get it.
    pub(crate) fn leaves_state(self) -> bool {
        use PinReason::*;
        matches!(self, Monitor | Wait | ConnectionState | Unknown | Transaction)
    }
}
