//! Windows of HTTP/2: a stream that its receiver does not read costs its own window and nothing else, in front of a shared
//! connection to an origin and on the connection of one client; windows grow with what is read over a distance.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::deadline::{WAIT, until_true};
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Origin, Http2Peer, block, flag, frame, get, kind, window_setting, window_update};
use weir_tests::nginx::Nginx;
use weir_tests::stream::{Address, Stream};
use weir_tests::websocket::{WebSocketOrigin, masked};

/// One connection for all of a test's streams.
const HTTP2: &str = "[upstream.http]\nversion = \"2\"\nstreams_max = 128";
/// Others must be served within this, whatever one client does, and whatever else the machine does. It was 58 s.
const PROMPT: Duration = Duration::from_secs(5);
const MIB: usize = 1024 * 1024;

fn before(origin: &Address) -> Config {
    Config::http(origin).upstream(HTTP2)
}

/// The bytes that the windows of a connection let one side send.
struct Windows {
    connection: i64,
    initial: i64,
    /// Window of each stream, with the bytes still to send.
    streams: BTreeMap<u32, (i64, usize)>,
}

impl Windows {
    fn new() -> Self {
        Self { connection: 65_535, initial: 65_535, streams: BTreeMap::new() }
    }

    fn open(&mut self, stream: u32, bytes: usize) {
        self.streams.insert(stream, (self.initial, bytes));
    }

    /// Bytes that were not sent.
    fn left(&self) -> usize {
        self.streams.values().map(|(_, left)| left).sum()
    }

    /// Reads what has come within `limit`, answers settings and pings, and gives the streams of requests that are whole.
    fn receive(&mut self, peer: &mut Http2Peer, limit: Duration) -> Vec<u32> {
        let mut asked = Vec::new();
        let mut wait = limit;
        while let Some(found) = peer.next_within(wait) {
            wait = Duration::from_millis(1);
            match found.kind {
                kind::WINDOW_UPDATE if found.stream == 0 => self.connection += i64::from(found.code()),
                kind::WINDOW_UPDATE => {
                    if let Some((window, _)) = self.streams.get_mut(&found.stream) {
                        *window += i64::from(found.code());
                    }
                }
                kind::SETTINGS if found.flags & flag::ACK == 0 => {
                    if let Some(initial) = found.initial_window().map(i64::from) {
                        let change = initial - std::mem::replace(&mut self.initial, initial);
                        self.streams.values_mut().for_each(|(window, _)| *window += change);
                    }
                    peer.send(frame(kind::SETTINGS, flag::ACK, 0, b""));
                }
                kind::PING if found.flags & flag::ACK == 0 => {
                    peer.send(frame(kind::PING, flag::ACK, 0, &found.payload));
                }
                kind::HEADERS | kind::DATA if found.flags & flag::END_STREAM != 0 => asked.push(found.stream),
                _ => {}
            }
        }
        asked
    }

    /// Sends what the windows let through, in pieces of `piece` bytes.
    fn send(&mut self, peer: &mut Http2Peer, piece: usize) {
        let mut frames = Vec::new();
        for (stream, (window, left)) in &mut self.streams {
            while *left > 0 {
                let count = (*left).min(piece).min(self.connection.min(*window).max(0) as usize);
                if count == 0 {
                    break;
                }
                *left -= count;
                *window -= count as i64;
                self.connection -= count as i64;
                let end = if *left == 0 { flag::END_STREAM } else { 0 };
                frames.extend_from_slice(&frame(kind::DATA, end, *stream, &vec![b'x'; count]));
            }
        }
        self.streams.retain(|_, (_, left)| *left > 0);
        peer.send(frames);
    }
}

/// An origin that responds to its first requests with long bodies and to the others with two bytes, as windows let it.
struct LongResponses {
    /// How many responses are long.
    count: usize,
    bytes: usize,
    piece: usize,
    /// Between what arrives and what it does about it.
    distance: Duration,
}

/// Requests, windows and unsent bytes as the origin sees them.
#[derive(Default)]
struct OriginView {
    requests: AtomicUsize,
    /// The windows that were announced.
    windows: Mutex<Vec<u32>>,
    /// Bytes of long bodies that have not gone out.
    unsent: AtomicUsize,
}

impl OriginView {
    fn largest_window(&self) -> u32 {
        self.windows.lock().expect("whole").iter().copied().max().unwrap_or(0)
    }

    fn last_window(&self) -> u32 {
        self.windows.lock().expect("whole").last().copied().unwrap_or(0)
    }
}

impl LongResponses {
    fn start(self) -> (Http2Origin, Arc<OriginView>) {
        let seen = Arc::<OriginView>::default();
        let own = seen.clone();
        (Http2Origin::start(move |_, peer| self.serve(peer, &own)), seen)
    }

    fn serve(&self, peer: &mut Http2Peer, seen: &OriginView) {
        let mut windows = Windows::new();
        while !peer.has_ended() {
            // The distance between it and the gateway.
            std::thread::sleep(self.distance);
            for stream in windows.receive(peer, Duration::from_millis(20)) {
                peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &block(&[(":status", "200")])));
                let is_long = seen.requests.fetch_add(1, Ordering::SeqCst) < self.count;
                windows.open(stream, if is_long { self.bytes } else { 2 });
            }
            let mut announced = seen.windows.lock().expect("whole");
            if announced.last() != Some(&(windows.initial as u32)) {
                announced.push(windows.initial as u32);
            }
            drop(announced);
            windows.send(peer, self.piece);
            seen.unsent.store(windows.left(), Ordering::SeqCst);
        }
    }
}

/// A client that opens streams and lets none of their bodies come.
fn stalled_client(gateway: &Gateway, window: Option<u32>, streams: u32) -> Http2Peer {
    let mut client = Http2Peer::connect(&gateway.address);
    if let Some(window) = window {
        client.send(window_setting(window));
    }
    for number in 0..streams {
        assert!(client.request(2 * number + 1, &get("/large")));
    }
    (0..streams).for_each(|_| drop(client.next_of(kind::HEADERS)));
    client
}

/// A request of two bytes, over both versions, is answered in time.
#[track_caller]
fn served_promptly(gateway: &Gateway) {
    let begun = Instant::now();
    assert_eq!(HttpClient::connect(&gateway.address).get("/small").content(), "ok");
    assert!(begun.elapsed() < PROMPT, "over HTTP/1.1: {:?}", begun.elapsed());
    let begun = Instant::now();
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/small"));
    assert_eq!(client.next_of(kind::DATA).payload, b"ok");
    assert!(begun.elapsed() < PROMPT, "over HTTP/2: {:?}", begun.elapsed());
}

/// An origin that gives no window back to its streams: it takes 65,535 bytes of each.
struct Unreading;

impl Unreading {
    /// With the stream whose request came to its end last, and the number of streams that were opened.
    fn start() -> (Http2Origin, Arc<AtomicU32>, Arc<AtomicUsize>) {
        let (finished, origin_streams) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, opened) = (finished.clone(), origin_streams.clone());
        let origin = Http2Origin::start(move |_, peer| {
            peer.send(window_update(0, 1 << 30));
            while let Some(found) = peer.next_frame() {
                opened.fetch_add(usize::from(found.kind == kind::HEADERS), Ordering::SeqCst);
                match found.kind {
                    kind::SETTINGS | kind::PING if found.flags & flag::ACK == 0 => {
                        peer.send(frame(
                            found.kind,
                            flag::ACK,
                            0,
                            &found.payload[..usize::from(found.kind == kind::PING) * 8],
                        ));
                    }
                    kind::DATA if found.flags & flag::END_STREAM != 0 => {
                        done.store(found.stream, Ordering::SeqCst);
                        peer.send(frame(kind::HEADERS, 5, found.stream, &block(&[(":status", "200")])));
                    }
                    _ => {}
                }
            }
        });
        (origin, finished, origin_streams)
    }
}

/// nginx as an origin of HTTP/2, with a file of eight megabytes.
fn nginx() -> Nginx {
    let nginx = Nginx::start("http2", "location = /small { return 200 ok; }");
    std::fs::write(nginx.folder().join("large"), vec![b'x'; 8 * MIB]).expect("written");
    nginx
}

#[test]
fn a_hundred_stalled_streams_of_five_clients_hold_up_nobody() {
    let nginx = nginx();
    for window in [Some(0), None] {
        let mut gateway = Gateway::start(before(&nginx.address));
        served_promptly(&gateway);
        let quiet = gateway.process().resident();
        let clients: Vec<_> = (0..5).map(|_| stalled_client(&gateway, window, 20)).collect();
        (0..20).for_each(|_| served_promptly(&gateway));
        assert!(gateway.process().resident() < quiet + 64 * MIB as u64, "{}", gateway.process().resident());
        drop(clients);
        gateway.finish();
    }
}

#[test]
fn clients_of_http1_that_do_not_read_hold_up_nobody_in_front_of_http2() {
    let nginx = nginx();
    let gateway = Gateway::start(before(&nginx.address));
    let stalled: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Stream::connect(&gateway.address).expect("the gateway accepts");
            client.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").expect("taken");
            client
        })
        .collect();
    gateway.wait_metric("weir_requests_in_flight", &[], 20.0);
    (0..20).for_each(|_| served_promptly(&gateway));
    drop(stalled);
    gateway.finish();
}

#[test]
fn twenty_uploads_that_the_origin_does_not_read_hold_up_no_other_of_their_connection() {
    let (origin, finished, origin_streams) = Unreading::start();
    let gateway = Gateway::start(before(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    let mut windows = Windows::new();
    for number in 0..20 {
        client.send(frame(kind::HEADERS, flag::END_HEADERS, 2 * number + 1, &head));
        windows.open(2 * number + 1, 8 * MIB);
    }
    // Until nothing goes any more.
    let mut before = usize::MAX;
    while before != windows.left() {
        before = windows.left();
        windows.receive(&mut client, Duration::from_millis(200));
        windows.send(&mut client, 16 * 1024);
    }
    until_true("the origin to have all of them", || origin_streams.load(Ordering::SeqCst) == 20);
    // Another upload of the same connection, while they stand.
    let begun = Instant::now();
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 41, &head));
    windows.streams.clear();
    windows.open(41, 50_000);
    while finished.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PROMPT, "{} bytes could not be sent", windows.left());
        windows.send(&mut client, 16 * 1024);
        windows.receive(&mut client, Duration::from_millis(10));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn small_frames_that_nobody_reads_end_no_connection_to_an_origin() {
    // Messages of gRPC, say: 20 bytes each, as many as the window takes.
    let (origin, seen) = LongResponses { count: 3, bytes: MIB, piece: 20, distance: Duration::ZERO }.start();
    let gateway = Gateway::start(before(&origin.address));
    let client = stalled_client(&gateway, Some(0), 3);
    // A frame of each stream may be passed on before it is known that none is wanted.
    let stands = 3 * (MIB - 256 * 1024);
    until_true("the origin to have sent what it may", || {
        (stands - 60..=stands).contains(&seen.unsent.load(Ordering::SeqCst))
    });
    let mut victim = HttpClient::connect(&gateway.address);
    assert_eq!(victim.get("/").content(), "xx");
    assert_eq!(origin.connections(), 1, "the connection that all share has ended");
    drop((client, victim));
    gateway.finish();
}

#[test]
fn windows_grow_with_bytes_read_over_a_distance_and_not_for_a_stalled_stream() {
    let distance = Duration::from_millis(15);
    let (origin, seen) = LongResponses { count: 3, bytes: 12 * MIB, piece: 16 * 1024, distance }.start();
    let gateway = Gateway::start(before(&origin.address));
    let client = stalled_client(&gateway, Some(0), 2);
    std::thread::sleep(20 * distance);
    assert_eq!(seen.largest_window(), 256 * 1024, "nothing is read");
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content().len(), 12 * MIB);
    assert!(seen.largest_window() >= MIB as u32, "{}", seen.largest_window());
    drop(client);
    gateway.finish();
}

#[test]
fn windows_shrink_while_streams_hold_much_and_memory_stays_within_the_budget() {
    let distance = Duration::from_millis(15);
    // The windows grow with the bytes of a round trip, which are few while the machine is busy.
    let grown = (0..5).find_map(|_| {
        let (origin, seen) = LongResponses { count: 9, bytes: 16 * MIB, piece: 16 * 1024, distance }.start();
        let gateway = Gateway::start(before(&origin.address));
        assert_eq!(HttpClient::connect(&gateway.address).get("/").content().len(), 16 * MIB);
        if seen.largest_window() == 32 << 20 {
            return Some((origin, seen, gateway));
        }
        gateway.finish();
        None
    });
    let (_origin, seen, mut gateway) = grown.expect("a window of 32 MiB in one of five runs");
    let client = stalled_client(&gateway, Some(0), 8);
    until_true("the windows to shrink", || seen.last_window() < 32 << 20);
    // The origin has sent all that it may.
    let (mut before, mut same) = (usize::MAX, 0);
    while same < 3 || before == 0 {
        let unsent = seen.unsent.load(Ordering::SeqCst);
        same = if unsent == before { same + 1 } else { 0 };
        before = unsent;
        std::thread::sleep(20 * distance);
    }
    let held = 8 * 16 * MIB - before;
    assert!(held < 80 * MIB, "{held} bytes are held");
    let charged = gateway.metric("weir_buffered_bytes");
    assert!(charged >= (held - MIB) as f64 && charged < 112.0 * MIB as f64, "{charged} for {held}");
    assert!(gateway.process().resident_peak() < 224 * MIB as u64, "{}", gateway.process().resident_peak());
    let begun = Instant::now();
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content(), "xx");
    assert!(begun.elapsed() < PROMPT, "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}

#[test]
fn a_budget_that_is_used_up_costs_the_streams_that_nobody_reads() {
    let (origin, _) = LongResponses { count: 120, bytes: MIB, piece: 16 * 1024, distance: Duration::ZERO }.start();
    // A hundred windows of 64 KiB do not fit.
    let gateway = Gateway::start(before(&origin.address).tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let client = stalled_client(&gateway, Some(0), 100);
    // A moment of grace for each that stalls.
    let begun = Instant::now();
    assert_eq!(HttpClient::connect(&gateway.address).get("/").content().len(), MIB);
    assert!(begun.elapsed() < WAIT, "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}

/// The head of an upload.
fn upload() -> Vec<u8> {
    block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")])
}

/// Uploads that use up all that their connection may send, and what its windows let through then.
fn ninety_uploads(client: &mut Http2Peer) -> Windows {
    let mut windows = Windows::new();
    for number in 0..90 {
        client.send(frame(kind::HEADERS, flag::END_HEADERS, 2 * number + 1, &upload()));
        windows.open(2 * number + 1, 8 * MIB);
    }
    let (mut before, mut same) = (usize::MAX, 0);
    // A busy machine may hold up the gateway for longer than one round.
    while same < 3 {
        same = if before == windows.left() { same + 1 } else { 0 };
        before = windows.left();
        windows.receive(client, Duration::from_millis(200));
        windows.send(client, 16 * 1024);
    }
    windows
}

#[test]
fn an_upload_that_makes_room_while_another_service_decides_on_it_is_answered() {
    let judge = Faulty::http(|_| Act::Silence);
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()));
    let judged = "[listener.http]\next_auth = { upstream = \"judge\", path = \"/\", timeout = \"50s\" }";
    let tables = format!(
        "[[upstream]]\nname = \"judge\"\nendpoints = [\"{}\"]\n[limits]\nbuffered_bytes = \"4MiB\"",
        judge.address.text()
    );
    let gateway = Gateway::start(Config::http(&origin.address).listener(judged).tables(&tables));
    let mut client = Http2Peer::connect(&gateway.address);
    let mut windows = ninety_uploads(&mut client);
    until_true("an upload that is given up", || {
        windows.receive(&mut client, Duration::from_millis(50));
        windows.send(&mut client, 16 * 1024);
        gateway.metrics().sum_where("weir_shed_total", &[("reason", "upload_given_up")]) >= 1.0
    });
    gateway.wait_metric("weir_http_responses_total", &[("code", "503")], 1.0);
    drop(client);
    gateway.finish();
}

#[test]
fn a_websocket_that_makes_room_ends_for_that_reason() {
    let is_over = Arc::<AtomicBool>::default();
    let over = is_over.clone();
    // It reads one frame, and nothing else.
    let origin = WebSocketOrigin::with("", move |_, _, _| {
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    let config = Config::http(&origin.address).listener("[listener.http]\nupgrades = [\"websocket\"]");
    let gateway = Gateway::start(config.tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let mut client = Http2Peer::connect(&gateway.address);
    let head = block(&[
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
        ("sec-websocket-version", "13"),
    ]);
    let mut windows = Windows::new();
    for stream in (1..80).step_by(2) {
        client.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &head));
        // The head of a message of 12 MiB behind a short one.
        let mut begun = masked(0x82, b"go");
        begun.extend_from_slice(&[0x82, 0xff, 0, 0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0]);
        client.send(frame(kind::DATA, 0, stream, &begun));
        windows.open(stream, 8 * MIB);
        windows.connection -= begun.len() as i64;
        windows.streams.entry(stream).and_modify(|(window, _)| *window -= begun.len() as i64);
    }
    until_true("a tunnel that is given up", || {
        windows.receive(&mut client, Duration::from_millis(20));
        windows.send(&mut client, 16 * 1024);
        gateway.metrics().sum_where("weir_http_tunnels_closed_total", &[("reason", "upload_given_up")]) >= 1.0
    });
    is_over.store(true, Ordering::SeqCst);
    drop(client);
    gateway.finish();
}

#[test]
fn a_budget_that_is_used_up_costs_the_uploads_that_nobody_reads() {
    let (origin, finished, _) = Unreading::start();
    // Ninety windows of 64 KiB do not fit.
    let gateway = Gateway::start(before(&origin.address).tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let mut client = Http2Peer::connect(&gateway.address);
    let mut windows = ninety_uploads(&mut client);
    let given_up = [("reason", "upload_given_up")];
    let before = gateway.metrics().sum_where("weir_shed_total", &given_up);
    assert!(windows.connection < 50_000 || before > 0.0, "{}", windows.connection);
    // A moment of grace for each that stands still.
    let begun = Instant::now();
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 181, &upload()));
    windows.streams.clear();
    windows.open(181, 50_000);
    while finished.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "{} bytes could not be sent", windows.left());
        windows.send(&mut client, 16 * 1024);
        windows.receive(&mut client, Duration::from_millis(10));
    }
    let metrics = gateway.metrics();
    let refused = metrics.sum_where("weir_http_responses_total", &[("code", "503")]);
    let counted = metrics.sum_where("weir_shed_total", &given_up);
    assert!(counted > 0.0 && counted == refused, "{counted} of {refused}");
    drop(client);
    gateway.finish();
}

#[test]
fn small_frames_of_requests_that_wait_for_a_lane_end_no_connection_of_a_client() {
    let origin = Faulty::http(|request| match request[0].starts_with(b"GET /hold") {
        true => Act::Silence,
        false => Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
    });
    let few = "lane_wait_timeout = \"50s\"\n[upstream.http]\nconnections_max = 1\n";
    let config = Config::http(&origin.address).upstream(few).listener("[listener.http]\nrequest_buffer_bytes = 0");
    let gateway = Gateway::start(config);
    let mut first = HttpClient::connect(&gateway.address);
    first.send("GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    let mut client = Http2Peer::connect(&gateway.address);
    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    for stream in (1..=13).step_by(2) {
        client.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &head));
        gateway.wait_metric("gateway_lane_pool_waiters", &[], f64::from(stream.div_ceil(2)));
        // Messages of 4 bytes, nearly as many as the first window takes.
        let message = frame(kind::DATA, 0, stream, b"tiny");
        client.send(message.repeat(16_000));
        client.send(frame(kind::DATA, flag::END_STREAM, stream, b"end"));
    }
    std::thread::sleep(Duration::from_millis(300));
    drop(first);
    for _ in 0..7 {
        assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn a_request_that_is_taken_back_and_a_short_body_are_no_reason_to_measure_a_distance() {
    let origin = Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()));
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields)));
    client.send(frame(kind::RST_STREAM, 0, 1, &8_u32.to_be_bytes()));
    client.send(frame(
        kind::HEADERS,
        flag::END_HEADERS,
        3,
        &block(&[&fields[..], &[("content-length", "5")]].concat()),
    ));
    client.send(frame(kind::DATA, flag::END_STREAM, 3, b"hello"));
    while let Some(found) = client.next_within(Duration::from_millis(300)) {
        assert_ne!((found.kind, found.flags), (kind::PING, 0));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn the_keys_of_windows_hold_towards_clients_and_towards_origins() {
    let (origin, seen) = LongResponses { count: 0, bytes: 0, piece: 1_024, distance: Duration::ZERO }.start();
    let config = before(&origin.address)
        .upstream("stream_window = \"128KiB\"\nstream_window_max = \"128KiB\"")
        .listener("[listener.http]\nhttp2_stream_window = \"2MiB\"\nhttp2_stream_window_max = \"2MiB\"");
    let gateway = Gateway::start(config);
    let mut client = Http2Peer::connect(&gateway.address);
    assert_eq!(client.next_of(kind::SETTINGS).initial_window(), Some(2 << 20));
    client.request(1, &get("/"));
    assert_eq!(client.next_of(kind::DATA).payload, b"xx");
    assert_eq!(seen.last_window(), 128 * 1024);
    drop(client);
    gateway.finish();
    // Defaults follow the written keys.
    let small = "[listener.http]\nhttp2_stream_window_max = \"128KiB\"";
    let gateway = Gateway::start(before(&origin.address).listener(small));
    let mut client = Http2Peer::connect(&gateway.address);
    assert_eq!(client.next_of(kind::SETTINGS).initial_window(), Some(128 * 1024));
    drop(client);
    gateway.finish();
}
