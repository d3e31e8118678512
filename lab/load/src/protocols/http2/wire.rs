//! Parses whole HTTP/2 responses out of the frames of one connection (RFC 9113). Written by hand: a generator has to be cheap,
//! and it needs only one field of HPACK, the status, since its SETTINGS forbid servers a dynamic table for responses.

use std::cell::Cell;

use weir_engine::Stream;
use weir_http2_codec::PREFACE;

use super::http::reply;
use crate::reply::Reply;
use crate::scenario::Scenario;
use crate::wire::{GoAway, OnReply, Pending, ReplyTo, Sender, StreamError, Wire, receive_chunk, refuse_early_reply};

mod status;

const HEAD_BYTES: usize = 9;
/// The default size limit of a frame from a peer (section 4.2).
const FRAME_BYTES_MAX: usize = 16_384;
/// Bytes of a body that are kept besides those of the scenario's: the text of an error. More is cut off, which no check accepts.
const SPARE_BYTES: usize = 1_024;

/// The largest window there is: the generator is never who holds a response back (section 6.9.1).
const WINDOW_BYTES: u32 = 0x7fff_ffff;
const WINDOW_BYTES_AT_FIRST: u32 = 65_535;
/// Received bytes after which the connection's window is filled up again.
const WINDOW_REFILL_BYTES: u32 = 1 << 28;

/// Streams are odd numbers below this one.
const STREAM_MAX: u32 = 0x7fff_ffff;

mod kind {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PUSH_PROMISE: u8 = 5;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const WINDOW_UPDATE: u8 = 8;
    pub(super) const CONTINUATION: u8 = 9;
}

mod flag {
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const ACK: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
    pub(super) const PADDED: u8 = 8;
    pub(super) const PRIORITY: u8 = 32;
}

/// Numbers of settings (section 6.5.2).
const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// Errors that say that a request was not worked on, or that there are too many (section 7).
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn head(length: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The writing side: a stream for each request.
#[derive(Debug)]
struct Streams {
    next: Cell<u32>,
}

impl Default for Streams {
    fn default() -> Self {
        Self { next: Cell::new(1) }
    }
}

impl Sender for Streams {
    /// Puts the header block of a request into a frame of a new stream, whose number it gives.
    fn write(&self, block: &[u8], out: &mut Vec<u8>) -> u32 {
        let stream = self.next.get();
        debug_assert!(stream <= STREAM_MAX, "a connection without further streams was used");
        self.next.set(stream + 2);
        head(block.len(), kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, out);
        out.extend_from_slice(block);
        stream
    }

    /// The connection has had as many streams as there can be (section 5.1.1).
    fn is_spent(&self) -> bool {
        self.next.get() > STREAM_MAX
    }
}

/// A stream whose response is not whole.
struct PartialResponse {
    stream: u32,
    /// `None`: only interim ones so far.
    status: Option<u16>,
    body: Vec<u8>,
}

/// A header block that goes on in CONTINUATION frames: the status stands at its front.
struct Block {
    stream: u32,
    ends_stream: bool,
}

/// The reading side: collects responses. A body that lies whole in one frame and one chunk is never copied.
pub(super) struct Frames {
    /// A frame that is not whole.
    kept: Vec<u8>,
    responses: Vec<PartialResponse>,
    block: Option<Block>,
    /// Since the connection's window was filled up.
    received: u32,
    /// Maximum set by the peer; `None`: its SETTINGS have not arrived yet.
    streams_max: Option<u32>,
    bytes_max: usize,
}

impl Frames {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            kept: Vec::new(),
            responses: Vec::new(),
            block: None,
            received: 0,
            streams_max: None,
            bytes_max: bytes_max + SPARE_BYTES,
        }
    }

    /// Says the preface and hears the peer's settings.
    async fn open(&mut self, stream: &mut Stream, streams: u32) -> Result<(), String> {
        let mut out = PREFACE.to_vec();
        let settings = [(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_BYTES)];
        head(settings.len() * 6, kind::SETTINGS, 0, 0, &mut out);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        window_update(WINDOW_BYTES - WINDOW_BYTES_AT_FIRST, &mut out);
        stream.output.append(&out);
        while self.streams_max.is_none() {
            let chunk = receive_chunk(stream).await?;
            let mut out = Vec::new();
            let taken = self.take(&chunk, &mut out, &mut refuse_early_reply);
            if taken != Ok(GoAway::No) {
                return Err("it does not speak HTTP/2 in clear text by prior knowledge".to_owned());
            }
            stream.output.append(&out);
        }
        match self.streams_max {
            Some(most) if most < streams => Err(format!(
                "it allows {most} streams on a connection, and the scenario has {streams}; lower `streams`, or raise its limit"
            )),
            _ => Ok(()),
        }
    }

    fn frame(&mut self, frame: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        let (head, payload) = frame.split_at(HEAD_BYTES);
        let (kind, flags) = (head[3], head[4]);
        let stream = number(&head[5..]).ok_or(StreamError)? & STREAM_MAX;
        // The peer's first frame, and nothing between the frames of a header block (sections 3.4 and 6.10).
        let is_right = (self.streams_max.is_some() || kind == kind::SETTINGS)
            && self.block.as_ref().is_none_or(|block| kind == kind::CONTINUATION && block.stream == stream);
        if !is_right {
            return Err(StreamError);
        }
        match kind {
            kind::DATA => self.data(stream, flags, payload, each)?,
            kind::HEADERS => self.headers(stream, flags, payload, each)?,
            kind::CONTINUATION => {
                let block = self.block.take().ok_or(StreamError)?;
                if flags & flag::END_HEADERS == 0 {
                    self.block = Some(block);
                } else if block.ends_stream {
                    self.end(stream, &[], each)?;
                }
            }
            kind::RST_STREAM => {
                self.responses.retain(|response| response.stream != stream);
                let reply = match number(payload).ok_or(StreamError)? {
                    REFUSED_STREAM => Reply::refused("refused_stream"),
                    ENHANCE_YOUR_CALM => Reply::refused("enhance_your_calm"),
                    _ => Reply::lost(),
                };
                each(ReplyTo::Stream(stream), reply)?;
            }
            kind::SETTINGS if flags & flag::ACK == 0 => {
                let mut streams_max = self.streams_max.unwrap_or(u32::MAX);
                for setting in payload.chunks_exact(6) {
                    if u16::from_be_bytes([setting[0], setting[1]]) == MAX_CONCURRENT_STREAMS {
                        streams_max = number(&setting[2..]).ok_or(StreamError)?;
                    }
                }
                self.streams_max = Some(streams_max);
                self::head(0, kind::SETTINGS, flag::ACK, 0, out);
            }
            kind::PING if flags & flag::ACK == 0 => {
                self::head(payload.len(), kind::PING, flag::ACK, 0, out);
                out.extend_from_slice(payload);
            }
            kind::GOAWAY => return Ok(GoAway::Above(number(payload).ok_or(StreamError)? & STREAM_MAX)),
            // ENABLE_PUSH is 0.
            kind::PUSH_PROMISE => return Err(StreamError),
            // No DATA frame is sent, so no window applies; frames of unknown types are ignored (section 4.1).
            _ => {}
        }
        Ok(GoAway::No)
    }

    fn data(&mut self, stream: u32, flags: u8, payload: &[u8], each: OnReply<'_>) -> Result<(), StreamError> {
        self.received += payload.len() as u32;
        let data = without_padding(flags, payload)?;
        if flags & flag::END_STREAM != 0 {
            return self.end(stream, data, each);
        }
        let bytes_max = self.bytes_max;
        // One that was reset: the peer cannot have known.
        let Some(response) = self.responses.iter_mut().rev().find(|response| response.stream == stream) else {
            return Ok(());
        };
        let room = bytes_max.saturating_sub(response.body.len());
        response.body.extend_from_slice(&data[..data.len().min(room)]);
        Ok(())
    }

    fn headers(&mut self, stream: u32, flags: u8, payload: &[u8], each: OnReply<'_>) -> Result<(), StreamError> {
        let mut block = without_padding(flags, payload)?;
        if flags & flag::PRIORITY != 0 {
            block = block.get(5..).ok_or(StreamError)?;
        }
        let ends_stream = flags & flag::END_STREAM != 0;
        let at = self.responses.iter().rposition(|response| response.stream == stream);
        let at = at.unwrap_or_else(|| {
            self.responses.push(PartialResponse { stream, status: None, body: Vec::new() });
            self.responses.len() - 1
        });
        // Behind the final status there are only trailers.
        if self.responses[at].status.is_none() {
            let status = status::read(block).ok_or(StreamError)?;
            self.responses[at].status = (status >= 200).then_some(status);
        }
        if flags & flag::END_HEADERS == 0 {
            self.block = Some(Block { stream, ends_stream });
            return Ok(());
        }
        if ends_stream { self.end(stream, &[], each) } else { Ok(()) }
    }

    /// The response of a stream is whole; `last` is the end of its body.
    fn end(&mut self, stream: u32, last: &[u8], each: OnReply<'_>) -> Result<(), StreamError> {
        let Some(at) = self.responses.iter().rposition(|response| response.stream == stream) else { return Ok(()) };
        let mut response = self.responses.swap_remove(at);
        let status = response.status.ok_or(StreamError)?;
        if response.body.is_empty() {
            return each(ReplyTo::Stream(stream), reply(status, last));
        }
        let room = self.bytes_max.saturating_sub(response.body.len());
        response.body.extend_from_slice(&last[..last.len().min(room)]);
        each(ReplyTo::Stream(stream), reply(status, &response.body))
    }
}

impl GoAway {
    fn or(self, other: Self) -> Self {
        if self == Self::No { other } else { self }
    }
}

/// Appends what is missing of `whole`, as far as it is there.
fn append(kept: &mut Vec<u8>, rest: &mut &[u8], whole: usize) {
    let (taken, behind) = rest.split_at(rest.len().min(whole.saturating_sub(kept.len())));
    kept.extend_from_slice(taken);
    *rest = behind;
}

/// Bytes of the frame that `input` begins with, its head included; `None`: the head is not whole.
fn length_of(input: &[u8]) -> Result<Option<usize>, StreamError> {
    let Some(head) = input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    if length > FRAME_BYTES_MAX { Err(StreamError) } else { Ok(Some(HEAD_BYTES + length)) }
}

fn without_padding(flags: u8, payload: &[u8]) -> Result<&[u8], StreamError> {
    if flags & flag::PADDED == 0 {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(StreamError)?;
    let end = rest.len().checked_sub(usize::from(*padding)).ok_or(StreamError)?;
    Ok(&rest[..end])
}

/// Writes a WINDOW_UPDATE of the connection.
fn window_update(bytes: u32, out: &mut Vec<u8>) {
    head(4, kind::WINDOW_UPDATE, 0, 0, out);
    out.extend_from_slice(&bytes.to_be_bytes());
}

impl Wire for Frames {
    fn begin<'a>(&'a mut self, stream: &'a mut Stream, scenario: &'a Scenario) -> Pending<'a> {
        Box::pin(self.open(stream, scenario.pipeline))
    }

    fn sender(&self) -> Option<Box<dyn Sender>> {
        Some(Box::<Streams>::default())
    }

    fn take(&mut self, chunk: &[u8], out: &mut Vec<u8>, each: OnReply<'_>) -> Result<GoAway, StreamError> {
        let mut leaving = GoAway::No;
        let mut kept = std::mem::take(&mut self.kept);
        let mut rest = chunk;
        if !kept.is_empty() {
            // Only what the frame lacks: what follows is read where it lies.
            if kept.len() < HEAD_BYTES {
                append(&mut kept, &mut rest, HEAD_BYTES);
            }
            if let Some(whole) = length_of(&kept)? {
                append(&mut kept, &mut rest, whole);
                if kept.len() == whole {
                    leaving = self.frame(&kept, out, each)?.or(leaving);
                    kept.clear();
                }
            }
        }
        if kept.is_empty() {
            while let Some(whole) = length_of(rest)?.filter(|whole| *whole <= rest.len()) {
                let (frame, behind) = rest.split_at(whole);
                leaving = self.frame(frame, out, each)?.or(leaving);
                rest = behind;
            }
            kept.extend_from_slice(rest);
        }
        self.kept = kept;
        if self.received >= WINDOW_REFILL_BYTES {
            window_update(std::mem::take(&mut self.received), out);
        }
        Ok(leaving)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::ReplyKind;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        head(payload.len(), kind, flags, stream, &mut out);
        out.extend_from_slice(payload);
        out
    }

    /// Replies as text, what is said back, and the last word about the connection.
    fn collect(chunks: &[&[u8]]) -> Result<(Vec<String>, Vec<u8>, GoAway), StreamError> {
        let (mut frames, mut found, mut out, mut leaving) = (Frames::new(8), Vec::new(), Vec::new(), GoAway::No);
        for chunk in chunks {
            let told = frames.take(chunk, &mut out, &mut |of, reply| {
                let ReplyTo::Stream(stream) = of else { return Err(StreamError) };
                let kind = match reply.kind {
                    ReplyKind::Value => "value",
                    ReplyKind::Shed(reason) => reason,
                    ReplyKind::Error(_) => "error",
                    ReplyKind::Lost => "lost",
                    ReplyKind::Event => "event",
                };
                let body = reply.body.map_or("without a body".into(), String::from_utf8_lossy);
                found.push(format!("{stream} {kind} {body}"));
                Ok(())
            })?;
            leaving = told.or(leaving);
        }
        Ok((found, out, leaving))
    }

    #[test]
    fn responses_of_streams_are_the_same_however_their_frames_are_cut() {
        let wire = [
            frame(kind::SETTINGS, 0, 0, b"\0\x03\0\0\0\x64"),
            frame(kind::HEADERS, flag::END_HEADERS, 3, b"\x20\x88"),
            frame(kind::HEADERS, flag::END_HEADERS, 1, b"\x8d\x0f"),
            frame(kind::DATA, 0, 3, b"he"),
            frame(kind::PING, 0, 0, b"12345678"),
            frame(kind::DATA, flag::END_STREAM | flag::PADDED, 1, b"\x02gone\0\0"),
            frame(kind::DATA, flag::END_STREAM, 3, b"llo"),
            frame(0x42, 0xff, 9, b"unknown"),
            frame(kind::HEADERS, flag::END_STREAM, 5, b"\x88"),
            frame(kind::CONTINUATION, flag::END_HEADERS, 5, b"\x8c"),
            frame(kind::HEADERS, flag::END_HEADERS, 7, b"\x08\x03103"),
            frame(kind::HEADERS, flag::END_HEADERS, 7, b"\x88"),
            frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 7, b"\x40\x01a\x01b"),
            frame(kind::RST_STREAM, 0, 9, &[0, 0, 0, 7]),
            frame(kind::RST_STREAM, 0, 11, &[0, 0, 0, 8]),
            frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 11, 0, 0, 0, 0]),
        ]
        .concat();
        let wanted = [
            "1 error gone",
            "3 value hello",
            "5 value ",
            "7 value ",
            "9 refused_stream without a body",
            "11 lost without a body",
        ];
        let said = [frame(kind::SETTINGS, flag::ACK, 0, b""), frame(kind::PING, flag::ACK, 0, b"12345678")].concat();
        for at in 0..wire.len() {
            let (found, out, leaving) = collect(&[&wire[..at], &wire[at..]]).expect("frames");
            assert_eq!(found, wanted, "cut at {at}");
            assert_eq!((&out, leaving), (&said, GoAway::Above(11)));
        }
        let bytes: Vec<&[u8]> = wire.chunks(1).collect();
        assert_eq!(collect(&bytes).expect("frames").0, wanted);
    }

    #[test]
    fn bytes_that_are_no_http2_are_refused() {
        let settings = frame(kind::SETTINGS, 0, 0, b"");
        for wrong in [
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            frame(kind::PING, 0, 0, b"12345678"),
            [settings.clone(), frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02\x88")].concat(),
            [settings.clone(), frame(kind::HEADERS, 0, 1, b"\x88"), frame(kind::PING, 0, 0, b"12345678")].concat(),
            [settings.clone(), frame(kind::DATA, flag::PADDED, 1, b"\x09a")].concat(),
            [settings.clone(), vec![0xff; 9]].concat(),
            [settings, frame(kind::HEADERS, flag::END_HEADERS, 1, b"\x41\x01a")].concat(),
        ] {
            assert_eq!(collect(&[&wrong]), Err(StreamError), "{wrong:x?}");
        }
    }

    #[test]
    fn every_request_has_a_stream_of_its_own_until_there_are_no_more() {
        let (sender, mut out) = (Streams::default(), Vec::new());
        assert_eq!((sender.write(b"ab", &mut out), sender.write(b"", &mut out)), (1, 3));
        assert_eq!(out, b"\0\0\x02\x01\x05\0\0\0\x01ab\0\0\0\x01\x05\0\0\0\x03");
        sender.next.set(STREAM_MAX);
        assert!(!sender.is_spent() && sender.write(b"", &mut out) == STREAM_MAX && sender.is_spent());
    }
}
