//! Messages, both ways.

use crate::support::{Gateway, Setup};

const GET: &str =
    "GET /path?query HTTP/1.1\r\nHost: a.example\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Own: 2\r\n\r\n";

#[test]
fn a_request_goes_on_without_the_fields_of_its_connection_and_its_response_comes_back() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    assert!(request.starts_with("GET /path?query HTTP/1.1\r\nHost: a.example\r\n"), "{request}");
    assert!(request.contains("X-Own: 2\r\n") && !request.contains("X-Hop"), "{request}");
    assert!(request.contains(&format!("x-forwarded-for: {}\r\n", client.1)), "{request}");
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: 5\r\nX-Origin: 1\r\n\r\nhi");
    let response = client.0.rest();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("\r\n\r\nhi"), "{response}");
    assert!(response.contains("X-Origin: 1\r\n") && !response.contains("Keep-Alive"), "{response}");
}

#[test]
fn the_stages_of_a_request_are_timed() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
    drop((client, origin));
    gateway.rests();
    let count = |stage| gateway.count("weir_request_stage_duration_seconds", &[("stage", stage)]);
    assert_eq!(["parse", "policy", "lane_wait", "encode", "write"].map(count), [1, 1, 1, 1, 0]);
}

#[test]
fn requests_that_come_together_get_their_responses_in_order_on_one_lane() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    for number in ["1", "2"] {
        assert!(origin.request().starts_with(&format!("GET /{number} ")));
        origin.send(&format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}"));
        assert!(client.response().ends_with(&format!("\r\n\r\n{number}")));
    }
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_chunked_body_that_fits_goes_on_with_its_length() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    let mut origin = gateway.origin.accept();
    let request = origin.request().to_lowercase();
    assert!(request.contains("content-length: 5\r\n") && request.ends_with("\r\n\r\nabcde"), "{request}");
    origin.send("HTTP/1.1 204 No Content\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 204 "));
}

#[test]
fn a_body_that_is_not_buffered_is_streamed() {
    let gateway = Gateway::start(Setup::plain(|action| action.request_buffer_bytes = Some(0)));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    let mut origin = gateway.origin.accept();
    assert!(origin.head().to_lowercase().contains("transfer-encoding: chunked\r\n"));
    assert_eq!(origin.0.until("abc\r\n"), "3\r\nabc\r\n");
    client.send("0\r\n\r\n");
    assert_eq!(origin.0.until("0\r\n\r\n"), "0\r\n\r\n");
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_chunked_response_reaches_the_client_in_chunks_as_it_comes() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
    assert!(client.head().to_lowercase().contains("transfer-encoding: chunked"));
    assert_eq!(client.0.until("first\r\n"), "5\r\nfirst\r\n");
    origin.send("4\r\nlast\r\n0\r\n\r\n");
    assert_eq!(client.0.until("0\r\n\r\n"), "4\r\nlast\r\n0\r\n\r\n");
}

#[test]
fn a_body_without_an_end_becomes_chunks_and_costs_the_lane() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\n\r\nall of it");
    drop(origin);
    assert!(client.response().ends_with("9\r\nall of it\r\n0\r\n\r\n"));
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    assert!(origin.request().starts_with("GET /2 "));
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    client.response();
}

#[test]
fn a_client_of_http_1_0_sees_the_end_of_the_connection() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let mut origin = gateway.origin.accept();
    assert!(origin.request().starts_with("GET / HTTP/1.1\r\n"));
    origin.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let response = client.0.rest();
    assert!(response.contains("Connection: close\r\n") && response.ends_with("\r\n\r\nabc"), "{response}");
}

#[test]
fn a_client_that_expects_100_continue_gets_it_before_its_body_is_read() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    assert!(gateway.origin.is_untouched());
    client.send("abc");
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    assert!(request.ends_with("\r\n\r\nabc") && !request.contains("Expect"), "{request}");
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_response_to_head_has_a_length_and_no_body() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    assert!(client.head().contains("Content-Length: 1000\r\n"));
    drop(origin);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    assert!(client.response().ends_with("\r\n\r\nok"));
}

#[test]
fn bytes_of_an_origin_behind_a_response_reach_no_client() {
    let gateway = Gateway::start(Setup::plain(|_| {}));
    let mut client = gateway.client();
    client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut origin = gateway.origin.accept();
    origin.request();
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    origin.send(&format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1{forged}"));
    assert!(client.response().ends_with("\r\n\r\n1"));
    // Its lane is gone: the next request is on another one.
    client.send("GET /2 HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut next = gateway.origin.accept();
    assert!(next.request().starts_with("GET /2 "));
    next.send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
    assert!(client.response().ends_with("\r\n\r\n2"));
    assert_eq!(origin.0.rest(), "");
}
