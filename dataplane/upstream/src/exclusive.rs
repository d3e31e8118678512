//! Upstreams whose lanes serve one exchange at a time: the connections of HTTP/1.1, and the streams of HTTP/2.
//!
//! An exchange chooses an endpoint ([`crate::balance`]). With HTTP/1.1 it takes an idle connection or a new one, and returns
//! it if it is certainly clean; a dropped connection is closed. With HTTP/2 it takes a share of a connection that has room
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

use weir_base::time::{Time, turn};
use weir_engine::{JoinHandle, Stream, timeout};
use weir_telemetry::CoreMetrics;

use crate::{
    acquiring::{Acquiring, Connecting},
    bell::Bell,
    breaker::BreakerState,
    carrier::{Carrier, CarrierEntry, Multiplexer},
    connect::ConnectError,
    ejection::ExchangeOutcome,
    endpoint::{Endpoint, EndpointShare},
    endpoints::{ChosenEndpoint, Endpoints, Retry, SelectionCriteria},
    exclusive_lane::{ExclusiveLane, LeasedConnection, Open},
    health::Probe,
    idle::{Idle, IdleCheck, Remains},
    member::Member,
    metrics::{LaneKind, UpstreamMetrics},
    quota::QuotaPermit,
    room::Permit,
    settings::{Affinity, ExclusiveSettings, PoolSettings, UpstreamSettings},
};
use weir_base::exchange::{LossCause, Refusal};

/// Interval of the checks of idle lanes: old ones are closed, and those that the server has closed are dropped.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// One named upstream on one worker.
pub struct ExclusiveUpstream<M: Multiplexer> {
    endpoints: Rc<Endpoints>,
    affinity: Affinity,
    pool: PoolSettings,
    /// Rung when another worker waits for a connection.
    keeper: Arc<Bell>,
    /// `None`: a connection carries one exchange at a time.
    multiplexer: Option<M>,
    /// In the order of the endpoints, as far as they have been used.
    members: RefCell<Vec<Rc<Member<M::Carrier>>>>,
    is_retired: Cell<bool>,
    me: Weak<Self>,
    tasks: RefCell<Vec<JoinHandle<()>>>,
}

impl<M: Multiplexer> ExclusiveUpstream<M> {
    /// Prepares an upstream; connects nothing. `shares` has one entry per endpoint; `probe` is given on the one worker that
    /// probes for all. Without a `multiplexer` a connection carries one exchange at a time.
    ///
    /// # Errors
    /// No endpoint, or TLS files that cannot be read.
    pub fn new(
        settings: UpstreamSettings,
        lanes: ExclusiveSettings,
        multiplexer: Option<M>,
        shares: &[Arc<EndpointShare>],
        metrics: UpstreamMetrics,
        probe: Option<impl Probe + 'static>,
    ) -> io::Result<Rc<Self>> {
        let ExclusiveSettings { balancing, affinity, pool } = lanes;
        shares.iter().for_each(|share| share.quota.set_limit(pool.connections_max));
        let keeper = Arc::<Bell>::default();
        shares.iter().for_each(|share| share.quota.enter(&keeper));
        let endpoints = Endpoints::new(settings, balancing, shares, metrics)?;
        let upstream = Rc::new_cyclic(|me| Self {
            endpoints,
            affinity,
            pool,
            keeper,
            multiplexer,
            members: RefCell::default(),
            is_retired: Cell::new(false),
            me: me.clone(),
            tasks: RefCell::default(),
        });
        upstream.start_tasks(probe);
        Ok(upstream)
    }

    fn start_tasks(&self, probe: Option<impl Probe + 'static>) {
        let (me, keeper) = (self.me.clone(), self.keeper.clone());
        let mut tasks = vec![weir_engine::spawn(async move {
            let mut next_look = turn::now().saturating_add(IDLE_LOOK);
            loop {
                let _ = timeout(next_look.since(turn::now()), keeper.rung()).await;
                let Some(upstream) = me.upgrade() else { return };
                let members = upstream.members.borrow().clone();
                // Rung or not: a connection may have become idle since the bell was heard.
                members.iter().for_each(|member| upstream.give_way(member));
                // And time alone may help: a connection has rested, or others have drained for long.
                members.iter().for_each(|member| member.room.wake());
                if turn::now() >= next_look {
                    next_look = turn::now().saturating_add(IDLE_LOOK);
                    members.iter().for_each(|member| upstream.tidy(member));
                    upstream.endpoints.publish_breakers();
                }
            }
        })];
        if let Some(probe) = probe {
            tasks.extend(
                self.endpoints.probe(probe, async |endpoint: &Endpoint, _| endpoint.connector().connect().await),
            );
        }
        *self.tasks.borrow_mut() = tasks;
    }

    /// The connections to endpoint number `number`.
    fn member(&self, number: usize) -> Rc<Member<M::Carrier>> {
        if let Some(member) = self.members.borrow().get(number) {
            return member.clone();
        }
        let mut members = self.members.borrow_mut();
        while members.len() <= number {
            let endpoint = self.endpoints.get(members.len());
            members.push(Rc::new(Member::new(endpoint)));
        }
        members[number].clone()
    }

    /// Closes what is too old, and lets go of what the server has closed.
    fn tidy(&self, member: &Member<M::Carrier>) {
        let now = turn::now();
        // Closing takes a look at the lists.
        let unfit = member.idle.borrow_mut().take_unfit(now, self.pool.idle_timeout);
        unfit.into_iter().for_each(|(idle, found)| member.let_go(idle, found, LossCause::Retired));
        let is_old = |since: Time| now.since(since) > self.pool.idle_timeout;
        let is_spent =
            |carriage: &mut Rc<CarrierEntry<_>>| carriage.is_over() || carriage.idle_since().is_some_and(is_old);
        let spent: Vec<_> = member.carriers.borrow_mut().extract_if(.., is_spent).collect();
        spent.iter().for_each(|carriage| carriage.retire());
        member.draining.extend(&spent);
        drop(spent);
    }

    /// Closes connections that carry nothing, as many as other workers wait for.
    fn give_way(&self, member: &Member<M::Carrier>) {
        let quota = member.endpoint.quota();
        // Closing takes a look at the lists.
        while !member.idle.borrow().is_empty() && quota.reclaims(&self.keeper, member.room.waiting_since()) {
            let oldest = member.idle.borrow_mut().take_oldest();
            oldest.into_iter().for_each(|idle| member.let_go(idle, IdleCheck::Silence, LossCause::Retired));
        }
        let carriages = member.carriers.borrow().clone();
        carriages.iter().for_each(|carriage| self.give_carriage_away(member, carriage));
    }

    /// Lets a connection go that carries nothing, if another worker waits. The only one of a worker stays: each may have one.
    fn give_carriage_away(&self, member: &Member<M::Carrier>, carriage: &Rc<CarrierEntry<M::Carrier>>) {
        let is_other = |other: &Rc<CarrierEntry<_>>| !Rc::ptr_eq(other, carriage) && !other.is_over();
        let is_spare =
            carriage.idle_since().is_some() && (carriage.is_over() || member.carriers.borrow().iter().any(is_other));
        if is_spare && member.endpoint.quota().reclaims(&self.keeper, member.room.waiting_since()) {
            carriage.retire();
            member.part_with(carriage);
        }
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &UpstreamSettings {
        self.endpoints.settings()
    }

    /// Its connections carry several exchanges at once.
    pub fn is_multiplexed(&self) -> bool {
        self.multiplexer.is_some()
    }

    /// A lane for one exchange. Without one nothing was sent.
    pub fn acquire(self: &Rc<Self>, wanted: SelectionCriteria) -> Acquiring<M> {
        let is_fresh = wanted.is_fresh && self.multiplexer.is_none();
        let number = loop {
            match self.endpoints.choose(&wanted, |number| self.member(number).has_lane(turn::now())) {
                None => return Acquiring::ready(Err((Refusal::BreakerOpen, None))),
                Some(ChosenEndpoint { number, connects: true }) => break number,
                // Where its connections have ended it has none any more: another endpoint may serve.
                Some(ChosenEndpoint { number, connects: false }) => {
                    if let Some(lane) = self.take(number) {
                        return Acquiring::ready(Ok(lane));
                    }
                }
            }
        };
        let is_awaited = self.member(number).room.is_awaited(());
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

    /// The value by which exchanges keep their endpoint.
    pub fn affinity(&self) -> &Affinity {
        &self.affinity
    }

    /// Another retry may be under way.
    pub fn may_retry(&self) -> bool {
        self.endpoints.may_retry()
    }

    /// Counts that a request is made elsewhere after `outcome` at endpoint number `number`, which no budget bounds: see [`TriedEndpoints`](crate::TriedEndpoints).
    pub fn goes_elsewhere(&self, number: usize, outcome: &str) {
        self.endpoints.get(number).metrics().retried_after(outcome);
    }

    /// A connection to endpoint number `number` turned out to be closed: so may be the others that are idle.
    pub fn look_again(&self, number: usize) {
        let member = self.member(number);
        member.idle.borrow_mut().expect_ends();
        self.tidy(&member);
    }

    /// Counts a retry after `outcome` at endpoint number `number`; it is under way until the result is dropped.
    pub fn retry(&self, number: usize, outcome: &str) -> Retry {
        self.endpoints.retry(number, outcome)
    }

    /// The cells that the protocol has for endpoint number `number`. They are made once, from the name of the upstream and that of the
    /// endpoint.
    pub fn own_metrics<T: 'static>(&self, number: usize, make: impl FnOnce(&CoreMetrics, [&str; 2]) -> T) -> Rc<T> {
        self.endpoints.get(number).metrics().own(make)
    }

    /// How an exchange with endpoint number `number` ended, and how long its response took to begin.
    pub fn note(&self, number: usize, outcome: ExchangeOutcome, took: Option<Duration>) {
        self.endpoints.note(number, outcome, took);
    }

    /// Takes a lane on an existing connection.
    fn take(&self, number: usize) -> Option<ExclusiveLane<M>> {
        match self.multiplexer {
            Some(_) => self.take_share(number),
            None => self.take_idle(number),
        }
    }

    fn take_idle(&self, number: usize) -> Option<ExclusiveLane<M>> {
        let member = &self.member(number);
        loop {
            let now = turn::now();
            let mut idle = member.idle.borrow_mut().take(now)?;
            match idle.look(now) {
                IdleCheck::Silence => {
                    return Some(self.lend(number, LeasedConnection::Connection(idle.stream, idle.open), true));
                }
                found => member.let_go(idle, found, LossCause::Closed),
            }
        }
    }

    /// A share of a connection that carries several exchanges.
    fn take_share(&self, number: usize) -> Option<ExclusiveLane<M>> {
        let member = self.member(number);
        let mut carriers = member.carriers.borrow_mut();
        let over: Vec<_> = carriers.extract_if(.., |carriage| carriage.is_over()).collect();
        member.draining.extend(&over);
        let carriage = carriers.iter().find(|carriage| carriage.has_room()).cloned();
        // The end of one takes a look at the lists.
        drop((carriers, over));
        carriage.map(|carriage| self.lend_shared(number, carriage))
    }

    fn lend_shared(&self, number: usize, carriage: Rc<CarrierEntry<M::Carrier>>) -> ExclusiveLane<M> {
        carriage.lent.set(carriage.lent.get() + 1);
        let has_served = carriage.has_served.get();
        self.lend(number, LeasedConnection::Shared(carriage), has_served)
    }

    /// Another attempt to connect decides for all that wait. Connections that carry several exchanges are made one by one: the first may
    /// be enough for all. So are those to an endpoint whose breaker is not closed: the first says whether it is back.
    fn awaits_attempt(&self, member: &Member<M::Carrier>) -> bool {
        member.endpoint.is_tried() && self.shares_attempts(member)
    }

    /// All who wait for a connection to it share the result of one attempt.
    fn shares_attempts(&self, member: &Member<M::Carrier>) -> bool {
        self.multiplexer.is_some() || member.endpoint.breaker_state() != BreakerState::Closed
    }

    /// A connection at rest gives way if no other may be made; true if one did.
    fn make_room(&self, member: &Member<M::Carrier>) -> bool {
        let is_used_up = member.endpoint.quota().is_used_up();
        let resting = is_used_up.then(|| member.idle.borrow_mut().take_resting()).flatten();
        resting.map(|idle| member.let_go(idle, IdleCheck::Silence, LossCause::Retired)).is_some()
    }

    /// The permit for a new connection, unless another exchange waits for one.
    fn try_permit(&self, member: &Member<M::Carrier>) -> Option<QuotaPermit> {
        if self.awaits_attempt(member) || member.room.is_awaited(()) {
            return None;
        }
        self.permit(member)
    }

    /// A free permit, or without one a permit beyond the limit.
    fn permit(&self, member: &Member<M::Carrier>) -> Option<QuotaPermit> {
        member.endpoint.quota().try_take().or_else(|| self.first_permit(member))
    }

    /// The leave for the only connection of the worker that takes exchanges, beyond the limit, if connections carry several: such a
    /// connection seldom carries none, and would seldom be given to another worker. Those that drain stay beside it, as far as there may be
    /// so many: only for a quota that is used up, as one of them may be cut.
    fn first_permit(&self, member: &Member<M::Carrier>) -> Option<QuotaPermit> {
        let is_first = self.multiplexer.is_some()
            && member.carriers.borrow().iter().all(|carriage| carriage.is_over())
            && member.draining.makes_room(turn::now());
        is_first.then(|| member.endpoint.quota().take_over())
    }

    /// A lane on a new connection, or on one that becomes free before; `is_begun`: that connection is being made.
    async fn connect(&self, number: usize, is_begun: &Cell<bool>) -> Result<ExclusiveLane<M>, Refusal> {
        let member = &self.member(number);
        self.make_room(member);
        let permit = match self.try_permit(member) {
            Some(permit) => permit,
            None => match self.wait(number).await? {
                WaitResult::Lane(lane) => return Ok(lane),
                WaitResult::Permit(permit) => permit,
            },
        };
        is_begun.set(true);
        match self.open(member, member.room.permit(Some(permit))).await {
            Ok(held) => {
                // An exchange that waited for the result of this attempt may make its own connection now.
                member.room.wake();
                Ok(match held {
                    LeasedConnection::Shared(carriage) => {
                        member.carriers.borrow_mut().push(carriage.clone());
                        let lane = self.lend_shared(number, carriage);
                        member.room.wake_all();
                        lane
                    }
                    held => self.lend(number, held, false),
                })
            }
            Err(error) => {
                member.refused.set((member.refused.get().0 + 1, error.refusal));
                member.room.wake_all();
                Err(error.refusal)
            }
        }
    }

    async fn open(
        &self,
        member: &Rc<Member<M::Carrier>>,
        permit: Permit<()>,
    ) -> Result<LeasedConnection<M::Carrier>, ConnectError> {
        let metrics = member.endpoint.metrics();
        let Some(multiplexer) = &self.multiplexer else {
            let stream = member.endpoint.connect(LaneKind::Exclusive).await?;
            stream.count_into(metrics.clone());
            return Ok(LeasedConnection::Connection(
                stream,
                Open::new(metrics.lane_opened(LaneKind::Exclusive), permit),
            ));
        };
        let begin = async |stream: Stream| {
            stream.count_into(metrics.clone());
            multiplexer.begin(stream).await
        };
        let carrier = member.endpoint.connect_and(LaneKind::Shared, begin).await?;
        let open = Open::new(metrics.lane_opened(LaneKind::Shared), permit);
        Ok(LeasedConnection::Shared(CarrierEntry::new(carrier, member.endpoint.clone(), open)))
    }

    /// Waits for a lane, or for the right to connect one.
    async fn wait(&self, number: usize) -> Result<WaitResult<M>, Refusal> {
        let member = &self.member(number);
        if member.room.waiting() >= self.settings().lane_waiters_max as usize {
            return Err(Refusal::QueueFull);
        }
        let metrics = member.endpoint.metrics();
        let begun = turn::now();
        let (refused, _) = member.refused.get();
        let waiting = member.room.wait((), begun, metrics);
        let mut ticket = None;
        let room = poll_fn(|context| {
            match member.refused.get() {
                // Waiters for the same connection need not find out one after the other.
                (count, refusal) if count != refused && self.shares_attempts(member) => {
                    return Poll::Ready(Err(refusal));
                }
                _ => {}
            }
            // First come, first served.
            if waiting.is_next()
                && let Some(lane) = self.take(number)
            {
                return Poll::Ready(Ok(WaitResult::Lane(lane)));
            }
            waiting.register(context.waker());
            if !waiting.is_next() || self.awaits_attempt(member) {
                return Poll::Pending;
            }
            // Without a ticket no other worker is rung for it.
            if ticket.is_none()
                && let Some(permit) = self.permit(member)
            {
                return Poll::Ready(Ok(WaitResult::Permit(permit)));
            }
            member.carriers.borrow().iter().for_each(|carriage| carriage.carrier.watch(context.waker()));
            let ticket = ticket.get_or_insert_with(|| member.endpoint.quota().wait(begun, &self.keeper));
            let mut permit = ticket.poll(context);
            // The one that gave way before may have gone to an older ticket.
            if permit.is_pending() && ticket.is_next() && self.make_room(member) {
                permit = ticket.poll(context);
            }
            if permit.is_pending()
                && let Some(first) = self.first_permit(member)
            {
                permit = Poll::Ready(first);
            }
            permit.map(|permit| Ok(WaitResult::Permit(permit)))
        });
        let waited = timeout(self.settings().lane_wait_timeout, room).await;
        metrics.waited(turn::now().since(begun), 1);
        let is_unreachable = member.endpoint.breaker_state() != BreakerState::Closed;
        waited.map_err(|_| if is_unreachable { Refusal::Unreachable } else { Refusal::QueueTimeout })?
    }

    fn lend(&self, number: usize, held: LeasedConnection<M::Carrier>, is_reused: bool) -> ExclusiveLane<M> {
        let endpoint = self.endpoints.get(number);
        endpoint.in_flight.set(endpoint.in_flight.get() + 1);
        let metrics = endpoint.metrics().clone();
        metrics.requests_sent(1);
        ExclusiveLane::new(held, number, is_reused, metrics, self.me.clone())
    }

    /// Takes a lane back after its exchange; without `remains` the lane is not reused. `responded`: whether the server responded
    /// in time.
    pub(crate) fn returned(
        &self,
        number: usize,
        held: LeasedConnection<M::Carrier>,
        remains: Option<Remains>,
        cause: LossCause,
        responded: Option<bool>,
    ) {
        let member = self.member(number);
        let in_flight = &member.endpoint.in_flight;
        in_flight.set(in_flight.get() - 1);
        member.endpoint.metrics().requests_over(1);
        let (stream, open) = match held {
            LeasedConnection::Connection(stream, open) => (stream, open),
            LeasedConnection::Shared(carriage) => {
                let is_lost = carriage.left(responded);
                let is_spent = self.is_retired.get() && carriage.idle_since().is_some();
                if is_spent {
                    carriage.retire();
                }
                if is_lost || is_spent || carriage.is_over() {
                    member.part_with(&carriage);
                }
                self.give_carriage_away(&member, &carriage);
                drop(carriage);
                return member.room.wake();
            }
        };
        let idle = Idle { stream, since: turn::now(), open };
        let has_room = member.idle.borrow().len() < self.pool.idle_max as usize
            && !self.is_retired.get()
            && !member.endpoint.quota().reclaims(&self.keeper, member.room.waiting_since());
        let cause = match remains {
            Some(Remains::Nothing) if has_room && !member.is_distrusted() => {
                member.idle.borrow_mut().push(idle);
                return member.room.wake();
            }
            // A waiter gets a new one.
            Some(Remains::Nothing | Remains::PerhapsBody) if has_room && !member.room.is_awaited(()) => {
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
    }

    /// Takes no part in anything new: it was replaced.
    pub fn retire(&self) {
        self.is_retired.set(true);
        // Its successor probes now: two probes could report different states of one endpoint.
        self.tasks.borrow_mut().truncate(1);
        let members = self.members.borrow().clone();
        for member in &members {
            let idle = member.idle.take();
            idle.into_all().for_each(|idle| member.let_go(idle, IdleCheck::Silence, LossCause::Retired));
            member.carriers.take().iter().for_each(|carriage| carriage.retire());
        }
    }
}

/// The reason why a wait ended.
enum WaitResult<M: Multiplexer> {
    Lane(ExclusiveLane<M>),
    /// A connection may be made.
    Permit(QuotaPermit),
}

#[cfg(test)]
mod tests;
