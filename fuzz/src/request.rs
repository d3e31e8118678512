//! A client's bytes through the request parser.

use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step, encode};

use crate::reply;

/// Events on a connection. Streamed commands count as commands of their length.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Command { len: usize, args: Vec<Vec<u8>> },
    Skip { len: usize },
    Streamed { len: usize },
    Failed(ProtocolError),
}

/// Claims above this are streamed; fuzz inputs are smaller, so size alone never streams a command.
const STREAM_BYTES: u32 = 1 << 20;

/// A parser with the bytes a session would keep for it.
#[derive(Default)]
struct Connection {
    parser: RequestParser,
    kept: Vec<u8>,
    received: usize,
    streamed: Option<usize>,
    events: Vec<Event>,
}

impl Connection {
    fn run<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: &RequestLimits) -> Self {
        let mut connection = Self::default();
        for piece in pieces {
            connection.kept.extend_from_slice(piece);
            connection.received += piece.len();
            loop {
                match connection.turn(limits) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        // Data that had arrived before the failure is no part of the outcome.
                        connection.kept.clear();
                        connection.events.push(Event::Failed(error));
                        return connection;
                    }
                }
            }
        }
        connection
    }

    /// One call of the parser; `false` when it needs more bytes.
    fn turn(&mut self, limits: &RequestLimits) -> Result<bool, ProtocolError> {
        if let Some(len) = self.streamed {
            let relay = self.parser.relay(&self.kept)?;
            assert!(relay.done || relay.taken == self.kept.len());
            self.kept.drain(..relay.taken);
            self.streamed = Some(len + relay.taken);
            if relay.done {
                self.streamed = None;
                self.events.push(Event::Streamed { len: len + relay.taken });
            }
            return Ok(relay.done);
        }
        let step = self.parser.parse(&self.kept, limits)?;
        let heap_max = 512 + 10 * self.received;
        assert!(self.parser.heap_bytes() <= heap_max, "memory follows bytes received, never a claim");
        match step {
            Step::Incomplete => return Ok(false),
            Step::Skip { len } => {
                self.kept.drain(..len);
                self.events.push(Event::Skip { len });
            }
            Step::Command { len, inline } => {
                let args: Vec<Vec<u8>> = self.parser.args(&self.kept).map(<[u8]>::to_vec).collect();
                check_command(&self.kept[..len], &args, inline);
                self.kept.drain(..len);
                self.events.push(Event::Command { len, args });
            }
            Step::Streaming { len } => {
                assert_eq!(len, self.kept.len());
                assert!(self.parser.argc() < self.parser.args_declared() as usize);
                self.kept.clear();
                self.streamed = Some(len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn lengths(&self) -> Vec<usize> {
        let len = |event: &Event| match event {
            Event::Command { len, .. } | Event::Skip { len } | Event::Streamed { len } => Some(*len),
            Event::Failed(_) => None,
        };
        self.events.iter().filter_map(len).collect()
    }

    fn has_failed(&self) -> bool {
        matches!(self.events.last(), Some(Event::Failed(_)))
    }
}

/// There is one way to write a command, so what was accepted is what the encoder writes.
fn check_command(bytes: &[u8], args: &[Vec<u8>], inline: bool) {
    assert!(!bytes.is_empty() && !args.is_empty());
    let mut encoded = Vec::new();
    encode::command(&mut encoded, args);
    if !inline {
        assert_eq!(encoded, bytes);
    }
    let limits = RequestLimits { line_bytes_max: u32::MAX, stream_bytes: u32::MAX, ..RequestLimits::default() };
    let mut parser = RequestParser::new();
    let step = parser.parse(&encoded, &limits);
    assert_eq!(step, Ok(Step::Command { len: encoded.len(), inline: false }));
    assert!(parser.args(&encoded).eq(args.iter().map(Vec::as_slice)));
}

/// Any client: no panic, no memory beyond what was received, one encoding per command, and streaming at any size
/// moves no command's end.
pub fn redis_request_parser(data: &[u8]) {
    let limits = RequestLimits { stream_bytes: STREAM_BYTES, ..RequestLimits::default() };
    let whole = Connection::run(std::iter::once(data), &limits);
    let spent: usize = whole.lengths().iter().sum();
    assert!(spent <= data.len());

    for stream_bytes in [0, 16, 100] {
        let limits = RequestLimits { stream_bytes, ..limits };
        let streamed = Connection::run(data.chunks(5), &limits);
        let (streamed_lengths, whole_lengths) = (streamed.lengths(), whole.lengths());
        assert_eq!(streamed_lengths, whole_lengths, "streaming past {stream_bytes} bytes");
        // A relayed header fails at its first wrong byte, a parsed one at its line end.
        assert!(streamed.has_failed() || !whole.has_failed());
    }
}

/// Any client and any upstream: where a read ends changes nothing.
pub fn redis_split_invariance(data: &[u8]) {
    for authenticated in [true, false] {
        let limits = RequestLimits { authenticated, stream_bytes: STREAM_BYTES, ..RequestLimits::default() };
        let whole = Connection::run(std::iter::once(data), &limits);
        for size in PIECES {
            let pieces = Connection::run(data.chunks(size), &limits);
            assert_eq!(pieces.events, whole.events, "requests in pieces of {size}");
            assert_eq!(pieces.kept, whole.kept, "requests in pieces of {size}");
        }
    }
    let whole = reply::frames(std::iter::once(data));
    for size in PIECES {
        assert_eq!(reply::frames(data.chunks(size)), whole, "replies in pieces of {size}");
    }
}

/// Sizes of reads: single bytes, and sizes that cut short headers and long payloads at ever other places.
const PIECES: [usize; 6] = [1, 2, 3, 7, 13, 64];
