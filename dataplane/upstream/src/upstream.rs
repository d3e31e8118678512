//! One named upstream on one worker.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use weir_base::{rng::Rng, time::Time};
use weir_engine::{JoinHandle, Stream};

use crate::{
    breaker::BreakerState,
    connect::ConnectError,
    endpoint::Endpoint,
    health::{Health, probe_loop},
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    pinned::PinnedPool,
    placement::Placement,
    protocol::{LaneProtocol, LossCause, Refusal, Waiter},
    settings::UpstreamSettings,
    shared::SharedLane,
};

/// How often deadlines of waiting exchanges are looked at. A request timeout is exact to this.
const DEADLINE_LOOK: Duration = Duration::from_millis(50);

/// Shared lanes by key and by number among those of one key.
type SharedLanes<P, W> = HashMap<(<P as LaneProtocol>::Key, u16), Rc<SharedLane<P, W>>>;

/// Lanes to one upstream, and what is known of it, on one worker.
pub struct Upstream<P: LaneProtocol, W: Waiter<P>> {
    settings: UpstreamSettings,
    protocol: P,
    /// Never empty.
    endpoints: Vec<Rc<Endpoint>>,
    /// Set if keys are spread over several endpoints.
    placement: Option<Placement>,
    rng: RefCell<Rng>,
    shared: RefCell<SharedLanes<P, W>>,
    pub(crate) pinned: PinnedPool<P, W>,
    hard_cap: usize,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Prepares an upstream; connects nothing. `health` has one entry per endpoint; `probes` says whether this worker runs
    /// the health probes; `hard_cap` is the output of a client, in bytes, past which it may not hold up a shared lane.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        protocol: P,
        health: &[Arc<Health>],
        metrics: UpstreamMetrics,
        hard_cap: usize,
        probes: bool,
    ) -> io::Result<Rc<Self>> {
        let pairs = settings.endpoints.iter().zip(health);
        let endpoints = pairs
            .map(|(address, health)| Endpoint::new(address, &settings, health.clone(), &metrics).map(Rc::new))
            .collect::<io::Result<Vec<_>>>()?;
        if endpoints.is_empty() || endpoints.len() != settings.endpoints.len() {
            return Err(io::Error::other("an upstream needs an endpoint, and each its health"));
        }
        let placement = settings.placement.clone().filter(|_| endpoints.len() > 1);
        let upstream = Rc::new_cyclic(|me: &Weak<Self>| Self {
            endpoints,
            placement: placement.map(|placement| Placement::new(placement, &settings.endpoints)),
            rng: RefCell::new(Rng::new(Time::now().as_nanos())),
            protocol,
            shared: RefCell::default(),
            pinned: PinnedPool::default(),
            hard_cap,
            me: me.clone(),
            tasks: RefCell::default(),
            settings,
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
        let probed = self.endpoints.iter().zip(0..).filter(|_| probes);
        for (endpoint, number) in probed {
            let Some(health) = self.settings.health.clone() else { break };
            let (me, endpoint) = (self.me.clone(), endpoint.clone());
            tasks.push(weir_engine::spawn(async move {
                let Some(upstream) = me.upgrade() else { return };
                let key = upstream.protocol.probe_key(number);
                probe_loop(&endpoint, &upstream.protocol, key, health).await;
            }));
        }
        *self.tasks.borrow_mut() = tasks;
    }

    fn check_deadlines(&self) {
        for lane in self.shared.borrow().values() {
            lane.check_deadline(self);
        }
        self.check_pinned();
        self.endpoints.iter().for_each(|endpoint| endpoint.publish_breaker());
    }

    /// The shared lane for `key` that connection number `connection` uses: always the same one, so that its requests stay
    /// in order.
    pub fn shared(&self, key: P::Key, connection: u64) -> Rc<SharedLane<P, W>> {
        let index = (connection % u64::from(self.settings.shared_lanes.max(1))) as u16;
        let mut shared = self.shared.borrow_mut();
        shared
            .entry((key, index))
            .or_insert_with(|| SharedLane::new(key, self.settings.lane_in_flight_max as usize, self.me.clone()))
            .clone()
    }

    /// A yes unless trying the endpoint of `key` is known to be useless just now.
    ///
    /// # Errors
    /// Its breaker is open.
    pub fn check_available(&self, key: P::Key) -> Result<(), Refusal> {
        match self.endpoint(key).breaker_state() {
            BreakerState::Open => Err(Refusal::BreakerOpen),
            BreakerState::Closed | BreakerState::HalfOpen => Ok(()),
        }
    }

    fn endpoint(&self, key: P::Key) -> &Endpoint {
        // A key that was made for another list of endpoints leads to the first: the server there refuses what is not its.
        self.endpoints.get(usize::from(P::endpoint(key))).unwrap_or(&self.endpoints[0])
    }

    /// Where keys are, if they are spread over several endpoints.
    #[inline]
    pub fn placement(&self) -> Option<&Placement> {
        self.placement.as_ref()
    }

    /// How many endpoints there are.
    #[inline]
    pub fn endpoints(&self) -> u16 {
        self.endpoints.len() as u16
    }

    /// What the settings say.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// The protocol and its credentials.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Counts a session that needs a lane of its own for `key`, for `reason`.
    pub fn count_pin(&self, key: P::Key, reason: &str) {
        self.metrics(key).pinned_for(reason);
    }

    pub(crate) fn metrics(&self, key: P::Key) -> &Rc<EndpointMetrics> {
        self.endpoint(key).metrics()
    }

    pub(crate) fn hard_cap(&self) -> usize {
        self.hard_cap
    }

    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let reconnect = &self.settings.reconnect;
        self.rng.borrow_mut().backoff(attempt, reconnect.base, reconnect.max)
    }

    pub(crate) async fn open(&self, key: P::Key, kind: LaneKind) -> Result<(Stream, P::Greeting), ConnectError> {
        self.endpoint(key).open(&self.protocol, key, kind).await
    }

    /// A lane of `key` has ended with `lost` exchanges under way.
    pub(crate) fn lane_lost(&self, key: P::Key, cause: LossCause, lost: usize) {
        self.endpoint(key).lane_lost(cause, lost);
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
        self.tasks.borrow_mut().clear();
        for (_, lane) in self.shared.borrow_mut().drain() {
            lane.end(LossCause::Retired);
        }
        self.end_idle_pinned();
    }
}
