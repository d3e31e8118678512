//! Responses that fail without a status that says so: those that break off, those that clients leave, and gRPC calls. A listener, its
//! route and its endpoint count them alike.

use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::http2::{Http2Origin, Http2Peer, block, flag, frame, kind};

use crate::state::{class, line, listener, route, top};

/// Routes whose requests go to the one upstream, so that each is counted by itself.
const ROUTES: &str = "[[route]]\nname = \"cut\"\nlisteners = [\"test\"]\npath_prefix = \"/cut\"\nupstream = \"server\"";
/// More than the buffers of two connections hold.
const LARGE_BYTES: usize = 64 << 20;

/// Breaks off what `/cut` asks for within the body, and sends more than a client reads for `/large`.
fn origin() -> Faulty {
    Faulty::http(|request| {
        let has = |path: &[u8]| request[0].windows(path.len()).any(|window| window == path);
        if has(b" /cut") {
            Act::ReplyThenClose(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this".to_vec())
        } else if has(b" /large") {
            let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BYTES}\r\n\r\n").into_bytes();
            response.resize(response.len() + LARGE_BYTES, b'a');
            Act::Reply(response)
        } else {
            Act::Reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec())
        }
    })
}

/// Gets a part of a response, and the end of the connection.
fn cut(gateway: &Gateway) {
    let mut client = HttpClient::connect(&gateway.address);
    client.send("GET /cut HTTP/1.1\r\nHost: test.example\r\n\r\n");
    let received = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(received.starts_with("HTTP/1.1 200 OK\r\n") && received.ends_with("\r\n\r\nonly this"), "{received}");
}

fn endpoint(gateway: &Gateway) -> Value {
    gateway.admin.get("/api/v1/upstreams").json()["upstreams"][0]["endpoints"][0].clone()
}

fn is_warned(gateway: &Gateway) -> bool {
    listener(gateway)["errors"]["warned"] == true
}

#[test]
fn a_response_that_the_origin_breaks_off_is_an_error_of_listener_route_and_endpoint() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(ROUTES));
    (0..6).for_each(|_| cut(&gateway));
    let counts = |of: &Value| ["2xx", "5xx", "broken", "aborted"].map(|name| class(of, name));
    until_true("all to be counted", || counts(&listener(&gateway)) == [0, 0, 6, 0]);
    assert_eq!(counts(&route(&gateway, "cut")), [0, 0, 6, 0]);
    assert_eq!(counts(&endpoint(&gateway)), [0, 0, 6, 0]);
    let metrics = gateway.metrics();
    for family in
        ["weir_http_listener_responses_total", "weir_http_route_responses_total", "weir_http_upstream_responses_total"]
    {
        assert_eq!(metrics.sum_where(family, &[("class", "broken")]), 6.0, "{family}");
    }
    assert_eq!(metrics.sum_where("weir_http_responses_total", &[("code", "0")]), 6.0);
    until_true("a warning", || is_warned(&gateway));
    gateway.wait_log("many responses are errors (5xx or broken off)");
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let gateway = &gateway;
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                cut(gateway);
            }
        });
        let frame = top(gateway);
        drop(stop);
        assert!(frame.contains("of the responses are errors (5xx or broken off)"), "{frame}");
        for heading in ["LISTENER", "ROUTE", "UPSTREAM"] {
            assert!(line(&frame, heading).contains(&"BROKE/S"), "{frame}");
        }
        for name in ["test", "cut", "server"] {
            assert!(line(&frame, name).contains(&"ERRORS"), "{frame}");
        }
    });
    gateway.finish();
}

#[test]
fn a_response_that_its_client_leaves_is_counted_and_no_error() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables(ROUTES));
    for _ in 0..6 {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET /large HTTP/1.1\r\nHost: test.example\r\n\r\n");
        client.exactly(1);
    }
    let counts = |of: &Value| ["2xx", "broken", "aborted"].map(|name| class(of, name));
    until_true("all to be counted", || counts(&listener(&gateway)) == [0, 0, 6]);
    assert_eq!(counts(&endpoint(&gateway)), [0, 0, 6]);
    // Responses that their clients left are not judged. A whole one gives the share.
    assert_eq!(HttpClient::connect(&gateway.address).get("/large").status, 200);
    until_true("the share to be known", || listener(&gateway)["errors"]["ratio"].is_number());
    let errors = listener(&gateway)["errors"].clone();
    assert_eq!((errors["ratio"].as_f64(), errors["warned"].as_bool()), (Some(0.0), Some(false)));
    gateway.finish();
}

#[test]
fn a_warning_ends_when_responses_are_well_again() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address));
    until_true("a warning", || {
        cut(&gateway);
        is_warned(&gateway)
    });
    let mut client = HttpClient::connect(&gateway.address);
    // Ten seconds until the window has no error, and ten more below the threshold.
    until("the end of the warning", 4 * WAIT, || {
        assert_eq!(client.get("/").status, 200);
        std::thread::sleep(Duration::from_millis(50));
        (!is_warned(&gateway)).then_some(())
    });
    gateway.wait_log("responses are no longer errors");
    assert_eq!(listener(&gateway)["errors"]["ratio"].as_f64(), Some(0.0));
    drop(client);
    gateway.finish();
}

/// Ends its calls with these statuses of gRPC in turn; `None`: with none.
fn calls_origin(statuses: Vec<Option<&'static str>>) -> Http2Origin {
    let statuses = Mutex::new(statuses.into_iter().cycle());
    Http2Origin::start(move |_, peer| {
        while let Some(stream) = peer.next_request() {
            let status = statuses.lock().expect("no panic").next().flatten();
            let head = block(&[(":status", "200"), ("content-type", "application/grpc")]);
            peer.send(frame(kind::HEADERS, flag::END_HEADERS, stream, &head));
            let trailers: Vec<_> = status.iter().map(|status| ("grpc-status", *status)).collect();
            let ends = flag::END_HEADERS | flag::END_STREAM;
            peer.send(frame(kind::HEADERS, ends, stream, &block(&[&trailers[..], &[("x-end", "1")]].concat())));
        }
    })
}

#[test]
fn a_call_counts_by_its_own_status_at_listener_and_endpoint_alike() {
    // OK, UNAVAILABLE, INTERNAL, UNIMPLEMENTED, DATA_LOSS, DEADLINE_EXCEEDED, NOT_FOUND; and UNKNOWN: one that gRPC does not have, and none.
    let statuses = [Some("0"), Some("14"), Some("13"), Some("12"), Some("15"), Some("4"), Some("5"), Some("99"), None];
    let origin = calls_origin(statuses.to_vec());
    let config = Config::http(&origin.address).upstream("[upstream.http]\nversion = \"2\"");
    let gateway = Gateway::start(config.tables(ROUTES));
    let mut client = Http2Peer::connect(&gateway.address);
    let call = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "test.example"),
        (":path", "/cut/Call"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "10S"),
    ]);
    for number in 0..statuses.len() as u32 {
        client.request(2 * number + 1, &call);
        while client.next_of(kind::HEADERS).flags & flag::END_STREAM == 0 {}
    }
    let counts = |of: &Value| ["2xx", "4xx", "5xx", "broken"].map(|name| class(of, name));
    until_true("all to be counted", || counts(&listener(&gateway)) == [1, 1, 7, 0]);
    assert_eq!(counts(&endpoint(&gateway)), [1, 1, 7, 0]);
    assert_eq!(counts(&route(&gateway, "cut")), [1, 1, 7, 0]);
    // The status of HTTP is what it is.
    assert_eq!(gateway.metrics().sum_where("weir_http_responses_total", &[("code", "200")]), 9.0);
    until_true("a warning", || is_warned(&gateway));
    drop(client);
    gateway.finish();
}

#[test]
fn counts_do_not_contradict_each_other_when_telemetry_is_off() {
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address).tables("[telemetry]\nlevel = \"off\"").tables(ROUTES));
    let mut client = HttpClient::connect(&gateway.address);
    for _ in 0..6 {
        assert_eq!(client.get("/").status, 200);
    }
    until_true("the share to be known", || listener(&gateway)["errors"]["ratio"].is_number());
    until_true("all to be counted", || class(&listener(&gateway), "2xx") == 6);
    let listener = listener(&gateway);
    assert_eq!((listener["requests_total"].as_u64(), listener["accepted_total"].as_u64()), (Some(6), Some(1)));
    assert!(listener["sent_bytes_total"].as_u64().is_some_and(|bytes| bytes > 0), "{listener}");
    let endpoint = endpoint(&gateway);
    assert_eq!((class(&endpoint, "2xx"), endpoint["requests_total"].as_u64()), (6, Some(6)));
    assert!(!gateway.metrics().has("weir_http_listener_responses_total"), "only `/metrics` is without them");
    drop(client);
    gateway.finish();
}

#[test]
fn lines_that_sampling_left_out_are_reported_when_the_series_is_over() {
    const SENT: u64 = 20;
    let origin = origin();
    let gateway = Gateway::start(Config::http(&origin.address));
    for _ in 0..SENT {
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
        assert_eq!(client.response().status, 400);
    }
    // Every violation is a line, or counts in the next line or in the report.
    until_true("all of them to be reported", || {
        let log = gateway.log();
        let mut reported = 0;
        for line in log.lines().filter(|line| line.contains("reason=\"host\"")) {
            let number = |key: &str| {
                let rest = line.split_once(key).map(|(_, rest)| rest)?;
                rest.split(|character: char| !character.is_ascii_digit()).next()?.parse::<u64>().ok()
            };
            reported += match line.contains("lines suppressed") {
                true => number("count=").expect("a count"),
                false => 1 + number("suppressed=").expect("a number of lines"),
            };
        }
        assert!(reported <= SENT, "{reported} in:\n{log}");
        reported == SENT
    });
    gateway.wait_log("lines suppressed of=test");
    gateway.finish();
}
