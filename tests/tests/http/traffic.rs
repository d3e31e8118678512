//! Byte counters move while bytes flow, on both sides, and count each byte once.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_tests::byte_counts::{ByteCounts, assert_exactly, wait_for};
use weir_tests::certificate::Certificates;
use weir_tests::deadline::{WAIT, until};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Frame, Http2Origin, Http2Peer, block, flag, frame, get, kind};
use weir_tests::stream::{Address, Stream};
use weir_tests::websocket::{WebSocketOrigin, masked, open, received, unmasked};

/// Parts of a transfer, each of which the counters must show before the next one begins.
const STEPS: usize = 5;
const STEP_BYTES: usize = 300_000;

/// An origin of one connection: the test reads and writes it.
fn origin() -> (Address, Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Tcp(listener.local_addr().expect("an address"));
    let (accepted, streams) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_read_timeout(Some(WAIT)).expect("a time limit can be set");
            let mut first = [0];
            // A health check says nothing.
            if matches!(stream.peek(&mut first), Ok(1)) && accepted.send(stream).is_err() {
                return;
            }
        }
    });
    (address, streams)
}

/// The head of a request or response, with its empty line.
fn head_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    head
}

/// A head as the client gets it.
fn head_at(client: &mut HttpClient) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.extend(client.exactly(1));
    }
    head
}

/// Downloads in steps; the response does not end before the counters show each of them.
fn download(gateway: &Gateway, mut client: HttpClient, streams: &Receiver<TcpStream>) {
    let request = "GET /file HTTP/1.1\r\nHost: test.example\r\n\r\n";
    client.send(request);
    let mut origin = streams.recv_timeout(WAIT).expect("a connection to the origin");
    let forwarded = head_of(&mut origin);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", STEPS * STEP_BYTES);
    origin.write_all(head.as_bytes()).expect("taken");
    let response = head_at(&mut client);
    let mut so_far = ByteCounts {
        client_read: request.len(),
        client_written: response.len(),
        upstream_read: head.len(),
        upstream_written: forwarded.len(),
    };
    for _ in 0..STEPS {
        origin.write_all(&vec![b'a'; STEP_BYTES]).expect("taken");
        client.exactly(STEP_BYTES);
        so_far.client_written += STEP_BYTES;
        so_far.upstream_read += STEP_BYTES;
        assert_exactly(gateway, so_far);
    }
}

#[test]
fn a_download_moves_the_counters_of_both_sides_while_it_runs() {
    let (address, streams) = origin();
    let gateway = Gateway::start(Config::http(&address));
    download(&gateway, HttpClient::connect(&gateway.address), &streams);
    gateway.finish();
}

#[test]
fn a_download_through_tls_counts_plain_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let certificates = Certificates::create(folder.path());
    let (address, streams) = origin();
    let tls = format!(
        "[listener.tls]\ncert_file = \"{}\"\nkey_file = \"{}\"",
        certificates.server.display(),
        certificates.server_key.display()
    );
    let gateway = Gateway::start(Config::http(&address).listener(&tls));
    let stream = Stream::connect_tls(gateway.address.tcp(), certificates.client_config()).expect("a handshake");
    download(&gateway, HttpClient::over(stream), &streams);
    gateway.finish();
}

#[test]
fn an_upload_moves_the_counters_of_both_sides_while_it_runs() {
    let (address, streams) = origin();
    let gateway = Gateway::start(Config::http(&address).listener("[listener.http]\nrequest_buffer_bytes = 0"));
    let mut client = HttpClient::connect(&gateway.address);
    let length = STEPS * STEP_BYTES;
    let request = format!("POST /file HTTP/1.1\r\nHost: test.example\r\nContent-Length: {length}\r\n\r\n");
    client.send(&request);
    let mut so_far = ByteCounts { client_read: request.len(), ..ByteCounts::default() };
    let mut origin = None;
    for _ in 0..STEPS {
        client.send(vec![b'a'; STEP_BYTES]);
        let origin = origin.get_or_insert_with(|| {
            let mut stream = streams.recv_timeout(WAIT).expect("a connection to the origin");
            so_far.upstream_written = head_of(&mut stream).len();
            stream
        });
        origin.read_exact(&mut vec![0; STEP_BYTES]).expect("a part of the body");
        so_far.client_read += STEP_BYTES;
        so_far.upstream_written += STEP_BYTES;
        assert_exactly(&gateway, so_far);
    }
    let sent = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nhi";
    origin.expect("a connection").write_all(sent.as_bytes()).expect("taken");
    let response = client.response();
    so_far.upstream_read += sent.len();
    so_far.client_written += response.head.len() + response.body.len();
    assert_exactly(&gateway, so_far);
    drop(client);
    gateway.finish();
}

#[test]
fn small_responses_count_while_their_connection_stays_open() {
    let (address, streams) = origin();
    let gateway = Gateway::start(Config::http(&address));
    let mut client = HttpClient::connect(&gateway.address);
    let request = "GET / HTTP/1.1\r\nHost: test.example\r\n\r\n";
    let sent = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
    let (mut origin, mut so_far) = (None, ByteCounts::default());
    for _ in 0..20 {
        client.send(request);
        let origin = origin.get_or_insert_with(|| streams.recv_timeout(WAIT).expect("a connection to the origin"));
        so_far.upstream_written += head_of(origin).len();
        origin.write_all(sent.as_bytes()).expect("taken");
        let response = client.response();
        so_far.client_read += request.len();
        so_far.upstream_read += sent.len();
        so_far.client_written += response.head.len() + response.body.len();
        assert_exactly(&gateway, so_far);
    }
    drop(client);
    gateway.finish();
}

/// Bytes of a frame on the wire.
fn length_of(frame: &Frame) -> usize {
    9 + frame.payload.len()
}

/// The origin's end of a connection of HTTP/2, with all that was said on it.
struct Counted {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counted {
    fn send(&self, peer: &mut Http2Peer, bytes: Vec<u8>) {
        self.sent.fetch_add(bytes.len() as u64, SeqCst);
        peer.send(bytes);
    }

    fn next(&self, peer: &mut Http2Peer, limit: Duration) -> Option<Frame> {
        let frame = peer.next_within(limit)?;
        self.received.fetch_add(length_of(&frame) as u64, SeqCst);
        if matches!(frame.kind, kind::SETTINGS | kind::PING) && frame.flags & flag::ACK == 0 {
            let echoed = if frame.kind == kind::PING { frame.payload.clone() } else { Vec::new() };
            self.send(peer, self::frame(frame.kind, flag::ACK, 0, &echoed));
        }
        Some(frame)
    }
}

/// An origin of HTTP/2 that responds to its first request with a part for each word of the test.
fn stepping_http2_origin(counted: Arc<Counted>, steps: Receiver<usize>) -> Http2Origin {
    let steps = Mutex::new(steps);
    Http2Origin::start(move |_, peer| {
        counted.received.fetch_add(weir_tests::http2::PREFACE.len() as u64, SeqCst);
        // Its settings, which `Http2Peer::accept` has sent.
        counted.sent.fetch_add(9, SeqCst);
        let look = Duration::from_millis(5);
        let stream = loop {
            match counted.next(peer, look) {
                Some(frame) if frame.kind == kind::HEADERS => break frame.stream,
                _ if peer.has_ended() => return,
                _ => {}
            }
        };
        counted.send(peer, frame(kind::HEADERS, flag::END_HEADERS, stream, &[0x88]));
        while !peer.has_ended() {
            counted.next(peer, look);
            if let Ok(bytes) = steps.lock().expect("no panic").try_recv() {
                counted.send(peer, frame(kind::DATA, 0, stream, &vec![b'a'; bytes]));
            }
        }
    })
}

#[test]
fn a_response_of_http2_moves_the_counters_of_both_sides_while_it_runs() {
    // All steps together fit in the first window of a stream.
    const PART_BYTES: usize = 10_000;
    let counted = Arc::new(Counted { sent: AtomicU64::new(0), received: AtomicU64::new(0) });
    let (go, steps): (Sender<usize>, _) = channel();
    let origin = stepping_http2_origin(counted.clone(), steps);
    let config = Config::http(&origin.address).upstream("[upstream.http]\nversion = \"2\"");
    let gateway = Gateway::start(config);
    let mut client = Http2Peer::connect(&gateway.address);
    let request = get("/file");
    client.request(1, &request);
    // The preface, empty settings and the request.
    let sent = weir_tests::http2::PREFACE.len() + 9 + 9 + request.len();
    let (mut heard, mut body) = (0, 0);
    for step in 1..=STEPS {
        go.send(PART_BYTES).expect("the origin runs");
        while body < step * PART_BYTES {
            let frame = client.next_frame().expect("a frame");
            heard += length_of(&frame);
            body += if frame.kind == kind::DATA { frame.payload.len() } else { 0 };
        }
        let so_far = ByteCounts {
            client_read: sent,
            client_written: heard,
            upstream_read: counted.sent.load(SeqCst) as usize,
            upstream_written: counted.received.load(SeqCst) as usize,
        };
        wait_for(&gateway, so_far);
    }
    // Window updates and acknowledgements may still be on their way.
    until("the counters to be what both ends have seen", WAIT, || {
        while let Some(frame) = client.next_within(Duration::from_millis(5)) {
            heard += length_of(&frame);
        }
        let seen = ByteCounts {
            client_read: sent,
            client_written: heard,
            upstream_read: counted.sent.load(SeqCst) as usize,
            upstream_written: counted.received.load(SeqCst) as usize,
        };
        (ByteCounts::now(&gateway) == seen).then_some(())
    });
    drop(client);
    gateway.finish();
}

#[test]
fn a_preface_of_http2_without_tls_counts_once() {
    let (address, streams) = origin();
    let gateway = Gateway::start(Config::http(&address));
    let mut client = Http2Peer::connect(&gateway.address);
    let request = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "test.example"), (":path", "/")]);
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &request));
    client.send(frame(kind::DATA, flag::END_STREAM, 1, &[b'a'; 10_000]));
    let mut origin = streams.recv_timeout(WAIT).expect("a connection to the origin");
    head_of(&mut origin);
    origin.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").expect("taken");
    client.next_of(kind::DATA);
    // The preface comes as bytes of HTTP/1.1, and is handed on.
    let sent = weir_tests::http2::PREFACE.len() + 9 + 9 + request.len() + 9 + 10_000;
    // The response comes behind the head alone: the body may still be on its way.
    gateway.wait_metric("weir_client_read_bytes_total", &[], sent as f64);
    assert_eq!(gateway.metric("weir_client_read_bytes_total"), sent as f64);
    drop(client);
    gateway.finish();
}

#[test]
fn frames_of_a_websocket_move_the_counters_of_both_sides_while_it_is_open() {
    let origin = WebSocketOrigin::echo();
    let gateway = Gateway::start(Config::http(&origin.address).listener("[listener.http]\nupgrades = [\"websocket\"]"));
    let (mut client, response) = open(&gateway.address, "");
    let forwarded = origin.seen().first().map(|seen| seen.head.len()).expect("a handshake");
    wait_for(
        &gateway,
        ByteCounts { client_written: response.head.len(), upstream_written: forwarded, ..ByteCounts::default() },
    );
    let mut so_far = ByteCounts::now(&gateway);
    assert_eq!((so_far.client_written, so_far.upstream_written), (response.head.len(), forwarded));
    let payload = vec![b'a'; STEP_BYTES];
    for _ in 0..STEPS {
        client.send(masked(0x82, &payload));
        assert_eq!(received(&mut client).1.len(), STEP_BYTES);
        let (up, down) = (masked(0x82, &payload).len(), unmasked(0x82, &payload).len());
        so_far.client_read += up;
        so_far.upstream_written += up;
        so_far.upstream_read += down;
        so_far.client_written += down;
        assert_exactly(&gateway, so_far);
    }
    drop(client);
    gateway.finish();
}

/// Bytes in both directions through a listener that passes them on. `first`: those that the client sends before.
fn pass(protocol: &'static str, first: &[u8]) {
    let (address, streams) = origin();
    let gateway = Gateway::start(Config { protocol, ..Config::to(&address) });
    let mut client = TcpStream::connect(gateway.address.tcp()).expect("the gateway accepts");
    client.set_read_timeout(Some(WAIT)).expect("a time limit can be set");
    let (mut origin, mut so_far, mut buffer) = (None, ByteCounts::default(), vec![0; STEP_BYTES]);
    for step in 0..STEPS {
        let mut sent = if step == 0 { first.to_vec() } else { Vec::new() };
        sent.resize(sent.len() + STEP_BYTES, b'a');
        client.write_all(&sent).expect("taken");
        let origin = origin.get_or_insert_with(|| streams.recv_timeout(WAIT).expect("a connection to the origin"));
        origin.read_exact(&mut vec![0; sent.len()]).expect("a part");
        so_far.client_read += sent.len();
        so_far.upstream_written += sent.len();
        assert_exactly(&gateway, so_far);
        origin.write_all(&vec![b'b'; STEP_BYTES]).expect("taken");
        client.read_exact(&mut buffer).expect("a part");
        so_far.upstream_read += STEP_BYTES;
        so_far.client_written += STEP_BYTES;
        assert_exactly(&gateway, so_far);
    }
    let _ = client.shutdown(Shutdown::Write);
    drop((client, origin));
    gateway.wait_metric("weir_connections_closed_total", &[], 1.0);
    assert_exactly(&gateway, so_far);
    gateway.finish();
}

#[test]
fn a_tcp_connection_moves_the_counters_of_both_sides_while_it_is_open() {
    pass("tcp", b"");
}

#[test]
fn a_connection_of_tls_moves_the_counters_of_both_sides_from_its_first_message_on() {
    let folder = tempfile::tempdir().expect("a folder");
    pass("tls", &Certificates::create(folder.path()).client_hello());
}
