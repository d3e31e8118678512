//! Work on another thread that is done once for all who want its result at the same time.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use slab::Slab;

use crate::environment::lock;

/// The works under way, by the keys of their results.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Arc<Mutex<HashMap<K, Arc<Flight<V>>>>>);

/// One work.
#[derive(Debug)]
struct Flight<V>(Mutex<Stage<V>>);

#[derive(Debug)]
enum Stage<V> {
    /// With those who wait.
    UnderWay(Slab<Waker>),
    /// With the result. `None`: there is none.
    Over(Option<V>),
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, V> Clone for Flights<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K, V> Flights<K, V>
where
    K: Clone + Eq + Hash + 'static,
    V: Clone + Send + 'static,
{
    /// The result of a key: the one that `find` finds, that of the work under way, or that of `make` on another thread. If `make` leaves its result
    /// where `find` looks, it runs once. A request that leaves does not stop it. `None`: it has panicked.
    pub(crate) async fn join(
        &self,
        key: K,
        find: impl FnOnce() -> Option<V>,
        make: impl FnOnce() -> V + Send + 'static,
    ) -> Option<V> {
        let flight = match self.board(key, find) {
            Boarded::Found(result) => return Some(result),
            Boarded::UnderWay(flight) => flight,
            Boarded::Begun(mut landing) => {
                let flight = landing.flight.clone();
                weir_engine::spawn(async move { landing.bring(weir_engine::run_blocking(make).await.ok()) }).detach();
                flight
            }
        };
        let mut waiter = Waiter { flight: &flight, place: None };
        std::future::poll_fn(|context| waiter.poll(context)).await
    }

    fn board(&self, key: K, find: impl FnOnce() -> Option<V>) -> Boarded<K, V> {
        let mut under_way = lock(&self.0);
        if let Some(flight) = under_way.get(&key) {
            return Boarded::UnderWay(flight.clone());
        }
        // Under the lock: a work that has ended since the caller looked has left its result.
        if let Some(found) = find() {
            return Boarded::Found(found);
        }
        let flight = Arc::new(Flight(Mutex::new(Stage::UnderWay(Slab::new()))));
        under_way.insert(key.clone(), flight.clone());
        Boarded::Begun(Landing { flights: self.clone(), key, flight, result: None })
    }
}

/// The state of the work that a request joins.
enum Boarded<K: Eq + Hash, V> {
    /// It is over, and this is its result.
    Found(V),
    UnderWay(Arc<Flight<V>>),
    /// The request is the first, and has the work done.
    Begun(Landing<K, V>),
}

/// The end of a work, also if its task ends without a result.
struct Landing<K: Eq + Hash, V> {
    flights: Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
    result: Option<V>,
}

impl<K: Eq + Hash, V> Landing<K, V> {
    fn bring(&mut self, result: Option<V>) {
        self.result = result;
    }
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        lock(&self.flights.0).remove(&self.key);
        let before = mem::replace(&mut *lock(&self.flight.0), Stage::Over(self.result.take()));
        if let Stage::UnderWay(waiting) = before {
            waiting.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }
}

/// A request that waits for a work.
struct Waiter<'a, V> {
    flight: &'a Flight<V>,
    place: Option<usize>,
}

impl<V: Clone> Waiter<'_, V> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<V>> {
        match &mut *lock(&self.flight.0) {
            Stage::Over(result) => Poll::Ready(result.clone()),
            Stage::UnderWay(waiting) => {
                match self.place.and_then(|place| waiting.get_mut(place)) {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => self.place = Some(waiting.insert(context.waker().clone())),
                }
                Poll::Pending
            }
        }
    }
}

impl<V> Drop for Waiter<'_, V> {
    fn drop(&mut self) {
        if let (Some(place), Stage::UnderWay(waiting)) = (self.place, &mut *lock(&self.flight.0)) {
            waiting.try_remove(place);
        }
    }
}

/// Runs a test on a worker, and ends with it.
#[cfg(test)]
pub(crate) fn on_worker<M: Future<Output = ()> + 'static>(main: impl FnOnce() -> M + Send + 'static) {
    use weir_engine::{Worker, settings::RuntimeSettings};

    let (sender, receiver) = std::sync::mpsc::channel();
    let main = move || async move {
        main().await;
        sender.send(()).expect("the test waits");
    };
    let worker = Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), main).expect("it starts");
    worker.join().expect("it ends");
    // The worker outlives the panic of a task.
    receiver.try_recv().expect("no panic");
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use futures_util::{FutureExt as _, future::join};

    use super::*;

    #[test]
    fn all_who_want_a_result_at_once_share_one_work_and_later_ones_find_it() {
        on_worker(|| async {
            let (flights, made) = (Flights::<u8, u32>::default(), Arc::new(AtomicU32::new(0)));
            let (go, gate) = mpsc::channel::<()>();
            let count = made.clone();
            let make = move || {
                gate.recv().expect("it may go on");
                count.fetch_add(1, Ordering::Relaxed) + 7
            };
            let mut first = Box::pin(flights.join(1, || None, make));
            assert!(first.as_mut().now_or_never().is_none());
            let mut gone = Box::pin(flights.join(1, || None, || unreachable!("it is under way")));
            assert!(gone.as_mut().now_or_never().is_none());
            drop(gone);
            let second = flights.join(1, || None, || unreachable!("it is under way"));
            let other = flights.join(2, || None, || 9);
            assert_eq!(other.await, Some(9), "another key does not wait");
            go.send(()).expect("it waits");
            assert_eq!(join(first, second).await, (Some(7), Some(7)));
            assert_eq!(flights.join(1, || Some(5), || unreachable!("it is found")).await, Some(5));
            assert_eq!((made.load(Ordering::Relaxed), lock(&flights.0).len()), (1, 0));
        });
    }

    #[test]
    fn a_work_goes_on_without_its_first_request_and_ends_with_a_panic_for_all() {
        on_worker(|| async {
            let flights = Flights::<u8, u32>::default();
            let mut first = Box::pin(flights.join(1, || None, || 3));
            assert!(first.as_mut().now_or_never().is_none());
            let second = flights.join(1, || None, || unreachable!("it is under way"));
            drop(first);
            assert_eq!(second.await, Some(3));
            let lost = flights.join(1, || None, || panic!("on purpose"));
            let other = flights.join(1, || None, || unreachable!("it is under way"));
            assert_eq!(join(lost, other).await, (None, None));
            assert_eq!(flights.join(1, || None, || 4).await, Some(4), "the next one begins again");
        });
    }
}
