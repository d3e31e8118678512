//! One named upstream on one worker.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, Stream, settings::Address};
use weir_placement::{Node, Place, Placement};

use crate::{
    breaker::BreakerState,
    connect::ConnectError,
    discovery::{self, Schedule, View, discovery_loop},
    endpoint::Endpoint,
    health::{Health, Probe, probe_loop},
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    pinned::PinnedPool,
    protocol::{LaneProtocol, Waiter},
    replicas::{Primary, Replicas},
    settings::{ReadFrom, Topology, UpstreamSettings},
    shared::SharedLane,
    slots::SlotMap,
    zones::zones_loop,
};

/// How often deadlines of waiting exchanges are looked at. A request timeout is exact to this.
const DEADLINE_LOOK: Duration = Duration::from_millis(50);

/// Addresses of one cluster in the life of an upstream. Nodes that are replaced get new ones, and numbers are not given twice:
/// at ten nodes replaced a day this lasts for four years.
const ENDPOINTS_MAX: usize = 16_384;

/// Shared lanes by key and by number among those of one key.
type SharedLanes<P, W> = HashMap<(<P as LaneProtocol>::Key, u16), Rc<SharedLane<P, W>>>;

/// How keys are spread over the endpoints.
enum Spread {
    /// All are on the only one.
    No,
    Hashed(Placement),
    Slots(SlotMap),
    /// All are on one, whoever that is.
    Primary(Primary),
}

/// Lanes to one upstream, and what is known of it, on one worker.
pub struct Upstream<P: LaneProtocol, W: Waiter<P>> {
    settings: UpstreamSettings,
    protocol: P,
    /// Never empty, and never shorter: the number of an endpoint is its name.
    endpoints: RefCell<Vec<Rc<Endpoint>>>,
    spread: Spread,
    replicas: Replicas,
    schedule: Rc<Schedule>,
    metrics: UpstreamMetrics,
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
        let spread = match settings.placement.clone() {
            _ if settings.topology == Topology::Slots => Spread::Slots(SlotMap::default()),
            _ if settings.topology != Topology::Fixed => Spread::Primary(Primary::default()),
            Some(placement) if endpoints.len() > 1 => Spread::Hashed(Placement::new(placement, &settings.endpoints)),
            _ => Spread::No,
        };
        let upstream = Rc::new_cyclic(|me: &Weak<Self>| Self {
            endpoints: RefCell::new(endpoints),
            spread,
            replicas: Replicas::default(),
            schedule: Rc::default(),
            metrics,
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
        if self.settings.topology != Topology::Fixed {
            let (me, schedule) = (self.me.clone(), self.schedule.clone());
            tasks.push(weir_engine::spawn(async move {
                let Some(upstream) = me.upgrade() else { return };
                discovery_loop(upstream, schedule).await;
            }));
        }
        if let Some(zone) = self.settings.zone.clone().filter(|_| self.settings.read_from != ReadFrom::Primary) {
            let me = self.me.clone();
            tasks.push(weir_engine::spawn(async move {
                let Some(upstream) = me.upgrade() else { return };
                zones_loop(upstream, zone).await;
            }));
        }
        let endpoints = self.endpoints.borrow();
        let probed = endpoints.iter().zip(0..).filter(|_| probes);
        for (endpoint, number) in probed {
            let Some(health) = self.settings.health.clone() else { break };
            let (me, endpoint) = (self.me.clone(), endpoint.clone());
            tasks.push(weir_engine::spawn(async move {
                let Some(upstream) = me.upgrade() else { return };
                let key = upstream.protocol.probe_key(number);
                let open = async || Ok(endpoint.connector().open(&upstream.protocol, key).await?.0);
                probe_loop(&endpoint, health, open, &LaneProbe(&upstream.protocol)).await;
            }));
        }
        *self.tasks.borrow_mut() = tasks;
    }

    fn check_deadlines(&self) {
        for lane in self.shared.borrow().values() {
            lane.check_deadline(self);
        }
        self.check_pinned();
        self.endpoints.borrow().iter().for_each(|endpoint| endpoint.publish_breaker());
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

    pub(crate) fn endpoint(&self, key: P::Key) -> Rc<Endpoint> {
        let endpoints = self.endpoints.borrow();
        // No key is kept past the list that it was made for.
        endpoints.get(usize::from(P::endpoint(key))).unwrap_or(&endpoints[0]).clone()
    }

    /// The address of endpoint number `number`, if there is one.
    pub fn endpoint_address(&self, number: u16) -> Option<String> {
        self.endpoints.borrow().get(usize::from(number)).map(|one| one.connector().endpoint.to_string())
    }

    /// Address, health and breaker of every endpoint that is configured, or in the cluster.
    pub fn endpoint_states(&self) -> Vec<(String, &'static str, &'static str)> {
        let endpoints = self.endpoints.borrow();
        let state = |one: &Rc<Endpoint>| {
            let breaker = match one.breaker_state() {
                BreakerState::Closed => "closed",
                BreakerState::HalfOpen => "half_open",
                BreakerState::Open => "open",
            };
            (one.connector().endpoint.to_string(), one.health().state().name(), breaker)
        };
        endpoints.iter().filter(|one| one.is_member.get()).map(state).collect()
    }

    /// Requests of one client may go to several endpoints at once.
    #[inline]
    pub fn is_spread(&self) -> bool {
        match self.spread {
            Spread::No => false,
            Spread::Hashed(_) | Spread::Slots(_) => true,
            Spread::Primary(_) => self.settings.read_from != ReadFrom::Primary,
        }
    }

    /// The endpoint of what belongs to no other one; `None`: nobody knows yet who is the primary.
    #[inline]
    pub fn primary(&self) -> Option<u16> {
        match &self.spread {
            Spread::Primary(primary) => primary.number(),
            Spread::No | Spread::Hashed(_) | Spread::Slots(_) => Some(0),
        }
    }

    /// Where connection number `connection` reads what endpoint `shard` has: always at the same replica, so that it does not
    /// see time go back, while that one can be reached; one in the zone of this gateway, if there is one.
    pub fn read_from(&self, shard: u16, connection: u64) -> u16 {
        if self.settings.read_from == ReadFrom::Primary {
            return shard;
        }
        let endpoints = self.endpoints.borrow();
        let is_well = |number: u16| match endpoints.get(usize::from(number)).map(|one| (one, one.breaker_state())) {
            Some((_, BreakerState::Closed)) => true,
            Some((endpoint, BreakerState::HalfOpen)) => {
                // Reads go elsewhere, so none of them would find out that it is back.
                self.try_again(number, endpoint);
                false
            }
            Some((_, BreakerState::Open)) | None => false,
        };
        let is_near = |number: u16| endpoints.get(usize::from(number)).is_some_and(|one| one.is_near.get());
        self.replicas.choose(self.settings.read_from, shard, connection, is_well, is_near)
    }

    fn try_again(&self, number: u16, endpoint: &Rc<Endpoint>) {
        let Some(upstream) = self.me.upgrade().filter(|_| !endpoint.is_tried.replace(true)) else { return };
        let endpoint = endpoint.clone();
        weir_engine::spawn(async move {
            endpoint.try_again(&upstream.protocol, upstream.protocol.probe_key(number)).await;
            endpoint.is_tried.set(false);
        })
        .detach();
    }

    /// The slots, if this is a cluster.
    pub fn slots(&self) -> Option<&SlotMap> {
        match &self.spread {
            Spread::Slots(slots) => Some(slots),
            Spread::No | Spread::Hashed(_) | Spread::Primary(_) => None,
        }
    }

    /// The endpoint of messages. In a cluster one node for as long as it is part of it and can be reached, whether or not it
    /// keeps its slots: from two nodes the messages of one client could arrive in another order.
    pub fn home(&self) -> u16 {
        let endpoints = self.endpoints.borrow();
        let is_well = |number: u16| {
            endpoints
                .get(usize::from(number))
                .is_some_and(|one| one.is_member.get() && one.breaker_state() != BreakerState::Open)
        };
        self.slots().map_or_else(|| self.primary().unwrap_or(0), |slots| slots.home(is_well))
    }

    /// Where `key` is.
    pub fn place(&self, key: &[u8]) -> Place {
        match &self.spread {
            Spread::No => Place { shard: 0, group: 0 },
            Spread::Hashed(placement) => {
                let shard = placement.place(key);
                Place { shard, group: shard }
            }
            Spread::Slots(slots) => slots.place(key),
            Spread::Primary(primary) => Place { shard: primary.number().unwrap_or(0), group: 0 },
        }
    }

    /// Where the keys of `group` are now.
    pub fn shard_of(&self, group: u16) -> u16 {
        match &self.spread {
            Spread::Slots(slots) => slots.owner(group),
            Spread::Primary(primary) => primary.number().unwrap_or(group),
            Spread::No | Spread::Hashed(_) => group,
        }
    }

    /// The numbers of the endpoints that have keys.
    pub fn shards(&self) -> Vec<u16> {
        match &self.spread {
            Spread::Slots(slots) => {
                let (mut primaries, endpoints) = (slots.primaries(), self.endpoints.borrow());
                // The same order on every worker, and whatever slots move.
                primaries.sort_by_key(|&number| {
                    endpoints.get(usize::from(number)).map(|one| one.connector().endpoint.clone())
                });
                primaries
            }
            Spread::No | Spread::Hashed(_) => (0..self.endpoint_count()).collect(),
            Spread::Primary(primary) => primary.number().into_iter().collect(),
        }
    }

    /// How many endpoints are known, those that have no keys too.
    #[inline]
    pub fn endpoint_count(&self) -> u16 {
        self.endpoints.borrow().len() as u16
    }

    /// The number of the endpoint that `node` is, as the endpoint `named_by` names it; `None` if it is not known to be in the
    /// cluster: a redirection must not lead just anywhere.
    pub fn find(&self, node: &Node, named_by: u16) -> Option<u16> {
        let endpoints = self.endpoints.borrow();
        let address = discovery::address(node, &endpoints.get(usize::from(named_by))?.connector().endpoint)?;
        let is_there = |endpoint: &Rc<Endpoint>| endpoint.is_member.get() && endpoint.connector().endpoint == address;
        endpoints.iter().position(is_there).map(|at| at as u16)
    }

    /// The numbers of the endpoints that may be asked who has what.
    pub(crate) fn members(&self) -> Vec<u16> {
        if self.settings.topology == Topology::Watched {
            return (0..self.settings.endpoints.len() as u16).collect();
        }
        self.servers()
    }

    /// The numbers of the servers, not of those who watch over them.
    pub fn servers(&self) -> Vec<u16> {
        let watchers = if self.settings.topology == Topology::Watched { self.settings.endpoints.len() } else { 0 };
        let endpoints = self.endpoints.borrow();
        let servers = (0..).zip(endpoints.iter()).skip(watchers);
        servers.filter(|(_, endpoint)| endpoint.is_member.get()).map(|(number, _)| number).collect()
    }

    /// Asks the cluster soon who has what.
    pub fn refresh(&self) {
        self.schedule.want();
    }

    /// Counts a request that a node of the cluster sent elsewhere.
    pub fn count_redirect(&self, kind: &str) {
        self.metrics.redirected(kind);
    }

    /// Takes what `asked` said; false if it does not know who has what.
    pub(crate) fn take_view(&self, asked: &Address, view: &View) -> bool {
        if view.ranges.is_empty() {
            view.nodes.iter().filter_map(|node| discovery::address(node, asked)).for_each(|address| {
                // It may be asked next.
                self.number(address);
            });
            return false;
        }
        for endpoint in self.endpoints.borrow().iter().skip(self.settings.endpoints.len()) {
            endpoint.is_member.set(endpoint.connector().endpoint == *asked);
        }
        let number = |node: &Node| self.number(discovery::address(node, asked)?);
        for node in &view.nodes {
            // So that a redirection may lead there.
            number(node);
        }
        let mut owners = Vec::new();
        self.replicas.clear();
        for range in &view.ranges {
            let Some(primary) = number(&range.primary) else { continue };
            owners.push((range.first, range.last, primary));
            self.replicas.add(primary, range.replicas.iter().filter_map(number));
        }
        match &self.spread {
            Spread::Slots(slots) => slots.replace(owners, turn::now()),
            Spread::Primary(primary) => primary.set(owners.first().map(|(_, _, number)| *number)),
            Spread::No | Spread::Hashed(_) => {}
        }
        true
    }

    /// Endpoint number `number` did not say who is in the cluster.
    pub(crate) fn discovery_failed(&self, number: u16, error: &io::Error) {
        let endpoint = self.endpoint(self.protocol.probe_key(number));
        endpoint.metrics().connect_failed("discovery", &error.to_string());
    }

    /// The number of the endpoint at `address`, which is added if it is new.
    fn number(&self, address: Address) -> Option<u16> {
        let mut endpoints = self.endpoints.borrow_mut();
        if let Some(at) = endpoints.iter().position(|endpoint| endpoint.connector().endpoint == address) {
            endpoints[at].is_member.set(true);
            return Some(at as u16);
        }
        if endpoints.len() >= ENDPOINTS_MAX {
            return None;
        }
        let endpoint = Endpoint::new(&address, &self.settings, Arc::default(), &self.metrics).ok()?;
        endpoints.push(Rc::new(endpoint));
        Some(endpoints.len() as u16 - 1)
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

    pub(crate) fn count_tracked_keys(&self, keys: i64) {
        self.metrics.tracked_keys(keys);
    }

    pub(crate) fn metrics(&self, key: P::Key) -> Rc<EndpointMetrics> {
        self.endpoint(key).metrics().clone()
    }

    pub(crate) fn hard_cap(&self) -> usize {
        self.hard_cap
    }

    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let reconnect = &self.settings.reconnect;
        self.rng.borrow_mut().backoff(attempt, reconnect.base, reconnect.max)
    }

    pub(crate) async fn open(&self, key: P::Key, kind: LaneKind) -> Result<(Stream, P::Greeting), ConnectError> {
        let opened = self.endpoint(key).open(&self.protocol, key, kind).await;
        if opened.is_err() {
            self.refresh();
        }
        opened
    }

    /// A lane of `key` has ended with `lost` exchanges under way.
    pub(crate) fn lane_lost(&self, key: P::Key, cause: LossCause, lost: usize) {
        self.endpoint(key).lane_lost(cause, lost);
        if cause != LossCause::Retired {
            // It may have lost its place in the cluster too.
            self.refresh();
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
        self.tasks.borrow_mut().clear();
        for (_, lane) in self.shared.borrow_mut().drain() {
            lane.end(LossCause::Retired);
        }
        self.end_idle_pinned();
    }
}

/// The probe of a protocol with lanes.
struct LaneProbe<'a, P>(&'a P);

impl<P: LaneProtocol> Probe for LaneProbe<'_, P> {
    async fn ask(&self, mut stream: Stream) -> io::Result<Option<Stream>> {
        self.0.probe(&mut stream).await.map(|()| Some(stream))
    }
}
