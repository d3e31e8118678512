//! One HTTP listener on one worker: the state that its connections share.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use weir_listener::{CoreShare, Sessions, settings::ListenerSettings};
use weir_policy::http::{SeenCredentials, TokenCache};

use crate::{
    filter::FilterFactory,
    metrics::{ListenerMetrics, RouteMetrics},
    reload,
    routes::Routes,
    settings::HttpListenerSettings,
    upstream::HttpUpstream,
};

/// Routes and upstreams of a listener, on one worker.
pub(crate) struct Routing {
    /// This worker's own copy: regexes keep scratch memory.
    pub(crate) routes: Routes,
    /// In the order of [`Routes::upstreams`].
    pub(crate) upstreams: Vec<Rc<HttpUpstream>>,
    /// WebSockets are allowed somewhere.
    pub(crate) offers_websocket: bool,
    /// In the order of [`Routes::names`]; empty for a listener without routes of its own.
    pub(crate) metrics: Vec<Rc<RouteMetrics>>,
    /// For routes without a factory of their own.
    pub(crate) filters: Option<Rc<dyn FilterFactory>>,
}

impl Routing {
    /// The upstream of this name; one that a route or a policy names is there.
    pub(crate) fn upstream(&self, name: &str) -> Option<&Rc<HttpUpstream>> {
        let number = self.routes.upstreams.iter().position(|own| **own == *name)?;
        self.upstreams.get(number)
    }
}

/// One listener on one worker.
pub struct Service {
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Rc<ListenerMetrics>,
    http: RefCell<Rc<HttpListenerSettings>>,
    routing: RefCell<Rc<Routing>>,
    /// Recently checked passwords of all policies: their digests have keys of their own.
    pub(crate) seen: RefCell<SeenCredentials>,
    /// Tokens likewise.
    pub(crate) tokens: RefCell<TokenCache>,
    /// Copies of requests under way.
    pub(crate) mirrors: Cell<u32>,
}

impl Service {
    /// A listener with its settings, and the upstreams of its routes in their order.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        http: HttpListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
    ) -> Rc<Self> {
        Self::filtered(core, listener, http, upstreams, None)
    }

    /// The same with a filter factory for all its routes that have none of their own. It belongs to this worker, so it may count in
    /// the worker's own cells.
    pub fn filtered(
        core: CoreShare,
        listener: ListenerSettings,
        http: HttpListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
        filters: Option<Rc<dyn FilterFactory>>,
    ) -> Rc<Self> {
        let name = listener.name.clone();
        Rc::new(Self {
            metrics: Rc::new(ListenerMetrics::new(&core, &name)),
            routing: RefCell::new(routing(&core, &name, &http, (*http.routes).clone(), (upstreams, filters))),
            seen: RefCell::default(),
            tokens: RefCell::default(),
            http: RefCell::new(Rc::new(http)),
            mirrors: Cell::new(0),
            sessions: Sessions::new(core, listener),
        })
    }

    /// New settings; they hold from the next request of each connection on.
    pub fn update(&self, listener: ListenerSettings, http: HttpListenerSettings, upstreams: Vec<Rc<HttpUpstream>>) {
        self.update_filtered(listener, http, upstreams, None);
    }

    /// The same for a listener that was made by [`Service::filtered`].
    pub fn update_filtered(
        &self,
        listener: ListenerSettings,
        http: HttpListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
        filters: Option<Rc<dyn FilterFactory>>,
    ) {
        self.sessions.update(listener);
        let mut routes = (*http.routes).clone();
        reload::keep_limits(&self.routing.borrow().routes, &mut routes);
        reload::keep_keys(&self.routing.borrow().routes, &routes);
        *self.routing.borrow_mut() =
            routing(self.sessions.core(), self.sessions.name(), &http, routes, (upstreams, filters));
        *self.http.borrow_mut() = Rc::new(http);
    }

    pub(crate) fn http(&self) -> Rc<HttpListenerSettings> {
        self.http.borrow().clone()
    }

    /// Timeout of a connection without a request.
    pub(crate) fn keep_alive_timeout(&self) -> Duration {
        self.sessions.settings().idle_timeout.unwrap_or(self.http.borrow().keep_alive_timeout)
    }

    pub(crate) fn routing(&self) -> Rc<Routing> {
        self.routing.borrow().clone()
    }
}

fn routing(
    core: &CoreShare,
    listener: &str,
    http: &HttpListenerSettings,
    routes: Routes,
    (upstreams, filters): (Vec<Rc<HttpUpstream>>, Option<Rc<dyn FilterFactory>>),
) -> Rc<Routing> {
    let metrics = RouteMetrics::all(&core.metrics, listener, &routes.names);
    let mut own = routes.table.routes().iter().filter_map(|route| route.action.upgrades);
    let offers_websocket = http.upgrades.websocket || own.any(|upgrades| upgrades.websocket);
    Rc::new(Routing { routes, upstreams, offers_websocket, metrics, filters })
}
