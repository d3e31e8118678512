//! Uploads are held back from origins: bodies that are read before the request is sent, and bodies that are streamed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{HttpClient, field, next_request, unchunked};
use weir_tests::http2::{Http2Peer, block, flag, frame, kind};
use weir_tests::stream::Address;

/// Responds to every request at its end.
fn origin() -> Faulty {
    Faulty::http(|_| Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken".to_vec()))
}

/// Bytes of which none can be missing or stand elsewhere unnoticed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// An origin that serves one connection after the other, and each request to its end, as a synchronous worker does.
fn serial() -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    // It ends with the process of the test.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut received = Vec::new();
            let mut piece = [0; 64 * 1024];
            while next_request(&received).is_none() {
                match stream.read(&mut piece) {
                    Ok(count @ 1..) => received.extend_from_slice(&piece[..count]),
                    _ => break,
                }
            }
            // A client that has gone gets no reply.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nback");
        }
    });
    address
}

/// An origin that notes what it receives as it comes, and answers when it has seen `enough` bytes behind a head.
#[derive(Clone)]
struct Noting {
    address: Address,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Noting {
    fn start(enough: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Tcp(listener.local_addr().expect("an address"));
        let noting = Self { address, received: Arc::default() };
        let received = noting.received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let received = received.clone();
                std::thread::spawn(move || note(stream, &received, enough));
            }
        });
        noting
    }

    /// Bytes received so far, by connections that sent any.
    fn received(&self) -> Vec<Vec<u8>> {
        self.received.lock().expect("whole").clone()
    }

    fn has_request(&self) -> bool {
        !self.received().is_empty()
    }
}

fn note(mut stream: TcpStream, received: &Mutex<Vec<Vec<u8>>>, enough: usize) {
    let (mut number, mut piece) = (None, vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        let mut all = received.lock().expect("whole");
        let number = *number.get_or_insert_with(|| {
            all.push(Vec::new());
            all.len() - 1
        });
        let before = body(&all[number]).len();
        all[number].extend_from_slice(&piece[..count]);
        if before < enough && body(&all[number]).len() >= enough {
            // One request on each connection.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nback");
            return;
        }
    }
}

fn body(received: &[u8]) -> &[u8] {
    let end = received.windows(4).position(|window| window == b"\r\n\r\n");
    end.map_or(b"", |end| &received[end + 4..])
}

#[test]
fn fifty_slow_uploads_do_not_keep_a_serial_origin_from_everybody_else() {
    let gateway = Gateway::start(Config::http(&serial()));
    let is_over = Arc::<AtomicBool>::default();
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let (address, is_over) = (gateway.address.clone(), is_over.clone());
            std::thread::spawn(move || {
                let mut client = HttpClient::connect(&address);
                client.send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
                // The pace of the attack.
                while !is_over.load(Ordering::Relaxed) && client.try_send("0123456789abc") {
                    std::thread::sleep(Duration::from_millis(200));
                }
            })
        })
        .collect();
    until_true("the slow uploads to be under way", || gateway.metric("weir_requests_in_flight") >= 50.0);
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..20 {
        let begun = Instant::now();
        assert_eq!(client.get("/").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    is_over.store(true, Ordering::Relaxed);
    slow.into_iter().for_each(|one| one.join().expect("it has ended"));
    drop(client);
    gateway.finish();
}

#[test]
fn an_upload_that_comes_in_pieces_reaches_its_origin_whole_and_with_its_length() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address));
    let sent = pattern(100_000);
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST /exact HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    for piece in sent.chunks(30_000) {
        assert_eq!(origin.seen().len(), 0, "not before its end");
        client.send(piece);
        client.expect_silence(Duration::from_millis(if piece.len() == 30_000 { 20 } else { 0 }));
    }
    assert_eq!(client.response().status, 200);
    client.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in sent.chunks(30_000) {
        client.send([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        client.expect_silence(Duration::from_millis(20));
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.response().status, 200, "the connection goes on");
    client.send("POST /empty HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.expect_silence(Duration::from_millis(20));
    client.send("0\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let seen = origin.seen();
    for request in &seen[..2] {
        let lengths = (field(&request[0], "content-length"), field(&request[0], "transfer-encoding"));
        assert_eq!(lengths, (Some("100000".to_owned()), None));
        assert!(request[1] == sent, "the body is another one");
    }
    assert_eq!(field(&seen[2][0], "content-length").as_deref(), Some("0"));
    drop(client);
    gateway.finish();
}

#[test]
fn trailers_of_an_upload_that_was_held_back_go_on_behind_it() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n");
    client.expect_silence(Duration::from_millis(50));
    assert_eq!(origin.seen().len(), 0, "not before its end");
    client.send("0\r\nX-Sum: 42\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let request = &origin.seen()[0];
    assert_eq!(field(&request[0], "transfer-encoding").as_deref(), Some("chunked"));
    let text = String::from_utf8_lossy(&request[1]).into_owned();
    assert_eq!(unchunked(&request[1]), b"hello");
    assert!(text.to_lowercase().ends_with("0\r\nx-sum: 42\r\n\r\n"), "{text}");
    drop(client);
    gateway.finish();
}

#[test]
fn an_upload_over_http_2_is_held_back_too() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let sent = pattern(60_000);
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&fields)));
    for piece in sent.chunks(10_000) {
        client.send(frame(kind::DATA, 0, 1, piece));
    }
    client.next_within(Duration::from_millis(100));
    assert_eq!(origin.seen().len(), 0, "not before its end");
    client.send(frame(kind::DATA, flag::END_STREAM, 1, b""));
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    let request = &origin.seen()[0];
    assert_eq!(field(&request[0], "content-length").as_deref(), Some("60000"));
    assert!(request[1] == sent, "the body is another one");
    drop(client);
    gateway.finish();
}

#[test]
fn an_upload_that_is_longer_than_the_buffer_goes_on_as_it_comes() {
    let length = 5_000_000;
    let origin = Noting::start(length);
    let gateway =
        Gateway::start(Config::http(&origin.address).listener("[listener.http]\nrequest_buffer_bytes = \"128KiB\""));
    let sent = pattern(length);
    let mut client = HttpClient::connect(&gateway.address);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    client.send(&sent[..100_000]);
    client.expect_silence(Duration::from_millis(100));
    assert!(!origin.has_request(), "less than the buffer is there");
    client.send(&sent[100_000..300_000]);
    until_true("the origin to have the beginning", || {
        origin.received().first().is_some_and(|one| body(one).len() >= 128 * 1024)
    });
    client.send(&sent[300_000..]);
    assert_eq!(client.response().status, 200);
    assert!(body(&origin.received()[0]) == sent, "the body is another one");
    drop(client);
    gateway.finish();
}

#[test]
fn a_client_that_waits_for_100_continue_has_it_from_the_gateway() {
    let origin = origin();
    let gateway =
        Gateway::start(Config::http(&origin.address).listener("[listener.http]\nrequest_body_bytes_max = 10"));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let told = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&client.exactly(told.len())), told);
    assert_eq!(origin.seen().len(), 0, "the origin has nothing of it yet");
    client.send("hello");
    assert_eq!(client.response().status, 200);
    let request = &origin.seen()[0];
    assert_eq!((field(&request[0], "expect"), &*request[1]), (None, &b"hello"[..]));
    assert_eq!(client.get("/again").status, 200, "the connection goes on");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello");
    assert_eq!(client.response().status, 200, "nothing is waited for behind a body that is here");
    assert_eq!(client.get("/again").status, 200, "the connection goes on");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.response().status, 413, "and not 100: it need not be sent");
    drop(client);
    gateway.finish();
}

#[test]
fn a_route_may_have_its_uploads_as_they_come() {
    let origin = Noting::start(5);
    let gateway = Gateway::start(Config::http(&origin.address).tables(
        "[[route]]\nname = \"talk\"\npath_prefix = \"/talk\"\nupstream = \"server\"\nrequest_buffer_bytes = 0\nbody_rate_min = 0",
    ));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST /talk HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n");
    until_true("the origin to be asked before the body", || origin.has_request());
    let head = String::from_utf8_lossy(&origin.received()[0]).to_lowercase();
    assert!(head.contains("expect: 100-continue"), "the origin says whether it wants it: {head}");
    client.send("2\r\nhi\r\n");
    assert_eq!(client.response().status, 200, "it is answered while it talks");
    drop(client);
    gateway.finish();
}

#[test]
fn uploads_beyond_the_budget_of_memory_go_on_as_they_come_and_arrive_whole() {
    let length = 900_000;
    let origin = Noting::start(length);
    let gateway = Gateway::start(Config::http(&origin.address).tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let sent = pattern(length);
    let begin = |_| {
        let mut client = HttpClient::connect(&gateway.address);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
        client.send(&sent[..length - 1]);
        client
    };
    let mut clients = vec![begin(0)];
    // Once the budget is short any of them may go on, and all may: one alone is held.
    until_true("what is held to be counted", || gateway.metric("weir_buffered_bytes") > 0.0);
    clients.extend((1..8).map(begin));
    until_true("one of them to go on", || origin.has_request());
    let held = gateway.metric("weir_buffered_bytes");
    assert!(held <= f64::from(4 << 20), "{held}");
    for client in &mut clients {
        client.send(&sent[length - 1..]);
        assert_eq!(client.response().status, 200);
    }
    let received = origin.received();
    assert!(received.len() == 8 && received.iter().all(|one| body(one) == sent), "bodies are missing or others");
    drop(clients);
    gateway.finish();
}

#[test]
fn responses_that_nobody_reads_share_the_budget_of_memory_and_others_go_on() {
    let length = 8 << 20;
    let origin = Faulty::http(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        Act::Reply([head.as_bytes(), &pattern(length)].concat())
    });
    let gateway = Gateway::start(Config::http(&origin.address).tables("[limits]\nbuffered_bytes = \"4MiB\""));
    let begin = |_| {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        client
    };
    let stalled: Vec<HttpClient> = (0..40).map(begin).collect();
    until_true("the budget to be short", || gateway.metric("weir_buffered_bytes") > 3e6);
    let mut reader = begin(0);
    assert!(reader.response().body == pattern(length), "it is served, and whole");
    let held = gateway.metric("weir_buffered_bytes");
    assert!(held <= f64::from(4 << 20), "{held}");
    drop((stalled, reader));
    until_true("the budget to be free again", || gateway.metric("weir_buffered_bytes") == 0.0);
    gateway.finish();
}

#[test]
fn a_slow_upload_is_refused_before_its_origin_has_seen_it() {
    let origin = origin();
    let gateway =
        Gateway::start(Config::http(&origin.address).listener("[listener.http]\nbody_idle_timeout = \"200ms\""));
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhell");
    assert_eq!(client.response().status, 408);
    let mut client = HttpClient::connect(&gateway.address);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n");
    client.stream().half_close().expect("half closed");
    assert_eq!(client.response().status, 400, "it ends in the middle");
    assert_eq!(origin.seen().len(), 0, "the origin has nothing of either");
    gateway.finish();
}

#[test]
fn an_upload_that_was_held_back_is_sent_again_when_its_connection_was_just_closed() {
    let count = AtomicUsize::new(0);
    let origin = Faulty::http(move |request| match &request[0] {
        head if head.starts_with(b"PUT") && count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => Act::Reset,
        _ => Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken".to_vec()),
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/").status, 200, "a connection is there to be used again");
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    client.expect_silence(Duration::from_millis(50));
    client.send("lo");
    assert_eq!(client.response().status, 200);
    // In one piece: nothing is waited for.
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().status, 200);
    let seen = origin.seen();
    let bodies: Vec<_> = seen.iter().filter(|one| one[0].starts_with(b"PUT")).map(|one| one[1].clone()).collect();
    assert_eq!(bodies, [b"hello"; 4], "each had all of it");
    drop(client);
    gateway.finish();
}

#[test]
fn a_connection_goes_on_behind_a_refusal_of_a_chunked_upload_that_was_read_whole() {
    let gateway = Gateway::start(Config::http(&Address::port(weir_tests::port::free())));
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..2 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
        std::thread::sleep(Duration::from_millis(30));
        client.send("0\r\n\r\n");
        let refused = client.response();
        assert!(matches!(refused.status, 502 | 503), "{}", refused.status);
        assert_eq!(refused.field("connection"), None);
    }
    drop(client);
    gateway.finish();
}
