//! Origins that misbehave: case H1.14, and what a client gets for each way to fail.

use std::io::{ErrorKind, Read as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_tests::faulty::{Act, Faulty};
use weir_tests::gateway::{Config, Gateway};
use weir_tests::http::HttpClient;
use weir_tests::port;
use weir_tests::stream::Address;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Gives the configured response to `/bad`, and a good one to everything else.
fn origin(bad: &'static str, closes: bool) -> Faulty {
    Faulty::http(move |request| {
        let is_bad = request[0].windows(4).any(|window| window == b"/bad");
        match (is_bad, closes) {
            (true, false) => Act::Reply(bad.as_bytes().to_vec()),
            (true, true) => Act::ReplyThenClose(bad.as_bytes().to_vec()),
            (false, _) => Act::Reply(OK.as_bytes().to_vec()),
        }
    })
}

#[test]
fn h1_14_malformed_responses_become_502_and_their_connection_is_not_used_again() {
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "nonsense\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let origin = origin(bad, false);
        let gateway = Gateway::start(Config::http(&origin.address));
        let mut client = HttpClient::connect(&gateway.address);
        assert_eq!(client.get("/").text(), "hi");
        let connections = origin.connections();
        assert_eq!(client.get("/bad").status, 502, "{bad:?}");
        let after = client.get("/");
        assert_eq!((after.status, after.text().as_str()), (200, "hi"), "the client's connection goes on: {bad:?}");
        assert!(origin.connections() > connections, "a connection that was answered so was used again: {bad:?}");
        drop(client);
        gateway.finish();
    }
}

#[test]
fn h1_14_a_flood_of_interim_responses_is_an_error() {
    let flood = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(9) + OK;
    let origin = Faulty::http(move |_| Act::Reply(flood.clone().into_bytes()));
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    let mut status = client.get("/").status;
    while status == 103 {
        status = client.response().status;
    }
    assert_eq!(status, 502);
}

#[test]
fn h1_14_bytes_behind_the_response_of_an_origin_reach_nobody() {
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 204 No Content\r\n\r\nevil",
        "HTTP/1.1 304 Not Modified\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nevil",
    ] {
        let origin = origin(bad, false);
        let gateway = Gateway::start(Config::http(&origin.address));
        let mut client = HttpClient::connect(&gateway.address);
        for _ in 0..5 {
            let first = client.get("/bad");
            assert!(!first.text().contains("evil"), "{bad:?}");
            let next = client.get("/");
            assert_eq!((next.status, next.text().as_str()), (200, "hi"), "{bad:?}");
        }
        drop(client);
        gateway.finish();
    }
}

#[test]
fn a_response_that_is_cut_short_never_looks_whole() {
    for (bad, start) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "short"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", "5\r\nshort\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\nZZ\r\n", "5\r\nshort\r\n"),
    ] {
        let origin = origin(bad, true);
        let gateway = Gateway::start(Config::http(&origin.address));
        let mut client = HttpClient::connect(&gateway.address);
        client.send("GET /bad HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = String::from_utf8_lossy(&client.rest()).into_owned();
        let body = text.split_once("\r\n\r\n").expect("a head").1;
        assert_eq!(body, start, "{bad:?}");
        if bad.contains("chunked") {
            // A response that ends with its connection can be marked as incomplete only by a reset.
            let mut old = HttpClient::connect(&gateway.address);
            old.send("GET /bad HTTP/1.0\r\nHost: a\r\n\r\n");
            let mut received = Vec::new();
            let ended = old.stream().read_to_end(&mut received).expect_err("not a clean end");
            assert_eq!(ended.kind(), ErrorKind::ConnectionReset, "{bad:?}");
            assert!(received.ends_with(b"\r\n\r\nshort"), "{bad:?}: {}", String::from_utf8_lossy(&received));
        }
        drop(client);
        gateway.finish();
    }
}

#[test]
fn an_origin_that_closes_without_a_word_is_502_and_one_that_is_silent_504() {
    let closing = origin("", true);
    let gateway = Gateway::start(Config::http(&closing.address));
    let mut client = HttpClient::connect(&gateway.address);
    assert_eq!(client.get("/bad").status, 502);
    assert_eq!(client.get("/").status, 200);
    drop(client);
    gateway.finish();
    let silent = Faulty::http(|_| Act::Silence);
    let config = Config::http(&silent.address).listener("[listener.http]\nresponse_timeout = \"200ms\"");
    let gateway = Gateway::start(config);
    let mut client = HttpClient::connect(&gateway.address);
    let response = client.get("/");
    assert_eq!((response.status, response.text().as_str()), (504, "the origin did not respond in time\n"));
    drop(client);
    gateway.finish();
}

#[test]
fn an_origin_that_is_away_is_502_then_503_while_the_breaker_is_open() {
    let config = Config::http(&Address::port(port::free())).upstream("[upstream.breaker]\nopen_for = \"60s\"");
    let gateway = Gateway::start_unready(config);
    let mut client = HttpClient::connect(&gateway.address);
    let mut statuses: Vec<u16> = (0..10).map(|_| client.get("/").status).collect();
    statuses.dedup();
    assert_eq!(statuses, [502, 503]);
    let shed = client.get("/");
    assert!(shed.field("retry-after").is_some_and(|seconds| (1..=5).contains(&seconds.parse().unwrap_or(0))));
    drop(client);
    gateway.finish();
}

#[test]
fn a_connection_that_the_origin_has_closed_meanwhile_costs_no_request() {
    static SERVED: AtomicUsize = AtomicUsize::new(0);
    let origin = Faulty::http(|_| {
        SERVED.fetch_add(1, Ordering::Relaxed);
        // It says nothing of closing: the next request finds out.
        Act::ReplyThenClose(OK.as_bytes().to_vec())
    });
    let gateway = Gateway::start(Config::http(&origin.address));
    let mut client = HttpClient::connect(&gateway.address);
    for number in 0..200 {
        let response = client.get("/");
        assert_eq!(response.status, 200, "request {number}: {}", response.text());
    }
    assert_eq!(SERVED.load(Ordering::Relaxed), 200, "each was served once");
}

#[test]
fn one_of_two_origins_dies_and_the_other_serves() {
    let origins = [origin("", true), origin("", true)];
    let config = Config { protocol: "http", ..Config::to_all(origins.iter().map(|origin| &origin.address)) };
    let gateway = Gateway::start(config.upstream("[upstream.health]\ninterval = \"50ms\"\ntimeout = \"50ms\""));
    let mut client = HttpClient::connect(&gateway.address);
    (0..20).for_each(|_| assert_eq!(client.get("/").status, 200));
    let [first, second] = origins;
    assert!(first.seen().len() == 10 && second.seen().len() == 10, "in turn");
    drop(first);
    gateway.wait_log("upstream");
    weir_tests::deadline::until_true("the other one serves all", || (0..20).all(|_| client.get("/").status == 200));
    drop(client);
    gateway.finish();
}

#[test]
fn an_origin_that_dies_within_a_request_body_shifts_nothing() {
    let origin = dying_origin();
    let gateway = Gateway::start(Config::http(&origin).listener("[listener.http]\nrequest_buffer_bytes = 0"));
    for rest in [50, 0] {
        let mut client = HttpClient::connect(&gateway.address);
        let first = "x".repeat(100 - rest);
        client.send(format!("POST /die HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{first}"));
        assert_eq!(client.response().status, 502);
        // The rest of the body still belongs to it; then comes the next request, whole.
        client.send("y".repeat(rest));
        let next = client.get("/next");
        assert_eq!((next.status, next.text().as_str()), (200, "/next"), "{rest} bytes were still to come");
    }
    gateway.finish();
}

/// Closes when it has the head of `/die` and something of its body; repeats the path of others.
fn dying_origin() -> Address {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind(("127.0.0.1", port::free())).expect("bound");
    let address = Address::Tcp(listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
                while let Ok(count @ 1..) = stream.read(&mut chunk) {
                    seen.extend_from_slice(&chunk[..count]);
                    let text = String::from_utf8_lossy(&seen).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    if path == "/die" && body.is_empty() {
                        continue;
                    }
                    if path == "/die" {
                        return;
                    }
                    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
                    let _ = stream.write_all(response.as_bytes());
                    seen.clear();
                }
            });
        }
    });
    address
}
