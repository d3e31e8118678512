//! Shared and pinned lanes of one named upstream on one worker.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use weir_base::{rng::Rng, time::Time};
use weir_engine::{JoinHandle, Stream};

use crate::{
    connect::ConnectError,
    endpoint::{Endpoint, EndpointShare},
    endpoints::Endpoints,
    health::Probe,
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    pinned::PinnedPool,
    protocol::{Directory, Handshake, LaneProtocol, Waiter},
    settings::{BalanceSettings, UpstreamSettings},
    shared::SharedLane,
};
use weir_base::exchange::{LossCause, Refusal};

/// Interval of the checks of deadlines of waiting exchanges. A request timeout is exact to this.
const DEADLINE_LOOK: Duration = Duration::from_millis(50);

/// Shared lanes by key and by number among those of one key.
type SharedLanes<P, W> = HashMap<(<P as Handshake>::Key, u16), Rc<SharedLane<P, W>>>;

/// Lanes to the servers of one upstream on one worker.
pub struct Upstream<P: LaneProtocol, W: Waiter<P>> {
    endpoints: Rc<Endpoints>,
    protocol: Rc<P>,
    rng: RefCell<Rng>,
    shared: RefCell<SharedLanes<P, W>>,
    pub(crate) pinned: PinnedPool<P, W>,
    hard_cap: usize,
    is_ended: Cell<bool>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Prepares an upstream; connects nothing. `shares` has one entry per endpoint; `probes` says whether this worker runs
    /// the health probes; `hard_cap` is the output of a client, in bytes, past which it may not hold up a shared lane.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        protocol: P,
        shares: &[Arc<EndpointShare>],
        metrics: UpstreamMetrics,
        hard_cap: usize,
        probes: bool,
    ) -> io::Result<Rc<Self>> {
        let endpoints = Endpoints::new(settings, BalanceSettings::default(), shares, metrics)?;
        let upstream = Rc::new_cyclic(|me: &Weak<Self>| Self {
            endpoints,
            protocol: Rc::new(protocol),
            rng: RefCell::new(Rng::new(Time::now().as_nanos())),
            shared: RefCell::default(),
            pinned: PinnedPool::default(),
            hard_cap,
            is_ended: Cell::new(false),
            me: me.clone(),
            tasks: RefCell::default(),
        });
        upstream.start_tasks(probes);
        Ok(upstream)
    }

    fn start_tasks(&self, probes: bool) {
        let me = self.me.clone();
        let mut tasks = vec![weir_engine::spawn(async move {
            loop {
                weir_engine::sleep(DEADLINE_LOOK).await;
                let Some(upstream) = me.upgrade() else { return };
                upstream.check_deadlines();
            }
        })];
        tasks.extend(self.endpoints.discover(&self.protocol));
        if probes {
            let protocol = self.protocol.clone();
            let open = async move |endpoint: &Endpoint, number: u16| {
                Ok(endpoint.connector().open(&*protocol, protocol.probe_key(number)).await?.0)
            };
            tasks.extend(self.endpoints.probe(LaneProbe(self.protocol.clone()), open));
        }
        *self.tasks.borrow_mut() = tasks;
    }

    fn check_deadlines(&self) {
        // A session that hears of a deadline may ask for another lane.
        let lanes: Vec<_> = self.shared.borrow().values().cloned().collect();
        lanes.iter().for_each(|lane| lane.check_deadline(self));
        self.check_pinned();
        self.endpoints.publish_breakers();
    }

    /// The servers of the upstream.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The settings of the upstream.
    pub fn settings(&self) -> &UpstreamSettings {
        self.endpoints.settings()
    }

    /// The shared lane for `key` that connection number `connection` uses: always the same one, so that its requests stay
    /// in order.
    pub fn shared(&self, key: P::Key, connection: u64) -> Rc<SharedLane<P, W>> {
        let index = (connection % u64::from(self.settings().shared_lanes.max(1))) as u16;
        let mut shared = self.shared.borrow_mut();
        shared
            .entry((key, index))
            .or_insert_with(|| SharedLane::new(key, self.settings().lane_in_flight_max as usize, self.me.clone()))
            .clone()
    }

    /// A yes unless trying the endpoint of `key` is known to be useless just now.
    ///
    /// # Errors
    /// Its breaker is open.
    pub fn check_available(&self, key: P::Key) -> Result<(), Refusal> {
        self.endpoints.check_available(usize::from(P::endpoint(key)))
    }

    /// See [`Endpoints::may_connect`].
    pub(crate) fn may_connect(&self, key: P::Key) -> Result<(), Refusal> {
        self.endpoints.may_connect(usize::from(P::endpoint(key)))
    }

    fn endpoint(&self, key: P::Key) -> Rc<Endpoint> {
        self.endpoints.get(usize::from(P::endpoint(key)))
    }

    /// Where connection number `connection` reads what endpoint `shard` has: always at the same replica, so that it does not
    /// see time go back, while that one can be reached; one in the zone of this gateway, if there is one.
    pub fn read_from(&self, shard: u16, connection: u64) -> u16 {
        self.endpoints.read_from(shard, connection, |number, endpoint| self.try_again(number, endpoint))
    }

    fn try_again(&self, number: u16, endpoint: &Rc<Endpoint>) {
        if endpoint.is_on_trial() {
            return;
        }
        let (endpoint, protocol, attempt) = (endpoint.clone(), self.protocol.clone(), endpoint.attempt());
        weir_engine::spawn(async move {
            endpoint.try_again(&*protocol, protocol.probe_key(number), attempt).await;
        })
        .detach();
    }

    /// The protocol and its credentials.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Counts a session that needs a lane of its own for `key`, for `reason`.
    pub fn count_pin(&self, key: P::Key, reason: &str) {
        self.metrics(key).pinned_for(reason);
    }

    pub(crate) fn count_tracked_keys(&self, keys: i64) {
        self.endpoints.metrics.tracked_keys(keys);
    }

    pub(crate) fn metrics(&self, key: P::Key) -> Rc<EndpointMetrics> {
        self.endpoint(key).metrics().clone()
    }

    /// The upstream has no user left: connections that are established from now on are dropped.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.get()
    }

    pub(crate) fn hard_cap(&self) -> usize {
        self.hard_cap
    }

    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let reconnect = &self.settings().reconnect;
        self.rng.borrow_mut().backoff(attempt, reconnect.base, reconnect.max)
    }

    pub(crate) async fn open(&self, key: P::Key, kind: LaneKind) -> Result<(Stream, P::Greeting), ConnectError> {
        let opened = self.endpoint(key).open(&*self.protocol, key, kind).await;
        if opened.is_err() {
            self.endpoints.refresh();
        }
        opened
    }

    /// A lane of `key` has ended with `lost` exchanges under way.
    pub(crate) fn lane_lost(&self, key: P::Key, cause: LossCause, lost: usize) {
        self.endpoint(key).lane_lost(cause, lost);
        if cause != LossCause::Retired {
            // It may have lost its place in the cluster too.
            self.endpoints.refresh();
        }
    }

    /// Lets go: shared lanes finish what waits on them, idle ones close, the probe ends. Clients that still hold this
    /// upstream keep their pinned lanes.
    pub fn retire(&self) {
        self.tasks.borrow_mut().truncate(1);
        for lane in self.shared.borrow().values() {
            lane.retire();
        }
        self.end_idle_pinned();
    }

    /// Ends every connection now.
    pub fn end(&self) {
        self.is_ended.set(true);
        self.tasks.borrow_mut().clear();
        for (_, lane) in self.shared.borrow_mut().drain() {
            lane.end(LossCause::Retired);
        }
        self.end_idle_pinned();
    }
}

/// The probe of a protocol with lanes.
struct LaneProbe<P>(Rc<P>);

impl<P: Directory> Probe for LaneProbe<P> {
    async fn check(&self, mut stream: Stream) -> io::Result<Option<Stream>> {
        self.0.probe(&mut stream).await.map(|()| Some(stream))
    }
}
