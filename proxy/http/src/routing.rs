//! From a request to its route: where it goes, and what of its head changes on the way.

use std::{borrow::Cow, future::poll_fn, pin::Pin, rc::Rc, sync::Arc, task::Poll};

use weir_http_codec::{BodyLength, Fields, Known, RequestHead, strip_hop_by_hop};
use weir_route::{
    Route,
    redirect::{self, Redirect, Scheme},
};
use weir_upstream::settings::Affinity;

use crate::{
    connection::Connection,
    destination::{Destination, HandlerRoute, UpstreamRoute, body_bytes_max},
    ext_auth::ExtAuth,
    facts::Facts,
    filter::{Caller, FilterFactory, Handler},
    filter_handle::FilterHandle,
    forward::{self, Forwarded},
    local_reply::LocalReply,
    local_response::LocalResponse,
    policies::{Admitted, Identity},
    policy_check::{self, PolicyStop, PolicyWait},
    refusal::Refusal,
    request_context::RequestContext,
    routes::{Action, Target},
    service::Routing,
    settings::HttpListenerSettings,
    trace,
    upstream::HttpUpstream,
    variables::Variables,
};

/// Chooses the route, checks its policies, and makes the head ready to go on. All steps use the same `settings`: a check after a wait
/// leads to the same route, whatever was reloaded meanwhile.
pub(crate) async fn route<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    request: &RequestContext,
    settings: &HttpListenerSettings,
) -> Result<Destination<'a>, LocalReply> {
    let mut admitted = None;
    loop {
        match choose(connection, routing, head, request, settings, &mut admitted) {
            Ok(destination) => {
                break inject_faults(connection, head, request, destination.action()).await.map(|()| destination);
            }
            Err(PolicyStop::Reply(reply)) => break Err(reply),
            // Waits have boxes of their own: every connection pays for the size of this future.
            Err(PolicyStop::Wait(PolicyWait::Password(slow))) => {
                Box::pin(policy_check::check_password(connection, *slow)).await?
            }
            Err(PolicyStop::Wait(PolicyWait::Keys(keys))) => {
                unless_ended(connection, Box::pin(connection.fetch(&keys).wait())).await??;
            }
            Err(PolicyStop::Wait(PolicyWait::Service(service))) => {
                let fields = unless_ended(
                    connection,
                    Box::pin(authorize(&service, connection, routing, head, request, settings)),
                );
                admitted.get_or_insert_with(Admitted::default).ext_auth_fields = Some(fields.await??);
            }
        }
    }
}

/// Lets the external service decide.
async fn authorize(
    service: &ExtAuth,
    connection: &Connection,
    routing: &Routing,
    head: &RequestHead,
    request: &RequestContext,
    settings: &HttpListenerSettings,
) -> Result<Fields, LocalReply> {
    let (upstream, client) = (routing.upstream(&service.upstream), connection.forwarded());
    let forwarded = (settings.forwarded, &client);
    service.authorize(&connection.service.metrics, upstream, head, forwarded, &request.local_response_fields()).await
}

/// Injects the faults of the route, if it has some.
async fn inject_faults(
    connection: &Connection,
    head: &RequestHead,
    request: &RequestContext,
    action: &Action,
) -> Result<(), LocalReply> {
    let Some(fault) = &action.fault else { return Ok(()) };
    let service = &connection.service;
    let fault = Box::pin(fault.inject(&service.metrics, || service.sessions.chance(), head));
    match unless_ended(connection, fault).await? {
        None => Ok(()),
        Some(status) => Err(LocalReply::text(status, "a fault on purpose\n", &request.local_response_fields())),
    }
}

/// Waits, unless the connection has to end first.
async fn unless_ended<T>(connection: &Connection, mut wait: Pin<Box<impl Future<Output = T>>>) -> Result<T, Refusal> {
    let (end_waker, _listed) = connection.end_waker();
    poll_fn(|context| match end_waker.poll_ended(connection, context) {
        true => Poll::Ready(Err(Refusal::POLICY_FAILED)),
        false => wait.as_mut().poll(context).map(Ok),
    })
    .await
}

fn choose<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    request: &RequestContext,
    settings: &HttpListenerSettings,
    known: &mut Option<Admitted>,
) -> Result<Destination<'a>, PolicyStop> {
    if !routing.routes.identity_fields.is_empty() {
        forward::remove_fields(&routing.routes.identity_fields, &mut head.fields);
    }
    let facts = Facts::of(head, &settings.path_rules)?;
    let route = routing.routes.table.find(&facts).ok_or(Refusal::NO_ROUTE)?;
    let action = &route.action;
    if let Some(metrics) = routing.metrics.get(action.number) {
        // Set already if this is a check after a wait.
        let _ = request.route.set(metrics.clone());
    }
    if let Some(notes) = &request.notes {
        notes.note_route(&route.name);
    }
    create_filter(connection, routing, route, head, request);
    let admitted = check_policies(connection, action, head, request, settings, known);
    if let Some(filter_handle) = request.filter_handle.get() {
        filter_handle.caller().borrow_mut().identity = identity(request);
    }
    let admitted = admitted?;
    if let Some(service) = pending_ext_auth(action, admitted.as_ref()) {
        // It judges the path that goes on, not another way to write it.
        let target = facts.target(&facts.path);
        if let Some(target) = target {
            head.set_target(&target);
        }
        *known = admitted;
        return Err(PolicyStop::Wait(PolicyWait::Service(service)));
    }
    let upstream = match target(connection, routing, route, &facts, head, request)? {
        ChosenTarget::Upstream(upstream) => upstream,
        ChosenTarget::Handler(handler) => {
            let target = facts.target(&facts.path);
            let caller = prepare_for_handler(connection, route, head, target, request, settings, admitted.as_ref());
            return Ok(Destination::Handler(Box::new(HandlerRoute { handler, action, caller })));
        }
    };
    let path = match &action.path {
        Some(rewrite) => rewrite.apply(&facts.path).map_err(|_| Refusal::REWRITE)?,
        None => Cow::Borrowed(&*facts.path),
    };
    let target = facts.target(&path);
    let host = match &action.host {
        Some(rewrite) => rewrite.apply(&facts).map_err(|_| Refusal::HOST)?.map(Cow::into_owned),
        None => None,
    };
    if let Some(target) = target {
        head.set_target(&target);
    }
    let routed = UpstreamRoute { name: &route.name, action, upstream, host, endpoint: None };
    prepare_for_upstream(connection, &routed, head, request, settings, admitted.as_ref());
    Ok(Destination::Upstream(routed))
}

/// Creates the filter of the exchange, if the route or the listener has a factory and the request has no filter from before a wait.
fn create_filter(
    connection: &Connection,
    routing: &Routing,
    route: &Route<Action>,
    head: &RequestHead,
    request: &RequestContext,
) {
    let factory: &dyn FilterFactory = match (&route.action.filter, &routing.filters) {
        (Some(own), _) => &**own,
        (None, Some(of_listener)) => &**of_listener,
        (None, None) => return,
    };
    request.filter_handle.get_or_init(|| {
        let caller = caller(connection, route, head);
        let mut filter = factory.create(head, &caller);
        filter.enter_connection(connection.handle.entry());
        Rc::new(FilterHandle::new(filter, caller, request.arrived))
    });
}

/// The caller, while the head still says what proxies have said.
fn caller(connection: &Connection, route: &Route<Action>, head: &RequestHead) -> Caller {
    let client = connection.addresses(&head.fields).1;
    Caller { route: route.name.clone(), client, identity: None, request_id: None }
}

/// The identity by the policies.
fn identity(request: &RequestContext) -> Option<Box<str>> {
    request.policy_fields.get()?.identity.as_ref().and_then(Identity::name).map(Into::into)
}

/// Checks the policies of a route, and its limit of bodies. `known`: their results from before a wait.
fn check_policies(
    connection: &Connection,
    action: &Action,
    head: &RequestHead,
    request: &RequestContext,
    settings: &HttpListenerSettings,
    known: &mut Option<Admitted>,
) -> Result<Option<Admitted>, PolicyStop> {
    let admitted = match (&action.policies, known.take()) {
        (None, _) => None,
        (Some(_), Some(known)) => Some(known),
        (Some(policies), None) => Some(policies.check_request(connection, head, request)?),
    };
    // Whether it is a call is known with its upstream; the body is measured once more as it passes.
    if matches!(request.body, BodyLength::Exact(length) if length > body_bytes_max(action, settings, request, true)) {
        connection.service.metrics.denied(Refusal::BODY_TOO_LONG.reason);
        return Err(Refusal::BODY_TOO_LONG.into());
    }
    Ok(admitted)
}

/// The service that is still to decide.
fn pending_ext_auth(action: &Action, admitted: Option<&Admitted>) -> Option<Arc<ExtAuth>> {
    let service = action.policies.as_ref()?.ext_auth.as_ref()?;
    admitted.filter(|admitted| admitted.ext_auth_fields.is_none()).map(|_| service.clone())
}

/// The source of the response.
enum ChosenTarget<'a> {
    Upstream(&'a Rc<HttpUpstream>),
    Handler(&'a Arc<dyn Handler>),
}

/// The source of the response to a request.
///
/// # Errors
/// The gateway responds with this.
fn target<'a>(
    connection: &Connection,
    routing: &'a Routing,
    route: &'a Route<Action>,
    facts: &Facts<'_>,
    head: &RequestHead,
    request: &RequestContext,
) -> Result<ChosenTarget<'a>, LocalReply> {
    // The fields of the gateway's own response.
    let fields = || {
        let mut fields = request.local_response_fields();
        let known = Variables::of_route(connection, &route.name, Some(head), request);
        known.change(&mut fields, &route.action.response_fields);
        fields
    };
    match &route.action.target {
        Target::Upstream(split) => {
            let chance = if split.targets().len() == 1 { 0 } else { connection.service.sessions.chance() };
            Ok(ChosenTarget::Upstream(&routing.upstreams[*split.choose(chance)]))
        }
        Target::Invalid => Err(Refusal::ROUTE_INVALID.into()),
        Target::Response(response) => {
            let local_response =
                LocalResponse::new(response.status, response.content_type.as_bytes(), response.body.clone());
            Err(LocalReply::Response(Box::new(local_response.with(&fields()))))
        }
        Target::Handler(handler) => Ok(ChosenTarget::Handler(handler)),
        Target::Redirect(redirect) => {
            let location = location(connection, redirect, facts)?;
            let mut fields = fields();
            fields.set_named(b"Location", &location);
            Err(LocalReply::text(redirect.status().code(), "", &fields))
        }
    }
}

/// Makes the head of a request ready for its handler, and finds out about its caller.
fn prepare_for_handler(
    connection: &Connection,
    route: &Route<Action>,
    head: &mut RequestHead,
    target: Option<Vec<u8>>,
    request: &RequestContext,
    settings: &HttpListenerSettings,
    admitted: Option<&Admitted>,
) -> Caller {
    let caller = caller(connection, route, head);
    if let Some(target) = target {
        head.set_target(&target);
    }
    strip_hop_by_hop(&mut head.fields);
    set_ids(connection, head, request, settings);
    if let (Some(policies), Some(admitted)) = (&route.action.policies, admitted) {
        policies.forward_identity(admitted, head);
    }
    Caller { identity: identity(request), request_id: request_id(head), ..caller }
}

/// Sets the request id and the trace context.
fn set_ids(connection: &Connection, head: &mut RequestHead, request: &RequestContext, settings: &HttpListenerSettings) {
    let chance = || connection.service.sessions.chance();
    if settings.request_id {
        trace::request_id(&mut head.fields, settings.forwarded, chance);
    }
    trace::trace(&mut head.fields, settings.trace_context, chance);
    if let Some(notes) = &request.notes {
        notes.note_fields(&head.fields);
    }
    if let Some(filter_handle) = request.filter_handle.get() {
        filter_handle.caller().borrow_mut().request_id = request_id(head);
    }
}

fn request_id(head: &RequestHead) -> Option<Box<[u8]>> {
    head.fields.get(Known::XRequestId).map(Into::into)
}

fn location(connection: &Connection, redirect: &Redirect, facts: &Facts<'_>) -> Result<Vec<u8>, Refusal> {
    let scheme = if connection.is_tls() { Scheme::Https } else { Scheme::Http };
    let Facts { host, port, path, query, .. } = facts;
    let target = redirect::Target { scheme, host, port: *port, path, query: *query };
    redirect.location(&target).map_err(|_| Refusal::REWRITE)
}

/// Makes the head of a request ready for its upstream.
fn prepare_for_upstream(
    connection: &Connection,
    routed: &UpstreamRoute<'_>,
    head: &mut RequestHead,
    request: &RequestContext,
    settings: &HttpListenerSettings,
    admitted: Option<&Admitted>,
) {
    let action = routed.action;
    if matches!(routed.upstream.affinity(), Affinity::Address) || request.filter_handle.get().is_some() {
        // While the head still says what proxies have said.
        let _ = request.client.set(connection.addresses(&head.fields).1);
    }
    let client = Forwarded { via: settings.via.as_deref(), ..connection.forwarded() };
    forward::request(head, settings.forwarded, &client);
    set_ids(connection, head, request, settings);
    // After the fields that the client named in Connection are gone: the identity must not go with them.
    if let (Some(policies), Some(admitted)) = (&action.policies, admitted) {
        policies.forward_identity(admitted, head);
    }
    if !action.request_fields.is_empty() {
        let before = head.clone();
        let known = Variables::of_routed(connection, routed, Some(&before), request);
        known.change(&mut head.fields, &action.request_fields);
    }
}
