//! Upstreams whose lanes serve one exchange at a time: the connections of HTTP/1.1, and the streams of HTTP/2.
//!
//! An exchange chooses an endpoint ([`crate::balance`]). Of HTTP/1.1 it takes an idle connection or a new one, and gives it back
//! if it is certainly clean; one that is dropped is closed. Of HTTP/2 it takes a place on a connection that has room
//! ([`crate::carrier`]), and a further connection is made only when all are full.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    rc::{Rc, Weak},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{JoinHandle, timeout};

use crate::{
    acquiring::{Acquiring, Connecting},
    balance::{Balancer, Candidate},
    breaker::BreakerState,
    carrier::{Meter, Multiplexer, Slot},
    choice::{Choice, Reach, Standing, Tried},
    connect::ConnectError,
    ejection::Outcome,
    endpoint::Endpoint,
    health::{EndpointState, Health, Probe, probe_loop},
    idle::{Found, Idle, Remains},
    lent::{ExclusiveLane, Held, Open},
    member::{Member, Promise, Waiting},
    metrics::{LaneKind, UpstreamMetrics},
    settings::{Affinity, ExclusiveSettings, RETRY_BUDGET_MIN, SLOW_START_PERCENT_MIN, UpstreamSettings},
};

/// How often idle lanes are looked at: old ones are closed, and those that the server has closed let go.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// What an exchange asks of the endpoint that it gets.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Preferably not this one, which has just failed.
    pub avoid: Option<usize>,
    /// Any other than these, as long as there is one.
    pub tried: Tried,
    /// Not a connection that has served before, unless it carries several exchanges, or no other can be made.
    pub is_fresh: bool,
    /// Of what stays together.
    pub hash: Option<u64>,
}

/// A retry that is under way.
pub struct Retry<M: Multiplexer>(Rc<ExclusiveUpstream<M>>);

impl<M: Multiplexer> Drop for Retry<M> {
    fn drop(&mut self) {
        self.0.retries.set(self.0.retries.get() - 1);
    }
}

/// One named upstream on one worker.
pub struct ExclusiveUpstream<M: Multiplexer> {
    settings: UpstreamSettings,
    lanes: ExclusiveSettings,
    /// `None`: a connection carries one exchange at a time.
    multiplexer: Option<M>,
    members: Vec<Rc<Member<M::Carrier>>>,
    balancer: RefCell<Balancer>,
    /// Retries under way.
    retries: Cell<u64>,
    is_retired: Cell<bool>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<M: Multiplexer> ExclusiveUpstream<M> {
    /// Prepares an upstream; connects nothing. `health` has one entry per endpoint; `probe` is given on the one worker that
    /// probes for all. Without a `multiplexer` a connection carries one exchange at a time.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        lanes: ExclusiveSettings,
        multiplexer: Option<M>,
        health: &[Arc<Health>],
        metrics: &UpstreamMetrics,
        probe: Option<impl Probe + 'static>,
    ) -> io::Result<Rc<Self>> {
        let member = |(number, (address, health)): (usize, (&_, &Arc<Health>))| {
            let weight = lanes.weights.get(number).copied().unwrap_or(1);
            io::Result::Ok(Rc::new(Member::new(Endpoint::new(address, &settings, health.clone(), metrics)?, weight)))
        };
        let members = settings.endpoints.iter().zip(health).enumerate();
        let members = members.map(member).collect::<io::Result<Vec<_>>>()?;
        if members.is_empty() || members.len() != settings.endpoints.len() {
            return Err(io::Error::other("an upstream needs an endpoint, and each its health"));
        }
        let rng = Rng::new(Time::now().as_nanos());
        let named = |member: &Rc<Member<_>>| (member.endpoint.connector().endpoint.to_string(), member.weight);
        let balancer = Balancer::new(lanes.balance, &members.iter().map(named).collect::<Vec<_>>(), rng);
        let upstream = Rc::new_cyclic(|me| Self {
            settings,
            lanes,
            multiplexer,
            members,
            balancer: RefCell::new(balancer),
            retries: Cell::new(0),
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
    fn tidy(&self, member: &Member<M::Carrier>) {
        let now = turn::now();
        // Closing takes a look at the lists.
        let unfit = member.idle.borrow_mut().take_unfit(now, self.lanes.idle_timeout);
        unfit.into_iter().for_each(|(idle, found)| member.let_go(idle, found, LossCause::Retired));
        let is_old = |since: Time| now.since(since) > self.lanes.idle_timeout;
        let is_spent = |slot: &mut Rc<Slot<_>>| slot.is_over() || slot.idle_since().is_some_and(is_old);
        let spent: Vec<_> = member.carriers.borrow_mut().extract_if(.., is_spent).collect();
        spent.iter().for_each(|slot| slot.retire());
        drop(spent);
        member.endpoint.publish_breaker();
    }

    /// What it was made with.
    pub fn settings(&self) -> &UpstreamSettings {
        &self.settings
    }

    /// Its connections carry several exchanges at once.
    pub fn is_multiplexed(&self) -> bool {
        self.multiplexer.is_some()
    }

    /// Address, health and breaker of every endpoint.
    pub fn endpoint_states(&self) -> impl Iterator<Item = (String, EndpointState, BreakerState)> {
        self.members.iter().map(|member| {
            let endpoint = &member.endpoint;
            (endpoint.connector().endpoint.to_string(), endpoint.health().state(), endpoint.breaker_state())
        })
    }

    /// A lane for one exchange. Without one nothing was sent.
    pub fn acquire(self: &Rc<Self>, wanted: Wanted) -> Acquiring<M> {
        let is_fresh = wanted.is_fresh && self.multiplexer.is_none();
        let number = loop {
            match self.choose(&wanted) {
                None => return Acquiring::ready(Err((Refusal::BreakerOpen, None))),
                Some(Chosen { number, connects: true }) => break number,
                // Where its connections have ended it has none any more: another endpoint may serve.
                Some(Chosen { number, connects: false }) => {
                    if let Some(lane) = self.take(number) {
                        return Acquiring::ready(Ok(lane));
                    }
                }
            }
        };
        let is_awaited = !self.members[number].waiting.borrow().is_empty();
        match if is_awaited || is_fresh { None } else { self.take(number) } {
            Some(lane) => Acquiring::ready(Ok(lane)),
            None => {
                let (own, is_begun) = (self.clone(), Rc::<Cell<bool>>::default());
                let begun = is_begun.clone();
                let future =
                    async move { own.connect(number, &begun).await.map_err(|refusal| (refusal, Some(number))) };
                Acquiring::waiting(Connecting { number, future: Box::pin(future), is_begun })
            }
        }
    }

    /// What stays together.
    pub fn affinity(&self) -> &Affinity {
        &self.lanes.affinity
    }

    /// Another retry may be under way.
    pub fn may_retry(&self) -> bool {
        let in_flight: u64 = self.members.iter().map(|member| member.lent.get()).sum();
        let most = (in_flight * u64::from(self.lanes.retry_budget_percent) / 100).max(RETRY_BUDGET_MIN);
        self.retries.get() < most
    }

    /// Counts that a request is made elsewhere after `outcome` at endpoint number `number`, which no budget bounds: see [`Tried`].
    pub fn goes_elsewhere(&self, number: usize, outcome: &str) {
        if let Some(member) = self.members.get(number) {
            member.endpoint.metrics().retried_after(outcome);
        }
    }

    /// A connection to endpoint number `number` turned out to be closed: so may be the others that are idle.
    pub fn look_again(&self, number: usize) {
        let Some(member) = self.members.get(number) else { return };
        member.idle.borrow_mut().expect_ends();
        self.tidy(member);
    }

    /// Counts a retry after `outcome` at endpoint number `number`; it is under way until the result is dropped.
    pub fn retry(self: &Rc<Self>, number: usize, outcome: &str) -> Retry<M> {
        self.goes_elsewhere(number, outcome);
        self.retries.set(self.retries.get() + 1);
        Retry(self.clone())
    }

    /// How an exchange with endpoint number `number` ended, and how long its answer took to begin.
    pub fn note(&self, number: usize, outcome: Outcome, took: Option<Duration>) {
        let Some(member) = self.members.get(number) else { return };
        let now = turn::now();
        let is_good = match outcome {
            Outcome::Status(status) => {
                member.endpoint.metrics().answered(status, took);
                !matches!(status, 502..=504) && (status < 500 || !self.lanes.ejection.any_5xx)
            }
            Outcome::Lost(since) if !member.ejection.borrow_mut().is_own_loss(since, now) => return,
            Outcome::TimedOut if !member.ejection.borrow_mut().is_own_timeout(now) => return,
            Outcome::Lost(_) | Outcome::TimedOut | Outcome::Failed => false,
        };
        if let Some(took) = took {
            let mut latency = member.latency.get();
            latency.note(took, now);
            member.latency.set(latency);
        }
        let settings = &self.lanes.ejection;
        if !member.ejection.borrow_mut().note(is_good, settings, now) {
            return;
        }
        let out = self.members.iter().filter(|member| member.ejection.borrow().is_out(now)).count();
        let most = (self.members.len() * settings.percent_max as usize / 100).max(1);
        if out < most && self.members.len() > 1 {
            let duration = member.ejection.borrow_mut().eject(settings, now);
            member.endpoint.metrics().ejected(duration);
        }
    }

    /// The endpoint that the next exchange goes to. `None` if the breaker of the only one is open, or those of all that were tried,
    /// or where connections to all of them time out and none has one with room.
    fn choose(&self, wanted: &Wanted) -> Option<Chosen> {
        let now = turn::now();
        if let [only] = &self.members[..] {
            let connects = match only.reach() {
                Reach::Yes | Reach::Trial => true,
                Reach::No => only.endpoint.breaker_state() != BreakerState::Open,
                Reach::Silent => false,
            };
            return (connects || only.has_lane(now)).then_some(Chosen { number: 0, connects });
        }
        let has_waited = wanted.tried.all().iter().any(|&number| self.members[number].endpoint.is_silent());
        let standing =
            |(number, member): (usize, &Rc<Member<_>>)| member.standing(wanted.tried.has(number), has_waited, now);
        let standings: Vec<Standing> = self.members.iter().enumerate().map(standing).collect();
        let choice = Choice::among(&standings, self.lanes.panic_percent);
        let mut candidates: Vec<Candidate> = Vec::with_capacity(self.members.len());
        for (number, (member, standing)) in self.members.iter().zip(&standings).enumerate() {
            if choice.takes(*standing) {
                let (in_flight, latency) = (member.lent.get(), member.latency.get().nanos());
                candidates.push(Candidate { number, weight: self.weight(member, now), in_flight, latency });
            }
        }
        if candidates.len() > 1 {
            candidates.retain(|candidate| Some(candidate.number) != wanted.avoid);
        }
        let number = self.balancer.borrow_mut().choose(&candidates, wanted.hash)?;
        Some(Chosen { number, connects: standings[number].reach != Reach::Silent })
    }

    /// What an endpoint counts now: less for a while after it was down.
    fn weight(&self, member: &Member<M::Carrier>, now: Time) -> u32 {
        let window = self.lanes.slow_start.as_nanos() as u64;
        if window == 0 {
            return member.weight;
        }
        let since = member.endpoint.up_since().map_or(window, |at| now.nanos_since(at));
        let percent = (since.min(window) * 100 / window).max(SLOW_START_PERCENT_MIN);
        // Of a hundred each, so that light ones have steps too.
        (u64::from(member.weight) * percent).min(u64::from(u32::MAX)) as u32
    }

    /// What is there already.
    fn take(&self, number: usize) -> Option<ExclusiveLane<M>> {
        match self.multiplexer {
            Some(_) => self.board(number),
            None => self.take_idle(number),
        }
    }

    fn take_idle(&self, number: usize) -> Option<ExclusiveLane<M>> {
        let member = &self.members[number];
        loop {
            let now = turn::now();
            let mut idle = member.idle.borrow_mut().take(now)?;
            match idle.look(now) {
                Found::Silence => return Some(self.lend(number, Held::Connection(idle.stream, idle.open), true)),
                found => member.let_go(idle, found, LossCause::Closed),
            }
        }
    }

    /// A place on a connection that carries several exchanges.
    fn board(&self, number: usize) -> Option<ExclusiveLane<M>> {
        let mut carriers = self.members[number].carriers.borrow_mut();
        let over: Vec<_> = carriers.extract_if(.., |slot| slot.is_over()).collect();
        let slot = carriers.iter().find(|slot| slot.has_room()).cloned();
        // The end of one takes a look at the lists.
        drop((carriers, over));
        slot.map(|slot| self.lend_place(number, slot))
    }

    fn lend_place(&self, number: usize, slot: Rc<Slot<M::Carrier>>) -> ExclusiveLane<M> {
        slot.lent.set(slot.lent.get() + 1);
        let has_served = slot.has_served.get();
        self.lend(number, Held::Place(slot), has_served)
    }

    /// A further connection may be made to it now. Connections that carry several exchanges are made one by one: the first may
    /// be enough for all who wait. So are those to an endpoint whose breaker is not closed: the first says whether it is back.
    fn may_connect(&self, member: &Member<M::Carrier>) -> bool {
        let is_made = member.promised.get() > 0 && self.shares_attempts(member);
        member.open.get() < self.lanes.connections_max && !is_made
    }

    /// All who wait for a connection to it share the result of one attempt.
    fn shares_attempts(&self, member: &Member<M::Carrier>) -> bool {
        self.multiplexer.is_some() || member.endpoint.breaker_state() != BreakerState::Closed
    }

    /// A connection at rest gives way if no other may be made.
    fn make_room(&self, member: &Member<M::Carrier>) {
        if member.open.get() >= self.lanes.connections_max {
            let resting = member.idle.borrow_mut().take_resting();
            resting.into_iter().for_each(|idle| member.let_go(idle, Found::Silence, LossCause::Retired));
        }
    }

    /// A lane on a new connection, or on one that becomes free before; `is_begun`: that connection is being made.
    async fn connect(&self, number: usize, is_begun: &Cell<bool>) -> Result<ExclusiveLane<M>, Refusal> {
        let member = &self.members[number];
        self.make_room(member);
        let promise = match self.may_connect(member) && member.waiting.borrow().is_empty() {
            true => Promise::new(member),
            false => match self.wait(number).await? {
                Granted::Lane(lane) => return Ok(lane),
                Granted::Promise(promise) => promise,
            },
        };
        is_begun.set(true);
        match self.open(member).await {
            Ok(held) => {
                promise.keep();
                Ok(match held {
                    Held::Place(slot) => {
                        member.carriers.borrow_mut().push(slot.clone());
                        let lane = self.lend_place(number, slot);
                        member.wake_all();
                        lane
                    }
                    held => self.lend(number, held, false),
                })
            }
            Err(error) => {
                member.refused.set((member.refused.get().0 + 1, error.refusal));
                Err(error.refusal)
            }
        }
    }

    async fn open(&self, member: &Rc<Member<M::Carrier>>) -> Result<Held<M::Carrier>, ConnectError> {
        let metrics = member.endpoint.metrics();
        let Some(multiplexer) = &self.multiplexer else {
            let stream = member.endpoint.connect(LaneKind::Exclusive).await?;
            return Ok(Held::Connection(stream, Open::new(metrics.lane_opened(LaneKind::Exclusive))));
        };
        let begin = async |stream| multiplexer.begin(stream, Meter(metrics.clone())).await;
        let carrier = member.endpoint.connect_and(LaneKind::Shared, begin).await?;
        Ok(Held::Place(Slot::new(carrier, member, Open::new(metrics.lane_opened(LaneKind::Shared)))))
    }

    /// Waits for a lane, or for the right to connect one.
    async fn wait(&self, number: usize) -> Result<Granted<'_, M>, Refusal> {
        let member = &self.members[number];
        if member.waiting.borrow().len() >= self.settings.lane_waiters_max as usize {
            return Err(Refusal::QueueFull);
        }
        let metrics = member.endpoint.metrics();
        let begun = turn::now();
        let (refused, _) = member.refused.get();
        let waiting = Waiting::new(member);
        let room = poll_fn(|context| {
            match member.refused.get() {
                // Who waited for the same connection need not find out one after the other.
                (count, refusal) if count != refused && self.shares_attempts(member) => {
                    return Poll::Ready(Err(refusal));
                }
                _ => {}
            }
            // Who came first goes first.
            if waiting.is_next()
                && let Some(lane) = self.take(number)
            {
                return Poll::Ready(Ok(Granted::Lane(lane)));
            }
            if waiting.is_next() && self.may_connect(member) {
                return Poll::Ready(Ok(Granted::Promise(Promise::new(member))));
            }
            waiting.register(context.waker());
            Poll::Pending
        });
        let waited = timeout(self.settings.lane_wait_timeout, room).await;
        metrics.waited(turn::now().since(begun), 1);
        let is_unreachable = member.endpoint.breaker_state() != BreakerState::Closed;
        waited.map_err(|_| if is_unreachable { Refusal::Unreachable } else { Refusal::QueueTimeout })?
    }

    fn lend(&self, number: usize, held: Held<M::Carrier>, is_reused: bool) -> ExclusiveLane<M> {
        let member = &self.members[number];
        member.lent.set(member.lent.get() + 1);
        let metrics = member.endpoint.metrics().clone();
        metrics.requests_sent(1);
        ExclusiveLane::new(held, number, is_reused, metrics, self.me.clone())
    }

    /// A lane comes back from its exchange; without `remains` nobody else may have it. `answered`: the server did, or did not in
    /// time.
    pub(crate) fn returned(
        &self,
        number: usize,
        held: Held<M::Carrier>,
        remains: Option<Remains>,
        cause: LossCause,
        answered: Option<bool>,
    ) {
        let Some(member) = self.members.get(number) else { return };
        member.lent.set(member.lent.get() - 1);
        member.endpoint.metrics().requests_over(1);
        let (stream, open) = match held {
            Held::Connection(stream, open) => (stream, open),
            Held::Place(slot) => {
                if slot.left(answered) {
                    member.carriers.borrow_mut().retain(|other| !Rc::ptr_eq(other, &slot));
                }
                drop(slot);
                return member.wake();
            }
        };
        let idle = Idle { stream, since: turn::now(), open };
        let has_room = member.idle.borrow().len() < self.lanes.idle_max as usize && !self.is_retired.get();
        let cause = match remains {
            Some(Remains::Nothing) if has_room && !member.is_distrusted() => {
                member.idle.borrow_mut().push(idle);
                return member.wake();
            }
            // Who waits gets a new one.
            Some(Remains::Nothing | Remains::PerhapsBody) if has_room && member.waiting.borrow().is_empty() => {
                return member.idle.borrow_mut().rest(idle);
            }
            Some(Remains::Nothing | Remains::PerhapsBody) => LossCause::Retired,
            Some(Remains::Bytes) => {
                member.overran();
                LossCause::Violation
            }
            None => cause,
        };
        // An exchange that fails is a matter of `note`: a breaker that counted it would shut all paths out for one of them.
        member.endpoint.metrics().lane_closed(cause);
        drop(idle);
        member.closed();
    }

    /// Takes no part in anything new: it was replaced.
    pub fn retire(&self) {
        self.is_retired.set(true);
        // Whoever replaced it probes now: two would tell different things of one endpoint.
        self.tasks.borrow_mut().truncate(1);
        for member in &self.members {
            let idle = member.idle.take();
            idle.into_all().for_each(|idle| member.let_go(idle, Found::Silence, LossCause::Retired));
            member.carriers.take().iter().for_each(|slot| slot.retire());
        }
    }
}

/// An endpoint for an exchange.
struct Chosen {
    number: usize,
    /// A connection may be made for it. Otherwise the exchange takes one that stands.
    connects: bool,
}

/// What ends a wait.
enum Granted<'a, M: Multiplexer> {
    Lane(ExclusiveLane<M>),
    /// A connection may be made.
    Promise(Promise<'a, M::Carrier>),
}
