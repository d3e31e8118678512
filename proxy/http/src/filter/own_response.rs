//! The response that a filter gives itself, in place of one of an origin.

use std::pin::Pin;

use super::{FilterRequest, HandlerResponse};

/// The decision of a filter on a whole request, before its first choice.
pub enum OwnResponse {
    /// The filter has no response: its choice of an upstream follows.
    None,
    /// The filter waits for an event, and is called again behind it. The future must be bounded in time; it is dropped if the client
    /// disconnects meanwhile, or the timeout of the whole request passes. The body stays buffered.
    Wait(Pin<Box<dyn Future<Output = ()>>>),
    /// These requests go out at once, at most [`OWN_REQUESTS_MAX`](super::OWN_REQUESTS_MAX). Their outcomes come in the same order with
    /// [`HttpFilter::own_requests_done`](super::HttpFilter::own_requests_done), and the filter is called again behind it. All are dropped
    /// if the client disconnects meanwhile, or the timeout of the whole request passes. The body stays buffered.
    Send(Vec<FilterRequest>),
    /// The client gets this, and no origin sees the request. Policies put their fields into it; the changes of fields of the route,
    /// taps and compression do not touch it.
    Respond(HandlerResponse),
}
