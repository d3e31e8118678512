//! The case F1 at its full size: 50,000 SDKs come back at once to a gateway that has just restarted. As many as the hard limit of open
//! descriptors allows have streams, and stay; the others poll.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use weir_tests::deadline::until_true;
use weir_tests::flags::{BACKEND, FlagOrigin, before_with, environment, get};
use weir_tests::http::HttpClient;
use weir_tests::stream::Stream;

const FEATURES: &str = "/api/client/features";
const SDKS: usize = 50_000;
/// Fewer streams say too little about a crowd.
const STREAMS_MIN: usize = 15_000;
/// Descriptors of this process and of the gateway that are no streams.
const OTHER_DESCRIPTORS: usize = 3_000;
/// Polls that wait at once.
const WAVE: usize = 500;
/// Connections of one address, which has some 28,000 ports.
const CONNECTIONS_PER_SOURCE: usize = 10_000;
const LIMITS: &str = "[limits]\nconnections = 55000\nconnections_per_source = 15000\n";

/// Bytes of the gateway per stream, with its connection.
const BYTES_PER_STREAM: u64 = 12 * 1024;

/// How long a stream may wait for its first event, with all others before it.
const WAIT: Duration = Duration::from_secs(60);

/// A connection from one of several addresses. `net`: their third byte.
fn connect(gateway: SocketAddr, net: u8, number: usize) -> TcpStream {
    let host = u8::try_from(number / CONNECTIONS_PER_SOURCE + 2).expect("a few sources");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a descriptor");
    socket.bind(&SocketAddr::from(([127, 0, net, host], 0)).into()).expect("a free port");
    socket.connect(&gateway.into()).expect("the gateway accepts");
    TcpStream::from(socket)
}

/// A stream that keeps no more than its first bytes.
struct Follower {
    stream: TcpStream,
    text: String,
}

impl Follower {
    /// Sends a request for a stream, and waits for nothing. `net`: the third byte of its address.
    fn send(gateway: SocketAddr, net: u8, number: usize, last: Option<&str>) -> Self {
        let mut stream = connect(gateway, net, number);
        stream.set_read_timeout(Some(WAIT)).expect("a limit");
        let last = last.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let head = format!("GET /api/client/streaming HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).expect("the gateway takes the request");
        Self { stream, text: String::new() }
    }

    /// The head of the response, and its first event.
    fn receive(&mut self) {
        let mut chunk = [0; 8 * 1024];
        while !self.text.contains("\n\n") {
            let count = self.stream.read(&mut chunk).unwrap_or_else(|error| panic!("{error}: {}", self.text));
            assert!(count > 0, "the stream ended: {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&chunk[..count]));
        }
        assert!(self.text.starts_with("HTTP/1.1 200 "), "{}", self.text);
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
    }

    fn wait_end(&mut self) {
        let mut chunk = [0; 1024];
        while self.stream.read(&mut chunk).is_ok_and(|count| count > 0) {}
    }
}

fn crowd(streams: usize, gateway: SocketAddr, net: u8, last: Option<&str>) -> Vec<Follower> {
    let mut crowd: Vec<Follower> = (0..streams).map(|number| Follower::send(gateway, net, number, last)).collect();
    crowd.iter_mut().for_each(Follower::receive);
    crowd
}

/// The streams that this process and the gateway have descriptors for. Raises the limit of this process, which the gateway inherits.
fn streams_within_limits() -> usize {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a higher soft limit");
    let most = limit.maximum.map_or(SDKS, |most| usize::try_from(most).expect("64 bits"));
    let streams = most.saturating_sub(OTHER_DESCRIPTORS).min(SDKS);
    assert!(streams >= STREAMS_MIN, "this test needs a hard limit of {} descriptors", STREAMS_MIN + OTHER_DESCRIPTORS);
    streams
}

/// Each polls once with the tag of an earlier response. `net`: the third byte of their addresses.
fn poll(sdks: usize, gateway: SocketAddr, net: u8, tag: &str) {
    let request =
        format!("GET {FEATURES} HTTP/1.1\r\nHost: a\r\nAuthorization: {BACKEND}\r\nIf-None-Match: {tag}\r\n\r\n");
    for begun in (0..sdks).step_by(WAVE) {
        let wave = begun..sdks.min(begun + WAVE);
        let client = |number| HttpClient::over(Stream::Tcp(connect(gateway, net, number)));
        let mut clients: Vec<HttpClient> = wave.map(client).collect();
        clients.iter_mut().for_each(|client| client.send(&request));
        assert!(clients.iter_mut().all(|client| client.response().status == 304), "an SDK gets no more than a 304");
    }
}

#[test]
fn f1_fifty_thousand_sdks_come_back_after_a_restart() {
    let streams_max = streams_within_limits();
    let origin = FlagOrigin::start();
    let mut gateway = before_with(&origin.address, "", LIMITS, &environment());
    let address = gateway.address.clone();
    until_true("flags", || get(&address, FEATURES, BACKEND).status == 200);
    let tag = get(&address, FEATURES, BACKEND).field("etag").expect("a tag");
    let idle = gateway.process().resident();
    let mut streams = crowd(streams_max, address.tcp(), 0, None);
    gateway.wait_metric("weir_flags_streams", &[], streams_max as f64);
    let bytes = gateway.process().resident().saturating_sub(idle) / streams_max as u64;
    assert!(bytes <= BYTES_PER_STREAM, "{bytes} bytes for a stream");
    let last = streams[0].field("id:").expect("an id").to_owned();

    gateway.process().signal("TERM");
    streams.iter_mut().for_each(Follower::wait_end);
    drop(streams);
    assert!(gateway.process().wait(Duration::from_secs(15)).success(), "{}", gateway.log());
    drop(gateway.start_again(&environment()));

    let requests = || ["features", "validate", "register"].map(|endpoint| origin.all_requests(endpoint));
    let (before, begun) = (requests(), Instant::now());
    let streams = crowd(streams_max, address.tcp(), 1, Some(&last));
    poll(SDKS - streams_max, address.tcp(), 2, &tag);
    let took = begun.elapsed();
    let polled = Instant::now();
    assert_eq!(get(&address, FEATURES, BACKEND).status, 200);
    assert!(polled.elapsed() < Duration::from_secs(1), "{:?} for one client beside the streams", polled.elapsed());
    let after = requests();
    let [polls, validations, registrations] = [0, 1, 2].map(|at| after[at] - before[at]);
    let seconds = begun.elapsed().as_secs();
    assert!(
        polls <= seconds + 2 && validations <= seconds + 2 && registrations <= 1,
        "{before:?} {after:?} in {seconds} s"
    );
    assert!(took < WAIT, "{took:?}");
    println!("{SDKS} SDKs, {streams_max} of them with streams of {bytes} bytes, were back in {took:?}");
    let waits: Vec<u64> = streams.iter().filter_map(|one| one.field("retry:")?.parse().ok()).collect();
    assert_eq!(waits.len(), streams_max, "each stream says when its client may come back");
    assert!(
        waits.iter().all(|wait| (1_000..=10_000).contains(wait)),
        "{:?} to {:?}",
        waits.iter().min(),
        waits.iter().max()
    );
    for third in [1_000..4_000_u64, 4_000..7_000, 7_000..10_001] {
        let inside = waits.iter().filter(|wait| third.contains(*wait)).count();
        assert!(inside > streams_max / 5, "{inside} of {streams_max} within {third:?}");
    }
    drop(streams);
    until_true("the streams to end", || gateway.metric("weir_flags_streams") == 0.0);
    gateway.finish();
}
