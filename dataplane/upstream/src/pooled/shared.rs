//! The ledger of one endpoint as the workers share it.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use weir_base::time::{Time, turn};
use weir_engine::wake_elsewhere;

use super::{
    PooledProtocol, PooledSettings,
    account::Signals,
    counts::{PoolCounts, WorkerCounts},
    ledger::{Launch, Ledger, Names, Offer, Scope},
    permit::PoolPermit,
    slot::{Delivery, Slot},
};
use crate::bell::{Bell, Bells};

/// The keyed pools of all workers to one endpoint. Clones share them; what they are is for the protocol of their upstream.
#[derive(Clone, Default)]
pub struct PoolShare(Arc<Mutex<Option<Arc<dyn Any + Send + Sync>>>>);

impl fmt::Debug for PoolShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PoolShare")
    }
}

impl PoolShare {
    #[cfg(test)]
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The ledger of `P`, which the first one makes.
    pub(super) fn ledger<P: PooledProtocol>(&self) -> Arc<EndpointLedger<P>> {
        let mut share = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = share.as_ref().and_then(|ledger| ledger.clone().downcast().ok());
        // Another protocol had the same address before a reload.
        kept.unwrap_or_else(|| {
            let made = Arc::new(EndpointLedger::new());
            *share = Some(made.clone());
            made
        })
    }

    /// Connections of `scope` are not used from now on, by workers that have the endpoint and by those that will. A ledger that is new
    /// to a process, or that replaces another one, goes on with a pause in this way.
    pub fn pause<P: PooledProtocol>(&self, scope: &Scope<P::Key>) {
        self.ledger::<P>().pause(scope);
    }

    /// The scopes of [`PoolShare::pause`] that hold now; none if the ledger is of another protocol.
    pub fn pauses<P: PooledProtocol>(&self) -> Vec<Scope<P::Key>> {
        let share = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ledger = share.and_then(|ledger| ledger.downcast::<EndpointLedger<P>>().ok());
        ledger.map_or_else(Vec::new, |ledger| ledger.with(|ledger| ledger.pauses()))
    }
}

type PoolLedger<P> = Ledger<<P as PooledProtocol>::Key, Arc<Slot<P>>>;

/// See above.
pub(crate) struct EndpointLedger<P: PooledProtocol> {
    state: Mutex<State<P>>,
    waiting: Arc<AtomicU32>,
    /// The knowledge of the protocol about the endpoint.
    pub(super) watch: Arc<P::Watch>,
    /// Changes with each judgement.
    judgements: AtomicU64,
}

struct State<P: PooledProtocol> {
    ledger: PoolLedger<P>,
    bells: Bells,
    /// Wait for the end of connections.
    watchers: Vec<Waker>,
    /// Wait for another judgement.
    candidates: Vec<Waker>,
    counts: HashMap<P::Key, Vec<Weak<WorkerCounts>>>,
}

/// One key at one endpoint, as a worker has it.
pub(crate) struct KeyShare<P: PooledProtocol> {
    pub(crate) key: P::Key,
    pub(crate) ledger: Arc<EndpointLedger<P>>,
    pub(crate) signals: Arc<Signals>,
    pub(crate) counts: Arc<WorkerCounts>,
}

impl<P: PooledProtocol> EndpointLedger<P> {
    fn new() -> Self {
        let names: Names<P::Key> = |key| [P::database(key), P::user(key)];
        let ledger = Ledger::new(names);
        let waiting = ledger.waiting();
        let state = State {
            ledger,
            bells: Bells::default(),
            watchers: Vec::new(),
            candidates: Vec::new(),
            counts: HashMap::new(),
        };
        Self { state: Mutex::new(state), waiting, watch: Arc::default(), judgements: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One waits for a connection of any key.
    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A worker comes, with the settings of its upstream.
    pub(super) fn enter(&self, bell: &Arc<Bell>, settings: &PooledSettings) {
        self.state().bells.enter(bell);
        self.change(|ledger| {
            ledger.set_limits(settings);
            ledger.launch_all(turn::now())
        });
    }

    /// `key` on one worker.
    pub(super) fn share(self: &Arc<Self>, key: &P::Key) -> Arc<KeyShare<P>> {
        let counts = Arc::<WorkerCounts>::default();
        let mut state = self.state();
        state.counts.entry(key.clone()).or_default().push(Arc::downgrade(&counts));
        let signals = state.ledger.signals(key);
        Arc::new(KeyShare { key: key.clone(), ledger: self.clone(), signals, counts })
    }

    /// Forgets keys that no worker has.
    pub(super) fn prune(&self) {
        let mut state = self.state();
        state.ledger.prune();
        state.counts.values_mut().for_each(|workers| workers.retain(|counts| counts.strong_count() > 0));
        state.counts.retain(|_, workers| !workers.is_empty());
    }

    /// Changes the ledger; those of the result begin logins.
    pub(super) fn change(&self, change: impl FnOnce(&mut PoolLedger<P>) -> Vec<Launch<Arc<Slot<P>>>>) {
        self.change_state(|state| change(&mut state.ledger));
    }

    fn change_state(&self, change: impl FnOnce(&mut State<P>) -> Vec<Launch<Arc<Slot<P>>>>) {
        let mut state = self.state();
        let launched = change(&mut state);
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.into_iter().for_each(wake_elsewhere);
        for (number, slot) in launched {
            let permit = PoolPermit::for_login(slot.share.clone(), Some(number));
            slot.launch(permit);
        }
    }

    /// See [`PoolShare::pause`].
    pub(super) fn pause(&self, scope: &Scope<P::Key>) {
        self.change(|ledger| {
            ledger.set_paused(scope, true);
            ledger.launch_rivals(turn::now())
        });
        self.ring_all();
    }

    /// Reads the ledger, or makes a change after which no login may begin.
    pub(super) fn with<T>(&self, with: impl FnOnce(&mut PoolLedger<P>) -> T) -> T {
        with(&mut self.state().ledger)
    }

    /// A place in the line of its key for `slot`, from `since` on; its number. The other workers look for idle connections.
    pub(super) fn join(&self, slot: &Arc<Slot<P>>, since: Time, worker: usize, bell: &Arc<Bell>) -> u64 {
        let key = &slot.share.key;
        let (mut others, mut number) = (Vec::new(), 0);
        self.change_state(|state| {
            number = state.ledger.join(key, since, worker, slot.clone());
            others = state.bells.others(bell);
            state.ledger.launch(key, turn::now())
        });
        others.iter().for_each(|bell| bell.ring());
        number
    }

    /// See [`Ledger::offer`].
    pub(super) fn offer(&self, key: &P::Key, worker: usize, generation: u32, can_move: bool) -> Offer<Arc<Slot<P>>> {
        let mut offer = Offer::Keep;
        self.change(|ledger| {
            let now = turn::now();
            offer = ledger.offer(key, worker, generation, can_move, now);
            ledger.launch_rivals(now)
        });
        offer
    }

    /// See [`super::PooledUpstream::reconsider`]. The protocol has changed its judgement before.
    pub(super) fn reconsider(&self, is_over: bool) {
        self.judgements.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state();
        let wakers = std::mem::take(&mut state.candidates);
        let mut waiting = Vec::new();
        if is_over {
            state.ledger.reconnect(&Scope::All);
            waiting = state.ledger.take_all();
        }
        drop(state);
        wakers.into_iter().for_each(wake_elsewhere);
        for queued in waiting {
            // One that has left chooses by itself.
            let _ = queued.waiter.deliver(Delivery::Lost);
        }
        self.ring_all();
    }

    /// A number that changes with each judgement.
    pub(super) fn judgements(&self) -> u64 {
        self.judgements.load(Ordering::Relaxed)
    }

    /// Ready once the endpoint was judged otherwise than at `seen`.
    pub(super) fn poll_judged(&self, seen: u64, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if self.judgements() != seen {
            return Poll::Ready(());
        }
        if !state.candidates.iter().any(|waker| waker.will_wake(context.waker())) {
            state.candidates.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// All workers look at their connections.
    pub(super) fn ring_all(&self) {
        let bells = self.state().bells.all();
        bells.iter().for_each(|bell| bell.ring());
    }

    /// Ready once no connection of `scope` is left.
    pub(super) fn poll_drained(&self, scope: &Scope<P::Key>, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.ledger.open_in(scope) == 0 {
            return Poll::Ready(());
        }
        state.watchers.push(context.waker().clone());
        Poll::Pending
    }

    /// The counts of all workers for each key.
    pub(super) fn counts(&self, endpoint: usize) -> Vec<PoolCounts<P::Key>> {
        let state = self.state();
        let of = |key: &P::Key| state.counts.get(key).into_iter().flatten().filter_map(Weak::upgrade);
        let tallies = state.ledger.tallies(turn::now());
        let counts = |(key, tally): (P::Key, _)| PoolCounts::new(key.clone(), endpoint, &tally, of(&key));
        tallies.into_iter().map(counts).collect()
    }
}
