//! `connections_max` of an upstream: the workers share the connections to an endpoint, and the oldest request of all is next.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::stream::Address;

/// An origin that counts its connections.
struct Counting {
    address: Address,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
    /// The most at a time.
    peak: AtomicUsize,
    /// As many as there may be.
    most: AtomicUsize,
    /// Connections that were one too many.
    excess: AtomicUsize,
    /// Requests for `/held` get their responses.
    is_released: AtomicBool,
}

impl Counting {
    /// Responds to each request after `delay`, and expects at most `most` connections. Its threads end with the connections.
    fn start(most: usize, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let counts = Arc::<Counts>::default();
        counts.most.store(most, Ordering::SeqCst);
        let all = counts.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counts = all.clone();
                counts.accepted.fetch_add(1, Ordering::SeqCst);
                counts.open.fetch_add(1, Ordering::SeqCst);
                if !settles(&counts) {
                    counts.excess.fetch_add(1, Ordering::SeqCst);
                }
                counts.peak.fetch_max(counts.open.load(Ordering::SeqCst), Ordering::SeqCst);
                std::thread::spawn(move || {
                    serve(stream, delay, &counts);
                    counts.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, counts }
    }
}

/// The end of a connection that gave way may be seen a little later than the beginning of the next one.
fn settles(counts: &Counts) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    while counts.open.load(Ordering::SeqCst) > counts.most.load(Ordering::SeqCst) {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn serve(mut stream: TcpStream, delay: Duration, counts: &Counts) {
    let (mut seen, mut bytes) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
        if seen.ends_with(b"\r\n\r\n") {
            while seen.starts_with(b"GET /held ") && !counts.is_released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.clear();
            std::thread::sleep(delay);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

fn gateway(origin: &Counting, most: usize, wait: &str) -> Gateway {
    let few = format!("lane_wait_timeout = \"{wait}\"\n[upstream.http]\nconnections_max = {most}\n");
    Gateway::start(Config::http(&origin.address).workers(2).upstream(&few))
}

#[test]
fn more_requests_than_connections_wait_in_one_line_whichever_worker_they_are_on() {
    const CLIENTS: usize = 16;
    const REQUESTS: usize = 6;
    for most in [1, 3] {
        let origin = Counting::start(most, Duration::from_millis(5));
        let gateway = gateway(&origin, most, "30s");
        let longest = std::thread::scope(|scope| {
            let client = |_| {
                let mut client = HttpClient::connect(&gateway.address);
                scope.spawn(move || {
                    let request = |_| {
                        let begun = Instant::now();
                        let response = client.get("/");
                        assert_eq!((response.status, &*response.text()), (200, "ok"));
                        begun.elapsed()
                    };
                    (0..REQUESTS).map(request).max().expect("several")
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(client).collect();
            clients.into_iter().map(|client| client.join().expect("all are served")).max().expect("several")
        });
        let Counts { accepted, excess, .. } = &*origin.counts;
        println!("{most} connections: {} made, the longest wait {longest:?}", accepted.load(Ordering::SeqCst));
        assert_eq!(excess.load(Ordering::SeqCst), 0, "more than {most} connections at a time");
        assert!(accepted.load(Ordering::SeqCst) >= most);
        gateway.finish();
    }
}

#[test]
fn an_idle_connection_of_one_worker_gives_way_to_a_request_on_another() {
    let origin = Counting::start(1, Duration::ZERO);
    let gateway = gateway(&origin, 1, "5s");
    let mut clients: Vec<_> = (0..4).map(|_| HttpClient::connect(&gateway.address)).collect();
    for _ in 0..3 {
        for client in &mut clients {
            assert_eq!(client.get("/").text(), "ok");
        }
    }
    let made = origin.counts.accepted.load(Ordering::SeqCst);
    assert!(made > 1, "the clients are on both workers, and there is one connection");
    assert_eq!(origin.counts.excess.load(Ordering::SeqCst), 0);
    let waited = gateway.metrics().sum("gateway_lane_pool_acquire_wait_seconds_sum");
    assert!(waited < 5.0, "no request waited until its time was over: {waited} s");
    until_true("nobody waits", || gateway.metrics().sum("gateway_lane_pool_waiters") == 0.0);
    drop(clients);
    gateway.finish();
}

#[test]
fn a_reload_changes_the_limit_and_open_connections_count() {
    let origin = Counting::start(2, Duration::from_millis(50));
    let gateway = gateway(&origin, 2, "30s");
    let load = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..count {
                let mut client = HttpClient::connect(&gateway.address);
                scope.spawn(move || (0..3).for_each(|_| assert_eq!(client.get("/").status, 200)));
            }
        });
    };
    load(8);
    let counts = &origin.counts;
    assert_eq!((counts.peak.load(Ordering::SeqCst), counts.excess.load(Ordering::SeqCst)), (2, 0));
    let change = |before: usize, after: usize| {
        let of = |limit| format!("connections_max = {limit}\n");
        gateway.rewrite(|text| text.replace(&of(before), &of(after)));
        let reloaded = gateway.admin.post("/api/v1/reload", "");
        assert_eq!(reloaded.status, 200, "{}", reloaded.body);
        counts.most.store(after.max(counts.open.load(Ordering::SeqCst)), Ordering::SeqCst);
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = HttpClient::connect(&gateway.address);
            scope.spawn(move || assert_eq!(client.get("/held").status, 200));
        }
        until_true("two requests are held", || gateway.metrics().sum("weir_requests_in_flight") == 2.0);
        change(2, 4);
        load(12);
        assert_eq!((counts.peak.load(Ordering::SeqCst), counts.excess.load(Ordering::SeqCst)), (4, 0));
        counts.is_released.store(true, Ordering::SeqCst);
    });
    change(4, 1);
    until_true("the idle connections of before end", || counts.open.load(Ordering::SeqCst) <= 1);
    counts.most.store(1, Ordering::SeqCst);
    load(4);
    assert_eq!(counts.excess.load(Ordering::SeqCst), 0, "one at a time");
    gateway.finish();
}
