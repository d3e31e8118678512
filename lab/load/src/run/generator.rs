//! The state of one shard on its core: connections, free slots, requests on their way.
//!
//! A connection has `pipeline` slots. Free slots queue up in the order in which they became free, so the next request goes
//! to the connection that has had nothing to do for longest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use weir_base::Time;
use weir_engine::settings::Address;
use weir_engine::{Cutter, Output, Stream, net};

use super::bell::Bell;
use super::fan_out::FanOut;
use super::queue::Queue;
use super::tally::{End, SentRequest, Tally};
use crate::outcome::Turn;
use crate::reply::{Reply, ReplyKind};
use crate::requests::Requests;
use crate::scenario::Scenario;
use crate::shard::Shard;
use crate::wire::{GoAway, ReplyTo, Sender, StreamError};

/// A place for one request on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) link: usize,
    /// Epoch of the link when the slot became free: a slot of a lost connection is worthless.
    epoch: u32,
    /// When it became free, in nanoseconds.
    pub(super) since: u64,
}

/// The usage of a shard so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu_nanos: u64,
    pub(super) tx_bytes: u64,
    pub(super) rx_bytes: u64,
}

struct Connection {
    output: Output,
    /// Where each request is a stream.
    sender: Option<Box<dyn Sender>>,
    /// It takes no further request.
    is_leaving: Cell<bool>,
    cutter: Cutter,
    queue: Rc<Queue>,
}

/// A connection that is always wanted, whether it stands or not.
#[derive(Default)]
pub(super) struct Link {
    epoch: u32,
    connection: Option<Connection>,
    /// The request on its way, where each has a connection of its own.
    visit: Option<SentRequest>,
}

impl Link {
    /// Requests in flight on the connection; `None`: it is down.
    pub(super) fn queue(&self) -> Option<&Rc<Queue>> {
        self.connection.as_ref().map(|connection| &connection.queue)
    }
}

pub(super) struct Generator {
    pub(super) scenario: Arc<Scenario>,
    pub(super) shard: Shard,
    pub(super) fan_out: Option<FanOut>,
    pub(super) target: Address,
    pub(super) requests: Requests,
    pub(super) bell: Bell,
    pub(super) tally: RefCell<Tally>,
    pub(super) links: RefCell<Vec<Link>>,
    up: Cell<u32>,
    free: RefCell<VecDeque<Slot>>,
    pub(super) in_flight: Cell<u64>,
    next_index: Cell<u64>,
    tx_bytes: Cell<u64>,
    rx_bytes: Cell<u64>,
}

impl Generator {
    pub(super) fn new(
        scenario: Arc<Scenario>,
        shard: Shard,
        target: Address,
        requests: Requests,
        links: usize,
    ) -> Self {
        let tally = Tally::new(0..0, scenario.late_limit);
        Self {
            fan_out: FanOut::of(&scenario, shard),
            scenario,
            shard,
            target,
            requests,
            bell: Bell::default(),
            tally: RefCell::new(tally),
            links: RefCell::new((0..links).map(|_| Link::default()).collect()),
            up: Cell::new(0),
            free: RefCell::default(),
            in_flight: Cell::new(0),
            next_index: Cell::new(0),
            tx_bytes: Cell::new(0),
            rx_bytes: Cell::new(0),
        }
    }

    /// Connections that are wanted and do not stand.
    pub(super) fn missing(&self) -> u32 {
        if self.scenario.churn { 0 } else { self.links.borrow().len() as u32 - self.up.get() }
    }

    /// Something can be sent, now or when a slot becomes free.
    pub(super) fn has_connection(&self) -> bool {
        match &self.fan_out {
            Some(fan_out) => self.links.borrow()[fan_out.publisher()].connection.is_some(),
            None => self.up.get() > 0 || self.scenario.churn,
        }
    }

    /// Whether requests are sent on connection `at`.
    fn is_sender(&self, at: usize) -> bool {
        self.fan_out.as_ref().is_none_or(|fan_out| fan_out.publisher() == at)
    }

    /// The schedule asks for a request: each of its replies counts.
    pub(super) fn intended(&self, at: u64) {
        (0..self.scenario.copies()).for_each(|_| self.tally.borrow_mut().intended(at));
    }

    /// It was never sent because it was too late.
    pub(super) fn skipped(&self, intended: u64, turn: Turn) {
        (0..self.scenario.copies()).for_each(|_| self.tally.borrow_mut().skipped(intended, turn));
    }

    /// It was never sent because no connection was left.
    pub(super) fn unsendable(&self, intended: u64) {
        (0..self.scenario.copies()).for_each(|_| self.tally.borrow_mut().unsendable(intended));
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// Begins a phase: all slots are free, one of each connection after the other.
    pub(super) fn begin(&self, tally: Tally) {
        *self.tally.borrow_mut() = tally;
        let links = self.links.borrow();
        let since = Time::now().as_nanos();
        let mut free = self.free.borrow_mut();
        free.clear();
        for _ in 0..self.scenario.pipeline {
            let standing = links.iter().enumerate().filter(|(at, link)| self.is_usable(link) && self.is_sender(*at));
            free.extend(standing.map(|(at, link)| Slot { link: at, epoch: link.epoch, since }));
        }
    }

    /// Whether a request can be sent by this link, at most after the reply to the one before.
    fn is_usable(&self, link: &Link) -> bool {
        self.scenario.churn || link.connection.as_ref().is_some_and(|connection| !connection.is_leaving.get())
    }

    /// Connection `at` stands.
    pub(super) fn connected(&self, at: usize, stream: &Stream, sender: Option<Box<dyn Sender>>) -> Rc<Queue> {
        let queue = Rc::new(Queue::default());
        let stamped = queue.clone();
        let stamp_audience = self.fan_out.as_ref().filter(|_| self.is_sender(at)).map(FanOut::stamper);
        stream.output.on_flush(move || {
            stamped.stamp();
            stamp_audience.iter().for_each(|stamp| stamp());
        });
        let link = &mut self.links.borrow_mut()[at];
        queue.is_back.set(link.epoch > 0);
        link.epoch += 1;
        link.connection = Some(Connection {
            output: stream.output.clone(),
            sender,
            is_leaving: Cell::new(false),
            cutter: stream.cutter(),
            queue: queue.clone(),
        });
        self.up.set(self.up.get() + 1);
        if self.is_sender(at) {
            let slot = Slot { link: at, epoch: link.epoch, since: Time::now().as_nanos() };
            self.free.borrow_mut().extend((0..self.scenario.pipeline).map(|_| slot));
        }
        self.bell.ring();
        queue
    }

    /// Connection `at` is gone, and what was on its way on it. With `End::Protocol` the reply to the first of them is why.
    pub(super) fn disconnected(&self, at: usize, end: End<'static>) {
        if self.end_link(at, end) {
            self.tally.borrow_mut().connections_lost += 1;
        }
        self.bell.ring();
    }

    /// Times out the requests still in flight. Their connections are cut, since late replies would confuse them.
    pub(super) fn time_out(&self) {
        let links = self.links.borrow().len();
        for at in 0..links {
            let visit = self.links.borrow()[at].visit;
            if let Some(request) = visit {
                self.end_visit(at, request.index, End::Timeout);
            }
            let late = self.links.borrow()[at].connection.as_ref().and_then(|connection| {
                let is_late = !connection.queue.is_empty();
                is_late.then(|| connection.cutter.clone())
            });
            if let Some(cutter) = late {
                self.end_link(at, End::Timeout);
                cutter.cut();
            }
        }
    }

    /// False if it had ended before.
    fn end_link(&self, at: usize, end: End<'static>) -> bool {
        let Some(connection) = self.links.borrow_mut()[at].connection.take() else { return false };
        self.up.set(self.up.get() - 1);
        let (mut tally, now) = (self.tally.borrow_mut(), Time::now().as_nanos());
        let mut end = end;
        let is_counted = self.fan_out.is_none() || !self.is_sender(at);
        for request in connection.queue.drain() {
            if is_counted {
                tally.ended(&self.requests, &request, end, now);
            }
            self.in_flight.set(self.in_flight.get() - 1);
            if matches!(end, End::Protocol) {
                end = End::Lost;
            }
        }
        true
    }

    /// The slot that has been free for longest.
    pub(super) fn take_slot(&self) -> Option<Slot> {
        if self.fan_out.as_ref().is_some_and(|fan_out| !fan_out.has_room(self.in_flight.get())) {
            return None;
        }
        let (links, mut free) = (self.links.borrow(), self.free.borrow_mut());
        while let Some(slot) = free.pop_front() {
            let link = &links[slot.link];
            if link.epoch == slot.epoch && self.is_usable(link) {
                return Some(slot);
            }
        }
        None
    }

    /// A slot that was taken and not used.
    pub(super) fn give_back(&self, slot: Slot) {
        self.free.borrow_mut().push_front(slot);
    }

    /// Sends the next request of the plan on a slot that was just taken.
    pub(super) fn send(&self, slot: Slot, intended: u64, ready: u64) {
        let links = self.links.borrow();
        let Some(connection) = &links[slot.link].connection else { return };
        let index = self.next_index.get();
        let block = self.requests.bytes(index);
        let before = connection.output.appended();
        let stream = match &connection.sender {
            None => {
                connection.output.append(block);
                0
            }
            Some(sender) => {
                let stream = connection.output.with(|out| sender.write(block, out));
                connection.is_leaving.set(sender.is_spent());
                stream
            }
        };
        let bytes = connection.output.appended() - before;
        let request = SentRequest { index, intended, ready, sent: 0, stream, last_event: 0 };
        connection.queue.push(request);
        self.next_index.set(index + 1);
        self.in_flight.set(self.in_flight.get() + 1);
        self.expect(&links, request);
        self.tx_bytes.set(self.tx_bytes.get() + bytes);
    }

    /// The next request of the plan begins with a connection of its own. Its number.
    pub(super) fn begin_visit(&self, slot: Slot, intended: u64, ready: u64) -> u64 {
        let index = self.next_index.get();
        self.next_index.set(index + 1);
        self.in_flight.set(self.in_flight.get() + 1);
        let request = SentRequest { index, intended, ready, sent: Time::now().as_nanos(), stream: 0, last_event: 0 };
        self.links.borrow_mut()[slot.link].visit = Some(request);
        index
    }

    /// An event of the reply to request `index` arrived; nothing happens if it had ended before.
    pub(super) fn note_visit_event(&self, at: usize, index: u64) {
        let mut links = self.links.borrow_mut();
        let request = links[at].visit.as_mut().filter(|request| request.index == index);
        if let Some(times) = request.map(|request| request.note_event(Time::now().as_nanos())) {
            self.tally.borrow_mut().event(times);
        }
    }

    /// Request `index` has ended; if it had ended before, nothing happens.
    pub(super) fn end_visit(&self, at: usize, index: u64, end: End<'_>) {
        let request = self.links.borrow_mut()[at].visit.take_if(|request| request.index == index);
        let Some(request) = request else { return };
        let now = Time::now().as_nanos();
        self.tally.borrow_mut().ended(&self.requests, &request, end, now);
        self.in_flight.set(self.in_flight.get() - 1);
        self.free_slot(at, now);
    }

    /// Connection `at`, whose requests stand in `queue`, got a whole reply.
    ///
    /// # Errors
    /// Nothing was requested.
    pub(super) fn on_reply(&self, at: usize, queue: &Queue, of: ReplyTo, reply: Reply<'_>) -> Result<(), StreamError> {
        match &self.fan_out {
            None => self.replied(at, queue, of, reply),
            Some(fan_out) if self.is_sender(at) => self.acknowledged(fan_out, queue, reply),
            Some(_) => self.on_message(queue, reply),
        }
    }

    fn replied(&self, at: usize, queue: &Queue, of: ReplyTo, reply: Reply<'_>) -> Result<(), StreamError> {
        if reply.kind == ReplyKind::Event {
            let times = queue.note_event(Time::now().as_nanos()).ok_or(StreamError)?;
            self.tally.borrow_mut().event(times);
            return Ok(());
        }
        let Some(request) = queue.pop(of) else {
            // A stream may be reset when all of it has been said.
            return if reply.body.is_none() { Ok(()) } else { Err(StreamError) };
        };
        let now = Time::now().as_nanos();
        self.tally.borrow_mut().ended(&self.requests, &request, End::Reply(reply), now);
        self.in_flight.set(self.in_flight.get() - 1);
        self.free_slot(at, now);
        Ok(())
    }

    /// Connection `at` has been free for one more request since `since`, in nanoseconds.
    pub(super) fn free_slot(&self, at: usize, since: u64) {
        let epoch = self.links.borrow()[at].epoch;
        self.free.borrow_mut().push_back(Slot { link: at, epoch, since });
    }

    /// Connection `at`, whose requests stand in `queue`, takes no further ones. True if nothing is left on it.
    pub(super) fn leave(&self, at: usize, queue: &Queue, leaving: GoAway) -> bool {
        if leaving == GoAway::No {
            let links = self.links.borrow();
            return links[at].connection.as_ref().is_some_and(|one| one.is_leaving.get()) && queue.is_empty();
        }
        if let Some(connection) = &self.links.borrow()[at].connection {
            connection.is_leaving.set(true);
        }
        if let GoAway::Above(stream) = leaving {
            let (mut tally, now) = (self.tally.borrow_mut(), Time::now().as_nanos());
            for request in queue.split_off_above(stream) {
                tally.ended(&self.requests, &request, End::Reply(Reply::refused("goaway")), now);
                self.in_flight.set(self.in_flight.get() - 1);
            }
        }
        queue.is_empty()
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.tx_bytes.set(self.tx_bytes.get() + bytes as u64);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.rx_bytes.set(self.rx_bytes.get() + bytes as u64);
    }

    /// So far; on the worker's thread.
    pub(super) fn usage(&self) -> Usage {
        Usage { cpu_nanos: net::thread_cpu_nanos(), tx_bytes: self.tx_bytes.get(), rx_bytes: self.rx_bytes.get() }
    }
}
