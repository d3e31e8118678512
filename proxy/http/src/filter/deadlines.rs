//! Deadlines that a filter sets.

use std::time::Duration;

/// Deadlines of one exchange, besides those of the route. `None`: only those of the route hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// From the end of the request to the first byte of the body of the final response, at each attempt. The head of the response is held
    /// until then: a failure before has a response of the gateway, or another attempt. Reason: `first_byte_timeout`, with a 504.
    pub first_byte: Option<Duration>,
    /// Longest pause in the body of the response, in place of that of the route. Reason: `idle_timeout`; the response breaks off.
    pub idle: Option<Duration>,
    /// From the head of the request to the end of the response, over all attempts, if the route does not have less. It ends no body that is
    /// still being buffered: the timeouts of the route do. Reason: `request_timeout`, with a 504; `call_expired` if the response has begun and breaks off.
    pub total: Option<Duration>,
}
