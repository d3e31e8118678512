//! The wheel against a map of ticks, and deadlines against counted wakes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use weir_base::Time;

use super::{Deadlines, Key, LEVELS, TICK_NANOS, Wheel};

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn fire(wheel: &mut Wheel<u32>, now: Time) -> Vec<u32> {
    let mut fired = Vec::new();
    let count = wheel.expire(now, |token| fired.push(*token));
    assert_eq!(count, fired.len());
    fired.sort_unstable();
    fired
}

#[derive(Clone, Debug)]
enum Step {
    Insert,
    Set(prop::sample::Index, u64),
    Clear(prop::sample::Index),
    Remove(prop::sample::Index),
    Advance(u64),
    AdvanceToNext,
}

/// Distances from a nanosecond to centuries, evenly over the magnitudes.
fn distance() -> impl Strategy<Value = u64> {
    (0_u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift)
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        3 => Just(Step::Insert),
        8 => (index(), distance()).prop_map(|(i, d)| Step::Set(i, d)),
        2 => index().prop_map(Step::Clear),
        2 => index().prop_map(Step::Remove),
        4 => (0_u32..44, any::<u64>()).prop_map(|(shift, bits)| Step::Advance(bits >> 20 >> shift)),
        4 => Just(Step::AdvanceToNext),
    ]
}

/// The obvious implementation: one tick per armed entry.
#[derive(Default)]
struct Model {
    current: u64,
    entries: BTreeMap<u32, Option<u64>>,
}

impl Model {
    fn set(&mut self, token: u32, deadline: u64) {
        let due = (deadline != u64::MAX).then(|| deadline.div_ceil(TICK_NANOS).max(self.current + 1));
        self.entries.insert(token, due);
    }

    fn expire(&mut self, now: u64) -> Vec<u32> {
        let target = now / TICK_NANOS;
        self.current = self.current.max(target);
        let due: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, due)| due.is_some_and(|due| due <= target))
            .map(|(token, _)| *token)
            .collect();
        for token in &due {
            self.entries.insert(*token, None);
        }
        due
    }
}

struct Pair {
    now: u64,
    wheel: Wheel<u32>,
    keys: Vec<(u32, Key)>,
    model: Model,
    made: u32,
}

impl Pair {
    fn new(now: u64) -> Self {
        let model = Model { current: now / TICK_NANOS, ..Model::default() };
        Self { now, wheel: Wheel::new(Time::from_nanos(now)), keys: Vec::new(), model, made: 0 }
    }

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        let expected = self.model.expire(self.now);
        assert_eq!(fire(&mut self.wheel, Time::from_nanos(self.now)), expected);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Insert => {
                self.keys.push((self.made, self.wheel.insert(self.made)));
                self.model.entries.insert(self.made, None);
                self.made += 1;
            }
            Step::Set(index, distance) if !self.keys.is_empty() => {
                let (token, key) = &self.keys[index.index(self.keys.len())];
                // Sometimes in the past: half of the distance is behind us.
                let deadline =
                    self.now.saturating_add(distance).saturating_sub(distance / 2 * u64::from(distance % 4 == 0));
                self.wheel.set(key, Time::from_nanos(deadline));
                self.model.set(*token, deadline);
            }
            Step::Clear(index) if !self.keys.is_empty() => {
                let (token, key) = &self.keys[index.index(self.keys.len())];
                self.wheel.clear(key);
                self.model.entries.insert(*token, None);
            }
            Step::Remove(index) if !self.keys.is_empty() => {
                let (token, key) = self.keys.swap_remove(index.index(self.keys.len()));
                assert_eq!(self.wheel.remove(key), token);
                self.model.entries.remove(&token);
            }
            Step::Advance(by) => self.advance(self.now.saturating_add(by)),
            Step::AdvanceToNext => {
                if let Some(next) = self.wheel.next_deadline() {
                    self.advance(next.as_nanos());
                }
            }
            _ => {}
        }
        let earliest = self.model.entries.values().flatten().min();
        let next = self.wheel.next_deadline().map(|next| next.as_nanos() / TICK_NANOS);
        if let Some(earliest) = earliest {
            assert!(next.is_some_and(|next| next <= *earliest), "{next:?} sleeps past {earliest}");
        }
        assert!(next.is_none_or(|next| next > self.model.current), "{next:?} would spin");
        assert_eq!(self.wheel.len(), self.model.entries.len());
        if self.wheel.is_empty() {
            assert_eq!(next, None, "no entries, nothing to wake for");
        }
    }
}

proptest! {
    #[test]
    fn the_wheel_agrees_with_a_map(start in distance(), steps in prop::collection::vec(step(), 1..200)) {
        let mut pair = Pair::new(start / 2);
        for step in steps {
            pair.run(step);
        }
    }

    #[test]
    fn a_far_deadline_is_looked_at_once_per_level(distance in distance()) {
        let mut wheel = Wheel::new(Time::ZERO);
        let key = wheel.insert(7);
        wheel.set(&key, Time::from_nanos(distance.min(u64::MAX - 1)));
        let mut wakes = 0;
        while let Some(next) = wheel.next_deadline() {
            wakes += 1;
            fire(&mut wheel, next);
        }
        prop_assert!(wakes <= LEVELS, "{wakes} wakes");
        prop_assert!(wheel.is_expired(&key));
    }
}

#[test]
fn a_deadline_fires_at_most_one_tick_late_and_never_early() {
    let mut wheel = Wheel::new(Time::ZERO);
    let key = wheel.insert(1);
    wheel.set(&key, Time::from_nanos(25_000_001));
    assert_eq!(fire(&mut wheel, Time::from_nanos(25_000_001)), []);
    assert!(!wheel.is_expired(&key));
    assert_eq!(fire(&mut wheel, Time::from_nanos(29_999_999)), []);
    assert_eq!(fire(&mut wheel, ms(30)), [1]);
    assert!(wheel.is_expired(&key));
    assert_eq!(fire(&mut wheel, ms(1_000)), [], "once");
}

#[test]
fn moving_a_deadline_later_does_not_move_its_entry() {
    let mut wheel = Wheel::new(Time::ZERO);
    let key = wheel.insert(1);
    wheel.set(&key, ms(100));
    for later in 1..1_000 {
        wheel.set(&key, ms(100 + later));
        assert_eq!(wheel.next_deadline(), Some(ms(100)), "the entry stays in its first slot");
    }
    assert_eq!(wheel.deadline(&key), Some(ms(1_100)));
    assert_eq!(fire(&mut wheel, ms(100)), []);
    assert_eq!(fire(&mut wheel, ms(1_099)), []);
    assert_eq!(fire(&mut wheel, ms(1_100)), [1]);
}

#[test]
fn a_cleared_deadline_is_silent_and_then_lets_the_worker_sleep() {
    let mut wheel = Wheel::new(Time::ZERO);
    let key = wheel.insert(1);
    wheel.set(&key, ms(50));
    wheel.clear(&key);
    assert_eq!(wheel.deadline(&key), None);
    assert_eq!(fire(&mut wheel, ms(50)), []);
    assert_eq!(wheel.next_deadline(), None);
    wheel.set(&key, Time::ZERO.saturating_add(Duration::MAX));
    assert_eq!(wheel.next_deadline(), None, "a duration that saturates never fires");
}

#[test]
fn ten_thousand_far_deadlines_cost_nothing_until_their_slot() {
    let mut wheel = Wheel::new(Time::ZERO);
    let keys: Vec<Key> = (0..10_000).map(|token| wheel.insert(token)).collect();
    for (offset, key) in (0..).zip(&keys) {
        wheel.set(key, ms(3_600_000 + offset));
    }
    let next = wheel.next_deadline().unwrap();
    assert!(next > ms(2_600_000), "no work for {next:?}");
    assert_eq!(fire(&mut wheel, ms(3_599_999)), []);
    assert_eq!(fire(&mut wheel, ms(3_620_000)).len(), 10_000);
    assert_eq!(wheel.next_deadline(), None);
}

#[test]
fn a_clock_that_stands_still_or_runs_back_fires_nothing_twice() {
    let mut wheel = Wheel::new(ms(500));
    let key = wheel.insert(1);
    wheel.set(&key, ms(100));
    assert!(wheel.is_expired(&key), "already past");
    assert_eq!(fire(&mut wheel, ms(500)), []);
    assert_eq!(fire(&mut wheel, ms(510)), [1]);
    assert_eq!(fire(&mut wheel, ms(400)), []);
    wheel.set(&key, ms(520));
    assert!(!wheel.is_expired(&key));
    assert_eq!(fire(&mut wheel, ms(520)), [1]);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_waiting_task_is_woken_once_by_its_own_deadline() {
    let deadlines = Deadlines::new(Time::ZERO);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut cx = Context::from_waker(&waker);
    let deadline = deadlines.deadline();
    let other = deadlines.deadline();
    other.set(ms(20));
    deadline.set(ms(40));
    assert_eq!(deadline.poll_expired(&mut cx), Poll::Pending);
    assert_eq!(deadline.poll_expired(&mut cx), Poll::Pending);
    assert_eq!(deadlines.expire(ms(20)), 1, "the other one, for which nobody waits");
    deadline.set(ms(60));
    assert_eq!(deadlines.expire(ms(40)), 0);
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    assert_eq!(deadlines.expire(ms(60)), 1);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    assert_eq!(deadline.poll_expired(&mut cx), Poll::Ready(()));
    deadline.clear();
    assert_eq!(deadline.poll_expired(&mut cx), Poll::Pending, "cleared");
}

#[test]
fn a_deadline_set_while_a_task_waits_without_one_wakes_it() {
    let deadlines = Deadlines::new(Time::ZERO);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let deadline = deadlines.deadline();
    assert_eq!(deadline.poll_expired(&mut Context::from_waker(&waker)), Poll::Pending);
    assert_eq!(deadlines.next_deadline(), None);
    deadline.set(Time::ZERO);
    let next = deadlines.next_deadline().expect("past due is pending");
    assert_eq!((deadlines.expire(next), count.0.load(Ordering::Relaxed)), (1, 1));
}

/// Waking it drops a deadline of the same wheel, as the end of a task does.
struct DropDeadlineOnWake(std::sync::Mutex<Option<Release>>);

type Release = Box<dyn FnOnce() + Send>;

impl Wake for DropDeadlineOnWake {
    fn wake(self: Arc<Self>) {
        if let Some(release) = self.0.lock().unwrap().take() {
            release();
        }
    }
}

thread_local! {
    static OWNED: std::cell::RefCell<Vec<super::Deadline>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[test]
fn a_task_that_ends_when_woken_may_drop_its_deadlines() {
    let deadlines = Deadlines::new(Time::ZERO);
    let release: Release = Box::new(|| OWNED.with_borrow_mut(Vec::clear));
    let waker = Waker::from(Arc::new(DropDeadlineOnWake(std::sync::Mutex::new(Some(release)))));
    let deadline = deadlines.deadline();
    deadline.set(ms(10));
    assert_eq!(deadline.poll_expired(&mut Context::from_waker(&waker)), Poll::Pending);
    OWNED.with_borrow_mut(|owned| owned.extend([deadlines.deadline(), deadline]));
    assert_eq!(deadlines.expire(ms(10)), 1);
    assert!(deadlines.is_empty());
    assert_eq!(deadlines.next_deadline(), None);
}
