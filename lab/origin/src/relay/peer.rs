//! A socket of the relay with what waits to be written to it.

use std::net::TcpStream;

use anyhow::Result;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Result of one read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// So many bytes, appended to the buffer.
    Bytes(usize),
    /// Nothing there now.
    Nothing,
    /// The peer closed its side.
    End,
}

/// A connection that is watched by an epoll instance.
pub(super) struct Peer {
    socket: TcpStream,
    token: u64,
    /// Bytes that the socket has not taken yet.
    unsent: Vec<u8>,
    /// Whether epoll reports room for writing too.
    is_write_watched: bool,
}

impl Peer {
    /// Takes a connected socket over and watches it for reading, reported as `token`.
    pub(super) fn new(epoll: &OwnedFd, socket: TcpStream, token: u64) -> Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        epoll::add(epoll, &socket, EventData::new_u64(token), EventFlags::IN)?;
        Ok(Self { socket, token, unsent: Vec::new(), is_write_watched: false })
    }

    /// One read into the spare room of `buffer`, which has some.
    pub(super) fn read(&self, buffer: &mut Vec<u8>) -> Result<Read> {
        match recv(&self.socket, rustix::buffer::spare_capacity(buffer), RecvFlags::empty()) {
            Ok((0, _)) => Ok(Read::End),
            Ok((length, _)) => Ok(Read::Bytes(length)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps bytes for the next [`Self::flush`].
    pub(super) fn keep(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
    }

    /// Writes the kept bytes, then `bytes`, without a copy of them if nothing was kept. Bytes that the socket does not take are
    /// kept, and epoll then reports when there is room again.
    pub(super) fn flush(&mut self, epoll: &OwnedFd, bytes: &[u8]) -> Result<()> {
        if self.unsent.is_empty() {
            let sent = self.write(bytes)?;
            self.unsent.extend_from_slice(&bytes[sent..]);
        } else {
            self.unsent.extend_from_slice(bytes);
            let sent = self.write(&self.unsent)?;
            self.unsent.drain(..sent);
        }
        let wants_write = !self.unsent.is_empty();
        if wants_write != self.is_write_watched {
            let flags = if wants_write { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            epoll::modify(epoll, &self.socket, EventData::new_u64(self.token), flags)?;
            self.is_write_watched = wants_write;
        }
        Ok(())
    }

    /// Writes as much as the socket takes.
    fn write(&self, bytes: &[u8]) -> Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            match send(&self.socket, &bytes[sent..], SendFlags::NOSIGNAL) {
                Ok(length) => sent += length,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }
}
