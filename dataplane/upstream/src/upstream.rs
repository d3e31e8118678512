//! One named upstream on one worker.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};

use weir_base::{
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, Stream};

use crate::{
    breaker::{Breaker, BreakerState},
    connect::{ConnectError, Connector},
    health::{Health, probe_loop},
    metrics::{LaneKind, UpstreamMetrics},
    pinned::PinnedPool,
    protocol::{LaneProtocol, LossCause, Refusal, Waiter},
    settings::UpstreamSettings,
    shared::SharedLane,
};

/// How often deadlines of waiting exchanges are looked at. A request timeout is exact to this.
const DEADLINE_LOOK: Duration = Duration::from_millis(50);

/// Lanes lost within this time of each other are one failure of the server.
const LOSSES_AT_ONCE: Duration = Duration::from_millis(100);

/// Shared lanes by key and by number among those of one key.
type SharedLanes<P, W> = HashMap<(<P as LaneProtocol>::Key, u16), Rc<SharedLane<P, W>>>;

/// Lanes to one upstream, and what is known of it, on one worker.
pub struct Upstream<P: LaneProtocol, W: Waiter<P>> {
    settings: UpstreamSettings,
    protocol: P,
    connector: Connector,
    health: Arc<Health>,
    breaker: RefCell<Breaker>,
    rng: RefCell<Rng>,
    shared: RefCell<SharedLanes<P, W>>,
    pub(crate) pinned: PinnedPool<P, W>,
    metrics: Rc<UpstreamMetrics>,
    hard_cap: usize,
    /// When a lost lane was last counted as a failure.
    lost_at: Cell<Option<Time>>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Prepares an upstream; connects nothing. `probes` says whether this worker runs the health probe; `hard_cap` is
    /// the output of a client, in bytes, past which it may not hold up a shared lane.
    ///
    /// # Errors
    /// TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        protocol: P,
        health: Arc<Health>,
        metrics: UpstreamMetrics,
        hard_cap: usize,
        probes: bool,
    ) -> io::Result<Rc<Self>> {
        let connector = Connector::new(&settings)?;
        let upstream = Rc::new_cyclic(|me: &Weak<Self>| Self {
            breaker: RefCell::new(Breaker::new(settings.breaker.clone())),
            rng: RefCell::new(Rng::new(weir_base::time::Time::now().as_nanos())),
            protocol,
            connector,
            health,
            shared: RefCell::default(),
            pinned: PinnedPool::default(),
            metrics: Rc::new(metrics),
            hard_cap,
            lost_at: Cell::new(None),
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
        if let Some(health) = self.settings.health.clone().filter(|_| probes) {
            let me = self.me.clone();
            tasks.push(weir_engine::spawn(async move {
                if let Some(upstream) = me.upgrade() {
                    probe_loop(&upstream, health).await;
                }
            }));
        }
        *self.tasks.borrow_mut() = tasks;
    }

    fn check_deadlines(&self) {
        for lane in self.shared.borrow().values() {
            lane.check_deadline(self);
        }
        self.check_pinned();
        self.metrics.breaker(self.breaker_state());
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

    /// A yes unless trying is known to be useless just now.
    ///
    /// # Errors
    /// The breaker is open.
    pub fn check_available(&self) -> Result<(), Refusal> {
        if self.breaker_state() == BreakerState::Open {
            return Err(Refusal::BreakerOpen);
        }
        Ok(())
    }

    /// What the settings say.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// The protocol and its credentials.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The state of the breaker now.
    pub fn breaker_state(&self) -> BreakerState {
        self.breaker.borrow().state(turn::now())
    }

    /// The shared knowledge of the endpoint.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Counts a session that needs a lane of its own, for `reason`.
    pub fn count_pin(&self, reason: &str) {
        self.metrics.pinned_for(reason);
    }

    pub(crate) fn metrics(&self) -> &Rc<UpstreamMetrics> {
        &self.metrics
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn hard_cap(&self) -> usize {
        self.hard_cap
    }

    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let reconnect = &self.settings.reconnect;
        self.rng.borrow_mut().backoff(attempt, reconnect.base, reconnect.max)
    }

    pub(crate) async fn open(&self, key: P::Key, kind: LaneKind) -> Result<(Stream, P::Greeting), ConnectError> {
        let begun = turn::now();
        let opened = self.connector.open(&self.protocol, key).await;
        match &opened {
            Ok(_) => {
                self.breaker.borrow_mut().succeeded();
                self.metrics.connected(kind, turn::now().since(begun));
            }
            Err(error) => {
                self.metrics.connect_failed(error.reason, &error.text);
                self.note_failure();
            }
        }
        opened
    }

    /// A lane has ended with `lost` exchanges under way. A server may close idle connections, and one that restarts closes
    /// all at once: the first is no failure, the second is one.
    pub(crate) fn lane_lost(&self, cause: LossCause, lost: usize) {
        self.metrics.lane_closed(cause);
        let is_failure = match cause {
            LossCause::Timeout | LossCause::Violation => true,
            LossCause::Closed => lost > 0,
            LossCause::Retired => false,
        };
        let now = turn::now();
        let is_counted = self.lost_at.get().is_some_and(|at| now.since(at) <= LOSSES_AT_ONCE);
        if is_failure && !is_counted {
            self.lost_at.set(Some(now));
            self.note_failure();
        }
    }

    fn note_failure(&self) {
        if self.breaker.borrow_mut().failed(turn::now()) {
            self.metrics.breaker_opened();
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
