//! One request and its response, as a list of stages.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use weir_base::permit::LocalPermit;
use weir_http_codec::{BodyLength, Known, RequestHead, Version, strip_hop_by_hop};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    affinity,
    asked::Asked,
    attempt::call_timeout,
    buffering::{self, Buffer, Passing},
    client::{After, Client},
    compression::{self, Coding, Compression},
    connection::Connection,
    doors::Choice,
    handling,
    inspecting::Inspecting,
    kept::Kept,
    local::Local,
    mirror::Copying,
    notes::Notes,
    options::RetrySettings,
    passage::Passage,
    refusal::Refusal,
    respond,
    retry::Retries,
    routed::{Found, Routed},
    routing::route,
    service::Routing,
    settings::HttpListenerSettings,
    upgrade::Wish,
    waiting::{Cut, while_wanted},
};

/// Has one request answered.
pub(crate) async fn run(client: &mut impl Client, head: &mut RequestHead) -> After {
    let connection = client.connection().clone();
    let service = &connection.service;
    let (settings, routing) = (service.http(), service.routing());
    let mut asked = received(client, head, &settings);
    // Admit: before anything else is spent on a request that is one too many. The permit lasts until the response is over.
    let _admitted = match admit(&connection, &asked) {
        Ok(admitted) => admitted,
        Err(refusal) => return respond::refuse(client, &asked, refusal),
    };
    // Route, judge: the policies are those of the route, and what they refuse leaves no trace at an origin. Routes and policies that
    // answer by themselves end here.
    let found = while_wanted(client, None, route(&connection, &routing, head, &asked, &settings)).await;
    let mut routed = match goes_on(client, &asked, found) {
        Ok(Found::Upstream(routed)) => routed,
        Ok(Found::Handler(handled)) => {
            return Box::pin(handling::run(client, &mut asked, head, &settings, *handled)).await;
        }
        Err(after) => return after,
    };
    // Target: what the client may become, and how long it may take, depends on the version that its upstream speaks.
    if let Err(refusal) = aim(&mut asked, head, &routed, &settings) {
        return respond::refuse(client, &asked, refusal);
    }
    asked.coding = coding(&asked, head, &routed, &settings);
    asked.note_judged();
    // Inspect: a body is read before a lane is taken for it, as far as it may be kept: a slow client holds no lane. An inspection sees it
    // on its way, and may choose the target anew once it has seen enough.
    let retry = routed.action.retry.as_deref().unwrap_or(&settings.retry);
    let inspecting = Inspecting::begin(head, &asked);
    let inspected = inspecting.as_deref().map_or(0, |inspecting| inspecting.borrow().bytes_kept());
    let buffer = Buffer::of(client, &mut asked, head, &routed, &settings, inspected);
    let copying = RefCell::new(copying(&connection, &routing, &routed, head, &asked));
    let kept = buffering::kept(client, &asked, retry, routed.upstream.is_multiplexed(), buffer);
    if let Some(kept) = kept.as_ref().filter(|_| buffer.waits) {
        let ready = Ready {
            routing: &routing,
            settings: &settings,
            retry,
            kept,
            copying: &copying,
            inspecting: inspecting.as_deref(),
        };
        // Every connection pays for the size of this future, and requests without a body do not need it.
        if let Err(after) = Box::pin(inspect_body(client, &mut asked, head, &mut routed, ready)).await {
            return after;
        }
    }
    asked.note_wanted();
    let affinity = affinity::of(&connection, routed.upstream.affinity(), head, &asked);
    // Attempt, respond, settle: each attempt has a lane of its own, and none follows once the client has a part of a response.
    let ends = call_timeout(&asked, routed.action, &settings).map(|timeout| asked.arrived.saturating_add(timeout));
    let retries = Retries::new(retry, routed.upstream, &asked, service, kept.as_ref());
    let passage = Passage {
        connection: &connection,
        settings: &settings,
        asked: &asked,
        routed: &routed,
        identity_fields: &routing.routes.identity_fields,
        retries,
        copying,
        inspecting: inspecting.as_deref(),
        affinity,
        ends,
    };
    passage.run(client, head).await
}

/// What goes on of a request whose route was looked for.
///
/// # Errors
/// The exchange is over.
fn goes_on<'r>(
    client: &mut impl Client,
    asked: &Asked,
    found: Result<Result<Found<'r>, Local>, Cut>,
) -> Result<Found<'r>, After> {
    if let Some(company) = asked.company.get() {
        company.count(client.sent_bytes());
    }
    match found {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(Local::Refused(refusal))) => Err(respond::refuse(client, asked, refusal)),
        Ok(Err(Local::Answered(answer))) => Err(respond::answer(client, asked, &answer, "ok")),
        Err(cut) => Err(respond::cut_short(client, asked, cut)),
    }
}

/// What a body meets that is read before an origin is asked.
struct Ready<'a, 'r> {
    routing: &'r Routing,
    settings: &'a HttpListenerSettings,
    retry: &'a RetrySettings,
    kept: &'a RefCell<Kept>,
    copying: &'a RefCell<Option<Rc<Copying>>>,
    inspecting: Option<&'a RefCell<Inspecting>>,
}

/// Reads a body before an origin is asked, and has the inspection choose the target anew.
///
/// # Errors
/// The exchange is over.
async fn inspect_body<'r>(
    client: &mut impl Client,
    asked: &mut Asked,
    head: &mut RequestHead,
    routed: &mut Routed<'r>,
    ready: Ready<'_, 'r>,
) -> Result<(), After> {
    let Ready { routing, settings, retry, kept, copying, inspecting } = ready;
    let copying = copying.borrow().clone();
    let passing = Passing {
        room: routed.body_bytes_max(settings, asked),
        rate: routed.body_rate_min(settings),
        timeout: routed.action.request_timeout.or(settings.request_timeout),
        identity_fields: &routing.routes.identity_fields,
        copied: copying.as_ref().map(|copying| &copying.body),
        inspecting,
    };
    let is_whole = match buffering::run(client, asked, kept, passing).await {
        Ok(is_whole) => is_whole,
        Err(failure) => {
            return Err(respond::unread(client, asked, failure, &routed.upstream.settings().name, inspecting));
        }
    };
    let inspection = inspecting.map(RefCell::borrow_mut).filter(|inspection| inspection.bytes_kept() > 0);
    let Some(mut inspection) = inspection else { return Ok(()) };
    let choice = inspection.choose(head, is_whole);
    // The body keeps the framing of the gateway, whatever was done to the head.
    strip_hop_by_hop(&mut head.fields);
    head.fields.remove(Known::ContentLength);
    match choice {
        Some(Choice::Stay) => Ok(()),
        Some(Choice::Upstream { name, host }) => {
            let Some(upstream) = routing.upstream(&name) else {
                return Err(respond::refuse(client, asked, Refusal::ROUTE_INVALID));
            };
            routed.upstream = upstream;
            routed.host = host.map(Vec::from).or(routed.host.take());
            aim(asked, head, routed, settings).map_err(|refusal| respond::refuse(client, asked, refusal))?;
            // Another kind of upstream may want other retries.
            kept.borrow_mut().keep(buffering::kept_for_retry(asked, retry, upstream.is_multiplexed()));
            Ok(())
        }
        None => Err(respond::inspected(client, asked, &mut inspection)),
    }
}

/// The facts of a request as it came, and its notes if it is chosen for the access log.
fn received(client: &impl Client, head: &RequestHead, settings: &HttpListenerSettings) -> Asked {
    let service = &client.connection().service;
    service.metrics.requested(head.method());
    let mut asked = Asked::of(head, client.wish(head), settings);
    if service.metrics.durations.samples_stages() {
        asked.time_stages();
    }
    asked.notes = service.sessions.samples_access().then(|| Notes::new(head, client.sent_bytes()));
    asked
}

/// A place among the exchanges under way.
fn admit(connection: &Connection, asked: &Asked) -> Result<(LocalPermit, GaugeGuard), Refusal> {
    let service = &connection.service;
    let Some(permit) = service.sessions.core().flight.try_acquire() else {
        service.metrics.shed(Refusal::IN_FLIGHT.reason);
        return Err(Refusal::IN_FLIGHT);
    };
    if asked.is_grpc && !asked.version.is_multiplexed() {
        return Err(Refusal::GRPC_NEEDS_HTTP2);
    }
    Ok((permit, service.metrics.in_flight.guard()))
}

/// Settles what depends on the version that the upstream speaks: what the client becomes, and its timeouts.
fn aim(
    asked: &mut Asked,
    head: &mut RequestHead,
    routed: &Routed<'_>,
    settings: &HttpListenerSettings,
) -> Result<(), Refusal> {
    let (action, is_multiplexed) = (routed.action, routed.upstream.is_multiplexed());
    let may_tunnel = routed.upgrades(settings).websocket && !is_multiplexed;
    let is_tunnel = may_tunnel && asked.wish != Wish::Malformed;
    if asked.version.is_multiplexed() && asked.wish != Wish::None && !is_tunnel {
        return Err(Refusal::CONNECT_PROTOCOL);
    }
    if is_multiplexed {
        // What a connection may become, a stream cannot.
        asked.wish = Wish::None;
    }
    // A client's word alone that this is gRPC lifts no limit: the origin must be able to speak it.
    asked.is_call = asked.is_grpc && is_multiplexed;
    let (body_idle, answer_idle) = match asked.is_call {
        true => (settings.grpc_idle_timeout, settings.grpc_idle_timeout),
        false => (settings.body_idle_timeout, settings.answer_idle_timeout),
    };
    asked.body_idle_timeout = action.body_idle_timeout.unwrap_or(body_idle);
    asked.answer_idle_timeout = action.answer_idle_timeout.unwrap_or(answer_idle);
    match asked.wish {
        Wish::Malformed if may_tunnel => return Err(Refusal::WEBSOCKET_HANDSHAKE),
        Wish::WebSocket(_) if may_tunnel => asked.wish.ask(head),
        _ => asked.wish = Wish::None,
    }
    Ok(())
}

/// How the response is compressed, by what the client takes: a companion may change the head later.
fn coding(
    asked: &Asked,
    head: &RequestHead,
    routed: &Routed<'_>,
    settings: &HttpListenerSettings,
) -> Option<(Option<Coding>, Arc<Compression>)> {
    if asked.is_head || asked.version == Version::Http10 {
        return None;
    }
    let compression = routed.action.compression.as_ref().or(settings.compression.as_ref());
    let compression = compression.filter(|compression| !compression.codings.is_empty())?;
    Some((compression::coding(compression, head), compression.clone()))
}

/// The copy for a mirror, unless it is on its way already: that of a request without a body is.
fn copying(
    connection: &Connection,
    routing: &Routing,
    routed: &Routed<'_>,
    head: &RequestHead,
    asked: &Asked,
) -> Option<Rc<Copying>> {
    // What becomes a tunnel is no request that could be copied.
    let mirror = routed.action.mirror.as_ref().filter(|_| asked.wish == Wish::None)?;
    let host = routed.host.as_deref().unwrap_or(head.authority());
    let copying = Copying::of(connection, mirror, &routing.upstreams[mirror.upstream], head, host)?;
    if asked.body != BodyLength::Exact(0) {
        return Some(copying);
    }
    copying.send(connection, asked, routed);
    None
}
