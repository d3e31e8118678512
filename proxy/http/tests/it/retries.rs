//! Further attempts, as long as the client has nothing of a response.

use std::{net::TcpListener, time::Instant};

use weir_http::{routes::Action, settings::RetrySettings};

use crate::support::{Gateway, Origin, PATIENCE, Setup};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

pub fn on_503(attempts: u32) -> RetrySettings {
    RetrySettings { attempts, statuses: vec![503], ..RetrySettings::default() }
}

/// Its requests go to two origins in turn; with these retries.
pub fn before_two(other: &Origin, retry: RetrySettings, change: impl FnOnce(&mut Action)) -> Gateway {
    let mut setup = Setup::plain(|action| {
        action.retry = Some(Box::new(retry));
        change(action);
    });
    setup.upstreams = vec![vec![other.address]];
    Gateway::start(setup)
}

/// Responds to one request at the origin that it comes to first, and then to the other one.
pub fn first_and_second(gateway: &Gateway, other: &Origin, response: &str) -> String {
    let begun = Instant::now();
    let is_first = loop {
        assert!(begun.elapsed() < PATIENCE, "no origin is asked");
        if let Some(mut end) = gateway.origin.waiting() {
            end.request();
            end.send(response);
            break true;
        }
        if let Some(mut end) = other.waiting() {
            end.request();
            end.send(response);
            break false;
        }
        std::thread::yield_now();
    };
    let mut end = if is_first { other.accept() } else { gateway.origin.accept() };
    let request = end.request();
    end.send(OK);
    request
}

#[test]
fn a_retried_status_comes_from_the_other_endpoint() {
    let other = Origin::new();
    let gateway = before_two(&other, on_503(1), |_| {});
    let mut client = gateway.client();
    client.send(GET);
    let request = first_and_second(&gateway, &other, UNAVAILABLE);
    assert!(request.starts_with("GET / "), "{request}");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_buffered_body_is_retried_whole() {
    let other = Origin::new();
    let gateway = before_two(&other, on_503(1), |_| {});
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    let request = first_and_second(&gateway, &other, UNAVAILABLE);
    assert!(request.ends_with("\r\n\r\nhello"), "{request}");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_request_that_is_not_idempotent_is_not_retried() {
    let gateway = Gateway::start(Setup::plain(|action| action.retry = Some(Box::new(on_503(2)))));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(UNAVAILABLE);
    assert!(client.response().starts_with("HTTP/1.1 503 "));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn an_endpoint_that_refuses_connections_is_followed_by_the_other() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let mut setup = Setup::plain(|_| {});
    setup.upstreams = vec![vec![gone]];
    let gateway = Gateway::start(setup);
    // In turn: one of the two goes to the endpoint that is gone first.
    for _ in 0..2 {
        let mut client = gateway.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
        let mut origin = gateway.origin.accept();
        assert!(origin.request().ends_with("\r\n\r\nx"));
        origin.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert!(client.response().starts_with("HTTP/1.1 200 "));
    }
}

#[test]
fn an_idle_lane_that_the_origin_closes_costs_no_request() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(OK);
    client.response();
    client.send(GET);
    // The second request is on the idle lane, and the origin ends that without a word.
    origin.head();
    drop(origin);
    let mut origin = gateway.origin.accept();
    assert!(origin.request().starts_with("GET / "));
    origin.send(OK);
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}
