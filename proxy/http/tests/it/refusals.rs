//! Refusals, which leave no trace at an origin, and origins that fail.

use std::{net::TcpListener, time::Duration};

use crate::support::{Gateway, Setup};

fn refused(setup: Setup, request: &str, status: u16) {
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(request);
    let response = client.response();
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert!(gateway.origin.is_untouched(), "an origin has seen it");
}

#[test]
fn a_malformed_head_is_refused() {
    refused(Setup::plain(|_| {}), "GET / HTTP/1.1\r\nHost: a\r\nBad Name: 1\r\n\r\n", 400);
}

#[test]
fn two_lengths_are_refused() {
    let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    refused(Setup::plain(|_| {}), request, 400);
}

#[test]
fn a_path_that_could_be_read_in_two_ways_is_refused() {
    refused(Setup::plain(|_| {}), "GET /a%2f..%2fb HTTP/1.1\r\nHost: a\r\n\r\n", 400);
}

#[test]
fn a_body_that_is_announced_too_long_is_refused() {
    let setup = Setup::plain(|action| action.request_body_bytes_max = Some(10));
    refused(setup, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n", 413);
}

#[test]
fn a_body_that_becomes_too_long_is_refused() {
    let setup = Setup::plain(|action| action.request_body_bytes_max = Some(4));
    refused(setup, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n", 413);
}

#[test]
fn grpc_over_http_1_1_is_refused() {
    refused(Setup::plain(|_| {}), "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\r\n", 426);
}

#[test]
fn one_exchange_too_many_is_shed() {
    let gateway = Gateway::start(Setup { in_flight: 1, ..Setup::plain(|_| {}) });
    let (mut first, mut second) = (gateway.client(), gateway.client());
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = second.response();
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("Retry-After: "), "{response}");
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(first.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_origin_that_cannot_be_reached_is_a_bad_gateway() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let mut setup = Setup::of(vec![crate::support::route("/", crate::support::upstream(1), |_| {})]);
    setup.upstreams = vec![Vec::new(), vec![gone]];
    refused(setup, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 502);
}

#[test]
fn an_origin_that_closes_in_its_head_is_a_bad_gateway() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nX: ");
    drop(origin);
    assert!(client.response().starts_with("HTTP/1.1 502 "));
}

#[test]
fn an_origin_that_says_nothing_is_a_timeout() {
    let gateway = Gateway::start(Setup::plain(|action| action.response_timeout = Some(Duration::from_millis(50))));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    assert!(client.response().starts_with("HTTP/1.1 504 "));
    assert_eq!(origin.0.rest(), "", "the lane ends");
}

#[test]
fn a_response_that_breaks_off_does_not_look_whole() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert!(client.0.until("abc\r\n").starts_with("HTTP/1.1 200 "));
    drop(origin);
    assert_eq!(client.0.rest(), "", "no last chunk");
}

#[test]
fn a_client_that_leaves_takes_its_request_from_the_origin() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    drop(client);
    assert_eq!(origin.0.rest(), "", "the lane ends");
}
