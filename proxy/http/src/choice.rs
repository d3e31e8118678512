//! The choice of a filter for a request: the upstream, its head and its body.

use std::{cell::RefCell, rc::Rc};

use weir_base::{error::Culprit, violation::Violation};
use weir_http_codec::{BodyLength, Known, RequestHead, strip_hop_by_hop};

use crate::{
    body_change::ChangeError,
    body_inspection::BodyInspection,
    buffered_body::BufferedBody,
    buffering,
    client::{AfterExchange, Client},
    connection::Connection,
    destination::UpstreamRoute,
    filter::{BodyChange, SeenBody, UpstreamChoice},
    mirror::MirrorCopy,
    options::RetrySettings,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    service::Routing,
    settings::HttpListenerSettings,
    stopwatch::Phase,
    upgrade::RequestedUpgrade,
};

/// The parts of an exchange that an inspection and its choice need.
pub(crate) struct InspectionContext<'a, 'r> {
    pub(crate) routing: &'r Routing,
    pub(crate) settings: &'a HttpListenerSettings,
    pub(crate) retry: &'a RetrySettings,
    pub(crate) buffered: Option<&'a RefCell<BufferedBody>>,
    /// The body is read before an origin gets the request.
    pub(crate) waits: bool,
    pub(crate) mirror_copy: &'a RefCell<Option<Rc<MirrorCopy>>>,
    pub(crate) inspection: Option<&'a RefCell<BodyInspection>>,
}

impl InspectionContext<'_, '_> {
    /// The filter chooses the upstream.
    pub(crate) fn chooses(&self, request: &RequestContext) -> bool {
        !request.is_call && self.inspection.is_some_and(|inspection| inspection.borrow().buffer_bytes() > 0)
    }
}

/// Lets the filter choose, and applies its choice.
///
/// # Errors
/// The exchange is over.
pub(crate) fn choose<'r>(
    client: &mut impl Client,
    request: &mut RequestContext,
    head: &mut RequestHead,
    routed: &mut UpstreamRoute<'r>,
    context: &InspectionContext<'_, 'r>,
    is_whole: bool,
) -> Result<(), AfterExchange> {
    let Some(inspection) = context.inspection else { return Ok(()) };
    request.enter(Phase::Request);
    let mut inspection = inspection.borrow_mut();
    let choice = {
        let buffered = context.buffered.map(RefCell::borrow);
        let bytes = buffered.as_deref().map_or(&[][..], BufferedBody::bytes);
        let lease = &client.connection().service.sessions.core().bytes;
        inspection.choose_upstream(head, SeenBody::new(bytes, is_whole, lease))
    };
    if let Some(filter_handle) = request.filter_handle.get() {
        filter_handle.choices.made.set(filter_handle.choices.made.get() + 1);
    }
    // The body keeps the framing of the gateway, whatever was done to the head.
    strip_hop_by_hop(&mut head.fields);
    head.fields.remove(Known::ContentLength);
    let Some(choice) = choice else { return Err(respond::refuse_inspected(client, request, &mut inspection)) };
    change_body(client.connection(), request, context.buffered, choice.body, is_whole)
        .map_err(|refusal| respond::refuse(client, request, refusal))?;
    let (name, host, endpoint) = match choice.upstream {
        UpstreamChoice::Route => return Ok(()),
        UpstreamChoice::Upstream { name, host } => (name, host, None),
        UpstreamChoice::Endpoint { name, host, number } => (name, host, Some(number)),
    };
    let Some(upstream) = context.routing.upstream(&name) else {
        return Err(respond::refuse(client, request, Refusal::ROUTE_INVALID));
    };
    (routed.upstream, routed.endpoint) = (upstream, endpoint);
    routed.host = host.map(Vec::from).or(routed.host.take());
    apply_target(request, head, routed, context.settings)
        .map_err(|refusal| respond::refuse(client, request, refusal))?;
    if let Some(buffered) = context.buffered {
        // Another kind of upstream may want other retries.
        buffered.borrow_mut().keep(buffering::retry_bytes(request, context.retry, upstream.is_multiplexed()));
    }
    Ok(())
}

/// Changes the body with which the request goes on, and its length.
///
/// # Errors
/// The filter broke a rule, or there is no memory.
fn change_body(
    connection: &Connection,
    request: &mut RequestContext,
    buffered: Option<&RefCell<BufferedBody>>,
    change: BodyChange,
    is_whole: bool,
) -> Result<(), Refusal> {
    let came = if let BodyLength::Exact(length) = request.body { length } else { 0 };
    let changed = match buffered {
        Some(buffered) => buffered.borrow_mut().change(change, is_whole, came),
        None if change == BodyChange::Keep => Ok(came),
        None => Err(ChangeError::Rule("a filter changed the body of a request that has none")),
    };
    match (changed, &mut request.body) {
        (Ok(changed), BodyLength::Exact(length)) => *length = changed,
        (Ok(_), BodyLength::Chunked | BodyLength::UntilClose) => {}
        (Err(ChangeError::Rule(rule)), _) => {
            let violation = Violation::rule(Refusal::FILTER_FAILED.reason, Culprit::Gateway, rule);
            connection.service.sessions.violated(&connection.handle, &violation);
            return Err(Refusal::FILTER_FAILED);
        }
        (Err(ChangeError::NoRoom), _) => {
            connection.service.metrics.shed(Refusal::BODY_NO_ROOM.reason);
            return Err(Refusal::BODY_NO_ROOM);
        }
    }
    Ok(())
}

/// Applies the version that the upstream speaks: the upgrade, and the timeouts.
pub(crate) fn apply_target(
    request: &mut RequestContext,
    head: &mut RequestHead,
    routed: &UpstreamRoute<'_>,
    settings: &HttpListenerSettings,
) -> Result<(), Refusal> {
    let (action, is_multiplexed) = (routed.action, routed.upstream.is_multiplexed());
    let may_tunnel = routed.upgrades(settings).websocket && !is_multiplexed;
    let is_tunnel = may_tunnel && request.upgrade != RequestedUpgrade::Malformed;
    if request.version.is_multiplexed() && request.upgrade != RequestedUpgrade::None && !is_tunnel {
        return Err(Refusal::CONNECT_PROTOCOL);
    }
    if is_multiplexed {
        // A connection can be upgraded, a stream cannot.
        request.upgrade = RequestedUpgrade::None;
    }
    // A client's word alone that this is gRPC lifts no limit: the origin must be able to speak it.
    request.is_call = request.is_grpc && is_multiplexed && settings.grpc_calls;
    let (body_idle, response_idle) = match request.is_call {
        true => (settings.grpc_idle_timeout, settings.grpc_idle_timeout),
        false => (settings.body_idle_timeout, settings.response_idle_timeout),
    };
    request.body_idle_timeout = action.body_idle_timeout.unwrap_or(body_idle);
    request.response_idle_timeout = action.response_idle_timeout.unwrap_or(response_idle);
    match request.upgrade {
        RequestedUpgrade::Malformed if may_tunnel => return Err(Refusal::WEBSOCKET_HANDSHAKE),
        RequestedUpgrade::WebSocket(_) if may_tunnel => request.upgrade.add_headers(head),
        _ => request.upgrade = RequestedUpgrade::None,
    }
    Ok(())
}
