//! The shell around one session: its socket, its lanes, its deadlines.

mod insight;
mod leaving;
mod own_lanes;
mod replies;
mod subscriber;
mod surroundings;
mod tracker;

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    panic::AssertUnwindSafe,
    rc::{Rc, Weak},
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::FutureExt as _;
use weir_base::{
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Account as _, Chunk, ClientWait, Cutter, Deadline, Output, Stream, deadline};
use weir_listener::{
    Arrival, CloseReason, ConnectionDetails, ConnectionFuture, ConnectionGuard, ConnectionHandle, Drain, Linger,
    Session as ListedSession, SuccessionTicket,
};
use weir_resp::Version;
use weir_telemetry::log::Peer;
use weir_upstream::SharedLane;

use weir_redis_session::{
    lane::LaneKey,
    moving::MovedSession,
    session::{Next, Session},
    users::Users,
};

use self::own_lanes::{OwnLanes, Pinned};
use crate::{
    lane::RespLane,
    metrics::Done,
    patience::{Overdue, Patience},
    service::{RedisUpstream, Service},
};

/// Chunks of one client that are worked on before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 4;
/// Below this a connection's buffers are not charged to the byte budget: they fit the core's spare buffers.
const CHARGED_BYTES_MIN: usize = 4 * 1024;
/// The time for a refused client before the socket closes, and for how long: a reset would destroy the reply.
const LINGER_BYTES_MAX: u64 = 256 * 1024;
/// See [`LINGER_BYTES_MAX`]. Default 1 s.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The end of a client whose unread output must not hold up others.
const EVICTED: CloseReason = CloseReason::of_client("evicted");

/// A shared lane in use, kept so that no request looks it up.
struct Shared {
    key: LaneKey,
    lane: Rc<SharedLane<RespLane, Connection>>,
    /// Which connection of the lane the last request rode.
    serial: Cell<Option<u64>>,
}

/// The shared lanes in use: one per shard.
#[derive(Default)]
struct SharedLanes {
    /// The one in use where there is one server; else the one that was used first.
    first: Option<Shared>,
    others: Vec<Shared>,
}

impl SharedLanes {
    #[inline]
    fn get(&self, key: LaneKey) -> Option<&Shared> {
        match &self.first {
            Some(first) if first.key == key => Some(first),
            _ => self.others.iter().find(|shared| shared.key == key),
        }
    }

    /// Adds a lane; those of another database or protocol version go.
    #[cold]
    fn add(&mut self, shared: Shared) -> &Shared {
        let is_alike = |other: &Shared| {
            LaneKey { shard: shared.key.shard, purpose: shared.key.purpose, ..other.key } == shared.key
        };
        self.others.retain(is_alike);
        if self.first.as_ref().is_some_and(is_alike) {
            self.others.push(shared);
            &self.others[self.others.len() - 1]
        } else {
            self.first.insert(shared)
        }
    }
}

/// One client connection.
pub struct Connection {
    service: Rc<Service>,
    session: RefCell<Session>,
    output: Output,
    cutter: Cutter,
    handle: ConnectionHandle,
    /// Kept until nothing that the client sent can take effect any more; its next connection may wait for that.
    place: RefCell<Option<SuccessionTicket>>,
    upstream: RefCell<Rc<RedisUpstream>>,
    shared: RefCell<SharedLanes>,
    /// Its own lanes, from the first of them on.
    own_lanes: OnceCell<Box<OwnLanes>>,
    /// The requests that were chosen for the access log, oldest first. Kept from the first of them on.
    access: OnceCell<Box<RefCell<VecDeque<AccessSample>>>>,
    /// Requests whose replies wait for the end of the turn. Without any it has no memory.
    done: Cell<Vec<Done>>,
    /// The command being judged goes into the access log.
    is_logged: Cell<bool>,
    /// When a command was parsed whose stages are timed; [`Time::NEVER`]: there is none.
    parsed_at: Cell<Time>,
    /// Stages of a request in flight: its number, when it was parsed, when it was judged. Parsed [`Time::NEVER`]: there is none.
    stages: Cell<(u64, Time, Time)>,
    is_over_budget: Cell<bool>,
    is_over: Cell<bool>,
    /// No TLS lies between, so another process could go on with it.
    is_plain: bool,
    /// Exchanges on their way; while there are any, the client waits.
    on_their_way: Cell<u32>,
    /// For the replies of these, unless it is blocked.
    wait: ClientWait,
    /// Chunks taken since other tasks had their turn.
    streak: Cell<u32>,
    /// Stands in the core's queue for room.
    is_queued: Cell<bool>,
    /// When the last reply was complete.
    replied_at: Cell<Time>,
    noted: insight::PartialReplyNote,
    subscriber: OnceCell<Box<subscriber::Subscriber>>,
    tracker: tracker::TrackerPlace,
    is_tracking: Cell<bool>,
    me: Weak<Connection>,
}

impl ListedSession for Connection {
    fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    fn outstanding(&self) -> u64 {
        self.session.try_borrow().map_or(0, |session| session.outstanding())
    }

    fn is_over(&self) -> bool {
        self.is_over.get()
    }
}

/// A request on its way into the access log.
pub(crate) struct AccessSample {
    /// The session's number for it, once it is known.
    number: Option<u64>,
    command: &'static str,
    request_bytes: u64,
    reply_bytes: u64,
}

/// An event of a connection.
enum Event {
    Received(io::Result<Option<Chunk>>),
    Woken,
    Overdue,
}

/// Serves one admitted connection until it ends. One that has `moved` here from another process goes on where it was.
///
/// The stream comes in a box and rare work goes into one: an idle connection pays for the size of this future.
pub(crate) fn serve(service: Rc<Service>, arrival: Arrival) -> ConnectionFuture {
    // In a box of its own: what is of no use for the whole life of the connection stays out of that future.
    let arriving = Box::pin(arrive(service, arrival));
    Box::pin(live(arriving))
}

/// Makes the session, once the connections of its client that came before are over: what holds for the client is as it is then.
async fn arrive(service: Rc<Service>, arrival: Arrival) -> (Rc<Connection>, Box<Stream>) {
    let Arrival { mut stream, guard, peer, place, moved, .. } = arrival;
    let moved = moved.and_then(|session| session.downcast::<MovedSession>().ok());
    *guard.entry().details() = details(moved.as_deref());
    if let (Some(place), None) = (&place, &moved) {
        place.predecessors_over().await;
    }
    let connection = Connection::new(service, &stream, guard, peer, moved.as_deref());
    let input = moved.as_ref().map(|moved| &*moved.input).unwrap_or_default();
    // Cannot fail: a connection with TLS does not move.
    let _ = stream.reader.unread(input);
    stream.count_into(connection.service.sessions.traffic_after(input.len()));
    *connection.place.borrow_mut() = place;
    (connection, stream)
}

async fn live(arriving: impl Future<Output = (Rc<Connection>, Box<Stream>)>) {
    let (connection, mut stream) = arriving.await;
    let opened = connection.service.sessions.open(connection.clone());
    let life = AssertUnwindSafe(run(&connection, &mut stream)).catch_unwind();
    let reason = life.await.unwrap_or_else(|_| connection.panicked());
    connection.leave();
    opened.close(reason);
    match reason {
        CloseReason::Moved => connection.depart(*stream),
        CloseReason::InternalInvariant | CloseReason::ClientReset | CloseReason::DrainCut | EVICTED => {
            connection.drop_output();
        }
        _ => {
            let half_close = connection.service.sessions.settings().half_close_timeout;
            let limit = half_close.min(LINGER_TIMEOUT);
            Box::pin(Linger { stalled: Duration::ZERO, limit, bytes_max: LINGER_BYTES_MAX }.close(*stream)).await;
        }
    }
}

/// The entry of a new client in the table of connections.
fn details(moved: Option<&MovedSession>) -> ConnectionDetails {
    let details = moved.map(|moved| moved.details.clone()).unwrap_or_default();
    let version = moved.and_then(|moved| Version::from_number(moved.version.into())).unwrap_or(Version::Resp2);
    let (db, version) = (Some(details.db.unwrap_or_default()), version.name());
    ConnectionDetails { db, version, has_users: true, ..details }
}

/// The life of a connection: what arrives is handed to the session, then the session says what it wants next.
fn run(connection: &Rc<Connection>, stream: &mut Stream) -> impl Future<Output = CloseReason> {
    let mut patience = Patience::new(connection.service.sessions.settings());
    let due = deadline();
    // An `async fn` would have room for each argument twice: as it came, and as a variable.
    async move {
        loop {
            if let Some(reason) = connection.handle.ending() {
                return reason;
            }
            if connection.output.is_closed() {
                return CloseReason::ClientReset;
            }
            let next = connection.session.borrow().next(&**connection);
            if next == Next::Close {
                return connection.farewell();
            }
            if connection.moves_now(stream) {
                return CloseReason::Moved;
            }
            // Later bytes from the client belong to the process that takes over the connection.
            let next = if connection.is_moving() { Next::Wait } else { next };
            patience.arm(&due, connection, next);
            let event = poll_fn(|context| connection.poll_event(context, stream, &due, next)).await;
            match connection.on_event(event, &mut patience) {
                Ok(None) => connection.account(),
                Ok(Some(reason)) => return reason,
                Err(violation) => return connection.violated(&violation),
            }
        }
    }
}

impl Connection {
    fn new(
        service: Rc<Service>,
        stream: &Stream,
        guard: ConnectionGuard,
        peer: Peer,
        moved: Option<&MovedSession>,
    ) -> Rc<Self> {
        let session = match moved {
            Some(moved) => Session::from_moved(service.redis(), service.spares.clone(), moved),
            None => Session::new(service.redis(), service.spares.clone()),
        };
        let connection = Rc::new_cyclic(|me: &Weak<Self>| Self {
            session: RefCell::new(session),
            is_plain: stream.is_plain(),
            output: stream.output.clone(),
            cutter: stream.cutter(),
            handle: ConnectionHandle::new(guard, peer, None, &service.sessions.core().bytes),
            place: RefCell::new(None),
            upstream: RefCell::new(service.upstream()),
            shared: RefCell::default(),
            own_lanes: OnceCell::new(),
            access: OnceCell::new(),
            done: Cell::default(),
            is_logged: Cell::new(false),
            parsed_at: Cell::new(Time::NEVER),
            stages: Cell::new((0, Time::NEVER, Time::NEVER)),
            is_over_budget: Cell::new(false),
            is_over: Cell::new(false),
            on_their_way: Cell::new(0),
            wait: ClientWait::default(),
            streak: Cell::new(0),
            is_queued: Cell::new(false),
            replied_at: Cell::new(Time::ZERO),
            noted: insight::PartialReplyNote::default(),
            subscriber: OnceCell::new(),
            tracker: tracker::TrackerPlace::default(),
            is_tracking: Cell::new(false),
            me: me.clone(),
            service,
        });
        match moved {
            Some(moved) => {
                if !connection.session.borrow_mut().settle_user(moved, &*connection) {
                    connection.end(CloseReason::Ended("user_removed"));
                }
                connection.check_database();
            }
            None => connection.session.borrow_mut().arrive(&*connection),
        }
        let weak = connection.me.clone();
        connection.output.on_flush(move || {
            if let Some(connection) = weak.upgrade() {
                connection.flushed();
            }
        });
        connection
    }

    fn poll_event(&self, context: &mut Context<'_>, stream: &mut Stream, due: &Deadline, next: Next) -> Poll<Event> {
        if self.handle.take_woken() {
            return Poll::Ready(Event::Woken);
        }
        if self.streak.get() >= CHUNKS_PER_TURN_MAX {
            self.streak.set(0);
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if next == Next::Read {
            if let Poll::Ready(received) = stream.reader.poll_receive(context) {
                self.streak.set(self.streak.get() + 1);
                return Poll::Ready(Event::Received(received));
            }
            self.streak.set(0);
        } else {
            let mut is_relieved = |output: &Output| output.poll_relieved(context).is_ready();
            let has_room = is_relieved(&self.output) & self.pin_output().is_none_or(|output| is_relieved(&output));
            if has_room && !self.is_moving() && self.session.borrow().next(self) != next {
                return Poll::Ready(Event::Woken);
            }
        }
        if due.poll_expired(context).is_ready() {
            return Poll::Ready(Event::Overdue);
        }
        self.handle.register(context);
        Poll::Pending
    }

    /// Hands an event to the session; a reason if the connection ends for it.
    fn on_event(&self, event: Event, patience: &mut Patience) -> Result<Option<CloseReason>, Violation> {
        match event {
            Event::Received(Ok(Some(chunk))) => {
                patience.received(chunk.len());
                self.on_chunk(&chunk)?;
            }
            Event::Received(Ok(None)) => return Ok(self.on_client_end()),
            Event::Received(Err(_)) => return Ok(Some(CloseReason::ClientReset)),
            Event::Woken => self.on_wake()?,
            Event::Overdue => match patience.overdue(self) {
                Overdue::Nothing => {}
                Overdue::Wake => self.on_wake()?,
                Overdue::RefuseHeld => self.session.borrow_mut().refuse_held(self)?,
                Overdue::End(reason) => return Ok(Some(reason)),
                Overdue::Violation(violation) => return Err(violation),
            },
        }
        Ok(None)
    }

    fn pin_output(&self) -> Option<Output> {
        self.with_pinned(|pinned| pinned.lane.output().clone())
    }

    fn on_chunk(&self, chunk: &[u8]) -> Result<(), Violation> {
        // Before the chunk is forwarded: a client with a request always under way would never move.
        self.follow_upstream();
        let result = self.session.borrow_mut().on_client(chunk, self);
        self.queue_for_room();
        result
    }

    fn on_wake(&self) -> Result<(), Violation> {
        self.follow_upstream();
        let result = self.session.borrow_mut().on_wake(self);
        self.queue_for_room();
        result
    }

    fn queue_for_room(&self) {
        // A waiter for a primary is not served by room.
        let has_primary = self.upstream.borrow().endpoints().primary().is_some();
        if has_primary && self.session.borrow().waits_for_room() && !self.is_queued.replace(true) {
            self.service.wait_for_room(self.me.clone());
        }
    }

    /// The client sends no more; a reason if that ends the connection at once.
    fn on_client_end(&self) -> Option<CloseReason> {
        let mut session = self.session.borrow_mut();
        if !session.on_client_end() || session.is_quiet() {
            return Some(CloseReason::ClientClosed);
        }
        drop(session);
        self.note_left();
        // The last reply may have begun before.
        self.give_up_place();
        None
    }

    /// The reason of an end that the session requested.
    fn farewell(&self) -> CloseReason {
        match self.service.sessions.drain_state() {
            Drain::Off => CloseReason::Ended("session_end"),
            Drain::Gentle | Drain::Firm => CloseReason::Drained,
        }
    }

    fn violated(&self, violation: &Violation) -> CloseReason {
        self.service.sessions.violated(&self.handle, violation)
    }

    /// Code of the session has panicked: nothing of its state may go on.
    fn panicked(&self) -> CloseReason {
        self.is_over.set(true);
        self.cutter.cut();
        self.service.sessions.panicked(&self.handle, "the session of a connection panicked")
    }

    /// Gives everything back; replies that still come are dropped.
    fn leave(&self) {
        self.is_over.set(true);
        if self.on_their_way.get() > 0 {
            self.note_left();
        }
        self.handle.entry().leave();
        self.leave_subscriptions();
        self.leave_tracking();
        if let Some(pinned) = self.take_pinned() {
            self.return_lane(pinned, self.session.try_borrow().is_ok_and(|session| session.is_idle()));
        }
        if let Some(parked) = self.take_parked() {
            self.return_lane(parked, false);
        }
        let shared = self.shared.take();
        if self.on_their_way.get() > 0 {
            shared.first.iter().chain(&shared.others).for_each(|shared| shared.lane.forget(self));
        }
        self.give_up_place();
    }

    fn note_left(&self) {
        if let Some(place) = &*self.place.borrow() {
            place.note_left(turn::now());
        }
    }

    /// Once it is over and nothing is on its way; or all that the client will ever send has been carried out, and it only takes its
    /// time to read the last reply.
    fn give_up_place(&self) {
        let is_over = self.is_over.get() && self.on_their_way.get() == 0;
        if is_over || self.session.try_borrow().is_ok_and(|session| session.has_taken_effect()) {
            self.place.take();
        }
    }

    /// The client takes nothing any more: what is buffered for it goes now, and not with the last reply that it still waits for.
    fn drop_output(&self) {
        self.output.discard_unsent();
        let account = self.handle.account();
        account.charge(account.bytes() as usize, 0);
    }

    fn return_lane(&self, pinned: Pinned, is_clean: bool) {
        if pinned.is_blocking {
            self.service.unblock();
        }
        pinned.upstream.unpin(pinned.key, pinned.lane, is_clean);
    }

    /// It is its turn in the queue for room: true if it still wants any.
    pub(crate) fn take_room(&self) -> bool {
        self.is_queued.set(false);
        let wants = !self.is_over.get() && self.session.try_borrow().is_ok_and(|session| session.waits_for_room());
        if wants {
            self.wake();
        }
        wants
    }

    pub(crate) fn replied_at(&self) -> Time {
        self.replied_at.get()
    }

    /// The number by which others name it.
    pub(crate) fn id(&self) -> u64 {
        self.handle.id()
    }

    /// The listener has other users now; true if the connection has to end for it.
    pub(crate) fn follow_users(&self, users: Option<&Arc<Users>>) -> bool {
        let ends = self.session.try_borrow_mut().map(|mut session| session.follow_users(users, self));
        // No session is in the middle of a step while a plan is adopted; if one were, it must not keep old rights.
        ends.unwrap_or(true)
    }

    pub(crate) fn uses(&self, upstream: &RedisUpstream) -> bool {
        let is_it = |own: &Rc<RedisUpstream>| std::ptr::eq(&**own, upstream);
        is_it(&self.upstream.borrow()) || self.own_lanes.get().is_some_and(|own| own.any(|lane| is_it(&lane.upstream)))
    }

    pub(crate) fn with_session<R>(&self, look: impl FnOnce(&Session) -> R) -> R {
        look(&self.session.borrow())
    }

    /// Charges what this connection buffers to the byte budget of the process.
    fn account(&self) {
        self.follow_upstream();
        self.charge(0);
    }

    /// As [`account`](Self::account), with `coming` bytes that are about to be buffered.
    fn charge(&self, coming: usize) {
        let held = self.session.try_borrow().map_or(0, |session| session.held_bytes());
        let buffered = self.output.buffered() + held + coming;
        let charged = if buffered < CHARGED_BYTES_MIN { 0 } else { buffered as u64 };
        let account = self.handle.account();
        if charged != account.bytes() || self.is_over_budget.get() {
            self.is_over_budget.set(!account.charge(account.bytes() as usize, charged as usize));
        }
        self.handle.entry().buffered.store(buffered as u64, Relaxed);
    }

    /// The output is on its way: requests answered in it are over.
    fn flushed(&self) {
        let done = self.done.take();
        if !done.is_empty() {
            let now = Time::now();
            done.iter().for_each(|done| self.service.metrics.done(done, now));
            self.service.done_lists.give(done);
        }
        self.note_read();
        if self.handle.account().bytes() > 0 || self.is_over_budget.get() {
            self.account();
        }
        let is_leaving = self.service.is_moving_away() || self.service.sessions.drain_state() != Drain::Off;
        if is_leaving && self.output.buffered() == 0 {
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Ready, pin::Pin};

    use weir_listener::{ConnectionAccount, ConnectionEntry};

    use super::*;

    /// The size of the future that a call returns.
    fn future_bytes<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    /// Bytes of the larger objects of an idle client, without those of the accepting side. Its lists, its parser and the state of what
    /// it does seldom are allocated when they are needed.
    #[test]
    fn the_states_of_an_idle_client_are_small() {
        type Arriving = Pin<Box<Ready<(Rc<Connection>, Box<Stream>)>>>;
        let parts = [
            ("connection", size_of::<Connection>()),
            ("future", future_bytes(|arriving: Arriving| live(arriving))),
            ("stream", Stream::IDLE_BYTES),
            ("row in the table", size_of::<ConnectionEntry>()),
            ("account", size_of::<ConnectionAccount>()),
        ];
        let all: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert!(all <= 2_048, "{all} bytes: {parts:?}, of the connection {} of the session", size_of::<Session>());
    }
}
