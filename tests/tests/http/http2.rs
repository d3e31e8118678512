//! HTTP/2 towards clients, in front of an origin that speaks HTTP/1.1: what curl and h2load see, and the cases H2.1 to H2.16 of
//! the abuse catalogue frame by frame.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use weir_tests::deadline::until_true;
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::{field, unchunked};
use weir_tests::http2::{Frame, Http2Peer, block, code, flag, frame, get, kind};
use weir_tests::stream::Address;

/// Responds to every request with what it brought.
fn echo() -> Faulty {
    Faulty::http(|request| {
        let body = match field(&request[0], "transfer-encoding") {
            Some(_) => unchunked(&request[1]),
            None => request[1].clone(),
        };
        let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Origin: here\r\n\r\n", body.len());
        if request[0].starts_with(b"HEAD ") {
            response = response.replace("Content-Length: 0", "Content-Length: 5");
        }
        let mut response = response.into_bytes();
        response.extend_from_slice(&body);
        Act::Reply(response)
    })
}

/// Makes the frames of one step of a flood, by its number.
type Make = Box<dyn Fn(u32) -> Vec<u8>>;

struct Scene {
    origin: Faulty,
    gateway: Gateway,
}

impl Scene {
    fn new() -> Self {
        Self::with("")
    }

    fn with(lines: &str) -> Self {
        let origin = echo();
        let gateway = Gateway::start(Config::http(&origin.address).listener(lines));
        Self { origin, gateway }
    }

    fn client(&self) -> Http2Peer {
        Http2Peer::connect(&self.gateway.address)
    }

    /// Output of `curl` with these arguments.
    fn curl(&self, words: &[&str]) -> Vec<u8> {
        let url = format!("http://{}/a?b=c", self.gateway.address.text());
        let mut curl = Command::new("curl");
        let output = curl.args(["-sS", "--http2-prior-knowledge", "--max-time", "20"]).args(words).arg(url).output();
        let output = output.expect("curl runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    /// The last request that the origin saw, as text.
    fn last_seen(&self) -> String {
        let seen = self.origin.seen();
        String::from_utf8_lossy(&seen.last().expect("a request arrived")[0]).into_owned()
    }

    /// The connection ends in GOAWAY with that code, and the close has its reason.
    fn gone(&self, client: &mut Http2Peer, reason: &str) {
        let last = client.rest().into_iter().rfind(|frame| frame.kind == kind::GOAWAY);
        let last = last.unwrap_or_else(|| panic!("{reason}: no GOAWAY came"));
        assert_eq!(last.code(), code::ENHANCE_YOUR_CALM, "{reason}");
        // Streams that are reset before a task has looked at them: their own limit may come first.
        let names = if reason == "http2_reset_flood" { vec![reason, "http2_flood"] } else { vec![reason] };
        until_true("the close to be counted", || {
            let metrics = self.gateway.metrics();
            let counted =
                |name: &str| names.iter().any(|reason| metrics.sum_where(name, &[("reason", *reason)]) >= 1.0);
            counted("weir_defensive_closes_total") && counted("weir_connections_closed_total")
        });
    }

    /// Someone else is served all the while.
    fn serves(&self) {
        let mut other = self.client();
        other.request(1, &get("/other"));
        assert_eq!(other.next_of(kind::HEADERS).status(), Some(200));
    }
}

#[test]
fn curl_gets_posts_and_uploads() {
    let scene = Scene::new();
    let head = String::from_utf8_lossy(&scene.curl(&["-I"])).to_lowercase();
    assert!(head.starts_with("http/2 200") && head.contains("x-origin: here"), "{head}");
    assert!(head.contains("content-length: 5") && !head.contains("connection:"), "{head}");
    assert_eq!(scene.curl(&["--data-binary", "hello", "-H", "Cookie: a=1", "-H", "TE: trailers"]), b"hello");
    let seen = scene.last_seen();
    assert!(seen.starts_with("POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:"), "{seen}");
    assert!(seen.contains("\r\nContent-Length: 5\r\n") && seen.contains("\r\ncookie: a=1\r\n"), "{seen}");
    assert!(seen.contains("\r\nte: trailers\r\n") && seen.contains("\r\nx-forwarded-proto: http\r\n"), "{seen}");
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    let file = scene.gateway.folder().join("content");
    std::fs::write(&file, &content).expect("written");
    let (at_file, file) = (format!("@{}", file.display()), file.display().to_string());
    assert!(scene.curl(&["--data-binary", &at_file]) == content, "by its length");
    assert!(scene.curl(&["-T", &file, "-H", "Transfer-Encoding: chunked"]) == content, "without one");
    assert!(scene.last_seen().contains("\r\nTransfer-Encoding: chunked\r\n"));
    scene.gateway.finish();
}

#[test]
fn h2load_has_every_response_of_many_streams() {
    let scene = Scene::new();
    let url = format!("http://{}/", scene.gateway.address.text());
    let output =
        Command::new("h2load").args(["-n", "4000", "-c", "4", "-m", "25", &url]).output().expect("h2load runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout"), "{told}");
    assert!(told.contains("4000 2xx"), "{told}");
    scene.gateway.finish();
}

#[test]
fn trailers_and_interim_responses_reach_a_client_of_http2() {
    let origin = Faulty::http(|_| {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n";
        Act::Reply(format!("{early}{head}3\r\nabc\r\n0\r\nX-Sum: 7\r\nContent-Length: 9\r\n\r\n").into_bytes())
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let url = format!("http://{}/", gateway.address.text());
    let output = Command::new("nghttp").args(["-v", &url]).output().expect("nghttp runs");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = |what: &str| told.find(what).unwrap_or_else(|| panic!("no {what:?} in {told}"));
    assert!(at(":status: 103") < at("link: </a.css>") && at("link: </a.css>") < at(":status: 200"));
    assert!(at(":status: 200") < at("x-sum: 7"));
    assert!(!told.contains("content-length: 9") && !told.contains("transfer-encoding"), "{told}");
    gateway.finish();
}

#[test]
fn an_upload_stops_where_the_origin_stops_reading() {
    // It takes connections, as the kernel does for it, and nothing else.
    let origin = TcpListener::bind(("127.0.0.1", weir_tests::port::free())).expect("a free port");
    let address = Address::Tcp(origin.local_addr().expect("bound"));
    let gateway = Gateway::start(Config::http(&address));
    let mut client = Http2Peer::connect(&gateway.address);
    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &head));
    // A client that keeps to the windows of its stream and of the connection.
    let (mut windows, mut sent) = ([65_535_i64; 2], 0);
    loop {
        while windows[0].min(windows[1]) >= 16_000 {
            assert!(client.send(frame(kind::DATA, 0, 1, &[7; 16_000])));
            windows.iter_mut().for_each(|window| *window -= 16_000);
            sent += 16_000;
        }
        // Past what the kernel holds for an origin that does not read, nothing is taken any more.
        assert!(sent < 64 << 20, "an upload that nobody reads is taken without an end");
        let Some(frame) = client.next_within(Duration::from_secs(1)) else { break };
        match frame.kind {
            kind::WINDOW_UPDATE => windows[usize::from(frame.stream == 0)] += i64::from(frame.code()),
            kind::SETTINGS if frame.flags & flag::ACK == 0 => {
                windows[0] += i64::from(frame.initial_window().unwrap_or(65_535)) - 65_535
            }
            _ => {}
        }
    }
    assert!(sent > 65_535);
    client.send(frame(kind::PING, 0, 0, &[1; 8]));
    let response = client.next_of(kind::PING);
    assert_eq!((response.flags, response.payload), (flag::ACK, vec![1; 8]));
    drop((client, origin));
    gateway.finish();
}

#[test]
fn a_response_waits_for_the_window_and_loses_nothing() {
    let content: Vec<u8> = (0..400_000_u32).map(|at| (at % 251) as u8).collect();
    let body = content.clone();
    let origin = Faulty::http(move |_| {
        let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        response.extend_from_slice(&body);
        Act::Reply(response)
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    let (mut received, mut allowed) = (Vec::new(), 65_535);
    while received.len() < content.len() {
        received.extend_from_slice(&client.next_of(kind::DATA).payload);
        assert!(received.len() <= allowed, "more than the window");
        if received.len() + 1_000 > allowed {
            // A little at a time.
            allowed += 5_000;
            let more = 5_000_u32.to_be_bytes();
            client.send(frame(kind::WINDOW_UPDATE, 0, 1, &more));
            client.send(frame(kind::WINDOW_UPDATE, 0, 0, &more));
        }
    }
    assert!(received == content);
    drop(client);
    gateway.finish();
}

#[test]
fn floods_end_the_connection_and_nobody_else_notices() {
    let reset = || [frame(kind::HEADERS, 5, 0, &get("/")), frame(kind::RST_STREAM, 0, 0, &[0, 0, 0, 8])];
    let floods: [(&str, Make); 7] = [
        (
            "http2_reset_flood",
            Box::new(move |number| {
                let mut frames = reset();
                frames.iter_mut().for_each(|frame| frame[5..9].copy_from_slice(&(2 * number + 1).to_be_bytes()));
                frames.concat()
            }),
        ),
        ("http2_ping_flood", Box::new(|_| frame(kind::PING, 0, 0, &[0; 8]))),
        ("http2_settings_flood", Box::new(|_| frame(kind::SETTINGS, 0, 0, b""))),
        (
            "http2_empty_data_flood",
            Box::new(|number| match number {
                0 => {
                    let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]);
                    frame(kind::HEADERS, flag::END_HEADERS, 1, &head)
                }
                _ => frame(kind::DATA, 0, 1, b""),
            }),
        ),
        ("http2_window_update_flood", Box::new(|_| frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
        ("http2_priority_flood", Box::new(|_| frame(kind::PRIORITY, 0, 7, &[0, 0, 0, 0, 1]))),
        (
            "http2_continuation_flood",
            Box::new(|number| match number {
                0 => frame(kind::HEADERS, flag::END_STREAM, 1, &get("/")),
                _ => frame(kind::CONTINUATION, 0, 1, &block(&[("x", "y")])),
            }),
        ),
    ];
    let scene = Scene::new();
    for (reason, of) in floods {
        let mut client = scene.client();
        // 10,000 frames, or as many as are taken.
        (0..100)
            .map(|round| (0..100).map(|number| of(round * 100 + number)).collect::<Vec<_>>().concat())
            .all(|bytes| client.send(bytes));
        scene.gone(&mut client, reason);
        scene.serves();
    }
    scene.gateway.finish();
}

#[test]
fn h2_11_to_h2_13_malformed_messages_reach_no_origin() {
    let scene = Scene::new();
    let request = |more: &[(&'static str, &'static str)]| {
        let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
        fields.extend_from_slice(more);
        fields
    };
    let swapped = |name: &str, value: &'static str| {
        let mut fields = request(&[]);
        fields.iter_mut().filter(|field| field.0 == name).for_each(|field| field.1 = value);
        fields
    };
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("H2.11 upper case", request(&[("X-Upper", "1")])),
        ("H2.11 connection", request(&[("connection", "close")])),
        ("H2.11 transfer-encoding", request(&[("transfer-encoding", "chunked")])),
        ("H2.11 te", request(&[("te", "gzip")])),
        ("H2.11 pseudo-header behind a field", request(&[("x", "y"), (":path", "/b")])),
        ("H2.11 two paths", request(&[(":path", "/b")])),
        ("H2.11 unknown pseudo-header", request(&[(":x", "y")])),
        ("H2.12 CR LF in a value", request(&[("x", "y\r\nz: 1")])),
        ("H2.12 NUL in a value", request(&[("x", "y\0")])),
        ("H2.12 space in the path", swapped(":path", "/a b")),
        ("H2.12 LF in the path", swapped(":path", "/a\nb")),
        ("H2.12 no path", swapped(":path", "")),
        ("H2.12 CR LF in the authority", swapped(":authority", "a\r\nx: y")),
        ("H2.12 a user in the authority", swapped(":authority", "u@a")),
        ("H2.12 two hosts", request(&[("host", "b")])),
        ("H2.12 an encoded slash", swapped(":path", "/a%2Fb")),
        ("H2.13 a length and no body", request(&[("content-length", "5")])),
        ("H1.17 CONNECT", swapped(":method", "CONNECT")),
        ("H1.17 TRACE", swapped(":method", "TRACE")),
    ];
    for (case, fields) in cases {
        let mut client = scene.client();
        client.request(1, &block(&fields));
        let response = loop {
            let frame = client.next_frame().unwrap_or_else(|| panic!("{case}: closed without a word"));
            if matches!(frame.kind, kind::HEADERS | kind::RST_STREAM | kind::GOAWAY) {
                break frame;
            }
        };
        match response.kind {
            // 400 and 405, of which the second is not in the encoder's table.
            kind::HEADERS => assert_ne!(response.status(), Some(200), "{case}"),
            _ => assert_eq!(response.code(), code::PROTOCOL_ERROR, "{case}"),
        }
    }
    assert_eq!(scene.origin.seen().len(), 0);
    scene.gateway.finish();
}

#[test]
fn h2_13_a_body_of_another_length_is_reset_and_its_lane_not_used_again() {
    let scene = Scene::new();
    let mut client = scene.client();
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("content-length", "5")];
    client.send(frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&head)));
    client.send(frame(kind::DATA, 0, 1, b"abc"));
    client.send(frame(kind::DATA, flag::END_STREAM, 1, b"defg"));
    assert_eq!(
        client.refusal().map(|frame: Frame| (frame.kind, frame.code())),
        Some((kind::RST_STREAM, code::PROTOCOL_ERROR))
    );
    client.request(3, &get("/after"));
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    assert!(scene.origin.seen().iter().all(|request| request[0].starts_with(b"GET /after ")));
    drop(client);
    scene.gateway.finish();
}

#[test]
fn a_response_that_breaks_off_is_reset() {
    let origin = Faulty::http(|_| Act::ReplyThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_vec()));
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    let reset = client.refusal().expect("told so");
    assert_eq!((reset.kind, reset.stream, reset.code()), (kind::RST_STREAM, 1, code::INTERNAL_ERROR));
    drop(client);
    gateway.finish();
}

#[test]
fn a_stream_that_the_client_resets_frees_its_lane_at_once() {
    let origin = Faulty::http(|_| Act::Hang);
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    client.send(frame(kind::RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes()));
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while gateway.metric("weir_requests_in_flight") > 0.0 {
        assert!(std::time::Instant::now() < deadline, "the exchange goes on without its client");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(client);
    gateway.finish();
}

#[test]
fn h2_16_a_drain_finishes_open_streams() {
    let origin = Faulty::http(|_| {
        std::thread::sleep(Duration::from_millis(500));
        Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec())
    });
    let mut gateway = Gateway::start(Config::http(&origin.address));
    let mut client = Http2Peer::connect(&gateway.address);
    client.request(1, &get("/"));
    gateway.wait_metric("weir_requests_in_flight", &[], 1.0);
    gateway.process().signal("TERM");
    let goaway = client.next_of(kind::GOAWAY);
    assert_eq!(goaway.code(), code::NO_ERROR);
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    let data = client.next_of(kind::DATA);
    assert_eq!((&data.payload[..], data.flags & flag::END_STREAM), (&b"hi"[..], flag::END_STREAM));
    client.rest();
    let status = gateway.process().wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    gateway.ended();
}

#[test]
fn a_connection_without_a_stream_ends_after_its_time() {
    let scene = Scene::with("idle_timeout = \"300ms\"");
    let mut client = scene.client();
    client.request(1, &get("/"));
    assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    let last = client.rest().into_iter().rfind(|frame| frame.kind == kind::GOAWAY).expect("it is told");
    assert_eq!(last.code(), code::NO_ERROR);
    scene.gateway.finish();
}

#[test]
fn a_body_that_is_over_before_an_origin_is_there_is_over_for_the_origin_too() {
    let origin = Faulty::http(|request| {
        let body = String::from_utf8_lossy(&request[1]).into_owned();
        Act::Reply(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    });
    let gateway = Gateway::start(Config::http(&origin.address).listener("[listener.http]\nrequest_buffer_bytes = 0"));
    for _ in 0..20 {
        let mut client = Http2Peer::connect(&gateway.address);
        let post = [(":method", "POST"), (":scheme", "http"), (":authority", "test.example"), (":path", "/")];
        // In one piece: the end is there before a connection to the origin is.
        let mut bytes = frame(kind::HEADERS, flag::END_HEADERS, 1, &block(&post));
        bytes.extend(frame(kind::DATA, flag::END_STREAM, 1, b""));
        client.send(bytes);
        assert_eq!(client.next_of(kind::HEADERS).status(), Some(200));
    }
    assert!(origin.seen().iter().all(|request| request[1] == b"0\r\n\r\n"), "{:?}", origin.seen());
    gateway.finish();
}
