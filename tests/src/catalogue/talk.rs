//! One case between a raw client and the server or gateway that responds.

use std::io::{ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use super::{Case, End, Packer, Step};
use crate::deadline::WAIT;
use crate::http::field;
use crate::stream::{Address, Stream};
use crate::websocket::{handshake, masked, next_frame};

/// A peer that should have ended a connection and is silent for so long does not end it.
const QUIET: Duration = Duration::from_secs(10);

/// The result of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaseResult {
    /// Status of the handshake.
    pub status: u16,
    /// Negotiated extensions.
    pub extensions: String,
    /// Data frames: first byte and payload.
    pub frames: Vec<(u8, Vec<u8>)>,
    /// Payloads of pongs.
    pub pongs: Vec<Vec<u8>>,
    /// The payload of the close frame, if one came.
    pub close: Option<Vec<u8>>,
    /// The connection has ended.
    pub is_ended: bool,
    /// The origin did not object, and the client closed in the end.
    pub is_tolerated: bool,
}

impl CaseResult {
    /// Messages that have come whole.
    pub fn messages(&self) -> usize {
        self.frames.iter().filter(|(first, _)| first & 0x80 != 0).count()
    }

    /// The code of the close frame; 1005 if it had none, and 1006 if there was none (RFC 6455 section 7.1.5).
    pub fn code(&self) -> u16 {
        match self.close.as_deref() {
            None => 1006,
            Some([high, low, ..]) => u16::from_be_bytes([*high, *low]),
            Some(_) => 1005,
        }
    }

    /// The other end has failed the connection.
    pub fn is_failed(&self) -> bool {
        self.is_ended && !self.is_tolerated && matches!(self.code(), 1002 | 1003 | 1006 | 1007 | 1009 | 1011)
    }

    /// In a line.
    pub fn text(&self) -> String {
        let frames = self.frames.len();
        let Self { status, extensions, is_ended, is_tolerated, .. } = self;
        let (pongs, code) = (self.pongs.len(), self.code());
        format!(
            "{status} {extensions:?}, {frames} frames, {pongs} pongs, {code}, ended {is_ended}, tolerated {is_tolerated}"
        )
    }
}

struct Talk {
    stream: Stream,
    buffer: Vec<u8>,
    outcome: CaseResult,
    has_closed: bool,
}

/// Plays a case.
///
/// # Panics
/// If the port refuses the connection, or the handshake is not answered.
pub fn talk(address: &Address, case: &Case) -> CaseResult {
    let stream = Stream::connect(address).expect("it accepts");
    if let Stream::Tcp(stream) = &stream {
        // Every write is a segment.
        stream.set_nodelay(true).expect("a socket");
    }
    stream.set_write_timeout(WAIT).expect("a socket");
    let mut talk = Talk { stream, buffer: Vec::new(), outcome: CaseResult::default(), has_closed: false };
    talk.shake_hands(&case.offer);
    if talk.outcome.status != 101 {
        return talk.outcome;
    }
    for step in &case.steps {
        talk.step(step);
    }
    let mut packer = Packer::of(&talk.outcome.extensions);
    for message in &case.messages {
        let frames = match &mut packer {
            Some(packer) => packer.pack(message),
            None => masked(message.first, &message.data),
        };
        talk.send(&frames);
    }
    talk.finish(case);
    if let (Some(packer), false) = (&mut packer, case.messages.is_empty()) {
        talk.check_echo(packer, case);
    }
    talk.outcome
}

impl Talk {
    fn shake_hands(&mut self, offer: &str) {
        let offered = if offer.is_empty() { String::new() } else { format!("Sec-WebSocket-Extensions: {offer}\r\n") };
        // The origins are those of the real clients, and one of them insists on it.
        let line = format!("Sec-WebSocket-Protocol: echo.1, echo.2\r\n{offered}");
        self.send(handshake("/chat", &line).as_bytes());
        let begun = Instant::now();
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(begun.elapsed() < WAIT && self.receive(WAIT).is_some_and(|count| count > 0), "no handshake");
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let status = String::from_utf8_lossy(&head[9..12]).parse().expect("a status");
        self.outcome.status = status;
        self.outcome.extensions = field(&head, "sec-websocket-extensions").unwrap_or_default();
    }

    /// Sends `bytes`; false: the peer has closed.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(bytes) => {
                self.send(bytes);
            }
            Step::Pieces(bytes, size) => {
                let mut pieces = bytes.chunks(*size);
                pieces.all(|piece| self.send(piece));
            }
            Step::Await(count) => {
                while self.outcome.messages() < *count && self.outcome.close.is_none() && self.receive_until(WAIT) {}
            }
            Step::Pause(milliseconds) => std::thread::sleep(Duration::from_millis(*milliseconds)),
        }
    }

    fn finish(&mut self, case: &Case) {
        loop {
            if let End::Clean(count) = case.end
                && self.outcome.messages() + self.outcome.pongs.len() == count
            {
                self.close(1000);
            }
            if self.outcome.close.is_some() {
                self.close(self.outcome.code());
            }
            let limit = if self.has_closed { WAIT } else { QUIET };
            if self.receive_until(limit) {
                continue;
            }
            if self.outcome.is_ended || self.has_closed {
                return;
            }
            self.outcome.is_tolerated = true;
            self.close(1000);
        }
    }

    fn close(&mut self, code: u16) {
        if !std::mem::replace(&mut self.has_closed, true) {
            // A close frame without a code is answered in kind.
            let payload = code.to_be_bytes();
            self.send(&masked(0x88, if code == 1005 { b"" } else { &payload }));
        }
    }

    /// Takes a frame, or receives something; false if nothing comes within `limit`.
    fn receive_until(&mut self, limit: Duration) -> bool {
        let (mut at, buffer) = (0, &self.buffer);
        let frame = next_frame(|count| {
            let bytes = buffer.get(at..at + count)?.to_vec();
            at += count;
            Some(bytes)
        });
        let Some((first, is_masked, payload)) = frame else {
            return match self.receive(limit) {
                Some(0) => {
                    self.outcome.is_ended = true;
                    false
                }
                received => received.is_some(),
            };
        };
        assert!(!is_masked, "a server masks nothing");
        self.buffer.drain(..at);
        match first & 15 {
            // Behind a close frame nothing has a meaning.
            _ if self.outcome.close.is_some() => {}
            8 => self.outcome.close = Some(payload),
            9 => drop(self.send(&masked(0x8a, &payload))),
            10 => self.outcome.pongs.push(payload),
            _ => self.outcome.frames.push((first, payload)),
        }
        true
    }

    /// Receives; `None`: nothing came in time. A reset is an end: which of the two comes is a matter of who sent last.
    fn receive(&mut self, limit: Duration) -> Option<usize> {
        self.stream.set_read_timeout(limit).expect("a socket");
        let mut chunk = [0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Some(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(_) => Some(0),
        }
    }

    /// Checks that the echo equals the messages sent.
    fn check_echo(&self, packer: &mut Packer, case: &Case) {
        let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
        for (first, payload) in &self.outcome.frames {
            match (first & 15, messages.last_mut()) {
                (0, Some((_, message))) => message.extend_from_slice(payload),
                _ => messages.push((*first, payload.clone())),
            }
        }
        for (sent, (first, payload)) in case.messages.iter().zip(messages) {
            let data = if first & 0x40 != 0 { packer.unpack(&payload) } else { payload };
            assert!(data == sent.data, "{}: the echo says something else", case.id);
        }
    }
}
