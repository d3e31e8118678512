//! From a request to its route: where it goes, and what of its head changes on the way.

use std::{borrow::Cow, future::poll_fn, pin::Pin, rc::Rc, sync::Arc, task::Poll};

use weir_http_codec::{BodyLength, Fields, RequestHead};
use weir_route::redirect::{self, Scheme};
use weir_upstream::settings::Affinity;

use crate::{
    connection::Connection,
    exchange::Asked,
    ext_auth::ExtAuth,
    facts::Facts,
    forward::{self, Forwarded},
    jwks::{self, RemoteKeys},
    policies::{self, Admitted, Slow},
    refusal::Refusal,
    routes::{self, Action, DirectResponse, Target},
    service::{HttpUpstream, Routing},
    settings::{HttpListenerSettings, REQUEST_BODY_BYTES_MAX, Upgrades},
    trace,
    variables::Variables,
};

/// Where a request goes.
pub(crate) struct Routed<'a> {
    pub(crate) name: &'a str,
    pub(crate) action: &'a Action,
    pub(crate) upstream: &'a Rc<HttpUpstream>,
    /// Of the request that goes on, if it is another one.
    pub(crate) host: Option<Vec<u8>>,
}

impl Routed<'_> {
    /// What the connection may become.
    pub(crate) fn upgrades(&self, settings: &HttpListenerSettings) -> Upgrades {
        self.action.upgrades.unwrap_or(settings.upgrades)
    }

    /// Bytes a second that the body of the request must bring at least. 0: as slow as it likes.
    pub(crate) fn body_rate_min(&self, settings: &HttpListenerSettings) -> u64 {
        self.action.body_rate_min.unwrap_or(settings.body_rate_min)
    }

    /// Bytes of the request's body.
    pub(crate) fn body_bytes_max(&self, settings: &HttpListenerSettings, asked: &Asked) -> u64 {
        body_bytes_max(self.action, settings, asked, self.upstream.is_multiplexed())
    }
}

fn body_bytes_max(action: &Action, settings: &HttpListenerSettings, asked: &Asked, is_multiplexed: bool) -> u64 {
    match action.request_body_bytes_max.or(settings.request_body_bytes_max) {
        // As with nginx, 0 is no limit.
        Some(0) => u64::MAX,
        Some(most) => most,
        // A call may stream for as long as its client likes; a client's word alone makes no call.
        None if asked.is_grpc && is_multiplexed => u64::MAX,
        None => REQUEST_BODY_BYTES_MAX,
    }
}

/// What is answered without an origin.
pub(crate) enum Local {
    Refused(Refusal),
    Direct(Arc<DirectResponse>, Fields),
    /// Nothing yet: it depends on a check that takes milliseconds.
    Slow(Box<Slow>),
    /// Nothing yet: it depends on keys that have to be fetched.
    Keys(Arc<RemoteKeys>),
    /// Nothing yet: another service decides.
    Ask(Arc<ExtAuth>),
}

impl Local {
    /// 204 with these fields.
    pub(crate) fn no_content(fields: Fields) -> Self {
        Self::text(204, "", fields)
    }

    /// A few words.
    fn text(status: u16, text: &str, fields: Fields) -> Self {
        let content_type = if text.is_empty() { "" } else { "text/plain; charset=utf-8" };
        let (content_type, body) = (content_type.to_owned(), text.as_bytes().to_vec());
        Self::Direct(Arc::new(DirectResponse { status, content_type, body }), fields)
    }
}

/// Chooses the route, asks its policies, and makes the head ready to go on. With one and the same `settings` all the way: what is
/// asked again after a wait leads to the same route, whatever was reloaded meanwhile.
pub(crate) async fn route<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    asked: &Asked,
    settings: &HttpListenerSettings,
) -> Result<Routed<'a>, Local> {
    let mut admitted = None;
    loop {
        // What has to be waited for has boxes of its own: every connection pays for the size of this future.
        match choose(connection, routing, head, asked, settings, &mut admitted) {
            Err(Local::Slow(slow)) => Box::pin(policies::find_out(connection, *slow)).await.map_err(Local::Refused)?,
            Err(Local::Keys(keys)) => {
                unless_ended(connection, Box::pin(jwks::fetch(connection, &keys))).await?.map_err(Local::Refused)?;
            }
            Err(Local::Ask(service)) => {
                let told = unless_ended(connection, Box::pin(service.ask(connection, routing, head, asked))).await??;
                admitted.get_or_insert_with(Admitted::default).told = Some(told);
            }
            Ok(routed) => {
                if let Some(fault) = &routed.action.fault
                    && let Some(status) = unless_ended(connection, Box::pin(fault.befall(connection, head))).await?
                {
                    return Err(Local::text(status, "a fault on purpose\n", own_fields(asked)));
                }
                return Ok(routed);
            }
            refused => return refused,
        }
    }
}

/// Waits, unless the connection is told to end first.
async fn unless_ended<T>(connection: &Connection, mut wait: Pin<Box<impl Future<Output = T>>>) -> Result<T, Local> {
    let (listening, _listed) = connection.listening();
    poll_fn(|context| match listening.poll_ended(connection, context) {
        true => Poll::Ready(Err(Local::Refused(Refusal::POLICY_FAILED))),
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
) -> Result<Routed<'a>, Local> {
    if !routing.routes.identity_fields.is_empty() {
        policies::clean(&routing.routes.identity_fields, &mut head.fields);
    }
    let facts = Facts::of(head, &settings.path_rules).map_err(Local::Refused)?;
    let route = routing.routes.table.find(&facts).ok_or(Local::Refused(Refusal::NO_ROUTE))?;
    let action = &route.action;
    if let Some(metrics) = routing.metrics.get(action.number) {
        // Set already if it is asked again after a slow check.
        let _ = asked.route.set(metrics.clone());
    }
    if let Some(notes) = &asked.notes {
        notes.note_route(&route.name);
    }
    let admitted = match (&action.policies, known.take()) {
        (None, _) => None,
        (Some(_), Some(known)) => Some(known),
        (Some(policies), None) => Some(policies.judge(connection, head, asked)?),
    };
    // Whether it is a call is known with its upstream; the body is measured once more as it passes.
    if matches!(asked.body, BodyLength::Exact(length) if length > body_bytes_max(action, settings, asked, true)) {
        connection.service.metrics.denied(Refusal::BODY_TOO_LONG.reason);
        return Err(Local::Refused(Refusal::BODY_TOO_LONG));
    }
    if let Some(service) = action.policies.as_ref().and_then(|policies| policies.ext_auth.as_ref())
        && admitted.as_ref().is_some_and(|admitted| admitted.told.is_none())
    {
        // It judges the path that goes on, not another way to write it.
        let target = facts.target(&facts.path);
        let service = service.clone();
        if let Some(target) = target {
            head.set_target(&target);
        }
        *known = admitted;
        return Err(Local::Ask(service));
    }
    let upstream = match &action.target {
        Target::Upstream(split) if split.targets().len() == 1 => &routing.upstreams[*split.choose(0)],
        Target::Upstream(split) => &routing.upstreams[*split.choose(connection.service.sessions.chance())],
        Target::Invalid => return Err(Local::Refused(Refusal::ROUTE_INVALID)),
        Target::Response(response) => {
            let mut fields = own_fields(asked);
            let known = Variables::of_route(connection, &route.name, Some(head), asked);
            routes::change(&mut fields, &action.response_fields, &known);
            return Err(Local::Direct(response.clone(), fields));
        }
        Target::Redirect(redirect) => {
            let scheme = if connection.is_tls() { Scheme::Https } else { Scheme::Http };
            let Facts { host, port, path, query, .. } = &facts;
            let target = redirect::Target { scheme, host, port: *port, path, query: *query };
            let location = redirect.location(&target).map_err(|_| Local::Refused(Refusal::REWRITE))?;
            let mut fields = own_fields(asked);
            let known = Variables::of_route(connection, &route.name, Some(head), asked);
            routes::change(&mut fields, &action.response_fields, &known);
            fields.set_named(b"Location", &location);
            return Err(Local::text(redirect.status().code(), "", fields));
        }
    };
    let path = match &action.path {
        Some(rewrite) => rewrite.apply(&facts.path).map_err(|_| Local::Refused(Refusal::REWRITE))?,
        None => Cow::Borrowed(&*facts.path),
    };
    let target = facts.target(&path);
    let host = match &action.host {
        Some(rewrite) => rewrite.apply(&facts).map_err(|_| Local::Refused(Refusal::HOST))?.map(Cow::into_owned),
        None => None,
    };
    if let Some(target) = target {
        head.set_target(&target);
    }
    let routed = Routed { name: &route.name, action, upstream, host };
    if matches!(upstream.affinity(), Affinity::Address) {
        // While the head still says what proxies have said.
        let _ = asked.client.set(connection.addresses(&head.fields).1);
    }
    let client = Forwarded { via: settings.via.as_deref(), ..connection.forwarded() };
    forward::request(head, settings.forwarded, &client);
    if settings.request_id {
        trace::request_id(&mut head.fields, settings.forwarded, || connection.service.sessions.chance());
    }
    trace::trace(&mut head.fields, settings.trace_context, || connection.service.sessions.chance());
    if let Some(notes) = &asked.notes {
        notes.note_fields(&head.fields);
    }
    // After what the client named in Connection has gone: who asks must not go with it.
    if let (Some(policies), Some(admitted)) = (&action.policies, &admitted) {
        policies.tell(admitted, head);
    }
    if !action.request_fields.is_empty() {
        let before = head.clone();
        let known = Variables::of_routed(connection, &routed, Some(&before), asked);
        routes::change(&mut head.fields, &action.request_fields, &known);
    }
    Ok(routed)
}

/// What the gateway's own answers carry because of policies.
pub(crate) fn own_fields(asked: &Asked) -> Fields {
    asked.answer_fields.get().map(|answer| answer.own().clone()).unwrap_or_default()
}
