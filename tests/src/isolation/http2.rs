//! HTTP/2 on both sides: streams of one connection, with windows that the case decides about.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

use super::origin::{Scripted, Speech};
use super::{Ask, Caller, Leaving, Origin, Patience, Protocol, Transfer};
use crate::gateway::Config;
use crate::http2::{Frame, Http2Peer, block, flag, frame, kind};
use crate::stream::{Address, Stream};

/// HTTP/2 by prior knowledge or ALPN, in front of an origin that speaks it too.
pub struct Http2;

/// Windows before an update (RFC 9113 section 6.9.2).
const FIRST_WINDOW: i64 = 65_535;
/// Windows of a client that reads: as large as a browser's.
const WINDOW: u32 = 16 << 20;
/// Bytes of a DATA frame that every peer takes.
const FRAME_MAX: usize = 16 * 1024;
/// The identifier of the setting (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

impl Protocol for Http2 {
    fn name(&self) -> &'static str {
        "HTTP/2"
    }

    fn origin(&self) -> Box<dyn Origin> {
        Box::new(Scripted::start(Speech::Http).behind_http2())
    }

    fn lone_origin(&self) -> std::result::Result<Box<dyn Origin>, &'static str> {
        // An upload there is one stream of many, and holds no connection that others need.
        Ok(self.origin())
    }

    fn config(&self, origins: &[Address]) -> Config {
        Config { protocol: "http", ..Config::to_all(origins) }.upstream("[upstream.http]\nversion = \"2\"")
    }

    fn caller(&self, stream: Stream) -> Result<Box<dyn Caller>> {
        Ok(Box::new(Http2Client::open_reading(stream)?))
    }

    fn begin(&self, stream: Stream, ask: &Ask) -> Result<Box<dyn Transfer>> {
        let mut client = Http2Client::open(stream, WINDOW, false)?;
        let only = client.request(ask)?;
        Ok(Box::new(Paced { client, only }))
    }

    fn unread(&self, stream: Stream, ask: &Ask, count: usize) -> std::result::Result<Box<dyn Transfer>, &'static str> {
        let opened = || {
            let mut client = Http2Client::open(stream, 0, false)?;
            let mut only = 0;
            for _ in 0..count {
                only = client.request(ask)?;
            }
            Ok::<_, Error>(Paced { client, only })
        };
        opened().map(|paced| Box::new(paced) as Box<dyn Transfer>).map_err(|_| "the connection has ended")
    }

    fn shares_upstream(&self) -> std::result::Result<(), &'static str> {
        Ok(())
    }

    fn alpn(&self) -> Option<&'static [u8]> {
        Some(b"h2")
    }
}

/// A stream as the client sees it.
#[derive(Default)]
struct Open {
    /// Bytes that may still be sent on it.
    credit: i64,
    /// The part of the upload that is due by now.
    body: Vec<u8>,
    sent: usize,
    /// Bytes of the whole upload that have not been sent.
    left: usize,
    received: Vec<u8>,
    /// Bytes of data for which no credit has been given back.
    owed: usize,
    status: Option<Vec<u8>>,
    is_ended: bool,
    reset: Option<u32>,
}

/// A connection of a client.
pub struct Http2Client {
    peer: Http2Peer,
    credit: i64,
    first_credit: i64,
    streams: BTreeMap<u32, Open>,
    next: u32,
    /// Data is taken as it comes. Otherwise [`Http2Client::take`] says when.
    reads: bool,
}

impl Http2Client {
    /// Says its preface. Streams have a window of `window` bytes; the connection has one of [`WINDOW`].
    fn open(stream: Stream, window: u32, reads: bool) -> Result<Self> {
        let mut peer = Http2Peer::over(stream);
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        peer.send(frame(kind::SETTINGS, 0, 0, &setting));
        peer.send(frame(kind::WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes()));
        Ok(Self { peer, credit: FIRST_WINDOW, first_credit: FIRST_WINDOW, streams: BTreeMap::new(), next: 1, reads })
    }

    /// A client that takes what comes.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn open_reading(stream: Stream) -> Result<Self> {
        Self::open(stream, WINDOW, true)
    }

    /// Begins a stream; its upload is for the caller to send.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn request(&mut self, ask: &Ask) -> Result<u32> {
        let is_upload = ask.upload() > 0 || matches!(ask, Ask::Put(_));
        let (method, path) = (if is_upload { "POST" } else { "GET" }, format!("/{}", ask.word()));
        let length = ask.upload().to_string();
        let mut fields =
            vec![(":method", method), (":scheme", "http"), (":authority", "test.example"), (":path", path.as_str())];
        if is_upload {
            fields.push(("content-length", &length));
        }
        let end = if ask.upload() == 0 { flag::END_STREAM } else { 0 };
        let stream = self.next;
        self.next += 2;
        self.streams.insert(stream, Open { credit: self.first_credit, left: ask.upload(), ..Open::default() });
        self.sent(frame(kind::HEADERS, end | flag::END_HEADERS, stream, &block(&fields)))?;
        Ok(stream)
    }

    /// Gives a stream its upload, which goes as the windows allow.
    ///
    /// # Errors
    /// If the peer is gone.
    pub fn upload(&mut self, stream: u32, body: Vec<u8>) -> Result<()> {
        self.streams.entry(stream).or_default().body = body;
        self.push()
    }

    fn sent(&mut self, bytes: Vec<u8>) -> Result<()> {
        if self.peer.send(bytes) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
    }

    /// Sends what the windows allow.
    fn push(&mut self) -> Result<()> {
        for (number, stream) in &mut self.streams {
            while stream.sent < stream.body.len() {
                let allowed = stream.credit.min(self.credit).max(0) as usize;
                let count = FRAME_MAX.min(stream.body.len() - stream.sent).min(allowed);
                if count == 0 {
                    break;
                }
                let end = if count == stream.left { flag::END_STREAM } else { 0 };
                let data = &stream.body[stream.sent..stream.sent + count];
                if !self.peer.send(frame(kind::DATA, end, *number, data)) {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                stream.sent += count;
                stream.left -= count;
                stream.credit -= count as i64;
                self.credit -= count as i64;
            }
        }
        Ok(())
    }

    /// Takes in one frame, if one comes within `limit`.
    fn receive(&mut self, limit: Duration) -> Result<bool> {
        let Some(frame) = self.peer.try_next(limit)? else { return Ok(false) };
        match frame.kind {
            kind::SETTINGS | kind::PING => self.acknowledge(&frame)?,
            kind::WINDOW_UPDATE => {
                let more = i64::from(frame.code());
                match self.streams.get_mut(&frame.stream) {
                    Some(stream) => stream.credit += more,
                    None if frame.stream == 0 => self.credit += more,
                    None => {}
                }
                self.push()?;
            }
            kind::GOAWAY if frame.code() != 0 => return Err(Error::other(format!("GOAWAY {}", frame.code()))),
            _ => self.note(&frame)?,
        }
        Ok(true)
    }

    fn acknowledge(&mut self, received: &Frame) -> Result<()> {
        if received.flags & flag::ACK != 0 {
            return Ok(());
        }
        if received.kind == kind::PING {
            return self.sent(frame(kind::PING, flag::ACK, 0, &received.payload));
        }
        for setting in received.payload.chunks_exact(6) {
            if setting[..2] == INITIAL_WINDOW_SIZE.to_be_bytes() {
                let window = i64::from(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]));
                self.streams.values_mut().for_each(|stream| stream.credit += window - self.first_credit);
                self.first_credit = window;
            }
        }
        self.sent(frame(kind::SETTINGS, flag::ACK, 0, b""))?;
        self.push()
    }

    /// The meaning of a frame for its stream.
    fn note(&mut self, frame: &Frame) -> Result<()> {
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return Ok(()) };
        match frame.kind {
            kind::HEADERS if stream.status.is_none() => stream.status = Some(frame.payload.clone()),
            kind::DATA => {
                stream.owed += frame.payload.len();
                if self.reads {
                    stream.received.extend_from_slice(&frame.payload);
                }
            }
            kind::RST_STREAM => stream.reset = Some(frame.code()),
            _ => {}
        }
        stream.is_ended |= matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & flag::END_STREAM != 0;
        // Small credits together: a client that reads gives them back before a window is half empty.
        if self.reads && stream.owed > WINDOW as usize / 4 {
            self.take(frame.stream, usize::MAX)?;
        }
        Ok(())
    }

    /// Takes up to `count` bytes of data that have come, and gives credit for them.
    fn take(&mut self, number: u32, count: usize) -> Result<usize> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(0) };
        let count = stream.owed.min(count);
        stream.owed -= count;
        let is_ended = stream.is_ended;
        if count > 0 {
            let credit = (count as u32).to_be_bytes();
            self.sent(frame(kind::WINDOW_UPDATE, 0, 0, &credit))?;
            if !is_ended {
                self.sent(frame(kind::WINDOW_UPDATE, 0, number, &credit))?;
            }
        }
        Ok(count)
    }

    /// Waits for the end of a stream, and gives its body.
    ///
    /// # Errors
    /// If it does not come in time, or is reset or refused.
    pub fn response_of(&mut self, number: u32) -> Result<Vec<u8>> {
        let deadline = Instant::now() + Patience::LIMIT;
        loop {
            let stream = self.streams.get(&number).ok_or_else(|| Error::other("no such stream"))?;
            if let Some(code) = stream.reset {
                return Err(Error::new(ErrorKind::ConnectionReset, format!("RST_STREAM {code}")));
            }
            if stream.is_ended {
                break;
            }
            if Instant::now() > deadline {
                return Err(Error::new(ErrorKind::TimedOut, "no response"));
            }
            self.receive(Duration::from_millis(100))?;
        }
        self.take(number, usize::MAX)?;
        let stream = self.streams.remove(&number).ok_or_else(|| Error::other("no such stream"))?;
        // 200 is an entry of the table (RFC 7541 appendix A).
        match stream.status.as_deref().and_then(<[u8]>::first) {
            Some(0x88) => Ok(stream.received),
            other => Err(Error::new(ErrorKind::ResourceBusy, format!("another status than 200: {other:x?}"))),
        }
    }
}

impl Caller for Http2Client {
    fn exchange(&mut self, asks: &[(Ask, Vec<u8>)]) -> Result<Vec<Vec<u8>>> {
        let mut streams = Vec::new();
        for (ask, body) in asks {
            let stream = self.request(ask)?;
            self.upload(stream, body.clone())?;
            streams.push(stream);
        }
        streams.into_iter().map(|stream| self.response_of(stream)).collect()
    }
}

/// One stream at a pace, beside others that are not read.
struct Paced {
    client: Http2Client,
    only: u32,
}

impl Transfer for Paced {
    fn read(&mut self, count: usize) -> Result<usize> {
        let mut taken = self.client.take(self.only, count)?;
        while taken < count && self.client.receive(Duration::from_millis(2))? {
            taken += self.client.take(self.only, count - taken)?;
        }
        match self.client.streams.get(&self.only) {
            Some(stream) if taken == 0 && (stream.is_ended || stream.reset.is_some()) => {
                Err(Error::new(ErrorKind::UnexpectedEof, "the stream has ended"))
            }
            _ => Ok(taken),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = self.client.streams.entry(self.only).or_default();
        stream.body.drain(..stream.sent);
        stream.sent = 0;
        stream.body.extend_from_slice(bytes);
        self.client.push()?;
        while self.client.receive(Duration::from_millis(1))? {}
        Ok(())
    }

    /// The windows hold back the rest.
    fn write_some(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes)
    }

    fn leave(self: Box<Self>, how: Leaving) -> Option<Stream> {
        how.from(self.client.peer.into_stream())
    }
}
