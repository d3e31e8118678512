//! A UDP socket of one worker, with the same direct calls and the same readiness as its streams.
//!
//! The protocol on top defines a flow, and decides the fate of a datagram that finds no room: the socket keeps
//! the bounds of datagrams and their senders, and no more.

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    rc::Rc,
    task::{Context, Poll},
};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::{chunk::Chunk, socket::DataSocket};

/// A UDP socket, registered with its worker until it is dropped.
pub struct Datagrams(Rc<DataSocket>);

impl Datagrams {
    /// A socket of the calling worker at `address`. It gets `SO_REUSEPORT`: each worker has one of its own, and the kernel gives the
    /// datagrams of one sender always to the same.
    ///
    /// # Errors
    /// As `bind(2)`.
    ///
    /// # Panics
    /// Outside a worker thread.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        DataSocket::new(socket).map(Self)
    }

    /// The address that it is bound to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.local_address()
    }

    /// The next datagram and its sender.
    ///
    /// The datagram is in a buffer of 64 KiB: copy it where it must wait.
    ///
    /// # Errors
    /// The kernel has no memory for it; the socket goes on.
    pub fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<(Chunk, SocketAddr)>> {
        self.0.poll_receive_from(context)
    }

    /// See [`Datagrams::poll_receive`].
    ///
    /// # Errors
    /// The same.
    pub async fn receive(&self) -> io::Result<(Chunk, SocketAddr)> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// Sends one datagram. False: the socket has no room for it now, and it is dropped, as the network may do anyway.
    ///
    /// # Errors
    /// The datagram is too long, or its address cannot be reached from here.
    pub fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<bool> {
        self.0.send_to(bytes, &SockAddr::from(to))
    }
}
