//! The interface of a session to its shell. The gateway's shell is `weir-postgres`; tests and fuzzing bring their own.

use weir_base::time::Time;

/// Time.
pub trait Clock {
    /// The time of this loop turn.
    fn now(&self) -> Time;
}

/// The client's output.
pub trait ToClient {
    /// Appends bytes as they are.
    fn to_client(&self, bytes: &[u8]);
    /// Encodes at the end of the client's output.
    fn encode_to_client(&self, encode: impl FnOnce(&mut Vec<u8>));
}

/// The output of the server that the client holds. The session calls it only while it has that server.
pub trait ToServer {
    /// Appends bytes as they are.
    fn to_server(&self, bytes: &[u8]);
    /// Encodes at the end of the server's output.
    fn encode_to_server(&self, encode: impl FnOnce(&mut Vec<u8>));
    /// The server does not read fast enough: take no more of the client for now.
    fn is_server_congested(&self) -> bool;
}

/// Notifications that clients share: the hub of a server and database.
pub trait Feeds {
    /// The client wants `channel`. `true`: the listener has it already, and the client gets its notifications from now on.
    /// `false`: [`Session::on_listening`](crate::Session::on_listening) follows.
    fn listen(&self, channel: &[u8]) -> bool;
    /// The client wants `channel` no longer; `None`: no channel at all.
    fn unlisten(&self, channel: Option<&[u8]>);
}

/// Events that operators count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Query, Execute or FunctionCall of the client went to a server.
    Query,
    /// A transaction ended: the server may serve another client.
    Transaction,
    /// A Parse of the client.
    ClientParse,
    /// A Parse that went to a server, those of the gateway included.
    ServerParse,
    /// A Bind of the client.
    Bind,
    /// Parameters were set at a server before it served the client.
    Replay,
    /// A prepared statement was closed at a server because it has as many as it may.
    Eviction,
    /// A statement whose row type had changed was prepared again without an error for the client.
    Heal,
    /// An error that the gateway made itself.
    Refusal,
    /// A client became bound to its server beyond the transaction.
    Pin,
}

/// Counters.
pub trait Tally {
    /// Counts an event.
    fn count(&self, event: Event);
}

/// Everything that a session needs.
pub trait Io: Clock + ToClient + ToServer + Feeds + Tally {}

impl<T: Clock + ToClient + ToServer + Feeds + Tally> Io for T {}
