//! HTTP filters: another room takes part in the exchanges of a route.
//!
//! A route has a filter factory in its action, or else that of its listener; without either it pays for a look at two empty options. All of it runs on the worker of
//! the exchange and must not block. [`FilterFactory::create`] gives an exchange its filter, which is the same object to the end: with the
//! response it still has the state of the request. The calls for one request, in their order:
//!
//! 1. [`FilterFactory::create`], when the route takes the request, and before its policies; then [`HttpFilter::enter_connection`].
//! 2. [`HttpFilter::inspect`], once the policies have let the request through, and [`HttpFilter::refuse_head`]; then
//!    [`HttpFilter::request_data`] for each piece of a body as it arrives, and [`HttpFilter::request_end`] with the end of the body.
//!    A request that is whole by then may end with [`HttpFilter::own_response`], which may also wait, or make requests of its own.
//!    [`HttpFilter::choose_upstream`] comes before an origin gets the request: behind the buffered pieces, and behind the end if that
//!    was among them. It also changes the buffered body. [`HttpFilter::attempt_failed`] may lead to another choice, until the client has a part of a response.
//! 3. [`HttpFilter::tap`] with the head of a final response that may have a body, and [`HttpFilter::response_head`] with every final
//!    head that is sent; then [`HttpFilter::follow`] or [`HttpFilter::edit`] for each piece, [`HttpFilter::flush`] whenever nothing more is there
//!    at the moment, and [`HttpFilter::response_end`]. With [`Tap::Replace`] the body comes first: `follow` for each piece,
//!    [`HttpFilter::replace_response`] once, and then the head.
//!    If the client leaves meanwhile, [`HttpFilter::client_left`] may have the rest read without it.
//! 4. [`HttpFilter::on_complete`], once, when the exchange is over, however it ended.
//!
//! An origin may respond before it has the whole request: then 3 begins within 2. A refusal skips everything up to 4. A body that breaks
//! off has no call for its end; that of an edited response has [`HttpFilter::broken_off`]. A panic in a filter ends its connection or its
//! stream, and the filter still gets the last call.
//!
//! [`Handler::handle`] takes the place of 2 and 3 on a route whose target is a handler.
//!
//! # Limits
//! - A filter changes only the buffered part of a request body. A mirror gets the body as it came.
//! - The choice is made at once: only [`HttpFilter::own_response`] in front of it can wait.
//! - Requests that a filter makes itself are whole, and so are their responses; the body of a response is held, and nothing else sees it.
//! - A response of a filter itself is no attempt: it has no tap, and a mirror gets no copy of its request.
//! - Calls of gRPC are inspected as they pass, without a choice. A request that becomes a WebSocket is not inspected or tapped.
//! - The head of a response to HEAD is not tapped: it is that of the response as its origin has it.
//! - A partial response (206) has a body like any other: a filter that edits must leave it out, or handle ranges.
//! - A replaced response is not compressed, and has no trailers.
//! - A handler gives no trailers, and so no response in gRPC's words.

pub(crate) mod choice;
pub(crate) mod deadlines;
pub(crate) mod failure;
pub(crate) mod own_request;
pub(crate) mod own_response;
pub(crate) mod response;
pub(crate) mod timing;

use std::{
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use weir_base::{connection::ConnectionEntry, error::Culprit};
use weir_http_codec::{Fields, RequestHead};

pub use self::{
    choice::{ADDED_BYTES_MAX, BodyChange, RequestChoice, SeenBody, Splice, UpstreamChoice},
    deadlines::Deadlines,
    failure::{ATTEMPTS_MAX, AfterFailure, FailedAttempt},
    own_request::{FilterRequest, FilterRequestError, FilterRequestOutcome, FilterResponse, OWN_REQUESTS_MAX},
    own_response::OwnResponse,
    response::{BrokenEnd, HoldLimits, RemainderLimits, ReplacedResponse, WholeResponse},
    timing::ExchangeTiming,
};
pub use crate::{
    options::RetryCause,
    refusal_format::{FormattedRefusal, RefusalFacts},
};

/// Creates the filters of a route, or of a listener on one worker ([`Service::filtered`](crate::Service::filtered)). All workers share
/// that of a route.
pub trait FilterFactory: fmt::Debug {
    /// Creates the filter of an exchange whose request the route has taken. `caller` has no identity and no request id yet.
    fn create(&self, head: &RequestHead, caller: &Caller) -> Box<dyn HttpFilter>;
}

/// The filter of one exchange.
pub trait HttpFilter {
    /// The connection of the exchange, as other threads see it. The filter may describe its request there. Called once, behind
    /// [`FilterFactory::create`].
    fn enter_connection(&mut self, _connection: &Arc<ConnectionEntry>) {}

    /// Whether and how the body of the request is inspected. The policies have let it through; `head` is the one that goes on, ready for
    /// the upstream of the route. A request without a body has nothing to inspect, and [`Inspect::Buffered`] asks for the choice.
    fn inspect(&mut self, _head: &RequestHead, _caller: &Caller) -> Inspect {
        Inspect::No
    }

    /// The response with which a request is refused by its head alone, behind [`HttpFilter::inspect`]: no byte of its body is waited
    /// for, and a client that expects a 100 gets this instead. Calls of gRPC are refused, too. `None`: the request goes on.
    fn refuse_head(&mut self) -> Option<WholeResponse> {
        None
    }

    /// Looks at the next piece of the request body, before it goes on. Each byte comes once and in order, also if the body is sent again to
    /// another origin.
    ///
    /// # Errors
    /// The request is refused with this response. An origin that has a part of the request never gets its end.
    fn request_data(&mut self, _piece: &[u8]) -> Result<(), WholeResponse> {
        Ok(())
    }

    /// The request body is over.
    ///
    /// # Errors
    /// As [`HttpFilter::request_data`].
    fn request_end(&mut self) -> Result<(), WholeResponse> {
        Ok(())
    }

    /// Responds in place of an origin, or waits, with [`Inspect::Buffered`]: called behind [`HttpFilter::request_end`] of a body that was
    /// buffered whole, or of a request without one, and again behind each wait. `head` is the one that goes on.
    ///
    /// # Errors
    /// The request is refused with this response, and no origin has seen it.
    fn own_response(&mut self, _head: &RequestHead, _seen: SeenBody<'_>) -> Result<OwnResponse, WholeResponse> {
        Ok(OwnResponse::None)
    }

    /// The requests of [`OwnResponse::Send`] are over; their outcomes, in the same order. [`HttpFilter::own_response`] follows.
    fn own_requests_done(&mut self, _outcomes: Vec<FilterRequestOutcome>) {}

    /// Chooses the upstream, and the body that it gets, with [`Inspect::Buffered`]. `seen`: the buffered part of the body. `head` is the
    /// one that goes on; its target and its fields may be changed, except those of the framing.
    ///
    /// # Errors
    /// The request is refused with this response, and no origin has seen it.
    fn choose_upstream(
        &mut self,
        _head: &mut RequestHead,
        _seen: SeenBody<'_>,
    ) -> Result<RequestChoice, WholeResponse> {
        Ok(UpstreamChoice::Route.into())
    }

    /// Attempts that the filter may choose in all, with [`Inspect::Buffered`]; at most [`ATTEMPTS_MAX`]. 1: the retries of the route
    /// hold. With more, the filter decides on statuses, lost connections and timeouts; the route still tries another endpoint of the same
    /// upstream for a request that none has begun with.
    fn attempts_max(&self) -> u32 {
        1
    }

    /// An attempt begins: it has a connection to the endpoint at this position among those of its upstream's settings. The calls for a
    /// response, from [`HttpFilter::tap`] on, are about the last one.
    fn attempt_begins(&mut self, _endpoint: usize) {}

    /// An attempt failed, and the client has no part of a response. Called for every response with a status of 400 and more, and for
    /// every attempt without a response for which the client is not at fault. Not for calls of gRPC. With [`AfterFailure::Next`],
    /// [`HttpFilter::choose_upstream`] follows: its head is the one before the first choice, without the fields of an earlier one.
    ///
    /// The method of the request does not matter here: whether an origin may get it twice is the filter's to know.
    fn attempt_failed(&mut self, _failed: &FailedAttempt<'_>) -> AfterFailure {
        AfterFailure::Respond
    }

    /// The deadlines of the exchange. Called before the attempts that follow each choice, and once without a choice. Not for calls of gRPC and
    /// upgrades.
    fn deadlines(&mut self) -> Deadlines {
        Deadlines::default()
    }

    /// Whether and how the body of the final response of an origin is tapped. Its fields may be changed, except those of the framing. An
    /// empty body has nothing to follow or to edit, and can be replaced.
    fn tap(&mut self, _status: u16, _fields: &mut Fields) -> Tap {
        Tap::No
    }

    /// The head of the final response is about to be sent: that of an origin, of a handler, or of the gateway itself. Its fields may be
    /// changed, except those of the framing. Changes by the policies and the route come after those of the filter to the head of an
    /// origin. Not for a response that becomes a tunnel.
    fn response_head(&mut self, _status: u16, _fields: &mut Fields, _timing: &ExchangeTiming) {}

    /// Looks at the next piece of the response body, with [`Tap::Follow`] or [`Tap::Replace`], as the origin has sent it: a content coding
    /// is still on it.
    ///
    /// # Errors
    /// The response breaks off.
    fn follow(&mut self, _piece: &[u8]) -> Result<(), BodyAborted> {
        Ok(())
    }

    /// Replaces a response whose whole `body` is here, with [`Tap::Replace`]. Its fields may be changed, except those of the framing: the
    /// length becomes that of the new body. Not if the body broke off: then the client gets a refusal, or another choice follows.
    fn replace_response(&mut self, status: u16, _fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        ReplacedResponse { status, body: Bytes::copy_from_slice(body) }
    }

    /// Takes the next piece, with [`Tap::Edit`], and appends to `out` what goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        out.extend_from_slice(piece);
        Ok(())
    }

    /// Appends what can go on by now, with [`Tap::Edit`]: nothing more is there at the moment.
    ///
    /// # Errors
    /// The response breaks off.
    fn flush(&mut self, _out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        Ok(())
    }

    /// The response body is over. With [`Tap::Edit`] the rest is appended; with [`Tap::Follow`] nothing of `out` goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn response_end(&mut self, _out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        Ok(())
    }

    /// The response breaks off within its body, with [`Tap::Edit`]: its origin closed, paused for too long or broke a rule, a deadline
    /// passed, or the filter gave it up. Bytes that it appends to `out` go on as the last piece. `reason`: the word of the access log,
    /// such as `origin_closed`, `idle_timeout` or `tap_broke_off`. Not for calls of gRPC, nor if the client is gone. No other call for
    /// the body follows.
    fn broken_off(&mut self, _reason: &str, _out: &mut Vec<u8>) -> BrokenEnd {
        BrokenEnd::Cut
    }

    /// The client has left while its response was waited for or under way, and an origin has the whole request. With limits, the
    /// remainder of the response is read within them: the calls for its head and its body go on, and nothing of them is sent. The exchange
    /// stays in flight until then, and ends as [`CompletionStatus::ClientGone`]. Called once. `None`: the response ends at once. Not for
    /// calls of gRPC and upgrades.
    fn client_left(&mut self) -> Option<RemainderLimits> {
        None
    }

    /// The form of a refusal of this request by the gateway. `None`: that of the listener. Not for calls of gRPC.
    fn format_refusal(&mut self, _facts: &RefusalFacts) -> Option<FormattedRefusal> {
        None
    }

    /// The exchange is over; for a WebSocket its handshake is.
    fn on_complete(&mut self, _facts: &ExchangeSummary<'_>) {}
}

/// The caller of a request, as far as it is known by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The name of the route that has taken the request.
    pub route: Box<str>,
    /// The address of the client, by the fields of trusted proxies. That of a client of a Unix socket is 0.0.0.0.
    pub client: IpAddr,
    /// The identity by the policies: a user, the owner of a key, the subject of a token.
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
    Streaming,
    /// Buffers up to so many bytes before [`HttpFilter::choose_upstream`], charged to `limits.buffered_bytes`: fewer while that has no
    /// room. The rest is inspected as it passes.
    Buffered(usize),
}

/// Whether and how a response body is tapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// It is not.
    No,
    /// The filter follows it. It goes on unchanged, with its length.
    Follow,
    /// The filter edits it. It goes on without a length, in chunks or as a stream. Fields that describe its exact bytes go: its digests
    /// and the offer of ranges. Its entity tag becomes a weak one.
    Edit,
    /// It is held whole while the client gets nothing, and the filter replaces it: [`HttpFilter::replace_response`]. A body that breaks
    /// off meanwhile is a failed attempt. Fields that describe its exact bytes go, as with `Edit`.
    Replace(HoldLimits),
}

/// Responds to the requests of a route without an upstream. Shared by all workers. Policies put their fields into its responses; the
/// changes of fields of the route, taps and compression do not touch them. The timeouts of the route hold as for an origin.
pub trait Handler: fmt::Debug + Send + Sync {
    /// Bytes of a request body that are read for it; a longer body gets a 413. Charged to `limits.buffered_bytes` until the response is
    /// over.
    fn body_bytes_max(&self) -> usize {
        0
    }

    /// The response to a request with a body that its head alone decides: the body is not read then. `None`: none.
    fn refuse(&self, _: &RequestHead) -> Option<WholeResponse> {
        None
    }

    /// Handles one request. The future is dropped if the client disconnects meanwhile, or a timeout passes.
    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = HandlerResponse>>>;
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
pub enum HandlerResponse {
    /// All of it.
    Whole(WholeResponse),
    /// A head, and a body as it comes.
    Stream {
        /// 200 to 599.
        status: u16,
        /// Fields besides Date and those of the framing.
        fields: Fields,
        /// The body.
        body_stream: Box<dyn BodyStream>,
    },
}

/// A body that comes in pieces. Dropped when the client goes away, or a timeout passes.
pub trait BodyStream {
    /// The next piece. `None`: the body is over.
    ///
    /// # Errors
    /// The body does not come to its end, and the response breaks off.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyAborted>>>;
}

/// A body does not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyAborted;

/// The facts of an exchange that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeSummary<'a> {
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
    /// Its parts.
    pub timing: ExchangeTiming,
    /// The upstream of the last attempt. Empty: none.
    pub upstream: &'a str,
    /// Outcome of the exchange.
    pub end: CompletionStatus,
    /// The side that caused an end as [`CompletionStatus::Aborted`] or [`CompletionStatus::ClientGone`]. `None`: another end, or one in order,
    /// such as that of a drain.
    pub culprit: Option<Culprit>,
    /// The end that the filter gave the body of a response that broke off. `None`: it had no say.
    pub broken_end: Option<BrokenEnd>,
    /// The word of the access log for it: `ok`, or the reason of a refusal or of a response that broke off.
    pub reason: &'a str,
}

/// Outcome of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionStatus {
    /// The whole response of an origin, of a handler or of the route was written for the client. Its last bytes may still be on their way.
    Completed,
    /// The gateway refused the request, even one whose body ended early, or responded in place of an origin that failed; or a filter
    /// refused it.
    Refused,
    /// The response broke off, the gateway cut the connection of the client, or a panic ended the exchange.
    Aborted,
    /// The client went away while its response was waited for or under way.
    ClientGone,
}
