//! One request and its response, as a list of stages.

use std::{cell::RefCell, rc::Rc};

use weir_base::permit::LocalPermit;
use weir_http_codec::{BodyLength, RequestHead, Version};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    affinity,
    asked::Asked,
    attempt::call_timeout,
    buffering::{self, Passing},
    client::{After, Client},
    compression,
    connection::Connection,
    mirror::Copying,
    notes::Notes,
    passage::Passage,
    refusal::Refusal,
    respond,
    retry::Retries,
    routed::Routed,
    routing::route,
    service::Routing,
    settings::HttpListenerSettings,
    upgrade::Wish,
    waiting::while_wanted,
};

/// Has one request answered.
pub(crate) async fn run(client: &mut impl Client, head: &mut RequestHead) -> After {
    let connection = client.connection().clone();
    let service = &connection.service;
    let (settings, routing) = (service.http(), service.routing());
    let identity_fields = &*routing.routes.identity_fields;
    let mut asked = received(client, head, &settings);
    // Admit: before anything else is spent on a request that is one too many. The permit lasts until the response is over.
    let _admitted = match admit(&connection, &asked) {
        Ok(admitted) => admitted,
        Err(refusal) => return respond::refuse(client, &asked, refusal),
    };
    // Route, judge: the policies are those of the route, and what they refuse leaves no trace at an origin. Routes and policies that
    // answer by themselves end here.
    let routed = match while_wanted(client, None, route(&connection, &routing, head, &asked, &settings)).await {
        Ok(Ok(routed)) => routed,
        Ok(Err(local)) => return respond::local(client, &asked, local),
        Err(cut) => return respond::cut_short(client, &asked, cut),
    };
    // Target: what the client may become, and how long it may take, depends on the version that its upstream speaks.
    if let Err(refusal) = aim(&mut asked, head, &routed, &settings) {
        return respond::refuse(client, &asked, refusal);
    }
    // Inspect: a body is read before a lane is taken for it, as far as it may be kept: a slow client holds no lane.
    let retry = routed.action.retry.as_deref().unwrap_or(&settings.retry);
    let buffer = buffering::Buffer::of(client, &mut asked, head, &routed, &settings);
    let copying = RefCell::new(copying(&connection, &routing, &routed, head, &asked));
    let affinity = affinity::of(&connection, routed.upstream.affinity(), head, &asked);
    let kept = buffering::kept(client, &asked, retry, routed.upstream.is_multiplexed(), buffer);
    if let Some(kept) = kept.as_ref().filter(|_| buffer.waits) {
        let passing = Passing { routed: &routed, settings: &settings, identity_fields, copying: &copying };
        // Every connection pays for the size of this future, and requests without a body do not need it.
        if let Err(failure) = Box::pin(buffering::run(client, &mut asked, kept, passing)).await {
            return respond::unread(client, &asked, failure, &routed.upstream.settings().name);
        }
    }
    // Attempt, respond, settle: each attempt has a lane of its own, and none follows once the client has a part of a response.
    let ends = call_timeout(&asked, &routed, &settings).map(|timeout| asked.arrived.saturating_add(timeout));
    let retries = Retries::new(retry, routed.upstream, &asked, service, kept.as_ref());
    let (connection, settings, asked, routed) = (&connection, &*settings, &asked, &routed);
    let passage = Passage { connection, settings, asked, routed, identity_fields, retries, copying, affinity, ends };
    passage.run(client, head).await
}

/// The facts of a request as it came, and its notes if it is chosen for the access log.
fn received(client: &impl Client, head: &RequestHead, settings: &HttpListenerSettings) -> Asked {
    let service = &client.connection().service;
    service.metrics.requested(head.method());
    let mut asked = Asked::of(head, client.wish(head), settings);
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

/// Settles what depends on the version that the upstream speaks: what the client becomes, its timeouts, and how its response is
/// compressed.
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
        // A client's word alone that this is gRPC lifts no limit: the origin must be able to speak it.
        asked.is_call = asked.is_grpc;
        if asked.is_call {
            asked.body_idle_timeout = settings.grpc_idle_timeout;
            asked.answer_idle_timeout = settings.grpc_idle_timeout;
        }
    }
    asked.body_idle_timeout = action.body_idle_timeout.unwrap_or(asked.body_idle_timeout);
    asked.answer_idle_timeout = action.answer_idle_timeout.unwrap_or(asked.answer_idle_timeout);
    match asked.wish {
        Wish::Malformed if may_tunnel => return Err(Refusal::WEBSOCKET_HANDSHAKE),
        Wish::WebSocket(_) if may_tunnel => asked.wish.ask(head),
        _ => asked.wish = Wish::None,
    }
    if !asked.is_head && asked.version != Version::Http10 {
        let compression = action.compression.as_ref().or(settings.compression.as_ref());
        let compression = compression.filter(|compression| !compression.codings.is_empty());
        asked.coding = compression.map(|one| (compression::coding(one, head), one.clone()));
    }
    Ok(())
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
