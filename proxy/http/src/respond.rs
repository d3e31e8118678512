//! Responses in the gateway's own name.

use std::cell::RefCell;

use weir_base::time::Time;
use weir_http_codec::Known;
use weir_listener::CloseReason;

use crate::{
    body_inspection::BodyInspection,
    client::{AfterExchange, Client},
    connection::Connection,
    failure::{AttemptFailure, INSPECTED},
    filter::WholeResponse,
    local_response::LocalResponse,
    refusal::Refusal,
    refusal_format::RefusalFacts,
    request_context::RequestContext,
    upgrade::RequestedUpgrade,
    wait::WaitAborted,
};

/// Sends a response without an upstream. `outcome`: the word of the access log, `ok` for a regular response of the route.
pub(crate) fn send(
    client: &mut impl Client,
    request: &RequestContext,
    response: &mut LocalResponse,
    outcome: &'static str,
) -> AfterExchange {
    // A 2xx would mean that the WebSocket stands (RFC 8441 section 5).
    let is_misleading = request.version.is_multiplexed() && request.upgrade != RequestedUpgrade::None;
    if is_misleading && (200..300).contains(&response.head.status()) {
        return refuse(client, request, Refusal::CONNECT_PROTOCOL);
    }
    let reason = if outcome == "ok" { "after_response" } else { outcome };
    change_head(request, response);
    let after = client.reply(request, response, false, reason);
    client.connection().record_response(request, response.head.status(), None, "", outcome);
    after
}

/// Lets the filter of the route change the head of a response of the gateway's own.
pub(crate) fn change_head(request: &RequestContext, response: &mut LocalResponse) {
    let Some(filter_handle) = request.filter_handle.get() else { return };
    let status = response.head.status();
    filter_handle.change_head(status, &mut response.head.fields);
    // The framing is the gateway's.
    response.head.fields.retain(|field| !matches!(field.known, Known::Connection | Known::TransferEncoding));
}

/// Sends a response of another room.
pub(crate) fn send_whole(
    client: &mut impl Client,
    request: &RequestContext,
    whole: WholeResponse,
    outcome: &'static str,
) -> AfterExchange {
    let WholeResponse { status, fields, body } = whole;
    self::send(
        client,
        request,
        &mut LocalResponse::new(status, b"", body).with_own(fields).with(&request.local_response_fields()),
        outcome,
    )
}

/// Sends a response of a filter in place of this upstream, which failed for `reason` and received the request at `sent`.
pub(crate) fn send_for(
    client: &mut impl Client,
    request: &RequestContext,
    whole: WholeResponse,
    reason: &'static str,
    sent: Option<Time>,
    upstream: &str,
) -> AfterExchange {
    let WholeResponse { status, fields, body } = whole;
    let mut response = LocalResponse::new(status, b"", body).with_own(fields).with(&request.local_response_fields());
    change_head(request, &mut response);
    let after = client.reply(request, &response, false, reason);
    client.connection().record_response(request, status, sent, upstream, reason);
    after
}

/// Breaks off a response after its start.
pub(crate) fn abort(
    connection: &Connection,
    request: &RequestContext,
    status: u16,
    reason: CloseReason,
) -> AfterExchange {
    connection.record_abort(request, status, None, "", reason);
    AfterExchange::Abort(reason)
}

/// Refuses a request that goes to no upstream.
pub(crate) fn refuse(client: &mut impl Client, request: &RequestContext, refusal: Refusal) -> AfterExchange {
    refuse_for(client, request, refusal, None, "")
}

/// Refuses a request in place of this upstream, which received it at `sent`.
pub(crate) fn refuse_for(
    client: &mut impl Client,
    request: &RequestContext,
    refusal: Refusal,
    sent: Option<Time>,
    upstream: &str,
) -> AfterExchange {
    let connection = client.connection().clone();
    let own = request.policy_fields.get().map(|fields| fields.own());
    let mut response = refusal.response(own, connection.service.sessions.chance());
    if !request.is_grpc {
        response = format(&connection, Some(request), &refusal, response);
    }
    change_head(request, &mut response);
    let after = client.reply(request, &response, refusal.closes, refusal.reason);
    connection.record_response(request, refusal.status, sent, upstream, refusal.reason);
    after
}

/// The response to a request without a valid head.
pub(crate) fn malformed(connection: &Connection, refusal: &Refusal) -> LocalResponse {
    format(connection, None, refusal, refusal.response(None, connection.service.sessions.chance()))
}

/// Gives a refusal the form of the filter, or else that of the target or of the listener, if one has it.
fn format(
    connection: &Connection,
    request: Option<&RequestContext>,
    refusal: &Refusal,
    response: LocalResponse,
) -> LocalResponse {
    let retry_after = response.head.fields.get(Known::RetryAfter);
    let retry_after = retry_after.and_then(|value| std::str::from_utf8(value).ok()?.trim().parse().ok());
    let facts = RefusalFacts { status: refusal.status, reason: refusal.reason, text: refusal.text, retry_after };
    let filter_handle = request.and_then(|request| request.filter_handle.get());
    let own = filter_handle.and_then(|handle| handle.with(|filter| filter.format_refusal(&facts)));
    let own = own.or_else(|| Some(request?.refusal_format?.format(&facts)));
    let form = own.or_else(|| connection.service.http().refusal_format.as_ref().map(|one| one.format(&facts)));
    match form {
        Some(form) => response.formatted(form),
        None => response,
    }
}

/// Refuses a request with the response of its inspection.
pub(crate) fn refuse_inspected(
    client: &mut impl Client,
    request: &RequestContext,
    inspection: &mut BodyInspection,
) -> AfterExchange {
    match inspection.refused() {
        Some(refused) => send_whole(client, request, refused, INSPECTED),
        None => refuse(client, request, Refusal::POLICY_FAILED),
    }
}

/// Ends a request without an upstream, because its wait was aborted.
pub(crate) fn wait_aborted(client: &mut impl Client, request: &RequestContext, aborted: WaitAborted) -> AfterExchange {
    let failure = match aborted {
        WaitAborted::Body(broken) => client.connection().body_failure(broken),
        WaitAborted::ClientGone | WaitAborted::TimedOut => AttemptFailure::ClientGone,
    };
    body_failed(client, request, failure, "", None)
}

/// Ends a request whose body failed before an origin got it.
pub(crate) fn body_failed(
    client: &mut impl Client,
    request: &RequestContext,
    failure: AttemptFailure,
    upstream: &str,
    inspection: Option<&RefCell<BodyInspection>>,
) -> AfterExchange {
    match (failure, inspection) {
        (AttemptFailure::Inspected, Some(inspection)) => {
            refuse_inspected(client, request, &mut inspection.borrow_mut())
        }
        (AttemptFailure::Client(refusal), _) => {
            client.connection().record_client_fault(&refusal);
            refuse(client, request, refusal)
        }
        (AttemptFailure::Declined(refusal), _) => refuse(client, request, refusal),
        _ => {
            client.connection().record_disconnect(request, None, upstream);
            AfterExchange::Close(CloseReason::ClientReset)
        }
    }
}
