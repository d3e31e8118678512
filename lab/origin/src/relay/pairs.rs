//! The second way: every client has a connection to the server of its own, and bytes are bytes.
//!
//! It is what a gateway for HTTP/1.1 cannot do without: one receive and one send in each direction for a small exchange.

use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::peer::{Peer, Read};
use super::{BACKLOG, EVENTS, REPLY_BYTES};

/// Token of the listener. The client of a pair has an even token, and its connection to the server the odd one after it.
const LISTENER: u64 = u64::MAX;

/// Relays until it cannot accept any more, which is an error.
pub(super) fn run(listener: TcpListener, origin: SocketAddr) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    listener.set_nonblocking(true)?;
    // As in the other way, only for the length of the queue.
    rustix::net::listen(&listener, BACKLOG)?;
    epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut relay = Relay { epoll, listener, origin, sides: Vec::new(), free: Vec::new() };
    let (mut events, mut buffer) = (Vec::<Event>::with_capacity(EVENTS), Vec::with_capacity(REPLY_BYTES));
    loop {
        events.clear();
        match epoll::wait(&relay.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Numbers of pairs that end in this turn are reused in the next one: an event of this one means the old pair.
        let mut ended = Vec::new();
        for &Event { flags, data, .. } in &events {
            if data.u64() == LISTENER {
                relay.accept()?;
                continue;
            }
            let side = usize::try_from(data.u64())?;
            if relay.carry(side, flags, &mut buffer).is_none() && relay.sides[side].is_some() {
                relay.sides[side] = None;
                relay.sides[side ^ 1] = None;
                ended.push(side & !1);
            }
        }
        relay.free.append(&mut ended);
    }
}

struct Relay {
    epoll: OwnedFd,
    listener: TcpListener,
    origin: SocketAddr,
    sides: Vec<Option<Peer>>,
    /// Even places whose pair has ended.
    free: Vec<usize>,
}

impl Relay {
    fn accept(&mut self) -> Result<()> {
        loop {
            let client = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error).context("cannot accept"),
            };
            let server = TcpStream::connect(self.origin).context("cannot connect to the server")?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.sides.extend([None, None]);
                self.sides.len() - 2
            });
            self.sides[place] = Some(Peer::new(&self.epoll, client, place as u64)?);
            self.sides[place + 1] = Some(Peer::new(&self.epoll, server, place as u64 + 1)?);
        }
    }

    /// Forwards the bytes of `side` to the other side. `None`: the pair ends, or has ended.
    fn carry(&mut self, side: usize, flags: EventFlags, buffer: &mut Vec<u8>) -> Option<()> {
        if flags.contains(EventFlags::OUT) {
            self.sides[side].as_mut()?.flush(&self.epoll, &[]).ok()?;
        }
        if flags == EventFlags::OUT {
            return Some(());
        }
        buffer.clear();
        match self.sides[side].as_ref()?.read(buffer).ok()? {
            Read::Bytes(_) => self.sides[side ^ 1].as_mut()?.flush(&self.epoll, buffer).ok(),
            Read::Nothing => Some(()),
            Read::End => None,
        }
    }
}
