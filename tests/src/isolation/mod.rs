//! Isolation: what one client may cost another. One form for every protocol, so that a case is written once and the next
//! protocol adds a column.
//!
//! A [`Protocol`] says how clients of it ask for the few things that the cases are made of ([`Ask`]), and has an [`Origin`] that
//! does them. A [`Stand`] is such an origin with a gateway in front of it. A [`Victim`] repeats a small request and keeps its
//! worst wait, while a [`Transfer`] is read, written or aborted as the case requires. The finding of a case is a [`Cell`] of the
//! [`table`].

mod distance;
mod flow;
pub mod http1;
pub mod http2;
pub mod origin;
pub mod redis;
mod stand;
pub mod table;
pub mod tcp;
mod wire;

use std::io::Result;

pub use distance::{Link, transferred};
pub use flow::{Attack, Patience, Victim, Waits};
pub use origin::Origin;
pub use stand::{Extent, Stand, to};
pub use table::{Cell, every};
pub use wire::{Leaving, RawTransfer, Wire};

use crate::gateway::Config;
use crate::stream::{Address, Stream};

/// A client's request to an origin. The same word in every protocol: a path of HTTP, a line of TCP, a text of WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Two bytes.
    Small,
    /// So many bytes.
    Bytes(usize),
    /// A response that never comes.
    Hold,
    /// An upload of this length, which is read and thrown away.
    Sink(usize),
    /// An upload of this length, which is not read.
    Unread(usize),
    /// An upload of this length, which comes back.
    Echo(usize),
    /// A value to keep in place of the last one.
    Put(u64),
    /// A refusal that asks to try again.
    Busy,
}

impl Ask {
    /// The word for the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Bytes(_) => "bytes",
            Self::Hold => "hold",
            Self::Sink(_) => "sink",
            Self::Unread(_) => "unread",
            Self::Echo(_) => "echo",
            Self::Put(_) => "put",
            Self::Busy => "busy",
        }
    }

    /// The kind with its number.
    pub fn word(&self) -> String {
        match self {
            Self::Bytes(number) => format!("bytes/{number}"),
            Self::Put(value) => format!("put/{value}"),
            _ => self.kind().to_owned(),
        }
    }

    /// Length of the origin's response, in bytes, where nothing but that says where it ends.
    fn response_bytes(&self) -> usize {
        match self {
            Self::Bytes(length) | Self::Echo(length) => *length,
            _ => b"ok".len(),
        }
    }

    /// Length of the upload, in bytes.
    pub fn upload(&self) -> usize {
        match self {
            Self::Sink(length) | Self::Unread(length) | Self::Echo(length) => *length,
            _ => 0,
        }
    }
}

/// A client that waits for its responses.
pub trait Caller: Send {
    /// Asks for all of it at once (pipelined, or as streams side by side), and gives the responses in order. `body` is what each
    /// uploads. A refusal is an error of the kind [`std::io::ErrorKind::ResourceBusy`].
    ///
    /// # Errors
    /// If one of them does not come whole within [`Patience::LIMIT`].
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>>;

    /// Asks for something small.
    ///
    /// # Errors
    /// As [`Caller::exchange`], or if something else comes.
    fn small(&mut self) -> Result<()> {
        let responses = self.exchange(&[(Ask::Small, Vec::new())])?;
        match responses.first().map(Vec::as_slice) {
            Some(b"ok") => Ok(()),
            other => Err(std::io::Error::other(format!("not what was asked for: {other:?}"))),
        }
    }
}

/// A large response or upload whose pace the case decides.
pub trait Transfer: Send {
    /// Takes up to `count` bytes of the response, as far as they come within some milliseconds.
    ///
    /// # Errors
    /// If the peer has ended.
    fn read(&mut self, count: usize) -> Result<usize>;

    /// Uploads some more.
    ///
    /// # Errors
    /// If the peer is gone, or takes nothing.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Uploads what is taken of it within a moment.
    ///
    /// # Errors
    /// If the peer is gone, or takes nothing now.
    fn write_some(&mut self, bytes: &[u8]) -> Result<()>;

    /// Ends the client, and gives what must stay open for as long as it is only half gone.
    fn leave(self: Box<Self>, how: Leaving) -> Option<Stream>;
}

/// A protocol as the cases see it.
pub trait Protocol: Sync {
    /// The head of its column.
    fn name(&self) -> &'static str;

    /// An origin with room for everybody.
    fn origin(&self) -> Box<dyn Origin>;

    /// An origin that does one thing after the other, or why the protocol has none.
    ///
    /// # Errors
    /// The reason.
    fn lone_origin(&self) -> std::result::Result<Box<dyn Origin>, &'static str>;

    /// A gateway in front of these, with default settings.
    fn config(&self, origins: &[Address]) -> Config;

    /// A client on a connection that stands.
    ///
    /// # Errors
    /// If the protocol's handshake fails.
    fn caller(&self, stream: Stream) -> Result<Box<dyn Caller>>;

    /// Asks on a connection that stands, without waiting for the response.
    ///
    /// # Errors
    /// If the protocol's handshake fails, or the peer is gone.
    fn begin(&self, stream: Stream, ask: &Ask) -> Result<Box<dyn Transfer>>;

    /// All bytes of the body of an upload that has begun.
    fn upload(&self, ask: &Ask) -> Vec<u8> {
        vec![b'x'; ask.upload()]
    }

    /// The same `count` times on one connection, whose responses are not read: streams of HTTP/2, pipelined requests elsewhere.
    ///
    /// # Errors
    /// The reason why the protocol has no such thing.
    fn unread(&self, stream: Stream, ask: &Ask, count: usize) -> std::result::Result<Box<dyn Transfer>, &'static str>;

    /// Whether an origin does what comes over two connections in the order in which it comes.
    ///
    /// # Errors
    /// Why it does not.
    fn is_ordered(&self) -> std::result::Result<(), &'static str> {
        Err("an origin with threads orders nothing between two connections, without a gateway either")
    }

    /// Whether exchanges of several clients share an upstream connection.
    ///
    /// # Errors
    /// Why they do not.
    fn shares_upstream(&self) -> std::result::Result<(), &'static str>;

    /// Name of the protocol in ALPN.
    fn alpn(&self) -> Option<&'static [u8]> {
        None
    }
}

/// Every protocol: the columns of the table.
pub const PROTOCOLS: [&dyn Protocol; 5] = [&redis::Redis, &http1::HTTP1, &http2::Http2, &http1::WEBSOCKET, &tcp::Tcp];

/// A connection without TLS, whose small segments leave at once.
///
/// # Errors
/// If nothing listens there.
pub fn connect(address: &Address) -> Result<Stream> {
    Stream::connect(address)
}
