//! The session of a client: events in, their order, its deadlines, and its end.

use std::{
    future::{Future, poll_fn},
    io,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use futures_util::FutureExt as _;
use weir_base::{
    exchange::LossCause,
    time::{Time, turn},
    violation::Violation,
};
use weir_engine::{Account as _, Chunk, Deadline, Output, PeerWatch, Stream, note_reply_time};
use weir_listener::{CloseReason, ConnectionHandle, Drain, login::Waiting};
use weir_mongodb_codec::{compressed::Compressor, header::Header, sections::SectionFramer};
use weir_mongodb_session::{Session, Want, face::Face, login::Peer};
use weir_sasl::ScramKeys;

use super::{
    Connection,
    deadlines::Stall,
    lease::{Lease, Link, NoServer},
    surroundings::{Scene, Tally},
};
use crate::upstream::MongodbUpstream;

/// Chunks of one client and its server that are worked on before other tasks get their turn.
const CHUNKS_PER_TURN_MAX: u32 = 8;
/// Below this the bytes that a client has here are not charged to the byte budget: most requests fit.
const CHARGED_BYTES_MIN: usize = 4 * 1024;

/// The place of a client in its exchange.
pub(super) enum Stage<'a> {
    /// The next message comes, or its first part.
    Request,
    /// The first message waits until a server has been found.
    Unpresented,
    /// A hello waits for a change.
    Awaiting,
    /// Keys are made of a password in clear text.
    Deriving(Pin<Box<dyn Future<Output = ScramKeys> + 'a>>),
    /// A login waits behind wrong passwords of its address.
    Punished(Time, #[expect(dead_code, reason = "its drop gives the place up")] Option<Waiting<'a>>),
    /// The reply to a wrong password waits, and with the last one the end.
    Answering(Time, Vec<u8>, Option<Violation>),
    /// A server is on its way.
    Routed(Routed),
    /// The rest of a long request goes to the server as it comes.
    Sending(Box<Sending>),
    /// The server replies.
    Replying,
    /// A request without a reply has gone. The gateway's ping behind it shows when the connection is free.
    Flushing,
    /// A server answers a part of a login.
    Relaying,
    /// So many bytes of a message are of no use.
    Skipping(usize),
}

/// A request that waits for a server.
pub(super) struct Routed {
    pub(super) header: Header,
    /// It was inflated, and does not stand at the front of the input.
    pub(super) packed: Option<Compressor>,
    pub(super) want: Want,
}

/// A request that is on its way, and not here whole.
pub(super) struct Sending {
    pub(super) left: usize,
    pub(super) sections: SectionFramer,
}

/// An event of a session.
enum Event {
    Ended(CloseReason),
    Woken,
    Client(io::Result<Option<Chunk>>),
    Server(io::Result<Option<Chunk>>),
    Acquired(Result<Link, NoServer>),
    Keys(ScramKeys),
    /// The client is gone while it waits.
    Gone,
    /// The idle connection of the client's own to a server has ended.
    OwnLost,
    /// The output has room again.
    Relieved,
    Overdue,
}

/// A client that waits for a server or its reply, counted until it is dropped: a panic gives its counts back.
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

/// A client's session, its server and its buffers.
pub(super) struct Life<'a> {
    pub(super) connection: &'a Rc<Connection>,
    pub(super) scene: Scene,
    pub(super) session: Session,
    pub(super) upstream: Rc<MongodbUpstream>,
    pub(super) output: Output,
    /// Bytes of the client that wait.
    pub(super) input: Vec<u8>,
    /// An inflated request that waits for a server, and the same as it came.
    pub(super) inflated: Vec<u8>,
    pub(super) packed: Vec<u8>,
    /// Replies of the gateway's own, before they are in the output. Empty between two calls.
    pub(super) own: Vec<u8>,
    pub(super) stage: Stage<'a>,
    pub(super) lease: Lease,
    /// The present login has waited behind wrong passwords, or need not.
    pub(super) has_waited: bool,
    /// Since when the client logs in. `None`: it does not, or it has done so.
    pub(super) login_since: Option<Time>,
    /// The login is known to operators.
    pub(super) is_shown: bool,
    /// The client has described itself.
    pub(super) is_described: bool,
    /// The listener has another upstream, to which the client moves behind its exchange.
    pub(super) is_outdated: bool,
    /// The request of now wants no reply.
    pub(super) is_unacknowledged: bool,
    /// Since when the client is gone whose writes without a reply go on.
    pub(super) gone_since: Option<Time>,
    /// Since when a message is here in part.
    pub(super) partial_since: Option<Time>,
    pub(super) begun: Time,
    pub(super) active: Time,
    charged: usize,
    watch: PeerWatch,
    /// The client takes too little.
    pub(super) stalled: Option<Stall>,
    /// The rest of a reply was taken in front of the client.
    pub(super) has_rest: bool,
    /// The next request, or a hello that is due, waits until the client has taken the replies before it.
    pub(super) is_held_back: bool,
    streak: u32,
    /// The deadline as it is set. `None`: it has passed, and is set once more.
    pub(super) armed: Option<Time>,
    busy: Option<Busy<'a>>,
}

/// The session of a client until it ends.
pub(super) async fn live(connection: &Rc<Connection>, stream: &mut Stream, peer: Peer) -> CloseReason {
    // In a box: a future keeps room for each value that it has moved.
    let mut life = Life::new(connection, stream, peer);
    match AssertUnwindSafe(life.run(stream)).catch_unwind().await {
        Ok(reason) => {
            life.leave();
            reason
        }
        Err(panic) => {
            // No pin of all clients may stay in use.
            life.session.on_gone(false, &life.scene.io(None));
            resume_unwind(panic)
        }
    }
}

impl<'a> Life<'a> {
    fn new(connection: &'a Rc<Connection>, stream: &Stream, peer: Peer) -> Box<Self> {
        let service = connection.service.clone();
        let (settings, policy, upstream) = (service.settings(), service.policy(), service.upstream());
        *connection.upstream.borrow_mut() = Some(upstream.clone());
        connection.handle.entry().details().upstream = upstream.name().to_string();
        let session = Session::new(peer, policy, settings.connection_pins);
        let presented = service.presentation();
        Box::new(Self {
            connection,
            scene: Scene {
                service,
                settings,
                connection: Rc::downgrade(connection),
                entry: connection.handle.entry().clone(),
                presented,
                tally: Tally::default().into(),
            },
            session,
            upstream,
            output: stream.output.clone(),
            input: Vec::new(),
            inflated: Vec::new(),
            packed: Vec::new(),
            own: Vec::new(),
            stage: Stage::Request,
            lease: Lease::default(),
            has_waited: false,
            login_since: None,
            is_shown: false,
            is_described: false,
            is_outdated: false,
            is_unacknowledged: false,
            gone_since: None,
            partial_since: None,
            begun: turn::now(),
            active: turn::now(),
            charged: 0,
            watch: stream.reader.peer_watch(),
            stalled: None,
            has_rest: false,
            is_held_back: false,
            streak: 0,
            armed: Some(Time::NEVER),
            busy: None,
        })
    }
}

impl Life<'_> {
    async fn run(&mut self, stream: &mut Stream) -> CloseReason {
        let due = weir_engine::deadline();
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
        // One that is gone while it waits gets no server: its request would overtake those of its next connection.
        if matches!(self.stage, Stage::Routed(_)) && self.is_gone(context) {
            return Poll::Ready(Event::Gone);
        }
        // The client takes nothing: no more is taken from either side.
        let has_room = self.output.poll_relieved(context).is_ready();
        if has_room && std::mem::take(&mut self.is_held_back) {
            return Poll::Ready(Event::Relieved);
        }
        let takes_rest = !has_room && self.may_take_rest();
        self.has_rest |= takes_rest;
        if let Some(event) = self.poll_server(context, has_room || takes_rest) {
            return Poll::Ready(event);
        }
        let reads_client = match &self.stage {
            Stage::Request | Stage::Skipping(_) => has_room,
            Stage::Sending(_) => self.lease.poll_relieved(context),
            _ => false,
        };
        if reads_client {
            if let Poll::Ready(received) = stream.reader.poll_receive(context) {
                self.streak += 1;
                return Poll::Ready(Event::Client(received));
            }
        } else if self.is_gone(context) {
            return Poll::Ready(Event::Gone);
        }
        self.streak = 0;
        if self.armed != Some(Time::NEVER) && due.poll_expired(context).is_ready() {
            return Poll::Ready(Event::Overdue);
        }
        Poll::Pending
    }

    /// The client has left, and nothing of it is wanted any more. One that wants no replies may close as soon as it has written: a server
    /// would do all of it.
    fn is_gone(&mut self, context: &mut Context<'_>) -> bool {
        let has_ended = self.watch.poll_ended(context).is_ready();
        let is_wanted = match &self.stage {
            Stage::Routed(_) | Stage::Sending(_) | Stage::Flushing => self.is_unacknowledged,
            // Its output is congested. Such a write may be in the part that is not read yet.
            Stage::Request | Stage::Skipping(_) => true,
            _ => false,
        };
        if !has_ended || !is_wanted {
            return has_ended;
        }
        if self.gone_since.is_none() {
            self.gone_since = Some(turn::now());
            // Its time is bounded from now on.
            context.waker().wake_by_ref();
        }
        self.watch.poll_broken(context).is_ready()
    }

    /// The client has left, by the knowledge of the kernel: the last look at all sockets may be older.
    pub(super) fn has_left(&self) -> bool {
        self.watch.has_ended_now()
    }

    /// Events of the servers, and of other threads. `takes_reply`: more of a reply may come.
    fn poll_server(&mut self, context: &mut Context<'_>, takes_reply: bool) -> Option<Event> {
        match &mut self.stage {
            Stage::Replying | Stage::Sending(_) | Stage::Relaying | Stage::Flushing if self.lease.server.is_some() => {
                // A reply within a request is a mistake, and shows that the connection is over.
                if (takes_reply || !matches!(self.stage, Stage::Replying))
                    && let Poll::Ready(received) = self.lease.poll_receive(context)
                {
                    self.streak += 1;
                    return Some(Event::Server(received));
                }
                None
            }
            Stage::Routed(_) | Stage::Relaying => {
                let acquiring = self.lease.acquiring.as_mut()?;
                match acquiring.as_mut().poll(context) {
                    Poll::Ready(acquired) => Some(Event::Acquired(acquired)),
                    Poll::Pending => None,
                }
            }
            Stage::Deriving(keys) => match keys.as_mut().poll(context) {
                Poll::Ready(keys) => Some(Event::Keys(keys)),
                Poll::Pending => None,
            },
            Stage::Request => self.lease.poll_own_lost(context).then_some(Event::OwnLost),
            _ => None,
        }
    }

    fn on_event(&mut self, event: Event) -> Result<(), CloseReason> {
        match event {
            Event::Ended(reason) => return Err(reason),
            Event::Woken => self.on_woken()?,
            Event::Client(Ok(Some(chunk))) => self.on_chunk(&chunk)?,
            Event::Client(Ok(None)) | Event::Gone => return Err(CloseReason::ClientClosed),
            Event::Client(Err(_)) => return Err(CloseReason::ClientReset),
            Event::Server(Ok(Some(chunk))) => self.on_server_bytes(&chunk)?,
            Event::Server(Ok(None) | Err(_)) => self.on_server_lost()?,
            Event::Acquired(Ok(server)) => self.on_acquired(server)?,
            Event::Acquired(Err(error)) => self.on_acquire_failed(&error)?,
            Event::Keys(keys) => self.on_keys(&keys)?,
            Event::OwnLost => {
                if let Some(own) = &mut self.lease.own {
                    own.counted.ends_by(LossCause::Closed);
                }
                return Err(CloseReason::of_upstream("mongodb_server_lost"));
            }
            Event::Relieved if matches!(self.stage, Stage::Awaiting) => self.on_hello_due()?,
            Event::Relieved => self.go_on()?,
            Event::Overdue => self.on_overdue()?,
        }
        let cleanups = self.session.cleanups();
        if !cleanups.is_empty() {
            self.scene.service.clean(&self.upstream, cleanups);
        }
        if self.is_outdated {
            self.follow_upstream();
        }
        self.note_busy();
        self.check_unknown()?;
        if !self.charge() {
            self.scene.service.metrics.shed("buffered_bytes");
            return Err(CloseReason::Ended("buffered_bytes"));
        }
        if self.connection.service.sessions.drain_state() == Drain::Firm && self.is_idle(true) {
            return Err(CloseReason::Drained);
        }
        Ok(())
    }

    /// Counts the client among those that wait for a server or its reply, or no longer.
    #[inline]
    fn note_busy(&mut self) {
        let is_busy = matches!(
            self.stage,
            Stage::Routed(_) | Stage::Sending(_) | Stage::Replying | Stage::Flushing | Stage::Relaying
        );
        if self.busy.is_some() == is_busy {
            return;
        }
        if let Some(busy) = &self.busy {
            note_reply_time(turn::now().since(busy.since));
        }
        self.busy = is_busy.then(|| Busy::new(self.connection));
    }

    /// Nothing of the client is under way. Its cursors and transactions count as well, unless the drain is firm: then they are given back
    /// while there is time.
    pub(super) fn is_idle(&self, is_firm: bool) -> bool {
        let is_between = matches!(self.stage, Stage::Request | Stage::Awaiting) && self.input.is_empty();
        if !is_between || is_firm {
            return is_between;
        }
        if self.session.face() == Some(Face::LoadBalancer) {
            return !self.session.has_pins();
        }
        self.session.face().is_none()
            || !self.scene.service.shared.with_pins(|pins| pins.has_any(&self.session.login().user().cloned()))
    }

    #[cold]
    fn on_woken(&mut self) -> Result<(), CloseReason> {
        let service = self.scene.service.clone();
        self.scene.settings = service.settings();
        self.scene.presented = service.presentation();
        self.follow_upstream();
        match &self.stage {
            Stage::Awaiting => self.on_hello_due()?,
            Stage::Unpresented if self.scene.presented.is_some() => {
                self.stage = Stage::Request;
                self.go_on()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A reload may have given the listener another upstream. The client moves there between two exchanges, and with a request that waits for a
    /// server. Its cursors and transactions stay where they are if the new upstream has their servers, and are given back otherwise.
    pub(super) fn follow_upstream(&mut self) {
        let now = self.scene.service.upstream();
        let is_free = matches!(self.stage, Stage::Request | Stage::Awaiting | Stage::Unpresented | Stage::Routed(_));
        let is_other = !Rc::ptr_eq(&now, &self.upstream) && !self.lease.has_own();
        let was_outdated = std::mem::replace(&mut self.is_outdated, is_other && !is_free);
        if is_other && is_free {
            *self.connection.upstream.borrow_mut() = Some(now.clone());
            self.connection.handle.entry().details().upstream = now.name().to_string();
            let before = std::mem::replace(&mut self.upstream, now);
            // Those that clients share are given back by the service.
            before.left_for(&self.upstream).into_iter().for_each(|server| self.session.leave_server(server));
            let cleanups = self.session.cleanups();
            self.scene.service.clean(&before, cleanups);
            if was_outdated {
                // The exchange that was under way may have opened one of those that clients share.
                self.scene.service.leave(&before);
            }
            if let Stage::Routed(Routed { want, .. }) = self.stage {
                self.await_server(want, None);
            }
        }
    }

    /// A hello that waits is answered if its time has come or there is a change. A client that does not take the replies of a stream gets no
    /// more of them.
    pub(super) fn on_hello_due(&mut self) -> Result<(), CloseReason> {
        self.is_held_back = self.output.is_congested();
        if self.is_held_back {
            return Ok(());
        }
        self.session.on_time(&self.scene.io(None), &mut self.own);
        self.after_awaited()
    }

    /// A hello that waits may have been answered, and the next request may be there.
    fn after_awaited(&mut self) -> Result<(), CloseReason> {
        self.give_own();
        if !self.session.is_awaiting() {
            self.stage = Stage::Request;
            self.active = turn::now();
            return self.go_on();
        }
        Ok(())
    }

    /// Moves replies of the gateway's own into the output.
    #[inline]
    pub(super) fn give_own(&mut self) {
        if !self.own.is_empty() {
            self.output.append(&self.own);
            // An idle client keeps none.
            self.own = Vec::new();
        }
    }
}

impl Life<'_> {
    /// Charges the bytes that a client has here to the byte budget of the process; false: there is no room.
    pub(super) fn charge(&mut self) -> bool {
        let held =
            self.input.capacity() + self.inflated.capacity() + self.packed.capacity() + self.lease.replies.held_bytes();
        let charged = if held < CHARGED_BYTES_MIN { 0 } else { held };
        if charged == self.charged {
            return true;
        }
        let has_room = self.connection.handle.account().charge(self.charged, charged);
        if has_room {
            self.charged = charged;
        }
        has_room
    }
}

/// The byte budget has room for so many bytes more.
pub(super) fn has_room_for(handle: &ConnectionHandle, bytes: usize) -> bool {
    let account = handle.account();
    let has_room = account.charge(0, bytes);
    if has_room {
        account.charge(bytes, 0);
    }
    has_room
}
