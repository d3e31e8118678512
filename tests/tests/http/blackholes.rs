//! Endpoints to which connections neither succeed nor fail, as to a machine that is gone without a word.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Peer, block, flag, frame, get, kind};
use weir_tests::lab_origin::LabOrigin;
use weir_tests::stream::Address;

/// The delay that a busy machine adds to an immediate response. A wait for a connection, an error here, takes longer.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Health checks say nothing: the gateway learns of its endpoints from its own connections.
const UNCHECKED: &str = "[upstream.health]\nenabled = false\n";
/// One connection that times out says enough for the life of a test.
const UNREACHABLE: &str = "connect_timeout = \"2s\"\n[upstream.breaker]\nfailures = 1\nopen_for = \"60s\"\n";

/// A listener that accepts nothing and whose queue is full: the kernel drops what else comes.
struct BlackHole {
    address: Address,
    listener: Socket,
    queued: Vec<Socket>,
}

impl BlackHole {
    fn open() -> Self {
        Self::of(listener())
    }

    /// This listener is accepted from no more.
    fn of(listener: Socket) -> Self {
        let address = listener.local_addr().expect("bound").as_socket().expect("of IP");
        let mut queued = Vec::new();
        loop {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            match client.connect_timeout(&SockAddr::from(address), Duration::from_millis(200)) {
                Ok(()) => queued.push(client),
                Err(error) if error.kind() == ErrorKind::TimedOut => break,
                Err(error) => panic!("a connection is refused: {error}"),
            }
            assert!(queued.len() < 16, "its queue never fills");
        }
        Self { address: Address::Tcp(address), listener, queued }
    }

    /// It takes connections again, and closes them.
    fn wake(self) -> Address {
        drop(self.queued);
        std::thread::spawn(move || while self.listener.accept().is_ok() {});
        self.address
    }
}

fn listener() -> Socket {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("a free port");
    listener.listen(0).expect("it listens");
    listener
}

/// An origin that accepts so many connections, and serves them as long as they stand. `/hold` waits until `is_held` says no more;
/// the first `/end` ends its connection.
struct Overloaded {
    listener: Socket,
    address: Address,
    is_held: Arc<AtomicBool>,
    /// Requests that wait.
    held: Arc<AtomicUsize>,
}

impl Overloaded {
    fn start(connections: usize) -> Self {
        let listener = listener();
        let address = Address::Tcp(listener.local_addr().expect("bound").as_socket().expect("of IP"));
        let (is_held, held) = (Arc::new(AtomicBool::new(true)), Arc::<AtomicUsize>::default());
        let has_ended = Arc::<AtomicBool>::default();
        let own = listener.try_clone().expect("a clone");
        let (holds, waiting) = (is_held.clone(), held.clone());
        std::thread::spawn(move || {
            for _ in 0..connections {
                let stream = TcpStream::from(own.accept().expect("a connection").0);
                let (holds, waiting, has_ended) = (holds.clone(), waiting.clone(), has_ended.clone());
                std::thread::spawn(move || serve(stream, &holds, &waiting, &has_ended));
            }
        });
        Self { listener, address, is_held, held }
    }

    /// Occupies so many connections of `gateway`, until `is_held` says no more; gives their statuses then.
    fn hold(&self, gateway: &Gateway, count: usize) -> Vec<JoinHandle<u16>> {
        let one = || {
            let address = gateway.address.clone();
            std::thread::spawn(move || HttpClient::connect(&address).get("/hold").status)
        };
        let holders = (0..count).map(|_| one()).collect();
        until_true("requests that have the connections", || self.held.load(Ordering::SeqCst) == count);
        holders
    }
}

fn serve(mut stream: TcpStream, holds: &AtomicBool, waiting: &AtomicUsize, has_ended: &AtomicBool) {
    let mut lines = BufReader::new(stream.try_clone().expect("a clone")).lines();
    while let Some(Ok(first)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        if first.contains("/hold") {
            waiting.fetch_add(1, Ordering::SeqCst);
            until_true("the end of the hold", || !holds.load(Ordering::SeqCst));
        }
        if first.contains("/end") && !has_ended.swap(true, Ordering::SeqCst) {
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("taken");
    }
}

/// In front of these, with `lines` of the upstream.
fn before<'a>(endpoints: impl IntoIterator<Item = &'a Address>, lines: &str) -> Config {
    Config { protocol: "http", ..Config::to_all(endpoints) }.upstream(lines).upstream(UNCHECKED)
}

/// The status of a GET, its reason, and how long it took.
fn request_status(gateway: &Gateway) -> (u16, String, Duration) {
    let begun = Instant::now();
    let response = HttpClient::connect(&gateway.address).get("/");
    (response.status, response.text().trim().to_owned(), begun.elapsed())
}

#[test]
fn a_request_timeout_bounds_the_search_for_an_endpoint() {
    let holes: Vec<BlackHole> = (0..3).map(|_| BlackHole::open()).collect();
    let config = before(holes.iter().map(|hole| &hole.address), "");
    let gateway = Gateway::start(config.listener("[listener.http]\nrequest_timeout = \"300ms\""));
    let (status, _, took) = request_status(&gateway);
    assert_eq!(status, 504);
    assert!(took >= Duration::from_millis(290) && took < Duration::from_millis(300) + AT_ONCE, "{took:?}");
    until_true("the request to be over", || gateway.metric("weir_requests_in_flight") == 0.0);
    gateway.finish();
}

#[test]
fn the_deadline_of_a_call_bounds_the_search_for_an_endpoint() {
    let holes: Vec<BlackHole> = (0..3).map(|_| BlackHole::open()).collect();
    let config = before(holes.iter().map(|hole| &hole.address), "[upstream.http]\nversion = \"2\"\n");
    let gateway = Gateway::start(config);
    let mut client = Http2Peer::connect(&gateway.address);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "300m"),
    ];
    let begun = Instant::now();
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields)));
    client.next_of(kind::HEADERS);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(290) && took < Duration::from_millis(300) + AT_ONCE, "{took:?}");
    drop(client);
    gateway.finish();
}

#[test]
fn where_all_breakers_are_open_a_request_is_refused_at_once() {
    let holes: Vec<BlackHole> = (0..3).map(|_| BlackHole::open()).collect();
    // With all of them away there is panic: that changes nothing.
    let gateway = Gateway::start(before(holes.iter().map(|hole| &hole.address), UNREACHABLE));
    until_true("the breakers to open", || {
        request_status(&gateway);
        gateway.metrics().sum("weir_breaker_opened_total") >= 3.0
    });
    for _ in 0..10 {
        let (status, text, took) = request_status(&gateway);
        assert_eq!((status, text.as_str()), (503, "no origin is available"));
        // No connection is waited for.
        assert!(took < AT_ONCE, "{took:?}");
    }
    gateway.finish();
}

/// An origin that takes no new connections answers on the one that it has, beside so many that are gone.
#[track_caller]
fn served_on_standing_connections(others: usize) {
    let overloaded = Overloaded::start(1);
    let holes: Vec<BlackHole> = (0..others).map(|_| BlackHole::open()).collect();
    let endpoints = [&overloaded.address].into_iter().chain(holes.iter().map(|hole| &hole.address));
    let gateway = Gateway::start(before(endpoints, UNREACHABLE));
    until_true("a connection", || request_status(&gateway).0 == 200);
    let full = BlackHole::of(overloaded.listener.try_clone().expect("a clone"));
    let holders = overloaded.hold(&gateway, 1);
    until_true("the breakers to open", || {
        request_status(&gateway);
        gateway.metrics().sum("weir_breaker_opened_total") >= (1 + others) as f64
    });
    assert_eq!(request_status(&gateway).0, 503, "the only connection is taken");
    overloaded.is_held.store(false, Ordering::SeqCst);
    holders.into_iter().for_each(|holder| assert_eq!(holder.join().expect("a response"), 200));
    for _ in 0..5 {
        let (status, text, took) = request_status(&gateway);
        assert_eq!((status, text.as_str()), (200, "ok"));
        assert!(took < AT_ONCE, "{took:?}");
    }
    drop((full, holes));
    gateway.finish();
}

#[test]
fn the_only_endpoint_serves_on_the_connection_that_it_has_while_new_ones_time_out() {
    served_on_standing_connections(0);
}

#[test]
fn one_of_two_endpoints_serves_on_the_connection_that_it_has_while_new_ones_time_out() {
    served_on_standing_connections(1);
}

#[test]
fn a_request_on_an_ended_connection_is_repeated_on_a_standing_one_while_new_ones_time_out() {
    let overloaded = Overloaded::start(2);
    let gateway = Gateway::start(before([&overloaded.address], UNREACHABLE));
    let holders = overloaded.hold(&gateway, 2);
    let full = BlackHole::of(overloaded.listener.try_clone().expect("a clone"));
    until_true("the breaker to open", || {
        request_status(&gateway);
        gateway.metrics().sum("weir_breaker_opened_total") >= 1.0
    });
    overloaded.is_held.store(false, Ordering::SeqCst);
    holders.into_iter().for_each(|holder| assert_eq!(holder.join().expect("a response"), 200));
    let response = HttpClient::connect(&gateway.address).get("/end");
    assert_eq!((response.status, response.text().trim()), (200, "ok"));
    drop(full);
    gateway.finish();
}

#[test]
fn one_request_at_a_time_waits_for_one_endpoint_that_may_be_back() {
    let holes: Vec<BlackHole> = (0..2).map(|_| BlackHole::open()).collect();
    let lines = "connect_timeout = \"1500ms\"\n[upstream.breaker]\nfailures = 1\nopen_for = \"500ms\"\n";
    let gateway = Gateway::start(before(holes.iter().map(|hole| &hole.address), lines));
    request_status(&gateway);
    std::thread::sleep(Duration::from_millis(600));
    let address = gateway.address.clone();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            std::thread::spawn(move || {
                let begun = Instant::now();
                let status = HttpClient::connect(&address).get("/").status;
                (status, begun.elapsed())
            })
        })
        .collect();
    let took: Vec<Duration> = clients
        .into_iter()
        .map(|client| {
            let (status, took) = client.join().expect("a response");
            assert!(matches!(status, 502 | 503), "{status}");
            took
        })
        .collect();
    assert!(took.iter().all(|took| *took < Duration::from_millis(1_500) + AT_ONCE), "one try each at most: {took:?}");
    gateway.finish();
}

#[test]
fn an_endpoint_that_is_back_is_found_by_the_next_request_after_the_pause() {
    let hole = BlackHole::open();
    let origin = LabOrigin::start();
    let lines = "connect_timeout = \"100ms\"\n[upstream.breaker]\nfailures = 1\nopen_for = \"200ms\"\n";
    let gateway = Gateway::start(before([&hole.address, &origin.address], lines));
    until_true("the breaker to open", || {
        assert_eq!(HttpClient::connect(&gateway.address).get("/2").status, 200);
        gateway.metrics().sum("weir_breaker_opened_total") >= 1.0
    });
    let address = hole.wake().text();
    until_true("a connection to the endpoint that is back", || {
        HttpClient::connect(&gateway.address).get("/2");
        gateway.metrics().sum_where("weir_lane_connects_total", &[("endpoint", &address)]) >= 1.0
    });
    gateway.finish();
}

#[test]
fn over_http2_a_client_hears_of_the_timeout_as_well() {
    let holes: Vec<BlackHole> = (0..2).map(|_| BlackHole::open()).collect();
    let config = before(holes.iter().map(|hole| &hole.address), "");
    let gateway = Gateway::start(config.listener("[listener.http]\nrequest_timeout = \"200ms\""));
    let mut client = Http2Peer::connect(&gateway.address);
    let begun = Instant::now();
    client.request(1, &get("/"));
    client.next_of(kind::HEADERS);
    assert!(begun.elapsed() < Duration::from_millis(200) + AT_ONCE, "{:?}", begun.elapsed());
    drop(client);
    gateway.finish();
}
