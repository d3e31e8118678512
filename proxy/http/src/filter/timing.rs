//! The time of an exchange, as its filter sees it.

use std::time::Duration;

/// The parts of the time since the head of the request came. They add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExchangeTiming {
    /// Until the policies of the route let the request pass, with their waits.
    pub policy: Duration,
    /// Reading the buffered part of the request body, inspecting it, and choosing.
    pub request: Duration,
    /// Waiting for a connection to an origin, in all attempts.
    pub queue: Duration,
    /// From a connection to the head of the response, or to its first byte if that has a deadline, in all attempts.
    pub upstream: Duration,
    /// From there on.
    pub response: Duration,
    /// All of it.
    pub total: Duration,
}
