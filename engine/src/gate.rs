//! Places for work on helper threads, and who waits for one.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::mailbox::wake_elsewhere;

/// So many may be within, each under a key of its own.
pub(crate) struct Gate<K> {
    places: usize,
    state: Mutex<State<K>>,
}

struct State<K> {
    within: Vec<K>,
    waiting: Vec<Waker>,
}

impl<K: Clone + PartialEq> Gate<K> {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, state: Mutex::new(State { within: Vec::new(), waiting: Vec::new() }) })
    }

    /// `None`: all places are taken, or somebody is within under the same key.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &K) -> Option<Pass<K>> {
        self.let_in(&mut self.state(), key)
    }

    /// Waits for that.
    pub(crate) async fn enter(self: &Arc<Self>, key: &K) -> Pass<K> {
        poll_fn(|context| {
            let mut state = self.state();
            match self.let_in(&mut state, key) {
                Some(pass) => Poll::Ready(pass),
                None => {
                    if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                        state.waiting.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn let_in(self: &Arc<Self>, state: &mut State<K>, key: &K) -> Option<Pass<K>> {
        if state.within.len() >= self.places || state.within.contains(key) {
            return None;
        }
        state.within.push(key.clone());
        Some(Pass { gate: self.clone(), key: key.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place, until it is dropped. The thread that does the work drops it, even if the requester has given up meanwhile.
pub(crate) struct Pass<K: Clone + PartialEq> {
    gate: Arc<Gate<K>>,
    key: K,
}

impl<K: Clone + PartialEq> Drop for Pass<K> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.gate.state();
            if let Some(at) = state.within.iter().position(|key| *key == self.key) {
                state.within.swap_remove(at);
            }
            // All of them: the first may have gone.
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(wake_elsewhere);
    }
}
