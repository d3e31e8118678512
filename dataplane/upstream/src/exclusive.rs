//! Upstreams whose lanes serve one exchange at a time: HTTP/1.1.
//!
//! An exchange chooses an endpoint ([`crate::balance`]), takes an idle lane of it or a new one, and gives it back if it is
//! certainly clean. A lane that is dropped is closed.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use weir_base::{
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, Stream, timeout};
use weir_telemetry::cells::GaugeGuard;

use crate::{
    balance::{Balancer, Candidate},
    breaker::BreakerState,
    endpoint::Endpoint,
    health::{EndpointState, Health, Probe, probe_loop},
    metrics::{EndpointMetrics, LaneKind, UpstreamMetrics},
    protocol::{LossCause, Refusal},
    settings::{ExclusiveSettings, UpstreamSettings},
};

/// How often idle lanes are looked at: old ones are closed, and those that the server has closed let go.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// Below this share of healthy endpoints, in percent, health no longer decides: those left could not carry the load of all
/// (Envoy's panic threshold has the same default).
const PANIC_PERCENT: usize = 50;

/// A lane that nobody has.
struct Idle {
    stream: Stream,
    since: Time,
    open: GaugeGuard,
}

/// One endpoint with its lanes.
struct Member {
    endpoint: Rc<Endpoint>,
    weight: u32,
    /// The one used last is the next one taken: the others can grow old.
    idle: RefCell<Vec<Idle>>,
    /// Lanes lent, idle or being connected.
    open: Cell<u32>,
    /// Exchanges that have a lane of it.
    lent: Cell<u64>,
    /// Exchanges that wait for room.
    waiting: RefCell<VecDeque<Waker>>,
}

/// One named upstream on one worker.
pub struct ExclusiveUpstream {
    settings: UpstreamSettings,
    lanes: ExclusiveSettings,
    members: Vec<Member>,
    balancer: RefCell<Balancer>,
    is_retired: Cell<bool>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl ExclusiveUpstream {
    /// Prepares an upstream; connects nothing. `health` has one entry per endpoint; `probe` is given on the one worker that
    /// probes for all.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        lanes: ExclusiveSettings,
        health: &[Arc<Health>],
        metrics: &UpstreamMetrics,
        probe: Option<impl Probe + 'static>,
    ) -> io::Result<Rc<Self>> {
        let member = |(number, (address, health)): (usize, (&_, &Arc<Health>))| {
            io::Result::Ok(Member {
                endpoint: Rc::new(Endpoint::new(address, &settings, health.clone(), metrics)?),
                weight: lanes.weights.get(number).copied().unwrap_or(1),
                idle: RefCell::default(),
                open: Cell::new(0),
                lent: Cell::new(0),
                waiting: RefCell::default(),
            })
        };
        let members = settings.endpoints.iter().zip(health).enumerate();
        let members = members.map(member).collect::<io::Result<Vec<_>>>()?;
        if members.is_empty() || members.len() != settings.endpoints.len() {
            return Err(io::Error::other("an upstream needs an endpoint, and each its health"));
        }
        let rng = Rng::new(Time::now().as_nanos());
        let balancer = Balancer::new(lanes.balance, members.len(), rng);
        let upstream = Rc::new_cyclic(|me| Self {
            settings,
            lanes,
            members,
            balancer: RefCell::new(balancer),
            is_retired: Cell::new(false),
            me: me.clone(),
            tasks: RefCell::default(),
        });
        upstream.start_tasks(probe);
        Ok(upstream)
    }

    fn start_tasks(&self, probe: Option<impl Probe + 'static>) {
        let me = self.me.clone();
        let mut tasks = vec![weir_engine::spawn(async move {
            loop {
                weir_engine::sleep(IDLE_LOOK).await;
                let Some(upstream) = me.upgrade() else { return };
                upstream.members.iter().for_each(|member| upstream.tidy(member));
            }
        })];
        if let (Some(probe), Some(settings)) = (probe, &self.settings.health) {
            let probe = Rc::new(probe);
            for member in &self.members {
                let (endpoint, settings, probe) = (member.endpoint.clone(), settings.clone(), probe.clone());
                tasks.push(weir_engine::spawn(async move {
                    let open = async || endpoint.connector().connect().await;
                    probe_loop(&endpoint, settings, open, &*probe).await;
                }));
            }
        }
        *self.tasks.borrow_mut() = tasks;
    }

    /// Closes what is too old, and lets go of what the server has closed.
    fn tidy(&self, member: &Member) {
        let now = turn::now();
        let mut gone = Vec::new();
        let mut idle = member.idle.borrow_mut();
        let mut at = 0;
        while at < idle.len() {
            let is_old = now.since(idle[at].since) > self.lanes.idle_timeout;
            if is_old || !is_clean(&mut idle[at].stream) {
                gone.push(idle.swap_remove(at));
            } else {
                at += 1;
            }
        }
        // Closing takes a look at the lists.
        drop(idle);
        for lane in gone {
            member.endpoint.lane_lost(LossCause::Retired, 0);
            drop(lane);
            member.closed();
        }
        member.endpoint.publish_breaker();
    }

    /// What it was made with.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// Address, health and breaker of every endpoint.
    pub fn endpoint_states(&self) -> impl Iterator<Item = (String, EndpointState, BreakerState)> {
        self.members.iter().map(|member| {
            let endpoint = &member.endpoint;
            (endpoint.connector().endpoint.to_string(), endpoint.health().state(), endpoint.breaker_state())
        })
    }

    /// A lane for one exchange, preferably not to the endpoint number `avoid`, which has just failed.
    ///
    /// # Errors
    /// No lane can be had; nothing was sent.
    pub async fn acquire(&self, avoid: Option<usize>) -> Result<ExclusiveLane, Refusal> {
        let number = self.choose(avoid).ok_or(Refusal::BreakerOpen)?;
        match self.take_idle(number) {
            Some(lane) => Ok(lane),
            None => Box::pin(self.connect(number)).await,
        }
    }

    /// The endpoint that the next exchange goes to; `None` if the breakers of all are open.
    fn choose(&self, avoid: Option<usize>) -> Option<usize> {
        if let [only] = &self.members[..] {
            return (only.endpoint.breaker_state() != BreakerState::Open).then_some(0);
        }
        let is_up = |member: &Member| member.endpoint.health().state() != EndpointState::Down;
        let up = self.members.iter().filter(|member| is_up(member)).count();
        let is_panic = up * 100 < self.members.len() * PANIC_PERCENT;
        let mut candidates: Vec<Candidate> = Vec::with_capacity(self.members.len());
        for (number, member) in self.members.iter().enumerate() {
            let is_open = member.endpoint.breaker_state() == BreakerState::Open;
            if !is_open && member.weight > 0 && (is_panic || is_up(member)) {
                candidates.push(Candidate { number, weight: member.weight, in_flight: member.lent.get() });
            }
        }
        if candidates.len() > 1 {
            candidates.retain(|candidate| Some(candidate.number) != avoid);
        }
        self.balancer.borrow_mut().choose(&candidates)
    }

    fn take_idle(&self, number: usize) -> Option<ExclusiveLane> {
        let member = &self.members[number];
        loop {
            let Idle { mut stream, open, .. } = member.idle.borrow_mut().pop()?;
            if is_clean(&mut stream) {
                return Some(self.lend(number, stream, open, true));
            }
            member.endpoint.lane_lost(LossCause::Closed, 0);
            drop((stream, open));
            member.closed();
        }
    }

    async fn connect(&self, number: usize) -> Result<ExclusiveLane, Refusal> {
        let member = &self.members[number];
        if member.open.get() >= self.lanes.connections_max {
            if let Some(lane) = self.wait(number).await? {
                return Ok(lane);
            }
        } else {
            member.open.set(member.open.get() + 1);
        }
        let mut promised = Promised { member, is_kept: false };
        let stream = member.endpoint.connect(LaneKind::Exclusive).await.map_err(|error| error.refusal)?;
        promised.is_kept = true;
        let open = member.endpoint.metrics().lane_opened(LaneKind::Exclusive);
        Ok(self.lend(number, stream, open, false))
    }

    /// Waits for an idle lane, or for the right to connect one (`None`).
    async fn wait(&self, number: usize) -> Result<Option<ExclusiveLane>, Refusal> {
        let member = &self.members[number];
        if member.waiting.borrow().len() >= self.settings.lane_waiters_max as usize {
            return Err(Refusal::QueueFull);
        }
        let metrics = member.endpoint.metrics();
        let begun = turn::now();
        let room = poll_fn(|context| {
            if let Some(lane) = self.take_idle(number) {
                return Poll::Ready(Some(lane));
            }
            if member.open.get() < self.lanes.connections_max {
                member.open.set(member.open.get() + 1);
                return Poll::Ready(None);
            }
            let mut waiting = member.waiting.borrow_mut();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push_back(context.waker().clone());
            }
            Poll::Pending
        });
        let _waiting = Waiting::new(member);
        let waited = timeout(self.settings.lane_wait_timeout, room).await;
        metrics.waited(turn::now().since(begun), 1);
        waited.map_err(|_| Refusal::QueueTimeout)
    }

    fn lend(&self, number: usize, stream: Stream, open: GaugeGuard, is_reused: bool) -> ExclusiveLane {
        let member = &self.members[number];
        member.lent.set(member.lent.get() + 1);
        let metrics = member.endpoint.metrics().clone();
        metrics.requests_sent(1);
        ExclusiveLane {
            held: Some((stream, open)),
            number,
            is_reused,
            cause: LossCause::Closed,
            failed: None,
            metrics,
            upstream: self.me.clone(),
        }
    }

    fn returned(&self, lane: &mut ExclusiveLane, is_clean: bool) {
        let Some(member) = self.members.get(lane.number) else { return };
        member.lent.set(member.lent.get() - 1);
        lane.metrics.requests_over(1);
        let Some((stream, open)) = lane.held.take() else { return };
        let has_room = member.idle.borrow().len() < self.lanes.idle_max as usize;
        if is_clean && has_room && !self.is_retired.get() {
            member.idle.borrow_mut().push(Idle { stream, since: turn::now(), open });
            member.wake();
            return;
        }
        let cause = if is_clean { LossCause::Retired } else { lane.cause };
        member.endpoint.lane_lost(cause, usize::from(lane.failed.is_some()));
        drop((stream, open));
        member.closed();
    }

    /// Takes no part in anything new: it was replaced.
    pub fn retire(&self) {
        self.is_retired.set(true);
        for member in &self.members {
            let idle = member.idle.take();
            idle.iter().for_each(|_| member.endpoint.lane_lost(LossCause::Retired, 0));
            member.open.set(member.open.get() - idle.len() as u32);
        }
    }
}

impl Member {
    /// A lane is gone: another may be opened.
    fn closed(&self) {
        self.open.set(self.open.get() - 1);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waiting.borrow_mut().pop_front() {
            waker.wake();
        }
    }
}

/// A lane that is being connected, and counted as open already.
struct Promised<'a> {
    member: &'a Member,
    is_kept: bool,
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.member.closed();
        }
    }
}

/// An exchange that waits for room.
struct Waiting<'a>(&'a Member);

impl<'a> Waiting<'a> {
    fn new(member: &'a Member) -> Self {
        member.endpoint.metrics().waiters(1);
        Self(member)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.endpoint.metrics().waiters(-1);
        // Who gave up in the moment in which it was woken has been told of room that it leaves to the next.
        self.0.wake();
    }
}

/// The server has said nothing since the last exchange, and not closed either.
fn is_clean(stream: &mut Stream) -> bool {
    let polled = stream.reader.poll_receive(&mut Context::from_waker(Waker::noop()));
    polled.is_pending() && !stream.output.is_closed()
}

/// One upstream connection, lent to one exchange. Dropped, it is closed.
pub struct ExclusiveLane {
    held: Option<(Stream, GaugeGuard)>,
    number: usize,
    is_reused: bool,
    cause: LossCause,
    /// The exchange on it failed.
    failed: Option<&'static str>,
    metrics: Rc<EndpointMetrics>,
    upstream: Weak<ExclusiveUpstream>,
}

impl ExclusiveLane {
    /// The connection.
    pub fn stream(&mut self) -> &mut Stream {
        // It is taken by `give_back` and `drop` only, which end the lane.
        &mut self.held.as_mut().expect("a lane has its connection until it ends").0
    }

    /// Position of the endpoint in the settings.
    pub fn number(&self) -> usize {
        self.number
    }

    /// It has served an exchange before: the server may have closed it meanwhile.
    pub fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Counts bytes received and written.
    pub fn count_bytes(&self, received: usize, written: usize) {
        self.metrics.received(received);
        self.metrics.written(written as u64);
    }

    /// The exchange failed for a fault of the server: counted, and a reason for the breaker.
    pub fn failed(&mut self, cause: LossCause) {
        self.cause = cause;
        self.failed = Some(cause.name());
        self.metrics.request_failed(cause.name());
    }

    /// The connection ends after this exchange as agreed: that is no fault.
    pub fn ends(&mut self) {
        self.cause = LossCause::Retired;
    }

    /// The exchange is over and nothing of it is left on the connection: another may have it.
    pub fn give_back(mut self) {
        self.end(true);
    }

    fn end(&mut self, is_clean: bool) {
        match self.upstream.upgrade() {
            Some(upstream) => upstream.returned(self, is_clean),
            None => self.metrics.requests_over(1),
        }
    }
}

impl Drop for ExclusiveLane {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.end(false);
        }
    }
}
