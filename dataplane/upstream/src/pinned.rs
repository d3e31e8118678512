//! The pool of pinned lanes: connections that belong to one client until its session state is gone.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
};

use weir_base::{
    exchange::{LossCause, Refusal},
    time::{Time, turn},
};
use weir_engine::Stream;

use crate::{
    lane::Lane,
    metrics::LaneKind,
    protocol::{LaneProtocol, Waiter},
    upstream::Upstream,
};

struct Waiting<P: LaneProtocol, W> {
    key: P::Key,
    waiter: Rc<W>,
    since: Time,
}

/// A clean lane that nobody has.
type Idle<P, W> = (<P as LaneProtocol>::Key, Rc<Lane<P, W>>);

/// Lanes lent to clients, idle ones, and the clients that wait for one.
pub(crate) struct PinnedPool<P: LaneProtocol, W: Waiter<P>> {
    /// Lanes lent, idle or being connected.
    open: Cell<u32>,
    idle: RefCell<Vec<Idle<P, W>>>,
    lent: RefCell<Vec<Rc<Lane<P, W>>>>,
    waiting: RefCell<VecDeque<Waiting<P, W>>>,
}

impl<P: LaneProtocol, W: Waiter<P>> Default for PinnedPool<P, W> {
    fn default() -> Self {
        Self { open: Cell::new(0), idle: RefCell::default(), lent: RefCell::default(), waiting: RefCell::default() }
    }
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Asks for a lane of `waiter`'s own. `Some` now, or [`Waiter::on_pin`] later. A client that `has_one` already does not wait
    /// until another one gives one back: clients that each hold one and want a second would block each other and everybody else.
    ///
    /// # Errors
    /// The queue is full, or this client may not wait; nothing was asked for, and nothing is called back.
    pub fn pin(self: &Rc<Self>, key: P::Key, waiter: &Rc<W>, has_one: bool) -> Result<Option<Rc<Lane<P, W>>>, Refusal> {
        let pool = &self.pinned;
        let mut idle = pool.idle.borrow_mut();
        while let Some(at) = idle.iter().position(|(idle_key, _)| *idle_key == key) {
            let (_, lane) = idle.swap_remove(at);
            if lane.is_clean() {
                self.lend(key, &lane, waiter);
                return Ok(Some(lane));
            }
        }
        drop(idle);
        let is_full = pool.open.get() >= self.settings().pinned_lanes_max;
        let is_crowded = pool.waiting.borrow().len() >= self.settings().lane_waiters_max as usize;
        if is_full && (is_crowded || (has_one && pool.idle.borrow().is_empty())) {
            return Err(Refusal::QueueFull);
        }
        let request = Waiting { key, waiter: waiter.clone(), since: turn::now() };
        self.metrics(key).waiters(1);
        if !is_full {
            self.open_pinned(request);
            return Ok(None);
        }
        pool.waiting.borrow_mut().push_back(request);
        // An idle lane of another key makes room: its end opens one for the first that waits.
        if let Some((_, other)) = pool.idle.borrow_mut().pop() {
            other.end(LossCause::Retired);
        }
        Ok(None)
    }

    /// Gives a pinned lane back. A lane whose state is not certain is closed: the next client must find it clean.
    pub fn unpin(self: &Rc<Self>, key: P::Key, lane: Rc<Lane<P, W>>, is_clean: bool) {
        let pool = &self.pinned;
        pool.lent.borrow_mut().retain(|lent| !Rc::ptr_eq(lent, &lane));
        lane.set_owner(None);
        self.metrics(key).unpinned();
        if !is_clean || !lane.is_clean() {
            lane.end(LossCause::Retired);
            return;
        }
        let next = self.next_waiting(|waiting| waiting.key == key);
        if let Some(next) = next {
            self.grant(&lane, next);
        } else if pool.idle.borrow().len() < self.settings().pinned_lanes_idle_max as usize
            && pool.waiting.borrow().is_empty()
        {
            pool.idle.borrow_mut().push((key, lane));
        } else {
            lane.end(LossCause::Retired);
        }
    }

    fn next_waiting(&self, fits: impl Fn(&Waiting<P, W>) -> bool) -> Option<Waiting<P, W>> {
        let mut waiting = self.pinned.waiting.borrow_mut();
        let at = waiting.iter().position(fits)?;
        waiting.remove(at)
    }

    fn grant(self: &Rc<Self>, lane: &Rc<Lane<P, W>>, to: Waiting<P, W>) {
        self.metrics(to.key).waiters(-1);
        self.metrics(to.key).waited(turn::now().since(to.since), 1);
        self.lend(to.key, lane, &to.waiter);
        to.waiter.on_pin(Ok(lane.clone()));
    }

    fn lend(&self, key: P::Key, lane: &Rc<Lane<P, W>>, waiter: &Rc<W>) {
        lane.set_owner(Some(waiter.clone()));
        self.metrics(key).pinned();
        self.pinned.lent.borrow_mut().push(lane.clone());
    }

    fn refuse_pin(&self, request: Waiting<P, W>, refusal: Refusal) {
        self.metrics(request.key).waiters(-1);
        request.waiter.on_pin(Err(refusal));
    }

    fn open_pinned(self: &Rc<Self>, request: Waiting<P, W>) {
        self.pinned.open.set(self.pinned.open.get() + 1);
        let upstream = self.clone();
        weir_engine::spawn(async move {
            upstream.run_pinned(request).await;
            upstream.pinned.open.set(upstream.pinned.open.get() - 1);
            if let Some(next) = upstream.next_waiting(|_| true) {
                upstream.open_pinned(next);
            }
        })
        .detach();
    }

    /// One pinned connection: made, lent from client to client, lost.
    async fn run_pinned(self: &Rc<Self>, request: Waiting<P, W>) {
        let mut attempt = 0;
        let (mut stream, greeting): (Stream, P::Greeting) = loop {
            let refusal = match self.check_available(request.key) {
                Err(refusal) => refusal,
                Ok(()) => match self.open(request.key, LaneKind::Pinned).await {
                    Ok(opened) => break opened,
                    Err(error) => error.refusal,
                },
            };
            let has_time = turn::now().since(request.since) < self.settings().lane_wait_timeout;
            if refusal != Refusal::Unreachable || !has_time {
                self.refuse_pin(request, refusal);
                return;
            }
            weir_engine::sleep(self.backoff(attempt)).await;
            attempt += 1;
        };
        let key = request.key;
        let lane = Lane::new(&stream, greeting, LaneKind::Pinned, self.hard_cap(), self.metrics(key));
        let _open = self.metrics(key).lane_opened(LaneKind::Pinned);
        self.grant(&lane, request);
        let (cause, lost, _) = lane.read(&mut stream.reader).await;
        self.lane_lost(key, cause, lost);
        self.pinned.idle.borrow_mut().retain(|(_, idle)| !Rc::ptr_eq(idle, &lane));
        let was_lent = {
            let mut lent = self.pinned.lent.borrow_mut();
            let before = lent.len();
            lent.retain(|lent| !Rc::ptr_eq(lent, &lane));
            lent.len() < before
        };
        if was_lent {
            self.metrics(key).unpinned();
        }
        if let Some(owner) = lane.owner() {
            lane.set_owner(None);
            owner.on_pin_loss(&lane, cause);
        }
    }

    /// Refuses clients that have waited too long for a pinned lane, and looks at the deadlines of the lent ones.
    pub(crate) fn check_pinned(&self) {
        let now = turn::now();
        let limit = self.settings().lane_wait_timeout;
        while let Some(late) = self.next_waiting(|waiting| now.since(waiting.since) > limit) {
            self.refuse_pin(late, Refusal::QueueTimeout);
        }
        for lane in self.pinned.lent.borrow().iter() {
            lane.check_deadline(now, self.settings().request_timeout);
        }
    }

    pub(crate) fn end_idle_pinned(&self) {
        for (_, lane) in self.pinned.idle.borrow_mut().drain(..) {
            lane.end(LossCause::Retired);
        }
    }
}
