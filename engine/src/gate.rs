//! Places for work on helper threads, and the tasks that wait for one.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::mailbox::wake_elsewhere;

/// So many may be within, each under a key of its own. The next one is the first that waits and may enter.
pub(crate) struct Gate<K> {
    places: usize,
    state: Mutex<State<K>>,
}

struct State<K> {
    within: Vec<K>,
    /// None of them could enter now.
    waiting: VecDeque<(u64, K, Waker)>,
    /// Tickets that were given a place, and have not taken it yet.
    called: Vec<u64>,
    tickets: u64,
}

impl<K: Clone + PartialEq> Gate<K> {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        let state = State { within: Vec::new(), waiting: VecDeque::new(), called: Vec::new(), tickets: 0 };
        Arc::new(Self { places, state: Mutex::new(state) })
    }

    /// `None`: all places are taken, or somebody is within under the same key.
    pub(crate) fn try_enter(self: &Arc<Self>, key: &K) -> Option<Pass<K>> {
        self.state().let_in(self.places, key).then(|| self.pass(key))
    }

    /// Waits for that.
    pub(crate) async fn enter(self: &Arc<Self>, key: &K) -> Pass<K> {
        let mut entrant = Entrant { gate: self, key, ticket: None };
        poll_fn(|context| entrant.poll(context)).await
    }

    fn pass(self: &Arc<Self>, key: &K) -> Pass<K> {
        Pass { gate: self.clone(), key: key.clone() }
    }

    /// Gives a place back, and calls the first that waits and has room now.
    fn leave(&self, key: &K) {
        let next = {
            let mut state = self.state();
            if let Some(at) = state.within.iter().position(|within| within == key) {
                state.within.swap_remove(at);
            }
            let next = state.waiting.iter().position(|(_, key, _)| state.has_room(self.places, key));
            next.and_then(|at| state.waiting.remove(at)).map(|(ticket, key, waker)| {
                state.within.push(key);
                state.called.push(ticket);
                waker
            })
        };
        next.into_iter().for_each(wake_elsewhere);
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + PartialEq> State<K> {
    /// False: there is no room.
    fn let_in(&mut self, places: usize, key: &K) -> bool {
        let has_room = self.has_room(places, key);
        if has_room {
            self.within.push(key.clone());
        }
        has_room
    }

    fn has_room(&self, places: usize, key: &K) -> bool {
        self.within.len() < places && !self.within.contains(key)
    }

    /// Whether the ticket was given a place, which its holder has from now on.
    fn take_call(&mut self, ticket: u64) -> bool {
        let at = self.called.iter().position(|called| *called == ticket);
        at.map(|at| self.called.swap_remove(at)).is_some()
    }
}

/// A task that waits, until it has entered or gives up.
struct Entrant<'a, K: Clone + PartialEq> {
    gate: &'a Arc<Gate<K>>,
    key: &'a K,
    /// `None`: it does not wait yet, or has entered.
    ticket: Option<u64>,
}

impl<K: Clone + PartialEq> Entrant<'_, K> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Pass<K>> {
        let mut state = self.gate.state();
        let is_called = match self.ticket {
            Some(ticket) => state.take_call(ticket),
            None => state.let_in(self.gate.places, self.key),
        };
        if is_called {
            self.ticket = None;
            return Poll::Ready(self.gate.pass(self.key));
        }
        match self.ticket {
            Some(ticket) => {
                let own = state.waiting.iter_mut().find(|(other, ..)| *other == ticket);
                own.into_iter().for_each(|(_, _, waker)| waker.clone_from(context.waker()));
            }
            None => {
                state.tickets += 1;
                self.ticket = Some(state.tickets);
                let place = (state.tickets, self.key.clone(), context.waker().clone());
                state.waiting.push_back(place);
            }
        }
        Poll::Pending
    }
}

impl<K: Clone + PartialEq> Drop for Entrant<'_, K> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let is_called = {
            let mut state = self.gate.state();
            state.waiting.retain(|(other, ..)| *other != ticket);
            state.take_call(ticket)
        };
        if is_called {
            self.gate.leave(self.key);
        }
    }
}

/// A place, until it is dropped. The thread that does the work drops it, even if the requester has given up meanwhile.
pub(crate) struct Pass<K: Clone + PartialEq> {
    gate: Arc<Gate<K>>,
    key: K,
}

impl<K: Clone + PartialEq> Drop for Pass<K> {
    fn drop(&mut self) {
        self.gate.leave(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicU32, Ordering},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<T>(task: &mut (impl Future<Output = T> + Unpin), wakes: &Arc<Wakes>) -> Poll<T> {
        pin!(task).poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
    }

    #[test]
    fn a_free_place_wakes_the_first_that_may_enter_alone() {
        let gate = Gate::new(2);
        let (one, two) = (gate.try_enter(&1).expect("room"), gate.try_enter(&2).expect("room"));
        assert!(gate.try_enter(&3).is_none(), "all places are taken");
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let keys = [1, 3, 4];
        let mut tasks = keys.each_ref().map(|key| Box::pin(gate.enter(key)));
        for (task, wakes) in tasks.iter_mut().zip(&wakes) {
            assert!(poll(task, wakes).is_pending());
        }
        drop(two);
        let count = || wakes.each_ref().map(|wakes| wakes.0.load(Ordering::Relaxed));
        assert_eq!(count(), [0, 1, 0], "the key of the first is within");
        assert!(gate.try_enter(&5).is_none(), "the place is the second one's, though it has not run yet");
        drop(one);
        assert_eq!(count(), [1, 1, 0]);
        let [first, second, third] = &mut tasks;
        assert!(poll(third, &wakes[2]).is_pending());
        let Poll::Ready(pass) = poll(second, &wakes[1]) else { panic!("it was called") };
        assert!(poll(first, &wakes[0]).is_ready());
        assert_eq!(count(), [1, 1, 1], "the pass of the first is dropped at once");
        drop(pass);
        assert!(poll(third, &wakes[2]).is_ready());
    }

    #[test]
    fn a_task_that_gives_up_leaves_its_place_to_the_next() {
        let gate = Gate::new(1);
        let pass = gate.try_enter(&1).expect("room");
        let wakes: [Arc<Wakes>; 3] = Default::default();
        let [mut gone, mut called, mut last] = [&2, &3, &4].map(|key| Box::pin(gate.enter(key)));
        for (task, wakes) in [&mut gone, &mut called, &mut last].into_iter().zip(&wakes) {
            assert!(poll(task, wakes).is_pending());
        }
        drop(gone);
        drop(pass);
        drop(called);
        let count = wakes.each_ref().map(|wakes| wakes.0.load(Ordering::Relaxed));
        assert_eq!(count, [0, 1, 1]);
        assert!(poll(&mut last, &wakes[2]).is_ready());
        let state = gate.state();
        assert!(state.within.is_empty() && state.waiting.is_empty() && state.called.is_empty());
    }
}
