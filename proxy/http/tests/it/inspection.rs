//! Inspections of request bodies, in real exchanges.

use std::sync::Arc;

use bytes::Bytes;
use weir_http::{
    compression::{Coding, Compression},
    filter::{Caller, FilterFactory, HttpFilter, Inspect, RequestChoice, SeenBody, Tap, UpstreamChoice, WholeResponse},
    routes::{Action, Mirror},
};
use weir_http_codec::{Fields, RequestHead};

use crate::{
    filters::{Call, FilterCalls, recording},
    http2::Http2Client,
    retries::{before_two, first_and_second, on_503},
    support::{Gateway, Origin, Setup},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

fn whole(status: u16, body: &'static str) -> WholeResponse {
    WholeResponse { status, fields: Fields::new(), body: Bytes::from_static(body.as_bytes()) }
}

/// Refuses bodies with `bad` in them, and sends bodies with `other` in them to the second upstream.
#[derive(Clone, Debug)]
pub struct Words(pub Inspect);

impl FilterFactory for Words {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(Seen { look: self.0, seen: Vec::new() })
    }
}

struct Seen {
    look: Inspect,
    seen: Vec<u8>,
}

impl Seen {
    fn has(&self, word: &str) -> bool {
        self.seen.windows(word.len()).any(|window| window == word.as_bytes())
    }
}

impl HttpFilter for Seen {
    fn inspect(&mut self, head: &RequestHead, _: &Caller) -> Inspect {
        if head.target() == b"/unseen" { Inspect::No } else { self.look }
    }

    fn request_data(&mut self, piece: &[u8]) -> Result<(), WholeResponse> {
        self.seen.extend_from_slice(piece);
        if self.has("bad") { Err(whole(422, "no")) } else { Ok(()) }
    }

    fn choose_upstream(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Result<RequestChoice, WholeResponse> {
        assert!(self.seen.starts_with(seen.bytes), "the buffered part is the beginning");
        head.fields.push(b"x-seen", format!("{} {}", self.seen.len(), seen.is_whole).as_bytes());
        Ok(match self.has("other") {
            true => UpstreamChoice::Upstream { name: "b".into(), host: Some(b"b.example"[..].into()) },
            false => UpstreamChoice::Route,
        }
        .into())
    }

    fn request_end(&mut self) -> Result<(), WholeResponse> {
        if self.has("late") { Err(whole(409, "late")) } else { Ok(()) }
    }
}

fn inspected(look: Inspect) -> Setup {
    Setup::plain(|action| {
        action.request_buffer_bytes = Some(0);
        action.filter = Some(Arc::new(Words(look)));
    })
}

#[test]
fn a_body_is_refused_midway_and_its_origin_never_gets_the_end() {
    let gateway = Gateway::start(inspected(Inspect::Streaming));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\ngood ");
    let mut origin = gateway.origin.accept();
    assert!(origin.0.until("good ").starts_with("POST / "));
    client.send("bad..");
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 422 ") && response.ends_with("\r\n\r\nno"), "{response}");
    assert_eq!(origin.0.rest(), "");
}

#[test]
fn a_body_is_refused_at_its_end() {
    let gateway = Gateway::start(inspected(Inspect::Streaming));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlate\r\n");
    let mut origin = gateway.origin.accept();
    origin.0.until("late\r\n");
    client.send("0\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 409 "));
    assert_eq!(origin.0.rest(), "");
}

#[test]
fn a_buffered_body_is_refused_before_an_origin_sees_it() {
    let gateway = Gateway::start(inspected(Inspect::Buffered(1000)));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbadGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.response().starts_with("HTTP/1.1 422 "));
    // The connection goes on.
    let mut origin = gateway.origin.accept();
    assert!(origin.request().starts_with("GET / "));
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}

#[test]
fn an_inspection_chooses_the_upstream_by_the_body() {
    let other = Origin::new();
    let mut setup = inspected(Inspect::Buffered(1000));
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nother");
    let mut origin = other.accept();
    let request = origin.request();
    assert!(request.contains("Host: b.example\r\n") && request.contains("x-seen: 5 true\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nother"), "{request}");
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
    assert!(gateway.origin.is_untouched());
}

#[test]
fn a_body_longer_than_the_buffer_chooses_by_its_beginning_and_is_inspected_to_its_end() {
    let gateway = Gateway::start(inspected(Inspect::Buffered(4)));
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nmuch");
    let mut origin = gateway.origin.accept();
    let head = origin.head();
    assert!(head.contains("x-seen: 4 false\r\n"), "{head}");
    client.send(" later");
    let response = client.response();
    assert!(response.starts_with("HTTP/1.1 409 "), "{response}");
    assert_eq!(origin.0.rest(), "much");
}

#[test]
fn a_request_that_an_inspection_leaves_out_passes() {
    let gateway = Gateway::start(inspected(Inspect::Buffered(1000)));
    let request = "POST /unseen HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nbad";
    assert!(gateway.exchange(request, OK).ends_with("ok"));
}

/// The calls for a request whose body is `abc`, whole before the choice.
fn kept_whole() -> Vec<Call> {
    let data = Call::Data(b"abc".to_vec());
    vec![Call::Enter, Call::Inspect, data, Call::RequestEnd, Call::Choose { is_whole: true }]
}

fn recorded(look: Inspect, change: impl FnOnce(&mut Action)) -> (Setup, FilterCalls) {
    let (mut filter, heard) = recording();
    filter.inspect = look;
    let setup = Setup::plain(|action| {
        filter.install(action);
        // No more is buffered than the filter wants.
        action.request_buffer_bytes = Some(0);
        change(action);
    });
    (setup, heard)
}

#[test]
fn the_calls_come_in_their_order() {
    let tapped = [Call::Tap { status: 200 }];
    let (setup, heard) = recorded(Inspect::Buffered(100), |_| {});
    Gateway::start(setup).exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", OK);
    assert_eq!(heard.before_the_end(), [kept_whole(), tapped.to_vec()].concat());

    let (setup, heard) = recorded(Inspect::Buffered(3), |_| {});
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    let mut origin = gateway.origin.accept();
    origin.head();
    client.send("def");
    origin.0.until("abcdef");
    origin.send(OK);
    client.response();
    let data = |text: &str| Call::Data(text.into());
    let choose = Call::Choose { is_whole: false };
    let calls = [Call::Enter, Call::Inspect, data("abc"), choose, data("def"), Call::RequestEnd];
    assert_eq!(heard.before_the_end(), [&calls[..], &tapped].concat());

    let (setup, heard) = recorded(Inspect::Streaming, |_| {});
    let gateway = Gateway::start(setup);
    gateway.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", OK);
    let calls = [Call::Enter, Call::Inspect, data("abc"), Call::RequestEnd];
    assert_eq!(heard.before_the_end(), [&calls[..], &tapped].concat());
    gateway.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\n", OK);
    assert_eq!(heard.before_the_end(), [&[Call::Enter, Call::Inspect][..], &tapped].concat());
}

#[test]
fn each_byte_is_seen_once_when_the_body_is_sent_again() {
    let (mut filter, heard) = recording();
    filter.inspect = Inspect::Buffered(100);
    let other = Origin::new();
    let gateway = before_two(&other, on_503(1), |action| filter.install(action));
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert!(first_and_second(&gateway, &other, UNAVAILABLE).ends_with("\r\n\r\nabc"));
    assert!(client.response().starts_with("HTTP/1.1 200 "));
    // The body of the response is empty: it could be replaced.
    assert_eq!(heard.before_the_end(), [&kept_whole()[..], &[Call::Tap { status: 200 }]].concat());
}

#[test]
fn a_client_that_expects_100_continue_gets_it_before_its_body_is_inspected() {
    let (setup, heard) = recorded(Inspect::Buffered(100), |_| {});
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 100 "));
    client.send("abc");
    let mut origin = gateway.origin.accept();
    assert!(origin.request().ends_with("\r\n\r\nabc"));
    origin.send(OK);
    assert!(client.response().starts_with("HTTP/1.1 200 "));
    assert_eq!(heard.before_the_end(), [kept_whole(), vec![Call::Tap { status: 200 }]].concat());
}

#[test]
fn trailers_pass_behind_an_inspection() {
    for look in [Inspect::Streaming, Inspect::Buffered(100)] {
        let (setup, heard) = recorded(look, |_| {});
        let gateway = Gateway::start(setup);
        let mut client = gateway.client();
        let body = "3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n";
        client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
        let mut origin = gateway.origin.accept();
        origin.head();
        assert!(origin.0.until("6\r\n\r\n").to_lowercase().ends_with("abc\r\n0\r\nx-sum: 6\r\n\r\n"));
        origin.send(OK);
        client.response();
        let calls = heard.before_the_end();
        assert_eq!(calls.iter().filter(|call| **call == Call::RequestEnd).count(), 1, "{calls:?}");
        assert!(calls.contains(&Call::Data(b"abc".to_vec())), "{calls:?}");
    }
}

#[test]
fn a_body_on_a_stream_is_inspected_to_its_end_also_if_it_is_empty() {
    for (body, look) in [("abc", Inspect::Buffered(100)), ("abc", Inspect::Streaming), ("", Inspect::Streaming)] {
        let (setup, heard) = recorded(look, |_| {});
        let gateway = Gateway::start(setup);
        let mut client = Http2Client::new(gateway.client());
        client.post(1, "/", body);
        let mut origin = gateway.origin.accept();
        assert!(origin.request().contains(body));
        origin.send(OK);
        assert_eq!(client.response(1).body, b"ok");
        let calls = heard.before_the_end();
        assert_eq!(calls.iter().filter(|call| **call == Call::RequestEnd).count(), 1, "{calls:?}");
        assert!(body.is_empty() || calls.contains(&Call::Data(body.into())), "{calls:?}");
    }
}

#[test]
fn a_mirror_gets_the_body_that_an_inspection_passed() {
    let second = Origin::new();
    let mirror = Mirror { upstream: 1, share: 1.0, body_bytes_max: 100 };
    let (mut setup, heard) = recorded(Inspect::Buffered(100), |action| action.mirror = Some(mirror));
    setup.upstreams = vec![Vec::new(), vec![second.address]];
    let gateway = Gateway::start(setup);
    gateway.exchange("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", OK);
    let mut mirrored = second.accept();
    assert!(mirrored.request().ends_with("\r\n\r\nabc"));
    mirrored.send(OK);
    assert_eq!(heard.before_the_end(), [kept_whole(), vec![Call::Tap { status: 200 }]].concat());
}

#[test]
fn the_coding_of_the_response_is_the_clients_whatever_becomes_of_the_head() {
    let other = Origin::new();
    let (mut filter, _heard) = recording();
    (filter.inspect, filter.tap) = (Inspect::Buffered(100), Tap::Follow);
    filter.choice = UpstreamChoice::Upstream { name: "b".into(), host: None };
    let mut setup = Setup::plain(|action| filter.install(action));
    setup.upstreams = vec![Vec::new(), vec![other.address]];
    let compression = Compression { codings: vec![Coding::Gzip], bytes_min: 1, types: vec!["text/*".into()] };
    setup.change = Box::new(move |settings| settings.compression = Some(Arc::new(compression)));
    let gateway = Gateway::start(setup);
    let mut client = gateway.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
    let mut origin = other.accept();
    assert!(!origin.request().contains("gzip"));
    origin.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok");
    assert!(client.head().contains("content-encoding: gzip\r\n"));
    while client.0.chunk().is_some() {}
}

/// Refuses requests by their heads.
#[derive(Debug)]
struct Heads;

impl FilterFactory for Heads {
    fn create(&self, _: &RequestHead, _: &Caller) -> Box<dyn HttpFilter> {
        Box::new(RefusesHead(false))
    }
}

struct RefusesHead(bool);

impl HttpFilter for RefusesHead {
    fn inspect(&mut self, head: &RequestHead, _: &Caller) -> Inspect {
        self.0 = head.target() == b"/no";
        Inspect::Buffered(100)
    }

    fn refuse_head(&mut self) -> Option<WholeResponse> {
        self.0.then(|| whole(401, "no"))
    }
}

#[test]
fn a_refusal_of_a_head_waits_for_no_body_and_comes_in_place_of_a_100() {
    let gateway = Gateway::start(Setup::plain(|action| action.filter = Some(Arc::new(Heads))));
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut client = gateway.client();
        client.send(&format!("POST /no HTTP/1.1\r\nHost: a\r\n{expect}Content-Length: 10\r\n\r\n"));
        let response = client.response();
        assert!(response.starts_with("HTTP/1.1 401 ") && response.ends_with("no"), "{response}");
    }
    assert!(gateway.origin.is_untouched());
    let mut client = gateway.client();
    client.send("POST /yes HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    let mut origin = gateway.origin.accept();
    assert!(origin.request().ends_with("hi"));
    origin.send(OK);
    assert!(client.response().ends_with("ok"));
}
