//! Responses that a filter gives itself, and its waits for them.

use std::{cell::RefCell, pin::Pin};

use weir_base::time::Time;
use weir_http_codec::RequestHead;

use crate::{
    buffered_body::BufferedBody,
    choice::InspectionContext,
    client::{AfterExchange, Client},
    filter::{OwnResponse, SeenBody},
    handler,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    stopwatch::Phase,
    wait::{WaitAborted, while_client_waits},
};

/// Lets the filter respond to a whole request, until the request `ends`.
///
/// # Errors
/// The exchange is over.
pub(crate) async fn run(
    client: &mut impl Client,
    request: &RequestContext,
    head: &RequestHead,
    ends: Option<Time>,
    context: &InspectionContext<'_, '_>,
) -> Result<(), AfterExchange> {
    let Some(inspection) = context.inspection else { return Ok(()) };
    loop {
        let own = {
            let buffered = context.buffered.map(RefCell::borrow);
            let bytes = buffered.as_deref().map_or(&[][..], BufferedBody::bytes);
            let lease = &client.connection().service.sessions.core().bytes;
            inspection.borrow_mut().own_response(head, SeenBody::new(bytes, true, lease))
        };
        match own {
            Some(OwnResponse::None) => return Ok(()),
            Some(OwnResponse::Wait(event)) => wait(client, request, ends, event).await?,
            Some(OwnResponse::Respond(response)) => {
                return Err(handler::send(client, request, response, ends).await);
            }
            None => return Err(respond::refuse_inspected(client, request, &mut inspection.borrow_mut())),
        }
    }
}

/// Waits for an event of the filter.
async fn wait(
    client: &mut impl Client,
    request: &RequestContext,
    ends: Option<Time>,
    event: Pin<Box<dyn Future<Output = ()>>>,
) -> Result<(), AfterExchange> {
    request.enter(Phase::Queue);
    let waited = while_client_waits(client, ends, event).await;
    request.enter(Phase::Request);
    match waited {
        Ok(()) => Ok(()),
        Err(WaitAborted::TimedOut) => Err(respond::refuse(client, request, Refusal::REQUEST_TIMEOUT)),
        Err(aborted) => Err(respond::wait_aborted(client, request, aborted)),
    }
}
