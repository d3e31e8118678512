//! One HTTP listener on one worker: what its connections share.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use weir_base::{rng::Rng, time::Time};
use weir_listener::{CoreShare, Drain, Reports, Roster, settings::ListenerSettings};
use weir_policy::http::{SeenCredentials, TokenCache};
use weir_telemetry::{access::AccessRecord, sample::Share};
use weir_upstream::{ExclusiveLane, ExclusiveUpstream};

use crate::{
    access::RouteMetrics, connection::Connection, http2::origin::Http2Origins, jwks, metrics::ListenerMetrics,
    policies, routes::Routes, settings::HttpListenerSettings,
};

/// An upstream of HTTP on one worker.
pub type HttpUpstream = ExclusiveUpstream<Http2Origins>;
/// One of its lanes.
pub(crate) type HttpLane = ExclusiveLane<Http2Origins>;

/// Where requests of a listener go, on one worker.
pub(crate) struct Routing {
    /// This worker's own copy: regexes keep scratch memory.
    pub(crate) routes: Routes,
    /// In the order of [`Routes::upstreams`].
    pub(crate) upstreams: Vec<Rc<HttpUpstream>>,
    /// WebSockets are allowed somewhere.
    pub(crate) offers_websocket: bool,
    /// In the order of [`Routes::names`]; empty for a listener without routes of its own.
    pub(crate) metrics: Vec<Rc<RouteMetrics>>,
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
    pub(crate) core: CoreShare,
    pub(crate) metrics: ListenerMetrics,
    name: Arc<str>,
    listener: RefCell<Rc<ListenerSettings>>,
    http: RefCell<Rc<HttpListenerSettings>>,
    routing: RefCell<Rc<Routing>>,
    /// Passwords that were checked lately, of all policies: their digests have keys of their own.
    pub(crate) seen: RefCell<SeenCredentials>,
    /// Tokens likewise.
    pub(crate) tokens: RefCell<TokenCache>,
    pub(crate) connections: Roster<Connection>,
    /// Copies of requests under way.
    pub(crate) mirrors: Cell<u32>,
    drain: Cell<Drain>,
    pub(crate) reports: Reports,
    access: RefCell<Share>,
    rng: RefCell<Rng>,
}

impl Service {
    /// A listener with its settings, and the upstreams of its routes in their order.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        http: HttpListenerSettings,
        upstreams: Vec<Rc<HttpUpstream>>,
    ) -> Rc<Self> {
        let listener_name = listener.name.clone();
        let reports = Reports::new(&core, listener_name.clone());
        let mut rng = Rng::new(Time::now().as_nanos() ^ core.worker as u64);
        Rc::new(Self {
            metrics: ListenerMetrics::new(&core.metrics, &listener.name),
            name: listener.name.clone(),
            access: RefCell::new(Share::new(listener.access_log_sample, rng.fork())),
            listener: RefCell::new(Rc::new(listener)),
            routing: RefCell::new(routing(&core, &listener_name, &http, (*http.routes).clone(), upstreams)),
            seen: RefCell::default(),
            tokens: RefCell::default(),
            http: RefCell::new(Rc::new(http)),
            connections: Roster::default(),
            mirrors: Cell::new(0),
            drain: Cell::new(Drain::Off),
            reports,
            rng: RefCell::new(rng),
            core,
        })
    }

    /// New settings; they hold from the next request of each connection on.
    pub fn update(&self, listener: ListenerSettings, http: HttpListenerSettings, upstreams: Vec<Rc<HttpUpstream>>) {
        *self.access.borrow_mut() = Share::new(listener.access_log_sample, self.rng.borrow_mut().fork());
        *self.listener.borrow_mut() = Rc::new(listener);
        let mut routes = (*http.routes).clone();
        policies::keep_limits(&self.routing.borrow().routes, &mut routes);
        jwks::keep(&self.routing.borrow().routes, &routes);
        *self.routing.borrow_mut() = routing(&self.core, &self.name, &http, routes, upstreams);
        *self.http.borrow_mut() = Rc::new(http);
    }

    /// Begins or hardens a drain: answers say that the connection ends, and those without a request end.
    pub fn drain(&self, drain: Drain) {
        self.drain.set(drain);
        self.connections.all().iter().for_each(|connection| connection.wake());
    }

    /// Ends every connection now; how many connections and requests were cut.
    pub fn cut(&self) -> (usize, u64) {
        let connections = self.connections.all();
        let requests = connections.iter().filter(|connection| connection.is_busy()).count();
        connections.iter().for_each(|connection| connection.end("drain_cut"));
        (connections.len(), requests as u64)
    }

    /// Ends the connections that the admin API named.
    pub fn end_killed(&self) {
        self.connections
            .all()
            .iter()
            .filter(|connection| connection.is_killed())
            .for_each(|connection| connection.end("killed"));
    }

    /// An exchange may still use `upstream`.
    pub fn uses(&self, upstream: &Rc<HttpUpstream>) -> bool {
        self.routing.borrow().upstreams.iter().any(|own| Rc::ptr_eq(own, upstream))
    }

    /// Connections open on this worker.
    pub fn open_count(&self) -> usize {
        self.connections.len()
    }

    /// The name in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn listener(&self) -> Rc<ListenerSettings> {
        self.listener.borrow().clone()
    }

    pub(crate) fn http(&self) -> Rc<HttpListenerSettings> {
        self.http.borrow().clone()
    }

    /// How long a connection may be without a request.
    pub(crate) fn keep_alive_timeout(&self) -> Duration {
        self.listener.borrow().idle_timeout.unwrap_or(self.http.borrow().keep_alive_timeout)
    }

    pub(crate) fn routing(&self) -> Rc<Routing> {
        self.routing.borrow().clone()
    }

    pub(crate) fn drain_state(&self) -> Drain {
        self.drain.get()
    }

    /// A random number.
    pub(crate) fn chance(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }

    /// Whether the next request is written to the access log.
    #[inline]
    pub(crate) fn samples_access(&self) -> bool {
        self.core.log.has_access_log() && self.access.borrow_mut().check()
    }

    pub(crate) fn log_access(&self, record: &AccessRecord<'_>) {
        self.core.log.access(record);
    }
}

fn routing(
    core: &CoreShare,
    listener: &str,
    http: &HttpListenerSettings,
    routes: Routes,
    upstreams: Vec<Rc<HttpUpstream>>,
) -> Rc<Routing> {
    let metrics = RouteMetrics::all(&core.metrics, listener, &routes.names);
    let mut own = routes.table.routes().iter().filter_map(|route| route.action.upgrades);
    let offers_websocket = http.upgrades.websocket || own.any(|upgrades| upgrades.websocket);
    Rc::new(Routing { routes, upstreams, offers_websocket, metrics })
}
