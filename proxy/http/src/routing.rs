//! From a request to its route: where it goes, and what of its head changes on the way.

use std::{borrow::Cow, future::poll_fn, pin::Pin, rc::Rc, sync::Arc, task::Poll};

use weir_http_codec::{BodyLength, Fields, Known, RequestHead, strip_hop_by_hop};
use weir_route::{
    Route,
    redirect::{self, Redirect, Scheme},
};
use weir_upstream::settings::Affinity;

use crate::{
    asked::Asked,
    company::Company,
    connection::Connection,
    doors::{Caller, Handler},
    ext_auth::ExtAuth,
    facts::Facts,
    forward::{self, Forwarded},
    judge::{self, Stop, Wait},
    local::Local,
    policies::{Admitted, Identity},
    refusal::Refusal,
    response::OwnAnswer,
    routed::{Found, Handled, Routed, body_bytes_max},
    routes::{Action, Target},
    service::Routing,
    settings::HttpListenerSettings,
    trace,
    upstream::HttpUpstream,
    variables::Variables,
};

/// Chooses the route, asks its policies, and makes the head ready to go on. With one and the same `settings` all the way: what is
/// asked again after a wait leads to the same route, whatever was reloaded meanwhile.
pub(crate) async fn route<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
) -> Result<Found<'a>, Local> {
    let mut admitted = None;
    loop {
        match choose(connection, routing, head, asked, settings, &mut admitted) {
            Ok(found) => break befall(connection, head, asked, found.action()).await.map(|()| found),
            Err(Stop::Local(local)) => break Err(local),
            // What has to be waited for has boxes of its own: every connection pays for the size of this future.
            Err(Stop::Wait(Wait::Password(slow))) => Box::pin(judge::find_out(connection, *slow)).await?,
            Err(Stop::Wait(Wait::Keys(keys))) => {
                unless_ended(connection, Box::pin(connection.fetch(&keys).wait())).await??;
            }
            Err(Stop::Wait(Wait::Service(service))) => {
                let told =
                    unless_ended(connection, Box::pin(ask(&service, connection, routing, head, asked, settings)));
                admitted.get_or_insert_with(Admitted::default).told = Some(told.await??);
            }
        }
    }
}

/// Has another service decide.
async fn ask(
    service: &ExtAuth,
    connection: &Connection,
    routing: &Routing,
    head: &RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
) -> Result<Fields, Local> {
    let (upstream, client) = (routing.upstream(&service.upstream), connection.forwarded());
    let told = (settings.forwarded, &client);
    service.ask(&connection.service.metrics, upstream, head, told, &asked.own_fields()).await
}

/// Lets the fault of the route happen, if it has one.
async fn befall(connection: &Connection, head: &RequestHead, asked: &Asked, action: &Action) -> Result<(), Local> {
    let Some(fault) = &action.fault else { return Ok(()) };
    let service = &connection.service;
    let fault = Box::pin(fault.befall(&service.metrics, || service.sessions.chance(), head));
    match unless_ended(connection, fault).await? {
        None => Ok(()),
        Some(status) => Err(Local::text(status, "a fault on purpose\n", &asked.own_fields())),
    }
}

/// Waits, unless the connection is told to end first.
async fn unless_ended<T>(connection: &Connection, mut wait: Pin<Box<impl Future<Output = T>>>) -> Result<T, Refusal> {
    let (listening, _listed) = connection.listening();
    poll_fn(|context| match listening.poll_ended(connection, context) {
        true => Poll::Ready(Err(Refusal::POLICY_FAILED)),
        false => wait.as_mut().poll(context).map(Ok),
    })
    .await
}

fn choose<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
    known: &mut Option<Admitted>,
) -> Result<Found<'a>, Stop> {
    if !routing.routes.identity_fields.is_empty() {
        forward::clean(&routing.routes.identity_fields, &mut head.fields);
    }
    let facts = Facts::of(head, &settings.path_rules)?;
    let route = routing.routes.table.find(&facts).ok_or(Refusal::NO_ROUTE)?;
    let action = &route.action;
    if let Some(metrics) = routing.metrics.get(action.number) {
        // Set already if it is asked again after a slow check.
        let _ = asked.route.set(metrics.clone());
    }
    if let Some(notes) = &asked.notes {
        notes.note_route(&route.name);
    }
    accompany(connection, route, head, asked);
    let admitted = judged(connection, action, head, asked, settings, known);
    if let Some(company) = asked.company.get() {
        company.caller().borrow_mut().identity = identity(asked);
    }
    let admitted = admitted?;
    if let Some(service) = unasked(action, admitted.as_ref()) {
        // It judges the path that goes on, not another way to write it.
        let target = facts.target(&facts.path);
        if let Some(target) = target {
            head.set_target(&target);
        }
        *known = admitted;
        return Err(Stop::Wait(Wait::Service(service)));
    }
    let upstream = match target(connection, routing, route, &facts, head, asked)? {
        Answers::Upstream(upstream) => upstream,
        Answers::Handler(handler) => {
            let target = facts.target(&facts.path);
            let caller = prepare_handled(connection, route, head, target, asked, settings, admitted.as_ref());
            return Ok(Found::Handler(Box::new(Handled { handler, action, caller })));
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
    let routed = Routed { name: &route.name, action, upstream, host };
    prepare(connection, &routed, head, asked, settings, admitted.as_ref());
    Ok(Found::Upstream(routed))
}

/// Gives the exchange its companion, if the route has a door and the request has not been here before a wait.
fn accompany(connection: &Connection, route: &Route<Action>, head: &RequestHead, asked: &Asked) {
    let Some(door) = &route.action.door else { return };
    asked.company.get_or_init(|| {
        let caller = caller(connection, route, head);
        Rc::new(Company::new(door.enter(head, &caller), caller, asked.arrived))
    });
}

/// The caller, while the head still says what proxies have said.
fn caller(connection: &Connection, route: &Route<Action>, head: &RequestHead) -> Caller {
    let client = connection.addresses(&head.fields).1;
    Caller { route: route.name.clone(), client, identity: None, request_id: None }
}

/// Who the policies have found.
fn identity(asked: &Asked) -> Option<Box<str>> {
    asked.answer_fields.get()?.identity.as_ref().and_then(Identity::name).map(Into::into)
}

/// The judgement of the policies of a route, and of its limit of bodies. `known`: what they have found out before a wait.
fn judged(
    connection: &Connection,
    action: &Action,
    head: &RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
    known: &mut Option<Admitted>,
) -> Result<Option<Admitted>, Stop> {
    let admitted = match (&action.policies, known.take()) {
        (None, _) => None,
        (Some(_), Some(known)) => Some(known),
        (Some(policies), None) => Some(policies.judge(connection, head, asked)?),
    };
    // Whether it is a call is known with its upstream; the body is measured once more as it passes.
    if matches!(asked.body, BodyLength::Exact(length) if length > body_bytes_max(action, settings, asked, true)) {
        connection.service.metrics.denied(Refusal::BODY_TOO_LONG.reason);
        return Err(Refusal::BODY_TOO_LONG.into());
    }
    Ok(admitted)
}

/// The service that is still to decide.
fn unasked(action: &Action, admitted: Option<&Admitted>) -> Option<Arc<ExtAuth>> {
    let service = action.policies.as_ref()?.ext_auth.as_ref()?;
    admitted.filter(|admitted| admitted.told.is_none()).map(|_| service.clone())
}

/// Who answers.
enum Answers<'a> {
    Upstream(&'a Rc<HttpUpstream>),
    Handler(&'a Arc<dyn Handler>),
}

/// Who answers a request.
///
/// # Errors
/// The gateway does, with this.
fn target<'a>(
    connection: &Connection,
    routing: &'a Routing,
    route: &'a Route<Action>,
    facts: &Facts<'_>,
    head: &RequestHead,
    asked: &Asked,
) -> Result<Answers<'a>, Local> {
    // The fields of the gateway's own response.
    let fields = || {
        let mut fields = asked.own_fields();
        let known = Variables::of_route(connection, &route.name, Some(head), asked);
        known.change(&mut fields, &route.action.response_fields);
        fields
    };
    match &route.action.target {
        Target::Upstream(split) => {
            let chance = if split.targets().len() == 1 { 0 } else { connection.service.sessions.chance() };
            Ok(Answers::Upstream(&routing.upstreams[*split.choose(chance)]))
        }
        Target::Invalid => Err(Refusal::ROUTE_INVALID.into()),
        Target::Response(response) => {
            let answer = OwnAnswer::new(response.status, response.content_type.as_bytes(), response.body.clone());
            Err(Local::Answered(Box::new(answer.with(&fields()))))
        }
        Target::Handler(handler) => Ok(Answers::Handler(handler)),
        Target::Redirect(redirect) => {
            let location = location(connection, redirect, facts)?;
            let mut fields = fields();
            fields.set_named(b"Location", &location);
            Err(Local::text(redirect.status().code(), "", &fields))
        }
    }
}

/// Makes the head of a request ready for its handler, and finds out about its caller.
fn prepare_handled(
    connection: &Connection,
    route: &Route<Action>,
    head: &mut RequestHead,
    target: Option<Vec<u8>>,
    asked: &Asked,
    settings: &HttpListenerSettings,
    admitted: Option<&Admitted>,
) -> Caller {
    let caller = caller(connection, route, head);
    if let Some(target) = target {
        head.set_target(&target);
    }
    strip_hop_by_hop(&mut head.fields);
    name(connection, head, asked, settings);
    if let (Some(policies), Some(admitted)) = (&route.action.policies, admitted) {
        policies.tell(admitted, head);
    }
    Caller { identity: identity(asked), request_id: request_id(head), ..caller }
}

/// Gives a request the names by which it is found again.
fn name(connection: &Connection, head: &mut RequestHead, asked: &Asked, settings: &HttpListenerSettings) {
    let chance = || connection.service.sessions.chance();
    if settings.request_id {
        trace::request_id(&mut head.fields, settings.forwarded, chance);
    }
    trace::trace(&mut head.fields, settings.trace_context, chance);
    if let Some(notes) = &asked.notes {
        notes.note_fields(&head.fields);
    }
    if let Some(company) = asked.company.get() {
        company.caller().borrow_mut().request_id = request_id(head);
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
fn prepare(
    connection: &Connection,
    routed: &Routed<'_>,
    head: &mut RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
    admitted: Option<&Admitted>,
) {
    let action = routed.action;
    if matches!(routed.upstream.affinity(), Affinity::Address) || action.door.is_some() {
        // While the head still says what proxies have said.
        let _ = asked.client.set(connection.addresses(&head.fields).1);
    }
    let client = Forwarded { via: settings.via.as_deref(), ..connection.forwarded() };
    forward::request(head, settings.forwarded, &client);
    name(connection, head, asked, settings);
    // After what the client named in Connection has gone: who asks must not go with it.
    if let (Some(policies), Some(admitted)) = (&action.policies, admitted) {
        policies.tell(admitted, head);
    }
    if !action.request_fields.is_empty() {
        let before = head.clone();
        let known = Variables::of_routed(connection, routed, Some(&before), asked);
        known.change(&mut head.fields, &action.request_fields);
    }
}
