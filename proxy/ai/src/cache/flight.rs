//! Single flight: equal requests wait for the first one.
//!
//! The first one leads. When its response is stored, those that wait are served from the cache. If it fails, the one that has waited
//! longest leads in its place, and the others go on waiting. If its response cannot be stored although it is good, they all go on
//! themselves. Locks are taken in one order: the part of the cache, then the flight.

use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::{entry::Entry, fingerprint::Fingerprint, store::ResponseCache};

/// The way of a request.
pub(crate) enum Turn {
    /// It has a response.
    Hit(Arc<Entry>),
    /// It goes to a provider, and others wait for it.
    Lead(Lead),
    /// It waits for another one.
    Follow(Follower),
    /// It goes to a provider, and its response is not stored.
    Pass,
}

/// A request under way, and those that wait for its response.
#[derive(Default)]
pub(super) struct Flight(Mutex<State>);

#[derive(Default)]
struct State {
    /// Those that wait, in their order, by their numbers.
    waiting: VecDeque<(u64, Option<Waker>)>,
    joined: u64,
    /// The one that leads in place of a leader that failed, until it knows.
    promoted: Option<u64>,
    verdict: Option<Verdict>,
}

/// The end of a flight for those that wait.
#[derive(Clone)]
enum Verdict {
    Stored(Arc<Entry>),
    /// The response is good and cannot be stored.
    Unfit,
}

impl Flight {
    /// The number of one more that waits, if there may be so many.
    pub(super) fn join(&self, most: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.waiting.len() >= most {
            return None;
        }
        state.joined += 1;
        let number = state.joined;
        state.waiting.push_back((number, None));
        Some(number)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lead of a flight. Dropped, the request has failed.
pub(crate) struct Lead {
    cache: Arc<ResponseCache>,
    key: Fingerprint,
    /// `None`: no request waits for this one, or it is over.
    flight: Option<Arc<Flight>>,
}

impl Lead {
    pub(super) fn new(cache: Arc<ResponseCache>, key: Fingerprint, flight: Option<Arc<Flight>>) -> Self {
        Self { cache, key, flight }
    }

    pub(super) fn cache(&self) -> &Arc<ResponseCache> {
        &self.cache
    }

    pub(super) fn key(&self) -> &Fingerprint {
        &self.key
    }

    /// Stores the response, and serves those that wait.
    pub(super) fn store(mut self, entry: Entry) {
        let (flight, entry) = (self.flight.take(), Arc::new(entry));
        let _before = self.cache.shard(&self.key).insert(self.key, entry.clone());
        if let Some(flight) = flight {
            end(&self.cache, &self.key, &flight, Some(Verdict::Stored(entry)));
        }
    }

    /// The response is good and is not stored: those that wait go on themselves.
    pub(crate) fn release(mut self) {
        if let Some(flight) = self.flight.take() {
            end(&self.cache, &self.key, &flight, Some(Verdict::Unfit));
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            end(&self.cache, &self.key, &flight, None);
        }
    }
}

/// Ends a lead. Without a verdict the next one leads, if one waits.
fn end(cache: &ResponseCache, key: &Fingerprint, flight: &Arc<Flight>, verdict: Option<Verdict>) {
    let woken: Vec<Waker> = {
        let mut shard = cache.shard(key);
        let mut state = flight.lock();
        let next = if verdict.is_none() { state.waiting.pop_front() } else { None };
        if let Some((number, waker)) = next {
            state.promoted = Some(number);
            waker.into_iter().collect()
        } else {
            shard.flights.remove(key);
            state.verdict = verdict;
            mem::take(&mut state.waiting).into_iter().filter_map(|(_, waker)| waker).collect()
        }
    };
    woken.into_iter().for_each(Waker::wake);
}

/// A request that waits. Dropped, it gives up its place.
pub(crate) struct Follower {
    cache: Arc<ResponseCache>,
    key: Fingerprint,
    flight: Arc<Flight>,
    number: u64,
}

impl Follower {
    pub(super) fn new(cache: Arc<ResponseCache>, key: Fingerprint, flight: Arc<Flight>, number: u64) -> Self {
        Self { cache, key, flight, number }
    }
}

impl Future for Follower {
    type Output = Turn;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn> {
        let mut state = self.flight.lock();
        if state.promoted == Some(self.number) {
            state.promoted = None;
            drop(state);
            return Poll::Ready(Turn::Lead(Lead::new(self.cache.clone(), self.key, Some(self.flight.clone()))));
        }
        match &state.verdict {
            Some(Verdict::Stored(entry)) => return Poll::Ready(Turn::Hit(entry.clone())),
            Some(Verdict::Unfit) => return Poll::Ready(Turn::Pass),
            None => {}
        }
        match state.waiting.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, waker)) => *waker = Some(context.waker().clone()),
            // It has had its turn.
            None => return Poll::Ready(Turn::Pass),
        }
        Poll::Pending
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let is_promoted = {
            let mut state = self.flight.lock();
            state.waiting.retain(|(number, _)| *number != self.number);
            let is_promoted = state.promoted == Some(self.number);
            if is_promoted {
                state.promoted = None;
            }
            is_promoted
        };
        if is_promoted {
            end(&self.cache, &self.key, &self.flight, None);
        }
    }
}
