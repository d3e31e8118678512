//! The floor of the comparison: the least that a relay with sockets in user space can cost.
//!
//! One thread, one connection to the server for all clients. A turn takes requests from every client that is ready,
//! gives every reply that has come to the client that waits for it, and passes the requests on in one write. Before it
//! asks the kernel again it pauses while replies are due, so that more of them come together.
//!
//! It is a measure and no gateway. Replies are paired with clients by their order alone: a command that has another
//! number of replies than one, or leaves state behind on the connection (SUBSCRIBE, MULTI, SELECT, HELLO), would mix up
//! the clients. There is no policy, no telemetry and no limit: what a slow peer does not take is kept in memory.
//!
//! For protocols whose replies are not pipelined there is a second way, [`Way::Pairs`]: a connection to the server per client.

mod pairs;
mod peer;
mod split;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use peer::{Peer, Read};
use split::{Speaker, Splitter};

/// Pause of a turn while replies are due, by default.
pub const PAUSE: Duration = Duration::from_micros(200);

/// Connections that may wait to be accepted: those of the largest row arrive at once.
const BACKLOG: i32 = 1024;
/// Events of one turn.
const EVENTS: usize = 1024;
/// Room for one read from a client.
const REQUEST_BYTES: usize = 64 << 10;
/// Room for one read from the server: several large replies.
const REPLY_BYTES: usize = 256 << 10;

const LISTENER: u64 = 0;
const ORIGIN: u64 = 1;
/// A client's token is its slot plus this.
const FIRST_CLIENT: u64 = 2;

/// How clients and connections to the server belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One connection for all clients of Redis, with a pause of each turn while replies are due.
    Shared {
        /// How long.
        pause: Duration,
    },
    /// One for each client, whatever it speaks.
    Pairs,
}

/// Relays between the port `listen` of loopback and `origin` until the server's connection ends, which is an error.
///
/// # Errors
/// Always, at the end: it cannot listen or accept, or the server is gone.
pub fn run(listen: u16, origin: SocketAddr, way: Way) -> Result<()> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, listen));
    let listener = bound.with_context(|| format!("cannot listen on 127.0.0.1:{listen}"))?;
    match way {
        Way::Pairs => pairs::run(listener, origin),
        Way::Shared { pause } => {
            let mut relay = Relay::new(listener, origin, pause)?;
            loop {
                relay.turn()?;
            }
        }
    }
}

/// A connected client.
struct Client {
    /// Never given twice, unlike a slot.
    id: u64,
    peer: Peer,
    splitter: Splitter,
    /// The start of a request that is not whole yet.
    partial: Vec<u8>,
    /// Replies of this turn, as they lie in the relay's buffer.
    replies: Range<usize>,
    /// Whether it stands in the list of those to be written to.
    is_due: bool,
}

/// A waiter for a reply.
struct Ticket {
    slot: usize,
    id: u64,
}

struct Relay {
    epoll: OwnedFd,
    listener: TcpListener,
    origin: Peer,
    pause: Duration,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    ids: u64,
    /// In the order of their requests.
    waiting: VecDeque<Ticket>,
    /// Slots that are to be written to at the end of the turn.
    due: Vec<usize>,
    events: Vec<Event>,
    /// The bytes that a client just sent.
    input: Vec<u8>,
    /// Whole requests of this turn.
    requests: Vec<u8>,
    /// Bytes from the server; an incomplete reply at their end is kept for the next turn.
    replies: Vec<u8>,
    splitter: Splitter,
}

impl Relay {
    fn new(listener: TcpListener, origin: SocketAddr, pause: Duration) -> Result<Self> {
        // Short sleeps then end on time. Weir's workers do the same.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let origin = TcpStream::connect(origin).context("cannot connect to the server")?;
        let origin = Peer::new(&epoll, origin, ORIGIN)?;
        listener.set_nonblocking(true)?;
        // A second call only changes the length of the queue; the standard library's is too short for the largest row.
        rustix::net::listen(&listener, BACKLOG)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            epoll,
            listener,
            origin,
            pause,
            clients: Vec::new(),
            free: Vec::new(),
            ids: 0,
            waiting: VecDeque::new(),
            due: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            input: Vec::with_capacity(REQUEST_BYTES),
            requests: Vec::new(),
            replies: Vec::new(),
            splitter: Splitter::new(Speaker::Server),
        })
    }

    /// Waits for events and deals with them. Fails if the server is gone or sends what is no reply.
    fn turn(&mut self) -> Result<()> {
        if !self.waiting.is_empty() && !self.pause.is_zero() {
            thread::sleep(self.pause);
        }
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut taken = 0;
        for index in 0..self.events.len() {
            let Event { flags, data, .. } = self.events[index];
            match data.u64() {
                LISTENER => self.accept()?,
                // Room for writing alone is used at the end of the turn.
                ORIGIN if flags == EventFlags::OUT => {}
                ORIGIN => taken = self.take_replies()?,
                token => {
                    let slot = usize::try_from(token - FIRST_CLIENT)?;
                    if flags.contains(EventFlags::OUT) {
                        self.mark_due(slot);
                    }
                    if flags != EventFlags::OUT && self.take_requests(slot).is_err() {
                        self.close(slot);
                    }
                }
            }
        }
        self.give_replies(taken);
        self.origin.flush(&self.epoll, &self.requests).context("the server is gone")?;
        self.requests.clear();
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("cannot accept"),
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.clients.push(None);
                self.clients.len() - 1
            });
            self.ids += 1;
            self.clients[slot] = Some(Client {
                id: self.ids,
                peer: Peer::new(&self.epoll, socket, slot as u64 + FIRST_CLIENT)?,
                splitter: Splitter::new(Speaker::Client),
                partial: Vec::new(),
                replies: 0..0,
                is_due: false,
            });
        }
    }

    /// Ends a connection; replies that are still due to it will be dropped.
    fn close(&mut self, slot: usize) {
        // Dropping the socket takes it out of epoll as well.
        if self.clients[slot].take().is_some() {
            self.free.push(slot);
        }
    }

    /// Fails if the client is gone or breaks the protocol: it is to be closed then.
    fn take_requests(&mut self, slot: usize) -> Result<()> {
        // Closed earlier in this turn.
        let Some(client) = &mut self.clients[slot] else { return Ok(()) };
        self.input.clear();
        match client.peer.read(&mut self.input)? {
            Read::Bytes(_) => {}
            Read::Nothing => return Ok(()),
            Read::End => bail!("closed by the client"),
        }
        let has_partial = !client.partial.is_empty();
        if has_partial {
            client.partial.extend_from_slice(&self.input);
        }
        let bytes = if has_partial { &client.partial } else { &self.input };
        let mut whole = 0;
        let split = loop {
            match client.splitter.next(&bytes[whole..]) {
                Ok(Some(length)) => {
                    whole += length;
                    self.waiting.push_back(Ticket { slot, id: client.id });
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // The requests counted above are sent even if an error follows them.
        self.requests.extend_from_slice(&bytes[..whole]);
        if has_partial {
            client.partial.drain(..whole);
        } else {
            client.partial.extend_from_slice(&self.input[whole..]);
        }
        split
    }

    /// Reads once from the server and notes who gets which bytes of the buffer. Returns the bytes of whole replies.
    fn take_replies(&mut self) -> Result<usize> {
        self.replies.reserve(REPLY_BYTES);
        match self.origin.read(&mut self.replies).context("the server is gone")? {
            Read::Bytes(_) => {}
            Read::Nothing => return Ok(0),
            Read::End => bail!("the server closed the connection"),
        }
        let mut start = 0;
        while let Some(length) = self.splitter.next(&self.replies[start..]).context("from the server")? {
            let ticket = self.waiting.pop_front().context("a reply without a request")?;
            let reply = start..start + length;
            start += length;
            let Some(client) = self.clients[ticket.slot].as_mut().filter(|client| client.id == ticket.id) else {
                continue;
            };
            if client.replies.end == reply.start && !client.replies.is_empty() {
                client.replies.end = reply.end;
            } else {
                // Those that do not lie side by side are put together first: one write per client and turn.
                client.peer.keep(&self.replies[client.replies.clone()]);
                client.replies = reply;
            }
            self.mark_due(ticket.slot);
        }
        Ok(start)
    }

    fn mark_due(&mut self, slot: usize) {
        if let Some(client) = &mut self.clients[slot]
            && !client.is_due
        {
            client.is_due = true;
            self.due.push(slot);
        }
    }

    /// Writes to every client that something is there for, then forgets the first `taken` bytes of the buffer.
    fn give_replies(&mut self, taken: usize) {
        let mut due = std::mem::take(&mut self.due);
        for slot in due.drain(..) {
            let Some(client) = &mut self.clients[slot] else { continue };
            client.is_due = false;
            let replies = std::mem::replace(&mut client.replies, 0..0);
            if client.peer.flush(&self.epoll, &self.replies[replies]).is_err() {
                self.close(slot);
            }
        }
        self.due = due;
        self.replies.drain(..taken);
    }
}

#[cfg(test)]
mod tests;
