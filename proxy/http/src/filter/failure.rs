//! Attempts that failed, and the decision of a filter on them.

use weir_http_codec::Fields;

use super::response::WholeResponse;
use crate::options::RetryCause;

/// Attempts at one request that a filter may choose, whatever [`HttpFilter::attempts_max`](super::HttpFilter::attempts_max) says. Default
/// 8: more providers of one service stand behind no gateway, and a client has given up by then.
pub const ATTEMPTS_MAX: u32 = 8;

/// An attempt that failed while the client has no part of a response.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// Choices so far: 1 for the first, also if the route has tried several endpoints of its upstream.
    pub number: u32,
    /// The upstream.
    pub upstream: &'a str,
    /// The kind of the failure.
    pub cause: RetryCause,
    /// The word of the access log for it: `connect`, `no_healthy_endpoint`, `origin_closed`, `first_byte_timeout` and others;
    /// `origin_status` for a response with a status of 400 and more.
    pub reason: &'static str,
    /// The status of the response that is there. 0: there is none.
    pub status: u16,
    /// Its fields, as the origin sent them.
    pub fields: Option<&'a Fields>,
    /// [`AfterFailure::Next`] has an effect: attempts, the time of the exchange, the retry budget of the upstream and the bytes of the
    /// request body are there for another one. Without connection, or if the origin has not begun with the request, the budget does not
    /// matter.
    pub may_go_on: bool,
}

/// The decision of a filter on a failed attempt.
#[derive(Clone, Debug)]
pub enum AfterFailure {
    /// The client gets the response that is there, or the refusal of the gateway.
    Respond,
    /// Another attempt follows, after another choice. Without [`FailedAttempt::may_go_on`] as `Respond`.
    Next,
    /// The client gets this, and the log the reason of the failure.
    Refuse(WholeResponse),
}
