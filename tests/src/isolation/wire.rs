//! The client's end of a connection, read by length, and left in each of the ways there are.

use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::{Patience, Transfer};
use crate::stream::Stream;

/// How long a transfer waits for bytes when it reads.
const MOMENT: Duration = Duration::from_millis(2);

/// How a client goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It closes in order.
    Fin,
    /// It closes with a reset, as a process does that dies with something unread.
    Reset,
    /// It closes its own direction and goes on listening.
    HalfClose,
}

impl Leaving {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fin, Self::Reset, Self::HalfClose];

    /// The word for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fin => "FIN",
            Self::Reset => "RST",
            Self::HalfClose => "half-close",
        }
    }

    /// Goes. A half that is left is given back.
    pub fn from(self, mut stream: Stream) -> Option<Stream> {
        match self {
            Self::Fin => {
                // TLS says goodbye first; a peer that is gone already hears nothing.
                let _ = stream.half_close();
                if let Stream::Tls(tls) = &stream {
                    let _ = tls.sock.shutdown(Shutdown::Write);
                }
                None
            }
            Self::Reset => {
                if let Stream::Tcp(tcp) = &stream {
                    SockRef::from(tcp).set_linger(Some(Duration::ZERO)).expect("an open socket");
                } else if let Stream::Tls(tls) = &stream {
                    SockRef::from(&tls.sock).set_linger(Some(Duration::ZERO)).expect("an open socket");
                }
                None
            }
            Self::HalfClose => {
                let _ = stream.half_close();
                if let Stream::Tls(tls) = &stream {
                    let _ = tls.sock.shutdown(Shutdown::Write);
                }
                Some(stream)
            }
        }
    }
}

/// A connection with what was received and not taken.
pub struct Wire {
    stream: Stream,
    buffer: Vec<u8>,
    at: usize,
}

impl Wire {
    /// Over a connection that stands.
    ///
    /// # Errors
    /// If it has ended.
    pub fn over(stream: Stream) -> Result<Self> {
        stream.set_write_timeout(Patience::LIMIT)?;
        Ok(Self { stream, buffer: Vec::new(), at: 0 })
    }

    /// Sends all of it.
    ///
    /// # Errors
    /// If the peer is gone, or takes nothing.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Bytes up to the end of `mark`.
    ///
    /// # Errors
    /// If they do not come in time.
    pub fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>> {
        let deadline = Patience::deadline();
        loop {
            let found = self.buffer[self.at..].windows(mark.len()).position(|window| window == mark);
            if let Some(position) = found {
                return Ok(self.take(position + mark.len()));
            }
            self.receive(deadline)?;
        }
    }

    /// As many bytes.
    ///
    /// # Errors
    /// If they do not come in time.
    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>> {
        let deadline = Patience::deadline();
        while self.buffer.len() - self.at < count {
            self.receive(deadline)?;
        }
        Ok(self.take(count))
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let taken = self.buffer[self.at..self.at + count].to_vec();
        self.at += count;
        if self.at == self.buffer.len() {
            self.buffer.clear();
            self.at = 0;
        }
        taken
    }

    fn receive(&mut self, deadline: Instant) -> Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::new(ErrorKind::TimedOut, "no response"));
        }
        self.stream.set_read_timeout(left)?;
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Error::new(ErrorKind::UnexpectedEof, "the connection has ended")),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Error::new(ErrorKind::TimedOut, "no response")),
            Err(error) => Err(error),
        }
    }

    /// A second handle on the connection, to send while this one reads.
    pub fn sender(&self) -> Stream {
        self.stream.duplicate()
    }

    /// The connection, if nothing was received that was not taken.
    pub fn into_stream(self) -> Stream {
        self.stream
    }
}

/// A transfer whose bytes are those of the connection.
pub struct RawTransfer {
    stream: Stream,
}

impl RawTransfer {
    /// Sends `request` and leaves the rest to the case.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn begin(mut stream: Stream, request: &[u8]) -> Result<Box<dyn Transfer>> {
        stream.set_read_timeout(MOMENT)?;
        stream.set_write_timeout(MOMENT)?;
        stream.write_all(request)?;
        stream.flush()?;
        Ok(Box::new(Self { stream }))
    }
}

impl Transfer for RawTransfer {
    fn read(&mut self, count: usize) -> Result<usize> {
        let mut chunk = [0; 64 * 1024];
        let mut taken = 0;
        while taken < count {
            let most = chunk.len().min(count - taken);
            match self.stream.read(&mut chunk[..most]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => taken += read,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let mut deadline = Patience::deadline();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(count) => {
                    bytes = &bytes[count..];
                    deadline = Patience::deadline();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.flush()
    }

    fn write_some(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write(bytes).map(|_| ())
    }

    fn leave(self: Box<Self>, how: Leaving) -> Option<Stream> {
        how.from(self.stream)
    }
}

/// The most bytes sent inline; more are sent by a separate thread, so that responses are read meanwhile.
const AT_ONCE_MAX: usize = 16 * 1024;

/// Sends `bytes` while `read` takes the responses.
pub(super) fn beside<T>(wire: &mut Wire, bytes: Vec<u8>, read: impl FnOnce(&mut Wire) -> Result<T>) -> Result<T> {
    if bytes.len() <= AT_ONCE_MAX {
        wire.send(&bytes)?;
        return read(wire);
    }
    let mut sender = wire.sender();
    let sending = std::thread::spawn(move || sender.write_all(&bytes));
    // After an error the sender is not joined: it may be blocked on data that the peer does not read.
    let responses = read(wire)?;
    sending.join().map_err(|_| Error::other("the sender panicked"))??;
    Ok(responses)
}
