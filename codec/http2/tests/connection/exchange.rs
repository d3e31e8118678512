//! Whole exchanges between a client and a server, with bytes cut anywhere and calls in any order.

use proptest::prelude::*;
use weir_http_codec::BodyLength;
use weir_http2_codec::{
    ConnectionConfig, ErrorCode, Event, ResetCause,
    frame::{FrameKind, flags},
    hpack::Decoder,
};

use crate::{
    pair::Pair,
    peer::{Peer, Sent, fields, head, only_request, response},
};

#[test]
fn an_exchange_is_the_same_whatever_the_pieces_that_its_bytes_come_in() {
    for piece in (1..40).chain([100, 1_000, 16_393, usize::MAX]) {
        let mut pair = Pair::new(ConnectionConfig::default(), ConnectionConfig::default());
        pair.piece = piece;
        let stream = pair.open("POST", &[("x-a", "1"), ("content-length", "5")], false);
        let id = pair.client.id(stream);
        pair.client.machine.send_data(id, b"hello").expect("open");
        pair.client.machine.send_end(id, Some(&fields(&[("x-sum", "1")]))).expect("open");
        pair.settle();
        pair.server.read(stream);
        let seen = &pair.server.streams[&stream];
        assert_eq!((&seen.data[..], seen.is_end, seen.trailers.is_some()), (&b"hello"[..], true, true));
        let head = seen.request.as_ref().expect("a request");
        assert_eq!((head.method(), head.body(), head.fields.len()), (&b"POST"[..], BodyLength::Exact(5), 2));
        let id = pair.server.id(stream);
        pair.server.machine.send_response(id, &response(103, &[("link", "x")]), None, false).expect("open");
        pair.server.machine.send_response(id, &response(200, &[("x-b", "2")]), None, false).expect("open");
        pair.server.machine.send_data(id, b"olleh").expect("open");
        pair.server.machine.send_end(id, None).expect("open");
        pair.server.machine.forget(id);
        pair.settle();
        pair.client.read(stream);
        let seen = &pair.client.streams[&stream];
        assert_eq!(seen.heads.iter().map(|head| head.status()).collect::<Vec<_>>(), [103, 200]);
        assert_eq!((&seen.data[..], seen.is_end), (&b"olleh"[..], true));
        pair.client.machine.forget(pair.client.id(stream));
        pair.settle();
        assert_eq!((pair.client.machine.open_streams(), pair.server.machine.open_streams()), (0, 0));
    }
}

/// The blocks that a machine has sent as HEADERS, decoded: names of fields that no table may hold.
fn never_indexed(sent: &[Sent]) -> Vec<String> {
    let (mut decoder, mut names) = (Decoder::new(4096), Vec::new());
    for frame in sent.iter().filter(|frame| frame.kind() == FrameKind::Headers) {
        let decoded = decoder.decode(&frame.payload, usize::MAX, |field| {
            if field.is_never_indexed {
                names.push(String::from_utf8_lossy(field.name).into_owned());
            }
        });
        decoded.expect("a block of the machine");
    }
    names
}

#[test]
fn fields_that_no_table_may_hold_are_marked_on_the_next_hop_too() {
    // From a client, through a gateway, to an origin.
    let (mut from, mut to) = (Peer::of_server(), Peer::of_client());
    let mut block = from.block(&head("POST"));
    from.encoder.field_never_indexed(&mut block, b"x-secret", b"some secret of a user");
    from.encoder.field(&mut block, b"x-open", b"some other value");
    from.encoder.field(&mut block, b"cookie", b"a=0123456789abcdef0123456789");
    from.encoder.field_never_indexed(&mut block, b"cookie", b"b=0123456789abcdef0123456789");
    from.raw(1, flags::END_HEADERS, 1, &block);
    let (id, request) = only_request(from.events());
    let request = request.expect("legal").head;
    to.machine.send_request(&request, crate::pair::TARGET, false).expect("room");
    assert_eq!(never_indexed(&to.sent()), ["x-secret", "cookie"]);
    // And back again, with its trailers.
    let mut block = to.block(&[(":status", "200")]);
    to.encoder.field_never_indexed(&mut block, b"set-cookie", b"b=fedcba9876543210");
    to.raw(1, flags::END_HEADERS, 1, &block);
    let mut trailers = Vec::new();
    to.encoder.field_never_indexed(&mut trailers, b"x-sum", b"7");
    to.raw(1, flags::END_HEADERS | flags::END_STREAM, 1, &trailers);
    let events = to.events();
    let Some(Event::Response { stream, head, .. }) = events.first() else { panic!("{events:?}") };
    let trailers = to.machine.take_trailers(*stream);
    from.machine.send_response(id, head, None, false).expect("open");
    from.machine.send_end(id, trailers.as_ref()).expect("open");
    assert_eq!(never_indexed(&from.sent()), ["set-cookie", "x-sum"]);
}

#[test]
fn a_drain_of_the_server_ends_both_sides_and_loses_no_stream() {
    let mut pair = Pair::new(ConnectionConfig::default(), ConnectionConfig::default());
    let stream = pair.open("GET", &[], true);
    pair.settle();
    pair.server.machine.shut_down();
    let between = pair.open("GET", &[], true);
    pair.settle();
    for stream in [stream, between] {
        let id = pair.server.id(stream);
        pair.server.machine.send_response(id, &response(200, &[]), None, true).expect("taken");
        pair.server.machine.forget(id);
    }
    pair.settle();
    for stream in [stream, between] {
        assert_eq!(pair.client.streams[&stream].heads.len(), 1);
        let id = pair.client.id(stream);
        pair.client.machine.forget(id);
    }
    assert!(pair.client.machine.is_over() && pair.server.machine.is_over());
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    Open,
    Request { stream: usize, bytes: usize, is_end: bool },
    Respond { stream: usize, bytes: usize, is_end: bool },
    ReadRequest(usize),
    ReadResponse(usize),
    ResetByClient(usize),
    ResetByServer(usize),
    Forget { of_client: bool, stream: usize },
    StreamWindow { of_client: bool, bytes: u32 },
    ConnectionWindow { of_client: bool, bytes: u32 },
    Move(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = 0..6_usize;
    let bytes = prop_oneof![0..100_usize, 1_000..90_000_usize];
    let window = prop_oneof![0..100_u32, 1_000..200_000_u32];
    let step = prop_oneof![
        3 => Just(Step::Open),
        6 => (stream.clone(), bytes.clone(), prop::bool::weighted(0.2))
            .prop_map(|(stream, bytes, is_end)| Step::Request { stream, bytes, is_end }),
        6 => (stream.clone(), bytes, prop::bool::weighted(0.2))
            .prop_map(|(stream, bytes, is_end)| Step::Respond { stream, bytes, is_end }),
        4 => stream.clone().prop_map(Step::ReadRequest),
        4 => stream.clone().prop_map(Step::ReadResponse),
        1 => stream.clone().prop_map(Step::ResetByClient),
        1 => stream.clone().prop_map(Step::ResetByServer),
        1 => (any::<bool>(), stream).prop_map(|(of_client, stream)| Step::Forget { of_client, stream }),
        1 => (any::<bool>(), window.clone()).prop_map(|(of_client, bytes)| Step::StreamWindow { of_client, bytes }),
        1 => (any::<bool>(), window).prop_map(|(of_client, bytes)| Step::ConnectionWindow { of_client, bytes }),
        12 => (1..40_000_usize).prop_map(Step::Move),
    ];
    prop::collection::vec(step, 1..120)
}

/// The bytes that were sent on a stream: each says where it belongs.
#[derive(Clone, Copy, Default)]
struct Expected {
    request: usize,
    request_end: bool,
    response: usize,
    response_begun: bool,
    response_end: bool,
    is_reset: bool,
}

fn body(stream: usize, at: usize, count: usize) -> Vec<u8> {
    (at..at + count).map(|at| (at * 7 + stream) as u8).collect()
}

struct World {
    pair: Pair,
    sent: Vec<Expected>,
}

impl World {
    fn number(stream: usize) -> u32 {
        2 * stream as u32 + 1
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Open if self.sent.len() < 6 => {
                self.pair.open("POST", &[], false);
                self.sent.push(Expected::default());
            }
            Step::Request { stream, bytes, is_end } => self.request(stream, bytes, is_end),
            Step::Respond { stream, bytes, is_end } => self.respond(stream, bytes, is_end),
            Step::ReadRequest(stream) => self.pair.server.read(Self::number(stream)),
            Step::ReadResponse(stream) => self.pair.client.read(Self::number(stream)),
            Step::ResetByClient(stream) if stream < self.sent.len() => {
                let id = self.pair.client.id(Self::number(stream));
                self.pair.client.machine.reset(id, ErrorCode::CANCEL);
                self.sent[stream].is_reset = true;
            }
            Step::ResetByServer(stream) => {
                if let Some(id) = self.pair.server.streams.get(&Self::number(stream)).and_then(|seen| seen.id) {
                    self.pair.server.machine.reset(id, ErrorCode::CANCEL);
                    self.sent[stream].is_reset = true;
                }
            }
            Step::Forget { of_client, stream } => self.forget(of_client, stream),
            Step::StreamWindow { of_client, bytes } => {
                self.side(of_client).set_initial_stream_window(bytes);
            }
            Step::ConnectionWindow { of_client, bytes } => self.side(of_client).set_connection_window(bytes),
            Step::Move(piece) => {
                self.pair.piece = piece;
                self.pair.step();
            }
            Step::Open | Step::ResetByClient(_) => {}
        }
    }

    /// Nothing is received any more; a response goes on to its end.
    fn forget(&mut self, of_client: bool, stream: usize) {
        let number = Self::number(stream);
        let side = if of_client { &mut self.pair.client } else { &mut self.pair.server };
        let Some(id) = side.streams.get(&number).and_then(|seen| seen.id) else { return };
        side.read(number);
        side.machine.forget(id);
        self.sent[stream].is_reset = true;
    }

    fn side(&mut self, of_client: bool) -> &mut weir_http2_codec::Connection {
        if of_client { &mut self.pair.client.machine } else { &mut self.pair.server.machine }
    }

    fn request(&mut self, stream: usize, bytes: usize, is_end: bool) {
        let Some(sent) = self.sent.get_mut(stream) else { return };
        let id = self.pair.client.id(Self::number(stream));
        let machine = &mut self.pair.client.machine;
        if machine.send_data(id, &body(stream, sent.request, bytes)).is_ok() {
            sent.request += bytes;
        }
        if is_end {
            sent.request_end |= machine.send_end(id, None).is_ok();
        }
    }

    fn respond(&mut self, stream: usize, bytes: usize, is_end: bool) {
        let Some(id) = self.pair.server.streams.get(&Self::number(stream)).and_then(|seen| seen.id) else { return };
        let (sent, machine) = (&mut self.sent[stream], &mut self.pair.server.machine);
        if !std::mem::replace(&mut sent.response_begun, true) {
            let _ = machine.send_response(id, &response(200, &[]), None, false);
        }
        if machine.send_data(id, &body(stream, sent.response, bytes)).is_ok() {
            sent.response += bytes;
        }
        if is_end {
            let trailers = fields(&[("x-sum", "1")]);
            let trailers = stream.is_multiple_of(2).then_some(&trailers);
            sent.response_end |= machine.send_end(id, trailers).is_ok();
        }
    }

    /// All that was sent arrives, and all windows are what they were.
    fn finish(mut self) {
        for of_client in [true, false] {
            // Windows of 0 would hold it for ever.
            self.side(of_client).set_connection_window(100_000);
            while !self.side(of_client).set_initial_stream_window(50_000) {
                self.pair.settle();
            }
        }
        self.pair.piece = usize::MAX;
        for _ in 0..200 {
            self.pair.settle();
            for stream in 0..self.sent.len() {
                self.pair.server.read(Self::number(stream));
                self.pair.client.read(Self::number(stream));
            }
        }
        for (stream, sent) in self.sent.iter().enumerate() {
            let response = &self.pair.client.streams[&Self::number(stream)];
            let Some(request) = self.pair.server.streams.get(&Self::number(stream)) else {
                assert!(sent.is_reset, "a stream that was reset before its request was seen");
                continue;
            };
            let is_whole = |data: &[u8], count: usize| data == body(stream, 0, data.len()) && data.len() <= count;
            assert!(
                is_whole(&request.data, sent.request) && is_whole(&response.data, sent.response),
                "stream {stream}"
            );
            if !sent.is_reset {
                assert_eq!((request.data.len(), response.data.len()), (sent.request, sent.response), "stream {stream}");
                assert_eq!((request.is_end, response.is_end), (sent.request_end, sent.response_end));
                let has_trailers = sent.response_end && stream.is_multiple_of(2);
                assert_eq!((request.reset, response.trailers.is_some()), (None::<ResetCause>, has_trailers));
            }
        }
        for side in [&mut self.pair.client, &mut self.pair.server] {
            let ids: Vec<_> = side.streams.values().filter_map(|seen| seen.id).collect();
            ids.into_iter().for_each(|id| side.machine.forget(id));
        }
        self.pair.settle();
        for side in [&self.pair.client, &self.pair.server] {
            assert_eq!((side.machine.open_streams(), side.machine.held()), (0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// However calls and deliveries are mixed, no window is exceeded (the other side would refuse that), and no byte is lost.
    #[test]
    fn calls_and_deliveries_in_any_order_lose_no_byte(steps in steps(), small in any::<bool>()) {
        let config = match small {
            true => ConnectionConfig { stream_window: 100, connection_window: 65_535, ..ConnectionConfig::default() },
            false => ConnectionConfig::default(),
        };
        let mut world = World { pair: Pair::new(config, ConnectionConfig::default()), sent: Vec::new() };
        steps.iter().for_each(|step| world.take(step));
        world.finish();
    }
}
