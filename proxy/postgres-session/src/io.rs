//! The interface of a session to its shell. The gateway's shell is `weir-postgres`; tests and fuzzing bring their own.

use std::sync::Arc;

use weir_base::time::Time;

use crate::refusal::Refusal;

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

/// A notification of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The process that notified.
    pub pid: u32,
    /// Its channel.
    pub channel: Box<[u8]>,
    /// Its payload.
    pub payload: Box<[u8]>,
}

/// Something that a client which listens gets unprompted.
#[derive(Clone, Debug)]
pub enum News {
    /// A notification, with its place among all news of the client.
    Notification {
        /// Its place.
        number: u64,
        /// Channel and payload.
        notification: Arc<Notification>,
    },
    /// The server was lost for a moment, and notifications with it.
    Gap,
}

/// The reply to [`Feeds::listen`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The server has confirmed the channel.
    There,
    /// It has not yet. Call [`Session::on_client`](crate::Session::on_client) again when it has, or when it is refused.
    Awaited,
    /// It cannot be had.
    Refused(Refusal),
}

/// Notifications that clients share: the hub of a server, database and user.
pub trait Feeds {
    /// The client is about to listen to `channel`. It asks again with each look at its statement. `encoding` is the client's, `None` the server's.
    fn listen(&self, channel: &[u8], encoding: Option<&[u8]>) -> Channel;
    /// The client needs `channel` no longer.
    fn unlisten(&self, channel: &[u8]);
    /// [`Session::on_fence`](crate::Session::on_fence) follows, behind the notifications of all transactions that have committed.
    fn fence(&self);
    /// The place that the next news get.
    fn mark(&self) -> u64;
    /// Takes the oldest news.
    fn next_news(&self) -> Option<News>;
    /// Drops notifications of channels that `is_kept` does not name.
    fn forget_news(&self, is_kept: impl Fn(&[u8]) -> bool);
}

/// Events that operators count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A Query, Execute or FunctionCall of the client went to a server.
    Query,
    /// A transaction of the client ended, also one of a single statement: the server is outside of a block.
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
    /// A notification went to the client.
    Notification,
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
