//! The input side of a connection.

use std::{
    future::poll_fn,
    io,
    os::fd::AsRawFd,
    rc::Rc,
    task::{Context, Poll, ready},
};

use compio::{
    driver::SharedFd,
    runtime::{Runtime, fd::PollFd},
};
use socket2::Socket;

use crate::{
    chunk::{Chunk, SPARE_BYTES, Spare},
    output::Output,
    receive::{RingReceive, receive_now},
    stream::TlsLink,
};

enum Source {
    Ring(RingReceive),
    /// Readiness, then a direct receive into a spare buffer: an idle connection holds none.
    Polling {
        socket: PollFd<Socket>,
        is_ready: bool,
    },
}

/// Receives the chunks of one connection, in order, on one task.
///
/// Dropping a future of [`Reader::receive`] loses nothing: the operation in flight belongs to the reader.
pub struct Reader {
    source: Source,
    link: Rc<TlsLink>,
    output: Output,
    /// Received already: bytes behind a PROXY header, or plaintext that came with the end of the handshake.
    unread: Option<Chunk>,
    is_eof: bool,
}

impl Reader {
    pub(crate) fn new(socket: SharedFd<Socket>, output: Output, link: Rc<TlsLink>) -> io::Result<Self> {
        let source = if Runtime::with_current(|runtime| runtime.driver_type().is_iouring()) {
            Source::Ring(RingReceive::new(socket))
        } else {
            Source::Polling { socket: PollFd::from_shared_fd(socket)?, is_ready: true }
        };
        Ok(Self { source, link, output, unread: None, is_eof: false })
    }

    /// The next chunk; `None` once the peer has closed its write side.
    ///
    /// # Errors
    /// A reset connection, or a TLS violation.
    pub async fn receive(&mut self) -> io::Result<Option<Chunk>> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// See [`Reader::receive`].
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        if let Some(chunk) = self.unread.take() {
            return Poll::Ready(Ok(Some(chunk)));
        }
        while !self.is_eof {
            match ready!(self.source.poll(context))? {
                None => self.is_eof = true,
                Some(chunk) if !self.link.is_tls() => return Poll::Ready(Ok(Some(chunk))),
                Some(mut chunk) => {
                    if let Some(plain) = self.decrypt(&mut chunk)? {
                        return Poll::Ready(Ok(Some(plain)));
                    }
                }
            }
        }
        Poll::Ready(Ok(None))
    }

    /// Ready once the TLS handshake is complete; at once without TLS.
    ///
    /// # Errors
    /// The peer left, or a TLS violation (its alert is on its way).
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.link.is_handshaking() {
            let Some(mut chunk) = ready!(self.source.poll(context))? else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            };
            self.unread = self.decrypt(&mut chunk)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Puts `bytes` back in front: they were read by a layer below. At most once before the next receive.
    ///
    /// # Errors
    /// A TLS violation in them, if TLS has begun.
    pub fn unread(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut spare = Spare::take();
        spare.vec().extend_from_slice(bytes);
        let mut chunk = Chunk::Spare(spare);
        self.unread = if self.link.is_tls() { self.decrypt(&mut chunk)? } else { Some(chunk) };
        Ok(())
    }

    fn decrypt(&mut self, chunk: &mut Chunk) -> io::Result<Option<Chunk>> {
        let mut plain = Spare::take();
        let is_open = self.link.open(chunk, plain.vec(), &self.output)?;
        self.is_eof = !is_open;
        Ok(if plain.vec().is_empty() { None } else { Some(Chunk::Spare(plain)) })
    }

    /// Call it instead of receiving while no more is wanted, so that what was already under way holds no buffer that all
    /// connections of the core share.
    pub fn poll_idle(&mut self, context: &mut Context<'_>) {
        if let Source::Ring(receive) = &mut self.source {
            receive.poll_idle(context);
        }
    }
}

impl Source {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        match self {
            Source::Ring(receive) => receive.poll(context),
            Source::Polling { socket, is_ready } => poll_readiness(socket, is_ready, context),
        }
    }
}

fn poll_readiness(
    socket: &PollFd<Socket>,
    is_ready: &mut bool,
    context: &mut Context<'_>,
) -> Poll<io::Result<Option<Chunk>>> {
    loop {
        if !*is_ready {
            ready!(socket.poll_read_ready(context))?;
        }
        let mut spare = Spare::take();
        match receive_now(socket.as_raw_fd(), spare.vec()) {
            Ok(0) => return Poll::Ready(Ok(None)),
            Ok(count) => {
                *is_ready = count >= SPARE_BYTES;
                return Poll::Ready(Ok(Some(Chunk::Spare(spare))));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *is_ready = false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}
