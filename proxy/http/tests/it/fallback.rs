//! Choices of a filter after failed attempts, in real exchanges.

use std::{net::TcpListener, time::Duration};

use weir_http::{
    filter::{BodyChange, Splice},
    routes::Action,
    settings::RetrySettings,
};
use weir_telemetry::catalog;

use crate::{
    choosing::{Choice, Choosing},
    http2::Http2Client,
    support::{Gateway, Origin, OriginEnd, Setup},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy";
const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";

/// First the upstream of the route, then `b`, each with a field and a body of its own.
fn choices() -> Vec<Choice> {
    let edit = |text: &'static str| BodyChange::Splice(vec![Splice { range: 0..1, replacement: text.into() }]);
    vec![
        Choice { upstream: "", body: edit("first h"), field: ("x-key", "of-a") },
        Choice { upstream: "b", body: edit("H"), field: ("x-key", "of-b") },
    ]
}

fn filter() -> Choosing {
    Choosing { attempts_max: 2, ..Choosing::new(choices()) }
}

/// A gateway in front of `other` as its second upstream.
fn before(filter: &Choosing, other: &Origin, change: impl FnOnce(&mut Action)) -> Gateway {
    let mut setup = Setup::plain(|action| {
        filter.clone().install(action);
        change(action);
    });
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    Gateway::start(setup)
}

/// Checks the request of the first choice.
fn first(origin: &Origin) -> OriginEnd {
    let mut end = origin.accept();
    let request = end.request();
    assert!(request.contains("x-key: of-a\r\n") && request.ends_with("\r\n\r\nfirst hello"), "{request}");
    end
}

/// Checks the request of the second choice, and responds.
fn second(other: &Origin) {
    let mut end = other.accept();
    let request = end.request();
    assert!(request.contains("x-key: of-b\r\n") && !request.contains("of-a"), "{request}");
    assert!(request.contains("Content-Length: 5\r\n") && request.ends_with("\r\n\r\nHello"), "{request}");
    end.send(OK);
}

#[test]
fn a_status_leads_to_another_choice_with_its_own_head_and_body() {
    let (filter, other) = (filter(), Origin::new());
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    first(&gateway.origin).send(BUSY);
    second(&other);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok"), "{response}");
    assert_eq!(filter.failures(), ["1 a status origin_status 429 7 true"]);
}

#[test]
fn the_client_gets_the_response_that_is_there_if_the_filter_names_no_other() {
    let mut filter = filter();
    filter.statuses = vec![503];
    let other = Origin::new();
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    first(&gateway.origin).send(BUSY);
    let response = client.response();
    assert!(response.contains("Retry-After: 7\r\n") && response.ends_with("busy"), "{response}");
    assert!(other.is_untouched());
}

#[test]
fn attempts_are_bounded_and_the_last_response_is_that_of_the_client() {
    let (filter, other) = (filter(), Origin::new());
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    first(&gateway.origin).send(BUSY);
    let mut end = other.accept();
    end.request();
    end.send(BUSY);
    assert!(client.response().ends_with("busy"));
    let second = "2 b status origin_status 429 7 false";
    assert_eq!(filter.failures(), ["1 a status origin_status 429 7 true", second]);
}

#[test]
fn a_filter_gives_the_response_to_the_last_failure_in_its_own_form() {
    let mut filter = filter();
    filter.refuses = Some(529);
    let other = Origin::new();
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    drop(first(&gateway.origin));
    let mut end = other.accept();
    end.request();
    drop(end);
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 529 ") && response.ends_with("\r\n\r\norigin_closed"), "{response}");
}

#[test]
fn lost_connections_timeouts_and_refused_connections_lead_to_another_choice() {
    // The origin closes without a word.
    let (closing, other) = (filter(), Origin::new());
    let gateway = before(&closing, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    drop(first(&gateway.origin));
    second(&other);
    assert!(client.response().ends_with("ok"));
    assert_eq!(closing.failures(), ["1 a reset origin_closed 0  true"]);
    drop((client, gateway));
    // It is silent.
    let (silent, other) = (filter(), Origin::new());
    let gateway = before(&silent, &other, |action| action.response_timeout = Some(Duration::from_millis(300)));
    let mut client = gateway.client();
    client.send(POST);
    let _end = first(&gateway.origin);
    second(&other);
    assert!(client.response().ends_with("ok"));
    assert_eq!(silent.failures(), ["1 a timeout response_timeout 0  true"]);
    // It cannot be reached.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let unreachable = Choosing { choices: choices().into_iter().rev().collect(), ..filter() };
    let mut setup = Setup::plain(|action| unreachable.clone().install(action));
    setup.upstreams = vec![Vec::new(), vec![gone]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send(POST);
    first(&gateway.origin).send(OK);
    assert!(client.response().ends_with("ok"));
    assert_eq!(unreachable.failures(), ["1 b connect_failure connect 0  true"]);
}

#[test]
fn nothing_follows_once_the_client_has_a_part_of_a_response() {
    let (filter, other) = (filter(), Origin::new());
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send(POST);
    let mut end = first(&gateway.origin);
    end.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart");
    client.0.until("part");
    drop(end);
    assert_eq!(client.0.rest(), "");
    assert!(other.is_untouched() && filter.failures().is_empty());
}

#[test]
fn a_body_that_is_not_all_here_is_not_sent_again() {
    let mut filter = filter();
    filter.buffer_bytes = 5;
    filter.choices[0].body = BodyChange::Keep;
    let other = Origin::new();
    let gateway = before(&filter, &other, |_| {});
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello");
    let mut end = gateway.origin.accept();
    end.head();
    client.send("world");
    assert_eq!(end.0.bytes(10), b"helloworld");
    end.send(BUSY);
    assert!(client.response().ends_with("busy"));
    assert_eq!(filter.failures(), ["1 a status origin_status 429 7 false"]);
    assert!(other.is_untouched());
}

#[test]
fn the_retries_of_the_route_leave_statuses_to_such_a_filter() {
    let (filter, other) = (filter(), Origin::new());
    let retry = RetrySettings { statuses: vec![429], non_idempotent: true, ..RetrySettings::default() };
    let gateway = before(&filter, &other, |action| action.retry = Some(Box::new(retry)));
    let mut client = gateway.client();
    client.send(POST);
    // Two endpoints would get it in turn: the next request is that of the second choice.
    first(&gateway.origin).send("HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n");
    second(&other);
    assert!(client.response().ends_with("ok"));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn the_retry_budget_bounds_choices_after_failures_of_origins() {
    // Three retries may be under way in any case. The fourth request that fails gets what is there.
    let (filter, other) = (filter(), Origin::new());
    let gateway = before(&filter, &other, |_| {});
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut client = gateway.client();
        client.send(POST);
        first(&gateway.origin).send(BUSY);
        let mut end = other.accept();
        end.request();
        waiting.push((client, end));
    }
    let mut client = gateway.client();
    client.send(POST);
    first(&gateway.origin).send(BUSY);
    assert!(client.response().ends_with("busy"));
    assert_eq!(filter.failures().last().map(String::as_str), Some("1 a status origin_status 429 7 false"));
    let endpoint = gateway.origin.address.to_string();
    let labels = [("upstream", "a"), ("endpoint", &*endpoint), ("outcome", "status")];
    assert_eq!(gateway.counter(catalog::RETRIES.name, &labels), 3);
    for (mut client, mut end) in waiting {
        end.send(&OK.replace("Content", "Connection: close\r\nContent"));
        assert!(client.response().ends_with("ok"));
    }
    // They are over: the next one may follow again.
    client.send(POST);
    first(&gateway.origin).send(BUSY);
    second(&other);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn another_choice_follows_on_a_stream_too_and_for_a_request_without_a_body() {
    let mut filter = filter();
    filter.choices.iter_mut().for_each(|choice| choice.body = BodyChange::Keep);
    let other = Origin::new();
    let gateway = before(&filter, &other, |_| {});
    let mut client = Http2Client::new(gateway.client());
    client.request(1, &[(":method", "GET"), (":path", "/")]);
    let mut end = gateway.origin.accept();
    assert!(end.request().contains("x-key: of-a\r\n"));
    end.send(BUSY);
    let mut end = other.accept();
    let request = end.request();
    assert!(request.contains("x-key: of-b\r\n") && !request.contains("of-a"), "{request}");
    end.send(OK);
    let response = client.response(1);
    assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
}

/// A gateway in front of two endpoints of one upstream, of which the filter chooses one.
fn before_endpoints(filter: &Choosing, other: &Origin) -> Gateway {
    let mut setup = Setup::plain(|action| filter.clone().install(action));
    setup.upstreams = vec![vec![other.address]];
    Gateway::start(setup)
}

#[test]
fn a_chosen_endpoint_gets_the_request_and_no_other_one_does() {
    let choice = Choice { upstream: "a#1", ..Choice::body(BodyChange::Keep) };
    let (filter, other) = (Choosing::new(vec![choice]), Origin::new());
    let gateway = before_endpoints(&filter, &other);
    let mut client = gateway.client();
    for _ in 0..6 {
        client.send(POST);
        let mut end = other.accept();
        end.request();
        end.send(&OK.replace("200 OK", "200 OK\r\nConnection: close"));
        assert!(client.response().starts_with("HTTP/1.1 200 "));
    }
    assert!(gateway.origin.is_untouched());
    assert_eq!(*filter.attempts.lock().expect("no panic"), [1; 6]);
    // Out of reach, it is not replaced.
    drop(other);
    client.send(POST);
    assert!(client.response().starts_with("HTTP/1.1 502 "));
    assert!(gateway.origin.is_untouched());
    assert_eq!(filter.failures().last().map(String::as_str), Some("1 a connect_failure connect 0  false"));
}

#[test]
fn an_endpoint_that_the_upstream_does_not_have_gives_none() {
    let choice = Choice { upstream: "a#2", ..Choice::body(BodyChange::Keep) };
    let (filter, other) = (Choosing::new(vec![choice]), Origin::new());
    let gateway = before_endpoints(&filter, &other);
    let mut client = gateway.client();
    client.send(POST);
    assert!(client.response().starts_with("HTTP/1.1 503 "));
    assert!(gateway.origin.is_untouched() && other.is_untouched());
}

#[test]
fn another_choice_is_free_of_the_endpoint_before() {
    let choices = vec![
        Choice { upstream: "a#1", ..Choice::body(BodyChange::Keep) },
        Choice { upstream: "a#0", field: ("x-choice", "2"), ..Choice::body(BodyChange::Keep) },
    ];
    let (filter, other) = (Choosing { attempts_max: 2, ..Choosing::new(choices) }, Origin::new());
    let gateway = before_endpoints(&filter, &other);
    let mut client = gateway.client();
    client.send(POST);
    let mut end = other.accept();
    end.request();
    end.send(BUSY);
    let mut end = gateway.origin.accept();
    assert!(end.request().contains("x-choice: 2\r\n"));
    end.send(OK);
    assert!(client.response().starts_with("HTTP/1.1 200 "));
    assert_eq!(*filter.attempts.lock().expect("no panic"), [1, 0]);
}
