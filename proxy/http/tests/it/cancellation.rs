//! Clients that leave: their exchanges end at the origin in time.

use std::time::{Duration, Instant};

use crate::{
    http2::{Http2Client, frame},
    support::{Gateway, OriginEnd, Setup},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n";
/// A client that leaves costs its origin no longer than this.
const IN_TIME: Duration = Duration::from_millis(100);
/// Each case is played so often: one round may meet a busy machine, most may not.
const ROUNDS: usize = 5;

/// The median of the rounds is in time; each begins with the time at which its client left.
fn in_time(case: &str, round: impl Fn() -> Instant) {
    let mut took: Vec<_> = (0..ROUNDS).map(|_| round().elapsed()).collect();
    took.sort();
    println!("{case}: {took:?}");
    assert!(took[ROUNDS / 2] < IN_TIME, "{case}: {took:?}");
}

#[test]
fn a_connection_of_http_1_that_closes_ends_that_to_the_origin() {
    for (case, response) in [("before the head", ""), ("in the body", STREAM)] {
        let gateway = Gateway::start(Setup::plain(|_| {}));
        in_time(&format!("HTTP/1.1 to HTTP/1.1, {case}"), || {
            let mut client = gateway.client();
            client.send(GET);
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send(response);
            if !response.is_empty() {
                client.0.until("ab\r\n");
            }
            let left = Instant::now();
            drop(client);
            assert_eq!(origin.0.rest(), "");
            left
        });
    }
}

#[test]
fn a_stream_that_is_reset_ends_the_connection_to_the_origin() {
    for (case, response) in [("before the head", ""), ("in the body", STREAM)] {
        let gateway = Gateway::start(Setup::plain(|_| {}));
        in_time(&format!("HTTP/2 to HTTP/1.1, {case}"), || {
            let mut client = Http2Client::new(gateway.client());
            client.request(1, &[(":method", "GET"), (":path", "/")]);
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send(response);
            if !response.is_empty() {
                client.0.0.until("ab");
            }
            let left = Instant::now();
            client.reset(1);
            assert_eq!(origin.0.rest(), "");
            left
        });
    }
}

/// A scripted origin that speaks HTTP/2, for one stream.
struct Http2Origin(OriginEnd);

impl Http2Origin {
    /// Takes the request of stream 1.
    fn take(mut end: OriginEnd) -> Self {
        assert_eq!(end.0.bytes(24), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        end.0.send_bytes(&frame(4, 0, 0, b""));
        let mut origin = Self(end);
        origin.until(1);
        origin
    }

    /// Begins the response.
    fn respond(&mut self) {
        // The first bytes of the body, behind `:status: 200`.
        self.0.0.send_bytes(&[frame(1, 4, 1, &[0x88]), frame(0, 0, 1, b"ab")].concat());
    }

    /// Reads up to a frame of this kind on stream 1.
    fn until(&mut self, kind: u8) {
        loop {
            let head = self.0.0.bytes(9);
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let payload = self.0.0.bytes(length as usize);
            match head[3] {
                one if one == kind && head[8] == 1 => return,
                4 if head[4] & 1 == 0 => self.0.0.send_bytes(&frame(4, 1, 0, b"")),
                6 if head[4] & 1 == 0 => self.0.0.send_bytes(&frame(6, 1, 0, &payload)),
                _ => {}
            }
        }
    }
}

#[test]
fn a_stream_to_the_origin_is_reset_when_its_client_leaves() {
    for (case, responds) in [("before the head", false), ("in the body", true)] {
        for is_stream in [false, true] {
            let version = if is_stream { "HTTP/2" } else { "HTTP/1.1" };
            in_time(&format!("{version} to HTTP/2, {case}"), || {
                // Each on a connection of its own: the number of the stream is 1.
                let gateway = Gateway::start(Setup { is_multiplexed: true, ..Setup::plain(|_| {}) });
                let mut client = gateway.client();
                let mut stream = None;
                if is_stream {
                    let mut one = Http2Client::new(client);
                    one.request(1, &[(":method", "GET"), (":path", "/")]);
                    client = gateway.client();
                    stream = Some(one);
                } else {
                    client.send(GET);
                }
                let mut origin = Http2Origin::take(gateway.origin.accept());
                if responds {
                    origin.respond();
                    match &mut stream {
                        Some(stream) => stream.0.0.until("ab"),
                        None => client.0.until("ab\r\n"),
                    };
                }
                let left = Instant::now();
                match &mut stream {
                    Some(stream) => stream.reset(1),
                    None => drop(client),
                }
                origin.until(3);
                left
            });
        }
    }
}

#[test]
fn a_client_that_closes_its_http_2_connection_ends_all_its_exchanges() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    in_time("HTTP/2 connection to HTTP/1.1", || {
        let mut client = Http2Client::new(gateway.client());
        let mut origins = Vec::new();
        for stream in [1, 3] {
            client.request(stream, &[(":method", "GET"), (":path", "/")]);
            let mut origin = gateway.origin.accept();
            origin.request();
            origin.send(STREAM);
            origins.push(origin);
        }
        client.0.0.until("ab");
        let left = Instant::now();
        drop(client);
        origins.iter_mut().for_each(|origin| assert_eq!(origin.0.rest(), ""));
        left
    });
}

#[test]
fn a_client_that_leaves_while_its_origin_is_held_back_ends_the_exchange_too() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    in_time("HTTP/1.1, unread", || {
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        // Nothing is read: all buffers on the way fill up, and the origin waits.
        let stream = &origin.0.stream;
        stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let piece = vec![0; 1 << 16];
        let mut writer = stream;
        while std::io::Write::write(&mut writer, &piece).is_ok() {}
        let left = Instant::now();
        drop(client);
        // Its connection is reset: bytes of it were not read.
        assert_eq!(origin.0.rest(), "");
        left
    });
}
