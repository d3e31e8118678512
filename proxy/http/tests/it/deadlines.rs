//! Deadlines of filters, in real exchanges.

use std::{io::Read as _, time::Duration};

use weir_http::filter::{BodyChange, Deadlines};
use weir_telemetry::catalog;

use crate::{
    choosing::{Choice, Choosing},
    http2::Http2Client,
    support::{Gateway, Origin, Setup},
};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SHORT: Duration = Duration::from_millis(60);

fn filter(deadlines: Deadlines) -> Choosing {
    Choosing { deadlines, ..Choosing::new(vec![Choice::body(BodyChange::Keep)]) }
}

fn first_byte() -> Choosing {
    filter(Deadlines { first_byte: Some(SHORT), ..Deadlines::default() })
}

fn with(filter: &Choosing) -> Gateway {
    Gateway::start(Setup::plain(|action| filter.clone().install(action)))
}

fn timeouts(gateway: &Gateway, reason: &str) -> u64 {
    gateway.counter(catalog::HTTP_TIMEOUTS.name, &[("listener", "test"), ("reason", reason)])
}

#[test]
fn a_response_whose_body_does_not_begin_in_time_is_a_504() {
    for head in ["", HEAD] {
        let filter = first_byte();
        let gateway = with(&filter);
        let mut client = gateway.client();
        client.send(GET);
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(head);
        let response = client.response();
        assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
        assert_eq!(filter.ends(), ["504 Refused first_byte_timeout a"]);
        assert_eq!(timeouts(&gateway, "first_byte_timeout"), 1);
        assert_eq!(origin.0.rest(), "", "its connection ends");
    }
}

#[test]
fn the_response_to_a_late_first_byte_has_the_form_of_the_filter() {
    let mut filter = first_byte();
    filter.refuses = Some(529);
    let gateway = with(&filter);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 529 ") && response.ends_with("\r\n\r\nfirst_byte_timeout"), "{response}");
    assert_eq!(timeouts(&gateway, "first_byte_timeout"), 1);
}

#[test]
fn another_choice_follows_a_head_whose_body_does_not_begin() {
    let mut filter = filter(Deadlines { first_byte: Some(5 * SHORT), ..Deadlines::default() });
    filter.attempts_max = 2;
    filter.choices.push(Choice { upstream: "b", ..Choice::body(BodyChange::Keep) });
    let other = Origin::new();
    let mut setup = Setup::plain(|action| filter.clone().install(action));
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    let mut second = other.accept();
    second.request();
    second.send(OK);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok"), "{response}");
    assert_eq!(filter.failures(), ["1 a timeout first_byte_timeout 0  true"]);
    assert_eq!(filter.ends(), ["200 Completed ok b"]);
}

#[test]
fn the_head_is_held_until_the_body_begins_and_no_longer() {
    let filter = filter(Deadlines { first_byte: Some(Duration::from_secs(10)), ..Deadlines::default() });
    let gateway = with(&filter);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    client.0.stream.set_read_timeout(Some(SHORT)).expect("a timeout");
    assert!(client.0.stream.read(&mut [0; 1]).is_err(), "nothing comes");
    client.0.stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("a timeout");
    origin.send("2\r\nok\r\n");
    assert!(client.0.until("ok\r\n").starts_with("HTTP/1.1 200 "));
    origin.send("0\r\n\r\n");
    client.0.until("0\r\n\r\n");
}

#[test]
fn a_body_that_is_empty_comes_to_its_end() {
    let cases = [
        (format!("{HEAD}0\r\n\r\n"), "0\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_owned(), "0\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned(), "\r\n\r\n"),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc".to_owned(), "3\r\nabc\r\n0\r\n\r\n"),
    ];
    for (response, end) in cases {
        let gateway = with(&first_byte());
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut origin = gateway.origin.accept();
        origin.request();
        origin.send(&response);
        drop(origin);
        let got = client.0.rest();
        assert!(got.starts_with("HTTP/1.1 200 ") && got.ends_with(end), "{response:?} {got:?}");
    }
}

#[test]
fn a_body_that_pauses_for_too_long_breaks_off_with_its_reason() {
    let filter = filter(Deadlines { idle: Some(SHORT), ..Deadlines::default() });
    let gateway = with(&filter);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    for _ in 0..3 {
        // Each piece begins another pause.
        std::thread::sleep(SHORT / 2);
        origin.send("1\r\nx\r\n");
        client.0.until("x\r\n");
    }
    assert_eq!(client.0.rest(), "", "no last chunk");
    assert_eq!(filter.ends(), ["200 Aborted idle_timeout a"]);
    assert_eq!(timeouts(&gateway, "idle_timeout"), 1);
}

#[test]
fn the_whole_exchange_has_a_deadline() {
    let total = || filter(Deadlines { total: Some(SHORT), ..Deadlines::default() });
    let silent = total();
    let gateway = with(&silent);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    assert!(client.response().starts_with("HTTP/1.1 504 "));
    assert_eq!(silent.ends(), ["504 Refused request_timeout a"]);
    assert_eq!(silent.failures(), ["1 a timeout request_timeout 0  false"]);
    assert_eq!(timeouts(&gateway, "request_timeout"), 1);
    drop((client, gateway, origin));
    let slow = total();
    let gateway = with(&slow);
    let mut client = gateway.client();
    client.send(GET);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    assert!(client.0.rest().ends_with("\r\n\r\n"));
    assert_eq!(slow.ends(), ["200 Aborted call_expired a"]);
    assert_eq!(timeouts(&gateway, "call_expired"), 1);
}

#[test]
fn deadlines_hold_on_a_stream() {
    let filter = first_byte();
    let gateway = with(&filter);
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut origin = gateway.origin.accept();
    origin.request();
    origin.send(HEAD);
    assert_eq!(client.response(1).status, 504);
    assert_eq!(filter.ends(), ["504 Refused first_byte_timeout a"]);
}
