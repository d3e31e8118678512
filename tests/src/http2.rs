//! HTTP/2 as the tests see it: frames by hand, and only as much of HPACK as a client needs to say anything at all. Deliberately
//! not the library under test.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::deadline::WAIT;
use crate::stream::{Address, Stream};

/// The first bytes of a client.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames (RFC 9113 section 6).
#[allow(missing_docs)]
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
#[allow(missing_docs)]
pub mod flag {
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
}

/// Error codes (RFC 9113 section 7).
#[allow(missing_docs)]
pub mod code {
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// 0: of the connection.
    pub stream: u32,
    /// The rest.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM or GOAWAY, or the number of a WINDOW_UPDATE.
    pub fn code(&self) -> u32 {
        let at = if self.kind == kind::GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().expect("four bytes"))
    }

    /// The initial window of streams that SETTINGS announce.
    pub fn initial_window(&self) -> Option<u32> {
        let mut entries = self.payload.chunks_exact(6);
        let found = entries.find(|entry| entry[..2] == [0, 4])?;
        Some(u32::from_be_bytes([found[2], found[3], found[4], found[5]]))
    }

    /// The status of a response's HEADERS, as an encoder without a past writes one of the table's (RFC 7541 appendix A).
    pub fn status(&self) -> Option<u16> {
        let known = [200, 204, 206, 304, 400, 404, 500];
        known.into_iter().zip(0x88..).find_map(|(status, byte)| (self.payload.first() == Some(&byte)).then_some(status))
    }
}

/// An origin on a free port, which treats every connection as its script says. Its threads end with the gateway's connections.
pub struct Http2Origin {
    /// Where it listens.
    pub address: Address,
    connections: Arc<AtomicUsize>,
}

impl Http2Origin {
    /// Starts; `script` is given the number of a connection, from 0 on, and the connection.
    ///
    /// # Panics
    /// If no port can be bound.
    pub fn start(script: impl Fn(usize, &mut Http2Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let (connections, script) = (Arc::<AtomicUsize>::default(), Arc::new(script));
        let counted = connections.clone();
        // It ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = script.clone();
                let mut first = [0];
                // A health check says nothing.
                if !matches!(stream.peek(&mut first), Ok(1)) {
                    continue;
                }
                let number = counted.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || script(number, &mut Http2Peer::accept(stream)));
            }
        });
        Self { address, connections }
    }

    /// Connections that said something.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block of literals without indexing (RFC 7541 section 6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text");
            bytes.push(length);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// A SETTINGS frame with this initial window of streams.
pub fn window_setting(bytes: u32) -> Vec<u8> {
    frame(kind::SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

/// A WINDOW_UPDATE.
pub fn window_update(stream: u32, bytes: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// A GET of `path`, as a block.
pub fn get(path: &str) -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", "test.example"), (":path", path)])
}

/// The result of a wait for a frame.
enum Received {
    Frame(Frame),
    End,
    Nothing,
}

/// A raw end of a connection: it sends the given bytes.
pub struct Http2Peer {
    stream: Stream,
    buffer: Vec<u8>,
    has_ended: bool,
}

impl Http2Peer {
    /// Connects, with the preface and empty settings.
    ///
    /// # Panics
    /// If nothing listens there.
    pub fn connect(address: &Address) -> Self {
        let mut client = Self::over(Stream::connect(address).expect("the gateway accepts"));
        client.send(frame(kind::SETTINGS, 0, 0, b""));
        client
    }

    /// A client over a connection that stands, with the preface; its settings are for the caller to send.
    ///
    /// # Panics
    /// If no time limit can be set.
    pub fn over(stream: Stream) -> Self {
        stream.set_write_timeout(WAIT).expect("a time limit can be set");
        let mut client = Self { stream, buffer: Vec::new(), has_ended: false };
        client.send(PREFACE);
        client
    }

    /// The connection, without what was received and not taken.
    pub fn into_stream(self) -> Stream {
        self.stream
    }

    /// The server's end of a connection: hears the preface, and sends empty settings.
    ///
    /// # Panics
    /// If something else is said.
    pub fn accept(stream: TcpStream) -> Self {
        let mut server = Self { stream: Stream::Tcp(stream), buffer: Vec::new(), has_ended: false };
        server.stream.set_write_timeout(WAIT).expect("a time limit can be set");
        server.stream.set_read_timeout(WAIT).expect("a time limit can be set");
        let mut preface = [0; PREFACE.len()];
        server.stream.read_exact(&mut preface).expect("a preface");
        assert_eq!(preface, PREFACE);
        server.send(frame(kind::SETTINGS, 0, 0, b""));
        server
    }

    /// The stream of the next request, whose body has been read; `None` once the gateway has closed. Settings and pings are
    /// answered.
    pub fn next_request(&mut self) -> Option<u32> {
        loop {
            let received = self.next_frame()?;
            match received.kind {
                kind::SETTINGS | kind::PING if received.flags & flag::ACK == 0 => {
                    let echoed = if received.kind == kind::PING { &received.payload[..] } else { b"" };
                    self.send(frame(received.kind, flag::ACK, 0, echoed));
                }
                kind::HEADERS | kind::DATA if received.flags & flag::END_STREAM != 0 => return Some(received.stream),
                _ => {}
            }
        }
    }

    /// Sends bytes; false if they cannot be sent any more.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Opens a stream with a block that is a whole request.
    pub fn request(&mut self, stream: u32, block: &[u8]) -> bool {
        self.send(frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, block))
    }

    /// The next frame; `None` once the gateway has closed.
    ///
    /// # Panics
    /// If nothing comes in time.
    pub fn next_frame(&mut self) -> Option<Frame> {
        match self.receive(WAIT) {
            Received::Frame(frame) => Some(frame),
            Received::End => None,
            Received::Nothing => panic!("no frame came"),
        }
    }

    /// The next frame, if one comes within this time.
    pub fn next_within(&mut self, limit: Duration) -> Option<Frame> {
        match self.receive(limit) {
            Received::Frame(frame) => Some(frame),
            Received::End | Received::Nothing => None,
        }
    }

    /// The next frame, if one comes within this time.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn try_next(&mut self, limit: Duration) -> std::io::Result<Option<Frame>> {
        match self.receive(limit) {
            Received::Frame(frame) => Ok(Some(frame)),
            Received::Nothing => Ok(None),
            Received::End => Err(ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The other end has closed.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn receive(&mut self, limit: Duration) -> Received {
        let received = self.receive_frame(limit);
        self.has_ended |= matches!(received, Received::End);
        received
    }

    fn receive_frame(&mut self, limit: Duration) -> Received {
        self.stream.set_read_timeout(limit).expect("a time limit can be set");
        loop {
            if let Some(frame) = self.whole() {
                return Received::Frame(frame);
            }
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Received::End,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Received::End,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Received::Nothing;
                }
                Err(error) => panic!("no frame came: {error}"),
            }
        }
    }

    fn whole(&mut self) -> Option<Frame> {
        let head = self.buffer.get(..9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let payload = self.buffer.get(9..9 + length)?.to_vec();
        self.buffer.drain(..9 + length);
        Some(Frame { kind, flags, stream, payload })
    }

    /// The next frame of that kind; others are let pass.
    ///
    /// # Panics
    /// If the gateway closes before.
    pub fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next_frame().unwrap_or_else(|| panic!("closed before a frame of kind {kind}"));
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// The first of GOAWAY with an error and RST_STREAM that comes, if one comes before the gateway closes.
    pub fn refusal(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next_frame()?;
            if frame.kind == kind::RST_STREAM || (frame.kind == kind::GOAWAY && frame.code() != code::NO_ERROR) {
                return Some(frame);
            }
        }
    }

    /// Ends its direction.
    ///
    /// # Panics
    /// If the connection is gone.
    pub fn finish(&mut self) {
        self.stream.half_close().expect("the connection stands");
    }

    /// Everything until the gateway closes.
    pub fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }
}
