//! One upstream connection and the exchanges that wait on it.

use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
    time::Duration,
};

use weir_base::{
    error::Culprit,
    exchange::{FrameKind, LossCause, Scan},
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Output, Reader, Stream, Traffic as _, stream::Cutter};

use crate::{
    metrics::{EndpointMetrics, LaneKind},
    protocol::{Frame, LaneProtocol, Reply, Waiter},
    requests::Requests,
    runs::{Exchange, Run, Runs},
};

/// A waiting client that takes nothing for this long is evicted, so that its lane moves on.
const STALL_MAX: Duration = Duration::from_secs(60);
/// The same once its lane has [lost patience](Lane::lose_patience), in all.
const STALL_IMPATIENT_MAX: Duration = Duration::from_secs(1);
/// For so long in all may clients that take too little hold up a lane on which others wait; then they are evicted. It is the
/// most that one client may cost another, and it comes to that only while memory is short.
const STALL_AMONG_OTHERS_MAX: Duration = Duration::from_millis(100);
/// A lane that was not held up for so long may be so again: the sessions that waited are served by then.
const PATIENCE_BACK_AFTER: Duration = Duration::from_secs(1);
/// Bytes in a row to one client after which the lane takes no other clients until it is done. 4 MiB take 4 ms from a server
/// nearby and 40 ms over 1 Gbit/s; ordinary values stay far below, so that they do not cost a connection.
const LARGE_BYTES: usize = 4 << 20;
/// Chunks read in a row before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 16;
/// Interval of the checks of a stalled client.
const STALL_LOOK: Duration = Duration::from_millis(250);
/// The same while others wait behind it.
const STALL_LOOK_AMONG_OTHERS: Duration = Duration::from_millis(10);

/// One upstream connection.
pub struct Lane<P: LaneProtocol, W: Waiter<P>> {
    output: Output,
    cutter: Cutter,
    pending: RefCell<Runs<W>>,
    /// The client this lane is pinned to.
    owner: RefCell<Option<Rc<W>>>,
    /// Frames go to the owner unpaired: it is subscribed or monitoring.
    is_tunnel: Cell<bool>,
    /// No new exchanges; it ends once the waiting ones have their replies.
    is_retired: Cell<bool>,
    /// The client in front gets a large reply, or takes it slowly: others must not come to stand behind it.
    is_held: Cell<bool>,
    /// The address of the client in front, to tell whether it still is the same one.
    in_front: Cell<*const W>,
    /// Bytes that came since another client stood in front.
    in_a_row: Cell<usize>,
    /// The rest of [`STALL_AMONG_OTHERS_MAX`].
    patience: Cell<Duration>,
    /// When others last waited for a client that takes too little.
    stalled_at: Cell<Time>,
    /// Not read for now: the client in front has to read first. The upstream cannot be late meanwhile.
    is_paused: Cell<bool>,
    /// See [`Lane::lose_patience`].
    is_impatient: Cell<bool>,
    /// The rest of [`STALL_IMPATIENT_MAX`], once it is impatient.
    last_patience: Cell<Duration>,
    ending: Cell<Option<LossCause>>,
    last_reply: Cell<Time>,
    written: Cell<u64>,
    kind: LaneKind,
    hard_cap: usize,
    greeting: P::Greeting,
    metrics: Rc<EndpointMetrics>,
}

impl<P: LaneProtocol, W: Waiter<P>> Lane<P, W> {
    /// Wraps a greeted stream. The caller runs [`Lane::read`] on the reader it gets back.
    pub(crate) fn new(
        stream: &Stream,
        greeting: P::Greeting,
        kind: LaneKind,
        hard_cap: usize,
        metrics: Rc<EndpointMetrics>,
    ) -> Rc<Self> {
        let lane = Rc::new(Self {
            output: stream.output.clone(),
            cutter: stream.cutter(),
            pending: RefCell::default(),
            owner: RefCell::new(None),
            is_tunnel: Cell::new(false),
            is_retired: Cell::new(false),
            is_held: Cell::new(false),
            in_front: Cell::new(std::ptr::null()),
            in_a_row: Cell::new(0),
            patience: Cell::new(STALL_AMONG_OTHERS_MAX),
            stalled_at: Cell::new(Time::ZERO),
            is_paused: Cell::new(false),
            is_impatient: Cell::new(false),
            last_patience: Cell::new(STALL_IMPATIENT_MAX),
            ending: Cell::new(None),
            last_reply: Cell::new(turn::now()),
            written: Cell::new(stream.output.appended()),
            kind,
            hard_cap,
            greeting,
            metrics,
        });
        let weak: Weak<Self> = Rc::downgrade(&lane);
        stream.output.on_flush(move || {
            if let Some(lane) = weak.upgrade() {
                lane.stamp_sent();
            }
        });
        lane
    }

    /// The facts about the server from the greeting.
    pub fn greeting(&self) -> &P::Greeting {
        &self.greeting
    }

    /// The output of the connection, for back-pressure on large requests.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Appends a request and queues its exchange.
    #[inline]
    pub fn send(&self, request: &[u8], exchange: Exchange<W>) {
        self.metrics.requests_sent(exchange.count as usize);
        self.pending.borrow_mut().push(exchange, turn::now(), request.len());
        self.output.append(request);
    }

    /// Appends bytes that belong to no new exchange.
    pub fn write(&self, bytes: &[u8]) {
        self.output.append(bytes);
    }

    /// Takes over what waited for this connection.
    pub(crate) fn adopt(&self, unsent: UnsentRequests<W>) {
        let UnsentRequests { mut exchanges, requests } = unsent;
        self.metrics.requests_sent(exchanges.len());
        self.pending.borrow_mut().append(&mut exchanges);
        requests.pieces().for_each(|piece| self.output.append(piece));
    }

    /// Exchanges waiting for a reply.
    pub fn in_flight(&self) -> usize {
        self.pending.borrow().len()
    }

    /// True while new exchanges may be sent.
    fn is_open(&self) -> bool {
        !self.is_retired.get() && self.ending.get().is_none() && !self.output.is_closed()
    }

    /// True while `client` may send new exchanges. A lane that one client holds takes no others: the first that comes retires it,
    /// and gets a fresh one like all after it.
    #[inline]
    pub(crate) fn is_open_to(&self, client: &W) -> bool {
        if self.is_held.get() && !std::ptr::eq(self.in_front.get(), client) {
            self.is_retired.set(true);
        }
        self.is_open()
    }

    /// The last exchange queued may take no longer than the others from now on: its request is complete.
    pub fn limit_last(&self) {
        if let Some(last) = self.pending.borrow_mut().back_mut() {
            last.exchange.has_deadline = true;
            last.queued = turn::now();
        }
    }

    /// The client that this lane waits for has had its time: others wait for the room.
    pub(crate) fn lose_patience(&self) {
        self.is_impatient.set(true);
    }

    /// From now on frames go to the owner unpaired, or no longer.
    ///
    /// Entered and left only while no exchange waits.
    pub fn set_tunnel(&self, is_tunnel: bool) {
        debug_assert!(self.pending.borrow().is_empty());
        self.is_tunnel.set(is_tunnel);
    }

    pub(crate) fn set_owner(&self, owner: Option<Rc<W>>) {
        *self.owner.borrow_mut() = owner;
    }

    pub(crate) fn owner(&self) -> Option<Rc<W>> {
        self.owner.borrow().clone()
    }

    /// May be given to another client: nothing waits, nothing streams, nothing is half sent.
    pub(crate) fn is_clean(&self) -> bool {
        self.is_open() && !self.is_tunnel.get() && self.pending.borrow().is_empty()
    }

    /// Takes no more exchanges; ends once the last waiting one has its reply.
    pub(crate) fn retire(&self) {
        self.is_retired.set(true);
        if self.pending.borrow().is_empty() {
            self.end(LossCause::Retired);
        }
    }

    /// Ends the connection now.
    pub(crate) fn end(&self, cause: LossCause) {
        if self.ending.get().is_none() {
            self.ending.set(Some(cause));
            self.cutter.cut();
        }
    }

    /// Ends the lane if the oldest exchange has waited longer than `timeout`.
    pub(crate) fn check_deadline(&self, now: Time, timeout: Duration) {
        let pending = self.pending.borrow();
        let Some(run) = pending.front().filter(|_| !self.is_paused.get()) else { return };
        let Some(sent) = run.sent else { return };
        let since = sent.max(run.queued).max(self.last_reply.get());
        if run.exchange.has_deadline && now.since(since) > timeout {
            drop(pending);
            self.end(LossCause::Timeout);
        }
    }

    fn stamp_sent(&self) {
        if self.output.unsent() > 0 {
            // A batch has left, and what came meanwhile has not.
            return;
        }
        let appended = self.output.appended();
        self.metrics.sent((appended - self.written.replace(appended)) as usize);
        self.pending.borrow_mut().stamp_sent(Time::now());
    }

    /// Reads replies until the connection ends, then tells the losses, and how many there were. Gives back what was never
    /// sent: its requests as bytes and their exchanges, to be sent elsewhere.
    pub(crate) async fn read(&self, reader: &mut Reader) -> (LossCause, usize, UnsentRequests<W>) {
        let mut framer = P::Framer::default();
        let mut chunks = 0;
        let cause = loop {
            chunks += 1;
            if chunks % CHUNKS_PER_TURN_MAX == 0 {
                weir_engine::yield_now().await;
            }
            let chunk = match reader.receive().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) | Err(_) => break LossCause::Closed,
            };
            self.metrics.received(chunk.len());
            match self.deliver(&mut framer, &chunk) {
                Ok(()) => {}
                Err(violation) => {
                    self.metrics.violation(&violation);
                    break LossCause::Violation;
                }
            }
            self.note_front(chunk.len());
            drop(chunk);
            if self.is_retired.get() && self.pending.borrow().is_empty() {
                break LossCause::Retired;
            }
            if let Some((slow, stall)) = self.congested_client() {
                let was_held = self.is_held.replace(self.kind == LaneKind::Shared);
                self.is_paused.set(true);
                match stall {
                    Stall::Alone => self.wait_for(&slow).await,
                    Stall::AmongOthers => self.wait_among_others(&slow).await,
                }
                self.is_paused.set(false);
                self.is_held.set(was_held);
                self.last_reply.set(turn::now());
            }
        };
        let cause = self.ending.get().unwrap_or(cause);
        self.ending.set(Some(cause));
        self.cutter.cut();
        let (lost, unsent) = self.fail_sent(cause);
        (cause, lost, unsent)
    }

    fn deliver(&self, framer: &mut P::Framer, chunk: &[u8]) -> Result<(), Violation> {
        self.last_reply.set(turn::now());
        let mut at = 0;
        // A lane that was given up has no waiter left to notify.
        while at < chunk.len() && self.ending.get() != Some(LossCause::Retired) {
            let (run, scan) = self.scan_run(framer, &chunk[at..]);
            if run.count > 0 {
                self.deliver_replies(&chunk[at..at + run.bytes], run.count, FrameKind::Reply);
                at += run.bytes;
            }
            let Some(scan) = scan.transpose()? else { continue };
            let bytes = &chunk[at..at + scan.taken];
            at += scan.taken;
            if scan.is_push || self.is_tunnel.get() {
                self.deliver_unpaired(bytes, scan)?;
            } else {
                self.deliver_reply(bytes, scan)?;
            }
        }
        Ok(())
    }

    /// Scans the plain replies at the front of `input` that may be delivered in one call; and, if it came to that, the piece
    /// after them, which may not.
    #[inline]
    fn scan_run(&self, framer: &mut P::Framer, input: &[u8]) -> (ReplyRun, Option<Result<Scan, Violation>>) {
        let most = self.deliverable_at_once();
        let mut run = ReplyRun { count: 0, bytes: 0 };
        while run.bytes < input.len() {
            match P::scan(framer, &input[run.bytes..]) {
                Ok(Scan { taken, is_push: false, end: Some(FrameKind::Reply) }) if run.count < most => {
                    run.count += 1;
                    run.bytes += taken;
                }
                other => return (run, Some(other)),
            }
            if run.count == most {
                break;
            }
        }
        (run, None)
    }

    /// How many replies from the oldest on go to one session that has to look at none of them alone.
    #[inline]
    fn deliverable_at_once(&self) -> u64 {
        let pending = self.pending.borrow();
        let Some(run) = pending.front().filter(|run| run.exchange.count > 1) else { return 0 };
        let is_plain = run.sent.is_some() && run.exchange.skip == 0 && !self.is_tunnel.get();
        if !is_plain {
            return 0;
        }
        let (waiter, count) = (run.exchange.waiter.clone(), run.exchange.count);
        drop(pending);
        if waiter.takes_runs() { count } else { 0 }
    }

    /// Tells `count` complete replies to the oldest run.
    #[inline]
    fn deliver_replies(&self, bytes: &[u8], count: u64, end: FrameKind) {
        let mut pending = self.pending.borrow_mut();
        let oldest = pending.front().map(|run| (run.exchange.number, run.timing()));
        let (Some((exchange, timing)), Some(waiter)) = (oldest, pending.complete(count)) else { return };
        drop(pending);
        self.metrics.requests_over(count);
        waiter.on_reply(Reply { exchange, count, bytes, end: Some(end), timing });
    }

    fn deliver_unpaired(&self, bytes: &[u8], scan: Scan) -> Result<(), Violation> {
        let Some(owner) = self.owner() else {
            return Err(Violation::rule("unsolicited_frame", Culprit::Upstream, "a frame without a subscription"));
        };
        owner.on_frame(Frame { bytes, end: scan.end, is_push: scan.is_push });
        Ok(())
    }

    #[inline]
    fn deliver_reply(&self, bytes: &[u8], scan: Scan) -> Result<(), Violation> {
        let mut pending = self.pending.borrow_mut();
        let Some(run) = pending.front_mut() else {
            return Err(Violation::rule("unsolicited_reply", Culprit::Upstream, "a reply without a request"));
        };
        if run.sent.is_none() {
            return Err(Violation::rule("unsolicited_reply", Culprit::Upstream, "a reply to a request not sent yet"));
        }
        if run.exchange.skip > 0 {
            run.exchange.skip -= u32::from(scan.end.is_some());
            return Ok(());
        }
        let Some(end) = scan.end else {
            let (exchange, timing, waiter) = (run.exchange.number, run.timing(), run.exchange.waiter.clone());
            drop(pending);
            waiter.on_reply(Reply { exchange, count: 0, bytes, end: None, timing });
            return Ok(());
        };
        drop(pending);
        self.deliver_replies(bytes, 1, end);
        Ok(())
    }

    /// `bytes` more have come: whom for, and is it much?
    #[inline]
    fn note_front(&self, bytes: usize) {
        let pending = self.pending.borrow();
        let front = pending.front().map_or(std::ptr::null(), |run| Rc::as_ptr(&run.exchange.waiter));
        let is_same = !front.is_null() && self.in_front.replace(front) == front;
        self.in_a_row.set(if is_same { self.in_a_row.get() + bytes } else { 0 });
        self.is_held.set(self.in_a_row.get() >= LARGE_BYTES && self.kind == LaneKind::Shared);
    }

    /// The client that must read before this lane is read on, if there is one.
    fn congested_client(&self) -> Option<(Rc<W>, Stall)> {
        if let Some(owner) = self.owner() {
            let is_slow = owner.output().is_congested() && !self.is_tunnel.get();
            return is_slow.then_some((owner, Stall::Alone));
        }
        let pending = self.pending.borrow();
        let client = pending.front()?.exchange.waiter.clone();
        let output = client.output();
        if !output.is_congested() || output.is_closed() {
            return None;
        }
        if pending.iter().all(|run| Rc::ptr_eq(&run.exchange.waiter, &client)) {
            return Some((client, Stall::Alone));
        }
        (!self.may_pile_up(&client)).then_some((client, Stall::AmongOthers))
    }

    /// Others wait behind the replies of `client`: they may grow in memory, so that the lane gets through with them. Up to the
    /// cap while there is memory at all; beyond it while there is plenty.
    fn may_pile_up(&self, client: &W) -> bool {
        let is_below_cap = client.output().buffered() < self.hard_cap;
        !client.is_over_budget() && (is_below_cap || client.has_spare_memory())
    }

    /// Waits until `client`, which is alone on the lane, has read; evicts it if it takes nothing for too long. Once the lane has
    /// lost patience all such waits together count, however much the client reads in between: the room is wanted.
    async fn wait_for(&self, client: &W) {
        let output = client.output();
        let mut progress = (output.progress(), turn::now());
        while self.ending.get().is_none() {
            let begun = turn::now();
            if self.last_patience.get().is_zero() || begun.since(progress.1) > STALL_MAX {
                client.evict();
                return;
            }
            let is_relieved = weir_engine::timeout(STALL_LOOK, output.relieved()).await.is_ok();
            if self.is_impatient.get() {
                self.last_patience.set(self.last_patience.get().saturating_sub(turn::now().since(begun)));
            }
            if is_relieved {
                return;
            }
            if output.progress() != progress.0 {
                progress = (output.progress(), turn::now());
            }
        }
    }

    /// Waits until `client` has read or there is memory for what it does not read; evicts it when the lane has waited long enough
    /// for it and others like it: those behind wait for all of them.
    async fn wait_among_others(&self, client: &W) {
        if turn::now().since(self.stalled_at.get()) >= PATIENCE_BACK_AFTER {
            self.patience.set(STALL_AMONG_OTHERS_MAX);
        }
        while self.ending.get().is_none() {
            if self.patience.get().is_zero() {
                client.evict();
                return;
            }
            let begun = turn::now();
            let relieved = client.output().relieved();
            let is_relieved = weir_engine::timeout(STALL_LOOK_AMONG_OTHERS, relieved).await.is_ok();
            self.patience.set(self.patience.get().saturating_sub(turn::now().since(begun)));
            self.stalled_at.set(turn::now());
            if is_relieved || self.may_pile_up(client) {
                return;
            }
        }
    }

    /// Takes back the requests of `client` that were not handed to the kernel.
    pub(crate) fn take_back(&self, client: &W) -> Vec<Run<W>> {
        let mut pending = self.pending.borrow_mut();
        let unsent = pending.iter().filter(|run| run.sent.is_none()).map(|run| run.bytes).sum::<usize>();
        let is_client = |run: &Run<W>| std::ptr::eq(Rc::as_ptr(&run.exchange.waiter), client);
        let has_some = pending.iter().any(|run| run.sent.is_none() && is_client(run));
        if !has_some || unsent != self.output.unsent() {
            return Vec::new();
        }
        let (taken, ranges) = pending.take_back(client);
        self.output.remove_unsent(&ranges);
        // They were counted as appended, and will not be written.
        self.written.set(self.written.get() + (unsent - self.output.unsent()) as u64);
        self.metrics.requests_over(taken.iter().map(|run| run.exchange.count).sum());
        if self.is_retired.get() && pending.is_empty() {
            drop(pending);
            self.end(LossCause::Retired);
        }
        taken
    }

    /// Tells every exchange that was sent that its reply is lost; keeps the rest.
    fn fail_sent(&self, cause: LossCause) -> (usize, UnsentRequests<W>) {
        let mut unsent = UnsentRequests { exchanges: Runs::default(), requests: self.output.take_unsent().into() };
        let mut all = std::mem::take(&mut *self.pending.borrow_mut());
        self.metrics.requests_over(all.len() as u64);
        let mut lost = 0;
        while let Some(run) = all.pop_run() {
            if run.sent.is_none() && self.kind == LaneKind::Shared {
                unsent.exchanges.push_run(run);
                continue;
            }
            for number in run.numbers() {
                lost += 1;
                self.metrics.request_failed(cause.name());
                run.exchange.waiter.on_loss(number, cause);
            }
        }
        (lost, unsent)
    }
}

/// State of a client that a lane waits for.
enum Stall {
    /// No other client waits behind it.
    Alone,
    /// Other clients wait behind it.
    AmongOthers,
}

/// Replies that are delivered in one call.
struct ReplyRun {
    count: u64,
    bytes: usize,
}

/// Requests that a lane had accepted and never handed to the kernel: provably not executed.
pub(crate) struct UnsentRequests<W> {
    pub(crate) exchanges: Runs<W>,
    pub(crate) requests: Requests,
}

impl<W> Default for UnsentRequests<W> {
    fn default() -> Self {
        Self { exchanges: Runs::default(), requests: Requests::default() }
    }
}
