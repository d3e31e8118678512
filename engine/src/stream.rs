//! A connection as two queues: received chunks and an output buffer.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    net::{Shutdown, SocketAddr},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

use socket2::Socket;

use crate::{
    batch::OutgoingBatch,
    output::Output,
    reader::Reader,
    settings::Watermarks,
    socket::DataSocket,
    tls::{PeerIdentity, TlsRole, TlsSession},
    traffic::Traffic,
};

/// The settings of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamOptions {
    /// When the output counts as congested.
    pub marks: Watermarks,
}

/// A connection. Dropping the stream ends both directions.
pub struct Stream {
    /// The input side.
    pub reader: Reader,
    /// The output side.
    pub output: Output,
}

impl Stream {
    /// Bytes of the objects of one stream, while nothing is buffered and it has no TLS.
    pub const IDLE_BYTES: usize = size_of::<Self>() + Output::BYTES + size_of::<DataSocket>() + size_of::<TlsLink>();

    /// Takes over a connected socket. Call it on the worker that will own the connection.
    ///
    /// # Errors
    /// No memory or watches left in the kernel.
    pub fn new(socket: Socket, options: StreamOptions) -> io::Result<Self> {
        let socket = DataSocket::new(socket)?;
        let link = Rc::new(TlsLink::default());
        let output = Output::new(options.marks, socket.clone(), link.clone());
        let reader = Reader::new(socket, output.clone(), link);
        Ok(Self { reader, output })
    }

    /// Puts TLS between the wire and the queues and completes its handshake; `received` are bytes of the peer that were
    /// read before TLS began. The caller bounds the time.
    ///
    /// # Errors
    /// The handshake failed; the alert, if any, was sent.
    pub async fn start_tls(&mut self, mut session: TlsSession, received: &[u8]) -> io::Result<()> {
        let mut wire = Vec::new();
        let started = session.start(&mut wire);
        *self.reader.link.session.borrow_mut() = Some(session);
        self.output.append_wire(&wire);
        started.map_err(tls_error)?;
        self.reader.unread(received)?;
        poll_fn(|context| self.reader.poll_handshake(context)).await
    }

    /// Counts the bytes of the connection into `counters` from now on: what the reader gives, and what the socket takes. The first call
    /// decides.
    pub fn count_into(&self, counters: Rc<dyn Traffic>) {
        self.output.tally().count_into(counters);
    }

    /// Version and cipher suite of TLS, once its handshake is complete: `("1.3", "TLS_AES_256_GCM_SHA384")`.
    pub fn tls_facts(&self) -> Option<(&'static str, &'static str)> {
        let session = self.reader.link.session.borrow();
        let session = session.as_ref()?;
        Some((session.version()?, session.cipher_suite()?))
    }

    /// The names in the peer's verified certificate.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        self.reader.link.session.borrow().as_ref()?.peer_identity()
    }

    /// Reads the certificate that the server of the connection has in its TLS handshake, in DER: ours if we are the server. `None`
    /// without TLS.
    pub fn with_server_certificate<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let session = self.reader.link.session.borrow();
        let session = session.as_ref()?;
        let certificate = match session.role() {
            TlsRole::Server => session.own_certificate(),
            TlsRole::Client => session.peer_certificate(),
        };
        certificate.map(read)
    }

    /// Sends what is buffered within `limit`, shuts the write side down and closes the socket.
    pub async fn close(self, limit: Duration) {
        self.output.finish();
        if let Some(writer) = self.output.take_writer() {
            // A peer that does not take the last bytes in time loses them.
            let _ = crate::timeout(limit, writer).await;
        }
    }

    /// Resets the connection: what is buffered is lost, and the peer learns that something went wrong (RFC 9293 section 3.10.5).
    pub fn reset(self) {
        // Not an abort: that would end the direction in order, before the reset.
        self.output.close();
        self.reader.socket.reset_at_close();
    }

    /// Shuts the write side down after what is buffered; the read side stays open for the peer's last words.
    pub fn finish(&self) {
        self.output.finish();
    }

    /// True if that protocol was agreed on in the TLS handshake (RFC 7301).
    pub fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        self.reader.link.session.borrow().as_ref().and_then(TlsSession::alpn) == Some(protocol)
    }

    /// True if no TLS is between the wire and the queues.
    pub fn is_plain(&self) -> bool {
        !self.reader.link.is_tls()
    }

    /// Gives the connection away as it is, neither direction ended: a descriptor for the next owner. Bytes that are
    /// buffered or unread here are lost, so there must be none.
    ///
    /// # Errors
    /// No descriptors left; the connection ends then.
    pub fn release(self) -> io::Result<OwnedFd> {
        debug_assert!(self.is_plain() && self.output.buffered() == 0 && !self.reader.has_unread());
        self.reader.socket.release()
    }

    /// A handle that can cut the connection from elsewhere on this core.
    pub fn cutter(&self) -> Cutter {
        Cutter { output: self.output.clone(), socket: self.reader.socket.clone() }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.output.close();
        drop(self.output.take_writer());
    }
}

/// Cuts a connection: both directions end, what is buffered is lost. Also knows where it came in.
#[derive(Clone)]
pub struct Cutter {
    output: Output,
    socket: Rc<DataSocket>,
}

impl Cutter {
    /// Cuts now. The reader of the connection sees its end.
    pub fn cut(&self) {
        self.output.abort();
        self.socket.shut_down(Shutdown::Both);
    }

    /// The address that the peer has connected to; `None` for a Unix socket, and of a broken connection.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_address()
    }
}

/// TLS between the wire and the two queues, if the connection has it.
#[derive(Default)]
pub(crate) struct TlsLink {
    session: RefCell<Option<TlsSession>>,
}

impl TlsLink {
    pub(crate) fn is_tls(&self) -> bool {
        self.session.borrow().is_some()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.borrow().as_ref().is_some_and(TlsSession::is_handshaking)
    }

    /// Decrypts `input` onto `plain`; false once the peer has said that no more comes.
    pub(crate) fn open(&self, input: &mut [u8], plain: &mut Vec<u8>, output: &Output) -> io::Result<bool> {
        let mut session = self.session.borrow_mut();
        let Some(session) = session.as_mut() else {
            plain.extend_from_slice(input);
            return Ok(true);
        };
        let was_handshaking = session.is_handshaking();
        let mut wire = Vec::new();
        let state = session.on_wire(input, plain, &mut wire);
        if !wire.is_empty() || (was_handshaking && !session.is_handshaking()) {
            output.append_wire(&wire);
        }
        let state = state.map_err(tls_error)?;
        Ok(state != crate::tls::TlsState::PeerClosed)
    }

    /// Appends `plain` to `wire` as TLS records; false if there is no TLS, and plain bytes go as they are.
    pub(crate) fn seal(&self, plain: &[u8], wire: &mut Vec<u8>) -> io::Result<bool> {
        let mut session = self.session.borrow_mut();
        let Some(session) = session.as_mut() else { return Ok(false) };
        session.seal(plain, wire).map_err(tls_error)?;
        Ok(true)
    }

    fn close_notify(&self) -> Vec<u8> {
        let mut wire = Vec::new();
        if let Some(session) = self.session.borrow_mut().as_mut() {
            session.close(&mut wire);
        }
        wire
    }
}

fn tls_error(error: crate::tls::TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Sends the output of one connection until it is finished or the peer is gone.
pub(crate) async fn write_loop(socket: Rc<DataSocket>, output: Output, link: Rc<TlsLink>) {
    // An error is the end of the connection, which its reader sees.
    let _ = write_batches(&socket, &output, &link).await;
    output.close();
    socket.shut_down(Shutdown::Write);
}

async fn write_batches(socket: &DataSocket, output: &Output, link: &TlsLink) -> io::Result<()> {
    while let Some(outgoing) = output.next_outgoing(link).await {
        // In a box: every idle connection pays for the size of this task.
        Box::pin(send_batch(socket, output, link, outgoing?)).await?;
    }
    match output.is_closed() {
        true => Ok(()),
        false => Box::pin(async { socket.send_all(&link.close_notify(), output).await }).await,
    }
}

async fn send_batch(socket: &DataSocket, output: &Output, link: &TlsLink, first: OutgoingBatch) -> io::Result<()> {
    let mut next = Some(first);
    while let Some(outgoing) = next {
        socket.send_all(&outgoing.bytes[outgoing.at..], output).await?;
        next = output.sent(outgoing, link)?;
        if next.is_some() {
            // A peer that reads as fast as this must not keep the others from their turn.
            crate::yield_now().await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection has them while it is idle.
    #[test]
    fn the_objects_of_an_idle_stream_are_small() {
        let parts = [
            ("stream", size_of::<Stream>()),
            ("output", Output::BYTES),
            ("socket", size_of::<DataSocket>()),
            ("link", size_of::<TlsLink>()),
        ];
        let all: usize = parts.iter().map(|(_, bytes)| bytes).sum();
        assert!(all == Stream::IDLE_BYTES && all <= 512, "{all} bytes: {parts:?}");
    }
}
