//! The input side of a connection.

use std::{
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use crate::{
    chunk::{BULK_BYTES, CHUNK_BYTES, Chunk},
    output::Output,
    socket::DataSocket,
    stream::TlsLink,
};

/// Receives the chunks of one connection, in order, on one task.
///
/// Dropping a future of [`Reader::receive`] loses nothing: bytes leave the kernel only when a chunk is handed out. Not
/// receiving is back-pressure.
pub struct Reader {
    pub(crate) socket: Rc<DataSocket>,
    pub(crate) link: Rc<TlsLink>,
    output: Output,
    /// Received already: bytes behind a PROXY header, or plaintext that came with the end of the handshake. In a box: most
    /// connections never have any.
    unread: Option<Box<Chunk>>,
    is_eof: bool,
}

impl Reader {
    pub(crate) fn new(socket: Rc<DataSocket>, output: Output, link: Rc<TlsLink>) -> Self {
        Self { socket, link, output, unread: None, is_eof: false }
    }

    /// The next chunk; `None` once the peer has closed its write side.
    ///
    /// # Errors
    /// A reset connection, or a TLS violation.
    pub async fn receive(&mut self) -> io::Result<Option<Chunk>> {
        poll_fn(|context| self.poll_receive(context)).await
    }

    /// The next chunk of a connection without TLS, of no more than `limit` bytes (1 or more); the others stay in the kernel. Bytes that were
    /// put back come as they are.
    ///
    /// # Errors
    /// A reset connection.
    pub async fn receive_at_most(&mut self, limit: usize) -> io::Result<Option<Chunk>> {
        poll_fn(|context| self.poll_receive_at_most(context, limit)).await
    }

    /// The next chunk of a connection that no task waits for, if the last poll of the worker's sockets found something. See
    /// [`Reader::receive`].
    #[inline]
    pub fn receive_now(&mut self) -> Option<io::Result<Option<Chunk>>> {
        if !self.has_something() {
            return None;
        }
        match self.poll_receive(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(received) => Some(received),
            Poll::Pending => None,
        }
    }

    #[inline]
    fn has_something(&self) -> bool {
        self.unread.is_some() || self.is_eof || self.socket.is_readable()
    }

    /// See [`Reader::receive`].
    #[inline]
    pub fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Chunk>>> {
        // Most polls find nothing.
        if !self.has_something() {
            self.socket.want_readable(context);
            return Poll::Pending;
        }
        let limit = if self.link.is_tls() { CHUNK_BYTES } else { BULK_BYTES };
        self.poll_receive_at_most(context, limit)
    }

    fn poll_receive_at_most(&mut self, context: &mut Context<'_>, limit: usize) -> Poll<io::Result<Option<Chunk>>> {
        let chunk = ready!(self.poll_chunk(context, limit))?;
        if let Some(chunk) = &chunk {
            self.output.tally().received(chunk.len());
        }
        Poll::Ready(Ok(chunk))
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>, limit: usize) -> Poll<io::Result<Option<Chunk>>> {
        if let Some(chunk) = self.unread.take() {
            return Poll::Ready(Ok(Some(*chunk)));
        }
        while !self.is_eof {
            match ready!(self.socket.poll_receive(context, limit))? {
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

    /// The next receive asks the socket, though the last poll of the worker's sockets found nothing on it.
    pub fn expect_more(&self) {
        self.socket.expect_more();
    }

    /// Ready once the TLS handshake is complete; at once without TLS.
    ///
    /// # Errors
    /// The peer left, or a TLS violation (its alert is on its way).
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.link.is_handshaking() {
            let Some(mut chunk) = ready!(self.socket.poll_receive(context, CHUNK_BYTES))? else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            };
            self.unread = self.decrypt(&mut chunk)?.map(Box::new);
        }
        Poll::Ready(Ok(()))
    }

    /// A handle that tells of the peer's end while nothing is received.
    pub fn peer_watch(&self) -> PeerWatch {
        PeerWatch(self.socket.clone())
    }

    /// Bytes were put back, or came with the end of the handshake, and were not received yet.
    pub fn has_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Puts `bytes` back in front: they were read by a layer below. At most once before the next receive.
    ///
    /// # Errors
    /// A TLS violation in them, if TLS has begun.
    pub fn unread(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut chunk = Chunk::take();
        chunk.vec().extend_from_slice(bytes);
        let unread = if self.link.is_tls() { self.decrypt(&mut chunk)? } else { Some(chunk) };
        self.unread = unread.map(Box::new);
        Ok(())
    }

    fn decrypt(&mut self, chunk: &mut Chunk) -> io::Result<Option<Chunk>> {
        let mut plain = Chunk::take();
        let is_open = self.link.open(chunk, plain.vec(), &self.output)?;
        self.is_eof = !is_open;
        Ok(if plain.is_empty() { None } else { Some(plain) })
    }
}

/// Tells when the peer of a connection has left, without receiving: what it sent before may be unread. The kernel tells of a FIN
/// once all before it has arrived, so that of a peer whose last bytes find no room is seen when there is.
///
/// One task waits on the watches of a connection. TLS's close_notify without a FIN is seen by [`Reader::receive`] alone.
#[derive(Clone)]
pub struct PeerWatch(Rc<DataSocket>);

impl PeerWatch {
    /// Ready once the peer has closed its write side (FIN), or the connection is broken (RST).
    pub fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_ended(context)
    }

    /// Ready once the connection is broken.
    pub fn poll_broken(&self, context: &mut Context<'_>) -> Poll<()> {
        self.0.poll_broken(context)
    }

    /// As [`PeerWatch::poll_ended`], by a call of the kernel: the worker may not know of the end yet. For the last moment in front of an act
    /// that a peer which has left must not cause.
    pub fn has_ended_now(&self) -> bool {
        self.0.has_ended_now()
    }
}
