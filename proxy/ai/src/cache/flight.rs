//! Single flight: equal requests wait for the first one.
//!
//! The first one leads. When it has a value, those that wait have it, too. If it fails, the one that has waited longest leads in its
//! place, and the others go on waiting. If its value is for itself alone, they all go on. Locks are taken in one order: the part of the
//! table, then the flight.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::fingerprint::Fingerprint;

/// Parts of the table with a lock of their own. Default 16, as those of the stored responses.
const SHARDS: usize = 16;

/// The requests under way that others may wait for. There are at most as many as exchanges.
pub(super) struct Flights<T> {
    shards: [Mutex<HashMap<Fingerprint, Arc<Flight<T>>>>; SHARDS],
    /// So many may wait for one.
    followers_max: usize,
}

/// The way of a request that enters.
pub(super) enum Way<T: Clone> {
    Lead(FlightLead<T>),
    Follow(Follower<T>),
    /// Too many wait.
    Full,
}

/// The end of a wait.
pub(super) enum Landing<T: Clone> {
    /// The value of the leader.
    Value(T),
    /// It leads in the place of one that failed.
    Lead(FlightLead<T>),
    /// It goes on alone.
    Alone,
}

impl<T: Clone> Flights<T> {
    pub(super) fn new(followers_max: usize) -> Arc<Self> {
        Arc::new(Self { shards: Default::default(), followers_max })
    }

    /// A request enters.
    pub(super) fn enter(self: &Arc<Self>, key: Fingerprint) -> Way<T> {
        let mut shard = self.shard(&key);
        if let Some(flight) = shard.get(&key) {
            return match flight.join(self.followers_max) {
                Some(number) => Way::Follow(Follower { flights: self.clone(), key, flight: flight.clone(), number }),
                None => Way::Full,
            };
        }
        let flight = Arc::<Flight<T>>::default();
        shard.insert(key, flight.clone());
        Way::Lead(FlightLead { flights: self.clone(), key, flight: Some(flight) })
    }

    /// Requests under way.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    fn shard(&self, key: &Fingerprint) -> MutexGuard<'_, HashMap<Fingerprint, Arc<Flight<T>>>> {
        // No panic leaves a part half changed: each change is a call of a collection.
        self.shards[usize::from(key[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a lead. Without a verdict the next one leads, if one waits.
    fn end(&self, key: &Fingerprint, flight: &Flight<T>, verdict: Option<Verdict<T>>) {
        let woken: Vec<Waker> = {
            let mut shard = self.shard(key);
            let mut state = flight.lock();
            let next = if verdict.is_none() { state.waiting.pop_front() } else { None };
            if let Some((number, waker)) = next {
                state.promoted = Some(number);
                waker.into_iter().collect()
            } else {
                shard.remove(key);
                state.verdict = verdict;
                mem::take(&mut state.waiting).into_iter().filter_map(|(_, waker)| waker).collect()
            }
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

/// A request under way, and those that wait for it.
struct Flight<T>(Mutex<State<T>>);

struct State<T> {
    /// Those that wait, in their order, by their numbers.
    waiting: VecDeque<(u64, Option<Waker>)>,
    joined: u64,
    /// The one that leads in place of a leader that failed, until it has noticed.
    promoted: Option<u64>,
    verdict: Option<Verdict<T>>,
}

/// The end of a flight for those that wait.
#[derive(Clone)]
enum Verdict<T> {
    Value(T),
    Alone,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: VecDeque::new(), joined: 0, promoted: None, verdict: None }))
    }
}

impl<T> Flight<T> {
    /// The number of one more that waits, if there may be so many.
    fn join(&self, most: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.waiting.len() >= most {
            return None;
        }
        state.joined += 1;
        let number = state.joined;
        state.waiting.push_back((number, None));
        Some(number)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lead of a flight. Dropped, it has failed.
pub(super) struct FlightLead<T: Clone> {
    flights: Arc<Flights<T>>,
    key: Fingerprint,
    /// `None`: it is over.
    flight: Option<Arc<Flight<T>>>,
}

impl<T: Clone> FlightLead<T> {
    /// Those that wait have this value.
    pub(super) fn land(mut self, value: T) {
        if let Some(flight) = self.flight.take() {
            self.flights.end(&self.key, &flight, Some(Verdict::Value(value)));
        }
    }

    /// Those that wait go on alone.
    pub(super) fn release(mut self) {
        if let Some(flight) = self.flight.take() {
            self.flights.end(&self.key, &flight, Some(Verdict::Alone));
        }
    }
}

impl<T: Clone> Drop for FlightLead<T> {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.flights.end(&self.key, &flight, None);
        }
    }
}

/// A request that waits. Dropped, it gives up its place.
pub(super) struct Follower<T: Clone> {
    flights: Arc<Flights<T>>,
    key: Fingerprint,
    flight: Arc<Flight<T>>,
    number: u64,
}

impl<T: Clone> Future for Follower<T> {
    type Output = Landing<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Landing<T>> {
        let mut state = self.flight.lock();
        if state.promoted == Some(self.number) {
            state.promoted = None;
            let (flights, flight) = (self.flights.clone(), Some(self.flight.clone()));
            return Poll::Ready(Landing::Lead(FlightLead { flights, key: self.key, flight }));
        }
        match state.verdict.clone() {
            Some(Verdict::Value(value)) => return Poll::Ready(Landing::Value(value)),
            Some(Verdict::Alone) => return Poll::Ready(Landing::Alone),
            None => {}
        }
        match state.waiting.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, waker)) => *waker = Some(context.waker().clone()),
            // It has led, and is polled again.
            None => return Poll::Ready(Landing::Alone),
        }
        Poll::Pending
    }
}

impl<T: Clone> Drop for Follower<T> {
    fn drop(&mut self) {
        let was_promoted = {
            let mut state = self.flight.lock();
            state.waiting.retain(|(number, _)| *number != self.number);
            let was_promoted = state.promoted == Some(self.number);
            if was_promoted {
                state.promoted = None;
            }
            was_promoted
        };
        if was_promoted {
            self.flights.end(&self.key, &self.flight, None);
        }
    }
}

#[cfg(test)]
mod tests;
