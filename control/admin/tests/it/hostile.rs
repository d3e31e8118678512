//! Clients that are slow, silent, greedy or not speaking HTTP.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use weir_admin::limits::{CONNECTIONS_MAX, EVICTABLE_AFTER, HEADERS_MAX};
use weir_admin::{AdminServer, AdminSettings, Deadlines};

use crate::support::{FakeGateway, PATIENCE, connect, fetch, loopback, start, start_with};

const SHORT: Duration = Duration::from_millis(300);

fn impatient() -> AdminSettings {
    AdminSettings { deadlines: Deadlines { head: SHORT, response: SHORT }, ..loopback() }
}

/// Reads until the server closes; false if it does not within [`PATIENCE`].
fn is_closed_by_server(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
            Err(_) => return false,
        }
    }
}

/// Retries on a refused or reset connection would hide what these tests look for, so there are none.
fn responds_quickly(server: &AdminServer) {
    let begin = Instant::now();
    assert_eq!(fetch(server, "/livez").status, 200);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn a_silent_client_is_closed_at_the_head_deadline() {
    let server = start_with(impatient(), &FakeGateway::new());
    let mut silent = connect(&server);
    let begin = Instant::now();
    assert!(is_closed_by_server(&mut silent));
    assert!(begin.elapsed() < PATIENCE / 2);
}

#[test]
fn dripping_a_head_does_not_extend_its_deadline() {
    let server = start_with(impatient(), &FakeGateway::new());
    let mut drip = connect(&server);
    drip.set_read_timeout(Some(Duration::from_millis(1))).expect("timeout");
    let begin = Instant::now();
    for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\n".iter().cycle() {
        // A closed peer shows as a failed write, or as the end when read.
        let is_written = drip.write_all(&[*byte]).is_ok();
        let mut response = [0; 512];
        let is_open = match drip.read(&mut response) {
            Ok(count) => count > 0,
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        if !is_written || !is_open {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "still open");
        thread::sleep(Duration::from_millis(20));
    }
    responds_quickly(&server);
}

#[test]
fn an_idle_keep_alive_connection_is_closed_too() {
    let server = start_with(impatient(), &FakeGateway::new());
    let mut idle = connect(&server);
    write!(idle, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("send");
    let begin = Instant::now();
    assert!(is_closed_by_server(&mut idle));
    assert!(begin.elapsed() >= SHORT / 2, "it was kept alive for a while");
}

#[test]
fn a_client_that_does_not_read_its_responses_is_cut() {
    let gateway = FakeGateway::new();
    gateway.lengthen_metrics(1000);
    let length = {
        let server = start(&gateway);
        fetch(&server, "/metrics").body.len()
    };
    let server = start_with(impatient(), &gateway);
    let mut greedy = connect(&server);
    // Pipelined, since the buffers of both sockets take several responses (tcp_wmem and tcp_rmem go up to 4 and 6 MiB).
    const REQUESTS: usize = 100;
    assert!(length * REQUESTS > 24 << 20, "{length} bytes are too few to fill the buffers");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    greedy.write_all(request.repeat(REQUESTS).as_bytes()).expect("send");
    for _ in 0..10 {
        // Trickles: a byte now and then must not extend the deadline.
        thread::sleep(SHORT / 5);
        let mut byte = [0];
        greedy.read_exact(&mut byte).expect("what the buffers hold");
    }
    let mut received = 10;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match greedy.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => received += count,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                break;
            }
        }
    }
    assert!(received < length * REQUESTS, "cut, not completed late");
    responds_quickly(&server);
}

#[test]
fn a_slow_body_ends_at_the_routes_deadline() {
    let server = start(&FakeGateway::new());
    let mut slow = connect(&server);
    write!(
        slow,
        "POST /api/v1/drain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{{"
    )
    .expect("send");
    let mut response = [0; 64];
    let count = slow.read(&mut response).expect("a response");
    assert!(response[..count].starts_with(b"HTTP/1.1 504 "), "{:?}", String::from_utf8_lossy(&response[..count]));
}

#[test]
fn silent_clients_in_all_seats_make_room_for_a_probe() {
    let server = start(&FakeGateway::new());
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&server)).collect();
    let begin = Instant::now();
    assert_eq!(fetch(&server, "/livez").status, 200);
    assert!(begin.elapsed() < EVICTABLE_AFTER * 3, "{:?}", begin.elapsed());
    assert!(is_closed_by_server(&mut silent[0]), "the oldest made room");
    let last = silent.last_mut().expect("the newest");
    last.set_read_timeout(Some(SHORT)).expect("timeout");
    assert!(!is_closed_by_server(last), "and only as many as needed");
}

#[test]
fn heads_beyond_the_limits_are_refused() {
    let server = start(&FakeGateway::new());
    let many = "X-Filler: 1\r\n".repeat(HEADERS_MAX + 1);
    let long = format!("X-Filler: {}\r\n", "x".repeat(64 * 1024));
    for lines in [many, long] {
        let mut stream = connect(&server);
        // The server may respond and close before it has read everything.
        let _ = write!(stream, "GET /livez HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
        let mut response = [0; 16];
        let count = stream.read(&mut response).unwrap_or(0);
        assert!(count == 0 || response.starts_with(b"HTTP/1.1 431 "), "{:?}", String::from_utf8_lossy(&response));
    }
    responds_quickly(&server);
}

#[test]
fn bytes_that_are_no_http_close_the_connection() {
    let server = start(&FakeGateway::new());
    for bytes in [&b"*1\r\n$4\r\nPING\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00", b"\0\0\0\0\r\n\r\n"] {
        let mut stream = connect(&server);
        stream.write_all(bytes).expect("send");
        assert!(is_closed_by_server(&mut stream), "{bytes:?}");
    }
    responds_quickly(&server);
}

#[test]
fn a_panic_of_the_gateway_costs_one_connection_and_not_the_thread() {
    let gateway = FakeGateway::new();
    gateway.is_broken.store(true, Ordering::SeqCst);
    let server = start(&gateway);
    for _ in 0..CONNECTIONS_MAX + 1 {
        let mut stream = connect(&server);
        write!(stream, "GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("send");
        assert!(is_closed_by_server(&mut stream));
    }
    responds_quickly(&server);
}
