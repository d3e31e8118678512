//! One request and its response, as a list of stages.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use weir_base::permit::LocalPermit;
use weir_http_codec::{BodyLength, RequestHead, Version};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    access_notes::AccessNotes,
    affinity,
    attempt::call_timeout,
    body_inspection::BodyInspection,
    buffering::{self, BufferPlan, BufferingLimits},
    choice::{InspectionContext, apply_target, choose},
    client::{AfterExchange, Client},
    compression::{self, Coding, Compression},
    connection::Connection,
    destination::{Destination, UpstreamRoute},
    dispatch::DispatchEnd,
    fallback::Original,
    handler,
    local_reply::LocalReply,
    mirror::MirrorCopy,
    own_response,
    refusal::Refusal,
    request_context::RequestContext,
    respond,
    retry::Retries,
    routing::route,
    service::Routing,
    settings::HttpListenerSettings,
    upgrade::RequestedUpgrade,
    upstream_request::UpstreamRequest,
    wait::{WaitAborted, while_client_waits},
};

/// Serves one request.
pub(crate) async fn run(client: &mut impl Client, head: &mut RequestHead) -> AfterExchange {
    let connection = client.connection().clone();
    let service = &connection.service;
    let (settings, routing) = (service.http(), service.routing());
    let mut request = request_context(client, head, &settings);
    // Admit: before anything else is spent on a request that is one too many. The permit lasts until the response is over.
    let _admitted = match admit(&connection, &request) {
        Ok(admitted) => admitted,
        Err(refusal) => return respond::refuse(client, &request, refusal),
    };
    // Route, policies: the policies are those of the route, and a request that they refuse leaves no trace at an origin. Routes and
    // policies with a response of their own end here.
    let destination = while_client_waits(client, None, route(&connection, &routing, head, &request, &settings)).await;
    let mut routed = match destination_or_reply(client, &request, destination) {
        Ok(Destination::Upstream(routed)) => routed,
        Ok(Destination::Handler(handled)) => {
            return Box::pin(handler::run(client, &mut request, head, &settings, *handled)).await;
        }
        Err(after) => return after,
    };
    // Target: the upgrade and the timeouts depend on the version that the upstream speaks.
    if let Err(refusal) = apply_target(&mut request, head, &routed, &settings) {
        return respond::refuse(client, &request, refusal);
    }
    request.coding = coding(&request, head, &routed, &settings);
    request.note_policies_passed();
    forward(client, &mut request, head, &mut routed, &routing, &settings).await
}

/// Forwards a request that has passed its policies.
async fn forward<'r>(
    client: &mut impl Client,
    request: &mut RequestContext,
    head: &mut RequestHead,
    routed: &mut UpstreamRoute<'r>,
    routing: &'r Routing,
    settings: &HttpListenerSettings,
) -> AfterExchange {
    let (connection, action) = (client.connection().clone(), routed.action);
    // Inspect: a body is read before a lane is taken for it, as far as it may be buffered: a slow client holds no lane. An inspection
    // sees it on its way, and may choose another target once it has seen enough.
    let retry = action.retry.as_deref().unwrap_or(&settings.retry);
    let inspection = BodyInspection::begin(head, request);
    if let Some(refused) = inspection.as_deref().filter(|inspection| inspection.borrow().is_refused()) {
        return respond::refuse_inspected(client, request, &mut refused.borrow_mut());
    }
    let chosen_after = inspection.as_deref().map_or(0, |inspection| inspection.borrow().buffer_bytes());
    let buffer = BufferPlan::of(client, request, head, routed, settings, chosen_after);
    let mirror_copy = RefCell::new(mirror_copy(&connection, routing, routed, head, request));
    let buffered = buffering::buffered_body(client, request, retry, routed.upstream.is_multiplexed(), buffer);
    let context = InspectionContext {
        routing,
        settings,
        retry,
        buffered: buffered.as_ref(),
        waits: buffer.waits,
        mirror_copy: &mirror_copy,
        inspection: inspection.as_deref(),
    };
    let mut original = None;
    if buffer.waits || context.chooses(request) {
        // Every connection pays for the size of this future, and requests without a body do not need it.
        original = match weir_engine::recycled(|| inspect_body(client, request, head, routed, &context)).await {
            Ok(original) => original,
            Err(after) => return after,
        };
    }
    request.note_lane_requested();
    loop {
        match attempts(client, request, head, routed, &context).await {
            DispatchEnd::Over(after) => return after,
            // Without an original there is no other choice.
            DispatchEnd::Next => {
                let Some(original) = &original else { return respond::refuse(client, request, Refusal::FILTER_FAILED) };
                original.restore(request, head, routed);
                if let Err(after) = choose(client, request, head, routed, &context, original.is_whole) {
                    return after;
                }
            }
        }
    }
}

/// Attempt, respond, settle: each attempt has a lane of its own, and none follows once the client has a part of a response.
async fn attempts(
    client: &mut impl Client,
    request: &RequestContext,
    head: &RequestHead,
    routed: &UpstreamRoute<'_>,
    context: &InspectionContext<'_, '_>,
) -> DispatchEnd {
    let InspectionContext { routing, settings, retry, buffered, mirror_copy, inspection, .. } = *context;
    let connection = client.connection().clone();
    request.set_deadlines();
    let timeouts = [call_timeout(request, routed.action, settings), request.deadlines().total];
    let timeout = timeouts.into_iter().flatten().min();
    let upstream_request = UpstreamRequest {
        connection: &connection,
        settings,
        request,
        routed,
        identity_fields: &routing.routes.identity_fields,
        retries: Retries::new(retry, routed.upstream, request, &connection.service, buffered),
        mirror_copy,
        inspection,
        affinity: affinity::of(&connection, routed.upstream.affinity(), head, request),
        ends: timeout.map(|timeout| request.arrived.saturating_add(timeout)),
    };
    upstream_request.run(client, head).await
}

/// The destination of a routed request.
///
/// # Errors
/// The exchange is over.
fn destination_or_reply<'r>(
    client: &mut impl Client,
    request: &RequestContext,
    destination: Result<Result<Destination<'r>, LocalReply>, WaitAborted>,
) -> Result<Destination<'r>, AfterExchange> {
    if let Some(filter_handle) = request.filter_handle.get() {
        filter_handle.count(client.sent_bytes());
    }
    match destination {
        Ok(Ok(destination)) => Ok(destination),
        Ok(Err(LocalReply::Refusal(refusal))) => Err(respond::refuse(client, request, refusal)),
        Ok(Err(LocalReply::Response(mut response))) => Err(respond::send(client, request, &mut response, "ok")),
        Err(aborted) => Err(respond::wait_aborted(client, request, aborted)),
    }
}

/// Reads a body before an origin gets the request, and lets the inspection choose the target. Returns the request for another choice, if
/// one may follow.
///
/// # Errors
/// The exchange is over.
async fn inspect_body<'r>(
    client: &mut impl Client,
    request: &mut RequestContext,
    head: &mut RequestHead,
    routed: &mut UpstreamRoute<'r>,
    context: &InspectionContext<'_, 'r>,
) -> Result<Option<Box<Original<'r>>>, AfterExchange> {
    let InspectionContext { routing, settings, mirror_copy, inspection, .. } = *context;
    let mut is_whole = true;
    if let Some(buffered) = context.buffered.filter(|_| context.waits) {
        let mirror_copy = mirror_copy.borrow().clone();
        let buffering_limits = BufferingLimits {
            room: routed.body_bytes_max(settings, request),
            rate: routed.body_rate_min(settings),
            timeout: routed.action.request_timeout.or(settings.request_timeout),
            identity_fields: &routing.routes.identity_fields,
            copy: mirror_copy.as_ref().map(|mirror_copy| &mirror_copy.body),
            inspection,
        };
        is_whole = match buffering::run(client, request, buffered, buffering_limits).await {
            Ok(is_whole) => is_whole,
            Err(failure) => {
                let upstream = &routed.upstream.settings().name;
                return Err(respond::body_failed(client, request, failure, upstream, inspection));
            }
        };
    }
    if !context.chooses(request) {
        return Ok(None);
    }
    if is_whole {
        let ends = call_timeout(request, routed.action, settings);
        let ends = ends.map(|timeout| request.arrived.saturating_add(timeout));
        own_response::run(client, request, head, ends, context).await?;
    }
    let original = Original::keep(request, head, routed, is_whole);
    if let (Some(buffered), Some(_)) = (context.buffered, &original) {
        let mut buffered = buffered.borrow_mut();
        let bytes = buffered.len();
        buffered.keep(bytes);
    }
    choose(client, request, head, routed, context, is_whole).map(|()| original)
}

/// The facts of a request as it came, and its notes if it is chosen for the access log.
fn request_context(client: &impl Client, head: &RequestHead, settings: &HttpListenerSettings) -> RequestContext {
    let service = &client.connection().service;
    service.metrics.requested(head.method());
    let mut request = RequestContext::of(head, client.requested_upgrade(head), settings);
    if service.metrics.durations.samples_stages() {
        request.time_stages();
    }
    request.notes = service.sessions.samples_access().then(|| AccessNotes::new(head, client.sent_bytes()));
    request
}

/// A place among the exchanges under way.
fn admit(connection: &Connection, request: &RequestContext) -> Result<(LocalPermit, GaugeGuard), Refusal> {
    let service = &connection.service;
    let Some(permit) = service.sessions.core().flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return Err(Refusal::IN_FLIGHT);
    };
    if request.is_grpc && !request.version.is_multiplexed() {
        return Err(Refusal::GRPC_NEEDS_HTTP2);
    }
    Ok((permit, service.metrics.in_flight.guard()))
}

/// The coding of the response, by the client's Accept-Encoding: a filter may change the head later.
fn coding(
    request: &RequestContext,
    head: &RequestHead,
    routed: &UpstreamRoute<'_>,
    settings: &HttpListenerSettings,
) -> Option<(Option<Coding>, Arc<Compression>)> {
    if request.is_head || request.version == Version::Http10 {
        return None;
    }
    let compression = routed.action.compression.as_ref().or(settings.compression.as_ref());
    let compression = compression.filter(|compression| !compression.codings.is_empty())?;
    Some((compression::coding(compression, head), compression.clone()))
}

/// The copy for a mirror, unless it is on its way already: that of a request without a body is.
fn mirror_copy(
    connection: &Connection,
    routing: &Routing,
    routed: &UpstreamRoute<'_>,
    head: &RequestHead,
    request: &RequestContext,
) -> Option<Rc<MirrorCopy>> {
    // A tunnel is no request that could be copied.
    let mirror = routed.action.mirror.as_ref().filter(|_| request.upgrade == RequestedUpgrade::None)?;
    let host = routed.host.as_deref().unwrap_or(head.authority());
    let mirror_copy = MirrorCopy::of(connection, mirror, &routing.upstreams[mirror.upstream], head, host)?;
    if request.body != BodyLength::Exact(0) {
        return Some(mirror_copy);
    }
    mirror_copy.send(connection, request, routed);
    None
}
