//! Messages from a protocol to its connections, and from a lane to a session.

use std::{fmt, future::Future, hash::Hash, io, rc::Rc};

use weir_base::{
    exchange::{FrameKind, LossCause, Refusal, Scan},
    time::Time,
    violation::Violation,
};
use weir_engine::{Output, Stream};

use crate::{discovery::View, lane::Lane};

/// A protocol whose connections begin with a greeting.
pub trait Handshake: 'static + Sized {
    /// Distinguishes connections of one upstream: endpoint, database, protocol version, user.
    type Key: Copy + Eq + Hash + fmt::Debug + 'static;
    /// The facts about the server from the greeting.
    type Greeting: 'static;

    /// Authenticates and prepares a fresh connection for `key`.
    fn greet(&self, stream: &mut Stream, key: Self::Key) -> impl Future<Output = io::Result<Self::Greeting>>;

    /// Connections of `key` log in as somebody of their own, or ask for a place of their own: that the server refuses one of these
    /// says nothing about the others.
    fn has_own_greeting(_key: Self::Key) -> bool {
        false
    }
}

/// Questions to a server about itself and about the others, each on a connection made for it.
pub trait Directory: Handshake {
    /// The key of a connection of the gateway's own to endpoint number `endpoint`.
    fn probe_key(&self, endpoint: u16) -> Self::Key;

    /// One health probe on a greeted connection.
    fn probe(&self, stream: &mut Stream) -> impl Future<Output = io::Result<()>>;

    /// Queries a server, or one that watches over the servers, for the owners of slots.
    fn discover(&self, stream: &mut Stream) -> impl Future<Output = io::Result<View>>;

    /// Asks a server for the availability zone that it stands in; `None`: it names none.
    fn zone(&self, stream: &mut Stream) -> impl Future<Output = io::Result<Option<String>>>;
}

/// A wire protocol as a lane sees it.
pub trait LaneProtocol: Directory {
    /// Finds the frames in the bytes of an upstream.
    type Framer: Default + 'static;

    /// The next piece of `input`: up to the end of one frame, or all of it.
    ///
    /// # Errors
    /// The upstream broke the protocol; the lane is closed.
    fn scan(framer: &mut Self::Framer, input: &[u8]) -> Result<Scan, Violation>;

    /// The number of the endpoint that lanes of `key` lead to: the settings' own in their order, then those discovered.
    fn endpoint(key: Self::Key) -> u16;
}

/// When the parts of an exchange happened.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The head of the request had arrived.
    pub arrived: Time,
    /// The request was appended to the lane, or to the backlog in front of it.
    pub queued: Time,
    /// The request was handed to the kernel.
    pub sent: Time,
}

/// A piece of a reply; or the end of one and whole plain replies after it, to exchanges numbered one after the other.
pub struct Reply<'a> {
    /// The number that the session gave to the (first) exchange.
    pub exchange: u64,
    /// Replies that end in these bytes. More than one only for a session that [takes runs](Waiter::takes_runs).
    pub count: u64,
    /// The bytes, as they came.
    pub bytes: &'a [u8],
    /// Set with the last piece.
    pub end: Option<FrameKind>,
    /// Timing of the request.
    pub timing: Timing,
}

/// A piece of a frame on a pinned lane that is paired with no exchange.
pub struct Frame<'a> {
    /// The bytes, as they came.
    pub bytes: &'a [u8],
    /// Set with the last piece.
    pub end: Option<FrameKind>,
    /// The wire says that it is out of band.
    pub is_push: bool,
}

/// A session, as its lanes see it. Calls come from the lane's reader task on the same core; a call must not call back
/// into the lane it came from.
pub trait Waiter<P: LaneProtocol>: 'static + Sized {
    /// Plain replies to consecutive exchanges may be delivered in one call: the session has to look at none of them alone.
    fn takes_runs(&self) -> bool;
    /// A piece of a reply, in the order of the requests of this session.
    fn on_reply(&self, reply: Reply<'_>);
    /// No reply will come.
    fn on_loss(&self, exchange: u64, cause: LossCause);
    /// The request was never given to the upstream.
    fn on_refusal(&self, exchange: u64, refusal: Refusal);
    /// A frame of the pinned lane that belongs to no exchange.
    fn on_frame(&self, frame: Frame<'_>);
    /// The requested pinned lane is here, or will not come.
    fn on_pin(&self, lane: Result<Rc<Lane<P, Self>>, Refusal>);
    /// This pinned lane is gone. Called after the losses of its exchanges.
    fn on_pin_loss(&self, lane: &Rc<Lane<P, Self>>, cause: LossCause);
    /// Where replies go: a lane is not read while it is congested.
    fn output(&self) -> &Output;
    /// More is buffered for clients than the core may hold: this one may not take more than its high-water mark.
    fn is_over_budget(&self) -> bool;
    /// Much less is buffered for clients than may be: this one may have more waiting than its cap, for the sake of others.
    fn has_spare_memory(&self) -> bool;
    /// The session reads too slowly for the others on its lane; it must end.
    fn evict(&self);
}
