//! A client that sends given bytes and returns replies as received.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::stream::{Address, Stream};
use crate::wire::{ReplyScan, encode, shown};

/// A reply that takes longer fails the test.
const REPLY_WAIT: Duration = Duration::from_secs(20);

/// A connection to a server or to the gateway.
pub struct Client {
    stream: Stream,
    buffer: Vec<u8>,
}

/// How reading ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The peer closed in order.
    Closed,
    /// The peer reset the connection.
    Reset,
    /// Nothing came within the wait.
    Silent,
}

impl Client {
    /// Connects without TLS.
    ///
    /// # Panics
    /// If nothing listens there.
    pub fn connect(address: &Address) -> Self {
        let stream =
            Stream::connect(address).unwrap_or_else(|error| panic!("cannot connect to {}: {error}", address.text()));
        Self::over(stream)
    }

    /// Connects with TLS.
    ///
    /// # Panics
    /// If the handshake fails.
    pub fn connect_tls(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        let stream = Stream::connect_tls(address, config).unwrap_or_else(|error| panic!("TLS to {address}: {error}"));
        Self::over(stream)
    }

    /// Over a stream that is already open.
    ///
    /// # Panics
    /// If the socket refuses a timeout.
    pub fn over(stream: Stream) -> Self {
        stream.set_read_timeout(REPLY_WAIT).expect("a read timeout can be set");
        stream.set_write_timeout(REPLY_WAIT).expect("a write timeout can be set");
        Self { stream, buffer: Vec::new() }
    }

    /// The stream below; bytes already read stay here.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the peer is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send {}: {error}", shown(bytes)));
    }

    /// Sends bytes; a peer that is gone is an error of the caller's choice.
    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends one command as an array of bulk strings.
    pub fn command<T: AsRef<[u8]>>(&mut self, words: &[T]) {
        self.send(&encode(words));
    }

    /// Sends a command and returns the bytes of its reply.
    pub fn call<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Vec<u8> {
        self.command(words);
        self.reply()
    }

    /// Sends a command whose reply is known.
    ///
    /// # Panics
    /// If it is another.
    pub fn expect<T: AsRef<[u8]>>(&mut self, words: &[T], reply: &[u8]) {
        let came = self.call(words);
        assert!(came == reply, "{}: expected {}, came {}", shown(&encode(words)), shown(reply), shown(&came));
    }

    /// The next reply or push.
    ///
    /// # Panics
    /// If none comes: the message says how the connection stands.
    pub fn reply(&mut self) -> Vec<u8> {
        match self.try_reply(REPLY_WAIT) {
            Ok(reply) => reply,
            Err(end) => panic!("expected a reply; the peer: {end:?}; unfinished: {}", shown(&self.buffer)),
        }
    }

    /// The next reply, or how the connection ended before one was complete.
    pub fn try_reply(&mut self, limit: Duration) -> Result<Vec<u8>, End> {
        let deadline = Instant::now() + limit;
        let mut scan = ReplyScan::default();
        loop {
            if let Some(length) = scan.advance(&self.buffer) {
                let rest = self.buffer.split_off(length);
                return Ok(std::mem::replace(&mut self.buffer, rest));
            }
            self.fill(deadline)?;
        }
    }

    /// Whether bytes have come that were not returned: the beginning of a reply.
    pub fn has_partial_reply(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Reads once, until `deadline` at most.
    fn fill(&mut self, deadline: Instant) -> Result<(), End> {
        let mut chunk = [0; 64 * 1024];
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest < Duration::from_millis(1) {
                return Err(End::Silent);
            }
            self.stream.set_read_timeout(rest).expect("a read timeout can be set");
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(End::Closed),
                Ok(length) => {
                    self.buffer.extend_from_slice(&chunk[..length]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(End::Silent),
                    ErrorKind::UnexpectedEof => return Err(End::Closed),
                    _ => return Err(End::Reset),
                },
            }
        }
    }

    /// Everything that comes until the peer closes, or until `limit`.
    pub fn read_to_end(&mut self, limit: Duration) -> (Vec<u8>, End) {
        let deadline = Instant::now() + limit;
        loop {
            if let Err(end) = self.fill(deadline) {
                return (std::mem::take(&mut self.buffer), end);
            }
        }
    }

    /// Asserts that nothing more comes within `limit`.
    ///
    /// # Panics
    /// If something does, or if the peer closed.
    pub fn expect_silence(&mut self, limit: Duration) {
        let (bytes, end) = self.read_to_end(limit);
        assert!(bytes.is_empty() && end == End::Silent, "expected silence, came {} and {end:?}", shown(&bytes));
    }
}
