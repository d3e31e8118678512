//! One shared lane over its reconnections, and the backlog that waits while there is none.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};

use weir_base::{
    exchange::{LossCause, Refusal},
    time::turn,
};

use crate::{
    lane::{Lane, UnsentRequests},
    metrics::LaneKind,
    protocol::{LaneProtocol, Waiter},
    runs::Exchange,
    upstream::Upstream,
};

/// Bytes of requests that wait for a connection, or for the server to take them, per lane. Past it they are refused.
const BACKLOG_BYTES_MAX: usize = 64 << 20;
/// Lanes that clients of large replies hold, per shared lane. Past it the oldest must be read without a pause, or its client
/// goes. 64 clients of a worker may so read large replies at their own pace at a time, and a server has 64 connections more.
const DISPLACED_MAX: usize = 64;

/// A shared lane of one upstream on one worker. It outlives its connections: requests that were never handed to the kernel
/// move to the next one, as they provably were not executed.
pub struct SharedLane<P: LaneProtocol, W: Waiter<P>> {
    key: P::Key,
    in_flight_max: usize,
    upstream: Weak<Upstream<P, W>>,
    lane: RefCell<Option<Rc<Lane<P, W>>>>,
    /// Lanes that a slow client holds: they finish what waits on them.
    displaced: RefCell<Vec<Weak<Lane<P, W>>>>,
    backlog: RefCell<UnsentRequests<W>>,
    is_connecting: Cell<bool>,
    /// Counts the connections.
    serial: Cell<u64>,
}

impl<P: LaneProtocol, W: Waiter<P>> SharedLane<P, W> {
    pub(crate) fn new(key: P::Key, in_flight_max: usize, upstream: Weak<Upstream<P, W>>) -> Rc<Self> {
        Rc::new(Self {
            key,
            in_flight_max,
            upstream,
            lane: RefCell::new(None),
            displaced: RefCell::default(),
            backlog: RefCell::default(),
            is_connecting: Cell::new(false),
            serial: Cell::new(0),
        })
    }

    /// Sends a request, or queues it while the lane connects.
    ///
    /// # Errors
    /// The request was not accepted; nothing was sent.
    #[inline]
    pub fn send(self: &Rc<Self>, request: &[u8], exchange: Exchange<W>) -> Result<(), Refusal> {
        if let Some(lane) = &*self.lane.borrow()
            && lane.is_open_to(&exchange.waiter)
        {
            let waiting = lane.output().buffered();
            let is_full = lane.in_flight() as u64 + exchange.count > self.in_flight_max as u64;
            if is_full || (waiting > 0 && waiting + request.len() > BACKLOG_BYTES_MAX) {
                return Err(Refusal::QueueFull);
            }
            lane.send(request, exchange);
            return Ok(());
        }
        self.queue(request, exchange)
    }

    /// How many requests of `client` it takes just now.
    pub fn room(&self, client: &W) -> u64 {
        let waiting = match &*self.lane.borrow() {
            Some(lane) if lane.is_open_to(client) => lane.in_flight(),
            _ => self.backlog.borrow().exchanges.len(),
        };
        self.in_flight_max.saturating_sub(waiting) as u64
    }

    /// Which connection the next request of `client` rides; `None` if the present one takes no more of it. A client that still
    /// waits for replies on another must wait for them first, or they would overtake each other.
    #[inline]
    pub fn serial(&self, client: &W) -> Option<u64> {
        let is_changing = self.lane.borrow().as_ref().is_some_and(|lane| !lane.is_open_to(client));
        (!is_changing).then(|| self.serial.get())
    }

    #[cold]
    fn queue(self: &Rc<Self>, request: &[u8], exchange: Exchange<W>) -> Result<(), Refusal> {
        let upstream = self.upstream.upgrade().ok_or(Refusal::Unreachable)?;
        if !self.is_connecting.get() {
            upstream.check_available(self.key)?;
        }
        let mut backlog = self.backlog.borrow_mut();
        let has_room = backlog.exchanges.len() as u64 + exchange.count <= self.in_flight_max as u64
            && backlog.requests.len() + request.len() <= BACKLOG_BYTES_MAX;
        if !has_room {
            return Err(Refusal::QueueFull);
        }
        upstream.metrics(self.key).waiters(exchange.count as i64);
        backlog.requests.push(request);
        backlog.exchanges.push(exchange, turn::now(), request.len());
        drop(backlog);
        self.connect(&upstream);
        Ok(())
    }

    fn connect(self: &Rc<Self>, upstream: &Rc<Upstream<P, W>>) {
        if !self.is_connecting.replace(true) {
            weir_engine::spawn(self.clone().run(upstream.clone())).detach();
        }
    }

    /// One connection: made, used, lost.
    async fn run(self: Rc<Self>, upstream: Rc<Upstream<P, W>>) {
        let mut attempt = 0;
        let (mut stream, greeting) = loop {
            // Lanes that begin in one turn find the breaker half open all at once: the first of them tries.
            let refusal = match upstream.may_connect(self.key) {
                Err(refusal) => refusal,
                Ok(()) => match upstream.open(self.key, LaneKind::Shared).await {
                    Ok(opened) => break opened,
                    Err(error) => error.refusal,
                },
            };
            let is_hopeless = refusal != Refusal::Unreachable || upstream.check_available(self.key).is_err();
            self.refuse_expired(&upstream, refusal, is_hopeless);
            if self.backlog.borrow().exchanges.is_empty() {
                self.is_connecting.set(false);
                return;
            }
            weir_engine::sleep(upstream.backoff(attempt)).await;
            attempt += 1;
        };
        let lane = Lane::new(&stream, greeting, LaneKind::Shared, upstream.hard_cap(), upstream.metrics(self.key));
        let _open = upstream.metrics(self.key).lane_opened(LaneKind::Shared);
        self.adopt_backlog(&upstream, &lane);
        if upstream.is_ended() {
            lane.retire();
        }
        if let Some(displaced) = self.lane.borrow_mut().replace(lane.clone()) {
            let mut all = self.displaced.borrow_mut();
            all.retain(|lane| lane.strong_count() > 0);
            displaced.retire();
            all.push(Rc::downgrade(&displaced));
            let too_many = all.len().saturating_sub(DISPLACED_MAX);
            all.iter().take(too_many).filter_map(Weak::upgrade).for_each(|lane| lane.lose_patience());
        }
        self.serial.set(self.serial.get() + 1);
        self.is_connecting.set(false);
        let (cause, lost, unsent) = lane.read(&mut stream.reader).await;
        upstream.lane_lost(self.key, cause, lost);
        let mut current = self.lane.borrow_mut();
        if current.as_ref().is_some_and(|current| Rc::ptr_eq(current, &lane)) {
            *current = None;
        }
        drop(current);
        self.take_back(&upstream, unsent);
    }

    fn adopt_backlog(&self, upstream: &Upstream<P, W>, lane: &Lane<P, W>) {
        let backlog = std::mem::take(&mut *self.backlog.borrow_mut());
        let now = turn::now();
        upstream.metrics(self.key).waiters(-(backlog.exchanges.len() as i64));
        for run in backlog.exchanges.iter() {
            upstream.metrics(self.key).waited(now.since(run.queued), run.exchange.count);
        }
        lane.adopt(backlog);
    }

    /// Takes back the unsent requests of `client`, which has disconnected: their replies have no reader, and its next connection
    /// may be served before they would be.
    pub fn forget(&self, client: &W) {
        let mut taken: Vec<_> = self.lanes().iter().flat_map(|lane| lane.take_back(client)).collect();
        let mut backlog = self.backlog.borrow_mut();
        let (waiting, ranges) = backlog.exchanges.take_back(client);
        backlog.requests.remove(&ranges);
        drop(backlog);
        if let Some(upstream) = self.upstream.upgrade() {
            let count: u64 = waiting.iter().map(|run| run.exchange.count).sum();
            upstream.metrics(self.key).waiters(-(count as i64));
        }
        taken.extend(waiting);
        for run in taken {
            run.numbers().for_each(|number| run.exchange.waiter.on_loss(number, LossCause::Retired));
        }
    }

    /// Puts requests that were never sent in front of the backlog.
    fn take_back(self: &Rc<Self>, upstream: &Rc<Upstream<P, W>>, mut unsent: UnsentRequests<W>) {
        if unsent.exchanges.is_empty() {
            return;
        }
        upstream.metrics(self.key).retried(unsent.exchanges.len());
        upstream.metrics(self.key).waiters(unsent.exchanges.len() as i64);
        let mut backlog = self.backlog.borrow_mut();
        unsent.exchanges.append(&mut backlog.exchanges);
        unsent.requests.append(std::mem::take(&mut backlog.requests));
        *backlog = unsent;
        drop(backlog);
        match upstream.is_ended() {
            true => self.refuse_expired(upstream, Refusal::Unreachable, true),
            false => self.connect(upstream),
        }
    }

    /// Refuses what has waited long enough, or everything if waiting cannot help.
    fn refuse_expired(&self, upstream: &Upstream<P, W>, refusal: Refusal, is_hopeless: bool) {
        let now = turn::now();
        let limit = upstream.settings().lane_wait_timeout;
        let mut expired = Vec::new();
        let mut backlog = self.backlog.borrow_mut();
        let mut bytes = 0;
        while let Some(oldest) = backlog.exchanges.front() {
            if !is_hopeless && now.since(oldest.queued) < limit {
                break;
            }
            bytes += oldest.bytes;
            expired.extend(backlog.exchanges.pop_run());
        }
        backlog.requests.drop_front(bytes);
        drop(backlog);
        for run in expired {
            upstream.metrics(self.key).waiters(-(run.exchange.count as i64));
            run.numbers().for_each(|number| run.exchange.waiter.on_refusal(number, refusal));
        }
    }

    /// The lanes that are open, those displaced included.
    fn lanes(&self) -> Vec<Rc<Lane<P, W>>> {
        let displaced = self.displaced.borrow();
        self.lane.borrow().iter().cloned().chain(displaced.iter().filter_map(Weak::upgrade)).collect()
    }

    /// Looks at the deadline of the oldest exchange of each lane, and of what waits for a connection: one attempt may take
    /// longer than that.
    pub(crate) fn check_deadline(&self, upstream: &Upstream<P, W>) {
        if !self.backlog.borrow().exchanges.is_empty() {
            self.refuse_expired(upstream, Refusal::Unreachable, false);
        }
        if self.lane.borrow().is_none() && self.displaced.borrow().is_empty() {
            return;
        }
        for lane in self.lanes() {
            lane.check_deadline(turn::now(), upstream.settings().request_timeout);
        }
    }

    /// Takes no more requests; what waits is finished.
    pub(crate) fn retire(&self) {
        self.lanes().iter().for_each(|lane| lane.retire());
    }

    /// Ends the connections now.
    pub(crate) fn end(&self, cause: LossCause) {
        self.lanes().iter().for_each(|lane| lane.end(cause));
    }
}
