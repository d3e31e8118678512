//! Any frames against one HTTP/2 connection, while its shell does what it likes.

use std::collections::HashMap;

use weir_base::{rng::Rng, time::Time};
use weir_http_codec::{BodyLength, Fields, HeadLimits, RequestHead, ResponseHead, Version};
use weir_http2_codec::{
    Connection, ConnectionConfig, ErrorCode, Event, PREFACE, RequestTarget, StreamId,
    frame::{FRAME_HEADER_BYTES, Frame, FrameHeader, write},
    settings::{Setting, WINDOW_BYTES_DEFAULT},
};

const FRAME_BYTES_MAX: u32 = 1 << 14;
const STREAMS_MAX: usize = 8;

/// The output of one call: the limit of the output, a frame beyond it, and the frames in reply to one input.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The largest window of the connection that its shell grants.
const WINDOW_BYTES_MAX: u64 = 1 << 20;

/// Bytes of DATA in both directions, and what each side has allowed the other.
#[derive(Clone, Copy, Default)]
struct Flow {
    /// Increments of the peer, and bytes that were sent to it.
    allowed: u64,
    sent: u64,
    /// Increments of the machine, and bytes that it was sent in whole frames.
    granted: u64,
    received: u64,
}

/// The peer's side of what was sent to it.
#[derive(Default)]
struct Account {
    /// Bytes of frames that were received and are not whole.
    fed: Vec<u8>,
    /// By the number of the stream; 0: all of the connection.
    flows: HashMap<u32, Flow>,
    /// The largest initial window of streams that the peer has ever allowed.
    initial_max: u64,
}

impl Account {
    /// Notes what the peer allows.
    fn feed(&mut self, bytes: &[u8]) {
        self.fed.extend_from_slice(bytes);
        let mut at = 0;
        while let Ok(Some(header)) = FrameHeader::read(&self.fed[at..], FRAME_BYTES_MAX) {
            let (start, end) = (at + FRAME_HEADER_BYTES, at + FRAME_HEADER_BYTES + header.length as usize);
            let Some(payload) = self.fed.get(start..end) else { break };
            match Frame::parse(header, payload) {
                Ok(Frame::WindowUpdate(increment)) => {
                    self.flows.entry(header.stream_id).or_default().allowed += u64::from(increment);
                }
                Ok(Frame::Settings(settings)) => {
                    for setting in settings.iter() {
                        if let Ok(Setting::InitialWindowSize(bytes)) = setting {
                            self.initial_max = self.initial_max.max(bytes.into());
                        }
                    }
                }
                Ok(Frame::Data(_)) => {
                    for number in [0, header.stream_id] {
                        self.flows.entry(number).or_default().received += u64::from(header.length);
                    }
                }
                _ => {}
            }
            at = end;
        }
        self.fed.drain(..at);
    }

    /// Judges what was sent.
    fn judge(&mut self, mut output: &[u8]) {
        output = output.strip_prefix(PREFACE).unwrap_or(output);
        while !output.is_empty() {
            let header =
                FrameHeader::read(output, FRAME_BYTES_MAX).expect("no frame is too long").expect("whole frames");
            let (frame, rest) = output.split_at(FRAME_HEADER_BYTES + header.length as usize);
            match Frame::parse(header, &frame[FRAME_HEADER_BYTES..]).expect("legal frames") {
                Frame::Data(_) => {
                    for number in [0, header.stream_id] {
                        self.flows.entry(number).or_default().sent += u64::from(header.length);
                    }
                }
                Frame::WindowUpdate(increment) => {
                    self.flows.entry(header.stream_id).or_default().granted += u64::from(increment);
                }
                _ => {}
            }
            output = rest;
        }
        let first = u64::from(WINDOW_BYTES_DEFAULT);
        for (number, flow) in &self.flows {
            let initial = if *number == 0 { first } else { self.initial_max.max(first) };
            assert!(flow.sent <= initial + flow.allowed, "more than the window of {number}");
            // A frame counts before it is whole.
            let received = flow.received + u64::from(FRAME_BYTES_MAX);
            let window = if *number == 0 { WINDOW_BYTES_MAX } else { first };
            assert!(flow.granted <= received + window, "more than was received on {number}");
        }
    }
}

/// A connection and its shell.
struct World {
    machine: Connection,
    is_client: bool,
    streams: Vec<StreamId>,
    account: Account,
    rng: Rng,
    now: Time,
}

/// The first byte selects role and seed, the second one the pieces, and the rest comes from the peer. Nothing panics; memory is bounded by
/// windows and limits; all windows are exact; frames that are sent are legal; cuts change nothing.
pub fn http2_connection(data: &[u8]) {
    let Some((&[kind, size], wire)) = data.split_first_chunk() else { return };
    let mut input = Vec::new();
    let is_client = kind & 1 == 1;
    if kind & 2 == 0 {
        if !is_client {
            input.extend_from_slice(PREFACE);
        }
        write::settings(&mut input, &[]);
    }
    input.extend_from_slice(wire);
    cuts_change_nothing(is_client, &input, usize::from(size) + 1);
    let mut world = World::new(is_client, u64::from(kind) << 8 | u64::from(size));
    let mut rest = &input[..];
    while !rest.is_empty() {
        let piece = 1 + world.below(usize::from(size) + 1);
        let (piece, behind) = rest.split_at(piece.min(rest.len()));
        rest = behind;
        world.account.feed(piece.strip_prefix(PREFACE).unwrap_or(piece));
        world.machine.receive(piece, world.now);
        world.act();
        world.check();
    }
    world.end();
}

fn machine(is_client: bool) -> Connection {
    let config = ConnectionConfig {
        streams_max: STREAMS_MAX as u32,
        stream_window: 1_000,
        send_queue_bytes: 1_000,
        head_limits: HeadLimits { bytes: 2_048, ..HeadLimits::default() },
        connect_protocol: true,
        ..ConnectionConfig::default()
    };
    if is_client { Connection::client(config) } else { Connection::server(config) }
}

fn cuts_change_nothing(is_client: bool, input: &[u8], size: usize) {
    let outcome = |size: usize| {
        let mut machine = machine(is_client);
        if is_client {
            (0..3).for_each(|_| _ = machine.send_request(&request(), TARGET, false));
        }
        input.chunks(size).for_each(|piece| machine.receive(piece, Time::from_nanos(1)));
        let events: Vec<_> = std::iter::from_fn(|| machine.next_event()).map(|event| format!("{event:?}")).collect();
        let mut output = Vec::new();
        while machine.take_output(&mut output) {}
        (events, output, machine.held(), machine.open_streams())
    };
    assert_eq!(outcome(size), outcome(input.len().max(1)));
}

const TARGET: RequestTarget<'static> = RequestTarget { scheme: b"http", authority: b"a", protocol: None };

fn request() -> RequestHead {
    let line = (&b"POST"[..], &b"/"[..], &b"a"[..]);
    RequestHead::from_parts(Version::Http2, line, Fields::new(), false, &HeadLimits::default()).expect("a request")
}

impl World {
    fn new(is_client: bool, seed: u64) -> Self {
        let machine = machine(is_client);
        let now = Time::from_nanos(1_000_000_000);
        Self { machine, is_client, streams: Vec::new(), account: Account::default(), rng: Rng::new(seed), now }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.rng.next_u64() % end as u64) as usize
    }

    /// Some calls, in any order.
    fn act(&mut self) {
        for _ in 0..self.below(4) {
            match self.below(12) {
                0 => self.now = self.now.saturating_add(std::time::Duration::from_millis(300)),
                1 | 2 => self.events(),
                3 => self.output(),
                4 => self.machine.expire(self.now),
                5 => drop(self.machine.set_initial_stream_window(self.rng.next_u64() as u32 % 3_000)),
                6 => self.machine.set_connection_window(self.rng.next_u64() as u32 % 200_000),
                7 => drop(self.machine.ping()),
                8 if self.below(20) == 0 => self.machine.shut_down(),
                8 if self.is_client => self.streams.extend(self.machine.send_request(&request(), TARGET, false)),
                _ => self.act_on_stream(),
            }
        }
    }

    fn act_on_stream(&mut self) {
        if self.streams.is_empty() {
            return;
        }
        let at = self.below(self.streams.len());
        let id = self.streams[at];
        // A stream that takes nothing any more says so; which one does is for the other targets to find.
        match self.below(8) {
            0 => {
                let head = ResponseHead::from_parts(Version::Http2, 200, BodyLength::Chunked);
                let _ = self.machine.send_response(id, &head, None, false);
            }
            1 | 2 => {
                let count = self.machine.send_capacity(id).min(700);
                let _ = self.machine.send_data(id, &[7; 700][..count]);
            }
            3 => {
                let mut trailers = Fields::new();
                trailers.push(b"X-Sum", b"7");
                let _ = self.machine.send_end(id, Some(&trailers).filter(|_| id.number() % 4 == 1));
            }
            4 => {
                let mut data = Vec::new();
                let count = self.machine.take_data(id, &mut data, usize::MAX);
                assert_eq!(count, data.len());
                self.machine.release(id, count);
                drop(self.machine.take_trailers(id));
            }
            5 => self.machine.reset(id, ErrorCode::CANCEL),
            6 => {
                self.machine.forget(id);
                self.streams.swap_remove(at);
            }
            _ => drop(self.machine.take_data(id, &mut Vec::new(), usize::MAX)),
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.machine.next_event() {
            match event {
                Event::Request(id, _) => self.streams.push(id),
                Event::Readable(id)
                | Event::Writable(id)
                | Event::Reset(id, _)
                | Event::Response { stream: id, .. } => {
                    assert!(self.streams.contains(&id), "an event of a stream that the shell does not have");
                }
                Event::Failed(_) => assert!(self.machine.is_over()),
                _ => {}
            }
        }
    }

    fn output(&mut self) {
        let mut output = Vec::new();
        let has_output = self.machine.has_output();
        assert_eq!(self.machine.take_output(&mut output), has_output);
        assert!(output.len() <= OUTPUT_BYTES_MAX);
        self.account.judge(&output);
    }

    fn check(&self) {
        let held: usize = self.streams.iter().map(|id| self.machine.held_by(*id)).sum();
        // Streams whose requests wait among the events hold something too.
        assert!(held as u64 <= self.machine.held());
        for id in &self.streams {
            let received = self.machine.received(*id);
            assert!(received.bytes <= self.machine.held_by(*id));
            assert!(self.machine.queued(*id) <= 1_000);
        }
        if !self.is_client {
            // Those that the shell has given up, and that still send, are among the open ones.
            assert!(self.machine.open_streams() <= 2 * STREAMS_MAX);
        }
    }

    /// Nothing is left.
    fn end(mut self) {
        self.events();
        let held: usize = self.streams.iter().map(|id| self.machine.held_by(*id)).sum();
        assert_eq!(held as u64, self.machine.held(), "no byte is lost");
        while self.machine.has_output() {
            self.output();
        }
        self.machine.close();
        for id in std::mem::take(&mut self.streams) {
            self.machine.forget(id);
        }
        assert_eq!((self.machine.open_streams(), self.machine.held()), (0, 0));
    }
}
