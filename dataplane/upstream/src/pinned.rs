//! The pool of pinned lanes: connections that belong to one client until its session state is gone.

use std::{cell::RefCell, future::poll_fn, rc::Rc, task::Poll};

use weir_base::time::{Time, turn};
use weir_engine::{Stream, timeout};

use crate::{
    lane::Lane,
    metrics::LaneKind,
    protocol::{Handshake, LaneProtocol, Waiter},
    room::{Permit, Room},
    upstream::Upstream,
};
use weir_base::exchange::{LossCause, Refusal};

/// A clean lane without a client.
type Idle<P, W> = (<P as Handshake>::Key, Rc<Lane<P, W>>);

/// Lanes lent to clients, idle ones, and the clients that wait for one.
pub(crate) struct PinnedPool<P: LaneProtocol, W: Waiter<P>> {
    room: Rc<Room<P::Key>>,
    idle: RefCell<Vec<Idle<P, W>>>,
    lent: RefCell<Vec<Rc<Lane<P, W>>>>,
}

impl<P: LaneProtocol, W: Waiter<P>> Default for PinnedPool<P, W> {
    fn default() -> Self {
        Self { room: Rc::default(), idle: RefCell::default(), lent: RefCell::default() }
    }
}

/// The reason why a wait ended.
enum WaitResult<P: LaneProtocol, W: Waiter<P>> {
    Lane(Rc<Lane<P, W>>),
    /// A connection may be made.
    Permit(Permit<P::Key>),
}

impl<P: LaneProtocol, W: Waiter<P>> Upstream<P, W> {
    /// Asks for a lane of `waiter`'s own. `Some` now, or [`Waiter::on_pin`] later. A client that `has_one` already does not wait
    /// until another one gives one back: clients that each hold one and want a second would block each other and everybody else.
    ///
    /// # Errors
    /// The queue is full, or this client may not wait; nothing was requested, and nothing is called back.
    pub fn pin(self: &Rc<Self>, key: P::Key, waiter: &Rc<W>, has_one: bool) -> Result<Option<Rc<Lane<P, W>>>, Refusal> {
        let room = &self.pinned.room;
        if let Some(lane) = (!room.is_awaited(key)).then(|| self.take_idle(key)).flatten() {
            self.lend(key, &lane, waiter);
            return Ok(Some(lane));
        }
        let (upstream, waiter, begun) = (self.clone(), waiter.clone(), turn::now());
        if room.waiting() == 0 && room.open() < self.settings().pinned_lanes_max {
            let permit = room.permit(None);
            weir_engine::spawn(async move { upstream.run_pinned(key, waiter, begun, permit).await }).detach();
            return Ok(None);
        }
        let waiting = room.waiting();
        let spare =
            self.settings().pinned_lanes_max.saturating_sub(room.open()) as usize + self.pinned.idle.borrow().len();
        if waiting >= self.settings().lane_waiters_max as usize || (has_one && spare <= waiting) {
            return Err(Refusal::QueueFull);
        }
        let granted = self.granted(key);
        weir_engine::spawn(async move {
            match timeout(upstream.settings().lane_wait_timeout, granted).await {
                Ok(WaitResult::Lane(lane)) => upstream.grant(key, &lane, &waiter, begun),
                Ok(WaitResult::Permit(permit)) => upstream.run_pinned(key, waiter, begun, permit).await,
                Err(_) => {
                    upstream.metrics(key).waited(turn::now().since(begun), 1);
                    waiter.on_pin(Err(Refusal::QueueTimeout));
                }
            }
        })
        .detach();
        Ok(None)
    }

    /// A clean lane of `key` without a client.
    fn take_idle(&self, key: P::Key) -> Option<Rc<Lane<P, W>>> {
        let mut idle = self.pinned.idle.borrow_mut();
        while let Some(at) = idle.iter().position(|(idle_key, _)| *idle_key == key) {
            let (_, lane) = idle.swap_remove(at);
            if lane.is_clean() {
                return Some(lane);
            }
        }
        None
    }

    /// Waits for a lane, or for the right to connect one, behind all that wait already.
    fn granted(self: &Rc<Self>, key: P::Key) -> impl Future<Output = WaitResult<P, W>> + use<P, W> {
        let waiting = self.pinned.room.wait(key, turn::now(), &self.metrics(key));
        let (upstream, mut has_made_room) = (self.clone(), false);
        poll_fn(move |context| {
            let pool = &upstream.pinned;
            if waiting.is_next_of_key()
                && let Some(lane) = upstream.take_idle(key)
            {
                return Poll::Ready(WaitResult::Lane(lane));
            }
            if waiting.is_next() {
                if pool.room.open() < upstream.settings().pinned_lanes_max {
                    return Poll::Ready(WaitResult::Permit(pool.room.permit(None)));
                }
                // One idle lane of a key without waiters makes room: its end frees the place.
                let mut idle = pool.idle.borrow_mut();
                let unwanted = idle.iter().position(|(key, _)| !pool.room.is_awaited(*key));
                if let Some(at) = unwanted.filter(|_| !has_made_room) {
                    idle.swap_remove(at).1.end(LossCause::Retired);
                    has_made_room = true;
                }
            }
            waiting.register(context.waker());
            Poll::Pending
        })
    }

    /// Gives a pinned lane back. A lane whose state is not certain is closed: the next client must find it clean.
    pub fn unpin(self: &Rc<Self>, key: P::Key, lane: Rc<Lane<P, W>>, is_clean: bool) {
        let pool = &self.pinned;
        pool.lent.borrow_mut().retain(|lent| !Rc::ptr_eq(lent, &lane));
        lane.set_owner(None);
        self.metrics(key).unpinned();
        let has_room = pool.idle.borrow().len() < self.settings().pinned_lanes_idle_max as usize;
        let is_wanted = pool.room.is_awaited(key) && !pool.room.is_overtaken_by(key);
        if is_clean && lane.is_clean() && (is_wanted || (has_room && pool.room.waiting() == 0 && !self.is_ended())) {
            pool.idle.borrow_mut().push((key, lane));
            pool.room.wake_for(key);
        } else {
            lane.end(LossCause::Retired);
        }
    }

    fn grant(&self, key: P::Key, lane: &Rc<Lane<P, W>>, waiter: &Rc<W>, begun: Time) {
        self.metrics(key).waited(turn::now().since(begun), 1);
        self.lend(key, lane, waiter);
        waiter.on_pin(Ok(lane.clone()));
    }

    fn lend(&self, key: P::Key, lane: &Rc<Lane<P, W>>, waiter: &Rc<W>) {
        lane.set_owner(Some(waiter.clone()));
        self.metrics(key).pinned();
        self.pinned.lent.borrow_mut().push(lane.clone());
    }

    /// One pinned connection: made, lent from client to client, lost.
    async fn run_pinned(self: &Rc<Self>, key: P::Key, waiter: Rc<W>, begun: Time, _permit: Permit<P::Key>) {
        let (mut stream, greeting) = match self.open_pinned(key, begun).await {
            Ok(opened) => opened,
            Err(refusal) => return waiter.on_pin(Err(refusal)),
        };
        let lane = Lane::new(&stream, greeting, LaneKind::Pinned, self.hard_cap(), self.metrics(key));
        let _open = self.metrics(key).lane_opened(LaneKind::Pinned);
        self.grant(key, &lane, &waiter, begun);
        // A lane that is lent again must not keep its first client.
        drop(waiter);
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

    /// A connection for a client that has waited since `begun`, tried until its time is over.
    async fn open_pinned(&self, key: P::Key, begun: Time) -> Result<(Stream, P::Greeting), Refusal> {
        let metrics = self.metrics(key);
        let _waits = metrics.waiting();
        let mut attempt = 0;
        loop {
            let refusal = match self.may_connect(key) {
                Err(refusal) => refusal,
                Ok(()) => match self.open(key, LaneKind::Pinned).await {
                    Ok(opened) => return Ok(opened),
                    Err(error) => error.refusal,
                },
            };
            let left = self.settings().lane_wait_timeout.saturating_sub(turn::now().since(begun));
            let pause = self.backoff(attempt);
            if refusal != Refusal::Unreachable {
                return Err(refusal);
            }
            weir_engine::sleep(pause.min(left)).await;
            if pause >= left {
                return Err(refusal);
            }
            attempt += 1;
        }
    }

    /// Looks at the deadlines of the lanes that are lent.
    pub(crate) fn check_pinned(&self) {
        let now = turn::now();
        // A session that hears of a deadline gives its lane back.
        let lent = self.pinned.lent.borrow().clone();
        for lane in &lent {
            lane.check_deadline(now, self.settings().request_timeout);
        }
    }

    pub(crate) fn end_idle_pinned(&self) {
        for (_, lane) in self.pinned.idle.borrow_mut().drain(..) {
            lane.end(LossCause::Retired);
        }
    }
}
