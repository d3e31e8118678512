//! Requests that wait for each other, by hand.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    task::Wake,
};

use super::*;

const KEY: Fingerprint = [7; 32];

/// Counts wakes.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One that waits, and its wakes.
struct Waiting(Follower<u32>, Arc<WakeCount>);

impl Waiting {
    fn begin(flights: &Arc<Flights<u32>>) -> Self {
        let Way::Follow(follower) = flights.enter(KEY) else { panic!("nothing is under way") };
        let mut waiting = Self(follower, Arc::default());
        assert!(waiting.landing().is_none());
        waiting
    }

    fn landing(&mut self) -> Option<Landing<u32>> {
        match Pin::new(&mut self.0).poll(&mut Context::from_waker(&self.1.clone().into())) {
            Poll::Ready(landing) => Some(landing),
            Poll::Pending => None,
        }
    }

    fn wakes(&self) -> usize {
        self.1.0.load(Ordering::Relaxed)
    }
}

fn lead(flights: &Arc<Flights<u32>>) -> FlightLead<u32> {
    match flights.enter(KEY) {
        Way::Lead(lead) => lead,
        _ => panic!("another one leads"),
    }
}

#[test]
fn those_that_wait_have_the_value_of_the_first() {
    let flights = Flights::new(3);
    let first = lead(&flights);
    let mut waiting = [(); 3].map(|()| Waiting::begin(&flights));
    assert!(matches!(flights.enter(KEY), Way::Full), "a fourth one goes on");
    first.land(5);
    for one in &mut waiting {
        assert_eq!(one.wakes(), 1);
        assert!(matches!(one.landing(), Some(Landing::Value(5))));
    }
    assert_eq!(flights.count(), 0);
}

#[test]
fn behind_a_failure_one_goes_on_and_not_all() {
    let flights = Flights::new(3);
    let first = lead(&flights);
    let [mut second, third, mut fourth] = [(); 3].map(|()| Waiting::begin(&flights));
    drop(first);
    assert_eq!((second.wakes(), third.wakes(), fourth.wakes()), (1, 0, 0));
    let Some(Landing::Lead(lead)) = second.landing() else { panic!("it leads") };
    assert!(fourth.landing().is_none());
    drop(second);
    // One that waits leaves, and then one that may lead before it has noticed.
    drop(third);
    drop(lead);
    assert_eq!(fourth.wakes(), 1);
    let mut fifth = Waiting::begin(&flights);
    drop(fourth);
    assert_eq!(fifth.wakes(), 1);
    let Some(Landing::Lead(lead)) = fifth.landing() else { panic!("it leads") };
    drop(lead);
    assert_eq!(flights.count(), 0);
}

#[test]
fn behind_a_value_for_the_leader_alone_all_go_on() {
    let flights = Flights::new(3);
    let first = lead(&flights);
    let mut waiting = [(); 3].map(|()| Waiting::begin(&flights));
    first.release();
    for one in &mut waiting {
        assert_eq!(one.wakes(), 1);
        assert!(matches!(one.landing(), Some(Landing::Alone)));
    }
    assert_eq!(flights.count(), 0);
}

#[test]
fn many_threads_have_one_leader_at_a_time() {
    let (flights, leading) = (Flights::<u32>::new(3), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..2_000 {
                    let lead = match flights.enter(KEY) {
                        Way::Lead(lead) => lead,
                        // It gives up its place, or its lead.
                        Way::Follow(_) | Way::Full => continue,
                    };
                    assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "a second leader");
                    leading.fetch_sub(1, Ordering::SeqCst);
                    match round % 3 {
                        0 => drop(lead),
                        1 => lead.land(round),
                        _ => lead.release(),
                    }
                }
            });
        }
    });
    assert_eq!(flights.count(), 0);
}
