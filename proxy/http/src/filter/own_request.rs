//! Requests that a filter makes itself, while its exchange waits for their responses.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use weir_base::BytesPermit;
use weir_http_codec::{Fields, RequestHead};

/// Requests that a filter may have under way at once. Default 16: each takes a connection to an upstream, or a stream of one. A filter
/// that gives more breaks a rule, and its request is refused with a 500 `filter_failed`.
pub const OWN_REQUESTS_MAX: usize = 16;

/// A whole request. It takes a lane of its upstream as any request does: health, breaker, pool, TLS and limits of connections hold.
#[derive(Clone, Debug)]
pub struct FilterRequest {
    /// One of the upstreams of the listener ([`Routes::upstreams`](crate::routes::Routes)); an unknown name is out of reach.
    pub upstream: Arc<str>,
    /// No other endpoint than this one, by its position among the endpoints of the settings of the upstream. `None`: any.
    pub endpoint: Option<usize>,
    /// The Host of the request. `None`: that of the head.
    pub host: Option<Box<[u8]>>,
    /// Method, target and fields. Fields of framing and of a connection are left out.
    pub head: RequestHead,
    /// The body. It is sent in pieces as the origin takes them, and what waits on the connection is charged to `limits.buffered_bytes`;
    /// the body itself is the filter's to charge.
    pub body: Bytes,
    /// An origin may get it twice: it goes out once more if a connection that had been idle ends without a response.
    pub is_repeatable: bool,
    /// From the wait for a connection to the end of the response. The timeout of the whole exchange holds, too.
    pub timeout: Duration,
    /// Bytes of the body of the response.
    pub response_bytes_max: usize,
}

/// The response to a [`FilterRequest`].
#[derive(Debug)]
pub struct FilterResponse {
    /// The endpoint that has responded, by its position.
    pub endpoint: usize,
    /// The status.
    pub status: u16,
    /// The fields.
    pub fields: Fields,
    /// The body, as far as it has come.
    pub body: Vec<u8>,
    /// All of the body has come. Otherwise it broke off, or took too long.
    pub is_whole: bool,
    /// From the wait for a connection to the end of the body.
    pub took: Duration,
    /// The right to the body, from `limits.buffered_bytes`.
    pub(crate) _permit: BytesPermit,
}

/// The reason why a [`FilterRequest`] has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterRequestError {
    /// No endpoint could be reached.
    Unreachable,
    /// The endpoint did not respond as it should, or in time.
    Failed,
    /// The body is longer than it may be.
    TooLong,
    /// `limits.buffered_bytes` has no room for the body.
    NoRoom,
}

/// The outcome of a [`FilterRequest`].
pub type FilterRequestOutcome = Result<FilterResponse, FilterRequestError>;
