//! A client and a server that are joined in memory.

use std::collections::HashMap;

use weir_http_codec::{Fields, RequestHead, ResponseHead};
use weir_http2_codec::{Connection, ConnectionConfig, Event, RequestTarget, ResetCause, StreamId};

use crate::peer::{NOW, request_head};

pub const TARGET: RequestTarget<'static> = RequestTarget { scheme: b"http", authority: b"a.example", protocol: None };

/// A stream as one side knows it.
#[derive(Debug, Default)]
pub struct Seen {
    pub id: Option<StreamId>,
    pub request: Option<RequestHead>,
    pub heads: Vec<ResponseHead>,
    pub data: Vec<u8>,
    pub trailers: Option<Fields>,
    pub reset: Option<ResetCause>,
    pub is_end: bool,
}

/// One side, and the bytes on their way to it.
pub struct Side {
    pub machine: Connection,
    pub wire: Vec<u8>,
    pub streams: HashMap<u32, Seen>,
    pub failed: bool,
}

impl Side {
    fn new(machine: Connection) -> Self {
        Self { machine, wire: Vec::new(), streams: HashMap::new(), failed: false }
    }

    /// Takes up to `count` bytes that are on their way, and the events.
    pub fn receive(&mut self, count: usize) {
        let count = count.min(self.wire.len());
        let rest = self.wire.split_off(count);
        let bytes = std::mem::replace(&mut self.wire, rest);
        self.machine.receive(&bytes, NOW);
        while let Some(event) = self.machine.next_event() {
            match event {
                Event::Request(id, request) => {
                    let seen = self.streams.entry(id.number()).or_default();
                    (seen.id, seen.request) = (Some(id), Some(request.expect("legal").head));
                }
                Event::Response { stream, head, .. } => {
                    self.streams.entry(stream.number()).or_default().heads.push(head);
                }
                Event::Reset(id, cause) => {
                    let seen = self.streams.entry(id.number()).or_default();
                    assert!(!matches!(cause, ResetCause::Breach(_)), "{cause:?}");
                    seen.reset = Some(cause);
                }
                Event::Failed(_) => self.failed = true,
                Event::Refused(error) => panic!("{error:?}"),
                _ => {}
            }
        }
    }

    /// Takes up to `count` bytes of data of a stream, and releases them.
    pub fn read(&mut self, number: u32) {
        let Some(seen) = self.streams.get_mut(&number) else { return };
        let Some(id) = seen.id else { return };
        let count = self.machine.take_data(id, &mut seen.data, usize::MAX);
        self.machine.release(id, count);
        let received = self.machine.received(id);
        seen.is_end |= received.is_end;
        if received.is_end && seen.trailers.is_none() {
            seen.trailers = self.machine.take_trailers(id);
        }
    }

    pub fn id(&self, number: u32) -> StreamId {
        self.streams[&number].id.expect("seen")
    }
}

/// Both sides.
pub struct Pair {
    pub client: Side,
    pub server: Side,
    /// Bytes of a delivery.
    pub piece: usize,
}

impl Pair {
    pub fn new(client: ConnectionConfig, server: ConnectionConfig) -> Self {
        let (client, server) = (Connection::client(client), Connection::server(server));
        Self { client: Side::new(client), server: Side::new(server), piece: usize::MAX }
    }

    /// Moves one piece in each direction; false: there is nothing to move.
    pub fn step(&mut self) -> bool {
        let mut moves = self.client.machine.take_output(&mut self.server.wire);
        moves |= self.server.machine.take_output(&mut self.client.wire);
        for side in [&mut self.client, &mut self.server] {
            if !side.wire.is_empty() {
                side.receive(self.piece);
                moves = true;
            }
        }
        assert!(!self.client.failed && !self.server.failed, "neither breaks a rule");
        moves
    }

    /// Moves all there is.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    pub fn open(&mut self, method: &str, pairs: &[(&str, &str)], is_end: bool) -> u32 {
        let head = request_head(method, pairs, is_end);
        let id = self.client.machine.send_request(&head, TARGET, is_end).expect("room");
        self.client.streams.entry(id.number()).or_default().id = Some(id);
        id.number()
    }
}
