//! The pool of one key on one worker: connections come in and go out.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use weir_base::{
    exchange::{LossCause, Refusal},
    rng::Rng,
    time::{Time, turn},
};
use weir_engine::{Stream, timeout};

use super::{
    PooledProtocol, PooledSettings,
    connection::{Condition, Connection, Facts, Look, PooledConnection},
    counts::Count,
    ledger::{Failure, Offer},
    member::Member,
    permit::PoolPermit,
    protocol::{LoginError, LoginTarget},
    slot::Delivery,
    wait::Wait,
};
use crate::{
    bell::Bell,
    endpoints::{Endpoints, SelectionCriteria},
    metrics::LaneKind,
};

/// The number of the next connection of the process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The parts that all pools of one upstream on one worker share.
pub(super) struct Context<P: PooledProtocol> {
    pub(super) endpoints: Rc<Endpoints>,
    pub(super) protocol: P,
    pub(super) settings: PooledSettings,
    /// Rung when another worker waits for a connection.
    pub(super) bell: Arc<Bell>,
    /// The number of this upstream among those of all workers.
    pub(super) worker: usize,
    pub(super) rng: RefCell<Rng>,
    pub(super) is_retired: Cell<bool>,
}

/// The pool of one key on one worker. A session keeps it while it is logged in.
pub struct Pool<P: PooledProtocol> {
    pub(super) context: Rc<Context<P>>,
    key: P::Key,
    /// In the order of the endpoints.
    pub(super) members: Vec<Member<P>>,
    /// Those that wait.
    pub(super) waiting: Cell<usize>,
}

/// One more of a count, until it is dropped.
pub(super) struct Counted<'a>(&'a Count);

impl<'a> Counted<'a> {
    pub(super) fn new(count: &'a Count) -> Self {
        count.add(1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl<P: PooledProtocol> Pool<P> {
    pub(super) fn new(context: &Rc<Context<P>>, key: &P::Key) -> Rc<Self> {
        let endpoints = context.endpoints.all();
        let members = endpoints.iter().map(|endpoint| Member::new(endpoint.clone(), key)).collect();
        Rc::new(Self { context: context.clone(), key: key.clone(), members, waiting: Cell::new(0) })
    }

    /// The difference of its connections from others.
    pub fn key(&self) -> &P::Key {
        &self.key
    }

    /// A connection that is idle on this worker and needs no check. If there is none, `wanted` is what [`Pool::wait`] needs then. Takes no lock,
    /// and allocates nothing if there is one endpoint.
    #[inline]
    pub fn try_acquire(self: &Rc<Self>, wanted: &mut SelectionCriteria) -> Option<PooledConnection<P>> {
        let number = self.choose(wanted).ok()?;
        let context = &self.context;
        match self.members[number].take_ready(&context.protocol, context.settings.server_check_delay) {
            Some(connection) => Some(self.lend(number, connection)),
            None => {
                wanted.chosen = Some(number);
                None
            }
        }
    }

    /// The endpoint for the next connection.
    pub(super) fn choose(&self, wanted: &SelectionCriteria) -> Result<usize, Refusal> {
        if self.context.protocol.judges() {
            return self.choose_fit(wanted);
        }
        if self.members.len() == 1 {
            return Ok(0);
        }
        let (has_idle, is_busy) = (|number: usize| self.members[number].has_idle(), |number| self.is_busy(number));
        let chosen = self.context.endpoints.choose_among(wanted, has_idle, |_| false, is_busy);
        chosen.map(|chosen| chosen.number).ok_or(Refusal::BreakerOpen)
    }

    /// A client of this worker would wait at endpoint number `number` until another one gives its connection back.
    pub(super) fn is_busy(&self, number: usize) -> bool {
        let member = &self.members[number];
        member.share.signals.is_full() && !member.has_idle()
    }

    /// Where one that waits at endpoint number `number` goes on, if it is served there at once.
    pub(super) fn better_than(&self, number: usize, wanted: &SelectionCriteria) -> Option<usize> {
        let is_free = |other: usize| other != number && !self.is_busy(other);
        if !self.is_busy(number) || !(0..self.members.len()).any(is_free) {
            return None;
        }
        self.choose(wanted).ok().filter(|&other| is_free(other))
    }

    pub(super) fn lend(self: &Rc<Self>, number: usize, connection: Box<Connection<P>>) -> PooledConnection<P> {
        let Member { endpoint, share, .. } = &self.members[number];
        endpoint.in_flight.set(endpoint.in_flight.get() + 1);
        endpoint.metrics().requests_sent(1);
        share.counts.lent.add(1);
        PooledConnection::new(connection, self.clone(), number)
    }

    fn lease_over(&self, number: usize, connection: &Connection<P>) {
        let Member { endpoint, share, .. } = &self.members[number];
        endpoint.in_flight.set(endpoint.in_flight.get() - 1);
        endpoint.metrics().requests_over(1);
        share.counts.lent.add(-1);
        connection.stream.output.charge_to(None);
    }

    /// A client has given it back.
    pub(super) fn returned(self: &Rc<Self>, number: usize, connection: Box<Connection<P>>, condition: Condition) {
        self.lease_over(number, &connection);
        match condition {
            _ if connection.stream.output.is_closed() => self.members[number].close(*connection, LossCause::Closed),
            Condition::Clean => self.place(number, connection),
            Condition::Dirty => self.reset(number, connection),
        }
    }

    /// A client is done with it, and no other one may have it.
    pub(super) fn ended(&self, number: usize, connection: Box<Connection<P>>, cause: LossCause) {
        self.lease_over(number, &connection);
        self.members[number].close(*connection, cause);
        if cause != LossCause::Retired {
            self.context.protocol.on_trouble(&self.members[number].share.ledger.watch);
        }
    }

    fn reset(self: &Rc<Self>, number: usize, mut connection: Box<Connection<P>>) {
        let (pool, limit) = (self.clone(), self.context.settings.upkeep_timeout);
        weir_engine::spawn(async move {
            let member = &pool.members[number];
            let tested = Counted::new(&member.share.counts.tested);
            let Connection { stream, state, .. } = &mut *connection;
            let reset = timeout(limit, pool.context.protocol.reset(stream, state)).await;
            drop(tested);
            connection.facts.idle_since = turn::now();
            match reset {
                Ok(true) => pool.place(number, connection),
                Ok(false) => member.close(*connection, LossCause::Closed),
                Err(_) => member.close(*connection, LossCause::Timeout),
            }
        })
        .detach();
    }

    /// No client has it.
    pub(super) fn place(self: &Rc<Self>, number: usize, connection: Box<Connection<P>>) {
        let member = &self.members[number];
        if turn::now() >= connection.facts.ends_at {
            return member.close(*connection, LossCause::Retired);
        }
        let free = match self.needs_look(member, &connection) {
            true => self.offer(number, connection),
            false => Some(connection),
        };
        match free {
            // Those that wait come first: each of them would make a connection of its own, which ends here as well.
            Some(free) if self.context.is_retired.get() => member.close(*free, LossCause::Retired),
            Some(free) => member.keep(free),
            None => {}
        }
    }

    /// Perhaps somebody waits for it, or it may not be kept.
    pub(super) fn needs_look(&self, member: &Member<P>, connection: &Connection<P>) -> bool {
        let share = &member.share;
        share.signals.needs_look()
            || share.signals.generation() != connection.facts.generation
            || (self.context.settings.has_shared_limits() && share.ledger.is_awaited())
    }

    /// Gives a free connection to the waiter that it is for, or closes it; `Some`: it may be kept.
    pub(super) fn offer(
        self: &Rc<Self>,
        number: usize,
        mut connection: Box<Connection<P>>,
    ) -> Option<Box<Connection<P>>> {
        let (member, context) = (&self.members[number], &self.context);
        loop {
            let can_move = connection.can_move(&context.protocol);
            let generation = connection.facts.generation;
            let offer = member.share.ledger.offer(&self.key, context.worker, generation, can_move);
            match offer {
                Offer::Keep => return Some(connection),
                Offer::Close => {
                    member.close(*connection, LossCause::Retired);
                    return None;
                }
                Offer::Replace((cause, slot)) => {
                    let permit = member.close_and_keep_permit(*connection, LossCause::Retired);
                    slot.launch(permit.for_replacement(cause));
                    return None;
                }
                Offer::Give(queued) if queued.worker == context.worker => {
                    member.hand(queued.number, connection);
                    if queued.waiter.deliver(Delivery::Here).is_ok() {
                        return None;
                    }
                    connection = member.take_handed(queued.number)?;
                }
                Offer::Give(queued) => {
                    let Some(parcel) = member.pack(&context.protocol, *connection) else {
                        // If it has left meanwhile, so much the better.
                        let _ = queued.waiter.deliver(Delivery::Lost);
                        return None;
                    };
                    // It has left: the next one.
                    let Err(Delivery::Moved(parcel)) = queued.waiter.deliver(Delivery::Moved(parcel)) else {
                        return None;
                    };
                    connection = member.adopt(&context.protocol, parcel)?;
                }
            }
        }
    }

    /// Begins the login of a connection.
    pub(super) fn log_in(self: &Rc<Self>, number: usize, permit: PoolPermit<P>) {
        let pool = self.clone();
        weir_engine::spawn(async move { pool.run_login(number, permit).await }).detach();
    }

    async fn run_login(self: Rc<Self>, number: usize, mut permit: PoolPermit<P>) {
        let (member, context) = (&self.members[number], &self.context);
        let generation = member.share.signals.generation();
        let target = LoginTarget { endpoint: member.endpoint.clone(), number };
        let login = async |stream: &mut Stream| {
            let state = context.protocol.login(stream, &target, &self.key).await?;
            context.protocol.admit(&state, &member.share.ledger.watch)?;
            Ok::<_, LoginError>(state)
        };
        match member.endpoint.log_in(LaneKind::Pooled, P::NEGOTIATES_TLS, login).await {
            Ok((stream, state)) => {
                permit.logged_in();
                let (id, now) = (NEXT_ID.fetch_add(1, Ordering::Relaxed), turn::now());
                let facts = Facts {
                    id,
                    since: now,
                    ends_at: self.ends_at(now),
                    generation,
                    idle_since: now,
                    has_served: false,
                };
                self.place(number, member.connection(stream, state, facts, permit));
            }
            Err((error, words)) => {
                let failure = match error.refusal {
                    _ if words.is_some() => Failure::Refused,
                    Refusal::QueueFull => Failure::Busy,
                    _ => Failure::Broken,
                };
                context.protocol.on_trouble(&member.share.ledger.watch);
                self.login_failed(number, permit, failure, error.refusal, words);
            }
        }
    }

    fn login_failed(
        &self,
        number: usize,
        permit: PoolPermit<P>,
        failure: Failure,
        refusal: Refusal,
        words: Option<Vec<u8>>,
    ) {
        let (member, context) = (&self.members[number], &self.context);
        let reconnect = &context.endpoints.settings().reconnect;
        let mut retry_at = turn::now();
        let pause = |failures| {
            let pause = context.rng.borrow_mut().backoff(failures, reconnect.base, reconnect.max);
            retry_at = retry_at.saturating_add(pause);
            pause
        };
        let (leaves, cause, now) = (self.members.len() > 1, permit.forget(), turn::now());
        let mut refused = Vec::new();
        member.share.ledger.change(|ledger| {
            refused = ledger.login_failed(&self.key, cause, failure, leaves, now, pause);
            // The server may have shown by its refusal that it is back.
            ledger.launch_all(now)
        });
        let ledger = member.share.ledger.clone();
        weir_engine::spawn(async move {
            // A timer may be early by a part of a tick.
            while turn::now() < retry_at {
                weir_engine::sleep(retry_at.since(turn::now())).await;
            }
            ledger.change(|ledger| ledger.launch_all(turn::now()));
        })
        .detach();
        let words: Option<Arc<[u8]>> = words.map(Into::into);
        for queued in refused {
            // One that has left needs no words.
            let _ = queued.waiter.deliver(Delivery::Refused(refusal, words.clone()));
        }
    }

    /// Those that wait for a connection of the key, on all workers.
    pub fn waiting(&self) -> usize {
        let of = |member: &Member<P>| member.share.ledger.with(|ledger| ledger.waiting_for(&self.key));
        self.members.iter().map(of).sum()
    }

    /// Chance takes up to a tenth off.
    fn ends_at(&self, now: Time) -> Time {
        let lifetime = self.context.settings.server_lifetime;
        if lifetime.is_zero() {
            return Time::from_nanos(u64::MAX);
        }
        let less = lifetime.mul_f64(self.context.rng.borrow_mut().unit() / 10.0);
        now.saturating_add(lifetime - less)
    }

    /// A connection on its way to a client: it is looked at, and checked if it was idle for long. `None`: it is not fit, or the wait ended
    /// within the check.
    pub(super) async fn fit(
        self: &Rc<Self>,
        number: usize,
        mut connection: Box<Connection<P>>,
        wait: &mut Wait<'_, impl FnOnce()>,
    ) -> Option<Box<Connection<P>>> {
        let (member, context) = (&self.members[number], &self.context);
        match connection.look(&context.protocol) {
            Look::Fit => {}
            Look::Incomplete => {
                member.keep_last(connection);
                return None;
            }
            Look::Over(cause) => {
                member.close(*connection, cause);
                return None;
            }
        }
        let settings = &context.settings;
        let is_new = !connection.facts.has_served && connection.facts.idle_since == connection.facts.since;
        if is_new || turn::now().since(connection.facts.idle_since) < settings.server_check_delay {
            return Some(connection);
        }
        let tested = Counted::new(&member.share.counts.tested);
        let Connection { stream, state, .. } = &mut *connection;
        let (begun, limit) = (turn::now(), settings.upkeep_timeout);
        // In a box: each wait would pay for its size.
        let mut check = Box::pin(context.protocol.check(stream, state));
        let checked = loop {
            let due = begun.saturating_add(limit).min(wait.due());
            match timeout(due.since(turn::now()), check.as_mut()).await {
                Ok(is_alive) => break Some(is_alive),
                Err(_) if turn::now().since(begun) >= limit || wait.is_over(self.is_paused()) => break None,
                Err(_) => {}
            }
        };
        drop((check, tested));
        let cause = match checked {
            Some(true) => return Some(connection),
            Some(false) => LossCause::Closed,
            None => LossCause::Timeout,
        };
        member.close(*connection, cause);
        if checked.is_none() && turn::now().since(begun) >= limit {
            // The others have been silent for as long: each would cost a client the same time.
            member.close_idle_since(begun, settings.server_check_delay);
        }
        None
    }
}
