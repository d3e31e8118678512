//! Whole messages of WebSocket out of the chunks of one connection.

use weir_engine::Stream;
use weir_http_codec::{HeadLimits, ResponseParser};
use weir_websocket_codec::{FrameHeader, Opcode, handshake};

use crate::reply::Reply;
use crate::scenario::{Request, Scenario};
use crate::wire::{GoAway, OnReply, Pending, ReplyTo, StreamError, Wire, receive_chunk, refuse_early_reply};

/// The key of RFC 6455 section 1.3: it guards nothing, and the same one for all keeps runs alike.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// Bytes of a message that are kept besides those of the scenario's. More is cut off, which no check accepts.
const SPARE_BYTES: usize = 1_024;

/// Collects messages. One that lies whole in a chunk is never copied.
pub(super) struct Messages {
    /// A header that is not whole.
    kept: Vec<u8>,
    frame: Option<Frame>,
    /// Fragments, or pieces, of the message under way.
    message: Vec<u8>,
    has_begun: bool,
    control: Vec<u8>,
    is_closed: bool,
    bytes_max: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    opcode: Opcode,
    is_final: bool,
    left: usize,
}

impl Messages {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            kept: Vec::new(),
            frame: None,
            message: Vec::new(),
            has_begun: false,
            control: Vec::new(),
            is_closed: false,
            bytes_max: bytes_max + SPARE_BYTES,
        }
    }

    /// Asks for the upgrade.
    async fn upgrade(&mut self, stream: &mut Stream, request: &Request) -> Result<(), String> {
        let path = request.path.as_deref().unwrap_or("/");
        let wish = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n",
            request.host
        );
        stream.output.append(wish.as_bytes());
        let (mut parser, mut received) = (ResponseParser::new(), Vec::new());
        let used = loop {
            received.extend_from_slice(&receive_chunk(stream).await?);
            let parsed = parser.parse(&received, &HeadLimits::default());
            if let Some(used) = parsed.map_err(|error| format!("its response is not HTTP/1.1: {}", error.text()))? {
                break used;
            }
        };
        let head = parser.take();
        if head.status() != 101 {
            return Err(format!("it responded with {} to the WebSocket request", head.status()));
        }
        let accepted = head.fields.all_named(b"sec-websocket-accept").next();
        if accepted != Some(handshake::accept(KEY.as_bytes()).as_bytes()) {
            return Err("its 101 does not match the key".to_owned());
        }
        let early = self.take(&received[used..], &mut Vec::new(), &mut refuse_early_reply);
        early.map(drop).map_err(|StreamError| "it sent a message without a request".to_owned())
    }

    fn leaving(&self) -> GoAway {
        if self.is_closed { GoAway::Yes } else { GoAway::No }
    }

    fn step(&mut self, input: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<usize, StreamError> {
        if self.is_closed {
            return Ok(input.len());
        }
        let mut used = 0;
        loop {
            let frame = match self.frame {
                Some(frame) => frame,
                None => {
                    let Some(header) = FrameHeader::read(&input[used..]).map_err(|_| StreamError)? else {
                        return Ok(used);
                    };
                    used += header.bytes;
                    self.open(&header)?
                }
            };
            let taken = frame.left.min(input.len() - used);
            let piece = &input[used..used + taken];
            used += taken;
            if taken < frame.left {
                self.keep(frame.opcode, piece);
                self.frame = Some(Frame { left: frame.left - taken, ..frame });
                return Ok(used);
            }
            self.frame = None;
            match frame.opcode {
                // The server ends the connection once it has been answered; what follows has no meaning.
                Opcode::Close => {
                    self.is_closed = true;
                    close(out);
                    return Ok(input.len());
                }
                Opcode::Ping => {
                    self.keep(frame.opcode, piece);
                    pong(&std::mem::take(&mut self.control), out);
                }
                Opcode::Pong => self.control.clear(),
                _ if frame.is_final && self.message.is_empty() => {
                    self.has_begun = false;
                    each(ReplyTo::Oldest, Reply::value(piece))?;
                }
                _ => {
                    self.keep(frame.opcode, piece);
                    if frame.is_final {
                        self.has_begun = false;
                        each(ReplyTo::Oldest, Reply::value(&self.message))?;
                        self.message.clear();
                    }
                }
            }
        }
    }

    /// A server's frame: without a mask, and a fragment only where there is something to go on with.
    fn open(&mut self, header: &FrameHeader) -> Result<Frame, StreamError> {
        let is_control = header.opcode.is_control();
        let is_continuation = header.opcode == Opcode::Continuation;
        let is_right = match is_control {
            true => header.is_final && header.payload <= 125,
            false => is_continuation == self.has_begun,
        };
        let left = usize::try_from(header.payload).map_err(|_| StreamError)?;
        if header.mask.is_some() || header.reserved != 0 || !is_right {
            return Err(StreamError);
        }
        if !is_control {
            self.has_begun = true;
        }
        Ok(Frame { opcode: header.opcode, is_final: header.is_final, left })
    }

    fn keep(&mut self, opcode: Opcode, piece: &[u8]) {
        if opcode.is_control() {
            return self.control.extend_from_slice(piece);
        }
        let room = self.bytes_max.saturating_sub(self.message.len());
        self.message.extend_from_slice(&piece[..piece.len().min(room)]);
    }
}

impl Wire for Messages {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(self.upgrade(stream, &scenario.request))
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        if self.kept.is_empty() {
            let used = self.step(chunk, out, each)?;
            self.kept.extend_from_slice(&chunk[used..]);
            return Ok(self.leaving());
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(chunk);
        let used = self.step(&kept, out, each)?;
        kept.drain(..used);
        self.kept = kept;
        Ok(self.leaving())
    }
}

/// A client has to mask, if only with nothing. Control frames have at most 125 bytes.
fn pong(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x8a, 0x80 | payload.len() as u8, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
}

fn close(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x88, 0x80, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(chunks: &[&[u8]]) -> Result<(Vec<String>, Vec<u8>), StreamError> {
        let (mut messages, mut found, mut out) = (Messages::new(8), Vec::new(), Vec::new());
        for chunk in chunks {
            messages.take(chunk, &mut out, &mut |_, reply| {
                found.push(String::from_utf8_lossy(reply.body.ok_or(StreamError)?).into_owned());
                Ok(())
            })?;
        }
        Ok((found, out))
    }

    #[test]
    fn messages_are_the_same_however_they_are_cut_and_pings_are_answered() {
        let wire = b"\x82\x05hello\x02\x02ab\x89\x01p\x80\x02cd\x82\x00\x8a\x00\x81\x01z";
        let wanted = (["hello", "abcd", "", "z"].map(str::to_owned).to_vec(), b"\x8a\x81\0\0\0\0p".to_vec());
        for at in 0..wire.len() {
            assert_eq!(collect(&[&wire[..at], &wire[at..]]), Ok(wanted.clone()), "cut at {at}");
        }
    }

    #[test]
    fn a_close_is_answered_and_nothing_behind_it_counts() {
        assert_eq!(
            collect(&[b"\x82\x01a\x88\x02\x03\xe8\x82\x01b", b"\x82\x01c"]),
            Ok((vec!["a".to_owned()], b"\x88\x80\0\0\0\0".to_vec(),))
        );
    }

    #[test]
    fn frames_that_no_server_may_send_are_refused() {
        for wire in [&b"\x82\x80\0\0\0\0"[..], b"\xc2\x00", b"\x80\x00", b"\x09\x00", b"\x83\x00"] {
            assert_eq!(collect(&[wire]), Err(StreamError), "{wire:x?}");
        }
    }
}
