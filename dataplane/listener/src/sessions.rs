//! The open connections of one listener on one worker, and all that a listener owes each of them whatever its protocol:
//! a place in the list, the drain, kills, the record of its beginning and end, and an end when its code panics.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use weir_base::{
    error::Culprit,
    rng::Rng,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::Traffic;
use weir_telemetry::{
    Counter, Gauge, Histogram, access::AccessRecord, catalog, cells::GaugeGuard, log::Peer,
    sample::Share as SampleShare,
};

use crate::{
    close::CloseReason,
    handle::ConnectionHandle,
    reports::Reports,
    roster::{Roster, RosterEntry},
    settings::ListenerSettings,
    share::{CoreShare, Drain},
};

/// A connection of some protocol, as its listener sees it.
pub trait Session: Any {
    /// The part that is the same for every protocol.
    fn handle(&self) -> &ConnectionHandle;

    /// Requests that are lost if the connection is cut now.
    fn outstanding(&self) -> u64 {
        self.handle().entry().in_flight.load(Relaxed).into()
    }

    /// The session is over; what is left of it waits for the peer to close.
    fn is_over(&self) -> bool {
        false
    }

    /// Wakes all tasks of the connection.
    fn wake(&self) {
        self.handle().wake();
    }

    /// Ends the connection, and wakes its tasks. The first reason counts.
    fn end(&self, reason: CloseReason) {
        self.handle().end(reason);
        self.wake();
    }
}

/// The cells that every listener writes.
struct Cells {
    open: Gauge,
    total: Counter,
    duration: Histogram,
    traffic: Rc<ClientTraffic>,
}

/// The bytes of all clients of a listener on one worker.
struct ClientTraffic {
    read: Counter,
    written: Counter,
}

impl Traffic for ClientTraffic {
    #[inline]
    fn received(&self, bytes: usize) {
        self.read.add(bytes as u64);
    }

    #[inline]
    fn sent(&self, bytes: usize) {
        self.written.add(bytes as u64);
    }
}

/// The bytes of a connection whose first ones the process before has counted.
struct MovedTraffic {
    traffic: Rc<ClientTraffic>,
    /// Bytes that come to the session again.
    counted: Cell<usize>,
}

impl Traffic for MovedTraffic {
    fn received(&self, bytes: usize) {
        let again = self.counted.get().min(bytes);
        self.counted.set(self.counted.get() - again);
        self.traffic.received(bytes - again);
    }

    fn sent(&self, bytes: usize) {
        self.traffic.sent(bytes);
    }
}

/// The sessions of one listener on one worker, with its settings.
pub struct Sessions {
    core: CoreShare,
    name: Arc<str>,
    settings: RefCell<Rc<ListenerSettings>>,
    roster: Roster<dyn Session>,
    drain: Cell<Drain>,
    reports: Reports,
    cells: Cells,
    access: RefCell<SampleShare>,
    rng: RefCell<Rng>,
}

impl Sessions {
    /// A listener without a session yet.
    pub fn new(core: CoreShare, settings: ListenerSettings) -> Self {
        let name = settings.name.clone();
        let own = [&*name];
        let cells = Cells {
            open: core.metrics.gauge(&catalog::CONNECTIONS_OPEN, &own),
            total: core.metrics.counter(&catalog::CONNECTIONS_TOTAL, &own),
            duration: core.metrics.histogram(&catalog::CONNECTION_DURATION, &own),
            traffic: Rc::new(ClientTraffic {
                read: core.metrics.counter(&catalog::CLIENT_READ_BYTES, &own),
                written: core.metrics.counter(&catalog::CLIENT_WRITTEN_BYTES, &own),
            }),
        };
        let mut rng = Rng::new(Time::now().as_nanos() ^ core.worker as u64);
        Self {
            access: RefCell::new(SampleShare::new(settings.access_log_sample, rng.fork())),
            reports: Reports::new(&core, name.clone()),
            settings: RefCell::new(Rc::new(settings)),
            roster: Roster::default(),
            drain: Cell::new(Drain::Off),
            rng: RefCell::new(rng),
            core,
            name,
            cells,
        }
    }

    /// New settings. A session reads them where it needs them.
    pub fn update(&self, settings: ListenerSettings) {
        *self.access.borrow_mut() = SampleShare::new(settings.access_log_sample, self.rng.borrow_mut().fork());
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    /// The parts that all listeners of this worker share.
    pub fn core(&self) -> &CoreShare {
        &self.core
    }

    /// The name of the listener in the configuration.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The settings of the listener.
    pub fn settings(&self) -> Rc<ListenerSettings> {
        self.settings.borrow().clone()
    }

    /// The sessions that are open and not over.
    pub fn all(&self) -> Vec<Rc<dyn Session>> {
        let mut all = self.roster.all();
        all.retain(|session| !session.is_over());
        all
    }

    /// The number of sessions that are open and not over.
    pub fn open_count(&self) -> usize {
        self.all().len()
    }

    /// Wakes every open session.
    pub fn wake_all(&self) {
        self.all().iter().for_each(|session| session.wake());
    }

    /// Begins or hardens a drain.
    pub fn drain(&self, drain: Drain) {
        self.drain.set(drain);
        self.wake_all();
    }

    /// The state of the drain.
    #[inline]
    pub fn drain_state(&self) -> Drain {
        self.drain.get()
    }

    /// Ends every session now. Returns how many connections and requests were cut.
    pub fn cut(&self) -> (usize, u64) {
        let all = self.all();
        let requests = all.iter().map(|session| session.outstanding()).sum();
        all.iter().for_each(|session| session.end(CloseReason::DrainCut));
        (all.len(), requests)
    }

    /// Ends the sessions that an operator or another client named.
    pub fn end_killed(&self) {
        let all = self.all();
        let killed = all.iter().filter(|session| session.handle().entry().is_killed());
        killed.for_each(|session| session.end(CloseReason::Killed));
    }

    /// Lists and counts a session until the result is dropped. [`Opened::close`] counts its end.
    pub fn open(&self, session: Rc<dyn Session>) -> Opened<'_> {
        self.cells.total.inc();
        Opened {
            sessions: self,
            _listed: self.roster.enter(&session),
            begun: turn::now(),
            _counted: self.cells.open.guard(),
        }
    }

    /// Counts and logs a broken rule that does not end the session.
    pub fn report(&self, handle: &ConnectionHandle, violation: &Violation) {
        self.reports.report(violation, handle.peer(), handle.id(), false);
    }

    /// Counts and logs a broken rule, for which the session ends.
    pub fn violated(&self, handle: &ConnectionHandle, violation: &Violation) -> CloseReason {
        self.reports.report(violation, handle.peer(), handle.id(), true);
        CloseReason::from(violation)
    }

    /// Counts and logs a connection that ends for a broken rule before its session begins. It has no number yet.
    pub fn violated_early(&self, peer: Peer, violation: &Violation) {
        self.cells.total.inc();
        self.reports.report(violation, peer, 0, true);
        self.count_close(CloseReason::from(violation));
    }

    fn count_close(&self, reason: CloseReason) {
        self.core.metrics.counter(&catalog::CONNECTIONS_CLOSED, &[&self.name, reason.name()]).inc();
    }

    /// Counts and logs that code of a session has panicked. `text` names the part that did.
    pub fn panicked(&self, handle: &ConnectionHandle, text: &'static str) -> CloseReason {
        let violation = Violation::rule(CloseReason::InternalInvariant.name(), Culprit::Gateway, text);
        self.reports.report(&violation, handle.peer(), handle.id(), true);
        CloseReason::InternalInvariant
    }

    /// The counters for the bytes of clients. A protocol gives them to the stream of a connection
    /// ([`Stream::count_into`](weir_engine::Stream::count_into)).
    pub fn traffic(&self) -> Rc<dyn Traffic> {
        self.cells.traffic.clone()
    }

    /// The counters for the bytes of a connection that has moved here with `counted` bytes of input, which the process before has counted.
    pub fn traffic_after(&self, counted: usize) -> Rc<dyn Traffic> {
        let traffic = self.cells.traffic.clone();
        if counted == 0 { traffic } else { Rc::new(MovedTraffic { traffic, counted: Cell::new(counted) }) }
    }

    /// Bytes came from a client.
    #[inline]
    pub fn read(&self, bytes: u64) {
        self.cells.traffic.read.add(bytes);
    }

    /// Tells whether the next exchange is written to the access log.
    #[inline]
    pub fn samples_access(&self) -> bool {
        self.core.log.has_access_log() && self.access.borrow_mut().check()
    }

    /// Writes an exchange to the access log.
    pub fn log_access(&self, record: &AccessRecord<'_>) {
        self.core.log.access(record);
    }

    /// Draws a random number.
    pub fn chance(&self) -> u64 {
        self.rng.borrow_mut().next_u64()
    }
}

/// A listed session. It counts as open until this is dropped.
pub struct Opened<'a> {
    sessions: &'a Sessions,
    begun: Time,
    _listed: RosterEntry<dyn Session>,
    _counted: GaugeGuard,
}

impl Opened<'_> {
    /// The beginning of the session.
    pub fn begun(&self) -> Time {
        self.begun
    }

    /// Counts the end of the session, and how long it was open. To be called once, when the session holds nothing any more.
    pub fn close(&self, reason: CloseReason) {
        let sessions = self.sessions;
        sessions.count_close(reason);
        sessions.cells.duration.record(turn::now().nanos_since(self.begun));
    }
}
