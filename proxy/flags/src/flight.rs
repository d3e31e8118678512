//! Work on another thread that is done once for all who want its result at the same time.

use std::{
    collections::HashMap,
    hash::Hash,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use slab::Slab;
use weir_engine::wake_elsewhere;

use crate::{environment::lock, limits::FLIGHTS_MAX};

/// The reason why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotMade {
    /// [`FLIGHTS_MAX`] other works are under way.
    NoRoom,
    /// The thread that made it has panicked.
    Panicked,
}

/// The works under way, by the keys of their results.
#[derive(Debug)]
pub(crate) struct Flights<K, V>(Arc<Mutex<HashMap<K, Arc<Flight<V>>>>>);

/// One work.
#[derive(Debug)]
struct Flight<V> {
    stage: Mutex<Stage<V>>,
    /// Requests that want the result. Without one the work is left out. It grows only under the lock of the works.
    aboard: AtomicUsize,
}

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
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The result of a key: the one that `find` finds, that of the work under way, or that of `make` on another thread. If `make` leaves its result
    /// where `find` looks, it runs once. A work whose requests have all left before it begins is left out.
    pub(crate) async fn join(
        &self,
        key: K,
        find: impl FnOnce() -> Option<V>,
        make: impl FnOnce() -> V + Send + 'static,
    ) -> Result<V, NotMade> {
        let mut waiter = match self.board(key, find) {
            Boarded::Found(result) => return Ok(result),
            Boarded::Full => return Err(NotMade::NoRoom),
            Boarded::UnderWay(waiter) => waiter,
            Boarded::Begun(waiter, landing) => {
                let work = move || landing.land(make);
                // Not the request's own: others wait for the result, too.
                weir_engine::spawn(async move { drop(weir_engine::run_blocking(work).await) }).detach();
                waiter
            }
        };
        std::future::poll_fn(|context| waiter.poll(context)).await.ok_or(NotMade::Panicked)
    }

    fn board(&self, key: K, find: impl FnOnce() -> Option<V>) -> Boarded<K, V> {
        let mut under_way = lock(&self.0);
        if let Some(flight) = under_way.get(&key) {
            return Boarded::UnderWay(Waiter::new(flight.clone()));
        }
        // Under the lock: a work that has ended since the caller looked has left its result.
        if let Some(found) = find() {
            return Boarded::Found(found);
        }
        if under_way.len() >= FLIGHTS_MAX {
            return Boarded::Full;
        }
        let flight = Arc::new(Flight { stage: Mutex::new(Stage::UnderWay(Slab::new())), aboard: AtomicUsize::new(0) });
        under_way.insert(key.clone(), flight.clone());
        let landing = Landing { flights: self.clone(), key, flight: flight.clone(), result: None, is_left_out: false };
        Boarded::Begun(Waiter::new(flight), landing)
    }
}

/// The state of the work that a request joins.
enum Boarded<K: Eq + Hash, V> {
    /// It is over, and this is its result.
    Found(V),
    /// It cannot begin yet.
    Full,
    UnderWay(Waiter<V>),
    /// The request is the first, and has the work done.
    Begun(Waiter<V>, Landing<K, V>),
}

/// The end of a work, also if it never runs.
struct Landing<K: Eq + Hash, V> {
    flights: Flights<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
    result: Option<V>,
    is_left_out: bool,
}

impl<K: Eq + Hash, V> Landing<K, V> {
    /// Does the work on this thread, which is a helper: the queue of wakes of a worker may be full, and a worker that waits for room in the queue of
    /// another one may be waited for itself.
    fn land(mut self, make: impl FnOnce() -> V) {
        self.is_left_out = self.leave_out();
        if !self.is_left_out {
            self.result = catch_unwind(AssertUnwindSafe(make)).ok();
        }
    }

    /// Whether nothing wants the result any more. The next request of the key then begins another work.
    fn leave_out(&self) -> bool {
        let mut under_way = lock(&self.flights.0);
        let is_wanted = self.flight.aboard.load(Ordering::Relaxed) > 0;
        if !is_wanted {
            under_way.remove(&self.key);
        }
        !is_wanted
    }
}

impl<K: Eq + Hash, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        if self.is_left_out {
            return;
        }
        lock(&self.flights.0).remove(&self.key);
        let before = mem::replace(&mut *lock(&self.flight.stage), Stage::Over(self.result.take()));
        if let Stage::UnderWay(waiting) = before {
            waiting.into_iter().for_each(|(_, waker)| wake_elsewhere(waker));
        }
    }
}

/// A request that waits for a work.
struct Waiter<V> {
    flight: Arc<Flight<V>>,
    place: Option<usize>,
}

impl<V> Waiter<V> {
    /// To be called under the lock of the works.
    fn new(flight: Arc<Flight<V>>) -> Self {
        flight.aboard.fetch_add(1, Ordering::Relaxed);
        Self { flight, place: None }
    }
}

impl<V: Clone> Waiter<V> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<V>> {
        match &mut *lock(&self.flight.stage) {
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

impl<V> Drop for Waiter<V> {
    fn drop(&mut self) {
        self.flight.aboard.fetch_sub(1, Ordering::Relaxed);
        if let (Some(place), Stage::UnderWay(waiting)) = (self.place, &mut *lock(&self.flight.stage)) {
            waiting.try_remove(place);
        }
    }
}

/// Runs a test on a worker, and ends with it.
#[cfg(test)]
pub(crate) fn on_worker<M: Future<Output = ()> + 'static>(main: impl FnOnce() -> M + Send + 'static) {
    use weir_engine::{Worker, settings::RuntimeSettings};

    let worker = Worker::start(0, None, &RuntimeSettings::default(), Arc::default(), main).expect("it starts");
    worker.join().expect("no panic");
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{atomic::AtomicU32, mpsc},
        time::{Duration, Instant},
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
            let mut second = Box::pin(flights.join(1, || None, || unreachable!("it is under way")));
            assert!(second.as_mut().now_or_never().is_none());
            let other = flights.join(2, || None, || 9);
            assert_eq!(other.await, Ok(9), "another key does not wait");
            go.send(()).expect("it waits");
            assert_eq!(join(first, second).await, (Ok(7), Ok(7)));
            assert_eq!(flights.join(1, || Some(5), || unreachable!("it is found")).await, Ok(5));
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
            assert_eq!(second.await, Ok(3));
            let lost = flights.join(1, || None, || panic!("on purpose"));
            let other = flights.join(1, || None, || unreachable!("it is under way"));
            let panicked = Err(NotMade::Panicked);
            assert_eq!(join(lost, other).await, (panicked, panicked));
            assert_eq!(flights.join(1, || None, || 4).await, Ok(4), "the next one begins again");
        });
    }

    #[test]
    fn works_are_bounded_and_those_without_a_request_are_left_out() {
        on_worker(|| async {
            let (flights, made) = (Flights::<usize, ()>::default(), Arc::new(AtomicU32::new(0)));
            // More than there are helper threads: the others queue behind them.
            let (begun, begins) = mpsc::channel::<()>();
            let (go, gate) = mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(gate));
            let begin = |key| {
                let (begun, gate, made) = (begun.clone(), gate.clone(), made.clone());
                let work = move || {
                    begun.send(()).expect("the test has the other end");
                    lock(&gate).recv().expect("it may go on");
                    made.fetch_add(1, Ordering::Relaxed);
                };
                let mut request = Box::pin(flights.join(key, || None, work));
                assert!(request.as_mut().now_or_never().is_none());
                request
            };
            let requests: Vec<_> = (0..FLIGHTS_MAX).map(begin).collect();
            assert_eq!(flights.join(FLIGHTS_MAX, || None, || ()).await, Err(NotMade::NoRoom), "no room for one more");
            assert_eq!(flights.join(FLIGHTS_MAX, || Some(()), || ()).await, Ok(()), "a result needs none");
            while begins.try_recv().is_err() {
                weir_engine::sleep(Duration::from_millis(1)).await;
            }
            drop(requests);
            (0..FLIGHTS_MAX).for_each(|_| go.send(()).expect("the works have the other end"));
            let deadline = Instant::now() + Duration::from_secs(20);
            while !lock(&flights.0).is_empty() {
                assert!(Instant::now() < deadline, "works are left behind");
                weir_engine::sleep(Duration::from_millis(1)).await;
            }
            let made = made.load(Ordering::Relaxed) as usize;
            assert_eq!(made, 1 + begins.try_iter().count(), "the works that had begun");
            assert!(made <= 4, "{made}: no more than there are helper threads");
        });
    }
}
