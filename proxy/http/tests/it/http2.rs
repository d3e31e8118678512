//! A scripted client of HTTP/2, and a scripted origin, for one connection each.

use std::io::{Read, Write};

use crate::support::{Client, OriginEnd, Talk};

/// A client of HTTP/2.
pub struct Http2Client(pub Client);

/// The frames of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Http2Response {
    pub status: u16,
    pub body: Vec<u8>,
    /// It was reset before its end.
    pub is_reset: bool,
}

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// A frame that has come. Streams have numbers below 256.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u8,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The next one.
    pub fn read(talk: &mut Talk<impl Read + Write>) -> Self {
        let head = talk.bytes(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        Self { kind: head[3], flags: head[4], stream: head[8], payload: talk.bytes(length as usize) }
    }

    /// It is one of this kind, and no acknowledgement.
    pub fn is(&self, kind: u8) -> bool {
        self.kind == kind && !(matches!(kind, SETTINGS | PING) && self.flags & ACK != 0)
    }
}

/// An origin that speaks HTTP/2.
pub struct Http2Origin(pub OriginEnd);

impl Http2Origin {
    /// Takes the preface, and sends SETTINGS with `settings`.
    pub fn new(mut end: OriginEnd, settings: &[u8]) -> Self {
        end.0.until("SM\r\n\r\n");
        let mut origin = Self(end);
        origin.send(SETTINGS, 0, 0, settings);
        origin
    }

    pub fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        self.0.0.send_bytes(&frame(kind, flags, stream, payload));
    }

    /// The next frame that `is` one; SETTINGS and PING before it are acknowledged, and it too if it is one.
    pub fn until(&mut self, is: impl Fn(&Frame) -> bool) -> Frame {
        loop {
            let frame = Frame::read(&mut self.0.0);
            if frame.is(SETTINGS) {
                self.send(SETTINGS, ACK, 0, b"");
            } else if frame.is(PING) {
                self.send(PING, ACK, 0, &frame.payload);
            }
            if is(&frame) {
                return frame;
            }
        }
    }

    /// Responds with 200 and an empty body.
    pub fn respond(&mut self, stream: u8) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]);
    }
}

impl Http2Client {
    pub fn new(mut client: Client) -> Self {
        client.0.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.0.send_bytes(&frame(SETTINGS, 0, 0, b""));
        Self(client)
    }

    /// A request without a body. An extended CONNECT does not end with it.
    pub fn request(&mut self, stream: u8, fields: &[(&str, &str)]) {
        let is_whole = !fields.contains(&(":method", "CONNECT"));
        self.0.0.send_bytes(&head(stream, fields, is_whole));
    }

    /// A POST with this body, which comes in one piece with its head.
    pub fn post(&mut self, stream: u8, path: &str, body: &str) {
        let head = head(stream, &[(":method", "POST"), (":path", path)], false);
        self.0.0.send_bytes(&[head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat());
    }

    pub fn reset(&mut self, stream: u8) {
        self.0.0.send_bytes(&frame(RESET, 0, stream, &[0, 0, 0, 8]));
    }

    /// All that comes on a stream, to its end.
    pub fn response(&mut self, stream: u8) -> Http2Response {
        let mut response = Http2Response::default();
        loop {
            let Frame { kind, flags, stream: number, payload } = self.frame();
            match kind {
                DATA if number == stream => response.body.extend(payload),
                HEADERS if number == stream && response.status == 0 => response.status = status(&payload),
                RESET if number == stream => return Http2Response { is_reset: true, ..response },
                _ => {}
            }
            if matches!(kind, DATA | HEADERS) && number == stream && flags & END_STREAM != 0 {
                return response;
            }
        }
    }

    /// The next frame; SETTINGS and PING are acknowledged.
    pub fn frame(&mut self) -> Frame {
        let next = Frame::read(&mut self.0.0);
        if next.is(SETTINGS) {
            self.0.0.send_bytes(&frame(SETTINGS, ACK, 0, b""));
        } else if next.is(PING) {
            self.0.0.send_bytes(&frame(PING, ACK, 0, &next.payload));
        }
        next
    }
}

/// A frame of HTTP/2.
pub fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

/// A head; each field is written out.
pub fn head(stream: u8, fields: &[(&str, &str)], is_whole: bool) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":scheme", "http"), (":authority", "a")].iter().chain(fields) {
        block.extend([0, name.len() as u8]);
        block.extend_from_slice(name.as_bytes());
        block.push(value.len() as u8);
        block.extend_from_slice(value.as_bytes());
    }
    frame(HEADERS, END_HEADERS | u8::from(is_whole), stream, &block)
}

/// The status at the beginning of a block of fields (RFC 7541, appendices A and B).
fn status(block: &[u8]) -> u16 {
    // The peer may have set the size of its table first.
    let block = if block[0] & 0xE0 == 0x20 { &block[1..] } else { block };
    if let Some(known) = [200, 204, 206, 304, 400, 404, 500].get(usize::from(block[0] & 0x7F).wrapping_sub(8))
        && block[0] & 0x80 != 0
    {
        return *known;
    }
    let length = usize::from(block[1] & 0x7F);
    let value = &block[2..2 + length];
    if block[1] & 0x80 == 0 {
        return String::from_utf8_lossy(value).parse().expect("a status");
    }
    let bits = value.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)) << (64 - 8 * length);
    let (mut status, mut at) = (0, 0);
    for _ in 0..3 {
        let rest = bits << at;
        let (digit, width) = if rest >> 59 <= 2 { (rest >> 59, 5) } else { ((rest >> 58) - 22, 6) };
        (status, at) = (status * 10 + digit as u16, at + width);
    }
    status
}
