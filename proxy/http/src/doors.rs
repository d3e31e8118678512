//! Doors: where another room takes part in the exchanges of a route.
//!
//! A route has its doors in its action; a route without one pays for a look at an empty option. All of them run on the worker of the
//! exchange and must not block. The calls for one request, in their order:
//!
//! 1. [`Inspect::begin`], once the policies have let a request with a body through; then [`Inspection::data`] for each piece as it
//!    arrives, [`Inspection::choose`] before an upstream is asked, and [`Inspection::end`] with the end of the body.
//! 2. [`Handler::handle`], if the target of the route is a handler. Nothing is inspected or tapped then.
//! 3. [`Tap::begin`] with the head of a final response that has a body; then [`BodyTap::data`], [`BodyTap::flush`] whenever nothing more
//!    is there at the moment, and [`BodyTap::end`].
//! 4. [`Settle::settled`], once, when the exchange is over, however it ended.
//!
//! What begins and is dropped without its last call belongs to an exchange that broke off.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_http_codec::{Fields, RequestHead};

/// The doors of a route.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    /// Looks at request bodies.
    pub inspect: Option<Arc<dyn Inspect>>,
    /// Follows and edits response bodies.
    pub tap: Option<Arc<dyn Tap>>,
    /// Hears of the end of each exchange.
    pub settle: Option<Arc<dyn Settle>>,
}

/// A look at the request bodies of a route. Shared by all workers.
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Bytes of a body that are kept before the upstream is chosen, charged to `limits.buffered_bytes`: fewer while that has no room.
    /// 0: the body passes as it comes, and the upstream is that of the route. Calls of gRPC always pass so.
    fn bytes_kept(&self) -> usize {
        0
    }

    /// Begins with a request that has a body. `None`: this one passes without a look.
    fn begin(&self, head: &RequestHead) -> Option<Box<dyn Inspection>>;
}

/// The inspection of one request body.
pub trait Inspection {
    /// Looks at the next piece of the body, before it goes on. Each byte comes once and in order, also if the body is sent again to
    /// another origin.
    ///
    /// # Errors
    /// The request is refused with this response. An origin that has a part of the request never gets its end.
    fn data(&mut self, piece: &[u8]) -> Result<(), Whole>;

    /// Chooses the upstream, once, if [`Inspect::bytes_kept`] is above 0. `is_whole`: all of the body has been seen. `head` is the one that
    /// goes on, ready for the upstream of the route; its target and its fields may be changed.
    ///
    /// # Errors
    /// The request is refused with this response, and no origin has seen it.
    fn choose(&mut self, _head: &mut RequestHead, _is_whole: bool) -> Result<Choice, Whole> {
        Ok(Choice::Stay)
    }

    /// The body is over.
    ///
    /// # Errors
    /// As [`Inspection::data`].
    fn end(&mut self) -> Result<(), Whole> {
        Ok(())
    }
}

/// The upstream that an inspection chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The upstream of the route.
    Stay,
    /// Another upstream among those of the listener ([`Routes::upstreams`](crate::routes::Routes)); a name that is not among them is
    /// answered 503.
    Upstream {
        /// The name of the upstream.
        name: Arc<str>,
        /// The Host of the request there. `None`: as for the upstream of the route.
        host: Option<Box<[u8]>>,
    },
}

/// An answer to the requests of a route without an upstream. Shared by all workers. Policies put their fields into its responses; the
/// changes of fields of the route, taps and compression do not touch them.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Bytes of a request body that are read for it; a longer body is answered 413. Charged to `limits.buffered_bytes`.
    fn body_bytes_max(&self) -> usize {
        0
    }

    /// Answers one request. The future is dropped if the client goes away meanwhile.
    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// A request for a handler.
#[derive(Debug)]
pub struct HandlerRequest {
    /// The head, with its path normalised, and without the fields of the client's connection and its credentials.
    pub head: RequestHead,
    /// All of the body.
    pub body: Bytes,
}

/// The response of a handler.
pub enum Response {
    /// All of it.
    Whole(Whole),
    /// A head, and a body as it comes.
    Stream {
        /// 200 to 599.
        status: u16,
        /// Fields besides Date and those of the framing.
        fields: Fields,
        /// The body.
        pieces: Box<dyn Pieces>,
    },
}

/// A response that is there as a whole.
#[derive(Clone, Debug)]
pub struct Whole {
    /// 200 to 599.
    pub status: u16,
    /// Fields besides Date and those of the framing.
    pub fields: Fields,
    /// The body. Empty for a status that has none.
    pub body: Bytes,
}

/// A body that comes in pieces. Dropped when the client goes away.
pub trait Pieces {
    /// The next piece. `None`: the body is over.
    ///
    /// # Errors
    /// The body does not come to its end, and the response breaks off.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BrokenOff>>>;
}

/// A body does not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenOff;

/// A tap on the response bodies of a route. Shared by all workers.
pub trait Tap: fmt::Debug + Send + Sync {
    /// Begins with a final response of an origin that has a body; its fields may be changed. The body then goes on without a length, in
    /// chunks or as a stream. `None`: this one passes as it is.
    fn begin(&self, status: u16, fields: &mut Fields) -> Option<Box<dyn BodyTap>>;
}

/// A tap on one response body, as the origin has sent it: a content coding is still on it.
pub trait BodyTap {
    /// Takes the next piece, and appends to `out` what goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff>;

    /// Appends what can go on by now: nothing more is there at the moment.
    ///
    /// # Errors
    /// The response breaks off.
    fn flush(&mut self, _out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        Ok(())
    }

    /// Appends the rest: the body is over.
    ///
    /// # Errors
    /// The response breaks off.
    fn end(&mut self, _out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        Ok(())
    }
}

/// A hook for the end of each exchange of a route. Shared by all workers.
pub trait Settle: fmt::Debug + Send + Sync {
    /// The exchange is over. Called once for each request that the route has taken; for a WebSocket with its handshake.
    fn settled(&self, facts: &Settled<'_>);
}

/// The facts of an exchange that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<'a> {
    /// The status that the client was given. 0: none.
    pub status: u16,
    /// Bytes of the request body that were read.
    pub request_bytes: u64,
    /// Bytes that the client was sent: over HTTP/1.1 the whole response, over HTTP/2 its body.
    pub response_bytes: u64,
    /// From the head of the request to the end.
    pub duration: Duration,
    /// The upstream that was asked. Empty: none.
    pub upstream: &'a str,
    /// How the exchange ended.
    pub end: End,
    /// The word of the access log for it: `ok`, or the reason of a refusal or of a response that broke off.
    pub reason: &'a str,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has the whole response of an origin, of a handler or of the route.
    Answered,
    /// The gateway refused the request, or answered in place of an origin that failed.
    Refused,
    /// The response broke off.
    BrokenOff,
    /// The client went away before its response was over.
    ClientGone,
}
