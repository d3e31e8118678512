//! Doors: where another room takes part in the exchanges of a route.
//!
//! A route has a door in its action; a route without one pays for a look at an empty option. All of it runs on the worker of the exchange
//! and must not block. [`Door::enter`] gives an exchange its companion, which is the same object to the end: what it learns of the request
//! it knows with the response. The calls for one request, in their order:
//!
//! 1. [`Door::enter`], when the route takes the request, and before its policies.
//! 2. [`Companion::inspect`], once the policies have let a request with a body through; then [`Companion::request_data`] for each piece as
//!    it arrives, and [`Companion::request_end`] with the end of the body. [`Companion::choose`] comes before an upstream is asked: behind
//!    the pieces that were kept, and behind the end if that was among them.
//! 3. [`Companion::tap`] with the head of a final response that has a body; then [`Companion::follow`] or [`Companion::edit`] for each piece,
//!    [`Companion::flush`] whenever nothing more is there at the moment, and [`Companion::response_end`].
//! 4. [`Companion::settled`], once, when the exchange is over, however it ended.
//!
//! An origin may answer before it has the whole request: then 3 begins within 2. A refusal skips all up to 4. Whatever breaks off, on either
//! side, skips the end of its body. A panic in a companion ends its connection or its stream, and the companion still hears of the end.
//!
//! [`Handler::handle`] takes the place of 2 and 3 on a route whose target is a handler.
//!
//! # Limits
//! - No companion changes the body of a request, and none chooses an upstream for a request without a body.
//! - The choice is made at once, and once: nothing can be waited for.
//! - Calls of gRPC are inspected as they pass, without a choice. A request that becomes a WebSocket is not inspected or tapped.
//! - The head of a response to HEAD is not tapped: it is that of the response as its origin has it.
//! - A part of a content (206) is a body like any other: a companion that edits must leave it out, or know what it does.
//! - A handler gives no trailers, and so no response in gRPC's words.

use std::{
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_http_codec::{Fields, RequestHead};

/// A door of a route. Shared by all workers.
pub trait Door: fmt::Debug + Send + Sync {
    /// Gives the exchange of a request that the route has taken its companion. `caller` knows no identity and no request id yet.
    fn enter(&self, head: &RequestHead, caller: &Caller) -> Box<dyn Companion>;
}

/// The companion of one exchange.
pub trait Companion {
    /// Whether and how the body of the request is inspected. The policies have let it through; `head` is the one that goes on, ready for
    /// the upstream of the route.
    fn inspect(&mut self, _head: &RequestHead, _caller: &Caller) -> Inspect {
        Inspect::No
    }

    /// Looks at the next piece of the request body, before it goes on. Each byte comes once and in order, also if the body is sent again to
    /// another origin.
    ///
    /// # Errors
    /// The request is refused with this response. An origin that has a part of the request never gets its end.
    fn request_data(&mut self, _piece: &[u8]) -> Result<(), Whole> {
        Ok(())
    }

    /// The request body is over.
    ///
    /// # Errors
    /// As [`Companion::request_data`].
    fn request_end(&mut self) -> Result<(), Whole> {
        Ok(())
    }

    /// Chooses the upstream, once, with [`Inspect::Kept`]. `is_whole`: all of the body has been seen, and its end. `head` is the one that
    /// goes on; its target and its fields may be changed.
    ///
    /// # Errors
    /// The request is refused with this response, and no origin has seen it.
    fn choose(&mut self, _head: &mut RequestHead, _is_whole: bool) -> Result<Choice, Whole> {
        Ok(Choice::Stay)
    }

    /// Whether and how the body of the final response of an origin is tapped. Its fields may be changed, except those of the framing.
    fn tap(&mut self, _status: u16, _fields: &mut Fields) -> Tap {
        Tap::No
    }

    /// Looks at the next piece of the response body, with [`Tap::Follow`], as the origin has sent it: a content coding is still on it.
    ///
    /// # Errors
    /// The response breaks off.
    fn follow(&mut self, _piece: &[u8]) -> Result<(), BrokenOff> {
        Ok(())
    }

    /// Takes the next piece, with [`Tap::Edit`], and appends to `out` what goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        out.extend_from_slice(piece);
        Ok(())
    }

    /// Appends what can go on by now, with [`Tap::Edit`]: nothing more is there at the moment.
    ///
    /// # Errors
    /// The response breaks off.
    fn flush(&mut self, _out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        Ok(())
    }

    /// The response body is over. With [`Tap::Edit`] the rest is appended; with [`Tap::Follow`] nothing of `out` goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn response_end(&mut self, _out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        Ok(())
    }

    /// The exchange is over; for a WebSocket its handshake is.
    fn settled(&mut self, _facts: &Settled<'_>) {}
}

/// The caller of a request, as far as it is known by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the route that has taken the request.
    pub route: Box<str>,
    /// The address of the client, as trusted proxies tell of it. That of a client of a Unix socket is 0.0.0.0.
    pub client: IpAddr,
    /// Who policies found: a user, the owner of a key, the subject of a token.
    pub identity: Option<Box<str>>,
    /// The `X-Request-Id` that the request goes on with.
    pub request_id: Option<Box<[u8]>>,
}

/// Whether and how a request body is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// It is not.
    No,
    /// As it passes; the upstream is that of the route.
    Passing,
    /// So many bytes are kept before [`Companion::choose`], charged to `limits.buffered_bytes`: fewer while that has no room. The rest is
    /// inspected as it passes.
    Kept(usize),
}

/// Whether and how a response body is tapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// It is not.
    No,
    /// The companion follows it; it goes on as it is, with its length.
    Follow,
    /// The companion edits it. It goes on without a length, in chunks or as a stream, and what its head says of its very bytes goes: its
    /// digests and the offer of ranges; its entity tag becomes a weak one.
    Edit,
}

/// The upstream that a companion chooses.
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
/// changes of fields of the route, taps and compression do not touch them. The timeouts of the route hold as for an origin.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Bytes of a request body that are read for it; a longer body is answered 413. Charged to `limits.buffered_bytes` until the response
    /// is over.
    fn body_bytes_max(&self) -> usize {
        0
    }

    /// Answers one request. The future is dropped if the client goes away meanwhile, or a timeout passes.
    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// A request for a handler.
#[derive(Debug)]
pub struct HandlerRequest {
    /// The head, with its path normalised, and without the fields of the client's connection and its credentials.
    pub head: RequestHead,
    /// All of the body.
    pub body: Bytes,
    /// The caller.
    pub caller: Caller,
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

/// A body that comes in pieces. Dropped when the client goes away, or a timeout passes.
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

/// The facts of an exchange that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled<'a> {
    /// The status that the client was given. 0: none, or the exchange was cut with its connection.
    pub status: u16,
    /// The caller.
    pub caller: &'a Caller,
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
    /// The whole response of an origin, of a handler or of the route was written for the client. Its last bytes may still be on their way.
    Answered,
    /// The gateway refused the request, also one whose body ended early, or answered in place of an origin that failed; or a companion
    /// answered.
    Refused,
    /// The response broke off, or a panic ended the exchange.
    BrokenOff,
    /// The client went away while its response was waited for or under way, or its connection was cut.
    ClientGone,
}
