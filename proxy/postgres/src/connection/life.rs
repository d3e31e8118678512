//! The session of a client that is logged in: bytes both ways, its deadlines, and its end.

use std::{
    future::poll_fn,
    io, mem,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use weir_base::{
    error::Culprit,
    limits,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Account as _, Chunk, Deadline, Output, PeerWatch, Stream, note_reply_time};
use weir_listener::{CloseReason, DRAIN_GAP, Drain};
use weir_postgres_session::{End, Next, PinReasons, ServerStep, Session};
use weir_upstream::pooled::{AcquireError, PooledConnection};

use super::{
    Connection,
    admission::{Client, shutdown},
    lease::Lease,
    surroundings::Surroundings,
};
use crate::{rules::StatementRules, server::PostgresServer};

/// Chunks of one client and its server that are worked on before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 8;
/// Below this the bytes that a session left are not charged to the byte budget: most statements fit.
const CHARGED_BYTES_MIN: usize = 4 * 1024;

/// The next want of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Bytes of the client.
    Bytes,
    /// A server.
    Server,
    /// A reply of the server, or room in its output.
    Reply,
}

/// An event of a session.
enum Event {
    Ended(CloseReason),
    Woken,
    Client(io::Result<Option<Chunk>>),
    Server(io::Result<Option<Chunk>>),
    Acquired(Result<PooledConnection<PostgresServer>, AcquireError>),
    /// The client is gone while it waits.
    Gone,
    /// An output has room again.
    Relieved,
    Overdue,
}

/// A client that waits for a server or its reply, counted until it is dropped: a panic gives back what it counts.
struct Busy<'a> {
    connection: &'a Connection,
    since: Time,
}

impl<'a> Busy<'a> {
    fn new(connection: &'a Connection) -> Self {
        connection.handle.begins();
        connection.service.metrics.in_flight.add(1);
        connection.wait.begin();
        Self { connection, since: turn::now() }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.connection.handle.ends();
        self.connection.service.metrics.in_flight.add(-1);
        self.connection.wait.end();
    }
}

/// A client's session with what it holds.
pub(super) struct Life<'a> {
    pub(super) connection: &'a Rc<Connection>,
    pub(super) client: Client,
    /// The rules by which its statements are judged.
    rules: Arc<StatementRules>,
    pub(super) output: Output,
    /// Bytes of the client that the session has left.
    input: Vec<u8>,
    charged: usize,
    pub(super) lease: Lease,
    pub(super) wanted: Wanted,
    watch: PeerWatch,
    pub(super) active: Time,
    /// Since when the client takes nothing, and how much it had taken.
    stalled: Option<(Time, u64)>,
    streak: u32,
    /// The deadline as it is set. `None`: it has passed, and is set once more.
    armed: Option<Time>,
    /// `Some`: it waits for a server, or for its reply.
    busy: Option<Busy<'a>>,
    /// The reasons for a pin that operators see.
    pub(super) shown_pin: PinReasons,
    /// The channels that operators see.
    pub(super) shown_channels: usize,
    /// News wait for room in the client's output.
    pub(super) has_news: bool,
}

/// The session of a client until it ends.
pub(super) async fn live(connection: &Rc<Connection>, stream: &mut Stream, client: Box<Client>) -> CloseReason {
    // In a box: a future keeps room for each value that it has moved.
    let mut life = Life::begin(connection, stream, client);
    let reason = life.run(stream).await;
    life.leave();
    reason
}

impl<'a> Life<'a> {
    fn begin(connection: &'a Rc<Connection>, stream: &Stream, mut client: Box<Client>) -> Box<Self> {
        let input = mem::take(&mut client.input);
        Box::new(Self {
            connection,
            client: *client,
            rules: connection.service.settings().statement_rules.clone(),
            output: stream.output.clone(),
            input,
            charged: 0,
            lease: Lease::default(),
            wanted: Wanted::Bytes,
            watch: stream.reader.peer_watch(),
            active: turn::now(),
            stalled: None,
            streak: 0,
            armed: Some(Time::NEVER),
            busy: None,
            shown_pin: PinReasons::default(),
            shown_channels: 0,
            has_news: false,
        })
    }
}

impl Life<'_> {
    async fn run(&mut self, stream: &mut Stream) -> CloseReason {
        let due = weir_engine::deadline();
        // Bytes that came behind the login.
        if let Err(reason) = self.go_on() {
            return reason;
        }
        loop {
            self.arm(&due);
            let event = poll_fn(|context| self.poll_event(context, stream, &due)).await;
            if let Err(reason) = self.on_event(event) {
                return reason;
            }
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>, stream: &mut Stream, due: &Deadline) -> Poll<Event> {
        let handle = &self.connection.handle;
        if let Some(reason) = handle.poll_ending(context) {
            return Poll::Ready(Event::Ended(reason));
        }
        if handle.take_woken() {
            return Poll::Ready(Event::Woken);
        }
        if self.output.is_closed() {
            return Poll::Ready(Event::Gone);
        }
        if self.streak >= CHUNKS_PER_TURN_MAX {
            self.streak = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // The client takes nothing: no more is taken from either side.
        let has_room = self.output.poll_relieved(context).is_ready();
        if has_room && self.has_news {
            return Poll::Ready(Event::Woken);
        }
        if has_room && let Some(server) = &mut self.lease.server {
            let server = server.stream();
            if let Poll::Ready(received) = server.reader.poll_receive(context) {
                self.streak += 1;
                return Poll::Ready(Event::Server(received));
            }
            if self.wanted == Wanted::Reply
                && self.lease.was_congested
                && server.output.poll_relieved(context).is_ready()
            {
                return Poll::Ready(Event::Relieved);
            }
        }
        if let Some(acquiring) = &mut self.lease.acquiring
            && let Poll::Ready(acquired) = acquiring.as_mut().poll(context)
        {
            return Poll::Ready(Event::Acquired(acquired));
        }
        if has_room && self.wanted == Wanted::Bytes {
            if let Poll::Ready(received) = stream.reader.poll_receive(context) {
                self.streak += 1;
                return Poll::Ready(Event::Client(received));
            }
        } else if self.watch.poll_ended(context).is_ready() {
            return Poll::Ready(Event::Gone);
        }
        self.streak = 0;
        if self.armed != Some(Time::NEVER) && due.poll_expired(context).is_ready() {
            return Poll::Ready(Event::Overdue);
        }
        Poll::Pending
    }

    fn on_event(&mut self, event: Event) -> Result<(), CloseReason> {
        match event {
            Event::Ended(reason) => return Err(self.ended(reason)),
            Event::Woken => self.on_woken()?,
            Event::Client(Ok(Some(chunk))) => self.on_chunk(&chunk)?,
            Event::Client(Ok(None)) | Event::Gone => return Err(CloseReason::ClientClosed),
            Event::Client(Err(_)) => return Err(CloseReason::ClientReset),
            Event::Server(Ok(Some(chunk))) => self.on_reply(&chunk)?,
            Event::Server(Ok(None) | Err(_)) => self.on_server_lost()?,
            Event::Acquired(Ok(server)) => {
                self.attach(server);
                self.go_on()?;
            }
            Event::Acquired(Err(error)) => self.on_acquire_failed(error)?,
            Event::Relieved => self.go_on()?,
            Event::Overdue => self.on_overdue()?,
        }
        self.note_busy(self.client.session.busy_since().is_some() || self.lease.acquiring.is_some());
        self.show_channels(self.client.session.channels());
        self.charge();
        if mem::take(&mut self.lease.was_released) && self.connection.service.sessions.drain_state() == Drain::Firm {
            self.drain()?;
        }
        Ok(())
    }

    /// Counts the client among those that wait for a server or its reply, or no longer.
    #[inline]
    pub(super) fn note_busy(&mut self, is_busy: bool) {
        if self.busy.is_some() == is_busy {
            return;
        }
        if let Some(busy) = &self.busy {
            let now = turn::now();
            self.client.metrics.query_time.add(now.nanos_since(busy.since));
            // Without the wait for a server, and without the time that the client takes within its transaction.
            note_reply_time(now.since(busy.since.max(self.lease.got)));
        }
        self.busy = is_busy.then(|| Busy::new(self.connection));
        self.note_transaction(is_busy);
    }

    /// Bytes of the client.
    fn on_chunk(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        self.active = turn::now();
        self.leave_replaced()?;
        self.client.metrics.read.add(chunk.len() as u64);
        if self.input.is_empty() {
            let consumed = self.offer(chunk)?;
            self.input.extend_from_slice(&chunk[consumed..]);
            return Ok(());
        }
        self.input.extend_from_slice(chunk);
        self.go_on()
    }

    /// The session looks again at the bytes that it left.
    pub(super) fn go_on(&mut self) -> Result<(), CloseReason> {
        let mut input = mem::take(&mut self.input);
        let consumed = self.offer(&input)?;
        input.drain(..consumed);
        // An idle client keeps none.
        if input.is_empty() {
            input = Vec::new();
        }
        self.input = input;
        Ok(())
    }

    /// Gives bytes to the session, with a server if it needs one and one is at hand. Returns how many it took.
    fn offer(&mut self, input: &[u8]) -> Result<usize, CloseReason> {
        let mut at = 0;
        loop {
            let metrics = &*self.client.metrics;
            let taken = match &mut self.lease.server {
                Some(server) => {
                    let (stream, state) = server.parts();
                    let io = Surroundings {
                        client: &self.output,
                        server: Some(&stream.output),
                        metrics,
                        feed: &self.client.feed,
                    };
                    let taken = self.client.session.on_client(&input[at..], Some(state), &io);
                    self.lease.was_congested = stream.output.is_congested();
                    taken
                }
                None => {
                    let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
                    self.client.session.on_client(&input[at..], None, &io)
                }
            };
            at += taken.consumed;
            self.wanted = match taken.next {
                Next::More => Wanted::Bytes,
                Next::Wait => Wanted::Reply,
                Next::Close(end) => return Err(self.over(&end)),
                Next::Release(cleanliness) => {
                    self.release(cleanliness);
                    self.active = turn::now();
                    self.lease.was_released = true;
                    continue;
                }
                Next::NeedServer(want) => match self.acquire(want) {
                    Some(server) => {
                        self.attach(server);
                        continue;
                    }
                    None => Wanted::Server,
                },
            };
            return Ok(at);
        }
    }

    /// Bytes of the server.
    pub(super) fn on_reply(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        let Some(server) = &mut self.lease.server else { return Ok(()) };
        let (stream, state) = server.parts();
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: Some(&stream.output), metrics, feed: &self.client.feed };
        let step = self.client.session.on_server(chunk, state, &io);
        self.report_slow();
        match step {
            Ok(ServerStep::Continue) => self.count_written(),
            Ok(ServerStep::Release(cleanliness)) => {
                self.release(cleanliness);
                self.active = turn::now();
                if self.connection.service.sessions.drain_state() == Drain::Firm {
                    self.drain()?;
                }
            }
            Ok(ServerStep::Close(end)) => return Err(self.over(&end)),
            Err(violation) => {
                self.connection.service.sessions.report(&self.connection.handle, &violation);
                return self.on_server_lost();
            }
        }
        self.show_pin();
        self.leave_replaced()?;
        if self.wanted == Wanted::Bytes && self.input.is_empty() { Ok(()) } else { self.go_on() }
    }

    #[cold]
    fn on_server_lost(&mut self) -> Result<(), CloseReason> {
        let Some(mut server) = self.lease.server.take() else { return Ok(()) };
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
        let next = self.client.session.on_server_lost(server.state(), &io);
        self.lose(server);
        match next {
            Next::Close(end) => Err(self.over(&end)),
            _ => self.go_on(),
        }
    }

    #[cold]
    fn on_acquire_failed(&mut self, error: AcquireError) -> Result<(), CloseReason> {
        let refusal = self.refusal(error);
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
        match self.client.session.on_acquire_failed(refusal, &io) {
            Next::Close(end) => Err(self.over(&end)),
            _ => self.go_on(),
        }
    }

    #[cold]
    fn on_woken(&mut self) -> Result<(), CloseReason> {
        self.forward_cancel();
        self.follow_upstream();
        self.leave_replaced()?;
        self.follow_rules();
        if self.client.feed.has_begun() {
            self.on_news()?;
        }
        if self.connection.service.sessions.drain_state() == Drain::Firm {
            self.drain()?;
        }
        Ok(())
    }

    /// Ends the session between two transactions if another server has replaced the one that it keeps.
    #[inline]
    fn leave_replaced(&mut self) -> Result<(), CloseReason> {
        let is_replaced = |server: &&PooledConnection<PostgresServer>| {
            self.upstream_of(server.pool()).watch_ref(server.number()).is_replaced()
        };
        let Some(server) = self.lease.server.as_ref().filter(is_replaced) else { return Ok(()) };
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
        let end = self.client.session.on_replaced(server.state_ref(), &io);
        end.map_or(Ok(()), |_| Err(CloseReason::of_upstream("server_replaced")))
    }

    /// A reload may have changed the rules: they hold from the client's next statement on.
    fn follow_rules(&mut self) {
        let rules = self.connection.service.settings().statement_rules.clone();
        if Arc::ptr_eq(&rules, &self.rules) {
            return;
        }
        let identity = &self.client.identity;
        let judge = self.connection.service.judges.of(&rules, (&identity.user, &identity.database), self.connection);
        self.client.session.set_judge(judge);
        self.rules = rules;
    }

    /// Ends the session if nothing of it is under way.
    #[cold]
    fn drain(&mut self) -> Result<(), CloseReason> {
        if !self.input.is_empty() || self.lease.is_taken() {
            return Ok(());
        }
        let metrics = &*self.client.metrics;
        let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
        self.client.session.on_drain(&io).map_or(Ok(()), |_| Err(CloseReason::Drained))
    }

    /// The listener ends the connection.
    #[cold]
    fn ended(&mut self, reason: CloseReason) -> CloseReason {
        if Session::is_between_replies(self.lease.state()) {
            shutdown(&self.output);
        }
        reason
    }

    #[cold]
    fn over(&self, end: &End) -> CloseReason {
        match end {
            End::Terminated => CloseReason::ClientClosed,
            End::Violation(violation) => self.connection.violated(violation),
            End::ServerLost => CloseReason::of_upstream(end.reason()),
            End::Refused(_) | End::TimedOut(_) | End::ParametersRefused => CloseReason::Ended(end.reason()),
        }
    }
}

/// Deadlines.
impl Life<'_> {
    fn arm(&mut self, deadline: &Deadline) {
        self.stalled = match self.stalled {
            _ if !self.output.is_congested() => None,
            Some((since, progress)) if progress == self.output.progress() => Some((since, progress)),
            _ => Some((turn::now(), self.output.progress())),
        };
        let due = self.due();
        if self.armed != Some(due) {
            self.armed = Some(due);
            deadline.set(due);
        }
    }

    fn due(&self) -> Time {
        let mut due = self.client.session.deadline(self.lease.state());
        if let Some((since, _)) = self.stalled {
            due = due.min(since.saturating_add(limits::WRITE_IDLE_TIMEOUT));
        }
        if self.connection.service.sessions.drain_state() == Drain::Gentle && !self.lease.is_taken() {
            due = due.min(self.active.saturating_add(DRAIN_GAP));
        }
        due
    }

    #[cold]
    fn on_overdue(&mut self) -> Result<(), CloseReason> {
        self.armed = None;
        let now = turn::now();
        if self.stalled.is_some_and(|(since, _)| now >= since.saturating_add(limits::WRITE_IDLE_TIMEOUT)) {
            let violation = Violation::rule("slow_reader", Culprit::Client, "the client takes no replies");
            return Err(self.connection.violated(&violation));
        }
        if self.connection.service.sessions.drain_state() == Drain::Gentle
            && now >= self.active.saturating_add(DRAIN_GAP)
        {
            self.drain()?;
        }
        let metrics = &*self.client.metrics;
        let end = match &mut self.lease.server {
            Some(server) => {
                let (stream, state) = server.parts();
                let server = Some(&stream.output);
                let io = Surroundings { client: &self.output, server, metrics, feed: &self.client.feed };
                self.client.session.on_deadline(Some(state), &io)
            }
            None => {
                let io = Surroundings { client: &self.output, server: None, metrics, feed: &self.client.feed };
                self.client.session.on_deadline(None, &io)
            }
        };
        end.map_or(Ok(()), |end| Err(self.over(&end)))
    }

    /// Charges the bytes that the session has left to the byte budget of the process.
    fn charge(&mut self) {
        let held = self.input.capacity() + self.client.feed.bytes();
        let charged = if held < CHARGED_BYTES_MIN { 0 } else { held };
        if charged != self.charged && self.connection.handle.account().charge(self.charged, charged) {
            self.charged = charged;
        }
    }
}
