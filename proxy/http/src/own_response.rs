//! Responses that a filter gives itself, its waits for them, and its own requests.

use std::{cell::RefCell, pin::Pin};

use weir_base::{error::Culprit, time::Time, violation::Violation};
use weir_http_codec::RequestHead;

use crate::{
    buffered_body::BufferedBody,
    choice::InspectionContext,
    client::{AfterExchange, Client},
    filter::{OWN_REQUESTS_MAX, OwnResponse, SeenBody},
    handler, own_request,
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
            Some(OwnResponse::Wait(event)) => wait(client, request, (ends, Phase::Queue), event).await?,
            Some(OwnResponse::Send(requests)) => {
                let connection = client.connection().clone();
                if requests.len() > OWN_REQUESTS_MAX {
                    let rule = "a filter made too many requests at once";
                    let violation = Violation::rule(Refusal::FILTER_FAILED.reason, Culprit::Gateway, rule);
                    connection.service.sessions.violated(&connection.handle, &violation);
                    return Err(respond::refuse(client, request, Refusal::FILTER_FAILED));
                }
                let sent = own_request::send_all(&connection, context.routing, requests);
                let outcomes = wait(client, request, (ends, Phase::Upstream), Box::pin(sent)).await?;
                inspection.borrow_mut().own_requests_done(outcomes);
            }
            Some(OwnResponse::Respond(response)) => {
                return Err(handler::send(client, request, response, ends).await);
            }
            None => return Err(respond::refuse_inspected(client, request, &mut inspection.borrow_mut())),
        }
    }
}

/// Waits for an event of the filter, or for the end of its requests.
async fn wait<T>(
    client: &mut impl Client,
    request: &RequestContext,
    (ends, phase): (Option<Time>, Phase),
    event: Pin<Box<dyn Future<Output = T> + '_>>,
) -> Result<T, AfterExchange> {
    request.enter(phase);
    let waited = while_client_waits(client, ends, event).await;
    request.enter(Phase::Request);
    match waited {
        Ok(done) => Ok(done),
        Err(WaitAborted::TimedOut) => Err(respond::refuse(client, request, Refusal::REQUEST_TIMEOUT)),
        Err(aborted) => Err(respond::wait_aborted(client, request, aborted)),
    }
}
