//! From a request to its route: where it goes, and what of its head changes on the way.

use std::{borrow::Cow, rc::Rc, sync::Arc};

use weir_http_codec::{Fields, RequestHead};
use weir_route::redirect::{self, Scheme};
use weir_upstream::ExclusiveUpstream;

use crate::{
    connection::Connection,
    exchange::Asked,
    facts::Facts,
    forward,
    refusal::Refusal,
    routes::{self, Action, DirectResponse, Target, Variables},
    service::Routing,
    settings::ForwardedFields,
};

/// Where a request goes.
pub(crate) struct Routed<'a> {
    pub(crate) name: &'a str,
    pub(crate) action: &'a Action,
    pub(crate) upstream: &'a Rc<ExclusiveUpstream>,
    /// Of the request that goes on, if it is another one.
    pub(crate) host: Option<Vec<u8>>,
}

/// What is answered without an origin.
pub(crate) enum Local {
    Refused(Refusal),
    Direct(Arc<DirectResponse>, Fields),
}

/// Chooses the route, and makes the head ready to go on.
pub(crate) fn route<'a>(
    connection: &Connection,
    routing: &'a Routing,
    head: &mut RequestHead,
    asked: &Asked,
    forwarded: ForwardedFields,
) -> Result<Routed<'a>, Local> {
    let facts = Facts::of(head).map_err(Local::Refused)?;
    let route = routing.routes.table.find(&facts).ok_or(Local::Refused(Refusal::NO_ROUTE))?;
    let action = &route.action;
    let upstream = match &action.target {
        Target::Upstream(split) if split.targets().len() == 1 => &routing.upstreams[*split.choose(0)],
        Target::Upstream(split) => &routing.upstreams[*split.choose(connection.service.chance())],
        Target::Response(response) => {
            let mut fields = Fields::new();
            let known = connection.variables(&route.name, Some(head), asked);
            routes::change(&mut fields, &action.response_fields, &known);
            return Err(Local::Direct(response.clone(), fields));
        }
        Target::Redirect(redirect) => {
            let scheme = if connection.is_tls { Scheme::Https } else { Scheme::Http };
            let Facts { host, port, path, query, .. } = &facts;
            let target = redirect::Target { scheme, host, port: *port, path, query: *query };
            let location = redirect.location(&target).map_err(|_| Local::Refused(Refusal::REWRITE))?;
            let mut fields = Fields::new();
            fields.push(b"Location", &location);
            let (status, content_type, body) = (redirect.status().code(), String::new(), Vec::new());
            return Err(Local::Direct(Arc::new(DirectResponse { status, content_type, body }), fields));
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
    forward::request(head, forwarded, &connection.peer_name, connection.is_tls);
    if !action.request_fields.is_empty() {
        let before = head.clone();
        let known = connection.known(&routed, Some(&before), asked);
        routes::change(&mut head.fields, &action.request_fields, &known);
    }
    Ok(routed)
}

impl Connection {
    fn variables<'a>(&self, route: &'a str, head: Option<&'a RequestHead>, asked: &Asked) -> Variables<'a> {
        Variables { peer: self.peer, head, protocol: asked.version.name(), route, upstream: "" }
    }

    /// What variables stand for in a request that goes on.
    pub(crate) fn known<'a>(
        &self,
        routed: &'a Routed<'a>,
        head: Option<&'a RequestHead>,
        asked: &Asked,
    ) -> Variables<'a> {
        Variables { upstream: &routed.upstream.settings().name, ..self.variables(routed.name, head, asked) }
    }
}
