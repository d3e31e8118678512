//! Deadlines that a task can wait for: wakers in a [`Wheel`].

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weir_base::Time;

use super::{Key, Wheel};

/// The deadlines of one core; clones share them. The worker calls [`expire`](Self::expire) once per loop turn and
/// sleeps no longer than until [`next_deadline`](Self::next_deadline).
#[derive(Clone)]
pub struct Deadlines {
    shared: Rc<Shared>,
}

struct Shared {
    wheel: RefCell<Wheel<Option<Waker>>>,
    /// Wakers of one `expire`, woken after the wheel is released: waking or dropping one may drop a task, and with it
    /// a `Deadline`. Kept for its capacity.
    woken: RefCell<Vec<Waker>>,
}

impl Deadlines {
    /// No deadlines, starting at `now`.
    pub fn new(now: Time) -> Self {
        let shared = Shared { wheel: RefCell::new(Wheel::new(now)), woken: RefCell::default() };
        Self { shared: Rc::new(shared) }
    }

    /// A handle without a deadline yet. It costs 32 bytes here and is meant to be kept for the life of a connection.
    pub fn deadline(&self) -> Deadline {
        let key = self.shared.wheel.borrow_mut().insert(None);
        Deadline { shared: Rc::clone(&self.shared), key: Some(key) }
    }

    /// When [`expire`](Self::expire) has something to do next; `None`: sleep until something else happens.
    pub fn next_deadline(&self) -> Option<Time> {
        self.shared.wheel.borrow().next_deadline()
    }

    /// Advances to `now` and wakes the tasks whose deadlines have passed; gives how many have.
    pub fn expire(&self, now: Time) -> usize {
        // Most turns of a busy worker begin within the tick of the one before.
        if !self.shared.wheel.borrow().is_behind(now) {
            return 0;
        }
        let mut woken = self.shared.woken.take();
        let fired = self.shared.wheel.borrow_mut().expire(now, |waker| woken.extend(waker.take()));
        for waker in woken.drain(..) {
            waker.wake();
        }
        self.shared.woken.replace(woken);
        fired
    }

    /// Handles that exist.
    pub fn len(&self) -> usize {
        self.shared.wheel.borrow().len()
    }

    /// True without handles.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One deadline of a task on this core: set it, move it, clear it, wait for it. Moving it later or clearing it is one
/// store. Dropped, it is gone.
pub struct Deadline {
    shared: Rc<Shared>,
    /// `Some` until dropped.
    key: Option<Key>,
}

impl Deadline {
    /// Sets or moves the deadline; [`Time::NEVER`] clears it.
    pub fn set(&self, deadline: Time) {
        if let Some(key) = &self.key {
            self.shared.wheel.borrow_mut().set(key, deadline);
        }
    }

    /// Clears the deadline: waiting tasks are not woken until it is set again.
    pub fn clear(&self) {
        self.set(Time::NEVER);
    }

    /// The deadline, rounded up to a tick.
    pub fn at(&self) -> Option<Time> {
        self.key.as_ref().and_then(|key| self.shared.wheel.borrow().deadline(key))
    }

    /// True once the deadline has passed, until it is set again or cleared.
    pub fn is_expired(&self) -> bool {
        self.key.as_ref().is_some_and(|key| self.shared.wheel.borrow().is_expired(key))
    }

    /// Waits for the deadline, also for one that is set or moved meanwhile. One task waits at a time: the last one that
    /// requested is woken.
    pub fn expired(&self) -> Expired<'_> {
        Expired { deadline: self }
    }

    /// As [`expired`](Self::expired), for a hand-written future.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(key) = &self.key else {
            return Poll::Pending;
        };
        let mut wheel = self.shared.wheel.borrow_mut();
        if wheel.is_expired(key) {
            return Poll::Ready(());
        }
        let waker = wheel.token_mut(key);
        let replaced = match waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => waker.replace(cx.waker().clone()),
        };
        // Released first, as dropping a waker may drop a task and its deadlines.
        drop(wheel);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let waker = self.shared.wheel.borrow_mut().remove(key);
            drop(waker);
        }
    }
}

/// The future of [`Deadline::expired`].
#[must_use = "a future does nothing unless awaited"]
pub struct Expired<'a> {
    deadline: &'a Deadline,
}

impl Future for Expired<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.deadline.poll_expired(cx)
    }
}
