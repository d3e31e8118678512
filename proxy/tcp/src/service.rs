//! One TCP listener on one worker: what its connections share.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use weir_base::{rng::Rng, time::Time};
use weir_listener::{CoreShare, Drain, Reports, Roster, settings::ListenerSettings};
use weir_telemetry::{Counter, Gauge, Histogram, access::AccessRecord, catalog, sample::Share};
use weir_upstream::{ExclusiveUpstream, NoMultiplexer};

use crate::{session::Connection, settings::TcpListenerSettings};

/// An upstream of TCP on one worker.
pub type TcpUpstream = ExclusiveUpstream<NoMultiplexer>;

/// Where connections go.
pub(crate) struct Routing {
    pub(crate) settings: TcpListenerSettings,
    /// In the order of the settings' own.
    pub(crate) upstreams: Vec<Rc<TcpUpstream>>,
}

/// Cells of one listener on one worker.
pub(crate) struct Metrics {
    pub(crate) open: Gauge,
    pub(crate) total: Counter,
    pub(crate) duration: Histogram,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
}

/// One listener on one worker.
pub struct Service {
    pub(crate) core: CoreShare,
    pub(crate) metrics: Metrics,
    name: Arc<str>,
    listener: RefCell<Rc<ListenerSettings>>,
    routing: RefCell<Rc<Routing>>,
    pub(crate) connections: Roster<Connection>,
    drain: Cell<Drain>,
    pub(crate) reports: Reports,
    access: RefCell<Share>,
    rng: RefCell<Rng>,
}

impl Service {
    /// A listener with its settings, and their upstreams in their order.
    pub fn new(
        core: CoreShare,
        listener: ListenerSettings,
        settings: TcpListenerSettings,
        upstreams: Vec<Rc<TcpUpstream>>,
    ) -> Rc<Self> {
        let own = [&*listener.name];
        let metrics = Metrics {
            open: core.metrics.gauge(&catalog::CONNECTIONS_OPEN, &own),
            total: core.metrics.counter(&catalog::CONNECTIONS_TOTAL, &own),
            duration: core.metrics.histogram(&catalog::CONNECTION_DURATION, &own),
            read_bytes: core.metrics.counter(&catalog::CLIENT_READ_BYTES, &own),
            written_bytes: core.metrics.counter(&catalog::CLIENT_WRITTEN_BYTES, &own),
        };
        let listener_name = listener.name.clone();
        let mut rng = Rng::new(Time::now().as_nanos() ^ core.worker as u64);
        Rc::new(Self {
            metrics,
            name: listener.name.clone(),
            access: RefCell::new(Share::new(listener.access_log_sample, rng.fork())),
            listener: RefCell::new(Rc::new(listener)),
            routing: RefCell::new(Rc::new(Routing { settings, upstreams })),
            connections: Roster::default(),
            drain: Cell::new(Drain::Off),
            reports: Reports::new(&core, listener_name),
            rng: RefCell::new(rng),
            core,
        })
    }

    /// New settings, for connections that come from now on.
    pub fn update(&self, listener: ListenerSettings, settings: TcpListenerSettings, upstreams: Vec<Rc<TcpUpstream>>) {
        *self.access.borrow_mut() = Share::new(listener.access_log_sample, self.rng.borrow_mut().fork());
        *self.listener.borrow_mut() = Rc::new(listener);
        *self.routing.borrow_mut() = Rc::new(Routing { settings, upstreams });
    }

    /// Begins or hardens a drain. Nobody knows where a connection might be interrupted, so they all go on.
    pub fn drain(&self, drain: Drain) {
        self.drain.set(drain);
    }

    /// Ends every connection now; how many there were, each of which counts as a request too.
    pub fn cut(&self) -> (usize, u64) {
        let connections = self.connections.all();
        connections.iter().for_each(|connection| connection.end("drain_cut"));
        (connections.len(), connections.len() as u64)
    }

    /// Ends the connections that the admin API named.
    pub fn end_killed(&self) {
        let connections = self.connections.all();
        connections.iter().filter(|connection| connection.is_killed()).for_each(|connection| connection.end("killed"));
    }

    /// A connection may still come to use `upstream`.
    pub fn uses(&self, upstream: &Rc<TcpUpstream>) -> bool {
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

    pub(crate) fn routing(&self) -> Rc<Routing> {
        self.routing.borrow().clone()
    }

    pub(crate) fn closed(&self, reason: &str) {
        self.core.metrics.counter(&catalog::CONNECTIONS_CLOSED, &[&self.name, reason]).inc();
    }

    /// Writes a connection to the access log, if it is chosen.
    pub(crate) fn log(&self, record: &AccessRecord<'_>) {
        if self.core.log.has_access_log() && self.access.borrow_mut().check() {
            self.core.log.access(record);
        }
    }
}
