//! A peer made of raw frames.

use weir_base::time::Time;
use weir_http_codec::{BodyLength, Fields, RequestHead, ResponseHead, Version, WireError};
use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, ProtocolError, Request, ResetCause, StreamId,
    frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, flags, write},
    hpack::{Decoder, Encoder},
};

/// Names and values of fields.
pub type Pairs<'a> = &'a [(&'a str, &'a str)];

pub const NOW: Time = Time::from_nanos(1_000_000_000);

/// A frame that the machine has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub header: FrameHeader,
    pub payload: Vec<u8>,
}

impl Sent {
    pub fn kind(&self) -> FrameKind {
        self.header.kind
    }

    pub fn stream(&self) -> u32 {
        self.header.stream_id
    }

    pub fn ends_stream(&self) -> bool {
        self.header.flags & flags::END_STREAM != 0
    }

    /// The last four bytes of a payload of 4 or 8: an error code, or an increment.
    pub fn number(&self) -> u32 {
        let at = if self.kind() == FrameKind::GoAway { 4 } else { 0 };
        self.payload[at..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).expect("a number")
    }

    pub fn last_stream(&self) -> u32 {
        self.payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)).expect("GOAWAY")
    }
}

/// A machine, and the raw frames that it is fed with.
pub struct Peer {
    pub machine: Connection,
    pub encoder: Encoder,
    decoder: Decoder,
    pub now: Time,
}

impl Peer {
    /// The peer of a server; both sides have said their SETTINGS.
    pub fn of_server() -> Self {
        Self::of_server_with(ConnectionConfig::default())
    }

    pub fn of_server_with(config: ConnectionConfig) -> Self {
        let mut peer = Self::before_settings(Connection::server(config));
        let mut begin = write::PREFACE.to_vec();
        write::settings(&mut begin, &[]);
        write::settings_ack(&mut begin);
        peer.send(&begin);
        peer.sent();
        peer.events();
        peer
    }

    /// The peer of a client; both sides have said their SETTINGS.
    pub fn of_client() -> Self {
        let mut peer = Self::before_settings(Connection::client(ConnectionConfig::default()));
        let mut begin = Vec::new();
        write::settings(&mut begin, &[]);
        write::settings_ack(&mut begin);
        peer.send(&begin);
        let mut out = Vec::new();
        while peer.machine.take_output(&mut out) {}
        assert!(out.starts_with(write::PREFACE));
        peer.events();
        peer
    }

    pub fn before_settings(machine: Connection) -> Self {
        Self { machine, encoder: Encoder::new(), decoder: Decoder::new(4096), now: NOW }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.machine.receive(bytes, self.now);
    }

    /// Sends what `frame` writes.
    pub fn write(&mut self, frame: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        frame(&mut bytes);
        self.send(&bytes);
    }

    /// Sends a frame as it is.
    pub fn raw(&mut self, kind: u8, flags: u8, stream_id: u32, payload: &[u8]) {
        let header = FrameHeader { length: payload.len() as u32, kind: FrameKind::of(kind), flags, stream_id };
        self.send(&[&header.to_bytes(), payload].concat());
    }

    /// A header block.
    pub fn block(&mut self, fields: Pairs<'_>) -> Vec<u8> {
        let mut block = Vec::new();
        self.encoder.begin(&mut block);
        for (name, value) in fields {
            self.encoder.field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block
    }

    pub fn headers(&mut self, stream: u32, fields: Pairs<'_>, is_end: bool) {
        let block = self.block(fields);
        self.write(|into| write::headers(into, stream, is_end, 16_384, |into| into.extend_from_slice(&block)));
    }

    /// A request that the machine takes.
    pub fn request(&mut self, stream: u32, method: &str, is_end: bool) -> StreamId {
        self.headers(stream, &head(method), is_end);
        let events = self.events();
        match &events[..] {
            [Event::Request(id, Ok(request))] => {
                assert_eq!((id.number(), request.is_end), (stream, is_end));
                *id
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn data(&mut self, stream: u32, data: &[u8], is_end: bool) {
        self.write(|into| write::data(into, stream, data, is_end));
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.machine.next_event()).collect()
    }

    /// All that the machine sends now.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut bytes = Vec::new();
        while self.machine.take_output(&mut bytes) {}
        assert!(!self.machine.has_output());
        frames(&bytes)
    }

    /// The frames of a kind among those that the machine sends now.
    pub fn sent_of(&mut self, kind: FrameKind) -> Vec<Sent> {
        self.sent().into_iter().filter(|frame| frame.kind() == kind).collect()
    }

    /// The fields of a header block of the machine.
    pub fn fields(&mut self, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let decoded = self.decoder.decode(block, 1 << 20, |field| fields.push((text(field.name), text(field.value))));
        decoded.expect("a block of the machine");
        fields
    }

    /// The connection has failed, the peer was sent GOAWAY, and nothing is taken any more.
    #[track_caller]
    pub fn fails(&mut self, error: ProtocolError) {
        let events = self.events();
        assert!(
            matches!(events.last(), Some(Event::Failed(last)) if *last == error),
            "{events:?} instead of {error:?}"
        );
        let sent = self.sent();
        let last = sent.last().expect("GOAWAY");
        assert_eq!((last.kind(), last.number()), (FrameKind::GoAway, error.code().as_u32()), "{error:?}");
        assert!(self.machine.is_over());
        self.write(|into| write::ping(into, [0; 8]));
        assert!(self.sent().is_empty() && self.events().is_empty());
    }

    /// The stream was reset for a breach, the shell knows, and the connection goes on.
    #[track_caller]
    pub fn resets(&mut self, stream: u32, error: ProtocolError) {
        let resets = self.sent_of(FrameKind::RstStream);
        let resets: Vec<_> = resets.iter().map(|frame| (frame.stream(), frame.number())).collect();
        assert_eq!(resets, [(stream, error.code().as_u32())], "{error:?}");
        let events = self.events();
        let is_said = |event: &Event| match event {
            Event::Reset(id, ResetCause::Breach(breach)) => id.number() == stream && *breach == error,
            Event::Refused(breach) => *breach == error,
            _ => false,
        };
        assert!(events.iter().any(is_said), "{events:?} instead of {error:?}");
        self.is_alive();
    }

    /// The connection is alive.
    #[track_caller]
    pub fn is_alive(&mut self) {
        self.write(|into| write::ping(into, *b"12345678"));
        let sent = self.sent();
        let pong = sent.last().expect("an acknowledgement");
        assert_eq!(
            (pong.kind(), pong.header.flags, &pong.payload[..]),
            (FrameKind::Ping, flags::ACK, &b"12345678"[..])
        );
    }
}

/// The pseudo-fields of a request.
pub fn head(method: &str) -> Vec<(&str, &str)> {
    vec![(":method", method), (":scheme", "https"), (":authority", "a.example"), (":path", "/a?b")]
}

/// Frames of bytes.
pub fn frames(mut bytes: &[u8]) -> Vec<Sent> {
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::read(bytes, 16_384).expect("frames of the machine are legal") {
        let (frame, rest) = bytes.split_at(FRAME_HEADER_BYTES + header.length as usize);
        frames.push(Sent { header, payload: frame[FRAME_HEADER_BYTES..].to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

/// The head of a response.
pub fn response(status: u16, fields: Pairs<'_>) -> ResponseHead {
    let mut head = ResponseHead::from_parts(Version::Http2, status, BodyLength::Chunked);
    head.fields = self::fields(fields);
    head
}

pub fn fields(pairs: Pairs<'_>) -> Fields {
    let mut fields = Fields::new();
    pairs.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
    fields
}

pub fn request_head(method: &str, pairs: Pairs<'_>, is_whole: bool) -> RequestHead {
    let line = (method.as_bytes(), &b"/a?b"[..], &b"a.example"[..]);
    let head = RequestHead::from_parts(Version::Http2, line, fields(pairs), is_whole, &Default::default());
    head.expect("a request")
}

/// The only request among the events.
#[track_caller]
pub fn only_request(events: Vec<Event>) -> (StreamId, Result<Request, WireError>) {
    let mut events = events.into_iter();
    match (events.next(), events.next()) {
        (Some(Event::Request(id, request)), None) => (id, request),
        other => panic!("{other:?}"),
    }
}

pub const CANCEL: ErrorCode = ErrorCode::CANCEL;
