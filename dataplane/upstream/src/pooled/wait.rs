//! Waiting for a connection.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::Arc, task::Poll, time::Duration};

use weir_base::{
    exchange::Refusal,
    time::{Time, turn},
};
use weir_engine::Deadline;

use super::{
    PooledProtocol,
    connection::{Connection, PooledConnection},
    member::Member,
    pool::Pool,
    shared::EndpointLedger,
    slot::{Delivery, Event, Slot},
};
use crate::{breaker::BreakerState, endpoints::SelectionCriteria};

/// How long one waits for a connection.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Since when it waits, also elsewhere: its place in the line.
    pub since: Time,
    /// The end of the wait. One that falls into a pause is put off by the whole wait: the operator has stopped it, and not the load.
    pub deadline: Time,
    /// The time of the notice that the client waits; `None`: none.
    pub notify_at: Option<Time>,
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub struct AcquireError {
    /// The reason.
    pub refusal: Refusal,
    /// The endpoint that was chosen, if one was.
    pub endpoint: Option<usize>,
    /// The words of the server, if it refused the login.
    pub words: Option<Arc<[u8]>>,
}

/// After so long one that waits looks whether another endpoint serves it at once. Default 100 ms: many transactions.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// The end of a wait at one endpoint.
enum Waited<P: PooledProtocol> {
    /// The connection.
    Served(Box<Connection<P>>),
    /// That endpoint serves it at once.
    Other(usize),
}

/// A place in the line of a key, until it is dropped.
struct Ticket<P: PooledProtocol> {
    pool: Rc<Pool<P>>,
    number: usize,
    slot: Arc<Slot<P>>,
    own: u64,
    /// The ledger has called it up: its place is free.
    is_served: Cell<bool>,
}

impl<P: PooledProtocol> Ticket<P> {
    fn new(pool: &Rc<Pool<P>>, number: usize, since: Time) -> Self {
        let (context, share) = (&pool.context, &pool.members[number].share);
        pool.waiting.set(pool.waiting.get() + 1);
        let slot = Slot::new(share.clone());
        let own = share.ledger.join(&slot, since, context.worker, &context.bell);
        Self { pool: pool.clone(), number, slot, own, is_served: Cell::new(false) }
    }

    /// The next event; `None`: `due` has come before.
    async fn event_until(&self, due: &Deadline) -> Option<Event<P>> {
        poll_fn(|context| match self.slot.poll(context) {
            Poll::Ready(event) => {
                self.is_served.set(matches!(event, Event::End(_)));
                Poll::Ready(Some(event))
            }
            Poll::Pending => due.poll_expired(context).map(|()| None),
        })
        .await
    }

    /// The connection that has come.
    fn take(&self, delivery: Delivery<P>) -> Option<Box<Connection<P>>> {
        let member = &self.pool.members[self.number];
        match delivery {
            Delivery::Here => member.take_handed(self.own),
            Delivery::Moved(parcel) => member.adopt(&self.pool.context.protocol, parcel),
            Delivery::Lost | Delivery::Refused(..) => None,
        }
    }
}

impl<P: PooledProtocol> Drop for Ticket<P> {
    fn drop(&mut self) {
        self.pool.waiting.set(self.pool.waiting.get() - 1);
        if self.is_served.get() && self.pool.context.settings.reserve_pool_size == 0 {
            return;
        }
        let share = &self.slot.share;
        share.ledger.change(|ledger| {
            ledger.leave(&share.key, self.own);
            // The next one may have waited long enough for the reserve.
            ledger.launch(&share.key, turn::now())
        });
        let (delivery, permits) = self.slot.close();
        drop(permits);
        if let Some(connection) = delivery.and_then(|delivery| self.take(delivery)) {
            self.pool.place(self.number, connection);
        }
    }
}

/// The wait of one client.
pub(super) struct Wait<'a, F> {
    patience: &'a mut Patience,
    on_wait: Option<F>,
}

impl<F: FnOnce()> Wait<'_, F> {
    /// The next time at which something is to do here.
    pub(super) fn due(&self) -> Time {
        let notify_at = self.patience.notify_at.filter(|_| self.on_wait.is_some());
        notify_at.map_or(self.patience.deadline, |at| at.min(self.patience.deadline))
    }

    /// Does what is due; true: the wait is over.
    pub(super) fn is_over(&mut self, is_paused: bool) -> bool {
        let now = turn::now();
        if self.patience.notify_at.is_some_and(|at| now >= at)
            && let Some(on_wait) = self.on_wait.take()
        {
            on_wait();
        }
        if now < self.patience.deadline {
            return false;
        }
        if is_paused {
            let whole = self.patience.deadline.since(self.patience.since).max(Duration::from_secs(1));
            self.patience.deadline = now.saturating_add(whole);
        }
        !is_paused
    }
}

impl<P: PooledProtocol> Pool<P> {
    /// A connection, in the order of those that wait for one on all workers. `on_wait` runs once, at the time that `patience` says.
    ///
    /// An endpoint that cannot be reached is waited for; of several, each is tried, again and again until the time is over.
    ///
    /// # Errors
    /// None came in time, as many wait for the key on this worker as may (`lane_waiters_max` of the settings), the server refused the login, or no
    /// endpoint could be reached in time.
    pub async fn acquire(
        self: &Rc<Self>,
        mut wanted: SelectionCriteria,
        mut patience: Patience,
        on_wait: impl FnOnce(),
    ) -> Result<PooledConnection<P>, AcquireError> {
        if let Some(connection) = self.try_acquire(&mut wanted) {
            return Ok(connection);
        }
        // In a box: those that need not wait do not pay for its size.
        Box::pin(self.wait(wanted, &mut patience, on_wait)).await
    }

    /// The same after [`Pool::try_acquire`] has found none. `patience` has the end of the wait afterwards, as a pause may have put it off: a wait
    /// elsewhere goes on with that.
    ///
    /// # Errors
    /// As those of [`Pool::acquire`].
    pub async fn wait(
        self: &Rc<Self>,
        mut wanted: SelectionCriteria,
        patience: &mut Patience,
        on_wait: impl FnOnce(),
    ) -> Result<PooledConnection<P>, AcquireError> {
        let mut wait = Wait { patience, on_wait: Some(on_wait) };
        let mut rounds = 0;
        loop {
            let chosen = wanted.chosen.take().map_or_else(|| self.choose(&wanted), Ok);
            let error = match chosen {
                Err(refusal) => AcquireError { refusal, endpoint: None, words: None },
                Ok(number) => {
                    let metrics = self.members[number].endpoint.metrics();
                    let counted = metrics.waiting();
                    let waited = self.wait_at(number, &wanted, &mut wait).await;
                    drop(counted);
                    let waited = match waited {
                        Ok(Waited::Other(other)) => {
                            wanted.chosen = Some(other);
                            continue;
                        }
                        Ok(Waited::Served(connection)) => Ok(connection),
                        Err(error) => Err(error),
                    };
                    match waited {
                        Err(error) if error.refusal == Refusal::Unreachable && !wait.is_over(self.is_paused()) => {
                            if wanted.tried.failed(number, self.members.len()) {
                                continue;
                            }
                            error
                        }
                        ended => {
                            metrics.waited(turn::now().since(wait.patience.since), 1);
                            return ended.map(|connection| self.lend(number, connection));
                        }
                    }
                }
            };
            if wanted.is_optional {
                return Err(error);
            }
            // None serves now: a server that starts, or another one in its place, may do so before the time is over.
            let goes_on = match self.context.protocol.judges() {
                true => self.reconsidered(&mut wait).await,
                false => !self.pause(rounds, &mut wait).await,
            };
            if !goes_on {
                return Err(error);
            }
            (rounds, wanted.tried) = (rounds + 1, Default::default());
        }
    }

    /// Connections of the key are not used now: an operator has stopped those that wait, whatever the servers do meanwhile.
    pub(super) fn is_paused(&self) -> bool {
        self.members.iter().any(|member| member.share.signals.is_paused())
    }

    /// The pause before all endpoints are tried once more, longer each time; true: the wait is over.
    async fn pause(&self, rounds: u32, wait: &mut Wait<'_, impl FnOnce()>) -> bool {
        let reconnect = &self.context.endpoints.settings().reconnect;
        let pause = self.context.rng.borrow_mut().backoff(rounds, reconnect.base, reconnect.max);
        let end = turn::now().saturating_add(pause);
        loop {
            let now = turn::now();
            if now >= end {
                return wait.is_over(self.is_paused());
            }
            weir_engine::sleep(end.min(wait.due()).since(now)).await;
            if wait.is_over(self.is_paused()) {
                return true;
            }
        }
    }

    /// The same at one endpoint.
    async fn wait_at(
        self: &Rc<Self>,
        number: usize,
        wanted: &SelectionCriteria,
        wait: &mut Wait<'_, impl FnOnce()>,
    ) -> Result<Waited<P>, AcquireError> {
        let (member, context) = (&self.members[number], &self.context);
        let error = |refusal, words| AcquireError { refusal, endpoint: Some(number), words };
        // Those that need a check.
        while let Some(connection) = member.take(&context.protocol, |_| true) {
            if let Some(connection) = self.fit(number, connection, wait).await {
                return Ok(Waited::Served(connection));
            }
            if wait.is_over(self.is_paused()) {
                return Err(self.time_over(number));
            }
        }
        if self.waiting.get() >= context.endpoints.settings().lane_waiters_max as usize {
            return Err(error(Refusal::QueueFull, None));
        }
        let mut ticket = Ticket::new(self, number, wait.patience.since);
        let due = weir_engine::deadline();
        let mut look_at = self.next_look(wait);
        loop {
            // Those that wait are woken by a judgement; this one may have come too late for that.
            if self.is_unfit(number) {
                return Err(error(Refusal::Unreachable, None));
            }
            let ledger = &member.share.ledger;
            due.set(self.reserve_at(ledger).map_or(wait.due(), |at| at.min(wait.due())).min(look_at));
            match ticket.event_until(&due).await {
                Some(Event::Launch(permit)) => self.log_in(number, permit),
                Some(Event::End(Delivery::Refused(refusal, words))) => return Err(error(refusal, words)),
                Some(Event::End(delivery)) => {
                    let connection = ticket.take(delivery);
                    // A login that began for it is of use to others, and what was for it and is lost is no reason to wait longer.
                    drop(ticket);
                    if let Some(connection) = connection
                        && let Some(connection) = self.fit(number, connection, wait).await
                    {
                        return Ok(Waited::Served(connection));
                    }
                    ticket = Ticket::new(self, number, wait.patience.since);
                }
                None if wait.is_over(self.is_paused()) => return Err(self.time_over(number)),
                None => {
                    if turn::now() >= look_at {
                        if let Some(other) = self.better_than(number, wanted) {
                            return Ok(Waited::Other(other));
                        }
                        look_at = self.next_look(wait);
                    }
                    ledger.change(|ledger| ledger.launch(self.key(), turn::now()));
                }
            }
        }
    }

    /// When one that waits looks at the other endpoints next: each time after half of its wait so far, so that many that wait long cost little.
    fn next_look(&self, wait: &Wait<'_, impl FnOnce()>) -> Time {
        if self.members.len() == 1 {
            return Time::from_nanos(u64::MAX);
        }
        let now = turn::now();
        now.saturating_add((now.since(wait.patience.since) / 2).max(FIRST_LOOK))
    }

    /// The error of one whose time is over at endpoint number `number`.
    fn time_over(&self, number: usize) -> AcquireError {
        let Member { endpoint, share, .. } = &self.members[number];
        let is_unreachable =
            endpoint.breaker_state() != BreakerState::Closed || share.ledger.with(|ledger| ledger.is_out());
        let refusal = if is_unreachable { Refusal::Unreachable } else { Refusal::QueueTimeout };
        AcquireError { refusal, endpoint: Some(number), words: None }
    }

    /// When one has waited long enough for the reserve.
    fn reserve_at(&self, ledger: &EndpointLedger<P>) -> Option<Time> {
        if self.context.settings.reserve_pool_size == 0 {
            return None;
        }
        ledger.with(|ledger| ledger.reserve_at(self.key(), turn::now()))
    }
}
