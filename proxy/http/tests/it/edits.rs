//! Changes of request bodies by filters, in real exchanges.

use weir_http::filter::{BodyChange, Splice};
use weir_telemetry::catalog;

use crate::{
    choosing::{Choice, Choosing},
    http2::Http2Client,
    retries::{before_two, first_and_second, on_503},
    support::{Gateway, Setup},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
/// A body, and the same with its model spliced and a member behind it.
const BODY: &str = r#"{"name":"a","rest":[1, 2]}"#;
const EDITED: &str = r#"{"name":"longer","rest":[1, 2],"more":true}"#;

fn splice(range: std::ops::Range<usize>, replacement: &'static str) -> Splice {
    Splice { range, replacement: replacement.into() }
}

fn edits() -> BodyChange {
    BodyChange::Splice(vec![splice(9..10, "longer"), splice(25..25, r#","more":true"#)])
}

fn changing(change: BodyChange, buffer_bytes: usize) -> Gateway {
    let mut filter = Choosing::new(vec![Choice::body(change)]);
    filter.buffer_bytes = buffer_bytes;
    Gateway::start(Setup::plain(|action| filter.install(action)))
}

fn post(body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The request that the origin gets.
fn received(gateway: &Gateway, request: &str) -> String {
    let mut client = gateway.client();
    client.send(request);
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
    request
}

#[test]
fn edits_change_a_body_and_its_length() {
    let request = received(&changing(edits(), 1000), &post(BODY));
    assert!(request.contains(&format!("Content-Length: {}\r\n", EDITED.len())), "{request}");
    assert!(request.ends_with(&format!("\r\n\r\n{EDITED}")), "{request}");
}

#[test]
fn a_body_that_a_filter_keeps_goes_on_as_it_came() {
    let request = received(&changing(BodyChange::Keep, 1000), &post(BODY));
    assert!(request.ends_with(&format!("\r\n\r\n{BODY}")), "{request}");
}

#[test]
fn the_bytes_behind_the_buffered_part_follow_the_edits() {
    let gateway = changing(BodyChange::Splice(vec![splice(0..1, "<<"), splice(4..4, ">>")]), 4);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123");
    let mut origin = gateway.origin.accept();
    let head = origin.head();
    assert!(head.contains("Content-Length: 13\r\n"), "{head}");
    client.send("456789");
    assert_eq!(origin.0.bytes(13), b"<<123>>456789");
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn a_chunked_body_that_is_not_whole_stays_chunked() {
    let gateway = changing(BodyChange::Splice(vec![splice(0..4, "new")]), 4);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n0123\r\n");
    let mut origin = gateway.origin.accept();
    let head = origin.head().to_lowercase();
    assert!(head.contains("transfer-encoding: chunked\r\n") && !head.contains("content-length"), "{head}");
    client.send("2\r\n45\r\n0\r\nX-Sum: 6\r\n\r\n");
    let mut body = Vec::new();
    while let Some(chunk) = origin.0.chunk_or_last() {
        body.extend(chunk);
    }
    assert_eq!(body, b"new45");
    assert!(origin.0.until("\r\n\r\n").to_lowercase().contains("x-sum: 6\r\n"));
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn a_chunked_body_that_is_whole_gets_the_length_of_what_goes_on() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n01\r\n0\r\n\r\n";
    let request = received(&changing(BodyChange::Splice(vec![splice(2..2, "23")]), 1000), chunked);
    assert!(request.contains("Content-Length: 4\r\n") && request.ends_with("\r\n\r\n0123"), "{request}");
}

#[test]
fn a_body_is_replaced_whole_whatever_its_size() {
    for size in [0, 1, 200_000] {
        let new: String = (0..size).map(|at: u32| char::from(b'a' + (at % 26) as u8)).collect();
        let request = received(&changing(BodyChange::Replace(new.clone().into()), 1000), &post(BODY));
        assert!(request.contains(&format!("Content-Length: {size}\r\n")), "{size}");
        assert!(request.split_once("\r\n\r\n").expect("a head").1 == new, "{size}");
    }
}

#[test]
fn a_large_body_with_many_edits_arrives_edited() {
    let came: String = (0..300_000).map(|at: u32| char::from(b'0' + (at % 10) as u8)).collect();
    let splices: Vec<_> = (0..2000).map(|number| splice(number * 150..number * 150 + 1, "XY")).collect();
    let mut expected = came.clone().into_bytes();
    for number in (0..2000).rev() {
        expected.splice(number * 150..number * 150 + 1, *b"XY");
    }
    let request = received(&changing(BodyChange::Splice(splices), 1 << 20), &post(&came));
    assert!(request.contains(&format!("Content-Length: {}\r\n", expected.len())));
    assert!(request.split_once("\r\n\r\n").expect("a head").1.as_bytes() == expected);
}

#[test]
fn a_retry_sends_the_edited_bytes() {
    let other = crate::support::Origin::new();
    let filter = Choosing::new(vec![Choice::body(edits())]);
    let gateway = before_two(&other, on_503(1), |action| filter.install(action));
    let mut client = gateway.client();
    client.send(&post(BODY).replace("POST", "PUT"));
    let request = first_and_second(&gateway, &other, UNAVAILABLE);
    assert!(request.ends_with(&format!("\r\n\r\n{EDITED}")), "{request}");
    assert!(client.response().starts_with("HTTP/1.1 200 "));
}

#[test]
fn edits_change_a_body_on_a_stream() {
    let gateway = changing(edits(), 1000);
    let mut client = Http2Client::new(gateway.client());
    client.post(1, "/", BODY);
    let mut origin = gateway.origin.accept();
    let request = origin.request();
    assert!(request.ends_with(&format!("\r\n\r\n{EDITED}")), "{request}");
    origin.send(OK);
    assert_eq!(client.response(1).body, b"ok");
}

#[test]
fn a_change_that_breaks_a_rule_is_an_error_of_the_filter_and_no_origin_sees_the_request() {
    let broken = [
        BodyChange::Splice(vec![splice(0..BODY.len() + 1, "")]),
        BodyChange::Splice(vec![splice(4..5, ""), splice(3..4, "")]),
        BodyChange::Splice(vec![splice(2..4, ""), splice(3..5, "")]),
    ];
    for change in broken {
        let gateway = changing(change.clone(), 1000);
        let mut client = gateway.client();
        client.send(&post(BODY));
        assert!(client.response().starts_with("HTTP/1.1 500 "), "{change:?}");
        assert!(gateway.origin.is_untouched());
        let labels = [("listener", "test"), ("reason", "filter_failed"), ("culprit", "gateway")];
        assert_eq!(gateway.counter(catalog::VIOLATIONS.name, &labels), 1, "{change:?}");
        // The connection goes on.
        client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.response();
    }
}

#[test]
fn a_body_that_was_not_seen_whole_is_not_replaced() {
    let gateway = changing(BodyChange::Replace("new".into()), 4);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123");
    assert!(client.response().starts_with("HTTP/1.1 500 "));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn new_bytes_without_memory_for_them_are_refused() {
    let filter = Choosing::new(vec![Choice::body(BodyChange::Replace(vec![0; 2 << 20].into()))]);
    let mut setup = Setup::plain(|action| filter.install(action));
    setup.buffered_bytes = 1 << 20;
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(&post(BODY));
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 503 ") && response.contains("Retry-After: "), "{response}");
    assert!(gateway.origin.is_untouched());
    let labels = [("listener", "test"), ("reason", "body_no_room")];
    assert_eq!(gateway.counter(catalog::SHED.name, &labels), 1);
}

#[test]
fn a_request_without_a_body_has_a_choice_and_no_change() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let request = received(&changing(BodyChange::Keep, 1000), get);
    assert!(request.contains("x-choice: 1\r\n"), "{request}");
    let gateway = changing(BodyChange::Replace("x".into()), 1000);
    let mut client = gateway.client();
    client.send(get);
    assert!(client.response().starts_with("HTTP/1.1 500 "));
    assert!(gateway.origin.is_untouched());
}
