//! One request and its response, as a list of stages.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use weir_base::permit::LocalPermit;
use weir_http_codec::{BodyLength, Known, RequestHead, Version, strip_hop_by_hop};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    access_notes::AccessNotes,
    affinity,
    attempt::call_timeout,
    body_inspection::BodyInspection,
    buffered_body::BufferedBody,
    buffering::{self, BufferPlan, BufferingLimits},
    client::{AfterExchange, Client},
    compression::{self, Coding, Compression},
    connection::Connection,
    destination::{Destination, UpstreamRoute},
    filter::UpstreamChoice,
    handler,
    local_reply::LocalReply,
    mirror::MirrorCopy,
    options::RetrySettings,
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
    // Inspect: a body is read before a lane is taken for it, as far as it may be buffered: a slow client holds no lane. An inspection
    // sees it on its way, and may choose another target once it has seen enough.
    let retry = routed.action.retry.as_deref().unwrap_or(&settings.retry);
    let inspection = BodyInspection::begin(head, &request);
    let inspected = inspection.as_deref().map_or(0, |inspection| inspection.borrow().buffer_bytes());
    let buffer = BufferPlan::of(client, &mut request, head, &routed, &settings, inspected);
    let mirror_copy = RefCell::new(mirror_copy(&connection, &routing, &routed, head, &request));
    let buffered = buffering::buffered_body(client, &request, retry, routed.upstream.is_multiplexed(), buffer);
    if let Some(buffered) = buffered.as_ref().filter(|_| buffer.waits) {
        let context = InspectionContext {
            routing: &routing,
            settings: &settings,
            retry,
            buffered,
            mirror_copy: &mirror_copy,
            inspection: inspection.as_deref(),
        };
        // Every connection pays for the size of this future, and requests without a body do not need it.
        if let Err(after) = Box::pin(inspect_body(client, &mut request, head, &mut routed, context)).await {
            return after;
        }
    }
    request.note_lane_requested();
    let affinity = affinity::of(&connection, routed.upstream.affinity(), head, &request);
    // Attempt, respond, settle: each attempt has a lane of its own, and none follows once the client has a part of a response.
    let ends = call_timeout(&request, routed.action, &settings).map(|timeout| request.arrived.saturating_add(timeout));
    let retries = Retries::new(retry, routed.upstream, &request, service, buffered.as_ref());
    let upstream_request = UpstreamRequest {
        connection: &connection,
        settings: &settings,
        request: &request,
        routed: &routed,
        identity_fields: &routing.routes.identity_fields,
        retries,
        mirror_copy,
        inspection: inspection.as_deref(),
        affinity,
        ends,
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
        Ok(Err(LocalReply::Response(response))) => Err(respond::send(client, request, &response, "ok")),
        Err(aborted) => Err(respond::wait_aborted(client, request, aborted)),
    }
}

/// The parts of an exchange that a buffered body needs.
struct InspectionContext<'a, 'r> {
    routing: &'r Routing,
    settings: &'a HttpListenerSettings,
    retry: &'a RetrySettings,
    buffered: &'a RefCell<BufferedBody>,
    mirror_copy: &'a RefCell<Option<Rc<MirrorCopy>>>,
    inspection: Option<&'a RefCell<BodyInspection>>,
}

/// Reads a body before an origin gets the request, and lets the inspection choose the target.
///
/// # Errors
/// The exchange is over.
async fn inspect_body<'r>(
    client: &mut impl Client,
    request: &mut RequestContext,
    head: &mut RequestHead,
    routed: &mut UpstreamRoute<'r>,
    context: InspectionContext<'_, 'r>,
) -> Result<(), AfterExchange> {
    let InspectionContext { routing, settings, retry, buffered, mirror_copy, inspection } = context;
    let mirror_copy = mirror_copy.borrow().clone();
    let buffering_limits = BufferingLimits {
        room: routed.body_bytes_max(settings, request),
        rate: routed.body_rate_min(settings),
        timeout: routed.action.request_timeout.or(settings.request_timeout),
        identity_fields: &routing.routes.identity_fields,
        copy: mirror_copy.as_ref().map(|mirror_copy| &mirror_copy.body),
        inspection,
    };
    let is_whole = match buffering::run(client, request, buffered, buffering_limits).await {
        Ok(is_whole) => is_whole,
        Err(failure) => {
            return Err(respond::body_failed(client, request, failure, &routed.upstream.settings().name, inspection));
        }
    };
    let inspection = inspection.map(RefCell::borrow_mut).filter(|inspection| inspection.buffer_bytes() > 0);
    let Some(mut inspection) = inspection else { return Ok(()) };
    let choice = inspection.choose_upstream(head, is_whole);
    // The body keeps the framing of the gateway, whatever was done to the head.
    strip_hop_by_hop(&mut head.fields);
    head.fields.remove(Known::ContentLength);
    match choice {
        Some(UpstreamChoice::Route) => Ok(()),
        Some(UpstreamChoice::Upstream { name, host }) => {
            let Some(upstream) = routing.upstream(&name) else {
                return Err(respond::refuse(client, request, Refusal::ROUTE_INVALID));
            };
            routed.upstream = upstream;
            routed.host = host.map(Vec::from).or(routed.host.take());
            apply_target(request, head, routed, settings)
                .map_err(|refusal| respond::refuse(client, request, refusal))?;
            // Another kind of upstream may want other retries.
            buffered.borrow_mut().keep(buffering::retry_bytes(request, retry, upstream.is_multiplexed()));
            Ok(())
        }
        None => Err(respond::refuse_inspected(client, request, &mut inspection)),
    }
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

/// Applies the version that the upstream speaks: the upgrade, and the timeouts.
fn apply_target(
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
    request.is_call = request.is_grpc && is_multiplexed;
    let (body_idle, answer_idle) = match request.is_call {
        true => (settings.grpc_idle_timeout, settings.grpc_idle_timeout),
        false => (settings.body_idle_timeout, settings.answer_idle_timeout),
    };
    request.body_idle_timeout = action.body_idle_timeout.unwrap_or(body_idle);
    request.answer_idle_timeout = action.answer_idle_timeout.unwrap_or(answer_idle);
    match request.upgrade {
        RequestedUpgrade::Malformed if may_tunnel => return Err(Refusal::WEBSOCKET_HANDSHAKE),
        RequestedUpgrade::WebSocket(_) if may_tunnel => request.upgrade.add_headers(head),
        _ => request.upgrade = RequestedUpgrade::None,
    }
    Ok(())
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
